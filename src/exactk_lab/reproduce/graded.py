"""What ratings say beyond cards: likings learned from every graded rating of the train side, cards picked exactly.

Knows ratings and item features, no cards. Alternating least squares: each half-step is solved in closed form, so there
is no learning rate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from exactk.data.columns.vocabulary import Scaling
from exactk.rivals.contract import Budget, Logs, TrainedMethod
from exactk.rivals.selection import Exact
from exactk.tensors import TensorBatch

STEPS = 8


@dataclass(frozen=True)
class GradedRatings:
    """Graded ratings by vocabulary index."""

    user: Int64[np.ndarray, "R"]
    item: Int64[np.ndarray, "R"]
    grade: Float64[np.ndarray, "R"]

    @classmethod
    def of(cls, train: Logs, weights: Mapping[float, float]) -> GradedRatings:
        """The train side's ratings; a grade is the sum of the weights of the stars reached."""
        table = train.view.extra("ratings.parquet").combine_chunks()
        user = train.vocabulary.index_users(table["user_id"].combine_chunks())
        item = train.vocabulary.index_items(table["item_id"].combine_chunks())
        stars = table["rating"].to_numpy()
        grade = sum((weight * (stars >= star) for star, weight in weights.items()), np.zeros(len(stars)))
        known = (user > 0) & (item > 0)
        return cls(user[known], item[known], grade[known])


@dataclass(frozen=True)
class Likings:
    """b_i + <p_u, q_i> + <g_u, f_i>; row 0, the unknown, is zero."""

    bias: Float64[np.ndarray, "I"]
    user: Float64[np.ndarray, "U r"]
    item: Float64[np.ndarray, "I r"]
    tastes: Float64[np.ndarray, "U F"]  # g_u: how a user likes each feature; F = 0 without features

    def __call__(self, batch: TensorBatch) -> Float64[Tensor, "B N"]:
        """One number per candidate."""
        user, item = batch.user.numpy(), batch.item.numpy()
        score = self.bias[item] + np.einsum("br,bnr->bn", self.user[user], self.item[item])
        if self.tastes.shape[1] and batch.item_features is not None:
            features = scaled(batch.item_features.double().numpy())
            score = score + np.einsum("bf,bnf->bn", self.tastes[user], features)
        return torch.from_numpy(score)


def scaled(features: Float64[np.ndarray, "*S F"]) -> Float64[np.ndarray, "*S F"]:
    """Standardised features at the size of factors, none further than three deviations from its mean."""
    return np.asarray(0.3 * features.clip(-3.0, 3.0), np.float64)


