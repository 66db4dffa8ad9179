"""A value of cards as the mean of members, each a network of its own: their spread says how sure it is.

Knows nothing of what the members are.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from exactk.tensors import TensorBatch


class Values(NamedTuple):
    """logit(A) = bias + sum of node over A + sum of pair over the pairs of A; pair symmetric, diagonal 0."""

    bias: Float[Tensor, "B"]
    node: Float[Tensor, "B N"]
    pair: Float[Tensor, "B N N"]


class Ensemble(nn.Module):
    """Members (one will do) that give the logit of P(r=1|A,u); forward: their mean [B, S] for cards [B, S, K]."""

    def __init__(self, members: Iterable[nn.Module]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    def member_logits(self, batch: TensorBatch, cards: Int[Tensor, "B S K"]) -> Float[Tensor, "M B S"]:
        """What each member says; in training each has its own loss."""
        return torch.stack([member(batch, cards) for member in self.members])

    def forward(self, batch: TensorBatch, cards: Int[Tensor, "B S K"]) -> Float[Tensor, "B S"]:
        """The logit of every card's click probability (-1: no item, in a card shorter than the longest)."""
        return self.member_logits(batch, cards).mean(0)


class SearchableValue(Ensemble):
    """An ensemble whose mean is a sum over a card's items and over its pairs, so that its best card can be searched."""

    @abstractmethod
    def values(self, batch: TensorBatch) -> Values:
        """Node and pair values of all candidates."""

    @property
    @abstractmethod
    def only_pairs(self) -> bool:
        """Whether nodes and pairs are all there is, so that exact search finds its best card."""

    @abstractmethod
    def start_at(self, click_rate: float) -> None:
        """Begin at the share of cards that are clicked, the best constant there is."""
