"""How a trained model decides on cards: its settings, read as a search.

Knows no training and no ids: a batch comes in, positions go out. Both classes keep the contract of all recommenders.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from exactk.models.ensemble import Ensemble, SearchableValue
from exactk.models.policy import Policy
from exactk.problem.batch import Batch
from exactk.search import Feasible, beam, exact, greedy
from exactk.settings.config import PairValueConfig, PolicyConfig
from exactk.tensors import TensorBatch


class Found(NamedTuple):
    """A decision as tensors."""

    cards: Int[Tensor, "B K"]
    logit: Float[Tensor, "B"]
    bound: Float[Tensor, "B"]


class Decision(NamedTuple):
    """Cards as positions (-1 beyond a card's size), the logit of their value, and what no valid card exceeds.

    The bound is infinite where nothing is proven, and the logit NaN where no value was learned.
    """

    cards: Int[np.ndarray, "B K"]
    logit: Float[np.ndarray, "B"]
    bound: Float[np.ndarray, "B"]


@dataclass(frozen=True)
class PolicyWriter:
    """Cards written by the policy, with the value that the reward gives them."""

    policy: Policy
    config: PolicyConfig
    reward: Ensemble | None = None
    by_beam: Callable[[TensorBatch], Int[Tensor, "B K"]] | None = None  # the same cards as a beam's, sooner

    @torch.no_grad()
    def recommend(self, batch: TensorBatch) -> Int[Tensor, "B K"]:
        """One valid card per request, by a beam of the configured width."""
        width = self.config.beam
        if width > 1 and self.by_beam is not None:
            return self.by_beam(batch)
        feasible, steps = Feasible.of(batch), self.policy.steps(batch)
        return greedy(steps, feasible) if width == 1 else beam(steps, feasible, width).cards[:, 0]

    @torch.no_grad()
    def decide(self, batch: TensorBatch, prove_seconds: float = 0.0) -> Found:
        """The cards and their value; a reward that is a pair value can, in some seconds per request, prove a bound."""
        cards = self.recommend(batch)
        if self.reward is None:
            unknown = torch.full((len(cards),), torch.nan, dtype=torch.float64, device=cards.device)
            return Found(cards, unknown, torch.full_like(unknown, torch.inf))
        logit = self.reward(batch, cards.unsqueeze(1)).squeeze(1).double()
        searchable = isinstance(self.reward, SearchableValue) and self.reward.only_pairs
        if not searchable or prove_seconds == 0:
            return Found(cards, logit, torch.full_like(logit, torch.inf))
        assert isinstance(self.reward, SearchableValue)
        values = self.reward.values(batch)
        bound = exact(batch, values.node, values.pair, prove_seconds).bound + values.bias.double()
        return Found(cards, logit, bound.maximum(logit))  # float32 sums may differ in the last digit


@dataclass(frozen=True)
class PairValueSearch:
    """The card with the highest learned value, found and proven by the clique engine."""

    model: SearchableValue
    config: PairValueConfig

    def recommend(self, batch: TensorBatch) -> Int[Tensor, "B K"]:
        """One valid card per request."""
        return self.decide(batch).cards

    @torch.no_grad()
    def decide(self, batch: TensorBatch, prove_seconds: float = 0.0) -> Found:  # noqa: ARG002 - proven as it is
        """The best cards with their value and bound."""
        values = self.model.values(batch)
        found = exact(batch, values.node, values.pair)
        return Found(found.cards, found.value + values.bias, found.bound + values.bias)


@dataclass(frozen=True)
class Decider:
    """A trained model and its search under the contract of all recommenders: arrays in, arrays out."""

    search: PolicyWriter | PairValueSearch
    device: torch.device | str = "cpu"

    def recommend(self, batch: Batch) -> Int[np.ndarray, "B K"]:
        """One valid card per request."""
        return self.search.recommend(TensorBatch.of(batch, self.device)).cpu().numpy()

    def decide(self, batch: Batch, prove_seconds: float = 0.0) -> Decision:
        """Cards with the logit of their value and its proven bound."""
        found = self.search.decide(TensorBatch.of(batch, self.device), prove_seconds)
        return Decision(*(part.cpu().numpy() for part in found))
