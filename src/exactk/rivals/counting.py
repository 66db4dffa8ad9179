"""Methods without a network: chance, what only counts, what runs today (logged policy, upstream score), and libraries.

A log without the column they read is said so, and their row is left out. LightGBM's LambdaRank sees features and
counts (those of a training row leave its own fold out); ALS and BPR of implicit see one user and one item.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float32, Float64, Int, Int64
from torch import Tensor

from exactk.errors import InputError, MissingExtraError
from exactk.problem.batch import Batch
from exactk.rivals.contract import Budget, CardPicker, Logs, Setting, TrainedMethod, marked, tuned
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


FOLDS = 5
SMOOTHING = 10.0
LAMBDARANK: list[Setting] = [
    {"among": "candidates", "num_leaves": 31, "learning_rate": 0.05},
    {"among": "shown", "num_leaves": 31, "learning_rate": 0.05},
    {"among": "candidates", "num_leaves": 7, "learning_rate": 0.05},
    {"among": "shown", "num_leaves": 7, "learning_rate": 0.05},
]


def rates(
    counts: ItemCounts, item: Int[np.ndarray, "B N"], fold: Int[np.ndarray, "B"] | None
) -> tuple[Float64[np.ndarray, "B N"], Float64[np.ndarray, "B N"]]:
    """Smoothed click rate and number of showings of each candidate; a row's own fold left out."""
    clicks, times = counts.clicked.sum(0)[item], counts.shown.sum(0)[item]
    if fold is not None:
        clicks = clicks - counts.clicked[fold[:, None], item]
        times = times - counts.shown[fold[:, None], item]
    mean = counts.clicked.sum() / max(counts.shown.sum(), 1.0)
    return (clicks + SMOOTHING * mean) / (times + SMOOTHING), times


def described(
    batch: Batch, counts: ItemCounts, fold: Int[np.ndarray, "B"] | None = None
) -> Float32[np.ndarray, "B N F"]:
    """What the trees see of each candidate: rate, showings, how the rate compares, all features."""
    rate, times = rates(counts, batch.item, fold)
    present = batch.present
    usual = np.where(present, rate, 0).sum(1, keepdims=True) / np.maximum(present.sum(1, keepdims=True), 1)
    columns = [np.stack([rate, np.log1p(times), rate - usual], -1).astype(np.float32)]
    if batch.item_features is not None:
        columns.append(batch.item_features)
    if batch.user_features is not None:
        user = batch.user_features[:, None, :]
        columns.append(np.broadcast_to(user, (*batch.item.shape, user.shape[-1])))
    return np.concatenate(columns, -1).astype(np.float32, copy=False)


@dataclass(frozen=True)
class TreeRows:
    """Rows for the trees: one per item, grouped by request."""

    features: Float32[np.ndarray, "R F"]
    label: Float32[np.ndarray, "R"]
    group: Int[np.ndarray, "G"]

    @classmethod
    def of(cls, logs: Logs, counts: ItemCounts, among: str, num_requests: int, own_fold: bool) -> TreeRows:
        """Clicked requests only: a group without a click teaches a ranker nothing."""
        features, label, group = [], [], []
        where = logs.clicked_places()[:num_requests]
        chosen, done = replace(logs, view=logs.view.take(where)), 0
        for batch in chosen.batches(4096):
            assert batch.card is not None
            assert batch.clicks is not None
            fold = where[done : done + len(batch)] % FOLDS if own_fold else None
            done += len(batch)
            counted = marked(batch.card, batch.item.shape[1]) > 0 if among == "shown" else batch.present
            counted = counted & batch.clicks.any(axis=1, keepdims=True)
            features.append(described(batch, counts, fold)[counted])
            label.append(batch.clicks[counted])
            sizes = counted.sum(1)
            group.append(sizes[sizes > 0])
        return cls(np.concatenate(features), np.concatenate(label), np.concatenate(group))


@dataclass(frozen=True)
class Trees:
    """A fitted booster as a scorer."""

    booster: Any
    counts: ItemCounts

    def __call__(self, batch: TensorBatch) -> Float64[Tensor, "B N"]:
        features = described(batch.arrays(), self.counts)
        scores = self.booster.predict(features.reshape(-1, features.shape[-1]), num_threads=1)
        return torch.from_numpy(np.asarray(scores, np.float64).reshape(batch.item.shape))


def library(name: str) -> Any:
    """Somebody else's library, or the reason it is not there."""
    try:
        return import_module(name)
    except ImportError as error:
        raise MissingExtraError(f"this rival needs '{name}': pip install 'exactk[rivals]'") from error


