"""Cards by a model over HTTP: valid, logged with their propensity, split, reloaded, within a budget."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exactk.data.dataset import Dataset
from exactk.data.requests import Request
from exactk.data.requests.sheet import sheet_of
from exactk.engine.pair_tables import PairTables
from exactk.engine.pair_values import PairValues
from exactk.serving.log.collecting import collect
from exactk.serving.model import Arm, Decoder
from exactk.serving.model.answering import Answer, Answerer, Ladder, Question
from exactk.serving.settings import CHALLENGER, Settings, arm_of
from serving_model import ITEMS, K, fitted, write_data
from serving_server import client_of

# The service runs in a thread of this process; the shape checker's own dice there are no business of hypothesis.
pytestmark = pytest.mark.filterwarnings("ignore:Do not use the `random` module")


# Several commands of the command line in one process, a zero byte after what each says.
COMMANDS = """
import json, sys
from exactk.cli import main
for arguments in json.loads(sys.argv[1]):
    sys.argv = ["exactk", *arguments]
    try:
        main()
    except SystemExit as ended:
        assert not ended.code, arguments
    sys.stdout.write(chr(0))
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(tmp_path_factory.mktemp("serving") / "data")


@pytest.fixture(scope="module", params=["pair_value", "policy"])
def folder(request: pytest.FixtureRequest, data: Path) -> Path:
    path = data.with_name(request.param)
    fitted(data, request.param).save(path)
    return path


@pytest.fixture(scope="module")
def pair_value(data: Path) -> Path:
    path = data.with_name("pair_value_only")
    fitted(data, "pair_value").save(path)
    return path


