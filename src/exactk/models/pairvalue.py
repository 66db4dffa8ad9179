"""Values of cards: means of members, each a network of its own; and the pair value, a sum over items and over pairs.

Knows no search; the pair value's numbers are what `search.exact` maximises: the paper's reduction taken literally. What
three items share (`Sharing`) is the part of a value that no sum over pairs can say.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from exactk.engine.shapes import SHARING_PACE
from exactk.models.inputs import Vectors, initialise
from exactk.search.maximise import ExactCards, exact
from exactk.settings.config import InputSizes, PairValueConfig
from exactk.tensors import TensorBatch, off_diagonal, rows_of


class Values(NamedTuple):
    """logit(A) = bias + sum of node over A + sum of pair over the pairs of A; pair symmetric, diagonal 0."""

    bias: Float[Tensor, "B"]
    node: Float[Tensor, "B N"]
    pair: Float[Tensor, "B N N"]

    @classmethod
    def mean(cls, parts: Iterable[Values]) -> Values:
        """Their mean, which is a sum over items and pairs again."""
        return cls(*(torch.stack(part).mean(0) for part in zip(*parts, strict=True)))


class Ensemble(nn.Module):
    """Members (one will do) that give the logit of P(r=1|A,u); forward: their mean [B, S] for cards [B, S, K]."""

    def __init__(self, members: Iterable[nn.Module]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    def begin(self, generator: torch.Generator | None) -> None:
        """Starting weights from the generator alone: large random ones are learned by heart, so all begin small."""
        initialise(self, generator)
        for member in self.members:
            member.start_small()  # type: ignore[operator]

    def start_at(self, click_rate: float) -> None:
        """Begin at the share of cards that are clicked, the best constant there is; nothing where all or none are."""
        logit = math.log(click_rate / (1 - click_rate)) if 0 < click_rate < 1 else 0.0
        for member in self.members:
            member.start_at(logit)  # type: ignore[operator]

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

    def pair_weights(self) -> list[Tensor]:
        """The weights in which all pair values are linear: scaled by a share, they scale every pair by it."""
        return [weights for member in self.members for weights in member.pair_weights()]  # type: ignore[operator]

    @torch.no_grad()
    def best(self, batch: TensorBatch) -> ExactCards:
        """The cards with the highest learned value, and that value, proven."""
        values = self.values(batch)
        found = exact(batch, values.node, values.pair)
        return found._replace(value=found.value + values.bias, bound=found.bound + values.bias)


SHARED_BY = 3  # items, at least


class Sharing(nn.Module):
    """Sum over c of w_c P(at least three items have c); item i has it with chance h_ic = sigmoid(a_c (x_ic - b_c))."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size))  # w / SHARING_PACE
        self.level = nn.Parameter(torch.empty(size))  # b
        self.sharpness = nn.Parameter(torch.empty(size))  # a

    @torch.no_grad()
    def start(self) -> None:
        """Begin with no gain, and with items that stand out by a deviation as the ones that have a feature."""
        self.weight.zero_()
        self.level.fill_(1.0)
        self.sharpness.fill_(2.0)

    def has(self, item: Float[Tensor, "*S D"]) -> Float[Tensor, "*S D"]:
        """h: the chance that an item counts as having each feature."""
        return (self.sharpness * (item - self.level)).sigmoid()

    def worth(self) -> Float[Tensor, "D"]:
        """w."""
        return SHARING_PACE * self.weight

    def forward(self, has: Float[Tensor, "B S K D"]) -> Float[Tensor, "B S"]:
        """The gain of cards; an absent item has nothing (0)."""
        counts = nobody(has[:, :, 0])
        gain = torch.zeros_like(has[:, :, 0])
        for item in has.unbind(2):
            gain = gain + counts[..., -1, :] * item
            counts = joined(counts, item)
        return gain @ self.worth()


def nobody(like: Float[Tensor, "*S D"]) -> Float[Tensor, "*S 3 D"]:
    """Counts of a card without items: the chances that exactly 0, 1, 2 of its items have each feature."""
    counts = like.new_zeros(*like.shape[:-1], SHARED_BY, like.shape[-1])
    counts[..., 0, :] = 1.0
    return counts