@dataclass(frozen=True)
class Graded:
    """A fit(train, valid, budget): weights of the stars reached, rank, and what a zero is worth in ratings."""

    weights: Mapping[float, float] = field(default_factory=lambda: {4.0: 1.0, 5.0: 1.0})
    rank: int = 16
    shrink: float = 12.0  # of factors
    shrink_bias: float = 8.0
    shrink_tastes: float = 0.0  # of a user's tastes for item features; 0: none are learned

    def __call__(self, train: Logs, valid: Logs, budget: Budget) -> TrainedMethod:  # noqa: ARG002 - the contract
        """Learn from ratings, pick the best valid cards exactly. Only the start of the factors is random."""
        features = item_features(train) if self.shrink_tastes else np.zeros((train.vocabulary.num_items, 0))
        likings = self.learned(GradedRatings.of(train, self.weights), features, train, budget.seed)
        return TrainedMethod({"exact": Exact(likings)}, {"rank": self.rank, "features": features.shape[1]})

    def learned(
        self, ratings: GradedRatings, features: Float64[np.ndarray, "I F"], train: Logs, seed: int
    ) -> Likings:
        """Users, items and biases in turn, each the best given the others."""
        U, I = train.vocabulary.num_users, train.vocabulary.num_items  # noqa: E741 - the letters of the shapes
        rng = np.random.default_rng(seed)
        item = rng.normal(0.0, 0.1, (I, self.rank))
        user, tastes = np.zeros((U, self.rank)), np.zeros((U, features.shape[1]))
        rated, rest = np.zeros((U, I)), np.zeros((U, I))
        rated[ratings.user, ratings.item] = 1.0
        penalty = np.r_[np.full(self.rank, self.shrink), np.full(features.shape[1], self.shrink_tastes)]
        explained = np.zeros(len(ratings.grade))
        for _ in range(STEPS):
            bias, of_user = self.biases(ratings, explained, U, I)
            left = ratings.grade - ratings.grade.mean() - bias[ratings.item] - of_user[ratings.user]
            rest[ratings.user, ratings.item] = left
            both = ridge(rated, rest, np.hstack([item, features]), penalty)
            user, tastes = both[:, : self.rank], both[:, self.rank :]
            by_taste = (tastes[ratings.user] * features[ratings.item]).sum(1)
            rest[ratings.user, ratings.item] = left - by_taste
            item = ridge(rated.T, rest.T, user, penalty[: self.rank])
            explained = (user[ratings.user] * item[ratings.item]).sum(1) + by_taste
        bias, _ = self.biases(ratings, explained, U, I)
        return Likings(bias, user, item, tastes)

    def biases(
        self, ratings: GradedRatings, explained: Float64[np.ndarray, "R"], num_users: int, num_items: int
    ) -> tuple[Float64[np.ndarray, "I"], Float64[np.ndarray, "U"]]:
        """Shrunken means of what is left, of items and of users; a few rounds settle them."""
        left = ratings.grade - ratings.grade.mean() - explained
        of_user = np.zeros(num_users)
        for _ in range(3):
            bias = self.mean_of(ratings.item, left - of_user[ratings.user], num_items)
            of_user = self.mean_of(ratings.user, left - bias[ratings.item], num_users)
        return bias, of_user

    def mean_of(
        self, group: Int64[np.ndarray, "R"], values: Float64[np.ndarray, "R"], size: int
    ) -> Float64[np.ndarray, "G"]:
        """The mean of each group, drawn towards 0 as if `shrink_bias` zeros had been seen, too."""
        total = np.bincount(group, values, minlength=size)
        return np.asarray(total / (np.bincount(group, minlength=size) + self.shrink_bias), np.float64)


def ridge(
    rated: Float64[np.ndarray, "A C"],
    rest: Float64[np.ndarray, "A C"],
    factors: Float64[np.ndarray, "C D"],
    penalty: Float64[np.ndarray, "D"],
) -> Float64[np.ndarray, "A D"]:
    """For each row the weights on `factors` that explain its rated columns best, all rows at once."""
    D = factors.shape[1]
    squares = (factors[:, :, None] * factors[:, None, :]).reshape(len(factors), -1)
    normal = (rated @ squares).reshape(-1, D, D) + np.diag(penalty)
    solved: Float64[np.ndarray, "A D"] = np.linalg.solve(normal, (rest @ factors)[..., None])[..., 0]
    return solved


def item_features(train: Logs) -> Float64[np.ndarray, "I F"]:
    """The scaled features of every item of the vocabulary; row 0 is zero."""
    vocabulary, items = train.vocabulary, train.view.items
    if vocabulary.item_scaling is None:
        return np.zeros((vocabulary.num_items, 0))
    place = vocabulary.index_items(items["item_id"].combine_chunks())
    return _placed(items, vocabulary.item_scaling, place, vocabulary.num_items)


def user_features(train: Logs) -> Float64[np.ndarray, "U F"]:
    """The same of every user."""
    vocabulary, users = train.vocabulary, train.view.users
    if vocabulary.user_scaling is None:
        return np.zeros((vocabulary.num_users, 0))
    place = vocabulary.index_users(users["user_id"].combine_chunks())
    return _placed(users, vocabulary.user_scaling, place, vocabulary.num_users)


def _placed(
    table: pa.Table, scaling: Scaling, place: Int64[np.ndarray, "A"], size: int
) -> Float64[np.ndarray, "V F"]:
    raw = np.stack(table["features"].to_numpy(zero_copy_only=False)).astype(np.float32)
    features = np.zeros((size, raw.shape[1]))
    features[place] = scaled(scaling(raw).astype(np.float64))
    features[0] = 0.0
    return features
