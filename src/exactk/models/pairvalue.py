"""PairValue: the logit of a click as a sum over the card's items and over its pairs, given the user.

Knows no search; its numbers are what `search.exact` maximises: the paper's reduction taken literally.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from exactk.config import InputSizes, PairValueConfig
from exactk.models.ensemble import Ensemble
from exactk.models.initial import initialise
from exactk.models.inputs import Vectors
from exactk.problem.batch import Batch


class Values(NamedTuple):
    """logit(A) = bias + sum of node over A + sum of pair over the pairs of A; pair symmetric, diagonal 0."""

    bias: Float[Tensor, "B"]
    node: Float[Tensor, "B N"]
    pair: Float[Tensor, "B N N"]


class Terms(NamedTuple):
    """What the values of R items per request are made of."""

    node: Float[Tensor, "B R"]
    factors: Float[Tensor, "B R r"]  # p
    weights: Float[Tensor, "B 1 r"]  # s(u) d


class PairMember(nn.Module):
    """One network.

    node(u, i)    = <U x_u, V x_i> + a x_i + w ReLU(W [x_i; x_u; U x_u * V x_i])
    pair(u, i, j) = s(u) sum_r d_r p_r(i) p_r(j),  p = P ReLU(Q x_i),  s(u) > 0: how much the user minds pairs
    bias(u)       = b + c x_u

    Any symmetric effect between kinds of items is such a sum (the d are its eigenvalues), and so is a distance,
    |z_i - z_j|^2 = |z_i|^2 + |z_j|^2 - 2 z_i z_j. Factors read the raw vectors x: squeezed through the embedding
    that likings need, they lost what tells kinds apart.
    """

    def __init__(self, config: PairValueConfig, sizes: InputSizes) -> None:
        super().__init__()
        E, hidden, rank = config.embedding_size, config.hidden_size, config.rank
        self.vectors = Vectors(config.inputs, sizes, E)
        user_size, item_size = self.vectors.user_size, self.vectors.item_size
        self.map_user = nn.Linear(user_size, E)
        self.map_item = nn.Linear(item_size, E)
        self.node_linear = nn.Linear(item_size, 1, bias=False)
        self.node_item = nn.Linear(item_size, hidden)
        self.node_user = nn.Linear(user_size, hidden, bias=False)
        self.node_both = nn.Linear(E, hidden, bias=False)
        self.node_out = nn.Linear(hidden, 1, bias=False)
        self.factor_hidden = nn.Linear(item_size, hidden)
        self.factors = nn.Linear(hidden, rank)
        self.sign = nn.Parameter(torch.empty(rank))  # d
        self.minding = nn.Linear(user_size, 1)  # s(u), before the softplus
        self.user_bias = nn.Linear(user_size, 1)
        self.choice_scale = nn.Parameter(
            torch.empty(())
        )  # log of how sharply the most appealing item is clicked
        self.dropout = nn.Dropout(config.dropout)

    @torch.no_grad()
    def start_small(self) -> None:
        """Begin as a constant with a hint of everything: large random values at the start are learned by heart.

        On the default world this alone took the share of the optimum from 0.37 to 0.56 (18,000 cards).
        """
        for layer in (self.node_linear, self.node_out, self.user_bias, self.minding):
            layer.weight.mul_(0.1)
        for layer in (self.map_user, self.map_item):
            layer.weight.mul_(0.3)
        self.sign.copy_(0.1 * (1 - 2 * (torch.arange(len(self.sign)) % 2)))  # +, -, +, -, ...

    def terms(self, item: Float[Tensor, "B R Di"], user: Float[Tensor, "B Du"]) -> Terms:
        """Node values and factors of items, and the user's weights on the factors."""
        user = user.unsqueeze(1)  # B 1 Du
        both = self.map_item(item) * self.map_user(user)
        hidden = (self.node_item(item) + self.node_user(user) + self.node_both(both)).relu()
        node = (
            self.node_out(self.dropout(hidden)).squeeze(-1)
            + self.node_linear(item).squeeze(-1)
            + both.sum(-1)
        )
        factors = self.factors(self.dropout(self.factor_hidden(item).relu()))
        return Terms(node, factors, self.sign * functional.softplus(self.minding(user)))

    def forward(self, batch: Batch, cards: Int[Tensor, "B S K"]) -> Float[Tensor, "B S"]:
        """Logits of cards: bias + nodes + pairs."""
        bias: Tensor = self.user_bias(self.vectors.user(batch))  # B 1
        return bias + self.appeals(batch, cards).sum(-1)

    def appeals(self, batch: Batch, cards: Int[Tensor, "B S K"]) -> Float[Tensor, "B S K"]:
        """What each item brings to its card: its node and half of each of its pairs; 0 where there is none (-1)."""
        B, S, K = cards.shape
        at, user = cards.clamp(min=0).flatten(1), self.vectors.user(batch)  # B S*K
        if at.shape[1] < batch.item.shape[1]:
            node, factors, weights = self.terms(self.vectors.item(batch, at), user)
        else:  # every candidate once, however many cards it is on
            node, factors, weights = self.terms(self.vectors.item(batch), user)
            request = torch.arange(B, device=at.device).unsqueeze(1)
            node, factors = node[request, at], factors[request, at]
        real = cards >= 0
        factors = factors.view(B, S, K, -1) * real.unsqueeze(-1)
        others = factors.sum(2, keepdim=True) - factors
        pairs = (factors * others * weights.unsqueeze(1)).sum(-1)  # B S K
        return (node.view(B, S, K) + pairs / 2) * real

    def values(self, batch: Batch) -> Values:
        """Node and pair values of all candidates."""
        user = self.vectors.user(batch)
        node, factors, weights = self.terms(self.vectors.item(batch), user)
        pair = (factors * weights) @ factors.transpose(1, 2)  # B N N
        others = ~torch.eye(pair.shape[1], dtype=torch.bool, device=pair.device)
        # Symmetric to the last bit, which a product of matrices is not.
        return Values(self.user_bias(user).squeeze(-1), node, (pair + pair.transpose(1, 2)) / 2 * others)


class PairValue(Ensemble):
    """Members whose mean is a pair value again, so that exact search still applies."""

    def __init__(
        self, config: PairValueConfig, sizes: InputSizes, generator: torch.Generator | None = None
    ) -> None:
        super().__init__(PairMember(config, sizes) for _ in range(config.members))
        self.config = config
        self.sizes = sizes
        initialise(self, generator)
        for member in self.members:
            member.start_small()  # type: ignore[operator]

    @torch.no_grad()
    def start_at(self, click_rate: float) -> None:
        """Begin at the share of cards that are clicked, the best constant there is."""
        for member in self.members:
            assert isinstance(member, PairMember)
            member.user_bias.bias.fill_(math.log(click_rate / (1 - click_rate)))

    def values(self, batch: Batch) -> Values:
        """The members' mean node and pair values."""
        parts = [member.values(batch) for member in self.members]  # type: ignore[operator]
        return Values(*(torch.stack(part).mean(0) for part in zip(*parts, strict=True)))
