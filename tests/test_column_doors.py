"""Requests of a log with columns, sent through every door, get the cards and values that the log's own rows get."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from exactk.cli import app
from exactk.data import Dataset
from exactk.data.requests import Request
from exactk.errors import DataError, InfeasibleError, InputError
from exactk.problem.rules.constraints import Distinct
from exactk.recommender import Recommender
from exactk.scale.score import ScoringJob, score
from small_models import COLUMNS, column_sample, folder_of

NUM = 40
SENT = ("price", "touches", "offer", "score", "position", "clicks_so_far", "shown_so_far", "rate_so_far")
CONTEXT = ("device", "nights")


@cache
def recommender() -> Recommender:
    return Recommender.load(folder_of(COLUMNS))


@cache
def rows() -> pa.Table:
    """The first rows of the log as a caller would send them, the counts so far that the build computed among them."""
    dataset = Dataset.open(folder_of(COLUMNS).parent / "log")
    batch = dataset.batch(recommender().fitted.vocabulary, np.arange(NUM))
    assert batch.candidate_numbers is not None
    table = column_sample().rows.slice(0, int(batch.present.sum()))
    names = recommender().fitted.vocabulary.columns.candidate_numbers.names
    for name in SENT[-3:]:
        table = table.append_column(
            name, pa.array(batch.candidate_numbers[..., names.index(name)][batch.present])
        )
    return table.select(["request_id", "user_id", "item_id", *SENT, *CONTEXT])


@cache
def expected() -> list[tuple[str, set[int], float]]:
    """Request, card and value of the log's own rows."""
    dataset = Dataset.open(folder_of(COLUMNS).parent / "log").take(np.arange(NUM))
    fitted = recommender().fitted
    decision = recommender().decide(dataset.batch(fitted.vocabulary))
    values = fitted.calibration(decision.logit)
    found = []
    for n, row in enumerate(dataset.impressions().to_pylist()):
        card = {row["candidates"][p] for p in decision.cards[n].tolist() if p >= 0}
        found.append((row["request_id"], card, float(values[n])))
    return found


def bodies() -> list[dict[str, Any]]:
    """The same requests as objects."""
    asked: dict[str, dict[str, Any]] = {}
    for row in rows().to_pylist():
        body = asked.setdefault(
            row["request_id"],
            {"user": row["user_id"], "candidates": [], "context": {name: row[name] for name in CONTEXT}},
        )
        sent = {name: row[name] for name in SENT if row[name] == row[name]}
        body["candidates"].append({"item_id": row["item_id"], **sent})
    return list(asked.values())


def requests_of(asked: list[dict[str, Any]]) -> list[Request]:
    """Bodies as Python has them."""
    return [
        Request.from_dict({"user_id": b["user"], "candidates": b["candidates"], "context": b["context"]}, k=4)
        for b in asked
    ]


def same(found: list[tuple[str, Any, float]]) -> None:
    in_order = sorted(found, key=lambda answer: int(answer[0][1:]))
    for (name, card, value), (wanted, best, worth) in zip(in_order, expected(), strict=True):
        assert (name, set(card)) == (wanted, best)
        assert value == pytest.approx(worth, abs=2e-6)


def test_mappings_and_context() -> None:
    cards = [recommender().recommend(b["user"], b["candidates"], context=b["context"]) for b in bodies()]
    names = [name for name, _, _ in expected()]
    same([(name, card.items, card.value) for name, card in zip(names, cards, strict=True)])


def test_requests_together() -> None:
    names = [name for name, _, _ in expected()]
    cards = recommender().recommend_many(requests_of(bodies()))
    same([(name, card.items, card.value) for name, card in zip(names, cards, strict=True)])


