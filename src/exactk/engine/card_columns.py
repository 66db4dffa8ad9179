"""A batch's columns as the members of a card value read them, in plain numpy: what `models.card_inputs` makes.

Knows the scales of train and no weights that were learned.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from exactk.engine.packing import Weights
from exactk.engine.shapes import MOST_GAPS, MOST_NUMBERS
from exactk.errors import InputError
from exactk.problem.batch import Batch
from exactk.settings.config import CardValueConfig, InputSizes

LARGEST = 4.0  # deviations, of a pair feature


class NumpyListInputs(NamedTuple):
    """The N candidates of each request, and the T = N (N - 1) / 2 pairs i < j of them."""

    candidates: Float[np.ndarray, "B N D"]
    categories: Int[np.ndarray, "B N C"]
    context: Float[np.ndarray, "B Q"]
    context_categories: Int[np.ndarray, "B G"]
    pairs: Float[np.ndarray, "B T P"]
    score: Float[np.ndarray, "B N"]


class NumpyEncodedNumbers(NamedTuple):
    """Numbers as inputs, and where each stands: its level among train's values (0 to 1) and its rank in the list."""

    inputs: Float[np.ndarray, "*S E"]
    level: Float[np.ndarray, "*S F"]
    rank: Float[np.ndarray, "*S F"]


class CardColumns:
    """Reads every column there is."""

    def __init__(self, weights: Weights, sizes: InputSizes, config: CardValueConfig) -> None:
        self._weights, self._sizes = weights, sizes
        self.attends = attends(config, sizes)
        self._context_of_pairs = self.attends and sizes.shown != "list"
        self._features_are_numbers = sizes.item_feature_size <= MOST_NUMBERS

    def __call__(self, batch: Batch) -> NumpyListInputs:
        """Of all candidates of a batch; what is relative is so to the list."""
        sizes = self._sizes
        numbers = self._encoded("numbers", self._numbers(batch), batch.present)
        none = np.zeros((*batch.item.shape, 0), np.int64)
        codes = np.concatenate(
            [
                none,
                *_codes(batch.item_categories, sizes.item_categories, "item"),
                *_codes(batch.candidate_categories, sizes.candidate_categories, "candidate"),
            ],
            -1,
        )
        parts = [numbers.inputs]
        if not self._features_are_numbers:
            parts.append(_given(batch.item_features, "item features", sizes.item_feature_size))
        if sizes.item_vector_size:
            parts.append(_given(batch.item_vectors, "item vectors", sizes.item_vector_size))
        pairs, of_pairs = self._pairs(batch, numbers, codes)
        score = np.zeros(batch.item.shape, np.float32)
        if sizes.scored:
            w = self._weights
            score = _known((_given(batch.score, "scores") - w["score_mean"]) / w["score_deviation"])
        return NumpyListInputs(
            np.concatenate([*parts, of_pairs], -1), codes, *self._context(batch), pairs, score
        )

    def _numbers(self, batch: Batch) -> Float[np.ndarray, "B N F"]:
        sizes, parts = self._sizes, [np.zeros((*batch.item.shape, 0), np.float32)]
        if sizes.candidate_numbers:
            parts.append(_given(batch.candidate_numbers, "candidate numbers", sizes.candidate_numbers))
        if sizes.scored:
            parts.append(_given(batch.score, "scores")[..., None])
        if sizes.placed and sizes.shown == "list":
            parts.append(_given(batch.position, "positions")[..., None])
        if sizes.item_feature_size and self._features_are_numbers:
            parts.append(_given(batch.item_features, "item features", sizes.item_feature_size))
        return np.concatenate(parts, -1).astype(np.float32, copy=False)

    def _context(self, batch: Batch) -> tuple[Float[np.ndarray, "B Q"], Int[np.ndarray, "B G"]]:
        """How many candidates there are, then the request's own numbers; its categories."""
        sizes, own = self._sizes, [batch.present.sum(1, keepdims=True).astype(np.float32)]
        if sizes.context_numbers:
            own.append(_given(batch.context_numbers, "context numbers", sizes.context_numbers))
        parts = [self._encoded("context_numbers", np.concatenate(own, -1).astype(np.float32), None).inputs]
        if sizes.user_feature_size:
            parts.append(_given(batch.user_features, "user features", sizes.user_feature_size))
        codes = [
            np.zeros((len(batch), 0), np.int64),
            *_codes(batch.context_categories, sizes.context_categories, "context"),
            *_codes(batch.user_categories, sizes.user_categories, "user"),
        ]
        return np.concatenate(parts, -1), np.concatenate(codes, -1)

    def _encoded(
        self, name: str, values: Float[np.ndarray, "*S F"], present: Bool[np.ndarray, "B N"] | None
    ) -> NumpyEncodedNumbers:
        """Each number by pieces of its own scale and a flag where it is missing; of a list its place, too."""
        knots, known = self._weights[f"{name}.knots"], ~np.isnan(values)
        low, high = knots[:, :-1], knots[:, 1:]
        pieces = ((_known(values)[..., None] - low) / (high - low)).clip(0, 1) * known[..., None]
        level = pieces.sum(-1) / self._weights[f"{name}.used"]
        parts = [pieces.reshape(*values.shape[:-1], -1), (~known).astype(np.float32)]
        if present is None:
            return NumpyEncodedNumbers(np.concatenate(parts, -1), level, np.zeros_like(level))
        known = known & present[..., None]
        centred = (level - _mean(level, known, (1,))) * known
        rank = ranks_within(values, known)
        return NumpyEncodedNumbers(np.concatenate([*parts, 2 * centred, rank], -1), level, rank)

    def _pairs(
        self, batch: Batch, numbers: NumpyEncodedNumbers, codes: Int[np.ndarray, "B N C"]
    ) -> tuple[Float[np.ndarray, "B T P"], Float[np.ndarray, "B N A"]]:
        """Pairs i < j, and for each candidate the mean and the best of its pairs where these are context, too."""
        N, P, present = batch.item.shape[1], self._sizes.pair_features, batch.present
        i, j = np.triu_indices(N, 1)
        parts, of_pairs = [], np.zeros((*batch.item.shape, 0), np.float32)
        if P:
            two = present[:, :, None] & present[:, None] & ~np.eye(N, dtype=bool)
            z, known = self._standardised(_given(batch.pair_features, "pair features", P), two)
            if self._context_of_pairs:
                of_pairs = _of_pairs(z, known)
            own = [z, z - _mean(z, known, (1, 2)) * known, (~known).astype(np.float32)]
            parts.append(np.concatenate(own, -1)[:, i, j])
        level, rank = numbers.level[..., :MOST_GAPS], numbers.rank[..., :MOST_GAPS]
        parts += [2 * np.abs(level[:, i] - level[:, j]), np.abs(rank[:, i] - rank[:, j])]
        parts.append(((codes[:, i] == codes[:, j]) & (codes[:, i] > 0)).astype(np.float32))
        return np.concatenate(parts, -1) * (present[:, i] & present[:, j])[..., None], of_pairs

    def _standardised(
        self, given: Float[np.ndarray, "B N N P"], two: Bool[np.ndarray, "B N N"]
    ) -> tuple[Float[np.ndarray, "B N N P"], Bool[np.ndarray, "B N N P"]]:
        known, w = ~np.isnan(given) & two[..., None], self._weights
        z = ((_known(given) - w["pair_mean"]) / w["pair_deviation"]).clip(-LARGEST, LARGEST)
        return (z * known).astype(np.float32, copy=False), known


