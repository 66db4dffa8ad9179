"""Items and users of a caller's own: what the log says of them, the tables beside it, vectors of their texts.

Every id the log names is accounted for. Knows of impressions which ids they met and what stands beside these; memory
grows with the items and users, not with the rows. Encoders of texts are installed on this machine, nothing is
downloaded, and no model keeps one: what it says of the items is written into their table when the log is built.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Float32, Int64

from exactk.data.columns import bare_name, encoded_name
from exactk.data.logs.check import ReadReport
from exactk.data.logs.chosen import Entity
from exactk.data.logs.columns import ColumnReader, plain_numbers, renamed
from exactk.data.logs.files import is_untyped, tables_of
from exactk.data.table import RowLookup, as_lists, codes_of, combine, flatten, is_list, is_text, replaced
from exactk.errors import ConfigError, DataError, MissingExtraError

Encoder = Callable[[list[str]], Any]  # texts to a matrix, a row each
AT_ONCE = 1024


class Collected:
    """Columns of items (lists beside the candidates) or of users that came with the log; the first of each id stays."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._parts: list[pa.Table] = []
        self._count = 0

    def take_from(self, impressions: pa.Table) -> pa.Table:
        """Keep what is said of items or users; the impressions without it."""
        names = [name for name in impressions.column_names if name.startswith(f"{self.kind}.")]
        if not names:
            return impressions
        key, ids = (f"{self.kind}_id", "candidates" if self.kind == "item" else "user_id")
        columns = {key: impressions[ids]} | {bare_name(name): impressions[name] for name in names}
        if self.kind == "item":
            columns = {name: flatten(lists)[0] for name, lists in columns.items()}
        self._parts.append(self._firsts(pa.table(columns)))
        self._count += len(self._parts[-1])
        if self._count > max(1 << 16, 2 * len(self._parts[0])):
            self._settle()
        return impressions.drop_columns(names)

    def table(self) -> pa.Table | None:
        """One row for each id met; None where the log says nothing of them."""
        self._settle()
        return self._parts[0] if self._parts else None

    def _settle(self) -> None:
        if len(self._parts) > 1:
            self._parts = [self._firsts(pa.concat_tables(self._parts, promote_options="permissive"))]
        self._count = 0

    def _firsts(self, table: pa.Table) -> pa.Table:
        return table.take(pa.array(_first_of_each(table[f"{self.kind}_id"])))


def _first_of_each(ids: pa.ChunkedArray | pa.Array) -> Int64[np.ndarray, "I"]:
    """The first row of every id."""
    return np.sort(np.unique(codes_of(ids), return_index=True)[1])


def entity_tables(
    entity: Entity, source: Any, met: pa.Array, said: pa.Table | None, text_ids: bool, report: ReadReport
) -> Iterator[pa.Table]:
    """Every item or user of `source`, and those the log met beyond it; `said` is what the log says of them."""
    kind, key = entity.kind, f"{entity.kind}_id"
    if source is None and said is None:
        yield pa.table({key: met})
        return
    name = _name(source, kind)
    known = pa.array([], met.type)
    schema: pa.Schema | None = None
    feature_size = 0
    pieces = [_own(said, entity)] if source is None else _pieces(source, entity, said, text_ids, report)
    for table in pieces:
        if table[key].type != met.type:
            raise DataError(
                f"{name}: column '{key}' holds {table[key].type}, the log's {kind} ids are {met.type}; "
                "read all ids as text (text_ids=True) to bring them together"
            )
        table = _distinct(table, key, known, name, report)
        known = pa.concat_arrays([known, combine(table[key])])
        schema = schema or table.schema
        if "features" in table.column_names and len(table):
            feature_size = len(table["features"][0].as_py() or ())
        yield table
    strangers = met.filter(pc.invert(pc.is_in(met, value_set=known)))
    if len(strangers) and schema is not None:
        text = f"{kind}s of the log that the {kind} table lacks, added without attributes"
        report.note(text, strangers[0].as_py(), len(strangers))
        bare = _bare(strangers, key, schema, feature_size)
        yield bare if said is None else _own(_beside(bare.select([key]), said, key), entity, schema)


def _own(said: pa.Table | None, entity: Entity, like: pa.Schema | None = None) -> pa.Table:
    """What the log said, as a table of items or users."""
    assert said is not None
    for column in like or ():
        if column.name not in (*said.column_names, "features"):
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
        ours = own.typed(renamed(table, mapping, key, name), first)
        if kind == "item":
            ours = _spelled_labels(ours, entity.columns.item.texts)
        if said is not None:
            ours = _beside(ours, said, key)
        if entity.numbers:
            ours = _joined_features(ours, entity.numbers, name)
        missing = combine(ours[key]).is_null()
        for row in np.flatnonzero(missing).tolist():
            report.drop(f"{kind} without an id", first + row, key, None)
        first += len(table)
        yield ours.filter(pc.invert(missing))


