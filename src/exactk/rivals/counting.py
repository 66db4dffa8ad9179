"""Methods without a gradient: chance, what only counts, and what runs today: the logged policy and the upstream score.

A log without the column they read is said so, and their row is left out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Float64, Int, Int64
from torch import Tensor

from exactk.errors import InputError
from exactk.problem.batch import Batch
from exactk.rivals.contract import Budget, CardPicker, Logs, Setting, TrainedMethod, tuned
from exactk.rivals.selection import MMR, Exact, Greedy, Judge, Scorer, by_weight, diversified, scatter
from exactk.tensors import TensorBatch

BLOCK = 4_000_000  # pairs gathered before they are merged: bounds memory on long logs


def fit_random(train: Logs, valid: Logs, budget: Budget) -> TrainedMethod:  # noqa: ARG001 - the contract
    """Random valid cards: the same one however often and in whatever order one asks."""
    return TrainedMethod({"random": Greedy(lambda batch: scatter(batch.item, batch.user, budget.seed))})


@dataclass(frozen=True)
class ItemCounts:
    """How often each item was clicked, shown on a card, offered; in each fold of the rows (row number modulo F)."""

    clicked: Float64[np.ndarray, "F I"]
    shown: Float64[np.ndarray, "F I"]
    offered: Float64[np.ndarray, "F I"]

    @classmethod
    def of(cls, train: Logs, folds: int = 1) -> ItemCounts:
        num_items = train.vocabulary.num_items

        def counted(places: Int[np.ndarray, "_"]) -> Int[np.ndarray, "F I"]:
            return np.bincount(places, minlength=folds * num_items).reshape(folds, num_items)

        clicked, shown, offered = np.zeros((3, folds, num_items))
        row = 0
        for batch in train.batches(4096):
            fold = (row + np.arange(len(batch))) % folds
            row += len(batch)
            place = fold[:, None] * num_items + batch.item
            offered += counted(place[batch.present])
            if batch.card is not None:
                shown += counted(np.take_along_axis(place, batch.card.clip(0), 1)[batch.card >= 0])
            assert batch.clicks is not None
            clicked += counted(place[batch.clicks > 0])
        for counts in (clicked, shown, offered):
            counts[:, 0] = 0.0  # out of vocabulary: nothing is known
        return cls(clicked, shown, offered)

    def rate(self, smoothing: float, among: str) -> Float64[np.ndarray, "I"]:
        """(clicks + smoothing * mean rate) / (times + smoothing): an item never met has the mean rate."""
        clicks, times = self.clicked.sum(0), (self.shown if among == "shown" else self.offered).sum(0)
        mean = clicks.sum() / max(times.sum(), 1.0)
        return np.asarray((clicks + smoothing * mean) / (times + smoothing))


POPULARITY: list[Setting] = [
    {"smoothing": 5.0, "among": "offered"},
    {"smoothing": 5.0, "among": "shown"},
    {"smoothing": 20.0, "among": "shown"},
    {"smoothing": 1.0, "among": "offered"},
    {"smoothing": 50.0, "among": "shown"},
]


def fit_popularity(train: Logs, valid: Logs, budget: Budget) -> TrainedMethod:
    """The smoothed positive rate of each item, the same for everyone."""
    counts, judge = ItemCounts.of(train), Judge.of(valid, budget)

    def attempt(setting: Setting) -> tuple[Scorer, float]:
        rate = torch.from_numpy(counts.rate(setting["smoothing"], setting["among"]))

        def rates(batch: TensorBatch) -> Float64[Tensor, "B N"]:
            return rate[batch.item]

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
    """Counts of keys with one more count for each of `more`."""
    every = np.concatenate([keys, *more])
    weight = np.concatenate([times, *(np.ones(len(part), np.int64) for part in more)])
    unique, place = np.unique(every, return_inverse=True)
    return unique, np.bincount(place, weight, minlength=len(unique)).astype(np.int64)


@dataclass(frozen=True)
class LoggedCards:
    """The card as it was shown; where the log keeps none, the first K of the list as it was shown."""

    def recommend(self, batch: Batch) -> Int[np.ndarray, "B K"]:
        """One card per request: not ours to make valid, it is what happened."""
        if batch.card is not None and (batch.card >= 0).any():
            return batch.card
        return Greedy(by_position).recommend(batch)


def by_position(batch: TensorBatch) -> Float64[Tensor, "B N"]:
    """The higher in the list, the better; where nobody knows, last."""
    if batch.position is None:
        return torch.zeros(batch.item.shape, dtype=torch.float64)
    return -batch.position.double().nan_to_num(nan=1e6)


@dataclass(frozen=True)
class Column:
    """One column of numbers as the score; where it is missing, the lowest of the request."""

    column: int | None  # of `candidate_numbers`; None: the upstream score

    def __call__(self, batch: TensorBatch) -> Float[Tensor, "B N"]:
        held = batch.score if self.column is None else batch.candidate_numbers
        assert held is not None
        values = (held if self.column is None else held[..., self.column]).double()
        known = ~values.isnan() & batch.present
        lowest = values.masked_fill(~known, torch.inf).amin(1, keepdim=True)
        lowest = lowest.masked_fill(lowest.isinf(), 0.0)
        return torch.where(known, values, lowest - 1.0)


def fit_logged_policy(train: Logs, valid: Logs, budget: Budget) -> TrainedMethod:  # noqa: ARG001 - the contract
    """What was shown."""
    columns = train.vocabulary.columns
    if not train.view.signal.cards and "position" not in columns.measured.names:
        raise InputError("the log keeps no cards and no positions, so it does not say what was shown")
    return TrainedMethod({"logged policy": LoggedCards()})


def fit_upstream(train: Logs, valid: Logs, budget: Budget) -> TrainedMethod:
    """The upstream ranker's score: its top K, and the same with MMR over whatever says that items are alike."""
    if "score" not in train.vocabulary.columns.measured.names:
        raise InputError("the log has no column `score` of an upstream ranker")
    scorer: Scorer = Column(None)
    ways = by_weight("upstream score", scorer)
    if not train.vocabulary.columns.vector_size and not train.vocabulary.item_feature_size:
        return TrainedMethod(ways)
    mmr, chosen, score = diversified(MMR, scorer, vectors_of, Judge.of(valid, budget), budget)
    return TrainedMethod({**ways, "upstream score MMR": mmr}, chosen, score)


def vectors_of(batch: TensorBatch) -> Float[Tensor, "B N F"]:
    """What says how alike two candidates are: vectors of their texts, else their features."""
    found = batch.item_vectors if batch.item_vectors is not None else batch.item_features
    assert found is not None
    return found


def fit_popularity_so_far(train: Logs, valid: Logs, budget: Budget) -> TrainedMethod:  # noqa: ARG001 - the contract
    """Clicks per showing up to the moment of the request: knows items that train never met."""
    names = train.vocabulary.columns.candidate_numbers.names
    if "rate_so_far" not in names:
        raise InputError(
            "the log keeps no rolling counts; one with a row for each candidate and a timestamp does"
        )
    return TrainedMethod(by_weight("popularity so far", Column(names.index("rate_so_far"))))
