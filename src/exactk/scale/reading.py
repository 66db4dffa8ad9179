"""Rows of one part of a source, a bounded number at a time: tables of Parquet, lines of JSON.

Knows no model.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from exactk.data.requests import Request
from exactk.errors import DataError, ExactKError, InputError
from exactk.scale.plan import JobPart

AT_ONCE = 2048  # rows that are in memory together
FIELDS = ("request_id", "user_id", "candidates", "k")


class Lines(NamedTuple):
    """Requests written as JSON lines, the rows they stand in, their ids, and what is wrong with other rows."""

    requests: list[Request]
    rows: list[int]
    ids: list[str | None]
    reasons: dict[int, str]


def tables(part: JobPart, columns: Mapping[str, str]) -> Iterator[tuple[int, pa.Table]]:
    """The columns that matter under our names, with the row each piece begins at."""
    first_row = part.first_row
    with pq.ParquetFile(part.file) as file:
        wanted = {columns.get(ours, ours): ours for ours in FIELDS}
        held = [name for name in file.schema_arrow.names if name in wanted]
        for ours, theirs in columns.items():
            if theirs not in held:
                raise DataError(f"{part.file}: there is no column '{theirs}' to be read as '{ours}'")
        groups = list(range(part.place, part.end)) if part.num_rows else None
        for batch in file.iter_batches(AT_ONCE, row_groups=groups, columns=held):
            table = pa.Table.from_batches([batch])
            yield first_row, table.rename_columns([wanted[name] for name in table.column_names])
            first_row += len(table)


def lines(
    part: JobPart, columns: Mapping[str, str], card_size: int, candidates: tuple[Any, ...] | None
) -> Iterator[Lines]:
    """Requests as `exactk recommend` takes them."""
    row = part.first_row
    with Path(part.file).open("rb") as file:
        file.seek(part.place)
        own = islice(file, part.num_rows)
        while block := list(islice(own, AT_ONCE)):
            read = Lines([], [], [], {})
            for line in block:
                _read_line(line, row, read, columns, card_size, candidates)
                row += 1
            yield read


def _read_line(
    line: bytes, row: int, read: Lines, columns: Mapping[str, str], k: int, candidates: tuple[Any, ...] | None
) -> None:
    try:
        written = json.loads(line)
        if not isinstance(written, dict):
            raise InputError(f"expected an object, got {type(written).__name__}")
        for ours, theirs in columns.items():
            if theirs in written:
                written[ours] = written.pop(theirs)
        request_id = written.pop("request_id", None)
        if candidates is not None:
            written.setdefault("candidates", list(candidates))
        request = Request.from_dict(written, k)
    except (ValueError, ExactKError) as error:
        read.reasons[row] = str(error)
        return
    read.requests.append(request)
    read.rows.append(row)
    read.ids.append(None if request_id is None else str(request_id))
