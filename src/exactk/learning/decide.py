"""How a trained model decides on a card: its settings, read as a search.

Knows no training and no ids: a batch comes in, positions go out.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from exactk.config import PairValueConfig, PolicyConfig
from exactk.models.ensemble import Ensemble
from exactk.models.pairvalue import PairValue
from exactk.models.policy import Policy
from exactk.problem.batch import Batch
from exactk.search import Feasible, beam, exact, greedy, improve, sample
from exactk.search.exact import ExactCards


@torch.no_grad()
def policy_cards(
    policy: Policy,
    batch: Batch,
    config: PolicyConfig,
    reward: Ensemble | None = None,
    caution: float = 0.0,
    generator: Generator | None = None,
) -> Int[Tensor, "B K"]:
    """The policy's card of every request: decoded as configured, then improved by swaps under the reward if asked."""
    feasible, steps = Feasible.of(batch), policy.steps(batch)
    if config.decoding == "greedy" or (config.decoding == "beam" and config.beam == 1):
        cards = greedy(steps, feasible)
    elif config.decoding == "beam":
        cards = beam(steps, feasible, config.beam).cards[:, 0]
    else:
        cards = sample(steps, feasible, 1, generator=generator).cards[:, 0]
    if reward is not None and config.improve_seconds > 0:

        def value(cards: Int[Tensor, "B S K"]) -> Float[Tensor, "B S"]:
            return reward.cautious(batch, cards, caution)

        cards = improve(batch, cards, value, time_limit=config.improve_seconds)
    return cards


@torch.no_grad()
def pair_value_cards(model: PairValue, batch: Batch, config: PairValueConfig) -> ExactCards:
    """The card with the highest learned value of every request, proven, or as far as the time limit allows."""
    values = model.values(batch)
    return exact(batch, values.node, values.pair, config.time_limit_seconds or None)
