"""Files of a caller's own making, read a piece at a time: Parquet, CSV, JSON lines, as they are or compressed.

Knows no columns and no meaning.
"""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from exactk.data.logs.written import (
    has_decimal_commas,
    json_table,
    numbers_with_commas,
    objects_of,
    seem_values,
)
from exactk.data.table import combine, flatten, is_list, is_text, lists_of, replaced
from exactk.errors import DataError, InputError, why_unreadable

CELLS, LINES = (".csv", ".tsv"), (".jsonl", ".ndjson")
ENDINGS = (".parquet", *CELLS, *LINES)
PACKED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}  # after the ending of a file of text
KNOWN_ENDINGS = f"{', '.join(ENDINGS)}; text may be compressed ({', '.join(PACKED)})"
# As databases, spreadsheets and Python write that nothing is known; "NA" may be a country.
_MISSING = ["", "\\N", "NULL", "null", "None", "NaN", "nan", "N/A", "#N/A", "<NA>"]
_WIDE = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
ROWS = 1 << 16  # of a piece of Parquet
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
BYTES = 1 << 25  # of a piece of text
HEAD = 1 << 20  # bytes looked at before a file is read
_QUOTED = re.compile(rb'"([^"]|"")*"')


def tables_of(source: Any, text: Iterable[str] = ()) -> Iterator[pa.Table]:
    """Pieces of a file (by its ending), or a whole pandas, polars or Arrow frame.

    The cells of a CSV file have no types: they are guessed, but for the columns in `text`.
    """
    if isinstance(source, str | Path):
        yield from map(spread, _file_pieces(Path(source), frozenset(text)))
    else:
        yield spread(arrow_table(source))


def beginning(source: Any, text: Iterable[str] = ()) -> pa.Table:
    """The first rows of a frame or file; of several files, of the first and the last.

    Logs are sorted: what the one says of all its rows, as its day or its market, the other says otherwise.
    """
    files = source if isinstance(source, tuple) else (source,)
    tables = [next(iter(tables_of(file, text))) for file in files[:1] + files[1:][-1:]]
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException:
        return tables[0]  # what is wrong with the last file is said when it is read


def is_untyped(source: Any) -> bool:
    """Whether the cells of a source do not say what is text and what is a number: those of CSV files."""
    return isinstance(source, str | Path) and ending_of(source) in CELLS


def ending_of(file: Path | str) -> str:
    """What a file holds: .csv of shop.csv and of shop.csv.gz."""
    path = Path(file)
    inner = Path(path.stem).suffix.lower() if path.suffix.lower() in PACKED else ""
    return inner if inner in CELLS + LINES else path.suffix.lower()


def _file_pieces(path: Path, text: frozenset[str]) -> Iterator[pa.Table]:
    if not path.is_file():
        raise DataError(f"{path} is missing")
    ending = ending_of(path)
    readers = dict(zip(ENDINGS, (_parquet, _csv, _csv, _json_lines, _json_lines), strict=True))
    if ending not in readers:
        raise InputError(f"{path}: known endings are {KNOWN_ENDINGS}")
    names: list[str] | None = None
    try:
        for table in readers[ending](path, text):
            names = table.column_names  # names that are no text are met here
            refuse_twins(names, str(path))
            yield with_partition(table, path)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read as {ending[1:]}: {_why(path, error)}") from error
    if names is None:
        raise DataError(f"{path} holds no rows")


def _why(path: Path, error: Exception) -> str:
    if "columns, got" in str(error):
        return f"{error}; columns are parted by commas, semicolons, tabs or bars, the same in every line"
    return str(error) if path.suffix.lower() in PACKED else why_unreadable(path, error)


def spread(table: pa.Table, ids: Sequence[str] = ("item_id",)) -> pa.Table:
    """Objects as columns, those in lists as lists side by side: {"device": ...} and [{"price": ...}, ...].

    A field keeps its name; where that is taken, or says no more than id, the object's comes before it, as in user.id.
    Those of a list's objects that are `ids` are called as the list was.
    """
    table = _with_objects(_usual_types(table))
    while any(_is_object(one.type) for one in table.schema):
        taken = {one.name for one in table.schema if not _is_object(one.type)}
        columns: dict[str, Any] = {}
        for name, column in zip(table.column_names, table.columns, strict=True):
            if not _is_object(column.type):
                columns[name] = column
                continue
            for field, held in _fields(column):
                ours = name if is_list(column.type) and field in ids else field
                ours = f"{name}.{ours}" if field.lower() == "id" else ours
                while ours in taken:
                    ours = f"{name}.{ours}"
                taken.add(ours)
                columns[ours] = held
        table = pa.table(columns)
    return table


