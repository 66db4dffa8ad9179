"""How networks in training decide, in torch: what validation judges by, and what the engine is held against.

Knows no training and no ids; a trained model decides by `engine.decide`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from exactk.models.ensemble import SearchableValue
from exactk.models.policy import Policy
from exactk.search import Feasible, beam, exact, greedy
from exactk.search.exact import ExactCards
from exactk.settings.config import PolicyConfig
from exactk.tensors import TensorBatch


@dataclass(frozen=True)
class PolicyWriter:
    """Cards written by the policy."""

    policy: Policy
    config: PolicyConfig

    @torch.no_grad()
    def recommend(self, batch: TensorBatch) -> Int[Tensor, "B K"]:
        """One valid card per request, by a beam of the configured width."""
        feasible, steps, width = Feasible.of(batch), self.policy.steps(batch), self.config.beam
        return greedy(steps, feasible) if width == 1 else beam(steps, feasible, width).cards[:, 0]


@torch.no_grad()
def best_cards(model: SearchableValue, batch: TensorBatch) -> ExactCards:
    """The cards with the highest learned value, and that value, proven."""
    values = model.values(batch)
    found = exact(batch, values.node, values.pair)
    return found._replace(value=found.value + values.bias, bound=found.bound + values.bias)
