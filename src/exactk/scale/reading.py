"""Requests of one part of a source, a bounded number at a time: rows of candidates, lists, or lines of JSON.

Knows the columns that a model reads, no model. Rows of one request stand together: those that stand on both sides of a
cut belong to the part in which the request begins.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from exactk.data.columns.vocabulary import Vocabulary
from exactk.data.folder import Folder
from exactk.data.logs.files import LINES, is_untyped, tables_of, with_partition
from exactk.data.logs.request_rows import AskedColumns, RequestReader, numbered
from exactk.data.logs.written import json_table
from exactk.data.requests import REQUEST_FIELDS, Request
from exactk.data.table import FILES
from exactk.errors import DataError, ExactKError, InputError, why_unreadable
from exactk.problem.row_files import json_line
from exactk.scale.plan import JobPart

AT_ONCE = 2048  # lines of requests that are in memory together
ROWS = 1 << 16  # of candidates
BLOCK = 1 << 16  # bytes looked through at a time for the line before a cut


class DamagedPartError(DataError):
    """The bytes of a part cannot be read; its cause says why."""


class ReadRequests(NamedTuple):
    """Some requests, the rows they begin at, their ids (None: it has none), and what is wrong with other rows.

    `refused`, of these, are whole requests, by the rows they begin at, with their ids.
    """

    requests: Sequence[Request]
    rows: Sequence[int]
    ids: Sequence[Any]
    reasons: dict[int, str]
    refused: dict[int, Any]


@dataclass
class PartReader:
    """Reads parts; tells which names of the source nobody reads, and which of the model's never came."""

    asked: AskedColumns
    mapping: Mapping[str, str] = field(default_factory=dict)
    candidates: tuple[Any, ...] | None = None
    unread: set[str] = field(default_factory=set)
    met: set[str] = field(default_factory=set)
    notes: dict[str, int] = field(default_factory=dict)

    def read(self, part: JobPart) -> Iterator[ReadRequests]:
        """All requests that begin in the part."""
        if part.file.endswith(LINES) and self._holds_requests(part):
            yield from self._lines(part)
            return
        reader = RequestReader(self.asked, part.file, self.mapping, is_untyped(part.file), self.candidates)
        dropped = 0
        for piece in reader.pieces(self._tables(part, reader)):
            requests, rows = piece.requests, piece.rows.tolist()
            named = "request_id" in requests.table.column_names
            ids = requests.request_ids if named else [None] * len(rows)
            faults = requests.faults()
            reasons = {rows[place]: reason for place, reason in faults.items()}
            refused = {rows[place]: ids[place] for place in faults}
            lost = reader.report.rows_dropped
            if lost > dropped:
                reasons |= _examples(reader)
                dropped = lost
            if reasons:
                sound = [place for place, row in enumerate(rows) if row not in reasons]
                requests = requests.take(sound)
                rows, ids = ([held[place] for place in sound] for held in (rows, ids))
            yield ReadRequests(requests, rows, ids, reasons, refused)
        if reader.report.rows_dropped > dropped:
            yield ReadRequests([], [], [], _examples(reader), {})
        self.unread |= set(reader.report.ignored)
        self.met |= reader.met
        for said, entry in reader.report.notes.items():
            self.notes[said] = self.notes.get(said, 0) + entry["rows"]

    @property
    def missing(self) -> tuple[str, ...]:
        """What only a request can say, the model reads and nobody sent."""
        return tuple(name for name in self.asked.wanted if name not in self.met)

    def _holds_requests(self, part: JobPart) -> bool:
        """Whether a line of JSON is a request; else it is a row: a candidate of one, or lists as the log had them."""
        with Path(part.file).open("rb") as file:
            first = next((line for line in file if line.strip()), b"{}")
        try:
            names = json.loads(first)
        except (ValueError, RecursionError):
            return True  # what is wrong with the line is said where it is read
        if not isinstance(names, dict):
            return True
        roles = self.asked.columns.roles
        item_id = self.mapping.get("item_id", roles.get("item_id", "item_id"))
        if {item_id, "item_id"} & names.keys() and "candidates" not in names:
            return False
        logged = {*self.asked.known, *roles.values()} - {
            *REQUEST_FIELDS,
            "request_id",
            *self.mapping.values(),
        }
        return not logged & names.keys()

    def _lines(self, part: JobPart) -> Iterator[ReadRequests]:
        """Requests as `Request.from_dict` takes them, under a `request_id`."""
        row = part.first_row
        with Path(part.file).open("rb") as file:
            file.seek(part.place)
            own = islice(file, part.num_rows)
            while block := list(islice(own, AT_ONCE)):
                read = ReadRequests([], [], [], {}, {})
                for line in block:
                    self._read_line(line, row, read, part.file)
                    row += 1
                yield read

    def _read_line(self, line: bytes, row: int, read: ReadRequests, file: str) -> None:
        if not line.strip():
            return
        try:
            written = json_line(line)
            if not isinstance(written, dict):
                raise InputError(f"expected an object, got {type(written).__name__}")
            for ours, theirs in self.mapping.items():
                if theirs in written:
                    written[ours] = written.pop(theirs)
            request_id = written.pop("request_id", None)
            if self.candidates is not None:
                written.setdefault("candidates", list(self.candidates))
            request = Request.from_dict(written, self.asked.card_size)
        except ExactKError as error:
            read.reasons[row] = str(error)
            return
        except (ValueError, RecursionError) as error:
            read.reasons[row] = why_unreadable(file, error)
            return
        self._note_names(request)
        read.requests.append(request)  # type: ignore[attr-defined]
        read.rows.append(row)  # type: ignore[attr-defined]
        read.ids.append(request_id)  # type: ignore[attr-defined]

    def _note_names(self, request: Request) -> None:
        known = self.asked.known
        for names in (request.context, *request.attributes.values()):
            self.met.update(names)
            self.unread.update(name for name in names if name not in known)

    def _tables(self, part: JobPart, reader: RequestReader) -> Iterator[tuple[int, pa.Table]]:
        try:
            if part.file.endswith(".parquet"):
                for row, table in _parquet_tables(part, reader):
                    yield row, with_partition(table, part.file)
            elif part.file.endswith(LINES):
                for row, table in _json_tables(part, reader):
                    yield row, with_partition(table, part.file)
            else:
                as_text = [
                    reader.spelled(name) for name in ("request_id", "user_id", "item_id", "candidates")
                ]
                yield from numbered(tables_of(part.file, as_text))
        except ExactKError:
            raise
        except (pa.ArrowException, OSError, ValueError, RecursionError) as error:
            raise DamagedPartError(
                f"{part.file} cannot be read: {why_unreadable(part.file, error)}"
            ) from error