def _spelled_labels(table: pa.Table, texts: Sequence[str]) -> pa.Table:
    """Lists of numbers that are read as texts, such as numbers of topics, as lists of words."""
    for name in texts:
        if name in table.column_names and is_list(kind := table[name].type) and not is_text(kind.value_type):
            table = replaced(table, name, combine(table[name]).cast(pa.list_(pa.string())))
    return table


def _joined_features(table: pa.Table, features: Sequence[str], name: str) -> pa.Table:
    """Number columns side by side as one list; a missing number is NaN, which reads as the mean."""
    for column in features:
        if column not in table.column_names:
            raise DataError(f"{name}: there is no column '{column}' to make features of")
    try:
        plain = [plain_numbers(combine(table[column])) for column in features]
        columns = [column.cast(pa.float32(), safe=False) for column in plain]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise DataError(f"{name}: the columns {', '.join(features)} are not all numbers: {error}") from error
    matrix = np.column_stack([pc.fill_null(column, float("nan")).to_numpy() for column in columns])
    kept = table.drop_columns(["features"]) if "features" in table.column_names else table
    return kept.append_column("features", as_lists(matrix.astype(np.float32)))


def _distinct(table: pa.Table, key: str, known: pa.Array, name: str, report: ReadReport) -> pa.Table:
    """The first row of each id; later ones are reported."""
    ids = combine(table[key])
    first = np.zeros(len(ids), bool)
    first[_first_of_each(ids)] = True
    first &= ~np.asarray(pc.is_in(ids, value_set=known))
    for place in np.flatnonzero(~first).tolist():
        report.note(f"{name}: an id appears in several rows; the first one was kept", ids[place].as_py())
    return table.filter(pa.array(first))


def _bare(ids: pa.Array, key: str, schema: pa.Schema, feature_size: int) -> pa.Table:
    columns = {column.name: pa.nulls(len(ids), column.type) for column in schema} | {key: ids}
    if "features" in columns:
        columns["features"] = as_lists(np.full((len(ids), feature_size), np.nan, np.float32))
    return pa.table(columns)


def _name(source: Any, kind: str) -> str:
    return str(source) if isinstance(source, str | Path) else f"{kind} frame"


def encoder_named(said: str) -> Encoder:
    """`package.module:function`, or the folder of a sentence-transformers model on this disk."""
    if Path(said).is_dir():
        return _local_model(said)
    module, colon, function = said.partition(":")
    if not (colon and module and function):
        raise ConfigError(
            f"encoders: {said!r} is neither package.module:function nor the folder of a model on this disk; "
            "nothing is downloaded"
        )
    try:
        found = getattr(import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"encoders: {said!r} cannot be imported here: {error}") from error
    if not callable(found):
        raise ConfigError(f"encoders: {said!r} is not a function")
    return found  # type: ignore[no-any-return]


def _local_model(folder: str) -> Encoder:
    if find_spec("sentence_transformers") is None:
        raise MissingExtraError(f"{folder} is read by sentence-transformers, which is not installed")
    model = import_module("sentence_transformers").SentenceTransformer(folder, local_files_only=True)
    return lambda texts: model.encode(texts, show_progress_bar=False)


class TextEncoders:
    """Adds a column of vectors for each column of texts that has an encoder; a missing text has none."""

    def __init__(self, named: Mapping[str, str]) -> None:
        self._encoders = {name: encoder_named(said) for name, said in named.items()}
        self._sizes: dict[str, int] = {}

    def __call__(self, table: pa.Table) -> pa.Table:
        """The same table of items, with vectors."""
        for name, encode in self._encoders.items():
            if name not in table.column_names:
                raise DataError(f"items: there is no column '{name}' to encode")
            spelled = [_spelled(value) for value in combine(table[name]).to_pylist()]
            known = [n for n, text in enumerate(spelled) if text is not None]
            vectors: list[Any] = [None] * len(spelled)
            for first in range(0, len(known), AT_ONCE):
                some = known[first : first + AT_ONCE]
                matrix = self._matrix(name, encode, [spelled[n] or "" for n in some])
                for n, vector in zip(some, matrix, strict=True):
                    vectors[n] = vector.tolist()
            table = table.append_column(encoded_name(name), pa.array(vectors, pa.list_(pa.float32())))
        return table

    def _matrix(self, name: str, encode: Encoder, texts: list[str]) -> Float32[np.ndarray, "R V"]:
        matrix = np.asarray(encode(texts), np.float32)
        size = self._sizes.setdefault(name, matrix.shape[-1] if matrix.ndim == 2 else 0)
        if matrix.shape != (len(texts), size) or not np.isfinite(matrix).all():
            raise DataError(
                f"the encoder of '{name}' gave {matrix.shape} for {len(texts)} texts; wanted is a row of {size or 'V'} "
                "finite numbers for each"
            )
        return matrix


def _spelled(value: str | Sequence[str] | None) -> str | None:
    if value is None or isinstance(value, str):
        return value or None
    return " ".join(part for part in value if part) or None
