"""Policy: GAttN, P(A|S,u): input layer, encoder and pointer; writes a card one position at a time.

Knows neither losses nor constraints: `search` masks its scores. Two terms may go into them beside the network: what a
user likes of single items (`Affinity`), and what a learned value says each would add to the card begun (`Guide`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from exactk.engine.shapes import MOST_PAIRS
from exactk.errors import ConfigError
from exactk.models.gattn import EncodedRequests, Encoder, Pointer, PointerSteps, State
from exactk.models.inputs import InputLayer, Vectors, initialise
from exactk.models.pairvalue import PairValue, joined, nobody
from exactk.search import Feasible, Steps, beam, greedy
from exactk.settings.config import InputSizes, PolicyConfig, decided
from exactk.tensors import TensorBatch, rows_of


class Policy(nn.Module):
    """Graph attention network: it encodes a request once, then points step by step; a guide adds its gains to each."""

    def __init__(
        self,
        config: PolicyConfig,
        sizes: InputSizes,
        generator: torch.Generator | None = None,
        value: PairValue | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        self.sizes = sizes
        self.inputs = InputLayer(Vectors(config.inputs, sizes, config.embedding_size), config.width)
        self.encoder = Encoder(config)
        self.pointer = Pointer(config)
        self.affinity = Affinity(config, sizes) if config.affinity or config.memory else None
        initialise(self, generator)
        if self.affinity is not None:
            self.affinity.start_small()
        self.guide: Guide | None = None
        if config.guided:
            if value is None:
                raise ConfigError("policy.guided needs the pair value that is to guide: set reward.kind=pair")
            self.guide = Guide(value)
            nn.init.zeros_(self.pointer.pointer_vector.weight)  # the guide alone decides at first

    def encode(self, batch: TensorBatch) -> EncodedRequests:
        """The requests' graphs as node embeddings and keys."""
        whole = bool(batch.present.all()) if batch.facts is None else batch.facts.all_present
        present = None if whole else batch.present
        encoded = self.pointer.encode(self.encoder(self.inputs(batch), present), present)
        return encoded if self.affinity is None else encoded._replace(affinity=self.affinity(batch))

    @torch.no_grad()
    def cards(self, batch: TensorBatch, width: int | None = None) -> Int[Tensor, "B K"]:
        """One valid card per request, by a beam of this width, else of the configured one; 1 is greedy."""
        feasible, steps, width = Feasible.of(batch), self.steps(batch), width or self.config.beam
        return greedy(steps, feasible) if width == 1 else beam(steps, feasible, width).cards[:, 0]

    def attention(self, batch: TensorBatch) -> Float[Tensor, "B L H N N"]:
        """What every candidate attends to in the encoder, per layer and head."""
        return self.encoder.attention(self.inputs(batch), batch.present)

    def steps(self, batch: TensorBatch) -> Steps[Any]:
        """This policy bound to a batch, encoded once: what the functions of `search` ask for."""
        own = PointerSteps(self.pointer, self.encode(batch))
        return own if self.guide is None else GuidedSteps(own, self.guide.gains(batch), self.guide.scale)


class Affinity(nn.Module):
    """<p_u, q_i> + b_i + m_ui, the same numbers at every step: matrix factorisation, with a linear part where there are
    features (LightFM; the last column is b_i), and a memory of single pairs, which no rank shares.
    """

    def __init__(self, config: PolicyConfig, sizes: InputSizes) -> None:
        super().__init__()
        inputs, rank = decided(config.inputs, sizes), config.affinity
        with_ids, with_features = inputs != "features", inputs != "ids"
        if config.memory and not with_ids:
            raise ConfigError("policy.memory remembers users and items by their ids: policy.inputs has none")
        self.users = nn.Embedding(sizes.num_users, rank) if with_ids and rank else None
        self.items = nn.Embedding(sizes.num_items, rank + 1) if with_ids else None
        user_size, item_size = (sizes.user_feature_size, sizes.item_feature_size) if with_features else (0, 0)
        self.from_user = nn.Linear(user_size, rank) if user_size and rank else None
        self.from_item = nn.Linear(item_size, rank + 1) if item_size else None
        num_pairs = min(sizes.num_users * sizes.num_items, MOST_PAIRS)
        self.pairs = nn.Parameter(torch.zeros(num_pairs)) if config.memory else None
        self.rank, self.num_items = rank, sizes.num_items
        self.pace, self.memory = config.affinity_pace, config.memory

    @torch.no_grad()
    def start_small(self) -> None:
        """Begin near nothing: what is random at the start is not soon forgotten.

        On the authors' files tables that start at half the usual size found the click in 0.655 of the validation
        requests instead of 0.64 (matrix factorisation alone, rank 32, dropout 0.3).
        """
        for table in (self.users, self.items):
            if table is not None:
                table.weight.mul_(0.5 / self.pace)
        if self.items is not None:
            self.items.weight[:, -1] = 0.0
        for linear in (self.from_user, self.from_item):
            if linear is not None:
                linear.weight.mul_(0.1 / self.pace)

    def forward(self, batch: TensorBatch) -> Float[Tensor, "B N"]:
        """One number per candidate."""
        return self.score(batch.user, batch.item, batch.user_features, batch.item_features)

    def score(
        self, user: Tensor, item: Tensor, user_features: Tensor | None, item_features: Tensor | None
    ) -> Float[Tensor, "B N"]:
        """The same of ids and features as they are."""
        # Adam's steps have one size whatever the gradient's: weights read through a factor learn that much faster.
        q = self.pace * summed(self.items, item, self.from_item, item_features)  # B N r+1
        scores: Tensor = q[..., -1]
        if self.rank:
            p = self.pace * summed(self.users, user, self.from_user, user_features)  # B r
            scores = (q[..., :-1] @ p.unsqueeze(-1)).squeeze(-1) + scores
        if self.pairs is not None:
            # At most 1: a click would be learned by heart, and is new each time; what was passed over counts.
            place = (user.unsqueeze(-1) * self.num_items + item) % len(self.pairs)
            remembered = self.pairs[place]
            scores = scores - nn.functional.elu(-self.memory * remembered)
        return scores


