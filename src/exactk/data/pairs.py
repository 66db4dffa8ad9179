"""Pair features: what a rule could read of two candidates, for a model to learn from.

Knows values side by side, no log. All are symmetric, finite, and 0 for a candidate with itself or beside padding.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float32, Int32, Int64

from exactk.data.roles import Columns, PairFeature
from exactk.data.texts import Terms, overlaps

MOST_DERIVED = 16
MISSING_GAP = 1 / 3  # the mean gap of two values drawn from train
_PRICES = ("price", "cost", "fare", "amount", "fee", "rent")


def derived_pairs(columns: Columns) -> tuple[PairFeature, ...]:
    """What the columns that exist suggest, unless they name pair features themselves."""
    if columns.pair_features is not None:
        return columns.pair_features
    numbers = [name for name in (*columns.candidate.numbers, *columns.item.numbers) if _is_price(name)]
    found = [
        *(PairFeature("same", name) for name in (*columns.item.categories, *columns.candidate.categories)),
        *(PairFeature(kind, name) for name in columns.item.texts for kind in ("cosine", "overlap")),
        *(PairFeature("cosine", name) for name in columns.item.vectors),
        *(PairFeature("gap", name) for name in numbers),
    ]
    return tuple(dict.fromkeys(found))[:MOST_DERIVED]


def _is_price(name: str) -> bool:
    parts = name.lower().replace("-", "_").split("_")
    return any(part in _PRICES for part in parts) and not {"rank", "id"} & set(parts)


class PairInputs(NamedTuple):
    """Values of a batch's candidates by column: codes (0 = missing), vectors, levels (NaN = missing), word lists."""

    codes: Mapping[str, Int32[np.ndarray, "B N"]]
    vectors: Mapping[str, Float32[np.ndarray, "B N V"]]
    levels: Mapping[str, Float32[np.ndarray, "B N"]]
    words: Mapping[str, tuple[Terms, Float32[np.ndarray, "W"]]]  # and the rarity of every word
    text_rows: Int64[np.ndarray, "B N"]  # of the word lists, -1 = none


def pair_values(
    pairs: tuple[PairFeature, ...], inputs: PairInputs, present: Bool[np.ndarray, "B N"]
) -> Float32[np.ndarray, "B N N P"]:
    """Every pair feature of every two candidates."""
    B, N = present.shape
    out = np.zeros((B, N, N, len(pairs)), np.float32)
    for place, pair in enumerate(pairs):
        out[..., place] = _one(pair, inputs)
    both = present[:, :, None] & present[:, None, :] & ~np.eye(N, dtype=bool)
    out *= both[..., None]
    return out


def _one(pair: PairFeature, inputs: PairInputs) -> Float32[np.ndarray, "B N N"]:
    if pair.kind == "same":
        code = inputs.codes[pair.column]
        same = (code[:, :, None] == code[:, None, :]) & (code[:, :, None] > 0)
        return np.asarray(same, np.float32)
    if pair.kind == "cosine":
        vector = inputs.vectors[pair.column]
        length = np.linalg.norm(vector, axis=2, keepdims=True)
        unit = np.where(length > 1e-9, vector / np.maximum(length, 1e-9), 0)
        return np.asarray(np.clip(unit @ unit.transpose(0, 2, 1), -1, 1), np.float32)
    if pair.kind == "overlap":
        terms, rarity = inputs.words[pair.column]
        return overlaps(terms.start, terms.terms, rarity, inputs.text_rows)
    level = inputs.levels[pair.column]
    gap = np.abs(level[:, :, None] - level[:, None, :])
    return np.asarray(np.where(np.isnan(gap), MISSING_GAP, gap), np.float32)
