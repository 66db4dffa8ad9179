"""Rows of CSV, JSON lines and Parquet files, one after the other, each with the place it was read from.

Knows no requests. A file that is not what its ending says is refused with what it seems to be.
"""

from __future__ import annotations

import json
import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from exactk.errors import DataError, InputError, why_unreadable

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_PER_READ = 65_536
IDS = ("request_id", "item_id")
WHOLE = re.compile(r"(0|-?[1-9]\d{0,17})(\.0)?", re.ASCII)  # as numbers are written, and within 64 bits

Row = tuple[str, Mapping[str, Any]]
Progress = Callable[[int], None]


def scored_rows(path: Path, progress: Progress = lambda _: None, text_ids: bool = False) -> Iterator[Row]:
    """The rows of a file with their places; `progress` is called with how many bytes have been read.

    Parquet and JSON lines say what is text and what is a number, and are believed. In CSV the ids are whole numbers
    if all of them are written as such (42 or 42.0, not 042), else text; `text_ids` makes ids text in every file.
    """
    readers = {".csv": _csv_rows, ".parquet": _parquet_rows, ".jsonl": _json_rows, ".ndjson": _json_rows}
    if path.is_dir():
        raise InputError(f"{path} is a folder; name a file in it")
    if path.suffix not in readers:
        raise InputError(
            f"{path}: cannot read {path.suffix or 'a file without suffix'}; use {', '.join(readers)}"
        )
    if not path.is_file():
        raise DataError(f"{path}: there is no such file")
    try:
        for where, row in readers[path.suffix](path, progress, text_ids):
            yield where, _as_text(where, row) if text_ids else row
    except (UnicodeDecodeError, OSError) as error:
        raise DataError(f"{path}: {why_unreadable(path, error)}") from None


def _as_text(where: str, row: Mapping[str, Any]) -> Mapping[str, Any]:
    """The same row, its ids as text; those of `items`, `include`, `exclude` and `pair_scores` likewise."""
    held = dict(row)
    for name in IDS:
        if held.get(name) is not None:
            held[name] = _text(where, name, held[name])
    if isinstance(held.get("items"), list):
        held["items"] = [_as_text(where, one) if isinstance(one, dict) else one for one in held["items"]]
    for name in ("include", "exclude"):
        if isinstance(held.get(name), list):
            held[name] = [_text(where, name, one) for one in held[name]]
    if isinstance(held.get("pair_scores"), list):
        held["pair_scores"] = [
            [*(_text(where, "pair_scores", one) for one in entry[:2]), *entry[2:]]
            if isinstance(entry, list)
            else entry
            for entry in held["pair_scores"]
        ]
    return held


def _text(where: str, name: str, value: Any) -> str:
    if isinstance(value, float | list | dict):
        raise DataError(f"{where}: {name} {value!r:.80} cannot be read as the text of an id")
    return str(value)


def _csv_rows(path: Path, progress: Progress, text_ids: bool) -> Iterator[Row]:
    import pyarrow as pa
    from pyarrow import csv

    _refuse_twins(f"{path}, line 1", _header(path))
    options = csv.ConvertOptions(column_types=dict.fromkeys(IDS, pa.string()))
    numbers = dict.fromkeys(IDS, False) if text_ids else {}
    try:
        with path.open("rb") as raw, csv.open_csv(raw, convert_options=options) as reader:
            line = 1  # the header
            for batch in reader:
                progress(raw.tell())
                columns = {name: batch.column(name).to_pylist() for name in batch.schema.names}
                for name in IDS:
                    if name in columns:
                        columns[name] = _ids(path, line, name, columns[name], numbers)
                for row in zip(*columns.values(), strict=True):
                    line += 1
                    yield f"{path}, line {line}", dict(zip(columns, row, strict=True))
    except pa.ArrowException as error:
        raise DataError(f"{path}: {why_unreadable(path, error)}") from None


def _header(path: Path) -> list[str]:
    """The names in the first line of a CSV file."""
    import csv

    if path.is_file() and path.stat().st_size == 0:
        raise DataError(f"{path}: the file is empty")
    with path.open(encoding="utf-8-sig", newline="") as text:
        try:
            return next(csv.reader(text), [])
        except csv.Error as error:
            raise DataError(f"{path}, line 1: {error}") from None


def _refuse_twins(where: str, names: Sequence[str]) -> None:
    """Refuse names of columns, or of an object, that come twice: one of the two would be lost."""
    for name in names:
        if names.count(name) > 1:
            raise DataError(f"{where}: there are {names.count(name)} columns {name!r}; rename or drop one")


def _ids(path: Path, line: int, name: str, read: list[str | None], numbers: dict[str, bool]) -> list[Any]:
    """Ids of a block as numbers or text, decided by the first block; one that fits neither is refused."""
    values = [value or None for value in read]
    whole = [value is None or WHOLE.fullmatch(value) is not None for value in values]
    if not numbers.setdefault(name, all(whole)):
        return values
    if not all(whole):
        bad = whole.index(False)
        raise DataError(
            f"{path}, line {line + 1 + bad}: {name} {values[bad]!r:.80} is not a whole number, as all before it were; "
            "read ids as text (text_ids=True)"
        )
    return [None if value is None else int(value.removesuffix(".0")) for value in values]


def _parquet_rows(path: Path, progress: Progress, _: bool) -> Iterator[Row]:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        with path.open("rb") as raw, parquet.ParquetFile(raw) as table:
            _refuse_twins(str(path), table.schema_arrow.names)
            number = 0
            for batch in table.iter_batches(ROWS_PER_READ):
                progress(raw.tell())
                for row in _plain_values(batch).to_pylist():
                    number += 1
                    yield f"{path}, row {number}", row
    except (pa.ArrowException, ValueError) as error:
        raise DataError(f"{path}: {why_unreadable(path, error)}") from None


def _plain_values(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Texts written as bytes as texts, decimals as numbers, as databases export them."""
    import pyarrow as pa

    for place, column in enumerate(batch.schema):
        if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
            batch = batch.set_column(place, column.name, batch[place].cast(pa.string()))
        elif pa.types.is_decimal(column.type):
            with suppress(pa.ArrowInvalid):
                number = pa.int64() if column.name in IDS else pa.float64()
                batch = batch.set_column(place, column.name, batch[place].cast(number))
    return batch


def _json_rows(path: Path, progress: Progress, _: bool) -> Iterator[Row]:
    read = 0
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            read += len(line)
            if number % 256 == 0:
                progress(read)
            if not line.strip():
                continue
            where = f"{path}, line {number}"
            try:
                row = json_line(line.removeprefix(BOM_UTF8) if number == 1 else line)
            except UnicodeDecodeError:
                raise
            except (ValueError, RecursionError) as error:
                raise DataError(f"{where}: not JSON: {why_unreadable(path, error)}") from None
            if not isinstance(row, dict):
                raise DataError(f"{where}: expected an object, got {type(row).__name__}")
            yield where, row


def json_line(line: bytes) -> Any:
    """What a line of JSON says. Refused: a name that an object says twice, and half of a character, which could be
    written nowhere.
    """
    held = json.loads(line.decode(), object_pairs_hook=_once)
    if b"\\ud" in line.lower():  # halves of characters, of which two make one
        try:
            json.dumps(held, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"{error.object[error.start]!r} is half of a character") from None
    return held


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON; a name that it says twice would lose one of its values."""
    held = dict(pairs)
    if len(held) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(
            f"there are {max(map(names.count, names))} values of {max(names, key=names.count)!r}"
        )
    return held
