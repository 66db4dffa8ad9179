"""Every column of a log as plain features, so that rivals read what our own models read.

Knows no rival. A rival of ids and features gets, for each candidate: its numbers standardised, whether they are
missing, how they differ from the rest of the list and how they rank in it, its categories, its vectors; and the
context beside the user.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import wraps

import numpy as np
import torch
from jaxtyping import Float, Float32, Int

from exactk.data.columns.vocabulary import FittedColumns, FittedNumbers
from exactk.models.card_inputs import ranks_within
from exactk.problem.batch import Batch
from exactk.rivals.contract import Budget, CardPicker, Logs, Method, TrainedMethod

FARTHEST = 4.0  # deviations from the mean; beyond it numbers are cut off
BUCKETS = 32  # a category of more values is folded into so many


@dataclass(frozen=True)
class Widening:
    """Batches in one vocabulary with all columns joined into `item_features` and `user_features`."""

    columns: FittedColumns

    def __call__(self, batch: Batch) -> Batch:
        B, N = batch.item.shape
        own = [] if batch.item_features is None else [batch.item_features]
        item = [*own, *self._numbers(batch), *self._ones(batch, "candidate_categories", "item_categories")]
        if batch.item_vectors is not None:
            item.append(batch.item_vectors)
        # A user without features is no reason to read none of the items.
        user = [np.zeros((B, 1), np.float32)]
        user += [] if batch.user_features is None else [batch.user_features]
        if batch.context_numbers is not None:
            user += standardised(batch.context_numbers, self.columns.context_numbers)
        user += self._ones(batch, "context_categories", "user_categories")
        return replace(
            batch,
            item_features=joined(item, (B, N)) * batch.present[..., None],
            user_features=joined(user, (B,)),
        )

    def _numbers(self, batch: Batch) -> list[Float32[np.ndarray, "B N f"]]:
        """Numbers of candidates, and where they were shown and how scored: as they are, and within the list."""
        held: list[tuple[np.ndarray, FittedNumbers]] = []
        if batch.candidate_numbers is not None:
            held.append((batch.candidate_numbers, self.columns.candidate_numbers))
        for row, name in enumerate(self.columns.measured.names):
            column = getattr(batch, name)
            if column is not None and name != "reward":  # what came of the request is not known before it
                held.append((column[..., None], row_of(self.columns.measured, row)))
        parts: list[np.ndarray] = []
        for values, spread in held:
            values = np.where(batch.present[..., None], values, np.nan)
            parts += standardised(values, spread)
            parts += within_list(values, spread)
        return parts

    def _ones(self, batch: Batch, *names: str) -> list[Float32[np.ndarray, "*S f"]]:
        """Categories as columns of ones and zeros."""
        held = [(getattr(batch, name), getattr(self.columns, name).sizes) for name in names]
        return [part for codes, sizes in held if codes is not None for part in one_hot(codes, sizes)]


def standardised(
    values: Float[np.ndarray, "*S F"], spread: FittedNumbers
) -> list[Float32[np.ndarray, "*S F"]]:
    """(x - mean) / deviation of train, 0 where missing; and 1 where missing."""
    missing = np.isnan(values)
    apart = np.where(missing, 0.0, values - spread.mean) / spread.deviation
    scaled = np.clip(apart, -FARTHEST, FARTHEST)
    return [scaled.astype(np.float32), missing.astype(np.float32)]


def within_list(
    values: Float[np.ndarray, "B N F"], spread: FittedNumbers
) -> list[Float32[np.ndarray, "B N F"]]:
    """Difference from the list's mean, on the scale of train's quantiles; and the rank within it, -1 to 1.

    Of the prices 10, 30, 20 the ranks are -1, 1, 0; equal values share the middle of their ranks.
    """
    level = np.stack([spread.level(f, values[..., f]) for f in range(len(spread))], -1)
    known = ~np.isnan(level)
    count = known.sum(1, keepdims=True)
    mean = np.where(known, level, 0.0).sum(1, keepdims=True) / np.maximum(count, 1)
    rank = ranks_within(torch.from_numpy(values), torch.from_numpy(known)).numpy()
    return [np.where(known, level - mean, 0.0).astype(np.float32), rank.astype(np.float32)]


def one_hot(codes: Int[np.ndarray, "*S C"], sizes: Sequence[int]) -> list[Float32[np.ndarray, "*S f"]]:
    """A column of ones and zeros for each value; many values share a few columns, by their code."""
    found = []
    for column, size in enumerate(sizes):
        width = min(size, BUCKETS)
        code = codes[..., column]
        place = np.where(code > 0, (code - 1) % max(width - 1, 1) + 1, 0)
        found.append(np.eye(width, dtype=np.float32)[np.minimum(place, width - 1)])
    return found


def joined(parts: Sequence[np.ndarray], shape: tuple[int, ...]) -> Float32[np.ndarray, "..."]:
    """Side by side; no columns where there are none."""
    if not parts:
        return np.zeros((*shape, 0), np.float32)
    return np.concatenate(parts, -1).astype(np.float32, copy=False)


def row_of(numbers: FittedNumbers, row: int) -> FittedNumbers:
    """One column by itself."""
    at = slice(row, row + 1)
    return FittedNumbers(
        numbers.names[at], numbers.mean[at], numbers.deviation[at], numbers.missing[at], numbers.quantiles[at]
    )


@dataclass(frozen=True)
class Wide:
    """A recommender that was taught by widened batches, reading plain ones."""

    way: CardPicker
    widen: Widening

    def recommend(self, batch: Batch) -> Int[np.ndarray, "B K"]:
        return self.way.recommend(self.widen(batch))


def reading_columns(fit: Method) -> Method:
    """The same method, reading every column of a log that has columns."""

    @wraps(fit)
    def with_columns(train: Logs, valid: Logs, budget: Budget) -> TrainedMethod:
        if not train.vocabulary.columns:
            return fit(train, valid, budget)
        widen = Widening(train.vocabulary.columns)
        fitted = fit(train.widened(widen), valid.widened(widen), budget)
        return replace(fitted, ways={name: Wide(way, widen) for name, way in fitted.ways.items()})

    return with_columns