@pytest.fixture(scope="module")
def client(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with client_of(Settings(model=folder, log=tmp_path_factory.mktemp("log"), budget_ms=2000.0)) as opened:
        yield opened


def is_card(card: list[str], candidates: list[str], k: int) -> bool:
    """Exactly k distinct candidates, no two of one category (the number modulo 6)."""
    categories = {int(item[1:]) % 6 for item in card}
    return len(card) == k == len(categories) and set(card) <= set(candidates)


def test_a_card_is_valid_and_tells_how_it_came_about(client: httpx.Client) -> None:
    answer = client.post("/v1/cards", json={"user": "u1", "candidates": ITEMS[:12]}).json()
    assert is_card(answer["card"], ITEMS[:12], K)
    assert 0 < answer["value"] < 1
    assert answer["propensity"] == 1.0
    assert answer["fallback"] is False
    assert answer["method"] in ("exact", "beam")
    assert answer["arm"] == "champion"
    assert len(answer["model"]) == 12
    assert answer["ms"] > 0


def test_the_card_is_the_recommenders_own(client: httpx.Client, folder: Path) -> None:
    from exactk.recommender import Recommender

    recommender = Recommender.load(folder)
    for start in range(0, 24, 5):
        candidates = ITEMS[start : start + 14]
        answer = client.post("/v1/cards", json={"user": "u3", "candidates": candidates, "k": 4}).json()
        card = recommender.recommend("u3", candidates, 4)
        assert set(answer["card"]) == set(card.items)
        assert answer["value"] == pytest.approx(card.value, abs=1e-6)


def test_unknown_users_and_items_with_attributes_inline_are_served(client: httpx.Client) -> None:
    items = [
        {"item_id": f"new{n}", "category": f"x{n % 4}", "features": [0.1, 0.2, n / 10]} for n in range(8)
    ]
    answer = client.post("/v1/cards", json={"user": "stranger", "candidates": items, "k": 3}).json()
    assert len({int(item[3:]) % 4 for item in answer["card"]}) == 3


def test_own_rules_wishes_and_relaxation_travel_with_the_request(client: httpx.Client) -> None:
    body = {"user": "u1", "candidates": ITEMS[:12], "k": 4, "constraints": []}
    chosen = client.post("/v1/cards", json={**body, "include": ["i0", "i6"]}).json()["card"]
    assert {"i0", "i6"} <= set(chosen)  # one category, but no rule
    chosen = client.post("/v1/cards", json={**body, "exclude": ITEMS[:8]}).json()["card"]
    assert set(chosen) == set(ITEMS[8:12])
    same = {"user": "u1", "candidates": ["i0", "i6", "i12"], "k": 2}
    assert client.post("/v1/cards", json=same).status_code == 409
    relaxed = client.post("/v1/cards", json={**same, "relax": ["distinct category"]}).json()
    assert relaxed["relaxed"] == ["distinct category"]


def test_what_a_card_breaks_of_preferences_is_answered_with_its_cost(client: httpx.Client) -> None:
    rather = {"type": "prefer", "worth": 0.5, "rule": {"type": "distinct", "field": "category"}}
    body = {"user": "u1", "candidates": ["i0", "i6"], "k": 2, "constraints": [rather]}
    answer = client.post("/v1/cards", json=body).json()
    assert answer["broken"] == [{"rule": "rather distinct category", "times": 1, "cost": 0.5}]
    assert "broken" not in client.post("/v1/cards", json={**body, "candidates": ["i0", "i1"]}).json()


def test_many_requests_in_one_body_are_answered_in_order_each_on_its_own(client: httpx.Client) -> None:
    asked = [
        {"user": "u1", "candidates": ITEMS[:12]},
        {"user": "u2", "candidates": ["i0", "i6", "i12"], "k": 2},
        {"user": "u3", "candidates": ITEMS[:4], "k": 2},
        {"user": "u4", "candidates": ["i1", "i1"], "k": 2},
        {"user": "u1", "candidates": ITEMS[:12]},
    ]
    answers = client.post("/v1/cards", json={"requests": asked}).json()["answers"]
    assert [each.get("status", 200) for each in answers] == [200, 409, 200, 422, 200]
    assert answers[0]["card"] == answers[4]["card"]
    assert answers[1]["blocking"]
    assert "twice" in answers[3]["detail"]
    assert len(answers[2]["card"]) == 2


def test_an_explanation_names_what_stands_in_the_way(client: httpx.Client) -> None:
    answer = client.post("/v1/cards", json={"user": "u1", "candidates": ITEMS[:12], "explain": True}).json()
    reasons = {reason["item"]: reason for reason in answer["reasons"]}
    assert set(reasons) == set(ITEMS[:12]) - set(answer["card"])
    blocked = f"i{(int(answer['card'][0][1:]) + 6) % 12}"
    assert reasons[blocked]["conflicts"][0]["item"] == answer["card"][0]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"user": "u", "candidates": []}, 422),
        ({"user": "u", "candidates": ["a", 1]}, 422),
        ({"user": 5, "candidates": ITEMS[:5]}, 422),
        ({"user": "u", "candidates": ITEMS[:3], "k": 5}, 422),
        ({"user": "u", "candidates": [{"item_id": "new"}], "k": 1}, 422),
        ({"user": "u", "candidates": ITEMS[:5], "constraints": [{"type": "nonsense"}]}, 422),
        ({"requests": []}, 422),
        ({"requests": [{"user": "u", "candidates": ["i1"]}] * 65}, 413),
    ],
)
def test_what_cannot_be_used_is_refused(client: httpx.Client, body: Any, status: int) -> None:
    reply = client.post("/v1/cards", json=body)
    assert reply.status_code == status, reply.text


