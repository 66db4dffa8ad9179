"""What a learned value says of given cards, in plain numpy: pair values (triples too), the paper's form, sets.

Knows no search. The three forms are those of `models.reward` and `models.pairvalue`, weights by the same names.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from jaxtyping import Float, Float64, Int

from exactk.engine import NumpyVectors, Weights, encoder_layer, linear, part_of, sigmoid, taken
from exactk.engine.pair_values import CompiledPairValues, PairValues
from exactk.engine.shapes import SHARING_PACE
from exactk.errors import InputError
from exactk.problem.batch import Batch
from exactk.settings.config import Config, InputSizes, RewardConfig


class LearnedValue(ABC):
    """The logit of the click probability of cards, -1 where a card is shorter than the longest."""

    @abstractmethod
    def logits(self, batch: Batch, cards: Int[np.ndarray, "B S K"]) -> Float64[np.ndarray, "B S"]:
        """Of S cards per request."""


class SummedValue(LearnedValue):
    """A value that is a sum over a card's items and over its pairs, so that its best card can be searched."""

    only_pairs = True  # nodes and pairs are all there is

    @abstractmethod
    def values(self, batch: Batch) -> PairValues:
        """Of all candidates and pairs."""

    def logits(self, batch: Batch, cards: Int[np.ndarray, "B S K"]) -> Float64[np.ndarray, "B S"]:
        """By the values of all candidates and pairs."""
        return self.of(self.values(batch), batch, cards)

    def of(
        self,
        values: PairValues,
        batch: Batch,  # noqa: ARG002 - for what is no sum over pairs
        cards: Int[np.ndarray, "B S K"],
    ) -> Float64[np.ndarray, "B S"]:
        """The same, the values known already."""
        at, real = np.maximum(cards, 0), cards >= 0
        row = np.arange(len(cards))[:, None, None]
        node = (values.node[row, at] * real).sum(2)
        both = real[:, :, :, None] & real[:, :, None, :]
        pair = values.pair[row[..., None], at[:, :, :, None], at[:, :, None, :]] * both
        return np.asarray(values.bias[:, None] + node + pair.sum((2, 3)) / 2)


class LearnedPairs(SummedValue):
    """Bias, nodes and pairs of ids and features, and what at least three items share."""

    def __init__(self, weights: Weights, config: Config, sizes: InputSizes) -> None:
        self.compiled = CompiledPairValues(weights, config.pair_value, sizes)
        self._members = [part_of(weights, f"members.{m}") for m in range(config.pair_value.members)]
        self.only_pairs = not config.pair_value.triples

    def values(self, batch: Batch) -> PairValues:
        """By one compiled call."""
        return self.compiled(batch)

    def of(
        self, values: PairValues, batch: Batch, cards: Int[np.ndarray, "B S K"]
    ) -> Float64[np.ndarray, "B S"]:
        """Triples, too."""
        summed = super().of(values, batch, cards)
        return summed if self.only_pairs else summed + self._shared(batch, cards)

    def _shared(self, batch: Batch, cards: Int[np.ndarray, "B S K"]) -> Float64[np.ndarray, "B S"]:
        """Mean over the members of sum_c w_c P(at least three items have c)."""
        gain = np.zeros(cards.shape[:2])
        for member, vectors in zip(self._members, self.compiled.vectors, strict=True):
            sharing = part_of(member, "sharing")
            item = taken(vectors.item(batch), cards)  # B S K Di
            has = sigmoid(sharing["sharpness"] * (item - sharing["level"])) * (cards >= 0)[..., None]
            none, one, two, more = np.ones_like(has[:, :, 0]), *np.zeros((3, *has[:, :, 0].shape))
            for k in range(cards.shape[2]):
                h = has[:, :, k]
                more = more + two * h
                none, one, two = none * (1 - h), one * (1 - h) + none * h, two * (1 - h) + one * h
            gain += more @ (SHARING_PACE * sharing["weight"]) / len(self._members)
        return gain


class NetworkValue(LearnedValue):
    """Members averaged, each a network that reads the items of a card."""

    def __init__(self, weights: Weights, config: RewardConfig, sizes: InputSizes, card_size: int) -> None:
        self.config, self.card_size = config, card_size
        self._members = [part_of(weights, f"members.{m}") for m in range(config.members)]
        tables = [part_of(member, "vectors.vectors") for member in self._members]
        self._vectors = [NumpyVectors.of(own, config.inputs, sizes) for own in tables]

    def logits(self, batch: Batch, cards: Int[np.ndarray, "B S K"]) -> Float64[np.ndarray, "B S"]:
        """The members' mean."""
        both = zip(self._members, self._vectors, strict=True)
        each = [self._member(member, vectors, batch, cards) for member, vectors in both]
        return np.asarray(np.mean(each, axis=0, dtype=np.float64))

    def _member(
        self, member: Weights, vectors: NumpyVectors, batch: Batch, cards: Int[np.ndarray, "B S K"]
    ) -> Float[np.ndarray, "B S"]:
        item = taken(_of_one_size(member, "item", vectors.item(batch)), cards)  # B S K E
        user = _of_one_size(member, "user", vectors.user(batch))[:, None, None]  # B 1 1 E
        if self.config.kind == "pnn":
            read = self._as_list(item, user, cards)
        else:
            read = self._as_set(member, item, user, cards)
        hidden = np.maximum(linear(member, "hidden", read), 0)
        return np.asarray(linear(member, "out", hidden)[..., 0])

    def _as_list(self, item: np.ndarray, user: np.ndarray, cards: np.ndarray) -> Float[np.ndarray, "B S F"]:
        """[[x_a . x_u]_K; [x_a]_K; x_u] (eq. 18): for cards of the one size the network was made for."""
        B, S, K = cards.shape
        if self.card_size != K or (cards < 0).any():
            raise InputError(
                f"a reward of kind pnn made for {self.card_size} judges cards of exactly {self.card_size} items; "
                "reward.kind=set takes any size"
            )
        same = np.broadcast_to(user[:, :, 0], (B, S, user.shape[-1]))
        return np.concatenate([(item * user).sum(-1), item.reshape(B, S, -1), same], -1)

    def _as_set(
        self, member: Weights, item: np.ndarray, user: np.ndarray, cards: np.ndarray
    ) -> Float[np.ndarray, "B S F"]:
        """The mean of items that attend to one another, and how many they are."""
        B, S, K = cards.shape
        real = cards >= 0
        nodes = linear(member, "from_item", item) + linear(member, "from_user", user)
        nodes = np.maximum(nodes + linear(member, "from_both", item * user), 0).reshape(B * S, K, -1)
        for number in range(self.config.layers):
            layer = part_of(member, f"layers.{number}")
            nodes, _ = encoder_layer(layer, nodes, real.reshape(B * S, K), self.config.heads)
        size = real.sum(-1, keepdims=True)  # B S 1
        pooled = (nodes.reshape(B, S, K, -1) * real[..., None]).sum(2) / np.maximum(size, 1)
        return np.concatenate([pooled, size.astype(pooled.dtype)], -1)


def _of_one_size(member: Weights, side: str, x: np.ndarray) -> np.ndarray:
    """x_s or x_u as large as all embeddings: those of ids as they are, all else mapped."""
    name = f"vectors.map_{side}"
    return linear(member, name, x) if f"{name}.weight" in member else x