def _examples(reader: RequestReader) -> dict[int, str]:
    """Rows that make no request, and why; of many alike the first few."""
    return {
        example["row"]: f"{reason} ({entry['rows']} rows)"
        for reason, entry in reader.report.dropped.items()
        for example in entry["examples"]
    }


def _parquet_tables(part: JobPart, reader: RequestReader) -> Iterator[tuple[int, pa.Table]]:
    """The part's row groups, less a request begun before them, with the rest of the one they break off in."""
    logged = _dataset_of(part)
    with pq.ParquetFile(part.file, pre_buffer=False) as file:
        groups = list(range(part.place, part.end)) if part.num_rows else list(range(file.num_row_groups))
        name = reader.row_id(file.schema_arrow.names)
        cut = _Cut(None)
        if name is not None and groups and groups[0] > 0:
            cut = _Cut(_last(file.read_row_group(groups[0] - 1, columns=[name])[name]))
        row = part.first_row
        for batch in file.iter_batches(ROWS if name else AT_ONCE, row_groups=groups):
            table = pa.Table.from_batches([batch])
            if logged is not None:
                table = logged.with_columns(table, row)
            yield from cut.after_start(table, name, row)
            row += len(table)
        for group in range(part.end, file.num_row_groups) if cut.breaks_off(name) else ():
            rest = file.read_row_group(group)
            same = _leading(rest[name], cut.last)
            yield row, rest.slice(0, same)
            row += same
            if same < len(rest):
                break


