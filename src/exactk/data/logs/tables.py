"""Items and users of a caller's own: their tables mapped, features joined, and every id the log names accounted for.

Knows nothing of impressions but which ids they met.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from exactk.data.logs.chosen import Entity
from exactk.data.logs.columns import ColumnReader, renamed
from exactk.data.logs.files import is_untyped, tables_of
from exactk.data.logs.number_texts import numbers_of_texts
from exactk.data.logs.report import ReadReport
from exactk.data.table import RowLookup, combine, is_text
from exactk.errors import DataError


def write_entities(
    write: Callable[[pa.Table], None],
    entity: Entity,
    source: Any,
    met: pa.Array,
    said: pa.Table | None,
    text_ids: bool,
    report: ReadReport,
) -> None:
    """Write every item or user of `source`, and those the log met beyond it; `said` is what the log says of them."""
    kind, key = entity.kind, f"{entity.kind}_id"
    if source is None and said is None:
        write(pa.table({key: met}))
        return
    known = pa.array([], met.type)
    schema: pa.Schema | None = None
    feature_size = 0
    pieces = [_own(said, entity)] if source is None else _pieces(source, entity, said, text_ids, report)
    for table in pieces:
        if table[key].type != met.type:
            raise DataError(
                f"{_name(source, kind)}: column '{key}' holds {table[key].type}, the log's {kind} ids are {met.type}; "
                "read all ids as text (text_ids=True) to bring them together"
            )
        table = _distinct(table, key, known, _name(source, kind), report)
        known = pa.concat_arrays([known, combine(table[key])])
        schema = schema or table.schema
        if "features" in table.column_names and len(table):
            feature_size = len(table["features"][0].as_py() or ())
        write(table)
    strangers = met.filter(pc.invert(pc.is_in(met, value_set=known)))
    if len(strangers) and schema is not None:
        report.note(
            f"{kind}s of the log that the {kind} table lacks, added without attributes",
            strangers[0].as_py(),
            len(strangers),
        )
        bare = _bare(strangers, key, schema, feature_size)
        write(bare if said is None else _own(_beside(bare.select([key]), said, key), entity, schema))


def _own(said: pa.Table | None, entity: Entity, like: pa.Schema | None = None) -> pa.Table:
    """What the log said, as a table of items or users."""
    assert said is not None
    if like is not None:
        lacking = [
            column for column in like if column.name not in said.column_names and column.name != "features"
        ]
        for column in lacking:
            said = said.append_column(column.name, pa.nulls(len(said), column.type))
    table = _joined_features(said, entity.numbers, "the log") if entity.numbers else said
    return table.select(like.names) if like is not None else table


def _beside(table: pa.Table, said: pa.Table, key: str) -> pa.Table:
    """The table with those columns of `said` that it lacks, by id."""
    rows = RowLookup(said[key])(table[key])
    at = pa.array(rows, mask=rows < 0)
    for name in said.column_names:
        if name not in table.column_names:
            table = table.append_column(name, combine(said[name]).take(at))
    return table


def _pieces(
    source: Any, entity: Entity, said: pa.Table | None, text_ids: bool, report: ReadReport
) -> Iterator[pa.Table]:
    """Mapped and typed pieces, all other columns kept as attributes."""
    kind, key, first = entity.kind, f"{entity.kind}_id", 0
    name, mapping = _name(source, kind), entity.mapping
    own = ColumnReader(name, None, text_ids, untyped=is_untyped(source))
    as_text = [mapping.get(one, one) for one in ("features", key)]
    for table in tables_of(source, as_text):
        others = [theirs for theirs in table.column_names if theirs not in mapping.values()]
        known = {ours: ours for ours in others} | dict(mapping)
        ours = own.typed(renamed(table, known, list(known), [key], name), first)
        if said is not None:
            ours = _beside(ours, said, key)
        if entity.numbers:
            ours = _joined_features(ours, entity.numbers, name)
        missing = combine(ours[key]).is_null()
        for row in np.flatnonzero(missing.to_numpy(zero_copy_only=False)).tolist():
            report.drop(f"{kind} without an id", first + row, key, None)
        first += len(table)
        yield ours.filter(pc.invert(missing))


def _joined_features(table: pa.Table, features: Sequence[str], name: str) -> pa.Table:
    """Number columns side by side as one list; a missing number is NaN, which reads as the mean."""
    for column in features:
        if column not in table.column_names:
            raise DataError(f"{name}: there is no column '{column}' to make features of")
    try:
        columns = [_plain_numbers(combine(table[column])) for column in features]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise DataError(f"{name}: the columns {', '.join(features)} are not all numbers: {error}") from error
    matrix = np.column_stack([pc.fill_null(column, float("nan")).to_numpy() for column in columns])
    flat = pa.array(matrix.astype(np.float32).ravel())
    offsets = pa.array(np.arange(len(table) + 1) * len(features), pa.int32())
    kept = table.drop_columns(["features"]) if "features" in table.column_names else table
    return kept.append_column("features", pa.ListArray.from_arrays(offsets, flat))


def _plain_numbers(column: pa.Array) -> pa.Array:
    if is_text(column.type) and (read := numbers_of_texts(column)) is not None:
        column = read
    plain = column.cast(pa.uint8()) if pa.types.is_boolean(column.type) else column
    return plain.cast(pa.float32(), safe=False)


def _distinct(table: pa.Table, key: str, known: pa.Array, name: str, report: ReadReport) -> pa.Table:
    """The first row of each id; later ones are reported."""
    ids = combine(table[key])
    first = np.zeros(len(ids), bool)
    _, places = np.unique(ids.dictionary_encode().indices.to_numpy(zero_copy_only=False), return_index=True)
    first[places] = True
    first &= ~pc.is_in(ids, value_set=known).to_numpy(zero_copy_only=False)
    for place in np.flatnonzero(~first).tolist():
        report.note(f"{name}: an id stands in several rows, the first one kept", ids[place].as_py())
    return table.filter(pa.array(first))


def _bare(ids: pa.Array, key: str, schema: pa.Schema, feature_size: int) -> pa.Table:
    columns = []
    for column in schema:
        if column.name == key:
            columns.append(ids)
        elif column.name == "features":
            unknown = pa.array(np.full(len(ids) * feature_size, np.nan, np.float32))
            offsets = pa.array(np.arange(len(ids) + 1) * feature_size, pa.int32())
            columns.append(pa.ListArray.from_arrays(offsets, unknown))
        else:
            columns.append(pa.nulls(len(ids), column.type))
    return pa.table(columns, names=schema.names)


def _name(source: Any, kind: str) -> str:
    return str(source) if isinstance(source, str | Path) else f"{kind} frame"
