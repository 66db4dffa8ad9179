"""Columns over HTTP: read like the log's own rows, kept as they came, and what was served is what trains."""

from __future__ import annotations

import json
import time
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from column_logs import assert_same
from exactk.data import Dataset
from exactk.data.requests import Request
from exactk.data.rolling import RollingCounts, Shown
from exactk.recommender import Recommender
from exactk.serving.log import Impression, ImpressionLog, moment_of, new_request_id
from exactk.serving.log.collecting import BuiltLog, collect
from exactk.serving.log.counting import LogCounts
from exactk.serving.settings import Settings
from serving_server import client_of
from small_models import COLUMNS, folder_of
from test_column_doors import bodies, expected, same

PATIENT: Any = {"budget_ms": 5000.0}


@cache
def served() -> Recommender:
    return Recommender.load(folder_of(COLUMNS))


def post(client: httpx.Client, body: dict[str, Any]) -> dict[str, Any]:
    answer = client.post("/v1/cards", json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def built(log: Path, out: Path) -> tuple[Dataset, BuiltLog]:
    found = collect(log, out, None, served().fitted)
    return Dataset.open(out), found


def test_columns_and_context_over_http_give_the_cards_of_the_log() -> None:
    names = [name for name, _, _ in expected()]
    with client_of(Settings(model=folder_of(COLUMNS), **PATIENT)) as client:
        alone = [post(client, body) for body in bodies()]
        together = client.post("/v1/cards", json={"requests": bodies()}).json()["answers"]
    for answers in (alone, together):
        same([(name, answer["card"], answer["value"]) for name, answer in zip(names, answers, strict=True)])
        assert all(answer["unread"] == [] for answer in answers)


def test_what_nobody_reads_is_said_and_what_is_missing_is_missing() -> None:
    body = bodies()[0]
    odd = {
        **body,
        "candidates": [{**c, "prize": 1.0} for c in body["candidates"]],
        "context": {"devise": "x"},
    }
    bare = {"user": body["user"], "candidates": [c["item_id"] for c in body["candidates"]]}
    with client_of(Settings(model=folder_of(COLUMNS), **PATIENT)) as client:
        assert post(client, odd)["unread"] == ["devise", "prize"]
        assert post(
            client, {**odd, "constraints": [{"type": "minimum_gap", "field": "prize", "minimum": 0}]}
        )["unread"] == ["devise"]
        value = post(client, bare)["value"]
    asked = [Request(body["user"], tuple(bare["candidates"]), 4)]
    assert value == pytest.approx(served().recommend_many(asked)[0].value, abs=2e-6)


@pytest.mark.parametrize(
    ("change", "status", "detail"),
    [
        ({"context": {"nights": "two"}}, 422, "nights must be a number, got 'two'"),
        ({"context": {"device": ["phone"]}}, 422, "device must be text, a whole number or a flag"),
        ({"context": {f"n{n}": 1 for n in range(65)}}, 422, "context has 65 fields; this service takes at most 64"),
        ({"context": {"a": "x" * 1001}}, 422, "context/a is a text of 1001 letters"),
        ({"context": {"a": 2**60}}, 422, "context/a: the whole number"),
        ({"context": [1]}, 422, "/context"),
        ({"candidates": [{"item_id": n, "price": "dear"} for n in range(5)]}, 422, "price of item 0 must be a number"),
        ({"candidates": [{"item_id": n, "price": 1e300} for n in range(5)]}, 422, "price of item 0 must be a number"),
        ({"candidates": [{"item_id": n, "offer": {}} for n in range(5)]}, 422, "offer of item 0 must be text"),
        ({"candidates": [{"item_id": n, "title": 7} for n in range(5)]}, 422, "title must hold texts"),
    ],
)  # fmt: skip
def test_values_of_the_wrong_kind_are_named(change: dict[str, Any], status: int, detail: str) -> None:
    with client_of(Settings(model=folder_of(COLUMNS), **PATIENT)) as client:
        answer = client.post("/v1/cards", json={**bodies()[0], **change})
        assert answer.status_code == status, answer.text
        assert detail in answer.json()["detail"]
        assert "request 0" not in answer.text
        post(client, bodies()[1])  # and the service goes on


def test_what_served_is_what_trains(tmp_path: Path) -> None:
    """Every array a model read when it served is the array that the built dataset gives, counts so far included."""
    asked = bodies()[:12]
    for n, body in enumerate(asked):
        body["candidates"] = [
            {name: value for name, value in c.items() if not name.endswith("so_far") or n % 3 == 0}
            for c in body["candidates"]
        ]
        body["candidates"][0] |= {
            "item_id": 10_000 + n,
            "maker": "Elm",
            "title": "a new lamp",
            "usual_price": 20.0,
        }
    with client_of(Settings(model=folder_of(COLUMNS), log=tmp_path / "log", **PATIENT)) as client:
        shown = [post(client, body) for body in asked]
        for n, answer in enumerate(shown[:6]):
            for item in answer["card"][: 1 + n % 2]:
                told = {
                    "request_id": answer["request_id"],
                    "clicked": True,
                    "clicked_item": item,
                    "reward": 2.5,
                }
                assert client.post("/v1/feedback", json=told).status_code == 200
    data, found = built(tmp_path / "log", tmp_path / "data")
    assert found.left_out == {}
    assert (found.rows, found.clicked) == (12, 6)
    fitted = served().fitted
    columns = data.folder.columns
    assert columns.candidate.numbers[:2] == fitted.vocabulary.columns.columns.candidate.numbers[:2]
    assert (columns.context, columns.item) == (
        fitted.vocabulary.columns.columns.context, fitted.vocabulary.columns.columns.item,
    )  # fmt: skip
    order = {answer["request_id"]: n for n, answer in enumerate(shown)}
    view = data.take(np.argsort([order[row["request_id"]] for row in data.impressions().to_pylist()]))
    requests = [
        Request.from_dict(
            {"user_id": b["user"], "candidates": b["candidates"], "context": b["context"], "k": 4}
        )
        for b in asked
    ]
    read = fitted.builder.batch(requests)
    assert_same(view.batch(fitted.vocabulary), read)
    rewards = view.batch(fitted.vocabulary).reward
    assert rewards is not None
    assert np.nansum(rewards) == 2.5 * 9
    assert np.isnan(
        rewards[0][view.batch(fitted.vocabulary).present[0]]
    ).any()  # of what was not shown nobody knows
    assert (view.batch(fitted.vocabulary).clicks.sum(1)[:6] == [1, 2, 1, 2, 1, 2]).all()  # type: ignore[union-attr]
    train, valid, _ = data.split("random", valid=0.2, test=0.2)
    again = Recommender(fitted.config).fit(train, valid, show=False)
    assert again.fitted.vocabulary.columns.rolling == fitted.vocabulary.columns.rolling


NAMES = ("price", "touches", "offer", "score", "position", "clicks_so_far", "maker", "usual_price", "title", "fresh",
         "colour", "timestamp", "card", "reward", "device", "a.b", "")  # fmt: skip
VALUES = (
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(-1e30, 1e30) | st.text(max_size=4)
    | st.lists(st.integers(0, 3), max_size=2)
)  # fmt: skip
SENT = st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=5)


