"""A batch's columns as the kernel of a card value takes them: one array of a kind, other columns refused by name.

Knows the scales of train and no weights that were learned.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float32, Int64

from exactk.engine.packing import Weights, plain
from exactk.engine.shapes import MOST_NUMBERS
from exactk.errors import InputError
from exactk.problem.batch import Batch
from exactk.settings.config import InputSizes


class Scales(NamedTuple):
    """Of train: knots of numbers, pieces train reaches, mean and deviation of pair features, knots of the context."""

    knots: Float32[np.ndarray, "F n"]
    used: Float32[np.ndarray, "F"]
    pair_mean: Float32[np.ndarray, "P"]
    pair_deviation: Float32[np.ndarray, "P"]
    context_knots: Float32[np.ndarray, "X n"]

    @classmethod
    def of(cls, weights: Weights) -> Scales:
        """From what a model's `inputs` saved."""
        names = ("numbers.knots", "numbers.used", "pair_mean", "pair_deviation", "context_numbers.knots")
        return cls(*(plain(weights[name]) for name in names))


class ModelColumns(NamedTuple):
    """Of a batch, with no columns where there are none; `own` is what each member makes of ids and features."""

    own: Float32[np.ndarray, "M B N S"]
    numbers: Float32[np.ndarray, "B N F"]
    vectors: Float32[np.ndarray, "B N V"]
    context_numbers: Float32[np.ndarray, "B X"]
    user_features: Float32[np.ndarray, "B U"]
    pairs: Float32[np.ndarray, "B N N P"]
    codes: Int64[np.ndarray, "B N C"]
    context_codes: Int64[np.ndarray, "B G"]
    present: Bool[np.ndarray, "B N"]


def columns_of(batch: Batch, sizes: InputSizes, own: Float32[np.ndarray, "M B N S"]) -> ModelColumns:
    """Everything the model reads; a batch with other columns is refused."""
    as_numbers = sizes.item_feature_size <= MOST_NUMBERS
    features = _of(batch.item_features, sizes.item_feature_size, "item features")
    placed = sizes.placed and sizes.shown == "list"
    numbers = [
        *_of(batch.candidate_numbers, sizes.candidate_numbers, "candidate numbers"),
        *_one(batch.score, sizes.scored, "scores"),
        *_one(batch.position, placed, "positions"),
        *(features if as_numbers else []),
    ]
    vectors = _of(batch.item_vectors, sizes.item_vector_size, "item vectors")
    codes = [
        *_of(batch.item_categories, len(sizes.item_categories), "item categories"),
        *_of(batch.candidate_categories, len(sizes.candidate_categories), "candidate categories"),
    ]
    context_codes = [
        *_of(batch.context_categories, len(sizes.context_categories), "context categories"),
        *_of(batch.user_categories, len(sizes.user_categories), "user categories"),
    ]
    B, N = batch.item.shape
    return ModelColumns(
        own,
        _joined(numbers, (B, N), np.float32),
        _joined(vectors if as_numbers else [*features, *vectors], (B, N), np.float32),
        _joined(_of(batch.context_numbers, sizes.context_numbers, "context numbers"), (B,), np.float32),
        _joined(_of(batch.user_features, sizes.user_feature_size, "user features"), (B,), np.float32),
        _joined(_of(batch.pair_features, sizes.pair_features, "pair features"), (B, N, N), np.float32),
        _joined(codes, (B, N), np.int64),
        _joined(context_codes, (B,), np.int64),
        np.ascontiguousarray(batch.present),
    )


def _of(values: np.ndarray | None, size: int, name: str) -> list[np.ndarray]:
    if not size:
        return []
    if values is None or values.shape[-1] != size:
        given = "none" if values is None else str(values.shape[-1])
        raise InputError(f"this model reads {size} {name}, the batch has {given}")
    return [values]


def _one(values: np.ndarray | None, wanted: bool, name: str) -> list[np.ndarray]:
    if not wanted:
        return []
    if values is None:
        raise InputError(f"this model reads {name}, the batch has none")
    return [values[..., None]]


def _joined(parts: list[np.ndarray], shape: tuple[int, ...], kind: type) -> np.ndarray:
    if not parts:
        return np.zeros((*shape, 0), kind)
    whole = parts[0] if len(parts) == 1 else np.concatenate(parts, -1)
    return np.ascontiguousarray(whole, kind)
