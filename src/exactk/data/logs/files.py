"""Files of a caller's own making, read a piece at a time: Parquet, CSV, JSON lines.

Knows no columns and no meaning.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.json as pajson
import pyarrow.parquet as pq

from exactk.data.table import combine, flatten, is_list, lists_of
from exactk.errors import DataError, InputError, why_unreadable

ENDINGS = (".parquet", ".csv", ".tsv", ".jsonl", ".ndjson")
ROWS = 1 << 16  # of a piece of Parquet
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
BYTES = 1 << 25  # of a piece of text


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
    return isinstance(source, str | Path) and Path(source).suffix.lower() in (".csv", ".tsv")


def _file_pieces(path: Path, text: frozenset[str]) -> Iterator[pa.Table]:
    if not path.is_file():
        raise DataError(f"{path} is missing")
    ending = path.suffix.lower()
    readers = dict(zip(ENDINGS, (_parquet, _csv, _csv, _json_lines, _json_lines), strict=True))
    if ending not in readers:
        raise InputError(f"{path}: known endings are {', '.join(readers)}")
    names: list[str] | None = None
    try:
        for table in readers[ending](path, text):
            names = table.column_names  # names that are no text are met here
            refuse_twins(names, str(path))
            yield with_partition(table, path)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} does not read as {ending[1:]}: {why_unreadable(path, error)}") from error
    if names is None:
        raise DataError(f"{path} holds no rows")


def spread(table: pa.Table, ids: Sequence[str] = ("item_id",)) -> pa.Table:
    """Objects as columns, those in lists as lists side by side: {"device": ...} and [{"price": ...}, ...].

    A field keeps its name; where that is taken, or says no more than id, the object's comes before it, as in user.id.
    Those of a list's objects that are `ids` are called as the list was.
    """
    table = _usual_types(table)
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


def _fields(column: pa.ChunkedArray) -> Iterator[tuple[str, pa.Array]]:
    """The fields of objects, or of objects in lists."""
    objects = combine(column)
    values, sizes = flatten(objects) if is_list(objects.type) else (objects, None)
    for field, held in zip(values.type, values.flatten(), strict=True):
        yield field.name, held if sizes is None else lists_of(sizes, held, objects)


def _usual_types(table: pa.Table) -> pa.Table:
    """Universal ids, views of texts and texts written as bytes as texts, half floats as floats, other extensions as
    what they are made of.
    """
    for place, column in enumerate(table.schema):
        if isinstance(column.type, pa.UuidType):
            texts = [None if one is None else str(one) for one in table[place].to_pylist()]
            table = table.set_column(place, column.name, pa.array(texts, pa.string()))
        elif isinstance(column.type, pa.BaseExtensionType):
            stored = [chunk.storage for chunk in table[place].chunks]
            table = table.set_column(place, column.name, pa.chunked_array(stored, column.type.storage_type))
        elif pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
            with suppress(pa.ArrowInvalid):  # what is no UTF-8 is left as it is, and nobody reads it
                table = table.set_column(place, column.name, table[place].cast(pa.string()))
        elif pa.types.is_string_view(column.type):
            table = table.set_column(place, column.name, table[place].cast(pa.string()))
        elif pa.types.is_float16(column.type):  # which Arrow compares with nothing
            table = table.set_column(place, column.name, table[place].cast(pa.float32()))
    return table


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
    delimiter = _delimiter(path)
    with pacsv.open_csv(
        path,
        read_options=pacsv.ReadOptions(block_size=BYTES),
        parse_options=pacsv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
        # Only an empty cell is missing: "NA" and "null" may be ids.
        convert_options=pacsv.ConvertOptions(
            column_types=dict.fromkeys(text, pa.string()),
            null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False,
        ),
    ) as reader:  # fmt: skip
        for batch in reader:
            yield pa.Table.from_batches([batch])


def _delimiter(path: Path) -> str:
    """Tabs in .tsv; in .csv commas, unless the names in the first line are parted by semicolons, tabs or bars alone."""
    if path.suffix.lower() == ".tsv":
        return "\t"
    with path.open("rb") as file:
        first = file.readline(BYTES)
    return next((one for one in ",;\t|" if one.encode() in first), ",")


def _json_lines(path: Path, _: frozenset[str]) -> Iterator[pa.Table]:
    """Whole lines of about `BYTES` bytes at a time."""
    known: pa.Schema | None = None
    with path.open("rb") as file:
        while lines := file.readlines(BYTES):
            block = b"".join(lines)
            if block.strip():
                table = json_table(block)
                for one in known or ():  # a block may lack what is seldom said
                    if one.name not in table.column_names:
                        table = table.append_column(one, pa.nulls(len(table), one.type))
                known = table.schema
                yield table


def json_table(lines: bytes) -> pa.Table:
    """Whole lines of JSON; in one block, as a line longer than the usual block would be refused."""
    return pajson.read_json(pa.BufferReader(lines), pajson.ReadOptions(block_size=len(lines) + 1))


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
        raise DataError(
            f"the frame has a column of mixed types, or of one that Arrow lacks: {error}"
        ) from error


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
