"""Bayesian factorisation machine on stars: an ordered probit by Gibbs sampling (library myfm), blended with likings.

Knows ratings and features, no cards. A user is its id, the films it rated and its profile; an item its id, its raters
and its genres: every pair of those interacts, and what is not known is averaged over instead of guessed.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from contextlib import redirect_stderr
from dataclasses import dataclass
from io import StringIO
from typing import Any

import numpy as np
import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from exactk.errors import MissingExtraError
from exactk.rivals.contract import Budget, Logs, TrainedMethod
from exactk.rivals.selection import Exact, Scorer
from exactk.tensors import TensorBatch
from exactk_lab.reproduce.graded import Graded, GradedRatings, item_features, user_features

STARS = {2.0: 1.0, 3.0: 1.0, 4.0: 1.0, 5.0: 1.0}  # grades 0 to 4: the ordered classes of the probit


@dataclass(frozen=True)
class Side:
    """What describes the users (or the items): a sparse matrix with a row for each, its columns in named groups."""

    rows: Any  # scipy's CSR
    groups: tuple[int, ...]

    @classmethod
    def of(
        cls,
        own: Int64[np.ndarray, "R"],
        other: Int64[np.ndarray, "R"],
        features: Float64[np.ndarray, "A F"],
        num_others: int,
    ) -> Side:
        """Ids, the others met in the ratings (each row of length one), features."""
        from scipy import sparse

        num_own = len(features)
        met = np.bincount(own, minlength=num_own).clip(1)
        company = sparse.csr_matrix((met[own] ** -0.5, (own, other)), (num_own, num_others))
        parts = [sparse.identity(num_own), company, sparse.csr_matrix(features)]
        return cls(sparse.hstack(parts).tocsr(), tuple(part.shape[1] for part in parts if part.shape[1]))


def library() -> Any:
    """myfm, or the reason it is not there."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it asks for its version by a deprecated package
            import myfm  # type: ignore[import-untyped, import-not-found, unused-ignore]
    except ImportError as error:
        raise MissingExtraError(
            "the Bayesian factorisation machine needs myfm: pip install 'exactk[ratings]'"
        ) from error
    return myfm


@dataclass(frozen=True)
class Probit:
    """An ordered probit over grades 0..G: P(grade > g) = Phi(score - cut_g); the score is a factorisation machine's."""

    rank: int = 10
    iterations: int = 200
    kept: int = 150

    def chance_of_most(
        self, ratings: GradedRatings, users: Side, items: Side, seed: int
    ) -> Float64[np.ndarray, "U I"]:
        """P(the highest grade) of every user and item, averaged over the kept samples."""
        from scipy.special import ndtr

        myfm = library()
        model = myfm.MyFMOrderedProbit(rank=self.rank, random_seed=seed)
        blocks = [
            myfm.RelationBlock(ratings.user, users.rows),
            myfm.RelationBlock(ratings.item, items.rows),
        ]
        with redirect_stderr(StringIO()):  # a progress bar of its own
            model.fit(
                None, ratings.grade.astype(np.int64), X_rel=blocks, n_iter=self.iterations,
                group_shapes=[*users.groups, *items.groups], n_kept_samples=self.kept,
            )  # fmt: skip
        weights, factors, cuts = model.w_samples, model.V_samples, model.cutpoint_samples
        chance = np.zeros((users.rows.shape[0], items.rows.shape[0]))
        for base, w, V, cut in zip(model.w0_samples, weights, factors, cuts, strict=True):
            chance += ndtr(base + scores(w, V, users.rows, items.rows) - cut[-1])
        return np.asarray(chance / len(weights), np.float64)


def scores(
    w: Float64[np.ndarray, "F"], V: Float64[np.ndarray, "F r"], users: Any, items: Any
) -> Float64[np.ndarray, "U I"]:
    """A factorisation machine of all users with all items: sum of w x + sum over pairs of features of <v, v'> x x'."""
    cut = users.shape[1]
    alone, shared = [], []
    for rows, part in ((users, slice(None, cut)), (items, slice(cut, None))):
        summed = rows @ V[part]  # A r
        squares = rows.multiply(rows) @ (V[part] ** 2)
        alone.append(rows @ w[part] + 0.5 * (summed**2 - squares).sum(1))  # pairs within the one side
        shared.append(summed)
    return np.asarray(alone[0][:, None] + alone[1][None] + shared[0] @ shared[1].T, np.float64)


@dataclass(frozen=True)
class NumberTable:
    """A number for every user and item."""

    values: Float64[np.ndarray, "U I"]

    def __call__(self, batch: TensorBatch) -> Float64[Tensor, "B N"]:
        """Those of the candidates."""
        return torch.from_numpy(self.values[batch.user.numpy()[:, None], batch.item.numpy()])


@dataclass(frozen=True)
class Blend:
    """Several scorers, each standardised over a request's candidates, in equal parts."""

    parts: tuple[Scorer, ...]

    def __call__(self, batch: TensorBatch) -> Float64[Tensor, "B N"]:
        """The mean of what they say."""
        return torch.stack([standardised(part(batch).double(), batch) for part in self.parts]).mean(0)


def standardised(scores: Float64[Tensor, "B N"], batch: TensorBatch) -> Float64[Tensor, "B N"]:
    """Mean 0 and deviation 1 over the candidates of each request."""
    present = batch.present
    count = present.sum(1, keepdim=True).clamp(min=1)
    centred = (scores - scores.masked_fill(~present, 0.0).sum(1, keepdim=True) / count).masked_fill(
        ~present, 0.0
    )
    spread = (centred.square().sum(1, keepdim=True) / count).sqrt()
    return centred / spread.clamp(min=1e-9)


@dataclass(frozen=True)
class Blended:
    """A fit(train, valid, budget): likings from several starts and the probit, blended."""

    likings: Graded
    probit: Probit
    starts: int = 3

    def __call__(self, train: Logs, valid: Logs, budget: Budget) -> TrainedMethod:  # noqa: ARG002 - the contract
        """Learn from ratings, pick the best valid cards exactly."""
        liked = GradedRatings.of(train, self.likings.weights)
        features = item_features(train)
        starts = tuple(
            self.likings.learned(liked, features, train, self.starts * budget.seed + start)
            for start in range(self.starts)
        )
        table = self.probit.chance_of_most(*self.described(train), seed=budget.seed)
        chosen: Mapping[str, Any] = {"starts": self.starts, "rank": self.probit.rank}
        return TrainedMethod({"exact": Exact(Blend((Mean(starts), NumberTable(table))))}, chosen)

    def described(self, train: Logs) -> tuple[GradedRatings, Side, Side]:
        """The stars as ordered classes, and both sides of them."""
        ratings = GradedRatings.of(train, STARS)
        U, I = train.vocabulary.num_users, train.vocabulary.num_items  # noqa: E741 - the letters of the shapes
        users = Side.of(ratings.user, ratings.item, user_features(train), I)
        return ratings, users, Side.of(ratings.item, ratings.user, item_features(train), U)


@dataclass(frozen=True)
class Mean:
    """The mean of scorers of one kind, as they are."""

    parts: tuple[Scorer, ...]

    def __call__(self, batch: TensorBatch) -> Float64[Tensor, "B N"]:
        """One number per candidate."""
        return torch.stack([part(batch) for part in self.parts]).mean(0)
