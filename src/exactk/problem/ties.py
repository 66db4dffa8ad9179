"""What settles ties: a number for every id, the same on every machine and for ever, so that no order of items matters.

Knows no rule and no search. Whole numbers go through splitmix64, texts through FNV-1a and then splitmix64's finish.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, no_type_check

import numpy as np
from jaxtyping import Int64, UInt64

from exactk.problem.compiling import compiled


def tie_keys(ids: np.ndarray | Sequence[Any]) -> Int64[np.ndarray, "..."]:
    """A key for each id of an array of any shape: equal for equal ids, as good as random otherwise."""
    held = np.asarray(ids)
    if held.dtype.kind in "iu":
        return _finished(held.astype(np.uint64)).reshape(held.shape)
    listed = held.reshape(-1).tolist()
    if all(type(one) is int and -(2**63) <= one < 2**63 for one in listed):
        return _finished(np.array(listed, np.int64).view(np.uint64)).reshape(held.shape)
    return _keys_of_texts([one if type(one) is str else repr(one) for one in listed]).reshape(held.shape)


def _keys_of_texts(texts: Sequence[str]) -> Int64[np.ndarray, "M"]:
    joined = "".join(texts)
    written = joined.encode("utf-8", "surrogatepass")
    bounds = np.zeros(len(texts) + 1, np.int64)
    plain = len(written) == len(joined)  # a letter is a byte, as in most ids
    lengths = map(len, texts if plain else (one.encode("utf-8", "surrogatepass") for one in texts))
    bounds[1:] = np.fromiter(lengths, np.int64, len(texts))
    np.cumsum(bounds, out=bounds)
    mixed = np.empty(len(texts), np.uint64)
    hash_texts(np.frombuffer(written or b"\0", np.uint8), bounds, mixed)
    return _finished(mixed)


def _finished(mixed: UInt64[np.ndarray, "..."]) -> Int64[np.ndarray, "M"]:
    mixed = np.ascontiguousarray(mixed).reshape(-1)
    out = np.empty(mixed.size, np.uint64)
    finish(mixed, out)
    return out.view(np.int64)


@compiled
@no_type_check
def finish(mixed, out):
    """Every bit of a number moves every bit of the answer; sums that overflow wrap around, as they should."""
    for row in range(len(out)):
        x = mixed[row] + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        out[row] = x ^ (x >> np.uint64(31))


@compiled
@no_type_check
def hash_texts(letters, bounds, out):
    """FNV-1a of the bytes letters[bounds[row]:bounds[row + 1]] of each row."""
    prime = np.uint64(0x100000001B3)
    for row in range(len(out)):
        mixed = np.uint64(0xCBF29CE484222325)
        for place in range(bounds[row], bounds[row + 1]):
            mixed = (mixed ^ np.uint64(letters[place])) * prime
        out[row] = mixed
