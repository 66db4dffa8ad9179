"""The dataset folder on paper: its files, their columns, `meta.json`, packed graphs, and looking ids up.

Knows neither who writes the folder (`writer.py`) nor how it becomes batches (`index.py`, `dataset.py`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from jaxtyping import Bool, Int64

from exactk.data.columns import NO_USER
from exactk.errors import DataError

FORMAT = 2
READABLE = (1, 2)  # 1 had no columns
Kind = Literal["impressions", "items", "users"]
FILES: Mapping[Kind, str] = {kind: f"{kind}.parquet" for kind in get_args(Kind)}
SPLITS = ("train", "valid", "test")

_REQUIRED: Mapping[Kind, tuple[str, ...]] = {
    "impressions": ("request_id", "user_id", "candidates"),
    "items": ("item_id",),
    "users": ("user_id",),
}
_IDS = {"request_id", "user_id", "item_id", "clicked_item"}
_ID_LISTS = {"candidates", "card", "clicked_items"}


@dataclass(frozen=True)
class Meta:
    """What `meta.json` says. `K` and `N` are the largest in the folder; None lets the writer fill them in."""

    K: int | None = None
    N: int | None = None
    constraint: Mapping[str, Any] | None = None
    split: Mapping[str, Any] | None = None
    columns: Mapping[str, Any] | None = None  # the plain form of `columns.Columns`
    provenance: Mapping[str, Any] = field(default_factory=dict)
    checksums: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The JSON form; that of format 1 where there are no columns, so that older versions read it, too."""
        held = {one.name: getattr(self, one.name) for one in fields(self)}
        if self.columns is None:
            del held["columns"]
        return {"format": 1 if self.columns is None else FORMAT, **held}

    @classmethod
    def load(cls, folder: Path) -> Meta:
        """Read `meta.json`; a folder without one is no dataset, or one whose writing never finished."""
        path = folder / "meta.json"
        if not path.is_file():
            raise DataError(f"{folder} is not a dataset folder: it has no meta.json")
        try:
            held = json.loads(path.read_text(encoding="utf-8"))
            if held["format"] not in READABLE:
                raise DataError(f"{path}: format {held['format']} is not one this version reads ({FORMAT})")
            meta = cls(**{name: held[name] for name in held if name != "format"})
            for size in (meta.K, meta.N):
                if size is not None and type(size) is not int:
                    raise ValueError(f"K and N must be whole numbers, got {size!r:.80}")
            for file, recorded in meta.checksums.items():
                wanted = ("sha256", "bytes", "rows") if file.endswith(".parquet") else ("sha256", "bytes")
                if not {*wanted} <= {*recorded.keys()}:
                    raise ValueError(f"checksums.{file} must have {', '.join(wanted)}")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise DataError(f"{path} is damaged: {error}") from error
        return meta


def canonical(table: pa.Table, kind: Kind, first_row: int = 0) -> pa.Table:
    """Give the known columns their one type, so that every later reader meets only that; other columns stay.

    Ids become int64 or string, id lists list<that>, features list<float>, timestamps int64 or timestamp[us].
    """
    file = FILES[kind]
    for name in _REQUIRED[kind]:
        if name not in table.column_names:
            raise DataError(f"{file}: column '{name}' is missing; it has {', '.join(table.column_names)}")
        if table[name].null_count:
            row = first_row + int(np.flatnonzero(table[name].is_null().to_numpy())[0])
            raise DataError(f"{file}: row {row}, column '{name}': a value is missing")
    columns = [_canonical_column(table[name], name, file, first_row) for name in table.column_names]
    return pa.table(columns, names=table.column_names)