def joined(counts: Float[Tensor, "*S 3 D"], item: Float[Tensor, "*S D"]) -> Float[Tensor, "*S 3 D"]:
    """The counts after one more item: each stays or moves up by one; from 2 it moves to what a card gains by."""
    item = item.unsqueeze(-2)
    moved = nn.functional.pad(counts[..., :-1, :] * item, (0, 0, 1, 0))
    return counts * (1 - item) + moved


class ValueTerms(NamedTuple):
    """What the values of R items per request are made of; S groups of them may come side by side."""

    node: Float[Tensor, "B *S R"]
    kinds: Float[Tensor, "B *S R C"]  # k, sums to one
    places: Float[Tensor, "B *S R Z"]  # z
    minding: Float[Tensor, "B"]  # s(u)


class PairMember(nn.Module):
    """One network.

    node(u, i)    = <U x_u, V x_i> + a x_i + w ReLU(W [x_i; x_u; U x_u * V x_i])
    pair(u, i, j) = s(u) (k_i T k_j + g exp(-|z_i - z_j|^2)),  k = softmax(Q x_i),  z = Z x_i,  s(u) > 0
    bias(u)       = b + c x_u

    An item is a mixture of a few learned kinds; T says which kinds help and which harm each other, the second term
    what near-duplicates do, s(u) how much the user minds either. Kinds and places read the raw vectors x: squeezed
    through the embedding that tastes need, they lost what tells kinds apart. Where kinds begin: `learning/tasks.py`.
    """

    def __init__(self, config: PairValueConfig, sizes: InputSizes) -> None:
        super().__init__()
        E, hidden = config.embedding_size, config.hidden_size
        self.vectors = Vectors(config.inputs, sizes, E, config.hidden_share)
        user_size, item_size = self.vectors.user_size, self.vectors.item_size
        self.map_user = nn.Linear(user_size, E)
        self.map_item = nn.Linear(item_size, E)
        self.node_linear = nn.Linear(item_size, 1, bias=False)
        self.node_item = nn.Linear(item_size, hidden)
        self.node_user = nn.Linear(user_size, hidden, bias=False)
        self.node_both = nn.Linear(E, hidden, bias=False)
        self.node_out = nn.Linear(hidden, 1, bias=False)
        self.kinds = nn.Linear(item_size, config.kinds)
        self.table = nn.Parameter(torch.empty(config.kinds, config.kinds))  # T is its symmetric part
        self.places = nn.Linear(item_size, config.place_size)
        self.closeness = nn.Parameter(torch.empty(()))  # g
        self.minding = nn.Linear(user_size, 1)  # s(u), before the softplus
        self.user_bias = nn.Linear(user_size, 1)
        # Log of how sharply the most appealing item is clicked.
        self.choice_scale = nn.Parameter(torch.empty(()))
        self.dropout = nn.Dropout(config.dropout)
        self.sharing = Sharing(item_size) if config.triples else None

    @torch.no_grad()
    def start_small(self) -> None:
        """Begin as a constant with a hint of everything: large random values at the start are learned by heart.

        On the default world this alone took the share of the optimum from 0.37 to 0.56 (18,000 cards).
        """
        for layer in (self.node_linear, self.node_out, self.user_bias, self.minding):
            layer.weight.mul_(0.1)
        for layer in (self.map_user, self.map_item):
            layer.weight.mul_(0.3)
        self.table.mul_(0.1)
        self.closeness.fill_(-0.01)  # near-duplicates rather harm than help
        if self.sharing is not None:
            self.sharing.start()

    @torch.no_grad()
    def start_at(self, logit: float) -> None:
        self.user_bias.bias.fill_(logit)

    def pair_weights(self) -> list[Tensor]:
        return [self.table, self.closeness]

    def terms(self, item: Float[Tensor, "B R Di"], user: Float[Tensor, "B Du"]) -> ValueTerms:
        """Node values, kinds and places of items, and how much the user minds pairs."""
        minding = functional.softplus(self.minding(user)).squeeze(-1)
        user = user.unsqueeze(1)  # B 1 Du
        both = self.map_item(item) * self.map_user(user)
        hidden = (self.node_item(item) + self.node_user(user) + self.node_both(both)).relu()
        node = (self.node_out(self.dropout(hidden)) + self.node_linear(item)).squeeze(-1) + both.sum(-1)
        return ValueTerms(node, self.kinds(item).softmax(-1), self.places(item), minding)

    def pairs(self, terms: ValueTerms) -> Float[Tensor, "B *S R R"]:
        """pair(u, i, j) of all items of a group; an item with itself has one, too, for the caller to leave out."""
        kinds, places = terms.kinds, terms.places
        table = (self.table + self.table.T) / 2
        square = places.square().sum(-1)
        apart = square.unsqueeze(-1) + square.unsqueeze(-2) - 2 * places @ places.transpose(-1, -2)
        effect = kinds @ table @ kinds.transpose(-1, -2) + self.closeness * (-apart.clamp(min=0)).exp()
        return effect * terms.minding.view(-1, *(1 for _ in effect.shape[1:]))

    def forward(self, batch: TensorBatch, cards: Int[Tensor, "B S K"]) -> Float[Tensor, "B S"]:
        """Logits of cards: bias + nodes + pairs, and what three items share."""
        bias: Tensor = self.user_bias(self.vectors.user(batch))  # B 1
        logits = bias + self.appeals(batch, cards).sum(-1)
        if self.sharing is None:
            return logits
        item = self.vectors.item(batch, cards.clamp(min=0).flatten(1)).view(*cards.shape, -1)  # B S K Di
        shared: Tensor = self.sharing(self.sharing.has(item) * (cards >= 0).unsqueeze(-1))
        return logits + shared

    def appeals(self, batch: TensorBatch, cards: Int[Tensor, "B S K"]) -> Float[Tensor, "B S K"]:
        """What each item brings to its card: its node and half of each of its pairs; 0 where there is none (-1)."""
        B, S, K = cards.shape
        at, user = cards.clamp(min=0).flatten(1), self.vectors.user(batch)  # B S*K
        if at.shape[1] < batch.item.shape[1]:
            node, kinds, places, minding = self.terms(self.vectors.item(batch, at), user)
        else:  # every candidate once, however many cards it is on
            node, kinds, places, minding = self.terms(self.vectors.item(batch), user)
            node, kinds, places = (rows_of(part, at) for part in (node, kinds, places))
        on_cards = ValueTerms(node.view(B, S, K), kinds.view(B, S, K, -1), places.view(B, S, K, -1), minding)
        real = cards >= 0
        pairs = self.pairs(on_cards) * (off_diagonal(K, cards.device) & real.unsqueeze(-2))  # B S K K
        return (on_cards.node + pairs.sum(-1) / 2) * real

    def values(self, batch: TensorBatch) -> Values:
        """Node and pair values of all candidates."""
        user = self.vectors.user(batch)
        terms = self.terms(self.vectors.item(batch), user)
        pair = self.pairs(terms)  # B N N
        # Symmetric to the last bit, which a product of matrices is not.
        pair = (pair + pair.transpose(1, 2)) / 2
        others = off_diagonal(pair.shape[1], pair.device)
        return Values(self.user_bias(user).squeeze(-1), terms.node, pair * others)


class PairValue(SearchableValue):
    """Members whose mean is a pair value again, so that exact search still applies."""

    def __init__(
        self, config: PairValueConfig, sizes: InputSizes, generator: torch.Generator | None = None
    ) -> None:
        super().__init__(PairMember(config, sizes) for _ in range(config.members))
        self.config = config
        self.sizes = sizes
        self.begin(generator)

    def values(self, batch: TensorBatch) -> Values:
        """The members' mean node and pair values."""
        return Values.mean(member.values(batch) for member in self.members)  # type: ignore[operator]

    def shares(self, batch: TensorBatch) -> tuple[Float[Tensor, "B N C"], Float[Tensor, "C"]]:
        """What every candidate has that three items may share, of all members side by side, and its mean worth."""
        has, worth = [batch.item.new_zeros(*batch.item.shape, 0, dtype=torch.float32)], []
        for member in self.members:
            assert isinstance(member, PairMember)
            if member.sharing is not None:
                has.append(member.sharing.has(member.vectors.item(batch)))
                worth.append(member.sharing.worth() / len(self.members))
        return torch.cat(has, -1), torch.cat([has[0].new_zeros(0), *worth])