@pytest.mark.parametrize(
    ("candidates", "said"),
    [
        ([], "/candidates: List should have at least 1 item after validation, not 0"),
        (["a", "b", 1], "/candidates/2: Input should be a valid string"),
        ([1, 2, "a"], "/candidates/2: Input should be a valid integer"),
        ([{"item_id": "a"}, "b", {"item_id": "c"}], "/candidates/1: Input should be an object"),
        (["i1", "i1", "i2"], "candidate 'i1' appears twice, at 0 and 1"),
    ],
)
def test_wrong_candidates_are_named_by_their_place_alone(
    client: httpx.Client, candidates: list[Any], said: str
) -> None:
    alone = {"user": "u1", "candidates": candidates, "k": 2}
    assert client.post("/v1/cards", json=alone).json()["detail"] == said


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(
        st.sampled_from(
            ["user", "candidates", "k", "constraints", "include", "exclude", "user_features", "requests"]
        ),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
            lambda inner: (
                st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
            ),
            max_leaves=8,
        ),
    )
)
def test_no_body_is_our_fault(client: httpx.Client, wrong: dict[str, Any]) -> None:
    for body in (wrong, {"user": "u1", "candidates": ITEMS[:6], **wrong}):
        assert client.post("/v1/cards", content=json.dumps(body)).status_code < 500


def test_without_a_model_cards_are_missing_not_broken() -> None:
    with client_of(Settings()) as client:
        assert client.post("/v1/cards", json={"user": "u", "candidates": ["a"]}).status_code == 404


def test_what_was_served_can_be_learned_from_tomorrow(pair_value: Path, tmp_path: Path) -> None:
    chosen = Settings(model=pair_value, log=tmp_path / "log", explore=0.5, seed=3, budget_ms=2000.0)
    with client_of(chosen) as client:
        answers = [
            client.post("/v1/cards", json={"user": f"u{n % 9}", "candidates": ITEMS[n : n + 12]}).json()
            for n in range(20)
        ]
        for answer in answers[::2]:
            told = {"request_id": answer["request_id"], "clicked": True, "clicked_item": answer["card"][0]}
            assert client.post("/v1/feedback", json=told).json()["item"] == "on the card"
        text = client.get("/metrics").text
        assert 'exactk_cards_total{arm="champion"} 20.0' in text
        assert 'exactk_feedback_total{arm="champion",clicked="true"} 10.0' in text
    assert collect(tmp_path / "log", tmp_path / "data").rows == 20
    logged = Dataset.open(tmp_path / "data").impressions().to_pylist()
    by_id = {row["request_id"]: row for row in logged}
    for place, answer in enumerate(answers):
        row = by_id[answer["request_id"]]
        assert row["card"] == answer["card"]
        assert row["clicked"] is (place % 2 == 0)
        assert row["propensity"] == pytest.approx(answer["propensity"])
        # With explore = 0.5 over a shortlist of 8: 0.5 + 0.5 / 8 for the best, 0.5 / 8 for each other.
        assert min(abs(answer["propensity"] - p) for p in (0.5625, 0.0625)) < 1e-9


def test_what_was_served_today_trains_and_judges_tomorrow(pair_value: Path, tmp_path: Path) -> None:
    """Serve, tell clicks, build, train, evaluate: all by the doors a person uses."""
    log, data, model = tmp_path / "log", tmp_path / "data", tmp_path / "model"
    random = np.random.default_rng(4)
    asked = [
        {"user": f"u{n % 12}", "candidates": random.choice(ITEMS, 12, replace=False).tolist()}
        for n in range(1536)
    ]
    with client_of(Settings(model=pair_value, log=log, explore=0.5, seed=1, budget_ms=5000.0)) as client:
        for first in range(0, len(asked), 64):
            answers = client.post("/v1/cards", json={"requests": asked[first : first + 64]}).json()["answers"]
            for answer in answers[::4]:
                told = {
                    "request_id": answer["request_id"],
                    "clicked": True,
                    "clicked_item": answer["card"][0],
                }
                assert client.post("/v1/feedback", json=told).status_code == 200

    commands = [
        ["data", "build", "log", log, "--model", pair_value, "--out", data],
        ["train", data, "--preset", "tiny", "--out", model],
        ["evaluate", pair_value, data, "--part", "train"],
        ["evaluate", model, data],
    ]
    orders = json.dumps([[*map(str, command), "--json"] for command in commands])
    ended = subprocess.run(
        [sys.executable, "-c", COMMANDS, orders], capture_output=True, text=True, check=True
    )
    _, _, judged, new = (json.loads(told) for told in ended.stdout.split("\0")[:4])
    held = Dataset.open(data)
    assert len(held) == len(asked)
    assert held.constraints is not None
    assert "features" in held.items.column_names
    # Every fourth card was clicked, whichever it was; of the best card, shown more than half of the time, as well.
    estimate = judged["off_policy"]["ips"]
    assert estimate["reason"] is None
    assert estimate["interval"]["low"] < 0.25 < estimate["interval"]["high"]
    assert set(new["off_policy"]) == {"ips", "snips"}


