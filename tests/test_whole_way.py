"""A log of hotels the whole way: built, audited, learned from, compared, served, and built from what was served."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from exactk.cli import app
from exactk.data import Dataset
from exactk.serving.settings import Settings
from hotel_logs import hotel_rows
from serving_server import client_of

HOTELS = Path(__file__).resolve().parents[1].parent / "shared" / "data" / "trivago" / "rows.parquet"
LEFT = ("clicked", "timestamp", "split", "on_card", "shown", "request_id", "user_id")  # known to no client
CONTEXT = ("device", "platform", "city")
SMALL = ("card_value.epochs={epochs}", "card_value.members=1", "card_value.width=32", "card_value.heads=2")


def run(capsys: pytest.CaptureFixture[str], *words: object) -> Any:
    """A command's JSON."""
    app([str(word) for word in (*words, "--json")], standalone_mode=False)
    return json.loads(capsys.readouterr().out)


def serve(client: httpx.Client, asked: list[dict[str, Any]], clicked: list[Any]) -> list[dict[str, Any]]:
    """Cards of requests; what was clicked in the log is clicked again where it is on the card."""
    answers = client.post("/v1/cards", json={"requests": asked}).json()["answers"]
    for answer, item in zip(answers, clicked, strict=True):
        if item in answer["card"]:
            told = {"request_id": answer["request_id"], "clicked": True, "clicked_item": item}
            assert client.post("/v1/feedback", json=told).json()["item"] == "on the card"
    return answers  # type: ignore[no-any-return]


def bodies(rows: pa.Table, count: int) -> tuple[list[dict[str, Any]], list[Any]]:
    """The last lists of a log as a client would ask for them, and what was clicked in each."""
    asked: dict[str, dict[str, Any]] = {}
    clicked: dict[str, Any] = {}
    for row in rows.slice(max(0, len(rows) - 30 * count)).to_pylist():
        body = asked.setdefault(
            row["request_id"],
            {"user": row["user_id"], "candidates": [], "context": {name: row[name] for name in CONTEXT}},
        )
        kept = {name: value for name, value in row.items() if name not in (*LEFT, *CONTEXT)}
        body["candidates"].append(kept)
        clicked[row["request_id"]] = row["item_id"] if row["clicked"] else clicked.get(row["request_id"])
    names = list(asked)[1:][-count:]  # the first may be cut
    return [asked[name] for name in names], [clicked[name] for name in names]


def whole_way(rows: Path, place: Path, capsys: pytest.CaptureFixture[str], epochs: int, least: float) -> None:
    data, model, compared = place / "hotels", place / "model", place / "compared"
    built = run(capsys, "data", "build", "frame", "--impressions", rows, "--out", data)
    assert built["rows_dropped"] == 0
    assert built["used"]["candidate numbers"][:2] == ["price", "price_rank"]
    assert set(built["used"]["context categories"]) == {*CONTEXT}
    audited = run(capsys, "data", "audit", data)
    assert any("favour the policy that was logged" in said for said in audited["verdict"])
    assert {"popularity so far", "the order shown", "the logged card"} <= set(audited["lists"]["orders"])
    settings = [f"--set={one.format(epochs=epochs)}" for one in SMALL]
    run(capsys, "train", data, "--out", model, *settings)
    judged = run(capsys, "evaluate", model, data)
    chance = audited["lists"]["orders"]["chance"]["precision"]
    assert judged["precision"] > max(least, 1.5 * chance)
    methods = [f"--method={name}" for name in ("random", "logged-policy", "popularity-so-far")]
    table = run(
        capsys,
        "compare",
        data,
        *methods,
        "--model",
        model,
        "--trials",
        1,
        "--out",
        compared,
        "--max-test",
        500,
    )
    names = [row["method"] for row in table["rows"]]
    assert {"random", "logged-policy", "popularity-so-far", "model (exactk)"} <= set(names)
    asked, clicked = bodies(pq.read_table(rows), 40)
    with client_of(Settings(model=model, log=place / "log", budget_ms=5000.0)) as client:
        answers = serve(client, asked, clicked)
    assert all(answer["unread"] == [] for answer in answers)
    hits = sum(item in answer["card"] for answer, item in zip(answers, clicked, strict=True))
    assert hits > 5
    served = run(capsys, "data", "build", "log", place / "log", "--model", model, "--out", place / "served")
    assert (served["rows"], served["clicked"], served["left_out"]) == (40, hits, {})
    again, first = Dataset.open(place / "served"), Dataset.open(data)
    assert again.folder.columns.candidate.numbers[:5] == first.folder.columns.candidate.numbers[:5]
    assert again.folder.columns.context == first.folder.columns.context
    assert again.signal.names == ("card clicked", "item of the card")
    batch = again.batch(first.split()[0].vocabulary())
    assert batch.candidate_numbers is not None
    assert not np.isnan(batch.candidate_numbers[batch.present][:, :5]).any()
    run(capsys, "train", place / "served", "--out", place / "next", "--split", "random", *settings)
    assert run(capsys, "evaluate", place / "next", place / "served", "--part", "train")["valid"] == 1.0


@pytest.mark.slow
def test_a_log_in_the_shape_of_a_hotel_site_goes_the_whole_way(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pq.write_table(hotel_rows(), tmp_path / "rows.parquet")
    whole_way(tmp_path / "rows.parquet", tmp_path, capsys, epochs=3, least=0.25)


@pytest.mark.slow
def test_the_hotel_log_goes_the_whole_way(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if not HOTELS.is_file():
        pytest.skip("the hotel log is not on this machine")
    whole_way(HOTELS, tmp_path, capsys, epochs=1, least=0.6)
