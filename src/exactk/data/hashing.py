"""Ids hashed into a fixed number of rows: the same id gives the same row on every machine, for ever.

Knows no vocabulary. FNV-1a over the bytes of a text, then, as for whole numbers, the finish of splitmix64.
"""

from __future__ import annotations

from typing import no_type_check

import numpy as np
import pyarrow as pa
from jaxtyping import Int64
from numba import njit

from exactk.data.table import combine


def hashed_rows(ids: pa.Array | pa.ChunkedArray, rows: int) -> Int64[np.ndarray, "R"]:
    """A row 0..rows-1 for every id; -1 where there is none."""
    array = combine(ids)
    if pa.types.is_null(array.type):
        return np.full(len(array), -1, np.int64)
    if pa.types.is_integer(array.type):
        mixed = np.asarray(array.cast(pa.int64()).fill_null(0).to_numpy(), np.int64).view(np.uint64)
    else:
        text = array.cast(pa.large_binary())
        _, offsets, data = text.buffers()
        bounds = np.frombuffer(offsets, np.int64)[text.offset : text.offset + len(text) + 1]
        letters = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)
        mixed = np.empty(len(text), np.uint64)
        _fnv(letters, bounds, mixed)
    found = (_finish(mixed) % np.uint64(rows)).astype(np.int64)
    if array.null_count:
        found[np.asarray(array.is_null().to_numpy(zero_copy_only=False))] = -1
    return found


def _finish(mixed: np.ndarray) -> np.ndarray:
    """Every bit of the number moves every bit of the answer; sums that overflow wrap around, as they should."""
    with np.errstate(over="ignore"):
        mixed = mixed + np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(mixed ^ (mixed >> np.uint64(31)))


@njit(cache=True, nogil=True)
@no_type_check
def _fnv(letters, bounds, out):
    prime = np.uint64(0x100000001B3)
    for row in range(len(out)):
        mixed = np.uint64(0xCBF29CE484222325)
        for place in range(bounds[row], bounds[row + 1]):
            mixed = (mixed ^ np.uint64(letters[place])) * prime
        out[row] = mixed
