"""Other people's libraries as rivals: LambdaRank of LightGBM's trees; ALS and BPR of implicit.

Know no lists: the trees see features and counts (those of a training row leave its own fold out), the factors one user
and one item.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float32, Float64, Int
from torch import Tensor

from exactk.errors import MissingExtraError
from exactk.problem.batch import Batch
from exactk.rivals.contract import Budget, Logs, Setting, TrainedMethod, marked, tuned
from exactk.rivals.counting import ItemCounts
from exactk.rivals.selection import Greedy, Judge, by_weight
from exactk.tensors import TensorBatch

FOLDS = 5
SMOOTHING = 10.0
SETTINGS: list[Setting] = [
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

    settings = [setting for setting in SETTINGS if train.passed_over or setting["among"] == "candidates"]
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

    def model(setting: Setting) -> Any:
        return library("implicit").als.AlternatingLeastSquares(
            **setting, iterations=budget.epochs, num_threads=1, random_state=budget.seed
        )

    return _implicit("implicit ALS", settings, model, train, valid, budget)


def fit_implicit_bpr(train: Logs, valid: Logs, budget: Budget) -> TrainedMethod:
    """BPR on the clicks with negatives from the whole catalogue."""
    settings = [
        {"factors": factors, "learning_rate": rate, "regularization": 0.01}
        for factors, rate in [(32, 0.05), (16, 0.01), (64, 0.05), (32, 0.1)]
    ]

    def model(setting: Setting) -> Any:
        return library("implicit").bpr.BayesianPersonalizedRanking(
            **setting, iterations=10 * budget.epochs, num_threads=1, random_state=budget.seed
        )

    return _implicit("implicit BPR", settings, model, train, valid, budget)


def _implicit(
    name: str, settings: list[dict[str, Any]], model: Any, train: Logs, valid: Logs, budget: Budget
) -> TrainedMethod:
    library("implicit")
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped, unused-ignore]

    clicks, judge = click_matrix(train), Judge.of(valid, budget)

    def attempt(setting: Setting) -> tuple[Dot, float]:
        with threadpool_limits(1, "blas"):  # implicit is slow beside a pool of BLAS, and says so loudly
            learned = model(setting)
            learned.fit(clicks, show_progress=False)
        user, item = (np.asarray(f, np.float32) for f in (learned.user_factors, learned.item_factors))
        user[0] = item[0] = 0.0
        scorer = Dot(user, item)
        return scorer, judge(Greedy(scorer))

    scorer, chosen, score = tuned(settings, budget, attempt)
    return TrainedMethod(by_weight(name, scorer), chosen, score)