LIBRARIES: dict[str, Any] = {
    "arrow": lambda table: table, "pandas": lambda table: table.to_pandas(), "polars": pl.from_arrow,
    "lazy polars": lambda table: pl.DataFrame(pl.from_arrow(table)).lazy(),
}  # fmt: skip


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_frame_of_one_request(library: str) -> None:
    for name, best, worth in expected()[:6]:
        own = rows().filter(pc.equal(rows()["request_id"], name))
        frame = LIBRARIES[library](own)
        card = recommender().recommend(own["user_id"][0].as_py(), frame)
        assert set(card.items) == best
        assert card.value == pytest.approx(worth, abs=2e-6)


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_frame_of_many_requests_is_answered_by_one_of_its_kind(library: str) -> None:
    answer = recommender().recommend_many(LIBRARIES[library](rows()))
    kinds = {"arrow": pa.Table, "pandas": pd.DataFrame}
    assert isinstance(answer, kinds.get(library, pl.DataFrame))
    table = (
        answer
        if library == "arrow"
        else pa.Table.from_pandas(answer)
        if library == "pandas"
        else answer.to_arrow()
    )
    assert table["problem"].null_count == len(table)
    same([(row["request_id"], row["card"], row["value"]) for row in table.to_pylist()])
    assert table["user_id"].to_pylist() == [body["user"] for body in bodies()]


FILES = ("rows.parquet", "rows.csv", "rows.jsonl", "lists.parquet", "lists.jsonl")


def written(name: str, folder: Path) -> Path:
    """The requests as a file of this name; a row group holds parts of several of them."""
    path = folder / name
    if name == "rows.parquet":
        pq.write_table(rows(), path, row_group_size=7)
    elif name == "rows.csv":
        pacsv.write_csv(rows(), path)
    elif name == "rows.jsonl":
        plain = [{name: v for name, v in row.items() if v == v} for row in rows().to_pylist()]
        path.write_text("".join(json.dumps(row) + "\n" for row in plain), encoding="utf-8")
    elif name == "lists.jsonl":
        named = [
            {"request_id": wanted, "user_id": body.pop("user"), **body}
            for (wanted, _, _), body in zip(expected(), bodies(), strict=True)
        ]
        path.write_text("".join(json.dumps(row) + "\n" for row in named), encoding="utf-8")
    else:
        pq.write_table(lists(), path, row_group_size=7)
    return path


def lists() -> pa.Table:
    """A row per request."""
    keys = ["request_id", "user_id", *CONTEXT]
    listed = (
        rows().group_by(keys, use_threads=False).aggregate([(name, "list") for name in ("item_id", *SENT)])
    )
    names = [name.removesuffix("_list") for name in listed.column_names]
    return listed.rename_columns(["candidates" if name == "item_id" else name for name in names])


def cards_in(out: Path) -> list[tuple[str, Any, float]]:
    table = pa.concat_tables([pq.read_table(file) for file in sorted(out.glob("part-*.parquet"))])
    return [(row["request_id"], row["card"], row["value"]) for row in table.to_pylist()]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("part", [1, 3, 10, 10_000])
def test_scoring_a_file_in_parts_of_any_size(name: str, part: int, tmp_path: Path) -> None:
    if part < 10 and name in ("rows.csv", "lists.parquet", "lists.jsonl"):
        pytest.skip("of these, parts of few rows tell no more")
    source = written(name, tmp_path)
    report = score(ScoringJob(str(folder_of(COLUMNS)), str(tmp_path / "out")), source, rows=part)
    assert (report.requests, report.bad, report.unread, report.missing) == (NUM, 0, (), ())
    same(cards_in(tmp_path / "out"))


def test_a_dataset_folder_is_scored_with_all_its_columns(tmp_path: Path) -> None:
    log = folder_of(COLUMNS).parent / "log"
    report = score(ScoringJob(str(folder_of(COLUMNS)), str(tmp_path / "out")), log, rows=64)
    assert report.missing == ()
    same(cards_in(tmp_path / "out")[:NUM])


