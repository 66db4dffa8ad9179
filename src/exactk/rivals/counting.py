"""Methods that only count: chance, popularity, and the leak probe "least seen with this user".

Know no gradient.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from exactk.rivals.contract import Budget, CardPicker, Logs, Setting, TrainedMethod, tuned
from exactk.rivals.selection import Exact, Greedy, Judge, by_weight, scatter
from exactk.tensors import TensorBatch

BLOCK = 4_000_000  # pairs gathered before they are merged: bounds memory on long logs


@dataclass(frozen=True)
class Chance:
    """Scores from a hash of user and item: the same card however often and in whatever order one asks."""

    seed: int

    def __call__(self, batch: TensorBatch) -> Float64[Tensor, "B N"]:
        """Uniform numbers."""
        return scatter(batch.item, batch.user, self.seed)


def fit_random(train: Logs, valid: Logs, budget: Budget) -> TrainedMethod:  # noqa: ARG001 - the contract
    """Random valid cards."""
    return TrainedMethod({"random": Greedy(Chance(budget.seed))})


@dataclass(frozen=True)
class Rates:
    """A number for every item of the vocabulary."""

    rate: Float64[np.ndarray, "I"]

    def __call__(self, batch: TensorBatch) -> Float64[Tensor, "B N"]:
        """Each candidate's number."""
        return torch.from_numpy(self.rate)[batch.item]


@dataclass(frozen=True)
class ItemCounts:
    """How often each item was clicked, shown on a card, offered as a candidate."""

    clicked: Float64[np.ndarray, "I"]
    shown: Float64[np.ndarray, "I"]
    offered: Float64[np.ndarray, "I"]

    def rate(self, smoothing: float, among: str) -> Float64[np.ndarray, "I"]:
        """(clicks + smoothing * mean rate) / (times + smoothing): an item never met has the mean rate."""
        times = self.shown if among == "shown" else self.offered
        mean = self.clicked.sum() / max(times.sum(), 1.0)
        rate: Float64[np.ndarray, "I"] = (self.clicked + smoothing * mean) / (times + smoothing)
        return rate


def count_items(train: Logs, batch_size: int = 4096) -> ItemCounts:
    """One pass over the log."""
    num_items = train.vocabulary.num_items
    clicked, shown, offered = (np.zeros(num_items) for _ in range(3))
    for batch in train.batches(batch_size):
        item = batch.item
        offered += np.bincount(item[batch.present], minlength=num_items)
        if batch.card is not None:
            card = batch.card
            shown += np.bincount(np.take_along_axis(item, card.clip(0), 1)[card >= 0], minlength=num_items)
        if batch.clicked_position is not None:
            at = batch.clicked_position
            clicked += np.bincount(item[np.arange(len(at)), at.clip(0)][at >= 0], minlength=num_items)
    for counts in (clicked, shown, offered):
        counts[0] = 0.0  # out of vocabulary: nothing is known
    return ItemCounts(clicked, shown, offered)


POPULARITY: list[Setting] = [
    {"smoothing": smoothing, "among": among}
    for smoothing, among in [
        (5.0, "offered"),
        (5.0, "shown"),
        (20.0, "shown"),
        (1.0, "offered"),
        (50.0, "shown"),
    ]
]


def fit_popularity(train: Logs, valid: Logs, budget: Budget) -> TrainedMethod:
    """The smoothed positive rate of each item, the same for everyone."""
    counts, judge = count_items(train), Judge.of(valid, budget)

    def attempt(setting: Setting) -> tuple[Rates, float]:
        rates = Rates(counts.rate(setting["smoothing"], setting["among"]))
        return rates, judge(Greedy(rates))

    rates, chosen, score = tuned(POPULARITY, budget, attempt)
    return TrainedMethod(by_weight("popularity", rates), chosen, score)


@dataclass(frozen=True)
class Familiarity:
    """How often each (user, item) pair was offered, as sorted keys user * num_items + item."""

    keys: Int64[np.ndarray, "P"]
    times: Int64[np.ndarray, "P"]
    num_items: int

    def __call__(self, batch: TensorBatch) -> Float64[Tensor, "B N"]:
        """Minus the number of meetings: the least seen scores highest."""
        wanted = batch.user.numpy()[:, None] * self.num_items + batch.item.numpy()
        at = np.searchsorted(self.keys, wanted).clip(max=max(len(self.keys) - 1, 0))
        met = (
            np.where(self.keys[at] == wanted, self.times[at], 0) if len(self.keys) else np.zeros(wanted.shape)
        )
        return torch.from_numpy(-met.astype(np.float64))


def fit_least_seen(train: Logs, valid: Logs, budget: Budget) -> TrainedMethod:  # noqa: ARG001 - the contract
    """The leak probe: candidates least often offered to this user in train. On honest data: chance."""
    keys, times = np.empty(0, np.int64), np.empty(0, np.int64)
    waiting: list[np.ndarray] = []
    for batch in train.batches(4096):
        pairs = batch.user[:, None] * train.vocabulary.num_items + batch.item
        waiting.append(pairs[batch.present])
        if sum(map(len, waiting)) > BLOCK:
            keys, times = merged(keys, times, waiting)
            waiting = []
    keys, times = merged(keys, times, waiting)
    ways: dict[str, CardPicker] = {"least seen": Exact(Familiarity(keys, times, train.vocabulary.num_items))}
    return TrainedMethod(ways)


def merged(
    keys: Int64[np.ndarray, "P"], times: Int64[np.ndarray, "P"], more: list[np.ndarray]
) -> tuple[Int64[np.ndarray, "Q"], Int64[np.ndarray, "Q"]]:
    """ItemCounts of keys with one more count for each of `more`."""
    every = np.concatenate([keys, *more])
    weight = np.concatenate([times, *(np.ones(len(part), np.int64) for part in more)])
    unique, place = np.unique(every, return_inverse=True)
    return unique, np.bincount(place, weight, minlength=len(unique)).astype(np.int64)
