"""Guide: a learned value of cards inside a policy: what each candidate would add to the card begun.

Knows no search and no training; the value is learned before the policy and stays as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from exactk.models.pairvalue import PairValue
from exactk.models.pointer import State
from exactk.models.triples import joined, nobody
from exactk.search.steps import Steps
from exactk.tensors import TensorBatch

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
        request = torch.arange(len(position), device=position.device).unsqueeze(1)
        return gain + self.gains.pair[request, position], joined(counts, self.gains.has[request, position])
