"""Ids hashed into a fixed number of rows: the same id gives the same row on every machine, for ever.

Knows no vocabulary. The hashes are those that settle ties (`problem/ties.py`).
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from jaxtyping import Int64

from exactk.data.table import combine
from exactk.problem.ties import finish, hash_texts


def hashed_rows(ids: pa.Array | pa.ChunkedArray, rows: int) -> Int64[np.ndarray, "R"]:
    """A row 0..rows-1 for every id; -1 where there is none."""
    array = combine(ids)
    if pa.types.is_null(array.type):
        return np.full(len(array), -1, np.int64)
    found = (keys_of_column(array).view(np.uint64) % np.uint64(rows)).astype(np.int64)
    if array.null_count:
        found[np.asarray(array.is_null().to_numpy(zero_copy_only=False))] = -1
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
