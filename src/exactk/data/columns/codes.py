"""Numbers for values: categories by first appearance, ids by hashes that are the same on every machine, for ever.

Knows no column's meaning and no vocabulary. Of categories code 0 is a missing value, the one at place i has code i + 1.
The hashes are those that settle ties (`problem/ties.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Int32, Int64

from exactk.data.table import combine, is_number, is_text, plain_values
from exactk.errors import DataError, InputError
from exactk.problem.ties import finish, hash_texts


def category_texts(values: pa.Array | pa.ChunkedArray, where: str = "a category") -> pa.Array:
    """Values as text: true, 7 (also where it came as 7.0), red. Missing, NaN and empty ones are null."""
    array = plain_values(values)
    kind = array.type
    if pa.types.is_floating(kind):
        array = _whole_numbers_bare(pc.if_else(pc.is_nan(array), None, array))
    elif not (is_text(kind) or is_number(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind)):
        raise DataError(
            f"{where} holds {kind}, which cannot be a category; categories are text, whole numbers or flags"
        )
    text = array.cast(pa.string())
    return pc.if_else(pc.equal(text, ""), None, text)


def category_text(value: Any, where: str = "a category") -> str | None:
    """One value the same way."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or value == "" or (isinstance(value, float) and value != value):
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        text: str | None = category_texts(pa.array([value], pa.float64()))[0].as_py()
        return text
    raise InputError(f"{where} must be text, a whole number or a flag, got {value!r}")


def _whole_numbers_bare(array: pa.Array) -> pa.Array:
    whole = pc.and_(pc.equal(array, pc.floor(array)), pc.less(pc.abs(array), 2.0**53))
    bare = pc.if_else(whole, array, None).cast(pa.int64()).cast(pa.string())
    return pc.if_else(whole, bare, array.cast(pa.string()))


class CategoryCoder:
    """Gives each column's values their codes, piece by piece; the same pieces give the same codes."""

    def __init__(self, names: Sequence[str]) -> None:
        self.values: dict[str, dict[str, int]] = {name: {} for name in names}

    def coded(self, name: str, texts: pa.Array) -> Int32[np.ndarray, "R"]:
        """Codes of a column of category texts."""
        encoded = combine(texts).dictionary_encode()
        known = self.values[name]
        codes = [known.setdefault(value, len(known) + 1) for value in encoded.dictionary.to_pylist()]
        places = np.asarray(pc.fill_null(encoded.indices, len(codes)))
        return np.asarray(np.array([*codes, 0], np.int32)[places])

    def lists(self) -> dict[str, list[str]]:
        """The values of each column in the order of their codes."""
        return {name: list(known) for name, known in self.values.items()}


def categories_table(lists: Mapping[str, Sequence[str]]) -> pa.Table:
    """Those values as a table of (column, value), to be kept."""
    columns = [name for name, values in lists.items() for _ in values]
    values = [value for held in lists.values() for value in held]
    return pa.table({"column": pa.array(columns, pa.string()), "value": pa.array(values, pa.string())})


def category_lists(table: pa.Table, names: Sequence[str]) -> dict[str, list[str]]:
    """The way back."""
    lists: dict[str, list[str]] = {name: [] for name in names}
    for column, value in zip(table["column"].to_pylist(), table["value"].to_pylist(), strict=True):
        lists[column].append(value)
    return lists


def hashed_rows(ids: pa.Array | pa.ChunkedArray, rows: int) -> Int64[np.ndarray, "R"]:
    """A row 0..rows-1 for every id; -1 where there is none."""
    array = combine(ids)
    if pa.types.is_null(array.type):
        return np.full(len(array), -1, np.int64)
    found = (keys_of_column(array).view(np.uint64) % np.uint64(rows)).astype(np.int64)
    if array.null_count:
        found[np.asarray(array.is_null())] = -1
    return found


def keys_of_column(ids: pa.Array | pa.ChunkedArray) -> Int64[np.ndarray, "R"]:
    """The whole hash of every id, as `problem.ties.tie_keys` has it; whatever for one that is missing."""
    array = combine(ids)
    if pa.types.is_integer(array.type):
        mixed = np.asarray(array.cast(pa.int64()).fill_null(0).to_numpy(), np.int64).view(np.uint64)
    else:
        text = array.cast(pa.large_binary())
        _, offsets, data = text.buffers()
        bounds = np.frombuffer(offsets, np.int64)[text.offset : text.offset + len(text) + 1]
        letters = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)
        mixed = np.empty(len(text), np.uint64)
        hash_texts(letters, bounds, mixed)
    finished = np.empty(len(mixed), np.uint64)
    finish(mixed, finished)
    return finished.view(np.int64)
