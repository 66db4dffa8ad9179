"""Hostile clients: whatever one of them sends, it is refused or answered in time, and its neighbours never notice."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exactk.data.dataset import Dataset
from exactk.problem.rules import explain
from exactk.serving.http.security import new_key
from exactk.serving.log import IMPRESSIONS, journal
from exactk.serving.log.collecting import collect
from exactk.serving.log.journal import read_all
from exactk.serving.model import answering
from exactk.serving.settings import Settings
from serving_model import ITEMS, fitted, write_data
from serving_server import client_of

# The service runs in a thread of this process; the shape checker's own dice there are no business of hypothesis.
pytestmark = pytest.mark.filterwarnings("ignore:Do not use the `random` module")

HUGE = 10**400
GOOD = {"user": "u1", "candidates": ITEMS[:12]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    scratch = tmp_path_factory.mktemp("hostile")
    fitted(write_data(scratch / "data"), "pair_value").save(scratch / "model")
    return scratch / "model"


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("log")


@pytest.fixture(scope="module")
def client(folder: Path, log: Path) -> Iterator[httpx.Client]:
    with client_of(Settings(model=folder, log=log, budget_ms=500.0, max_budget_ms=1000.0)) as opened:
        yield opened


def asked(client: httpx.Client, path: str, body: Any) -> httpx.Response:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return client.post(path, content=raw, headers={"content-type": "application/json"})


def longest_silence(client: httpx.Client, during: Callable[[], Any]) -> float:
    """Seconds of the slowest health check while something else goes on."""
    slowest, done = 0.0, threading.Event()

    def watch() -> None:
        nonlocal slowest
        with httpx.Client(base_url=client.base_url, timeout=60) as other:
            while not done.is_set():
                begun = time.perf_counter()
                assert other.get("/healthz").status_code == 200
                slowest = max(slowest, time.perf_counter() - begun)
                time.sleep(0.005)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        during()
    finally:
        done.set()
        watcher.join()
    return slowest


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "body",
    [
        {"k": 3, "scores": [1e308] * 3},
        {"k": 2, "scores": [1e308, 1e308, -1e308]},
        {"k": 2, "scores": [0, 0], "pair_scores": [[0, 1.7e308], [1.7e308, 0]], "include": [0, 1]},
        {"k": 3, "scores": [1e308] * 4, "pair_scores": [[1e308] * 4] * 4},
        {"k": 1, "scores": [HUGE, 1]},
    ],
    ids=["equal", "both signs", "a pair", "pairs", "400 digits"],
)
def test_weights_whose_sums_leave_the_numbers_are_refused(client: httpx.Client, body: dict[str, Any]) -> None:
    for path in ("/v1/solve", "/v1/studio/view"):
        sent = (
            body
            if path == "/v1/solve"
            else {**body, "items": [{"item_id": n} for n in range(len(body["scores"]))]}
        )
        refused = asked(client, path, sent)
        assert refused.status_code in (200, 422), refused.text
        if refused.status_code == 200:  # the sum that was asked for is finite after all
            told = refused.json()
            best = told if path == "/v1/solve" else told["best"]
            assert np.isfinite(best["value"])
            assert best["value"] == pytest.approx(best["bound"])


BAD_FEATURES: list[Any] = [
    [HUGE, 0, 0], [1e300, 0, 0], [True, False, True], ["a", "b", "c"], "abc", [[1], [2], [3]], {"x": 1}, 5,
    [float("nan"), 0, 0], [float("inf"), 0, 0],
]  # fmt: skip


@pytest.mark.parametrize("features", BAD_FEATURES, ids=str)
def test_features_that_no_log_could_keep_are_refused_at_the_door(client: httpx.Client, features: Any) -> None:
    body = {"user": "u1", "candidates": [{"item_id": name, "features": features} for name in ITEMS[:5]]}
    refused = asked(client, "/v1/cards", body)
    assert refused.status_code == 422, refused.text
    assert "features" in refused.json()["detail"]
    assert len(refused.content) < 2000
    assert asked(client, "/v1/cards", {**GOOD, "user_features": features}).status_code == 422


def test_bad_requests_never_spoil_their_neighbours(client: httpx.Client) -> None:
    """They arrive together, so that they share a batch."""
    bad = {"user": "u1", "candidates": [{"item_id": n, "features": [HUGE, 1, 1]} for n in ITEMS[:12]]}
    large = {"user": "u1", "candidates": [{"item_id": n, "features": [3e38, 3e38, 3e38]} for n in ITEMS[:12]]}
    many = {"requests": [GOOD, large, {**GOOD, "include": ["nobody"]}, GOOD]}

    def load(body: dict[str, Any]) -> list[httpx.Response]:
        with httpx.Client(base_url=client.base_url, timeout=60) as own:
            return [asked(own, "/v1/cards", body) for _ in range(30)]

    with ThreadPoolExecutor(6) as senders:
        told = list(senders.map(load, [GOOD, bad, GOOD, large, many, GOOD]))
    assert {each.status_code for n in (0, 2, 5) for each in told[n]} == {200}
    assert {each.status_code for each in told[1]} == {422}
    assert all(each.status_code < 500 for each in told[3])
    for each in told[4]:
        first, _, third, fourth = each.json()["answers"]
        assert first["card"] == fourth["card"]
        assert third["status"] == 422


def test_long_titles_are_refused_and_the_loop_is_never_held(client: httpx.Client) -> None:
    rule = {"type": "title_distance", "minimum": 0.5}
    items = [{"item_id": n, "title": "a" * n + "bc" * 5000} for n in range(64)]
    solve = {"k": 3, "scores": [1] * 64, "items": items, "constraints": [rule]}
    cards = {"user": "u", "k": 3, "candidates": items, "constraints": [rule]}
    huge = {"k": 2, "scores": [1, 2], "constraints": [rule],
            "items": [{"item_id": n, "title": str(n) + "bc" * 450_000} for n in range(2)]}  # fmt: skip

    def all_of_them() -> None:
        for path, body in (("/v1/solve", solve), ("/v1/cards", cards), ("/v1/solve", huge)):
            begun = time.perf_counter()
            refused = asked(client, path, body)
            assert refused.status_code == 422, refused.text
            assert "max_text" in refused.json()["detail"]
            assert time.perf_counter() - begun < 1
        view = {**solve, "constraints": [{"rule": rule}]}
        assert asked(client, "/v1/studio/view", view).status_code == 422

    assert longest_silence(client, all_of_them) < 0.5


def test_many_titles_within_the_limits_are_answered_within_the_budget(client: httpx.Client) -> None:
    """512 titles of 1,000 letters: 131,000 pairs, a minute of computing."""
    draws = np.random.default_rng(0)
    titles = ["".join(draws.choice(list("abcdefgh"), 1000)) for _ in range(512)]
    items = [{"item_id": n, "title": title} for n, title in enumerate(titles)]
    rules = [{"type": "title_distance", "minimum": 0.6}]
    body = {"k": 6, "scores": [1] * 512, "items": items, "constraints": rules, "budget_ms": 300}

    def ask() -> None:
        begun = time.perf_counter()
        told = asked(client, "/v1/solve", body)
        assert time.perf_counter() - begun < 1.5
        assert told.status_code == 422
        assert told.json()["type"] == "urn:exactk:problem:budget"
        assert told.json()["unfinished"]

    assert longest_silence(client, ask) < 0.5


def hard_to_refuse(size: int, seed: int = 0) -> list[list[Any]]:
    """Pairs that leave no card of a size that no bound rules out at once."""
    draws = np.random.default_rng(seed).random((size, size)) < 0.15
    first, second = np.nonzero(np.triu(draws, 1))
    return [[int(i), int(j)] for i, j in zip(first, second, strict=True)]


@pytest.mark.parametrize(
    "extra", [{}, {"explain": True}, {"relax": ["forbid"]}], ids=["plain", "explain", "relax"]
)
def test_a_proof_that_takes_too_long_is_said_to_be_unfinished(
    client: httpx.Client, extra: dict[str, Any]
) -> None:
    body = {"k": 38, "scores": [1] * 300, "constraints": [{"type": "forbid", "pairs": hard_to_refuse(300)}],
            "budget_ms": 400, **extra}  # fmt: skip

    def ask() -> None:
        begun = time.perf_counter()
        told = asked(client, "/v1/solve", body)
        assert time.perf_counter() - begun < 1.5
        assert told.status_code in (200, 409, 422)
        if told.status_code != 409:
            assert told.json()["unfinished"] or told.json()["relaxed"], told.text

    assert longest_silence(client, ask) < 0.5


def test_an_explanation_of_400_candidates_keeps_to_the_budget(client: httpx.Client) -> None:
    """By the processor time of this process, the service included: by the clock, a busy machine takes longer."""
    draws = np.random.default_rng(1).normal(size=(400, 400))
    pairs = np.round(np.triu(draws, 1) + np.triu(draws, 1).T, 2).tolist()
    body = {"k": 20, "scores": [0.0] * 400, "pair_scores": pairs, "explain": True, "budget_ms": 1000}
    begun = time.process_time()
    told = asked(client, "/v1/solve", body)
    assert time.process_time() - begun < 2.5
    assert told.status_code == 200, told.text
    assert len(told.json()["card"]) == 20
    assert told.json()["unfinished"]


@pytest.mark.parametrize("path", ["/v1/solve", "/v1/cards"])
def test_a_card_is_not_lost_where_its_reasons_take_longer_than_the_budget(
    client: httpx.Client, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def much_too_long(*_: Any, **__: Any) -> Any:
        time.sleep(1.5)
        raise AssertionError("nobody waits for this")

    monkeypatch.setattr(explain, "why_not", much_too_long)
    monkeypatch.setattr(answering, "why_not", much_too_long)
    body = GOOD if path == "/v1/cards" else {"k": 2, "scores": [3, 1, 2]}
    begun = time.perf_counter()
    told = asked(client, path, {**body, "explain": True, "budget_ms": 400})
    assert time.perf_counter() - begun < 1.4
    assert told.status_code == 200, told.text
    assert told.json()["unfinished"] == ["reasons"]
    assert told.json()["card"] == (
        [0, 2] if path == "/v1/solve" else asked(client, path, body).json()["card"]
    )


DEEP = b"[" * 100_000 + b"]" * 100_000
STRANGE: list[tuple[str, bytes]] = [
    ("deep list", DEEP),
    ("deep value", b'{"k":1,"scores":[1],"items":[{"item_id":1,"x":' + b"[" * 150 + b"]" * 150 + b"}]}"),
    ("deep candidate", b'{"user":1,"candidates":[{"item_id":1,"x":' + b'{"y":' * 150 + b"1" + b"}" * 150 + b"}]}"),
    ("a million lists", b'{"k":1,"scores":[1],"items":[{"item_id":1,"x":[' + b"[]," * 600_000 + b"[]]}]}"),
    ("utf-16", '{"k":1,"scores":[1]}'.encode("utf-16")),
    ("latin-1", '{"k":1,"scores":[1],"items":[{"item_id":"é"}]}'.encode("latin-1")),
    ("a lone surrogate", b'{"k":1,"scores":[1],"items":[{"item_id":"\\ud800"}]}'),
    ("ids as lists", b'{"k":1,"scores":[1],"items":[{"item_id":[1]}]}'),
    ("candidates as lists", b'{"user":1,"candidates":[[1],[2]]}'),
    ("a user as a list", b'{"user":[1],"candidates":[1,2]}'),
    ("many digits", b'{"k":1,"scores":[' + b"9" * 5000 + b"]}"),
    ("many digits in an attribute", b'{"k":1,"scores":[1],"items":[{"item_id":1,"x":' + b"9" * 3000 + b"}]}"),
    ("nan", b'{"k":1,"scores":[NaN]}'),
    ("a rule of lists", b'{"k":1,"scores":[1],"constraints":[{"type":["distinct"],"field":[["x"]]}]}'),
    ("a rule with a huge name", b'{"k":1,"scores":[1],"constraints":[{"type":"' + b"ab" * 800_000 + b'"}]}'),
    ("a rule with a huge number", b'{"k":1,"scores":[1],"constraints":[{"type":"minimum_gap","field":"x","minimum":'
     + b"9" * 400 + b"}]}"),
    ("forbidden pairs of lists", b'{"k":1,"scores":[1],"constraints":[{"type":"forbid","pairs":[[[1],[2]]]}]}'),
    ("no json", b"\x00\x01\x02"),
    ("nothing", b""),
]  # fmt: skip


@pytest.mark.parametrize("raw", [raw for _, raw in STRANGE], ids=[name for name, _ in STRANGE])
def test_strange_bodies_are_refused_at_every_door(client: httpx.Client, raw: bytes) -> None:
    for path in ("/v1/solve", "/v1/cards", "/v1/feedback", "/v1/studio/view", "/v1/studio/read"):
        begun = time.perf_counter()
        told = asked(client, path, raw)
        assert told.status_code in (413, 422), (path, told.text[:300])
        assert len(told.content) < 5000
        assert time.perf_counter() - begun < 1
    assert asked(client, "/v1/cards", GOOD).status_code == 200


PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6)
VALUES = st.recursive(
    PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)  # fmt: skip
ITEM = st.builds(
    lambda number, rest: {**rest, "item_id": f"n{number}"},
    st.integers(0, 5),
    st.dictionaries(
        st.sampled_from(
            ["title", "category", "features", "price", "timestamp", "attributes", "card", "", "a.b"]
        ),
        VALUES | st.lists(st.floats(-5, 5), min_size=1, max_size=3),
        max_size=4,
    ),
)


@pytest.mark.timeout(300)
def test_whatever_is_accepted_can_be_read_back_from_the_log(folder: Path, tmp_path: Path) -> None:
    accepted: dict[str, list[dict[str, Any]]] = {}
    refused = 0
    with client_of(Settings(model=folder, log=tmp_path / "log", log_rotate_bytes=20_000)) as client:

        @settings(max_examples=150, deadline=None, database=None, derandomize=True,
                  suppress_health_check=[HealthCheck.too_slow])  # fmt: skip
        @given(st.lists(ITEM, min_size=3, max_size=6, unique_by=lambda item: item["item_id"]))
        def send(items: list[dict[str, Any]]) -> None:
            nonlocal refused
            told = asked(client, "/v1/cards", {"user": "u1", "candidates": items, "k": 2, "constraints": []})
            assert told.status_code in (200, 422), told.text
            if told.status_code == 200:
                accepted[told.json()["request_id"]] = items
            refused += told.status_code == 422

        send()
    assert len(accepted) > 20
    assert refused > 20
    assert not list((tmp_path / "log").glob("*.jsonl"))
    collect(tmp_path / "log", tmp_path / "data")
    read = Dataset.open(tmp_path / "data")
    rows = {row["request_id"]: row for row in read.impressions(slice(None)).to_pylist()}
    assert set(rows) == set(accepted)
    for request_id, items in accepted.items():
        assert rows[request_id]["candidates"] == [item["item_id"] for item in items]


BODIES = {
    "/v1/solve": {"k": 1, "scores": [1, 2.5], "items": [{"item_id": 1, "brand": "x"}, {"item_id": 2, "brand": "y"}],
                  "constraints": [{"type": "count", "where": {"not": {"field": "brand"}}, "at_least": 1}]},
    "/v1/cards": {**GOOD, "k": 2, "constraints": [{"type": "distinct", "field": "category"}], "relax": ["distinct"]},
    "/v1/feedback": {"request_id": "643f1c2e4b07d9c1a5e88f02ba", "clicked": True, "clicked_item": "i1"},
    "/v1/studio/view": {"k": 1, "items": [{"item_id": 1}, {"item_id": 2}], "scores": [1, 2]},
}  # fmt: skip
TORN = st.sampled_from([b"", b"\0", b"\xff", b'"', b"[", b"]", b"{", b"}", b",", b":", b"9" * 400, b"1e999", b"NaN",
                        b"null", b"true", b"-", b"\\ud800", b"[" * 2000, b'{"a":' * 300])  # fmt: skip


@settings(
    max_examples=300, deadline=None, derandomize=True, database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip
@given(data=st.data())
def test_no_torn_body_is_more_than_refused(client: httpx.Client, data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(list(BODIES)))
    raw = json.dumps(BODIES[path]).encode()
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(raw)))
        raw = raw[:at] + data.draw(TORN | st.binary(max_size=3)) + raw[at + data.draw(st.integers(0, 6)) :]
    answered = asked(client, path, raw)
    assert answered.status_code < 500, answered.text
    assert b"Traceback" not in answered.content


def test_a_card_waits_for_its_impression_where_the_disk_stands_still(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "STALL_SECONDS", -1.0)  # every write counts as slow: the next rows go aside
    with client_of(Settings(model=folder, log=tmp_path, budget_ms=400.0)) as client:
        for number in range(20):
            inline = [{"item_id": f"{name}-{number}", "category": name} for name in ITEMS[:8]]
            shown = asked(
                client, "/v1/cards", {**GOOD, "candidates": inline if number % 2 else ITEMS[:12]}
            ).json()
            held = read_all(tmp_path, "impressions", IMPRESSIONS)["request_id"].to_pylist()
            assert shown["request_id"] in held
        assert "exactk_log_late_rows_total 0.0" in client.get("/metrics").text
        slow = os.pwrite

        def stalled(descriptor: int, data: bytes, at: int) -> int:
            time.sleep(1.0)
            return slow(descriptor, data, at)

        monkeypatch.setattr(os, "pwrite", stalled)
        begun = time.perf_counter()
        assert asked(client, "/v1/cards", GOOD).status_code == 200
        assert time.perf_counter() - begun < 0.9  # within its budget, the row or not
        assert "exactk_log_late_rows_total 1.0" in client.get("/metrics").text


def test_feedback_says_what_it_matched_and_the_build_counts_what_it_left_out(
    folder: Path, tmp_path: Path
) -> None:
    with client_of(Settings(model=folder, log=tmp_path / "log")) as client:
        shown = [asked(client, "/v1/cards", GOOD).json() for _ in range(4)]

        def told(request_id: str, clicked: bool, item: str | None = None) -> dict[str, Any]:
            answer = asked(
                client, "/v1/feedback", {"request_id": request_id, "clicked": clicked, "clicked_item": item}
            )
            assert answer.status_code == 200
            body: dict[str, Any] = answer.json()
            assert body.pop("kept") is True
            return body

        outside = next(item for item in GOOD["candidates"] if item not in shown[0]["card"])
        first = shown[0]["card"][0]
        assert told(shown[0]["request_id"], True, first) == {
            "request": "known",
            "item": "on the card",
            "repeated": False,
        }
        assert told(shown[0]["request_id"], True, first)["repeated"] is True
        assert told(shown[1]["request_id"], True, outside)["item"] == "not on the card"
        assert told(shown[2]["request_id"], False) == {"request": "known", "item": None, "repeated": False}
        assert told("nobody-knows-this", True, first)["request"] == "unknown"
        changed = shown[3]["request_id"]
        changed = changed[:3] + ("0" if changed[3] != "0" else "1") + changed[4:]
        assert told(changed, True, first)["request"] == "unknown"
    found = collect(tmp_path / "log", tmp_path / "data")
    assert found.rows == 4
    assert found.left_out == {
        "feedback for requests that are not in the log": 2,
        "clicks on items that were not on the card": 1,
        "clicks that were reported before": 1,
    }
    rows = {
        row["request_id"]: row for row in Dataset.open(tmp_path / "data").impressions(slice(None)).to_pylist()
    }
    assert [rows[each["request_id"]]["clicked"] for each in shown] == [True, False, False, False]
    assert rows[shown[0]["request_id"]]["clicked_item"] == first


def test_the_description_of_the_api_is_behind_the_key_too() -> None:
    key, digest = new_key()
    with client_of(Settings(key_hashes=(digest,))) as client:
        for path in ("/openapi.json", "/docs", "/redoc", "/v1/model", "/v1/studio/sources", "/metrics"):
            assert client.get(path).status_code == 401, path
        assert client.get("/openapi.json", headers={"x-api-key": key}).status_code == 200
        for path in ("/", "/healthz", "/readyz", "/studio/js/main.js"):
            assert client.get(path).status_code == 200, path