def fit_lambdarank(train: Logs, valid: Logs, budget: Budget) -> TrainedMethod:
    """LambdaRank, stopped early on the validation split."""
    lightgbm = library("lightgbm")
    counts, judge = ItemCounts.of(train, FOLDS), Judge.of(valid, budget)

    def attempt(setting: Setting) -> tuple[Trees, float]:
        among = setting["among"]
        rows = TreeRows.of(train, counts, among, budget.tree_requests, own_fold=True)
        held = TreeRows.of(valid, counts, among, budget.validation_rows, own_fold=False)
        data = lightgbm.Dataset(rows.features, rows.label, group=rows.group, free_raw_data=True)
        check = data.create_valid(held.features, held.label, group=held.group)
        parameters = {
            "objective": "lambdarank", "metric": "ndcg", "eval_at": [train.card_size], "verbose": -1,
            "num_leaves": setting["num_leaves"], "learning_rate": setting["learning_rate"],
            "min_data_in_leaf": 20, "seed": budget.seed, "num_threads": 1, "deterministic": True,
            "force_row_wise": True,
        }  # fmt: skip
        stop = lightgbm.early_stopping(5 * budget.patience, verbose=False)
        booster = lightgbm.train(parameters, data, 30 * budget.epochs, valid_sets=[check], callbacks=[stop])
        scorer = Trees(booster, counts)
        return scorer, judge(Greedy(scorer))

    settings = [setting for setting in LAMBDARANK if train.passed_over or setting["among"] == "candidates"]
    scorer, chosen, score = tuned(settings, budget, attempt)
    return TrainedMethod(by_weight("LambdaRank", scorer), chosen, score)


@dataclass(frozen=True)
class Dot:
    """Scores from given factors; row 0, the unknown, is zero."""

    user: Float32[np.ndarray, "U r"]
    item: Float32[np.ndarray, "I r"]

    def __call__(self, batch: TensorBatch) -> Float[Tensor, "B N"]:
        user, item = self.user[batch.user.numpy()], self.item[batch.item.numpy()]
        return torch.from_numpy(np.einsum("br,bnr->bn", user, item, dtype=np.float64))


def click_matrix(train: Logs) -> Any:
    """Users by items, how often each user clicked each item; unknowns left out."""
    from scipy import sparse

    users, items = [], []
    for batch in train.clicked_only().batches(4096):
        assert batch.clicks is not None
        rows, at = np.nonzero(batch.clicks)
        users.append(batch.user[rows])
        items.append(batch.item[rows, at])
    user = np.concatenate([*users, np.empty(0, np.int64)])
    item = np.concatenate([*items, np.empty(0, np.int64)])
    keep = (user > 0) & (item > 0)
    shape = (train.vocabulary.num_users, train.vocabulary.num_items)
    return sparse.csr_matrix((np.ones(keep.sum(), np.float32), (user[keep], item[keep])), shape=shape)


def fit_implicit_als(train: Logs, valid: Logs, budget: Budget) -> TrainedMethod:
    """Alternating least squares on the clicks (Hu, Koren and Volinsky 2008)."""
    settings = [
        {"factors": factors, "regularization": ridge, "alpha": alpha}
        for factors, ridge, alpha in [(32, 1.0, 5.0), (16, 10.0, 5.0), (64, 0.1, 1.0), (32, 10.0, 20.0)]
    ]
    make = partial(library("implicit").als.AlternatingLeastSquares, iterations=budget.epochs)
    return _implicit("implicit ALS", settings, make, train, valid, budget)


def fit_implicit_bpr(train: Logs, valid: Logs, budget: Budget) -> TrainedMethod:
    """BPR on the clicks with negatives from the whole catalogue."""
    settings = [
        {"factors": factors, "learning_rate": rate, "regularization": 0.01}
        for factors, rate in [(32, 0.05), (16, 0.01), (64, 0.05), (32, 0.1)]
    ]
    make = partial(library("implicit").bpr.BayesianPersonalizedRanking, iterations=10 * budget.epochs)
    return _implicit("implicit BPR", settings, make, train, valid, budget)


def _implicit(
    name: str, settings: list[dict[str, Any]], make: Any, train: Logs, valid: Logs, budget: Budget
) -> TrainedMethod:
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped, unused-ignore]

    clicks, judge = click_matrix(train), Judge.of(valid, budget)

    def attempt(setting: Setting) -> tuple[Dot, float]:
        with threadpool_limits(1, "blas"):  # implicit is slow beside a pool of BLAS, and says so loudly
            learned = make(**setting, num_threads=1, random_state=budget.seed)
            learned.fit(clicks, show_progress=False)
        user, item = (np.asarray(f, np.float32) for f in (learned.user_factors, learned.item_factors))
        user[0] = item[0] = 0.0
        scorer = Dot(user, item)
        return scorer, judge(Greedy(scorer))

    scorer, chosen, score = tuned(settings, budget, attempt)
    return TrainedMethod(by_weight(name, scorer), chosen, score)