def test_a_model_whose_ids_are_numbers_serves(tmp_path: Path) -> None:
    data = write_data(tmp_path / "data", numbers=True)
    fitted(data, "pair_value").save(tmp_path / "model")
    with client_of(Settings(model=tmp_path / "model", budget_ms=2000.0, log=tmp_path / "log")) as client:
        answer = client.post("/v1/cards", json={"user": 3, "candidates": list(range(12))}).json()
        assert len(set(answer["card"]) & set(range(12))) == K
        refused = client.post("/v1/cards", json={"user": "3", "candidates": list(range(12))})
        assert refused.status_code == 422
        assert "whole numbers" in refused.json()["detail"]
    assert collect(tmp_path / "log", tmp_path / "served").rows == 1
    assert Dataset.open(tmp_path / "served").impressions()["card"].to_pylist() == [answer["card"]]


def test_propensities_are_the_frequencies_with_which_cards_come(pair_value: Path) -> None:
    arm = Arm("champion", pair_value, 0.4, lambda *_: None)
    answerer = Answerer(seed=1)
    question = Question(arm, Request("u1", tuple(ITEMS[:12]), 3), None, (), False, perf_counter() + 600)
    drawn: dict[tuple[str, ...], list[float]] = {}
    for _ in range(40):
        for answer in answerer([question] * 50):
            assert isinstance(answer, Answer)
            assert answer.propensity is not None
            drawn.setdefault(tuple(sorted(answer.card.items)), []).append(answer.propensity)
    assert len(drawn) == 8
    assert sum(told[0] for told in drawn.values()) == pytest.approx(1.0)
    for told in drawn.values():
        assert len(set(told)) == 1
        # Four standard deviations of a share among 2000 draws.
        assert abs(len(told) / 2000 - told[0]) < 4 * np.sqrt(told[0] * (1 - told[0]) / 2000)


def test_the_split_serves_each_user_by_one_arm_and_reports_both(
    data: Path, pair_value: Path, tmp_path: Path
) -> None:
    fitted(data, "policy").save(tmp_path / "policy")
    chosen = Settings(
        model=pair_value, challenger=tmp_path / "policy", challenger_share=0.5, budget_ms=2000.0
    )
    with client_of(chosen) as client:
        for n in range(12):
            body = {"user": f"u{n}", "candidates": ITEMS[:12]}
            arms = {client.post("/v1/cards", json=body).json()["arm"] for _ in range(2)}
            assert arms == {arm_of(f"u{n}", 0.5, "exactk")}
        assert 'exactk_cards_total{arm="challenger"}' in client.get("/metrics").text
        versions = {each["arm"]: each["version"] for each in client.get("/v1/model").json()["arms"]}
        assert versions["champion"] != versions[CHALLENGER]


def version(client: httpx.Client) -> str:
    return str(client.get("/v1/model").json()["arms"][0]["version"])


