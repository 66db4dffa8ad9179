"""How a trained model decides on cards: its settings, read as a search.

Knows no training and no ids: a batch comes in, positions go out. Both classes keep the contract of all recommenders.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from exactk.models.ensemble import Ensemble
from exactk.models.pairvalue import PairValue
from exactk.models.policy import Policy
from exactk.problem.batch import Batch
from exactk.search import Feasible, beam, exact, greedy, improve, sample
from exactk.settings.config import PairValueConfig, PolicyConfig


class Decision(NamedTuple):
    """Cards as positions (-1 beyond a card's size), the logit of their value, and what no valid card exceeds.

    The bound is infinite where nothing is proven, and the logit NaN where no value was learned.
    """

    cards: Int[Tensor, "B K"]
    logit: Float[Tensor, "B"]
    bound: Float[Tensor, "B"]


@dataclass(frozen=True)
class PolicyWriter:
    """Cards written by the policy, then, where seconds are given for it, improved by swaps under the reward."""

    policy: Policy
    config: PolicyConfig
    reward: Ensemble | None = None
    caution: float = 0.0
    by_beam: Callable[[Batch], Int[Tensor, "B K"]] | None = None  # the same cards as a beam's, sooner

    @torch.no_grad()
    def recommend(self, batch: Batch) -> Int[Tensor, "B K"]:
        """One valid card per request, decoded as configured."""
        cards = self._written(batch)
        if self.reward is None or self.config.improve_seconds == 0:
            return cards
        reward, caution = self.reward, self.caution
        return improve(
            batch, cards, lambda tried: reward.cautious(batch, tried, caution), self.config.improve_seconds
        )

    def _written(self, batch: Batch) -> Int[Tensor, "B K"]:
        config = self.config
        if config.decoding == "beam" and config.beam > 1 and self.by_beam is not None:
            return self.by_beam(batch)
        feasible, steps = Feasible.of(batch), self.policy.steps(batch)
        if config.decoding == "greedy" or (config.decoding == "beam" and config.beam == 1):
            return greedy(steps, feasible)
        if config.decoding == "beam":
            return beam(steps, feasible, config.beam).cards[:, 0]
        return sample(steps, feasible, 1).cards[:, 0]

    @torch.no_grad()
    def decide(self, batch: Batch, prove_seconds: float = 0.0) -> Decision:
        """The cards and their value; a reward that is a pair value can, in some seconds per request, prove a bound."""
        cards = self.recommend(batch)
        if self.reward is None:
            unknown = torch.full((len(cards),), torch.nan, dtype=torch.float64, device=cards.device)
            return Decision(cards, unknown, torch.full_like(unknown, torch.inf))
        logit = self.reward(batch, cards.unsqueeze(1)).squeeze(1).double()
        searchable = isinstance(self.reward, PairValue) and self.reward.only_pairs
        if not searchable or prove_seconds == 0:
            return Decision(cards, logit, torch.full_like(logit, torch.inf))
        assert isinstance(self.reward, PairValue)
        values = self.reward.values(batch)
        bound = exact(batch, values.node, values.pair, prove_seconds).bound + values.bias.double()
        return Decision(cards, logit, bound.maximum(logit))  # float32 sums may differ in the last digit


@dataclass(frozen=True)
class PairValueSearch:
    """The card with the highest learned value, found and proven by the clique engine."""

    model: PairValue
    config: PairValueConfig

    def recommend(self, batch: Batch) -> Int[Tensor, "B K"]:
        """One valid card per request."""
        return self.decide(batch).cards

    @torch.no_grad()
    def decide(self, batch: Batch, prove_seconds: float = 0.0) -> Decision:  # noqa: ARG002 - proven as it is
        """The best cards, or as good as the configured time limit allows, with their value and bound."""
        values = self.model.values(batch)
        found = exact(batch, values.node, values.pair, self.config.time_limit_seconds or None)
        return Decision(found.cards, found.value + values.bias, found.bound + values.bias)
