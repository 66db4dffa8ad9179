"""A long job as parts that are done or not done: which rows of which file, and what was made of each.

Knows no model and no Ray. A part is finished when its file is there; it appears whole or not at all.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from exactk.atomic import atomic_file, check_place, write_text
from exactk.data.logs.files import ENDINGS, KNOWN_ENDINGS, LINES, ending_of, open_text
from exactk.errors import ConfigError, DataError, InputError

PLAN = "plan.json"


@dataclass(frozen=True)
class JobPart:
    """Rows first_row .. first_row + num_rows - 1 of one file; `place` and `end` are row groups, or bytes of text."""

    number: int
    file: str
    first_row: int
    num_rows: int
    place: int
    end: int

    @property
    def name(self) -> str:
        """The file its result is kept in."""
        return f"part-{self.number:06d}.parquet"


@dataclass(frozen=True)
class Plan:
    """All parts of a job, and what it is about: resuming a plan that is about something else is refused."""

    about: dict[str, Any]
    parts: tuple[JobPart, ...]

    @property
    def num_rows(self) -> int:
        """Rows of all parts."""
        return sum(part.num_rows for part in self.parts)

    def kept_in(self, folder: Path) -> Plan:
        """This plan, noted in the folder; or an error where the folder holds the work of another."""
        check_place(folder, "folder", folder.is_dir())
        path = folder / PLAN
        if path.is_file():
            try:
                before = json.loads(path.read_text(encoding="utf-8"))
            except ValueError as error:
                raise DataError(f"{path} is damaged: {error}; choose another folder") from error
            if any(name != PLAN and not name.startswith(".") for name in os.listdir(folder)):
                _refuse_other(folder, before, json.loads(json.dumps(self.to_dict())))
                return self
            path.unlink()  # a plan of which nothing was made binds nobody: a mended call may follow one that failed
        if folder.is_dir() and any(folder.iterdir()):
            raise DataError(f"{folder} is not empty and holds no {PLAN}; choose another folder")
        folder.mkdir(parents=True, exist_ok=True)
        write_text(path, json.dumps(self.to_dict(), indent=1, ensure_ascii=False) + "\n")
        return self

    def open_parts(self, folder: Path) -> tuple[JobPart, ...]:
        """The parts whose result is not there yet."""
        there = {entry.name for entry in os.scandir(folder)}
        return tuple(part for part in self.parts if part.name not in there)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        return {"about": self.about, "parts": [asdict(part) for part in self.parts]}


def _refuse_other(folder: Path, before: dict[str, Any], now: dict[str, Any]) -> None:
    for name in sorted({*before.get("about", {}), *now["about"]} - {"files"}):
        was, is_now = before.get("about", {}).get(name), now["about"].get(name)
        if was != is_now:
            raise ConfigError(
                f"{folder} holds the work of another job: its {name} was {was!r}, now it is {is_now!r}; "
                "resume with the same, or choose another folder"
            )
    if before != now:
        raise ConfigError(f"{folder} cannot be resumed: the files it was made from have changed since")


def files_of(source: Path) -> tuple[Path, ...]:
    """The files of a source, in order of their names: a file, or the files below a folder that have known endings."""
    if source.is_file():
        files = [source]
    elif source.is_dir():
        files = sorted(f for f in source.rglob("*") if ending_of(f) in ENDINGS and f.is_file())
    else:
        raise DataError(f"{source}: there is no such file or folder")
    for file in files:
        if ending_of(file) not in ENDINGS:
            raise DataError(f"{file}: known endings are {KNOWN_ENDINGS}")
    if not files:
        raise DataError(f"{source} holds no file of a known ending: {KNOWN_ENDINGS}")
    return tuple(files)


def refuse_inside(out: Path, source: Path) -> None:
    """What is made among the files that are read would be read by the next call."""
    if source.is_dir() and out.resolve().is_relative_to(source.resolve()):
        raise InputError(f"{out} is in the folder that is read ({source}); choose a folder outside it")


def parts_of(files: Sequence[Path], rows: int) -> tuple[JobPart, ...]:
    """The files cut into parts of about `rows` rows, never across files; never cut are row groups of Parquet, CSV files
    and compressed ones.

    A Parquet file whose end is damaged, so that nobody knows its row groups, is one part of unknown size (0 rows).
    """
    parts: list[JobPart] = []
    for file in files:
        ending = file.suffix.lower()
        cuts = _parquet_cuts if ending == ".parquet" else _text_cuts
        cut = cuts(file, rows) if ending in (".parquet", *LINES) else [_whole(file)]
        for first_row, num_rows, place, end in cut:
            parts.append(JobPart(len(parts), str(file), first_row, num_rows, place, end))
    return tuple(parts)


def _parquet_cuts(file: Path, rows: int) -> Iterator[tuple[int, int, int, int]]:
    try:
        metadata = pq.read_metadata(file)
    except (pa.ArrowException, OSError):
        yield 0, 0, 0, 0
        return
    sizes = [metadata.row_group(g).num_rows for g in range(metadata.num_row_groups)]
    first_row = group = 0
    while group < len(sizes):
        end, taken = group, 0
        while end < len(sizes) and (taken == 0 or taken + sizes[end] <= rows):
            taken, end = taken + sizes[end], end + 1
        if taken:
            yield first_row, taken, group, end
        first_row, group = first_row + taken, end


def _whole(file: Path) -> tuple[int, int, int, int]:
    """A file whose first line names its columns is not cut, nor is one whose bytes are no lines."""
    with open_text(file) as lines:
        count = sum(block.count(b"\n") for block in iter(lambda: lines.read(1 << 20), b""))
    return 0, max(1, count - 1), 0, file.stat().st_size


def _text_cuts(file: Path, rows: int) -> Iterator[tuple[int, int, int, int]]:
    first_row = place = end = count = 0
    with file.open("rb") as lines:
        for line in lines:
            end, count = end + len(line), count + 1
            if count == rows:
                yield first_row, count, place, end
                first_row, place, count = first_row + count, end, 0
    if count:
        yield first_row, count, place, end


def fingerprint(files: Sequence[Path]) -> str:
    """Changes when a file is replaced, grows or shrinks; reads none of them."""
    digest = hashlib.sha256()
    for file in files:
        state = file.stat()
        digest.update(f"{file.name}\0{state.st_size}\0{state.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]


@contextmanager
def finished_parquet(path: Path, facts: Callable[[], str]) -> Iterator[Callable[[pa.Table], None]]:
    """Yield a function that appends to a file which appears at the end of the block, `facts()` in its metadata.

    Two processes that make the same part leave one of two equal files.
    """
    writer: pq.ParquetWriter | None = None

    with atomic_file(path) as draft:

        def write(table: pa.Table) -> None:
            nonlocal writer
            if writer is None:
                writer = pq.ParquetWriter(draft, table.schema, compression="zstd", write_page_checksum=True)
            try:
                writer.write_table(table.select(writer.schema.names).cast(writer.schema))
            except (KeyError, pa.ArrowInvalid) as error:
                raise DataError(f"its columns change from one row to the next: {error}") from error

        yield write
        if writer is None:
            write(pa.table({}))
        assert writer is not None
        writer.add_key_value_metadata({"exactk": facts()})
        writer.close()


def facts_in(path: Path) -> dict[str, Any]:
    """What `finished_parquet` was told of a file."""
    facts: dict[str, Any] = json.loads((pq.read_metadata(path).metadata or {})[b"exactk"])
    return facts
