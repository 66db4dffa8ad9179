"""PairValue: the logit of a click as a sum over the card's items and over its pairs, given the user.

Knows no search; its numbers are what `search.exact` maximises: the paper's reduction taken literally.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from exactk.config import InputSizes, PairValueConfig
from exactk.models.ensemble import Ensemble
from exactk.models.initial import initialise
from exactk.models.inputs import CommonVectors
from exactk.problem.batch import Batch


class Values(NamedTuple):
    """logit(A) = bias + sum of node over A + sum of pair over the pairs of A; pair symmetric, diagonal 0."""

    bias: Float[Tensor, "1"]
    node: Float[Tensor, "B N"]
    pair: Float[Tensor, "B N N"]


class PairMember(nn.Module):
    """One network. node(u, i): a hidden layer over item, user and their product, beside their inner product.

    pair(u, i, j) = sum_r d_r(u) p_r(i) p_r(j): factors p of the item, weighed and signed by the user. Any
    symmetric effect between kinds of items is such a sum (the d are its eigenvalues), and so is a distance,
    |z_i - z_j|^2 = |z_i|^2 + |z_j|^2 - 2 z_i z_j. `pair_hidden_size` adds a small network of d(u) p(i) p(j).
    """

    def __init__(self, config: PairValueConfig, sizes: InputSizes) -> None:
        super().__init__()
        E, hidden, rank = config.embedding_size, config.hidden_size, config.rank
        self.vectors = CommonVectors(config.inputs, sizes, E)
        self.node_item = nn.Linear(E, hidden)
        self.node_user = nn.Linear(E, hidden, bias=False)
        self.node_both = nn.Linear(E, hidden, bias=False)
        self.node_out = nn.Linear(hidden, 1, bias=False)
        self.factor_hidden = nn.Linear(E, hidden)
        self.factors = nn.Linear(hidden, rank)
        self.weigh = nn.Linear(E, rank)  # d(u)
        self.dropout = nn.Dropout(config.dropout)
        small = config.pair_hidden_size
        self.pair_hidden = nn.Linear(rank, small) if small else None
        self.pair_out = nn.Linear(small, 1, bias=False) if small else None
        self.bias = nn.Parameter(torch.empty(1))

    def terms(
        self, item: Float[Tensor, "B *R E"], user: Float[Tensor, "B E"]
    ) -> tuple[Float[Tensor, "B *R"], Float[Tensor, "B *R r"], Float[Tensor, "B *1 r"]]:
        """Node values and factors of items, and the user's weights d on the factors."""
        user = user.view(len(user), *(1 for _ in item.shape[2:]), -1)
        both = item * user
        hidden = (self.node_item(item) + self.node_user(user) + self.node_both(both)).relu()
        node = self.node_out(self.dropout(hidden)).squeeze(-1) + both.sum(-1)
        factors = self.factors(self.dropout(self.factor_hidden(item).relu()))
        return node, factors, self.weigh(user)

    def forward(self, batch: Batch, cards: Int[Tensor, "B S K"]) -> Float[Tensor, "B S"]:
        """Logits of cards: bias + nodes + pairs."""
        real = cards >= 0
        node, factors, weights = self.terms(self.vectors.on_cards(batch, cards), self.vectors.user(batch))
        factors = factors * real.unsqueeze(-1)  # B S K r
        if self.pair_hidden is None:
            # Over all pairs i < j: sum p_i p_j = ((sum p)^2 - sum p^2) / 2.
            pairs = (factors.sum(2).square() - factors.square().sum(2)) / 2  # B S r
            together = (pairs * weights.squeeze(2)).sum(-1)
        else:
            first, second = torch.triu_indices(cards.shape[2], cards.shape[2], 1, device=cards.device)
            effects = self.pair_effect(factors[:, :, first], factors[:, :, second], weights)
            together = (effects * (real[:, :, first] & real[:, :, second])).sum(-1)
        return self.bias + (node * real).sum(-1) + together

    def pair_effect(
        self, first: Float[Tensor, "*I r"], second: Float[Tensor, "*J r"], weights: Float[Tensor, "*U r"]
    ) -> Float[Tensor, "*P"]:
        """pair(u, i, j) from the factors of i and j and the user's weights, which are broadcast together."""
        product = first * second * weights
        effect = product.sum(-1)
        if self.pair_hidden is not None and self.pair_out is not None:
            effect = effect + self.pair_out(self.pair_hidden(product).relu()).squeeze(-1)
        return effect

    def values(self, batch: Batch) -> Values:
        """Node and pair values of all candidates."""
        node, factors, weights = self.terms(self.vectors.item(batch), self.vectors.user(batch))
        if self.pair_hidden is None:
            pair = (factors * weights) @ factors.transpose(1, 2)  # B N N
        else:
            pair = self.pair_effect(factors.unsqueeze(2), factors.unsqueeze(1), weights.unsqueeze(1))
        N = pair.shape[1]
        return Values(self.bias, node, pair * ~torch.eye(N, dtype=torch.bool, device=pair.device))


class PairValue(Ensemble):
    """Members whose mean is a pair value again, so that exact search still applies."""

    def __init__(
        self, config: PairValueConfig, sizes: InputSizes, generator: torch.Generator | None = None
    ) -> None:
        super().__init__(PairMember(config, sizes) for _ in range(config.members))
        self.config = config
        self.sizes = sizes
        initialise(self, generator)

    def values(self, batch: Batch) -> Values:
        """The members' mean node and pair values."""
        parts = [member.values(batch) for member in self.members]  # type: ignore[operator]
        return Values(*(torch.stack(part).mean(0) for part in zip(*parts, strict=True)))
