"""`exactk data columns` and `exactk data build frame` on a log with columns of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from exactk.data import Dataset
from exactk.data.columns import Columns
from exactk.data.logs.draft import draft_of_files
from exactk.data.sample import sample_log
from exactk.errors import InputError


def run(*words: object, code: int = 0) -> str:
    command = [sys.executable, "-c", "from exactk.cli import main; main()", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def log(tmp_path: Path) -> Path:
    sample = sample_log(requests=40)
    pq.write_table(sample.rows, tmp_path / "rows.parquet")
    pq.write_table(sample.items, tmp_path / "items.parquet")
    return tmp_path


def test_a_draft_builds_the_log_it_was_drawn_from(log: Path) -> None:
    drafted = run("data", "columns", log / "rows.parquet", "--items", log / "items.parquet")
    (log / "columns.toml").write_text(drafted)
    assert "# price " in drafted
    said = run("data", "build", "frame", "--impressions", log / "rows.parquet", "--items", log / "items.parquet",
               "--columns", log / "columns.toml", "--out", log / "data", "--strict")  # fmt: skip
    assert "used as candidate numbers: price, touches\n" in said
    assert said.splitlines()[-1] == "learns from: card clicked, item of the list, rewards"
    assert Dataset.open(log / "data").folder.columns == Columns.load(log / "columns.toml")
    facts = json.loads(run("data", "columns", log / "rows.parquet", "--json"))
    assert facts["columns"]["candidate"] == {"numbers": ["price", "touches"], "categories": ["offer"]}


def test_roles_on_the_command_line_go_before_the_file(log: Path) -> None:
    (log / "columns.toml").write_text('ignored = ["nights"]\n[roles]\nreward = "dwell"\n')
    run("data", "build", "frame", "--impressions", log / "rows.parquet", "--columns", log / "columns.toml",
        "--map", "reward=touches", "--out", log / "data")  # fmt: skip
    assert Dataset.open(log / "data").folder.columns.roles["reward"] == "touches"


@pytest.mark.parametrize("theirs", ["zzz", "b=c"])
def test_a_mapping_to_a_column_that_is_not_there_is_refused(log: Path, theirs: str) -> None:
    with pytest.raises(InputError, match=f"has no column '{theirs}' to map item_id to"):
        draft_of_files(log / "rows.parquet", None, None, {"item_id": theirs})


def test_a_strict_build_that_taught_nothing_or_lost_much_has_a_status_of_its_own(log: Path) -> None:
    rows = pq.read_table(log / "rows.parquet")
    pq.write_table(rows.drop_columns(["clicked", "dwell"]), log / "silent.parquet")
    words = ["data", "build", "frame", "--impressions", log / "silent.parquet", "--out", log / "silent"]
    said = run(*words)
    assert "nothing to learn from" in said.splitlines()[-1]
    assert "positives_only = true" in said.splitlines()[-1]
    run(*words, "--strict", code=3)
    requests = rows["request_id"].to_pylist()
    requests[: len(requests) // 2] = [None] * (len(requests) // 2)
    broken = rows.set_column(0, "request_id", pa.array(requests))
    pq.write_table(broken, log / "broken.parquet")
    words = ["data", "build", "frame", "--impressions", log / "broken.parquet", "--out", log / "broken"]
    assert "of the rows were lost" in run(*words, "--strict", code=3)
    run(*words, "--bad-rows", "error", code=2)
    assert json.loads(run(*words, "--json"))["faults"]