def summed(
    table: nn.Embedding | None, ids: Tensor, linear: nn.Linear | None, features: Tensor | None
) -> Float[Tensor, "*S r"]:
    """The row of the table and the linear part of the features, whichever there are."""
    parts = [] if table is None else [table(ids)]
    if linear is not None and features is not None:
        parts.append(linear(features))
    total: Tensor = sum(parts[1:], parts[0])
    return total


START = 3.0  # of the scale: a step then prefers a gain of one in the log-odds twenty to one


class GainTensors(NamedTuple):
    """What a value knows of requests: nodes, pairs, and what three items may share (C is 0 for a pair value alone)."""

    node: Float[Tensor, "B N"]
    pair: Float[Tensor, "B N N"]
    has: Float[Tensor, "B N C"]
    worth: Float[Tensor, "C"]


class GuidedState(NamedTuple):
    """The policy's own state; each position's node and its pairs with what was chosen; counts of what is shared."""

    hidden: Float[Tensor, "B S L D"]
    cell: Float[Tensor, "B S L D"]
    gain: Float[Tensor, "B S N"]
    counts: Float[Tensor, "B S 3 C"]


class Guide(nn.Module):
    """gain(i | A), what the value says i adds to A, times a learned scale, is added to the scores of every step.

    A policy whose own scores are 0 is then greedy on the value; it learns what that lacks: to look ahead.
    """

    def __init__(self, value: PairValue) -> None:
        super().__init__()
        self.value = value
        self.scale = nn.Parameter(torch.tensor(START))

    def freeze(self) -> None:
        """From here on only the scale learns."""
        self.value.requires_grad_(False)

    def train(self, mode: bool = True) -> Guide:
        """The value is never in training here: no dropout."""
        super().train(mode)
        self.value.eval()
        return self

    @torch.no_grad()
    def gains(self, batch: TensorBatch) -> GainTensors:
        """Everything about all candidates, without gradient."""
        values = self.value.values(batch)
        return GainTensors(values.node, values.pair, *self.value.shares(batch))


@dataclass(frozen=True)
class GuidedSteps:
    """A policy's steps with the guide's gains added (a `search.Steps`)."""

    own: Steps[Any]
    gains: GainTensors
    scale: Float[Tensor, ""]

    def start(self, num_rows: int) -> GuidedState:
        """Before the first choice a position's gain is its node value."""
        own, (gain, counts) = self.own.start(num_rows), self._nothing(num_rows)
        return GuidedState(own.hidden, own.cell, gain, counts)

    def step(self, state: GuidedState) -> Float[Tensor, "B S N"]:
        """The policy's scores and the scaled gains."""
        return self.own.step(State(state.hidden, state.cell)) + self.scale * self._gain(*state[2:])

    def advance(self, state: GuidedState, position: Int[Tensor, "B S"]) -> GuidedState:
        """Each position gains by its pair with the one chosen."""
        own = self.own.advance(State(state.hidden, state.cell), position)
        return GuidedState(own.hidden, own.cell, *self._after(*state[2:], position))

    def replay(self, cards: Int[Tensor, "B S K"]) -> Float[Tensor, "B S K N"]:
        """The scores along given cards: the network's all at once, the gains step by step."""
        gain, counts = self._nothing(cards.shape[1])
        along = [self._gain(gain, counts)]
        for position in cards[:, :, :-1].unbind(2):
            gain, counts = self._after(gain, counts, position)
            along.append(self._gain(gain, counts))
        return self.own.replay(cards) + self.scale * torch.stack(along, 2)

    def _nothing(self, num_rows: int) -> tuple[Tensor, Tensor]:
        """Gains and counts before the first choice."""
        gain = self.gains.node.unsqueeze(1).expand(-1, num_rows, -1)
        return gain, nobody(self.gains.has[:, :1]).expand(-1, num_rows, -1, -1)

    def _gain(self, gain: Tensor, counts: Tensor) -> Float[Tensor, "B S N"]:
        """A third item that has what exactly two of the chosen have brings its worth."""
        if not self.gains.worth.numel():
            return gain
        return gain + (counts[:, :, -1] * self.gains.worth) @ self.gains.has.transpose(1, 2)

    def _after(self, gain: Tensor, counts: Tensor, position: Int[Tensor, "B S"]) -> tuple[Tensor, Tensor]:
        pairs, has = rows_of(self.gains.pair, position), rows_of(self.gains.has, position)
        return gain + pairs, joined(counts, has)
