"""The service as its clients meet it: cards, problems, keys, limits, metrics, OpenAPI."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exactk.serving.http.security import hash_key
from exactk.serving.schemas import SOLVE_EXAMPLE
from exactk.serving.settings import Settings
from serving_server import client_of

# The service runs in a thread of this process; the shape checker's own dice there are no business of hypothesis.
pytestmark = pytest.mark.filterwarnings("ignore:Do not use the `random` module")


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with client_of(Settings(max_candidates=80)) as opened:
        yield opened


@pytest.fixture
def opened(request: pytest.FixtureRequest) -> Callable[..., httpx.Client]:
    """A service of its own, with settings of its own."""

    def build(**chosen: Any) -> httpx.Client:
        opening = client_of(Settings(**chosen))
        request.addfinalizer(lambda: opening.__exit__(None, None, None))
        return opening.__enter__()

    return build


def test_the_example_of_the_documentation_is_solved_with_proof(client: httpx.Client) -> None:
    answer = client.post("/v1/solve", json=SOLVE_EXAMPLE).json()
    assert sorted(answer["card"]) == ["beanie", "boots", "scarf-red"]
    assert answer["value"] == pytest.approx(0.94 + 0.81 + 0.61)
    assert answer["optimal"]
    assert answer["gap"] == 0


def test_without_items_the_candidates_are_called_by_position(client: httpx.Client) -> None:
    answer = client.post("/v1/solve", json={"k": 2, "scores": [0.1, 0.9, 0.5]}).json()
    assert answer["card"] == [1, 2]
    assert answer["positions"] == [1, 2]


def test_pairs_count_once_and_may_change_the_card(client: httpx.Client) -> None:
    pairs = [[0, 0, 5.0], [0, 0, 0], [5.0, 0, 0]]
    answer = client.post("/v1/solve", json={"k": 2, "scores": [1.0, 3.0, 1.0], "pair_scores": pairs}).json()
    assert sorted(answer["positions"]) == [0, 2]
    assert answer["value"] == pytest.approx(1 + 1 + 5)


def test_include_and_exclude_are_honoured(client: httpx.Client) -> None:
    body = {"k": 2, "scores": [0.1, 0.9, 0.5], "include": [0], "exclude": [1]}
    assert sorted(client.post("/v1/solve", json=body).json()["card"]) == [0, 2]


def test_no_valid_card_is_a_conflict_that_names_the_blocking_rules(client: httpx.Client) -> None:
    items = [{"item_id": n, "brand": "one", "size": n} for n in range(4)]
    rules = [{"type": "distinct", "field": "brand"}, {"type": "minimum_gap", "field": "size", "minimum": 1}]
    reply = client.post(
        "/v1/solve", json={"k": 2, "items": items, "scores": [1, 1, 1, 1], "constraints": rules}
    )
    assert reply.status_code == 409
    assert reply.headers["content-type"] == "application/problem+json"
    problem = reply.json()
    assert problem["type"] == "urn:exactk:problem:infeasible"
    assert "distinct brand" in problem["blocking"]
    assert not any("size" in name for name in problem["blocking"])


def test_relaxation_in_the_declared_order_is_reported(client: httpx.Client) -> None:
    items = [{"item_id": n, "brand": "one"} for n in range(3)]
    body = {
        "k": 2,
        "items": items,
        "scores": [3, 2, 1],
        "constraints": [{"type": "distinct", "field": "brand"}],
    }
    answer = client.post("/v1/solve", json={**body, "relax": ["distinct brand"]}).json()
    assert answer["card"] == [0, 1]
    assert answer["relaxed"] == ["distinct brand"]


def test_an_explanation_says_why_each_other_item_is_out(client: httpx.Client) -> None:
    answer = client.post("/v1/solve", json={**SOLVE_EXAMPLE, "explain": True}).json()
    (reason,) = answer["reasons"]
    assert reason["item"] == "scarf-blue"
    assert reason["conflicts"][0]["item"] == "scarf-red"
    assert reason["cost"] == pytest.approx(0.01)


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({"scores": [1, 2]}, "/k"),
        ({"k": 2, "scores": [1, "x"]}, "/scores/1"),
        ({"k": 2, "scores": [1, 2], "colour": "red"}, "/colour"),
        ({"k": 3, "scores": [1, 2]}, "card of 3"),
        ({"k": 1, "scores": [1, 2], "items": [{"item_id": "a"}]}, "1 items and 2 scores"),
        ({"k": 1, "scores": [1], "items": [{"title": "a"}]}, "item_id"),
        ({"k": 1, "scores": [1, 2], "items": [{"item_id": "a"}, {"item_id": "a"}]}, "twice"),
        ({"k": 1, "scores": [1, 2], "pair_scores": [[0, 1], [2, 0]]}, "symmetric"),
        ({"k": 1, "scores": [1, 2], "pair_scores": [[0, 1]]}, "square"),
        (
            {"k": 1, "scores": [1], "constraints": [{"type": "rule", "function": "os.system"}]},
            "must be a function",
        ),
        ({"k": 1, "scores": [1], "constraints": [{"type": "at_lest"}]}, '"count" with at_least'),
        (
            {
                "k": 1,
                "scores": [1],
                "items": [{"item_id": 1, "price": 2}],
                "constraints": [{"type": "total", "field": "prize", "at_most": 3}],
            },
            'no field "prize" (did you mean "price"?)',
        ),
        ({"k": 1, "scores": [1], "constraints": [{"type": "distinct", "field": "brand"}]}, "brand"),
        ({"k": 1, "scores": [1], "constraints": [{"type": "distinct"}]}, "field"),
        ({"k": 1, "scores": [1], "exclude": ["ghost"]}, "ghost"),
        ({"k": 1, "scores": [1, 1], "budget_ms": 0}, "/budget_ms"),
    ],
)
def test_a_wrong_body_is_refused_and_the_detail_says_where(
    client: httpx.Client, body: Any, named: str
) -> None:
    reply = client.post("/v1/solve", json=body)
    assert reply.status_code == 422
    assert named in reply.json()["detail"]


@pytest.mark.parametrize(
    "raw", [b"", b"{", b"[]", b"null", b'{"k": 1, "scores": [NaN]}', b"\xff\xfe", b"[" * 5000]
)
def test_what_is_not_a_body_at_all_is_refused(client: httpx.Client, raw: bytes) -> None:
    reply = client.post("/v1/solve", content=raw)
    assert reply.status_code == 422
    assert reply.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (
            {"include": [[]]},
            "/include/0: Input should be a valid integer; or: Input should be a valid string",
        ),
        ({"explain": "yes"}, "/explain: Input should be a valid boolean"),
    ],
)
def test_a_value_of_several_kinds_is_refused_in_plain_words(
    client: httpx.Client, wrong: dict[str, Any], said: str
) -> None:
    reply = client.post("/v1/solve", json={"k": 1, "scores": [1, 2], **wrong})
    assert reply.status_code == 422
    assert reply.json()["detail"] == said


def test_a_long_list_of_what_blocks_is_cut_short_in_words_only(client: httpx.Client) -> None:
    reply = client.post("/v1/solve", json={"k": 2, "scores": [1.0] * 20, "exclude": list(range(20))}).json()
    assert reply["status"] == 409
    assert len(reply["blocking"]) == 20  # the size, and all but one of those excluded
    assert reply["detail"].endswith("; and 12 more")


def test_too_many_candidates_and_too_many_bytes_are_413(
    client: httpx.Client, opened: Callable[..., httpx.Client]
) -> None:
    assert client.post("/v1/solve", json={"k": 1, "scores": [1] * 81}).status_code == 413
    small = opened(max_body_bytes=1000)
    reply = small.post("/v1/solve", content=b"x" * 1001)
    assert reply.status_code == 413
    assert reply.json()["type"] == "urn:exactk:problem:size"
    pieces = small.post("/v1/solve", content=iter([b"x" * 400] * 9))  # chunked: no length is announced
    assert pieces.status_code == 413


def test_unknown_paths_and_methods_are_problems_too(client: httpx.Client) -> None:
    for reply, status in ((client.get("/v1/nothing"), 404), (client.get("/v1/solve"), 405)):
        assert reply.status_code == status
        assert reply.headers["content-type"] == "application/problem+json"
        assert reply.json()["status"] == status


def test_keys_are_asked_for_everywhere_but_at_the_door(opened: Callable[..., httpx.Client]) -> None:
    client = opened(key_hashes=(hash_key("right"),))
    for path in ("/v1/model", "/metrics", "/v1/studio/sources", "/openapi.json"):
        reply = client.get(path)
        assert reply.status_code == 401
        assert reply.headers["www-authenticate"] == "Bearer"
        assert client.get(path, headers={"authorization": "Bearer wrong"}).status_code == 401
        assert client.get(path, headers={"authorization": "Bearer right"}).status_code == 200
        assert client.get(path, headers={"x-api-key": "right"}).status_code == 200
    for path in ("/", "/healthz", "/readyz", "/studio/studio.css"):
        assert client.get(path).status_code == 200
    assert client.post("/v1/solve", json=SOLVE_EXAMPLE).status_code == 401


def test_cors_is_closed_unless_opened(client: httpx.Client, opened: Callable[..., httpx.Client]) -> None:
    asked = {"origin": "http://shop.example", "access-control-request-method": "POST"}
    assert "access-control-allow-origin" not in client.get("/healthz", headers=asked).headers
    allowed = opened(cors_origins=("http://shop.example",)).options("/v1/solve", headers=asked)
    assert allowed.headers["access-control-allow-origin"] == "http://shop.example"


def test_health_readiness_and_the_model_card(client: httpx.Client) -> None:
    assert [client.head(path).status_code for path in ("/healthz", "/readyz")] == [200, 200]
    assert client.get("/healthz").json() == {"status": "alive"}
    assert client.get("/readyz").json() == {"status": "ready"}
    assert client.get("/v1/model").json()["mode"] == "solve"


def test_metrics_count_what_happened(opened: Callable[..., httpx.Client]) -> None:
    client = opened()
    client.post("/v1/solve", json=SOLVE_EXAMPLE)
    client.post(
        "/v1/solve", json={"k": 2, "scores": [1, 1], "constraints": [{"type": "forbid", "pairs": [[0, 1]]}]}
    )
    client.get("/some/strange/path")
    text = client.get("/metrics").text
    assert 'exactk_responses_total{route="/v1/solve",status="200"} 1.0' in text
    assert 'exactk_responses_total{route="/v1/solve",status="409"} 1.0' in text
    assert 'exactk_responses_total{route="other",status="404"} 1.0' in text
    assert "exactk_infeasible_total 1.0" in text
    assert 'exactk_seconds_count{route="/v1/solve"} 2.0' in text
    assert "strange" not in text


def test_openapi_carries_every_route_with_schemas_and_examples(client: httpx.Client) -> None:
    document = client.get("/openapi.json").json()
    assert {"/v1/solve", "/v1/feedback", "/v1/model", "/healthz", "/readyz", "/metrics"} <= set(
        document["paths"]
    )
    schemas = document["components"]["schemas"]
    assert schemas["SolveRequest"]["examples"] == [SOLVE_EXAMPLE]
    named = json.dumps(document["paths"])
    for reference in {part.split('"')[0] for part in named.split("#/components/schemas/")[1:]}:
        assert reference in schemas


def test_no_page_file_names_another_host(client: httpx.Client) -> None:
    for path in ("/", "/studio/studio.css", "/studio/parts.css", "/studio/js/main.js"):
        reply = client.get(path)
        assert reply.status_code == 200
        assert "default-src 'self'" in reply.headers["content-security-policy"]
        assert "http://" not in reply.text.replace("http://www.w3.org", "")
        assert "https://" not in reply.text
    for path in ("/studio/../app.py", "/studio/%2e%2e/app.py", "/studio//etc/passwd", "/studio/js"):
        assert client.get(path).status_code == 404


def test_feedback_is_on_disk_when_acknowledged_and_counted(
    opened: Callable[..., httpx.Client], tmp_path: Path
) -> None:
    client = opened(log=tmp_path)
    reply = client.post("/v1/feedback", json={"request_id": "r-1", "clicked": True, "clicked_item": "a"})
    assert reply.json() == {"kept": True, "request": "unknown", "item": None, "repeated": False}
    (journal,) = tmp_path.glob("feedback-*.jsonl")
    assert json.loads(journal.read_text())["clicked_item"] == "a"
    assert 'exactk_feedback_total{arm="unknown",clicked="true"} 1.0' in client.get("/metrics").text


def test_feedback_without_a_log_or_against_itself_is_refused(client: httpx.Client) -> None:
    assert client.post("/v1/feedback", json={"request_id": "r", "clicked": True}).status_code == 404
    wrong = {"request_id": "r", "clicked": False, "clicked_item": "a"}
    assert client.post("/v1/feedback", json=wrong).status_code == 422


@st.composite
def requests(draw: st.DrawFn) -> dict[str, Any]:
    """Small requests with integer weights, rules and wishes, valid or nearly so."""
    N = draw(st.integers(1, 7))
    weight = st.integers(-5, 5).map(float)
    items = [
        {"item_id": n, "brand": draw(st.sampled_from("abc")), "size": draw(st.integers(0, 6))}
        for n in range(N)
    ]
    rules = st.sampled_from(
        [
            {"type": "distinct", "field": "brand"},
            {"type": "at_most", "field": "brand", "m": 2},
            {"type": "minimum_gap", "field": "size", "minimum": 2},
            {"type": "forbid", "pairs": [[0, 1], [2, 3]]},
        ]
    )
    return {
        "k": draw(st.integers(1, 4)),
        "items": items,
        "scores": draw(st.lists(weight, min_size=N, max_size=N)),
        "constraints": draw(st.lists(rules, max_size=2)),
        "include": draw(st.lists(st.integers(0, N - 1), max_size=1)),
    }


def valid(card: tuple[int, ...], body: dict[str, Any]) -> bool:
    """The rules in plain words."""
    items = body["items"]
    for rule in body["constraints"]:
        if rule["type"] == "at_most":
            brands = [items[p]["brand"] for p in card]
            if any(brands.count(each) > rule["m"] for each in brands):
                return False
        for p, q in itertools.combinations(card, 2):
            if rule["type"] == "distinct" and items[p]["brand"] == items[q]["brand"]:
                return False
            if rule["type"] == "minimum_gap" and abs(items[p]["size"] - items[q]["size"]) < rule["minimum"]:
                return False
            if rule["type"] == "forbid" and ([p, q] in rule["pairs"] or [q, p] in rule["pairs"]):
                return False
    return set(body["include"]) <= set(card)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(requests())
def test_every_answer_is_the_best_of_all_cards_by_hand(client: httpx.Client, body: dict[str, Any]) -> None:
    reply = client.post("/v1/solve", json=body)
    N = len(body["items"])
    if body["k"] > N:
        assert reply.status_code == 422
        return
    values = [
        math.fsum(body["scores"][p] for p in card)
        for card in itertools.combinations(range(N), body["k"])
        if valid(card, body)
    ]
    assert reply.status_code == (200 if values else 409)
    if values:
        answer = reply.json()
        assert valid(tuple(answer["positions"]), body)
        assert len(set(answer["positions"])) == body["k"]
        assert answer["value"] == max(values)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
FIELDS = [
    "k",
    "scores",
    "items",
    "constraints",
    "include",
    "exclude",
    "pair_scores",
    "relax",
    "explain",
    "budget_ms",
]


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.sampled_from(FIELDS), JSON))
def test_no_body_is_our_fault(client: httpx.Client, body: dict[str, Any]) -> None:
    for path in ("/v1/solve", "/v1/studio/view", "/v1/studio/read", "/v1/feedback"):
        assert client.post(path, content=json.dumps(body)).status_code < 500


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(
        ["distinct", "at_most", "minimum_gap", "minimum_distance", "title_distance", "forbid", "allowed"]
    ),
    st.dictionaries(st.sampled_from(["field", "m", "minimum", "metric", "missing", "pairs", "matrix"]), JSON),
    st.lists(JSON, min_size=3, max_size=3),
)
def test_no_rule_and_no_attribute_is_our_fault(
    client: httpx.Client, kind: str, setting: dict[str, Any], values: list[Any]
) -> None:
    field = setting.get("field", "x")
    items = [{"item_id": n, str(field): value, "title": value} for n, value in enumerate(values)]
    rule = {"field": "x", "minimum": 0.5, "m": 1, **setting, "type": kind}
    for wanted in (
        rule,
        {key: rule[key] for key in ("type", "field", "minimum")},
        {"type": kind, "field": "x"},
    ):
        body = json.dumps({"k": 2, "items": items, "scores": [1, 2, 3], "constraints": [wanted]})
        assert client.post("/v1/solve", content=body).status_code < 500