def attends(config: CardValueConfig, sizes: InputSizes) -> bool:
    """Whether candidates see each other: only what a user saw can have swayed a click."""
    return config.attention == "always" or (config.attention == "auto" and sizes.shown != "card")


def ranks_within(
    values: Float[np.ndarray, "B N F"], known: Bool[np.ndarray, "B N F"]
) -> Float[np.ndarray, "B N F"]:
    """From -1, the least of its list, to 1; equals share the middle of their ranks, and a missing value has 0."""
    held = np.where(known, values, np.inf)
    below = (held[:, None] < held[:, :, None]).sum(2)  # B N F: how many of the list are less
    not_above = (held[:, None] <= held[:, :, None]).sum(2)
    count = known.sum(1, keepdims=True)
    rank = (below + not_above - count) / np.maximum(count - 1, 1)
    return np.asarray(rank * known, np.float32)


def _of_pairs(
    z: Float[np.ndarray, "B N N P"], known: Bool[np.ndarray, "B N N P"]
) -> Float[np.ndarray, "B N A"]:
    """Of each candidate: mean and best of its pairs, less the list's mean, and whether it has any."""
    centred = (z - _mean(z, known, (1, 2))) * known
    any_known = known.any(2)
    mean = _mean(centred, known, (2,))[:, :, 0]
    best = np.where(any_known, np.where(known, centred, -np.inf).max(2), 0.0)
    return np.concatenate([mean, best, any_known], -1).astype(np.float32)


def _mean(values: np.ndarray, known: np.ndarray, over: tuple[int, ...]) -> np.ndarray:
    total = (values * known).sum(over, keepdims=True)
    return np.asarray(total / np.maximum(known.sum(over, keepdims=True), 1))


def _known(values: np.ndarray) -> np.ndarray:
    return np.asarray(np.nan_to_num(values))


def _given(values: np.ndarray | None, name: str, size: int | None = None) -> np.ndarray:
    """The batch's columns; others than the model was trained with are refused by name."""
    if values is None or (size is not None and values.shape[-1] != size):
        given = "none" if values is None else str(values.shape[-1])
        raise InputError(
            f"this model reads {'' if size is None else f'{size} '}{name}, the batch has {given}"
        )
    return values


def _codes(codes: np.ndarray | None, sizes: tuple[int, ...], kind: str) -> list[np.ndarray]:
    return [_given(codes, f"{kind} categories", len(sizes))] if sizes else []
