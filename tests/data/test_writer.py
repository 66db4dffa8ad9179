"""A dataset folder appears whole or not at all, and a damaged one never loads."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from card_logs import random_impressions, random_log, write_log
from exactk.atomic import atomic_folder
from exactk.data import Dataset, DatasetWriter, Meta
from exactk.errors import DataError


def test_meta_tells_sizes_checksums_and_where_the_log_came_from(tmp_path: Path) -> None:
    rows = random_impressions(20)
    write_log(tmp_path / "log", rows, meta=Meta(provenance={"source": "by hand"}))
    meta = json.loads((tmp_path / "log" / "meta.json").read_text())
    assert meta["format"] == 1
    assert meta["K"] == max(len(row["card"]) for row in rows)
    assert meta["N"] == max(len(row["candidates"]) for row in rows)
    assert meta["provenance"] == {"source": "by hand"}
    assert {name: entry["rows"] for name, entry in meta["checksums"].items()} == {
        "impressions.parquet": 20,
        "items.parquet": len({i for row in rows for i in row["candidates"]}),
        "users.parquet": len({row["user_id"] for row in rows}),
    }


def test_writing_in_many_pieces_gives_the_same_impressions(tmp_path: Path) -> None:
    rows = random_impressions(30)
    whole = Dataset.open(write_log(tmp_path / "whole", rows))
    pieces = Dataset.open(write_log(tmp_path / "pieces", rows, rows_at_once=4))
    assert whole.impressions().equals(pieces.impressions())


def test_an_exception_while_writing_leaves_the_old_folder(tmp_path: Path) -> None:
    path = write_log(tmp_path / "log", random_impressions(5))

    def fail_halfway() -> None:
        with DatasetWriter(path) as writer:
            writer.write_items(pa.table({"item_id": ["x"]}))
            raise RuntimeError("halfway")

    with pytest.raises(RuntimeError, match="halfway"):
        fail_halfway()
    assert len(Dataset.open(path, verify=True)) == 5
    assert [entry.name for entry in tmp_path.iterdir()] == ["log"]  # no draft is left behind


def test_a_failure_at_the_very_end_leaves_the_old_folder_too(tmp_path: Path) -> None:
    path = write_log(tmp_path / "log", random_impressions(5))
    with pytest.raises(ValueError, match="JSON"):  # meta.json is the last to be written, and takes no NaN
        write_log(path, random_impressions(9), meta=Meta(provenance={"rate": float("nan")}))
    assert len(Dataset.open(path, verify=True)) == 5
    assert [entry.name for entry in tmp_path.iterdir()] == ["log"]


def test_a_finished_write_replaces_the_old_folder(tmp_path: Path) -> None:
    path = write_log(tmp_path / "log", random_impressions(5))
    opened = Dataset.open(path)
    write_log(path, random_impressions(8, seed=1))
    assert len(Dataset.open(path)) == 8
    assert len(opened.batch(opened.vocabulary())) == 5  # who had the old one open still reads it
    assert [entry.name for entry in tmp_path.iterdir()] == ["log"]


def test_a_folder_that_is_no_dataset_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(DataError, match="is not a dataset"), DatasetWriter(tmp_path):
        pass
    with pytest.raises(DataError, match="is not a (folder|dataset)"), DatasetWriter(tmp_path / "thesis.tex"):
        pass
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


DISK_FULL = """
    import resource, signal, sys
    import numpy as np, pyarrow as pa
    from exactk.data import DatasetWriter
    from exactk.errors import DataError
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))  # no file may grow beyond this: writes fail
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    rng = np.random.default_rng(0)
    try:
        with DatasetWriter(sys.argv[1]) as writer:
            writer.write_items(pa.table({"item_id": rng.integers(0, 1 << 62, 100_000)}))
            writer.write_users(pa.table({"user_id": [0]}))
    except DataError as error:
        sys.exit(f"refused: {error}")
"""


def test_a_disk_that_fills_up_leaves_the_old_folder_intact(tmp_path: Path) -> None:
    path = write_log(tmp_path / "log", random_impressions(5))
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(DISK_FULL), str(path)],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 1
    assert "refused" in done.stderr
    assert "what stood there is unchanged" in done.stderr
    assert len(Dataset.open(path, verify=True)) == 5
    assert [entry.name for entry in tmp_path.iterdir()] == ["log"]


def test_a_process_killed_while_writing_leaves_the_old_folder_intact(tmp_path: Path) -> None:
    path = write_log(tmp_path / "log", random_impressions(5))
    script = """
        import os, signal, sys
        import pyarrow as pa
        from exactk.data import DatasetWriter
        with DatasetWriter(sys.argv[1]) as writer:
            writer.write_items(pa.table({"item_id": ["x"]}))
            os.kill(os.getpid(), signal.SIGKILL)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script), str(path)], timeout=120)
    assert done.returncode == -9
    assert len(Dataset.open(path, verify=True)) == 5


