"""What `models.card_inputs` makes of a batch's columns, in plain numpy: numbers by pieces, ranks, pairs, categories.

Knows no learned weight but the scales of train.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float32, Int64

from exactk.errors import InputError
from exactk.problem.batch import Batch
from exactk.settings.config import InputSizes

MOST_NUMBERS, MOST_GAPS, LARGEST = 24, 16, np.float32(4.0)


class Encoded(NamedTuple):
    """Numbers as inputs, their levels among train's values, their ranks within the list."""

    inputs: Float32[np.ndarray, "..."]
    level: Float32[np.ndarray, "..."]
    rank: Float32[np.ndarray, "..."]


class Listed(NamedTuple):
    """What there is to read of N candidates and of the T pairs i < j."""

    candidates: Float32[np.ndarray, "B N D"]
    categories: Int64[np.ndarray, "B N C"]
    context: Float32[np.ndarray, "B Q"]
    context_categories: Int64[np.ndarray, "B G"]
    pairs: Float32[np.ndarray, "B T P"]
    score: Float32[np.ndarray, "B N"]


class CardReader:
    """Reads the columns of batches on the scales that were fitted on train."""

    def __init__(self, scales: Mapping[str, np.ndarray], sizes: InputSizes, context_of_pairs: bool) -> None:
        self.sizes, self.context_of_pairs = sizes, context_of_pairs
        self._scales = {name: np.asarray(array, np.float32) for name, array in scales.items()}
        self._features_are_numbers = sizes.item_feature_size <= MOST_NUMBERS
        self._reads_places = sizes.placed and sizes.shown == "list"

    def __call__(self, batch: Batch) -> Listed:
        """All candidates and pairs."""
        sizes, present = self.sizes, batch.present
        numbers = self._encoded("numbers", self._numbers(batch), present)
        codes = _codes(
            batch.item.shape,
            (batch.item_categories, sizes.item_categories, "item"),
            (batch.candidate_categories, sizes.candidate_categories, "candidate"),
        )
        parts = [numbers.inputs]
        if not self._features_are_numbers:
            parts.append(_given(batch.item_features, "item features", sizes.item_feature_size))
        if sizes.item_vector_size:
            parts.append(_given(batch.item_vectors, "item vectors", sizes.item_vector_size))
        pairs, of_pairs = self._pairs(batch, numbers, codes)
        score = np.zeros(batch.item.shape, np.float32)
        if sizes.scored:
            assert batch.score is not None
            score = (batch.score - self._scales["score_mean"]) / self._scales["score_deviation"]
            score = np.nan_to_num(score).astype(np.float32)
        context = [self._encoded("context_numbers", self._context_numbers(batch), None).inputs]
        if sizes.user_feature_size:
            context.append(_given(batch.user_features, "user features", sizes.user_feature_size))
        context_codes = _codes(
            batch.user.shape,
            (batch.context_categories, sizes.context_categories, "context"),
            (batch.user_categories, sizes.user_categories, "user"),
        )
        return Listed(
            np.concatenate([*parts, of_pairs], -1),
            codes,
            np.concatenate(context, -1),
            context_codes,
            pairs,
            score,
        )

    def _numbers(self, batch: Batch) -> Float32[np.ndarray, "B N F"]:
        sizes = self.sizes
        parts = [np.zeros((*batch.item.shape, 0), np.float32)]
        if sizes.candidate_numbers:
            parts.append(_given(batch.candidate_numbers, "candidate numbers", sizes.candidate_numbers))
        if sizes.scored:
            parts.append(_given(batch.score, "scores")[..., None])
        if self._reads_places:
            parts.append(_given(batch.position, "positions")[..., None])
        if sizes.item_feature_size and self._features_are_numbers:
            parts.append(_given(batch.item_features, "item features", sizes.item_feature_size))
        return np.concatenate(parts, -1, dtype=np.float32)

    def _context_numbers(self, batch: Batch) -> Float32[np.ndarray, "B X"]:
        own = [batch.present.sum(1, keepdims=True).astype(np.float32)]
        if self.sizes.context_numbers:
            own.append(_given(batch.context_numbers, "context numbers", self.sizes.context_numbers))
        return np.concatenate(own, -1, dtype=np.float32)

    def _encoded(self, name: str, values: np.ndarray, present: Bool[np.ndarray, "B N"] | None) -> Encoded:
        """As `models.columns.Numbers` has it."""
        knots, used = self._scales[f"{name}.knots"], self._scales[f"{name}.used"]
        known = ~np.isnan(values)
        filled = np.where(known, values, np.float32(0))
        low, width = knots[:, :-1], knots[:, 1:] - knots[:, :-1]
        pieces = np.clip((filled[..., None] - low) / width, 0, 1) * known[..., None]
        level = pieces.sum(-1) / used
        parts = [pieces.reshape(*values.shape[:-1], -1), (~known).astype(np.float32)]
        if present is None:
            return Encoded(np.concatenate(parts, -1), level, np.zeros_like(level))
        known = known & present[..., None]
        count = np.maximum(known.sum(1, keepdims=True), 1)
        centred = (level - (level * known).sum(1, keepdims=True) / count) * known
        rank = ranks_within(values, known)
        return Encoded(np.concatenate([*parts, 2 * centred, rank], -1, dtype=np.float32), level, rank)

    def _pairs(
        self, batch: Batch, numbers: Encoded, codes: Int64[np.ndarray, "B N C"]
    ) -> tuple[Float32[np.ndarray, "B T P"], Float32[np.ndarray, "B N A"]]:
        """Pairs i < j, and what each candidate's pairs are like where these are context, too."""
        N, P = batch.item.shape[1], self.sizes.pair_features
        i, j = np.triu_indices(N, 1)
        level, rank, present = numbers.level[..., :MOST_GAPS], numbers.rank[..., :MOST_GAPS], batch.present
        parts, of_pairs = [], np.zeros((*batch.item.shape, 0), np.float32)
        if P:
            given = _given(batch.pair_features, "pair features", P)
            two = present[:, :, None] & present[:, None, :] & ~np.eye(N, dtype=bool)
            known = ~np.isnan(given) & two[..., None]
            z = (np.nan_to_num(given) - self._scales["pair_mean"]) / self._scales["pair_deviation"]
            z = np.clip(z, -LARGEST, LARGEST) * known
            centred = (z - _mean(z, known, (1, 2))) * known
            parts += [z[:, i, j], centred[:, i, j], (~known[:, i, j]).astype(np.float32)]
            if self.context_of_pairs:
                of_pairs = _of_pairs(centred, known)
        parts += [2 * np.abs(level[:, i] - level[:, j]), np.abs(rank[:, i] - rank[:, j])]
        parts.append(((codes[:, i] == codes[:, j]) & (codes[:, i] > 0)).astype(np.float32))
        both = (present[:, i] & present[:, j])[..., None]
        return np.concatenate(parts, -1, dtype=np.float32) * both, of_pairs


