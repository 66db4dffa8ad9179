"""The log of the service: nothing acknowledged is lost, whatever happens to the process or the disk."""

from __future__ import annotations

import fcntl
import json
import os
import resource
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from exactk.data.dataset import Dataset
from exactk.errors import DataError
from exactk.serving.log import FEEDBACK, IMPRESSIONS, Impression, ImpressionLog
from exactk.serving.log.collecting import collect
from exactk.serving.log.journal import Journal, read_all, read_journal, shelve_abandoned

SCHEMA = pa.schema({"name": pa.string(), "number": pa.int64()})


def journal(folder: Path, lost: list[int] | None = None, rotate_bytes: int = 1 << 20) -> Journal:
    return Journal(folder, "rows", SCHEMA, rotate_bytes, 3600.0, (lost if lost is not None else []).append)


def test_rows_appended_are_rows_read_while_open_and_after_closing(tmp_path: Path) -> None:
    opened = journal(tmp_path)
    opened.append_durably({"name": "a", "number": 1}).result(5)
    assert read_all(tmp_path, "rows", SCHEMA).to_pylist() == [{"name": "a", "number": 1}]
    opened.append({"name": 'quotes " and\nlines', "number": None})
    opened.close()
    assert not list(tmp_path.glob("*.jsonl"))
    assert read_all(tmp_path, "rows", SCHEMA).to_pylist() == [
        {"name": "a", "number": 1},
        {"name": 'quotes " and\nlines', "number": None},
    ]


def test_a_large_journal_rotates_and_every_row_is_in_exactly_one_part(tmp_path: Path) -> None:
    opened = journal(tmp_path, rotate_bytes=2000)
    for number in range(300):
        opened.append_durably({"name": "x" * 20, "number": number}).result(5)
    opened.close()
    assert len(list(tmp_path.glob("*.parquet"))) > 3
    assert sorted(read_all(tmp_path, "rows", SCHEMA)["number"].to_pylist()) == list(range(300))


def test_a_torn_last_line_is_left_out_and_the_rest_is_kept(tmp_path: Path) -> None:
    torn = tmp_path / "rows-1-1-1.jsonl"
    torn.write_bytes(b'{"name":"a","number":1}\n{"name":"b","nu')
    assert read_journal(torn, SCHEMA).to_pylist() == [{"name": "a", "number": 1}]
    torn.write_bytes(b'{"name":"b","nu')
    assert len(read_journal(torn, SCHEMA)) == 0


def test_journals_of_dead_processes_are_shelved_once_and_those_of_living_ones_left_alone(
    tmp_path: Path,
) -> None:
    living = journal(tmp_path)
    living.append_durably({"name": "living", "number": 1}).result(5)
    (tmp_path / "rows-0-dead-1.jsonl").write_bytes(b'{"name":"dead","number":2}\n')
    (tmp_path / "rows-0-done-1.jsonl").write_bytes(b'{"name":"done","number":3}\n')
    # This one died between the rename to Parquet and the removal of its journal.
    pq.write_table(pa.table({"name": ["done"], "number": [3]}, SCHEMA), tmp_path / "rows-0-done-1.parquet")
    shelve_abandoned(tmp_path, "rows", SCHEMA)
    assert len(list(tmp_path.glob("*.jsonl"))) == 1
    assert sorted(read_all(tmp_path, "rows", SCHEMA)["name"].to_pylist()) == ["dead", "done", "living"]
    living.close()


@pytest.mark.parametrize(
    "keep", ["append({'number': number})", "append_durably({'number': number}).result()"]
)
def test_a_process_killed_outright_loses_no_acknowledged_row(tmp_path: Path, keep: str) -> None:
    script = textwrap.dedent("""
        import sys, pyarrow as pa
        from pathlib import Path
        from exactk.serving.log.journal import Journal
        opened = Journal(Path(sys.argv[1]), "rows", pa.schema({"number": pa.int64()}), 4000, 3600.0)
        number = 0
        while True:
            opened.KEEP
            print(number, flush=True)
            number += 1
    """).replace("KEEP", keep)
    child = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    acknowledged = [int(child.stdout.readline()) for _ in range(400)]
    child.send_signal(signal.SIGKILL)
    acknowledged += [int(line) for line in child.stdout.read().split()]
    child.wait()
    child.stdout.close()
    schema = pa.schema({"number": pa.int64()})
    kept = read_all(tmp_path, "rows", schema)["number"].to_pylist()
    assert len(kept) == len(set(kept))
    assert set(acknowledged) <= set(kept)
    shelve_abandoned(tmp_path, "rows", schema)
    assert set(acknowledged) <= set(read_all(tmp_path, "rows", schema)["number"].to_pylist())