@pytest.mark.timeout(300)
def test_whatever_is_accepted_is_read_back_as_it_was_read(tmp_path: Path) -> None:
    accepted: dict[str, dict[str, Any]] = {}
    fitted = served().fitted
    still: Any = {
        "log": tmp_path / "log",
        "count_seconds": 3600.0,
        **PATIENT,
    }  # its counts are not what is tested
    with client_of(Settings(model=folder_of(COLUMNS), **still)) as client:

        @settings(max_examples=120, deadline=None, database=None, derandomize=True,
                  suppress_health_check=[HealthCheck.too_slow])  # fmt: skip
        @given(st.lists(SENT, min_size=4, max_size=6), SENT)
        def send(sent: list[dict[str, Any]], context: dict[str, Any]) -> None:
            body = {
                "user": "u1", "candidates": [{**said, "item_id": n} for n, said in enumerate(sent)], "context": context,
                "constraints": [],
            }  # fmt: skip
            answer = client.post("/v1/cards", json=body)
            assert answer.status_code in (200, 422), answer.text
            if answer.status_code == 200:
                accepted[answer.json()["request_id"]] = body

        send()
    assert len(accepted) > 10
    data, _ = built(tmp_path / "log", tmp_path / "data")
    rows = data.impressions().to_pylist()
    assert {row["request_id"] for row in rows} == set(accepted)
    asked = [
        Request.from_dict(
            {"user_id": "u1", "candidates": body["candidates"], "context": body["context"], "k": 4}
        )
        for body in (accepted[row["request_id"]] for row in rows)
    ]
    # What is said of an item stands for all requests, the last word: items, and pairs of them, may differ by now.
    of_items = ("item_categories", "item_vectors", "item_features", "pair_features", "user_features")
    assert_same(data.batch(fitted.vocabulary), fitted.builder.batch(asked), of_items)