@pytest.mark.parametrize("file", ["impressions.parquet", "items.parquet", "users.parquet"])
def test_a_single_flipped_byte_is_found_and_its_file_named(tmp_path: Path, file: str) -> None:
    path = write_log(tmp_path / "log", random_impressions(50))
    damaged = path / file
    content = bytearray(damaged.read_bytes())
    content[len(content) // 3] ^= 0x10
    damaged.write_bytes(content)
    with pytest.raises(DataError, match=file):
        Dataset.open(path)


def test_damage_after_the_first_opening_is_found_too(tmp_path: Path) -> None:
    path = write_log(tmp_path / "log", random_impressions(50))
    Dataset.open(path)
    content = bytearray((path / "impressions.parquet").read_bytes())
    content[40] ^= 0x01
    (path / "impressions.parquet").write_bytes(content)
    with pytest.raises(DataError, match=r"impressions\.parquet"):
        Dataset.open(path)


@pytest.mark.parametrize("keep", [0, 10, 1000])
def test_a_truncated_file_does_not_load(tmp_path: Path, keep: int) -> None:
    path = write_log(tmp_path / "log", random_impressions(50))
    content = (path / "impressions.parquet").read_bytes()
    (path / "impressions.parquet").write_bytes(content[:keep])
    with pytest.raises(DataError, match=r"impressions\.parquet is damaged"):
        Dataset.open(path)


def test_a_folder_without_meta_or_with_a_missing_file_does_not_load(tmp_path: Path) -> None:
    path = write_log(tmp_path / "log", random_impressions(5))
    shutil.copytree(path, tmp_path / "copy")
    (path / "items.parquet").unlink()
    with pytest.raises(DataError, match=r"items\.parquet is missing"):
        Dataset.open(path)
    (tmp_path / "copy" / "meta.json").unlink()
    with pytest.raises(DataError, match=r"no meta\.json"):
        Dataset.open(tmp_path / "copy")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        '{"format": 1, "surprise": 2}',
        '{"format": 99}',
        "[]",
        "[" * 100_000,
        '{"format": 1, "checksums": 5}',
        '{"format": 1, "checksums": {"items.parquet": {"bytes": 3}}}',
        '{"format": 1, "K": "four", "checksums": {}}',
    ],
)
def test_a_damaged_meta_is_refused(tmp_path: Path, text: str) -> None:
    path = write_log(tmp_path / "log", random_impressions(5))
    (path / "meta.json").write_text(text)
    with pytest.raises(DataError, match=r"meta\.json"):
        Dataset.open(path)


def test_a_damaged_index_is_refused_and_rebuilt_once_deleted(tmp_path: Path) -> None:
    dataset = random_log(tmp_path / "log")
    (array,) = dataset.path.glob(".index/*/candidates.bin")
    array.write_bytes(array.read_bytes()[:-4])
    with pytest.raises(DataError, match="delete"):
        Dataset.open(dataset.path)
    for text in ("[1]", '{"stamps": {}, "arrays": {}, "rolling": [], "values": {}}'):
        array.with_name("index.json").write_text(text)
        with pytest.raises(DataError, match="delete"):
            Dataset.open(dataset.path)
    shutil.rmtree(dataset.path / ".index")
    assert len(Dataset.open(dataset.path)) == len(dataset)


def test_a_read_only_folder_keeps_its_index_in_the_users_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_log(tmp_path / "log", random_impressions(9))
    (path / ".index").write_text("a file where the index would go, as a read-only folder would refuse it")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert len(Dataset.open(path)) == 9
    assert len(list((tmp_path / "cache" / "exactk").iterdir())) == 1


def test_an_extra_table_is_kept_under_a_checksum(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with DatasetWriter(path) as writer:
        writer.write_extra("ratings.parquet", pa.table({"stars": [5, 3]}))
    assert Dataset.open(path).extra("ratings.parquet")["stars"].to_pylist() == [5, 3]
    (path / "ratings.parquet").write_bytes(b"")
    with pytest.raises(DataError, match=r"ratings\.parquet"):
        Dataset.open(path)


def items_in_pieces(path: Path, *pieces: dict[str, list[Any]]) -> None:
    with DatasetWriter(path) as writer:
        for piece in pieces:
            writer.write_items(pa.table(piece))


def test_pieces_with_other_columns_or_types_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="rows from 1 have columns"):
        items_in_pieces(tmp_path / "log", {"item_id": [1], "title": ["one"]}, {"item_id": [2]})
    with pytest.raises(DataError, match="types"):
        items_in_pieces(tmp_path / "log", {"item_id": [1]}, {"item_id": ["two"]})
    with pytest.raises(DataError, match="'item_id' is missing"):
        items_in_pieces(tmp_path / "log", {"id": [1]})
    with pytest.raises(DataError, match="row 2, column 'item_id'"):
        items_in_pieces(tmp_path / "log", {"item_id": [1]}, {"item_id": [2, None]})
    assert not list(tmp_path.iterdir())


def test_swapping_works_without_the_kernels_help(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exactk.atomic._exchange", lambda first, second: False)
    for text in ("old", "new"):
        with atomic_folder(tmp_path / "folder") as draft:
            (draft / "file").write_text(text)
    assert (tmp_path / "folder" / "file").read_text() == "new"
    assert [entry.name for entry in tmp_path.iterdir()] == ["folder"]


@pytest.mark.parametrize(("name", "value"), [("candidates", "a"), ("card", 1)])
def test_a_column_of_no_lists_is_refused_by_name(tmp_path: Path, name: str, value: Any) -> None:
    table = pa.Table.from_pylist([{"request_id": 1, "user_id": 1, "candidates": [1, 2]} | {name: value}])
    with (
        pytest.raises(DataError, match=f"column '{name}' must hold lists"),
        DatasetWriter(tmp_path / "log") as w,
    ):
        w.write_impressions(table)