def ranks_within(values: np.ndarray, known: np.ndarray) -> Float32[np.ndarray, "B N F"]:
    """From -1, the least of its list, to 1; equals share the middle of their ranks, and a missing value has 0."""
    held = np.where(known, values, np.float32(np.nan))
    above = (held[:, :, None] > held[:, None, :]).sum(2)
    below = (held[:, :, None] < held[:, None, :]).sum(2)
    count = np.maximum(known.sum(1, keepdims=True) - 1, 1)
    return np.asarray((above - below) / count * known, np.float32)


def _of_pairs(
    centred: Float32[np.ndarray, "B N N P"], known: Bool[np.ndarray, "B N N P"]
) -> Float32[np.ndarray, "B N A"]:
    any_known = known.any(2)
    mean = _mean(centred, known, (2,))[:, :, 0]
    best = np.where(any_known, np.where(known, centred, -np.inf).max(2), 0)
    return np.concatenate([mean, best, any_known], -1, dtype=np.float32)


def _mean(values: np.ndarray, known: np.ndarray, over: tuple[int, ...]) -> np.ndarray:
    counted = np.maximum(known.sum(over, keepdims=True), 1).astype(np.float32)
    return np.asarray((values * known).sum(over, keepdims=True) / counted)


def _given(values: np.ndarray | None, name: str, size: int | None = None) -> np.ndarray:
    """The batch's columns; others than the model was trained with are refused by name."""
    if values is None or (size is not None and values.shape[-1] != size):
        given = "none" if values is None else str(values.shape[-1])
        raise InputError(
            f"this model reads {'' if size is None else f'{size} '}{name}, the batch has {given}"
        )
    return values


def _codes(shape: tuple[int, ...], *columns: tuple[np.ndarray | None, tuple[int, ...], str]) -> np.ndarray:
    parts = [_given(codes, f"{kind} categories", len(sizes)) for codes, sizes, kind in columns if sizes]
    return np.concatenate([np.zeros((*shape, 0), np.int64), *parts], -1, dtype=np.int64)