def log_of(folder: Path, rotate_bytes: int = 1 << 20) -> ImpressionLog:
    return ImpressionLog(folder, rotate_bytes, 3600.0, lambda rows: None)


def show(log: ImpressionLog, user: str, card: list[int]) -> str:
    request_id = new_request_id("champion", card)
    log.shown(Impression(request_id, user, [*card, 99], card, 1.0, 0.5, "champion", "v"))
    return request_id


def test_all_workers_count_the_same_across_rotation_and_restart(tmp_path: Path) -> None:
    """Two workers write; each of two, and one that starts later, counts what was shown and clicked once."""
    names = ("clicks_so_far", "shown_so_far", "user_clicks_so_far", "user_shown_so_far")
    truth = RollingCounts(names)
    workers = [log_of(tmp_path, rotate_bytes=1500) for _ in range(2)]
    followers = [LogCounts(tmp_path, RollingCounts(names), True) for _ in range(2)]
    rng = np.random.default_rng(3)
    for step in range(60):
        user, card = f"u{rng.integers(3)}", rng.choice(6, 3, replace=False).tolist()
        request_id = show(workers[step % 2], user, card)
        clicked = card[: int(rng.integers(3))]
        for item in (*clicked, *clicked):  # reported twice
            workers[int(rng.integers(2))].answered(request_id, True, item).result(5)
        workers[0].answered(request_id, True, 99).result(5)  # not on the card
        workers[0].answered("nobody", True, card[0]).result(5)
        truth.update([Shown(user, card, clicked)])
        if step % 7 == 0:
            followers[step % 2].catch_up()
    rotated = list(tmp_path.glob("*.parquet"))
    deadline = time.monotonic() + 20
    while len(rotated) < 3 and time.monotonic() < deadline:
        time.sleep(0.05)
        rotated = list(tmp_path.glob("*.parquet"))
    assert len(rotated) >= 3
    later = LogCounts(tmp_path, RollingCounts(names), True)
    for worker in workers:
        worker.close()
    restarted = LogCounts(tmp_path, RollingCounts(names), True)
    for follower in (*followers, later, restarted):
        follower.catch_up()
        assert follower.catch_up() == 0
        for user in ("u0", "u1", "u2", "nobody"):
            np.testing.assert_array_equal(
                follower.counts.lookup(user, range(7)), truth.lookup(user, range(7))
            )


def test_what_the_model_folder_has_counted_is_not_counted_again(tmp_path: Path) -> None:
    log = log_of(tmp_path)
    early = show(log, "u", [1, 2])
    time.sleep(0.002)
    late = show(log, "u", [2, 3])
    for request_id, item in ((early, 1), (late, 3)):
        log.answered(request_id, True, item).result(5)
    log.close()
    counted = RollingCounts(["clicks_so_far", "shown_so_far"], as_of=moment_of(early))
    counted.update([Shown("u", [1, 2], [1])])
    LogCounts(tmp_path, counted, True).catch_up()
    assert counted.lookup("u", [1, 2, 3]).tolist() == [[1, 1], [0, 2], [1, 1]]
    everything = RollingCounts(["clicks_so_far", "shown_so_far"], as_of=moment_of(late))
    LogCounts(tmp_path, everything, True).catch_up()
    assert not everything.lookup("u", [1, 2, 3]).any()