@pytest.fixture
def small_disk() -> Iterator[None]:
    """No file of this process may grow beyond 600 bytes: what a full disk looks like from inside."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (600, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, handler)


def test_a_full_disk_refuses_loudly_keeps_what_it_has_and_recovers(
    tmp_path: Path, small_disk: None, caplog: pytest.LogCaptureFixture
) -> None:
    lost: list[int] = []
    opened = journal(tmp_path, lost)
    outcomes = []
    for number in range(40):
        try:
            opened.append_durably({"name": "y" * 10, "number": number}).result(5)
            outcomes.append(number)
        except OSError:
            pass
    assert 0 < len(outcomes) < 40
    assert sum(lost) == 40 - len(outcomes)
    assert len(caplog.records) == 1  # loud, yet not once for every row
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit[1], limit[1]))
    opened.append_durably({"name": "after", "number": 99}).result(5)
    opened.close()
    assert read_all(tmp_path, "rows", SCHEMA)["number"].to_pylist() == [*outcomes, 99]


def shown(log: ImpressionLog, *facts: Any, **more: Any) -> None:
    log.shown(Impression(*facts, **more))


def log_of(folder: Path) -> ImpressionLog:
    return ImpressionLog(folder, 1 << 20, 3600.0, lambda rows: None)


def test_what_was_served_becomes_a_dataset_that_opens(tmp_path: Path) -> None:
    log = log_of(tmp_path / "log")
    items = [{"item_id": name, "title": name.upper(), "category": "c", "price": 3} for name in "abcd"]
    log.described(items)
    log.described(items)
    shown(log, "r1", "u1", list("abcd"), ["a", "b"], 0.25, 0.5, "champion", "v1")
    shown(log, "r2", "u2", list("abc"), ["b", "c"], 1.0, None, "challenger", "v2")
    log.answered("r1", True, "b").result(5)
    log.answered("r1", True, "a").result(5)
    log.answered("r2", False, None).result(5)
    log.answered("never shown", True, "a").result(5)
    log.close()
    found = collect(tmp_path / "log", tmp_path / "data")
    assert (found.rows, found.clicked) == (2, 1)
    assert found.left_out == {
        "feedback for requests that are not in the log": 1,
    }
    data = Dataset.open(tmp_path / "data")
    assert len(data) == 2
    rows = pq.read_table(tmp_path / "data" / "impressions.parquet").to_pylist()
    assert [row["clicked"] for row in rows] == [True, False]
    assert [row["clicked_item"] for row in rows] == ["b", None]
    assert [row["propensity"] for row in rows] == [0.25, 1.0]
    assert [row["candidates"] for row in rows] == [list("abcd"), list("abc")]
    assert [row["clicked_items"] for row in rows] == [["b", "a"], []]
    described = pq.read_table(tmp_path / "data" / "items.parquet").to_pylist()
    assert {row["item_id"]: row["title"] for row in described} == {"a": "A", "b": "B", "c": "C", "d": "D"}


def test_whole_number_ids_come_back_as_whole_numbers(tmp_path: Path) -> None:
    log = log_of(tmp_path / "log")
    shown(log, "r1", 7, [10, 11, 12], [11, 12], 1.0, 0.5, "champion", "v1")
    log.answered("r1", True, 12).result(5)
    log.close()
    collect(tmp_path / "log", tmp_path / "data")
    row = pq.read_table(tmp_path / "data" / "impressions.parquet").to_pylist()[0]
    assert (row["user_id"], row["candidates"], row["card"], row["clicked_item"]) == (
        7,
        [10, 11, 12],
        [11, 12],
        12,
    )


def test_feedback_and_impressions_of_several_processes_join(tmp_path: Path) -> None:
    first, second = log_of(tmp_path / "log"), log_of(tmp_path / "log")
    shown(first, "r1", "u", ["a", "b"], ["a"], 1.0, 0.1, "champion", "v")
    second.answered("r1", True, "a").result(5)
    first.close()
    second.close()
    collect(tmp_path / "log", tmp_path / "data")
    assert pq.read_table(tmp_path / "data" / "impressions.parquet")["clicked"].to_pylist() == [True]


def test_an_empty_log_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no impressions"):
        collect(tmp_path, tmp_path / "data")
    with pytest.raises(DataError, match="does not exist"):
        collect(tmp_path / "nowhere", tmp_path / "data")


def test_an_impression_is_out_of_the_process_when_it_is_noted(tmp_path: Path) -> None:
    log = log_of(tmp_path)
    shown(log, "r1", "u", ["a"], ["a"], None, None, "champion", "v")
    assert read_all(tmp_path, "impressions", IMPRESSIONS)["request_id"].to_pylist() == ["r1"]
    assert len(read_all(tmp_path, "feedback", FEEDBACK)) == 0
    log.close()
    assert json.dumps(os.listdir(tmp_path)).count("parquet") == 1


def test_a_disk_that_stands_still_holds_up_one_row_not_the_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = journal(tmp_path)
    slow, direct = os.pwrite, threading.get_ident()

    def stalled(descriptor: int, data: bytes, at: int) -> int:
        if threading.get_ident() == direct:
            time.sleep(0.05)
        return slow(descriptor, data, at)

    monkeypatch.setattr(os, "pwrite", stalled)
    late = [opened.append({"name": "x", "number": number}) for number in range(50)]
    assert late[0] is None  # it found out
    for row in late[1:]:
        assert row is not None
        row.result(timeout=10)
    assert read_all(tmp_path, "rows", SCHEMA)["number"].to_pylist() == list(
        range(50)
    )  # before anything is closed
    opened.close()
    assert read_all(tmp_path, "rows", SCHEMA)["number"].to_pylist() == list(range(50))


@pytest.mark.parametrize("still_held", [False, True])
def test_a_file_that_another_worker_takes_for_abandoned_before_it_is_locked_is_not_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, still_held: bool
) -> None:
    lost: list[int] = []
    opened, lock, others = journal(tmp_path, lost), fcntl.flock, list[int]()

    def taken_before(descriptor: int, how: int) -> None:
        if not others:
            (path,) = tmp_path.glob("rows-*.jsonl")
            others.append(os.open(path, os.O_RDONLY))
            if still_held:
                lock(others[0], how)
            else:
                shelve_abandoned(tmp_path, "rows", SCHEMA)
        lock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", taken_before)
    opened.append({"name": "x", "number": 1})
    os.close(others[0])
    opened.append({"name": "x", "number": 2})
    opened.close()
    assert (read_all(tmp_path, "rows", SCHEMA)["number"].to_pylist(), lost) == ([1, 2], [])


def test_logs_of_before_keep_their_types(tmp_path: Path) -> None:
    """`integer_ids` spoke for users and items at once."""
    row = {"request_id": "r1", "user_id": "7", "candidates": ["1", "2"], "card": ["2"], "propensity": 1.0,
           "timestamp": 5, "arm": "champion", "model": "v", "value": 0.5, "integer_ids": True}  # fmt: skip
    old = pa.schema([each for each in IMPRESSIONS if each.name not in ("integer_users", "integer_items")])
    (tmp_path / "log").mkdir()
    pq.write_table(pa.Table.from_pylist([row], old), tmp_path / "log" / "impressions-1-1-1.parquet")
    collect(tmp_path / "log", tmp_path / "data")
    (read,) = pq.read_table(tmp_path / "data" / "impressions.parquet").to_pylist()
    assert (read["user_id"], read["candidates"], read["card"]) == (7, [1, 2], [2])


def test_text_users_and_whole_number_items_keep_their_types_apart(tmp_path: Path) -> None:
    log = log_of(tmp_path / "log")
    shown(log, "r1", "007", [1, 2], [2], 1.0, 0.5, "champion", "v1")
    log.close()
    collect(tmp_path / "log", tmp_path / "data")
    (read,) = pq.read_table(tmp_path / "data" / "impressions.parquet").to_pylist()
    assert (read["user_id"], read["candidates"]) == ("007", [1, 2])


@pytest.mark.parametrize("known", [[7], []])
def test_users_that_are_whole_numbers_stay_so_beside_nobody(tmp_path: Path, known: list[int]) -> None:
    log = log_of(tmp_path / "log")
    for number, user in enumerate([*known, None]):
        shown(log, f"r{number}", user, [10, 11, 12], [11, 12], 1.0, 0.5, "champion", "v1")
    log.close()
    collect(tmp_path / "log", tmp_path / "data")
    data = Dataset.open(tmp_path / "data")
    assert data.vocabulary().user_ids.to_pylist() == known
    assert (data.batch(data.vocabulary()).user == 0).tolist() == [False] * len(known) + [True]
