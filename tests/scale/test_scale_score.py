"""Scoring a user base: every request one row, whatever kills the job, whatever the file holds."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from exactk.data.requests import Request
from exactk.errors import ConfigError, DataError, InputError, MissingExtraError
from exactk.problem.solving import Card
from exactk.recommender import Recommender
from exactk.scale.cluster import Placement
from exactk.scale.plan import JobPart, files_of, parts_of
from exactk.scale.score import ScoringJob, score
from serving_model import ITEMS, NUM_USERS, fitted, write_data

NUM = 600


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(tmp_path_factory.mktemp("data") / "log")


@pytest.fixture(scope="module", params=["pair_value", "policy"])
def model(request: pytest.FixtureRequest, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("model") / request.param
    fitted(data, request.param).save(folder)
    return folder


@pytest.fixture(scope="module")
def pair_model(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pair") / "model"
    fitted(data, "pair_value").save(folder)
    return folder


def made_requests(seed: int = 0, num: int = NUM) -> list[dict[str, Any]]:
    """Known and unknown users, lists of 6 to 12 candidates."""
    random = np.random.default_rng(seed)
    rows = []
    for n in range(num):
        offered = random.choice(len(ITEMS), random.integers(6, 13), replace=False)
        rows.append(
            {
                "request_id": f"q{n}",
                "user_id": f"u{random.integers(NUM_USERS + 3)}",
                "candidates": [ITEMS[i] for i in offered],
            }
        )
    return rows


def written(folder: Path, rows: list[dict[str, Any]], files: int = 3) -> Path:
    folder.mkdir()
    for n in range(files):
        pq.write_table(
            pa.Table.from_pylist(rows[n::files]), folder / f"requests-{n}.parquet", row_group_size=40
        )
    return folder


def cards(out: Path) -> dict[str, Any]:
    """All rows by request; a request that stands there twice is an error."""
    table = pa.concat_tables([pq.read_table(f) for f in sorted(out.glob("part-*.parquet"))])
    rows = {row["request_id"]: row for row in table.to_pylist()}
    assert len(rows) == len(table)
    return rows


def test_every_request_gets_the_card_that_the_recommender_gives_it(model: Path, tmp_path: Path) -> None:
    rows = made_requests()
    report = score(ScoringJob(str(model), str(tmp_path / "out")), written(tmp_path / "in", rows), rows=100)
    recommender = Recommender.load(model)
    asked = [Request(row["user_id"], tuple(row["candidates"]), 3) for row in rows]
    expected = recommender.recommend_many(asked, infeasible="return")
    found = cards(tmp_path / "out")
    assert report.requests == len(found) == NUM
    assert report.infeasible == sum(not isinstance(card, Card) for card in expected)
    for row, card in zip(rows, expected, strict=True):
        got = found[row["request_id"]]
        if isinstance(card, Card):
            assert sorted(got["card"]) == sorted(card.items)
            assert got["value"] == pytest.approx(card.value, abs=1e-6)
        else:
            assert got["card"] is None
            assert "no valid card" in got["problem"]


def test_a_job_killed_at_any_moment_goes_on_without_a_missing_or_double_request(
    pair_model: Path, tmp_path: Path
) -> None:
    source = written(tmp_path / "in", made_requests(num=4000), files=4)
    out = tmp_path / "out"
    command = [sys.executable, "-c", "from exactk.cli import main; main()", "score", str(pair_model)]
    command += [str(source), "--out", str(out), "--rows", "40", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while process.poll() is None and len(list(out.glob("part-*.parquet"))) < 3:
        time.sleep(0.01)
    process.kill()
    process.communicate()
    before = {f.name: f.stat().st_mtime_ns for f in out.glob("part-*.parquet")}
    assert 0 < len(before) < 100
    report = score(ScoringJob(str(pair_model), str(out)), source, rows=40)
    assert report.parts_before == len(before)
    assert len(cards(out)) == report.requests == 4000
    assert {f: (out / f).stat().st_mtime_ns for f in before} == before  # what was made is not made again


def test_going_on_with_another_model_or_other_files_is_refused(pair_model: Path, tmp_path: Path) -> None:
    source = written(tmp_path / "in", made_requests(num=30), files=1)
    out = tmp_path / "out"
    score(ScoringJob(str(pair_model), str(out)), source)
    with pytest.raises(ConfigError, match="its k was None, now it is 2"):
        score(ScoringJob(str(pair_model), str(out), k=2), source)
    pq.write_table(pa.Table.from_pylist(made_requests(num=31)), source / "requests-0.parquet")
    with pytest.raises(ConfigError, match="the files it was made from have changed since"):
        score(ScoringJob(str(pair_model), str(out)), source)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    with pytest.raises(DataError, match="holds no plan.json"):
        score(ScoringJob(str(pair_model), str(tmp_path / "other")), source)


def test_cards_have_a_folder_of_their_own(pair_model: Path, tmp_path: Path) -> None:
    """In the folder that is read they would be read by the next call, so that nothing could be resumed."""
    source = written(tmp_path / "in", made_requests(num=30), files=1)
    for out in (source, source / "cards", source / "deep" / ".." / "cards"):
        with pytest.raises(InputError, match="is in the folder that is read"):
            score(ScoringJob(str(pair_model), str(out)), source)
    with pytest.raises(DataError, match="is not a folder, so it is not overwritten"):
        score(ScoringJob(str(pair_model), str(source / "requests-0.parquet")), source / "requests-0.parquet")
    assert [file.name for file in source.iterdir()] == ["requests-0.parquet"]


def test_a_call_that_failed_before_anything_was_made_may_be_mended(pair_model: Path, tmp_path: Path) -> None:
    source = tmp_path / "requests.parquet"
    rows = pa.Table.from_pylist(made_requests(num=10))
    pq.write_table(rows.rename_columns([n.replace("user_id", "uid") for n in rows.column_names]), source)
    out = str(tmp_path / "out")
    with pytest.raises(DataError, match=r'say which one it is \(columns=\{"user_id": ...\}\)'):
        score(ScoringJob(str(pair_model), out), source)
    assert score(ScoringJob(str(pair_model), out, columns={"user_id": "uid"}), source).requests == 10


BAD = {
    3: "there are no candidates",
    7: "a card of 3 cannot be made of 2",
    11: "a candidate appears twice",
}


def spoiled(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    rows[3] |= {"candidates": []}
    rows[7] |= {"candidates": ITEMS[:2]}
    rows[11] |= {"candidates": [*ITEMS[:5], ITEMS[2]]}
    return rows


@pytest.mark.parametrize("ending", ["parquet", "jsonl"])
def test_a_bad_row_is_named_by_file_and_row_or_counted(pair_model: Path, tmp_path: Path, ending: str) -> None:
    rows = spoiled(made_requests(num=20))
    file = tmp_path / f"requests.{ending}"
    if ending == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), file)
    else:
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(DataError, match=rf"requests.{ending}: row 3: .*no candidates.*skip_bad=True"):
        score(ScoringJob(str(pair_model), str(tmp_path / "strict")), file)
    report = score(ScoringJob(str(pair_model), str(tmp_path / "out"), skip_bad=True), file)
    assert (report.bad, report.requests) == (3, 17)
    assert [example["row"] for example in report.examples] == list(BAD)
    assert set(cards(tmp_path / "out")) == {row["request_id"] for n, row in enumerate(rows) if n not in BAD}


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('{"user_id": 1, "user_id": 2, "candidates": [1, 2, 3]}', "there are 2 values of 'user_id'"),
        ('{"user_id": "\\udc00", "candidates": [1, 2, 3]}', "is half of a character"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_a_line_that_says_two_things_or_none_is_a_bad_row(
    pair_model: Path, tmp_path: Path, line: str, why: str
) -> None:
    file = tmp_path / "requests.jsonl"
    file.write_text('{"user_id": "u1", "candidates": ["i1", "i2", "i3"]}\n' + line + "\n")
    with pytest.raises(DataError, match=f"row 1: .*{why}"):
        score(ScoringJob(str(pair_model), str(tmp_path / "out"), k=2), file)


def test_a_damaged_partition_is_named_or_skipped_whole(pair_model: Path, tmp_path: Path) -> None:
    source = written(tmp_path / "in", made_requests(num=120), files=3)
    file = source / "requests-1.parquet"
    content = bytearray(file.read_bytes())
    content[40:400] = bytes(360)
    file.write_bytes(content)
    with pytest.raises(
        DataError, match=r"requests-1.parquet: row 0: its 40 rows from there on cannot be read"
    ):
        score(ScoringJob(str(pair_model), str(tmp_path / "strict")), source)
    report = score(ScoringJob(str(pair_model), str(tmp_path / "out"), skip_bad=True), source)
    assert (report.bad, report.requests) == (40, 80)


def test_a_user_base_is_scored_with_one_list_of_candidates(pair_model: Path, tmp_path: Path) -> None:
    users = tmp_path / "users.parquet"
    pq.write_table(pa.table({"uid": [f"u{n}" for n in range(NUM_USERS)]}), users)
    job = ScoringJob(str(pair_model), str(tmp_path / "out"), {"user_id": "uid"}, tuple(ITEMS[:10]), k=2)
    report = score(job, users)
    found = cards(tmp_path / "out").values()
    assert report.requests == NUM_USERS
    assert {row["user_id"] for row in found} == {f"u{n}" for n in range(NUM_USERS)}
    assert all(len(row["card"]) == 2 and set(row["card"]) <= set(ITEMS[:10]) for row in found)


def test_a_dataset_folder_is_a_source(pair_model: Path, data: Path, tmp_path: Path) -> None:
    assert score(ScoringJob(str(pair_model), str(tmp_path / "out")), data).requests == 400


def test_without_ray_the_error_says_how_to_get_it(
    pair_model: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'exactk\[scale\]'"):
        score(ScoringJob(str(pair_model), str(tmp_path / "out")), data, Placement(ray=True))


def test_parts_cover_every_row_once_and_never_cut_a_row_group(tmp_path: Path) -> None:
    pq.write_table(pa.table({"user_id": range(100)}), tmp_path / "a.parquet", row_group_size=30)
    (tmp_path / "b.jsonl").write_bytes(b"{}\n" * 25)
    parts = parts_of(files_of(tmp_path), 60)
    assert [(Path(p.file).name, p.first_row, p.num_rows) for p in parts] == [
        ("a.parquet", 0, 60),
        ("a.parquet", 60, 40),
        ("b.jsonl", 0, 25),
    ]
    assert parts_of(files_of(tmp_path / "b.jsonl"), 10)[1] == JobPart(
        1, str(tmp_path / "b.jsonl"), 10, 10, 30, 60
    )