@pytest.mark.parametrize("name", FILES)
def test_the_recommend_command(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = written(name, tmp_path)
    run(["recommend", str(folder_of(COLUMNS)), "--requests", str(source)])
    shown = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    same([(card["request_id"], card["items"], card["value"]) for card in shown])
    run(
        [
            "recommend",
            str(folder_of(COLUMNS)),
            "--requests",
            str(source),
            "--out",
            str(tmp_path / "cards.csv"),
        ]
    )
    kept = pacsv.read_csv(tmp_path / "cards.csv").group_by("request_id", use_threads=False)
    named = kept.aggregate([("item_id", "list"), ("value", "min")]).to_pylist()
    same([(row["request_id"], row["item_id_list"], row["value_min"]) for row in named])


def run(words: list[str]) -> None:
    app(words, standalone_mode=False)


def test_commands_say_what_was_not_read_and_what_nobody_sent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [name.replace("price", "prize").replace("item_id", "sku") for name in rows().column_names]
    odd = tmp_path / "odd.parquet"
    pq.write_table(rows().rename_columns(names), odd)
    run(["recommend", str(folder_of(COLUMNS)), "--requests", str(odd), "--map", "item_id=sku", "--json"])
    told = capsys.readouterr()
    assert json.loads(told.out)["unread"] == ["prize"]
    assert "missing: the model reads price" in told.err
    run(["score", str(folder_of(COLUMNS)), str(odd), "--out", str(tmp_path / "out"), "--map", "item_id=sku"])
    said = capsys.readouterr().out
    assert "not read by the model or a rule: prize" in said
    assert "missing: the model reads price, and no request has it" in said


def test_bad_rows_are_named_or_counted(tmp_path: Path) -> None:
    names = ["r0"] * 5 + ["r1"] * 2 + [None] + ["r2"] * 4
    table = rows().slice(0, 12).set_column(0, "request_id", pa.array(names))
    source = tmp_path / "rows.parquet"
    pq.write_table(table, source)
    job = ScoringJob(str(folder_of(COLUMNS)), str(tmp_path / "out"))
    with pytest.raises(DataError, match=r"rows.parquet: row 5: a card of 4 cannot be made of 2 candidates"):
        score(job, source)
    report = score(ScoringJob(job.model, str(tmp_path / "kept"), skip_bad=True), source)
    assert (report.bad, report.requests) == (2, 2)
    assert [(one["row"], one["reason"]) for one in report.examples] == [
        (5, "a card of 4 cannot be made of 2 candidates"), (7, "a value is missing (1 rows)"),
    ]  # fmt: skip
    dear = table.set_column(table.column_names.index("price"), "price", pa.array(["dear"] * 12))
    pq.write_table(dear, source)
    with pytest.raises(DataError, match="row 0, column 'price': 'dear' cannot be read as float"):
        score(ScoringJob(job.model, str(tmp_path / "dear")), source)


def test_a_list_too_short_for_a_card_spoils_no_neighbour(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ["short"] * 2 + ["whole"] * 5 + ["none"] * 3 + ["last"] * 4
    table = (
        rows()
        .slice(0, 14)
        .drop_columns(["user_id", *CONTEXT])
        .append_column("user_id", pa.array(["u1"] * 14))
    )
    table = table.set_column(0, "request_id", pa.array(names))
    pq.write_table(table, tmp_path / "rows.parquet")
    words = ["recommend", str(folder_of(COLUMNS)), "--requests", str(tmp_path / "rows.parquet"), "--json"]
    assert app(words, standalone_mode=False) == 2
    said = capsys.readouterr()
    found = json.loads(said.out)
    assert [(answer["request_id"], answer.get("error")) for answer in found["cards"]] == [
        ("short", "a card of 4 cannot be made of 2 candidates"), ("whole", None),
        ("none", "a card of 4 cannot be made of 3 candidates"), ("last", None),
    ]  # fmt: skip
    assert (found["requests"], found["infeasible"]) == (4, 2)
    assert "no card for 2 of 4 requests" in said.err


def test_the_columns_decide_and_a_missing_one_is_missing() -> None:
    body = bodies()[0]
    whole = recommender().recommend(body["user"], body["candidates"], context=body["context"])
    bare = recommender().recommend(body["user"], [c["item_id"] for c in body["candidates"]])
    dear = [
        {**c, "price": 9 * c.get("price", 50.0)} if n % 2 else c for n, c in enumerate(body["candidates"])
    ]
    assert whole.value != bare.value
    assert whole.value != recommender().recommend(body["user"], dear, context=body["context"]).value
    explicit = [{**c, "price": None} for c in body["candidates"]]
    unsaid = [{name: v for name, v in c.items() if name != "price"} for c in body["candidates"]]
    values = [
        recommender().recommend("u1", asked, context=body["context"]).value for asked in (explicit, unsaid)
    ]
    assert values[0] == values[1]


def test_context_given_beside_a_frame_goes_before_its_own() -> None:
    own = rows().filter(pc.equal(rows()["request_id"], expected()[0][0]))
    user, other = own["user_id"][0].as_py(), {"device": "desk", "nights": 9}
    bare = own.drop_columns(list(CONTEXT))
    assert recommender().recommend(user, own, context=other) == recommender().recommend(
        user, bare, context=other
    )


def test_a_model_keeps_the_counts_as_training_and_validation_left_them() -> None:
    dataset = Dataset.open(folder_of(COLUMNS).parent / "log")
    train, valid, _ = dataset.split()
    counts = Dataset(dataset.folder, np.sort(np.concatenate([train.rows, valid.rows]))).rolling_counts()
    whole, kept = dataset.rolling_counts(), recommender().fitted.counts
    assert counts is not None
    assert whole is not None
    assert kept is not None
    items = dataset.items["item_id"].to_pylist()
    np.testing.assert_array_equal(kept.lookup("u1", items), counts.lookup("u1", items))
    assert (kept.lookup("u1", items) != whole.lookup("u1", items)).any()
    known = int(np.argmax(kept.lookup("u1", items)[:, 1]))
    asked = Request("u1", (items[known], 10**9), 1)
    found = recommender().fitted.builder.batch([asked]).candidate_numbers
    np.testing.assert_array_equal(found[0, 0, -3:], kept.lookup("u1", [items[known]])[0])  # type: ignore[index]


def test_names_nobody_reads_are_told_on_asking() -> None:
    candidates = [{"item_id": 1, "prize": 3.0, "price": 2.0}, {"item_id": 2, "title": "red lamp"}]
    assert recommender().unread(candidates, {"devise": "phone", "device": "phone"}) == ["devise", "prize"]
    assert recommender().unread(pl.DataFrame({"item_id": [1], "prize": [2.0], "device": ["phone"]})) == [
        "prize"
    ]


def test_a_request_of_a_frame_that_has_no_card_is_named_or_returned() -> None:
    frame = pl.DataFrame(
        {"request_id": ["a"] * 4 + ["b"] * 3, "item_id": [1, 2, 3, 4, 1, 2, 3], "user_id": ["u1"] * 7}
    )
    with pytest.raises(DataError, match="no column 'user_id', and the model knows users"):
        recommender().recommend_many(frame.drop("user_id"))
    with pytest.raises(InputError, match="request 'b': a card of 4 cannot be made of 3 candidates"):
        recommender().recommend_many(frame)
    answer = recommender().recommend_many(frame, infeasible="return")
    assert answer["card"].to_list() == [[1, 2, 3, 4], None]
    assert answer["problem"].to_list() == [None, "a card of 4 cannot be made of 3 candidates"]
    same_kind = frame.with_columns(maker=pl.lit("Elm"))
    with pytest.raises(InfeasibleError, match="request 'a': no valid card exists") as raised:
        recommender().recommend_many(same_kind, constraints=Distinct("maker"), infeasible="raise")
    assert raised.value.blocking
    relaxed = recommender().recommend_many(
        same_kind.head(4), constraints=Distinct("maker"), relax=["distinct maker"]
    )
    assert relaxed["relaxed"].to_list() == [["distinct maker"]]
    with pytest.raises(InputError, match="no place for reasons"):
        recommender().recommend_many(frame, explain=True)  # type: ignore[call-overload]