def _json_tables(part: JobPart, reader: RequestReader) -> Iterator[tuple[int, pa.Table]]:
    """The same of lines that are rows."""
    with Path(part.file).open("rb") as file:
        first = next(line for line in file if line.strip())
        name = reader.row_id(list(json.loads(first)))
        cut = _Cut(_id_before(file, part.place, name))
        file.seek(part.place)
        row, own = part.first_row, islice(file, part.num_rows)
        while block := list(islice(own, ROWS)):
            if any(line.strip() for line in block):
                yield from cut.after_start(json_table(b"".join(block)), name, row)
            row += len(block)
        if not cut.breaks_off(name):
            return
        rest: list[bytes] = []
        for line in file:
            if line.strip() and _id_of(line, name) != cut.last:
                break
            rest.append(line)
        if any(line.strip() for line in rest):
            yield row, json_table(b"".join(rest))


class _Cut:
    """What stands on both sides of a cut: the request before the part, and the last one of the part."""

    def __init__(self, before: Any) -> None:
        self._before, self.last = before, None

    def after_start(self, table: pa.Table, name: str | None, row: int) -> Iterator[tuple[int, pa.Table]]:
        """The table from the first request on that begins in it."""
        skipped = 0
        if name is not None and self._before is not None:
            skipped = _leading(table[name], self._before)
        if skipped < len(table):
            self._before = None
            self.last = None if name is None else _last(table[name])
            yield row + skipped, table.slice(skipped)

    def breaks_off(self, name: str | None) -> bool:
        """Whether a request of the part may go on behind its end."""
        return name is not None and self.last is not None


def _id_of(line: bytes, name: str | None) -> Any:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):  # said where the line is read
        return None
    return row.get(name) if isinstance(row, dict) else None


def _last(ids: Any) -> Any:
    return ids[len(ids) - 1].as_py() if len(ids) else None


def _leading(ids: Any, wanted: Any) -> int:
    """How many of the first ids are this one."""
    same = pc.fill_null(pc.equal(ids, pa.scalar(wanted, ids.type)), False)
    place = pc.index(same, False).as_py()
    return len(ids) if place < 0 else int(place)


def _id_before(file: BinaryIO, place: int, name: str | None) -> Any:
    """The id in the last line before a place in a file; None where there is none."""
    held, start = b"", place
    while name is not None and start > 0:
        start = max(0, start - BLOCK)
        file.seek(start)
        held = file.read(place - start)
        lines = [line for line in held.split(b"\n") if line.strip()]
        if len(lines) > 1 or (lines and start == 0):
            return _id_of(lines[-1], name)
    return None


def _dataset_of(part: JobPart) -> Folder | None:
    """The dataset folder whose impressions are read: what it knows of candidates stands in files beside them."""
    place = Path(part.file)
    if place.name != FILES["impressions"] or not (place.parent / "meta.json").is_file():
        return None
    return Folder(place.parent)


def plain_candidates(path: Path, model: Path) -> tuple[Any, ...]:
    """Item ids of a file, one a line, in the type of the model's own."""
    if not path.is_file():
        raise DataError(f"{path}: there is no such file")
    try:
        names = [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: {why_unreadable(path, error)}") from error
    if not pa.types.is_integer(Vocabulary.load(model).item_ids.type):
        return tuple(names)
    wrong = next((name for name in names if not name.lstrip("-").isdigit()), None)
    if wrong is not None:
        raise DataError(f"{path}: the model's item ids are whole numbers, got {wrong!r}")
    return tuple(int(name) for name in names)