def _canonical_column(column: pa.ChunkedArray, name: str, file: str, first_row: int) -> pa.ChunkedArray:
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    if name in _IDS:
        wanted = _id_type(kind, name, file)
    elif name in _ID_LISTS or name == "features":
        if not is_list(kind):
            held = "ids" if name in _ID_LISTS else "numbers"
            raise DataError(f"{file}: column '{name}' must hold lists of {held}, not {kind}")
        wanted = pa.list_(_id_type(kind.value_type, name, file) if name in _ID_LISTS else pa.float32())
    elif name == "timestamp":
        wanted = pa.timestamp("us", tz=kind.tz) if pa.types.is_timestamp(kind) else pa.int64()
    else:
        wanted = _PLAIN.get(name, kind)
    try:
        return column.cast(wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise DataError(
            f"{file}: column '{name}' (rows from {first_row}) cannot be read as {wanted}: {error}"
        ) from error


_PLAIN = {
    "clicked": pa.bool_(), "propensity": pa.float64(), "graph": pa.binary(), "split": pa.string(),
    "title": pa.string(), "category": pa.string(),
}  # fmt: skip


def _id_type(kind: pa.DataType, name: str, file: str) -> pa.DataType:
    if pa.types.is_integer(kind):
        return pa.int64()
    if is_text(kind) or pa.types.is_null(kind):
        return pa.string()
    raise DataError(f"{file}: column '{name}' must hold integer or string ids, not {kind}")


def is_list(kind: pa.DataType) -> bool:
    """Whether a column of this type holds lists."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def is_text(kind: pa.DataType) -> bool:
    """Whether a column of this type holds text."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def is_number(kind: pa.DataType) -> bool:
    """Whether a column of this type holds whole numbers or floats."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def is_plain(kind: pa.DataType) -> bool:
    """Whether values of a type are single ones (flags, numbers, texts, moments) or lists of such."""
    if pa.types.is_dictionary(kind) or is_list(kind):
        inner = kind.value_type
        return not is_list(inner) and is_plain(inner)
    return not (pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def combine(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """One contiguous array of the column."""
    if isinstance(column, pa.ChunkedArray):
        return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return column


def plain_values(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """The same, values of a dictionary spelled out."""
    array = combine(column)
    return array.cast(array.type.value_type) if pa.types.is_dictionary(array.type) else array


def flatten(lists: pa.ChunkedArray | pa.Array) -> tuple[pa.Array, Int64[np.ndarray, "R"]]:
    """All values of a list column end to end, and the length of each list (a null list has none)."""
    array = combine(lists)
    return array.flatten(), np.asarray(pc.fill_null(pc.list_value_length(array), 0), np.int64)


def lists_of(sizes: np.ndarray, values: pa.Array, like: pa.Array | None = None) -> pa.Array:
    """The way back: lists of these lengths; missing where `like` is."""
    offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]), pa.int32())
    mask = like.is_null() if like is not None and like.null_count else None
    return pa.ListArray.from_arrays(offsets, values, mask=mask)


def owners(sizes: np.ndarray) -> Int64[np.ndarray, "L"]:
    """The row that each value of lists of these lengths is of."""
    return np.repeat(np.arange(len(sizes)), sizes)


def flagged(sizes: np.ndarray, values: pa.Array, flags: np.ndarray, like: pa.Array | None = None) -> pa.Array:
    """Lists of these lengths without the values whose flag is not set; missing where `like` is."""
    kept = np.bincount(owners(sizes)[flags], minlength=len(sizes))
    return lists_of(kept, values.filter(pa.array(flags)), like)


def first_flagged(sizes: np.ndarray, flags: np.ndarray) -> Int64[np.ndarray, "R"]:
    """Of lists of these lengths end to end, the first place in each whose flag is set, -1 where none is."""
    first, places = np.full(len(sizes), -1), np.flatnonzero(flags)
    first[owners(sizes)[places[::-1]]] = places[::-1]  # written backwards: the first of a list stays
    return first


def flags_in(column: pa.ChunkedArray | pa.Array) -> Bool[np.ndarray, "R"]:
    """Which values are true; a missing one is not."""
    return np.asarray(pc.fill_null(column, False), bool)


def codes_of(column: pa.ChunkedArray | pa.Array) -> Int64[np.ndarray, "R"]:
    """A number for every value, a missing one among them, by first appearance."""
    array = combine(column)
    if is_list(array.type):
        array = pa.array([str(value) for value in array.to_pylist()], pa.string())
    return np.asarray(array.dictionary_encode(null_encoding="encode").indices, np.int64)


def replaced(table: pa.Table, name: str, values: Any) -> pa.Table:
    """The table with these values in a column, a new one where there is none of the name."""
    if name not in table.column_names:
        return table.append_column(name, values)
    return table.set_column(table.column_names.index(name), name, values)


def as_lists(matrix: np.ndarray) -> pa.ListArray:
    """A matrix as a column of lists."""
    return lists_of(np.full(len(matrix), matrix.shape[1]), pa.array(matrix.reshape(-1)))


def nobody_among(users: pa.ChunkedArray | pa.Array) -> int:
    """The row of the id that stands for no user; -1 where there is none."""
    nobody = NO_USER["string" if is_text(users.type) else "int64"]
    return int(pc.index(users, pa.scalar(nobody, users.type)).as_py())


class RowLookup:
    """From external ids to the rows that hold them; -1 where none does. Ids are int64 or string, all distinct."""

    def __init__(self, ids: pa.ChunkedArray | pa.Array, file: str = "ids", column: str = "id") -> None:
        self.ids = combine(ids)
        self._table: np.ndarray | None = None
        if len(pc.unique(self.ids)) != len(self.ids):
            counts = pc.value_counts(self.ids)
            twice = next(entry["values"].as_py() for entry in counts if entry["counts"].as_py() > 1)
            raise DataError(f"{file}: column '{column}': the id {twice!r} appears in more than one row")
        if pa.types.is_integer(self.ids.type) and len(self.ids):
            values = self.ids.to_numpy()
            low, high = int(values.min()), int(values.max())
            if high - low < 8 * len(values) + 1024:  # dense enough that a plain table beats hashing
                self._low = low
                self._table = np.full(high - low + 1, -1, np.int64)
                self._table[values - low] = np.arange(len(values))

    def __call__(self, wanted: pa.Array | pa.ChunkedArray) -> Int64[np.ndarray, "R"]:
        """The row of each wanted id."""
        wanted = combine(wanted)
        if not len(self.ids) or pa.types.is_null(wanted.type) or wanted.type != self.ids.type:
            return np.full(len(wanted), -1, np.int64)
        if self._table is None or wanted.null_count:
            found = pc.index_in(wanted, value_set=self.ids, skip_nulls=True)
            return np.asarray(pc.fill_null(found, -1), np.int64)
        offset = wanted.to_numpy() - self._low
        inside = (offset >= 0) & (offset < len(self._table))
        return np.where(inside, self._table[np.where(inside, offset, 0)], -1)


def pack_graphs(
    graph: Bool[np.ndarray, "B N N"], num_candidates: Int64[np.ndarray, "B"] | None = None
) -> pa.Array:
    """The impressions' `graph` column: of each request the pairs (0,1), (0,2), ..., (1,2), ... as bits, high bit first.

    N=50 takes 154 bytes. `num_candidates` says how many leading positions of each padded request are real.
    """
    B, N, _ = graph.shape
    counts = np.full(B, N) if num_candidates is None else num_candidates
    packed: list[bytes | None] = [None] * B
    for count in np.unique(counts):
        first, second = np.triu_indices(int(count), 1)
        rows = np.flatnonzero(counts == count)
        bits = np.packbits(graph[rows][:, first, second], axis=1)
        for row, line in zip(rows, bits, strict=True):
            packed[row] = line.tobytes()
    return pa.array(packed, pa.binary())


def packed_size(num_candidates: int) -> int:
    """Bytes of one packed graph: 20 candidates have 190 pairs, hence 24 bytes."""
    return (num_candidates * (num_candidates - 1) // 2 + 7) // 8


def read_parquet(path: Path | str, memory_map: bool = False) -> pa.Table:
    """A whole file; `pq.read_table` loads Arrow's data sets for it, 10 MB that every worker of a service would hold."""
    with pq.ParquetFile(path, memory_map=memory_map) as file:
        return file.read()