def test_a_better_model_takes_over_and_a_broken_one_is_refused(
    data: Path, pair_value: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(pair_value, folder)
    body = {"user": "u1", "candidates": ITEMS[:12]}
    with client_of(Settings(model=folder, reload_seconds=0.05, budget_ms=2000.0)) as client:
        first = version(client)
        (folder / "value.safetensors").write_bytes(b"damaged")
        (folder / "config.json").write_text((folder / "config.json").read_text() + " ")
        _until(
            lambda: (
                'exactk_reloads_total{arm="champion",outcome="refused"} 1.0' in client.get("/metrics").text
            )
        )
        assert version(client) == first
        assert client.post("/v1/cards", json=body).status_code == 200
        shutil.rmtree(folder)
        time.sleep(0.2)
        assert client.post("/v1/cards", json=body).status_code == 200
        fitted(data, "policy").save(folder)
        statuses = []

        def swapped() -> bool:
            statuses.append(client.post("/v1/cards", json=body).status_code)
            return version(client) != first

        _until(swapped)
        assert set(statuses) == {200}
        assert client.post("/v1/cards", json=body).json()["method"] == "beam"


def _until(happens: Any, seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not happens():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.02)


def test_asked_together_or_alone_the_answer_is_the_same(folder: Path) -> None:
    arm = Arm("champion", folder, 0.0, lambda *_: None)
    answerer = Answerer(seed=0)
    requests = [Request(f"u{n}", tuple(ITEMS[n : n + 8 + n]), 3) for n in range(9)]
    questions = [Question(arm, request, None, (), False, perf_counter() + 600) for request in requests]
    for question, together in zip(questions, answerer(questions), strict=True):
        (alone,) = answerer([question])
        assert isinstance(alone, Answer)
        assert isinstance(together, Answer)
        assert set(alone.card.items) == set(together.card.items)
        assert alone.card.value == pytest.approx(together.card.value, abs=1e-6)


def test_the_quick_way_gives_the_cards_of_the_model_itself(folder: Path) -> None:
    """By tables of the catalogue as by the engine, for requests of every length."""
    arm = Arm("champion", folder, 0.0, lambda *_: None)
    assert (arm.loaded.tables is not None) == ("pair_value" in folder.name)
    random = np.random.default_rng(3)
    requests = [
        Request(f"u{n}", tuple(random.choice(ITEMS, 9 + n % 20, replace=False).tolist()), 2 + n % 3)
        for n in range(40)
    ]
    questions = [Question(arm, request, None, (), False, perf_counter() + 600) for request in requests]
    quick = Answerer(seed=0)(questions)
    arm.loaded = replace(arm.loaded, tables=None)
    for ours, theirs in zip(quick, Answerer(seed=0)(questions), strict=True):
        assert isinstance(ours, Answer), ours
        assert isinstance(theirs, Answer), theirs
        assert ours.card.items == theirs.card.items
        assert ours.card.value == pytest.approx(theirs.card.value, abs=1e-6)
        assert ours.card.bound == pytest.approx(theirs.card.bound, abs=1e-6)
        assert (ours.method, ours.propensity, ours.fallback) == (
            theirs.method,
            theirs.propensity,
            theirs.fallback,
        )


def test_a_budget_too_small_falls_back_and_says_so(folder: Path) -> None:
    arm = Arm("champion", folder, 0.0, lambda *_: None)
    answerer = Answerer(seed=0)
    request = Request("u1", tuple(ITEMS[:12]), 3)
    (relaxed,) = answerer([Question(arm, request, None, (), False, perf_counter() + 60)])
    (hurried,) = answerer([Question(arm, request, None, (), False, perf_counter() - 1)])
    assert isinstance(relaxed, Answer)
    assert not relaxed.fallback
    assert isinstance(hurried, Answer)
    assert hurried.fallback == (hurried.method != "exact")  # a proof in no time is no fallback
    assert is_card(list(hurried.card.items), ITEMS[:12], 3)
    (hurried,) = answerer([Question(arm, request, None, ("distinct category",), False, perf_counter() - 1)])
    assert isinstance(hurried, Answer)
    assert hurried.fallback
    assert hurried.method == "algorithm 1"
    assert is_card(list(hurried.card.items), ITEMS[:12], 3)


def test_the_ladder_takes_the_best_rung_that_fits_and_forgives_a_slow_moment() -> None:
    ladder = Ladder()
    assert ladder.rung(0.0) == "usual"  # nothing is known yet
    for _ in range(50):
        ladder.took("usual", 0.1)
        ladder.took("greedy", 0.01)
    assert ladder.rung(1.0) == "usual"
    assert ladder.rung(0.05) == "greedy"
    assert ladder.rung(0.001) == "algorithm 1"
    assert any(ladder.rung(0.05) == "usual" for _ in range(100))


def test_tables_are_asked_only_of_what_the_catalogue_says(pair_value: Path) -> None:
    builder = Arm("champion", pair_value, 0.0, lambda *_: None).loaded.recommender.fitted.builder

    def as_known(*requests: Request) -> bool:
        return builder.built(sheet_of(requests, builder.catalogue)).as_known

    usual = Request("u1", ("i1", "i2"), 1)
    assert as_known(usual, Request("nobody", ("i3", "i1", "i2"), 2))
    assert as_known(replace(usual, attributes={"i1": {"category": "z"}}))
    assert not as_known(replace(usual, candidates=("i1", "new")))
    assert not as_known(replace(usual, attributes={"i1": {"features": [1.0, 2.0, 3.0]}}))


def test_no_request_is_the_first_to_read_the_tables(
    pair_value: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loading a model compiles what reads them, for arrays of the very types that requests bring."""
    read: list[tuple[Any, ...]] = []
    values = PairTables.values

    def noted(tables: PairTables, *arrays: np.ndarray | None) -> PairValues:
        read.append(tuple(None if a is None else (a.dtype, a.ndim, a.flags.c_contiguous) for a in arrays))
        return values(tables, *arrays)  # type: ignore[arg-type]

    monkeypatch.setattr(PairTables, "values", noted)
    arm = Arm("champion", pair_value, 0.0, lambda *_: None)
    loaded = set(read)
    read.clear()
    Answerer(0)([Question(arm, Request("u1", tuple(ITEMS[:9]), 2), None, (), False, perf_counter() + 600)])
    assert read
    assert set(read) <= loaded


def test_a_full_queue_is_429_with_a_hint_and_the_service_recovers(pair_value: Path) -> None:
    chosen = Settings(model=pair_value, max_waiting=4, max_requests=64, budget_ms=2000.0)
    one = {"user": "u1", "candidates": ITEMS[:12]}
    with client_of(chosen) as client:
        answers = client.post("/v1/cards", json={"requests": [one] * 30}).json()["answers"]
        kinds = [each.get("type", "card") for each in answers]
        assert kinds.count("card") >= 4
        assert "urn:exactk:problem:overloaded" in kinds
        assert client.post("/v1/cards", json=one).status_code == 200
        assert "exactk_overloaded_total" in client.get("/metrics").text


def test_decoders_of_both_kinds_never_write_an_invalid_card(folder: Path) -> None:
    arm = Arm("champion", folder, 0.0, lambda *_: None)
    model = arm.loaded.recommender.fitted
    decoder = Decoder(arm.loaded.recommender.decider, explore=1.0)
    random = np.random.default_rng(5)
    requests = [
        Request(f"u{n % 9}", tuple(random.choice(ITEMS, 12, replace=False).tolist()), 3) for n in range(30)
    ]
    batch = model.builder.batch(requests, model.constraints)
    for rung in ("usual", "greedy", "algorithm 1"):
        decoded = decoder.decode(batch, rung, np.random.default_rng(0), 1.0)
        for request, positions in zip(requests, decoded.decision.cards.tolist(), strict=True):
            assert is_card([request.candidates[p] for p in positions], list(request.candidates), 3)
