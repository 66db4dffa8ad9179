"""Greedy decoding: the likeliest next position, K times. And Algorithm 1, greedy by node weight.

Knows no network.
"""

from __future__ import annotations

from typing import Any

from jaxtyping import Float, Int
from torch import Tensor

from exactk.search.feasible import Feasible
from exactk.search.steps import Steps, log_probabilities


def greedy(steps: Steps[Any], feasible: Feasible) -> Int[Tensor, "B K"]:
    """One card per request, -1 beyond its size. Ties go to the lower position."""
    prefix, state = feasible.start(1), steps.start(1)
    for t in range(feasible.longest):
        scores = log_probabilities(steps.step(state), feasible.allowed(prefix))
        position = scores.argmax(-1)  # B 1
        if feasible.ragged:
            position = position.where(feasible.live(t), -1)
        prefix = feasible.extend(prefix, position)
        if t + 1 < feasible.longest:
            state = steps.advance(state, position)
    return feasible.placed(prefix.cards).squeeze(1)


def greedy_by_weight(weights: Float[Tensor, "B N"], feasible: Feasible) -> Int[Tensor, "B K"]:
    """The paper's Algorithm 1, made safe: the heaviest node that still leaves a valid card within reach."""
    prefix = feasible.start(1)
    rank = (
        weights.argsort(dim=-1, descending=True, stable=True).argsort(dim=-1).unsqueeze(1)
    )  # B 1 N, 0: heaviest
    for t in range(feasible.longest):
        position = rank.masked_fill(~feasible.allowed(prefix), rank.shape[2]).argmin(-1)
        if feasible.ragged:
            position = position.where(feasible.live(t), -1)
        prefix = feasible.extend(prefix, position)
    return feasible.placed(prefix.cards).squeeze(1)