def test_a_service_keeps_its_counts_up_from_its_own_feedback(tmp_path: Path) -> None:
    fitted = served().fitted
    body = {"user": "u1", "candidates": [1, 2, 3, 4, 5, 6]}
    assert fitted.counts is not None
    before = fitted.counts.lookup("u1", body["candidates"])
    options: dict[str, Any] = {
        "model": folder_of(COLUMNS),
        "log": tmp_path / "log",
        "count_seconds": 0.05,
        **PATIENT,
    }
    with client_of(Settings(**options)) as client:
        answers = [post(client, body)]
        first = answers[0]
        told = {"request_id": first["request_id"], "clicked": True, "clicked_item": first["card"][0]}
        client.post("/v1/feedback", json=told)
        time.sleep(0.5)
        answers.append(post(client, body))
    with client_of(Settings(**options)) as client:  # and after a restart
        answers.append(post(client, body))
    logged = [json.loads(text) for text in columns_in(tmp_path / "log")]
    expect = before.copy()
    for row, counted in enumerate(logged):
        found = np.column_stack([counted[name] for name in fitted.counts.names])
        np.testing.assert_allclose(found[:, :2], expect[:, :2], rtol=1e-6)
        for item in answers[row]["card"]:
            expect[body["candidates"].index(item), 1] += 1
        if row == 0:
            expect[body["candidates"].index(first["card"][0]), 0] += 1


def columns_in(folder: Path) -> list[str]:
    rows = [row for file in folder.glob("impressions-*.parquet") for row in pq.read_table(file).to_pylist()]
    return [row["columns"] for row in sorted(rows, key=lambda row: row["timestamp"])]


def test_a_name_new_to_the_model_trains_the_next_one(tmp_path: Path) -> None:
    asked = [
        {**body, "candidates": [{**c, "discount": n * 0.1, "colour": "red"} for n, c in enumerate(body["candidates"])],
         "context": {**body["context"], "weather": "rain", "hour": 7}}
        for body in bodies()[:5]
    ]  # fmt: skip
    with client_of(Settings(model=folder_of(COLUMNS), log=tmp_path / "log", **PATIENT)) as client:
        assert {tuple(post(client, body)["unread"]) for body in asked} == {
            ("colour", "discount", "hour", "weather")
        }
    data, found = built(tmp_path / "log", tmp_path / "data")
    assert data.folder.columns.candidate.numbers[-1] == "discount"
    assert data.folder.columns.context.numbers[-1] == "hour"
    assert data.folder.columns.context.categories[-1] == "weather"
    assert "colour" in data.items.column_names
    assert found.columns["candidate"]["numbers"][-1] == "discount"
    without, told = Dataset.open(tmp_path / "data"), collect(tmp_path / "log", tmp_path / "bare")
    assert told.rows == len(without)  # without the model it is a log like any other
    assert set(Dataset.open(tmp_path / "bare").folder.columns.candidate.numbers) >= {"price", "discount"}
    assert Dataset.open(tmp_path / "bare").folder.columns.candidate.categories == ("offer",)


def test_a_request_of_nobody_is_answered_as_that_of_an_unknown_user_and_trains_as_such(
    tmp_path: Path,
) -> None:
    known, nobody = bodies()[0], {**bodies()[1], "user": None}
    settings = Settings(model=folder_of(COLUMNS), log=tmp_path / "log", **PATIENT)
    with client_of(settings) as client:
        post(client, known)
        answer = post(client, nobody)
        stranger = post(client, {**nobody, "user": "never met"})
        told = {"request_id": answer["request_id"], "clicked": True, "clicked_item": answer["card"][0]}
        assert client.post("/v1/feedback", json=told).json()["item"] == "on the card"
        unsaid = {name: value for name, value in nobody.items() if name != "user"}
        assert client.post("/v1/cards", json=unsaid).status_code == 422
    assert (answer["card"], answer["value"]) == (stranger["card"], stranger["value"])
    dataset, _ = built(tmp_path / "log", tmp_path / "data")
    users = dataset.batch(dataset.vocabulary()).user
    assert (users > 0).tolist() == [True, False, True]
    assert dataset.folder.index.clicked.tolist() == [False, True, False]