def _with_objects(table: pa.Table) -> pa.Table:
    """Texts that are objects, or lists of such, as objects: what was JSON, or Python's, in a cell."""
    for column in table.schema:
        if is_text(column.type) and (read := objects_of(combine(table[column.name]))) is not None:
            table = replaced(table, column.name, read)
    return table


def _fields(column: pa.ChunkedArray) -> Iterator[tuple[str, pa.Array]]:
    """The fields of objects, or of objects in lists."""
    objects = combine(column)
    values, sizes = flatten(objects) if is_list(objects.type) else (objects, None)
    for field, held in zip(values.type, values.flatten(), strict=True):
        yield field.name, held if sizes is None else lists_of(sizes, held, objects)


def _usual_types(table: pa.Table) -> pa.Table:
    """Universal ids, views of texts and texts written as bytes as texts, decimals and half floats as numbers, other
    extensions as what they are made of.
    """
    for place, column in enumerate(table.schema):
        usual = _usual(table[place], column.type)
        if usual is not None:
            table = table.set_column(place, column.name, usual)
    return table


def _usual(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray | pa.Array | None:
    """A column in a usual type; None where it is, or nobody knows of one."""
    if pa.types.is_dictionary(kind) and isinstance(kind.value_type, pa.BaseExtensionType):
        return pa.chunked_array([part.dictionary.storage.take(part.indices) for part in column.chunks])
    if isinstance(kind, pa.UuidType):
        return pa.array([None if one is None else str(one) for one in column.to_pylist()], pa.string())
    if isinstance(kind, pa.BaseExtensionType):
        return pa.chunked_array([part.storage for part in column.chunks], kind.storage_type)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        with suppress(pa.ArrowInvalid):  # what is no UTF-8 is left as it is, and nobody reads it
            return column.cast(pa.string())
    if pa.types.is_string_view(kind):
        return column.cast(pa.string())
    if pa.types.is_float16(kind):  # which Arrow compares with nothing
        return column.cast(pa.float32())
    if pa.types.is_decimal(kind):
        with suppress(pa.ArrowInvalid):  # NUMBER of a database may hold ids
            return column.cast(pa.int64())
        return column.cast(pa.float64())
    return None


def _is_object(kind: pa.DataType) -> bool:
    return bool(pa.types.is_struct(kind.value_type if is_list(kind) else kind))


def with_partition(table: pa.Table, path: Path | str) -> pa.Table:
    """What the folders above a file say of all its rows, as in day=2026-03-01/part-0.parquet."""
    for folder in Path(path).parent.parts:
        name, equals, value = folder.partition("=")
        if equals and name.isidentifier() and name not in table.column_names:
            said = None if value == _NO_VALUE else unquote(value)
            table = table.append_column(name, pa.array([said] * len(table), pa.string()))
    return table


def refuse_twins(names: Sequence[str], where: str) -> None:
    """Refuse a table that names a column twice: one of the two would be lost."""
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise DataError(f"{where}: there are {names.count(twice)} columns {twice!r}; rename or drop one")


def _parquet(path: Path, _: frozenset[str]) -> Iterator[pa.Table]:
    with pq.ParquetFile(path, pre_buffer=False) as file:  # it would keep what it read until the end
        for batch in file.iter_batches(ROWS):
            yield pa.Table.from_batches([batch])
        if not file.metadata.num_rows:
            yield file.schema_arrow.empty_table()


def _csv(path: Path, text: frozenset[str]) -> Iterator[pa.Table]:
    delimiter, quoted = _delimiter_and_quotes(path)
    commas: list[str] | None = None
    with pacsv.open_csv(
        _bytes_of(path),
        read_options=pacsv.ReadOptions(block_size=BYTES),
        parse_options=pacsv.ParseOptions(
            delimiter=delimiter, quote_char='"' if quoted else False, newlines_in_values=quoted
        ),
        convert_options=pacsv.ConvertOptions(
            column_types=dict.fromkeys(text, pa.string()),
            null_values=_MISSING, strings_can_be_null=True, quoted_strings_can_be_null=False,
        ),
    ) as reader:  # fmt: skip
        for batch in reader:
            table = pa.Table.from_batches([batch])
            if commas is None:
                commas = _first_look(table, path, text if delimiter != "," else None)
            for name in commas:
                read = numbers_with_commas(combine(table[name]))
                table = table if read is None else replaced(table, name, read)
            yield table


def _first_look(table: pa.Table, path: Path, text: frozenset[str] | None) -> list[str]:
    """Refuse what does not read as it is; the columns that have decimal commas, none where cells are parted by such."""
    value = seem_values(table.column_names, table.columns)
    if value is not None:
        raise DataError(
            f"{path}: the first line must name the columns, but {value[:60]!r} is a value; add a line of names"
        )
    columns = list(zip(table.column_names, table.columns, strict=True))
    for name, column in columns:
        if pa.types.is_binary(column.type):
            raise DataError(f"{path}: column {name!r}: this is not UTF-8 text; save it as UTF-8")
    return [
        name for name, column in columns
        if text is not None and name not in text and has_decimal_commas(combine(column))
    ]  # fmt: skip


def _bytes_of(path: Path) -> pa.NativeFile:
    """A file of text as UTF-8: unpacked by its ending, UTF-16 (as Excel writes it) by its first bytes."""
    packed = PACKED.get(path.suffix.lower())
    with pa.input_stream(str(path), compression=packed) as file:
        wide = file.read(2) in _WIDE
    file = pa.input_stream(str(path), compression=packed)
    return pa.transcoding_input_stream(file, "utf-16", "utf-8") if wide else file


def _delimiter_and_quotes(path: Path) -> tuple[str, bool]:
    """Tabs in .tsv; in .csv commas, unless the names in the first line are parted by semicolons, tabs or bars alone.

    And whether quotes hold cells together: not between tabs, where a cell may begin with a quote that never ends.
    """
    with open_text(path) as file:
        lines = file.read(HEAD).splitlines()
    first = lines[0] if lines else b""
    if ending_of(path) != ".tsv":
        delimiter = next((one for one in ",;\t|" if one.encode() in first), ",")
        if delimiter != "\t":
            return delimiter, True
    cells = [line.split(b"\t") for line in lines[:-1] or lines if line]  # the last one may be cut
    even = all(len(line) == len(cells[0]) for line in cells)
    loose = any(cell[:1] == b'"' and not _QUOTED.fullmatch(cell) for line in cells for cell in line)
    return "\t", not (even and loose)


def open_text(path: Path) -> io.BufferedReader:
    """A file of text, to be read by lines."""
    return io.BufferedReader(_bytes_of(path))


def _json_lines(path: Path, _: frozenset[str]) -> Iterator[pa.Table]:
    """Whole lines of about `BYTES` bytes at a time."""
    known: pa.Schema | None = None
    with open_text(path) as file:
        while lines := file.readlines(BYTES):
            block = b"".join(lines)
            if block.strip():
                table = json_table(block)
                for one in known or ():  # a block may lack what is seldom said
                    if one.name not in table.column_names:
                        table = table.append_column(one, pa.nulls(len(table), one.type))
                known = table.schema
                yield table


def is_frame(value: Any) -> bool:
    """Whether narwhals takes it for a pandas, polars or Arrow frame, eager or lazy."""
    if isinstance(value, Sequence | np.ndarray):
        return False
    import narwhals as nw  # here and below: a service, which is asked for no frames, must not hold it

    try:
        return isinstance(nw.from_native(value, pass_through=True), nw.DataFrame | nw.LazyFrame)
    except nw.exceptions.DuplicateError:  # refused, by its name, where the frame is read
        return True


def frame_columns(frame: Any) -> list[str]:
    """The names of its columns."""
    return list(_known(frame).collect_schema().names())


def arrow_table(frame: Any) -> pa.Table:
    """Any eager or lazy frame narwhals knows, as an Arrow table."""
    import narwhals as nw

    known = _known(frame)
    try:
        eager = known.collect() if isinstance(known, nw.LazyFrame) else known
        table: pa.Table = eager.to_arrow().replace_schema_metadata(None)
        refuse_twins(table.column_names, "the frame")
        return table
    except (pa.ArrowException, OverflowError, TypeError) as error:
        what = "a column of mixed types, or of a type that Arrow lacks"
        raise DataError(f"the frame has {what}: {error}") from error


def _known(frame: Any) -> Any:
    """The frame as narwhals holds it."""
    import narwhals as nw

    try:
        return nw.from_native(frame)
    except nw.exceptions.DuplicateError as error:
        twice = str(error).rpartition("- ")[2]
        raise DataError(f"the frame has a column more than once: {twice}; rename or drop one") from None
    except (TypeError, UnicodeDecodeError) as error:
        kind = type(frame).__name__
        raise InputError(f"a pandas, polars or Arrow frame, or a path, is needed, got {kind}") from error
