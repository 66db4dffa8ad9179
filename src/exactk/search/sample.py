"""Cards drawn from a model's distribution, and the distribution itself along given cards.

Knows no network. Drawing and scoring go through one mask and one softmax, so they cannot disagree.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from exactk.search.feasible import Feasible
from exactk.search.steps import Steps, log_probabilities


class Sampled(NamedTuple):
    """S cards per request in order of choice (-1 beyond a card's size), and log P(A|S,u) with gradient if enabled."""

    cards: Int[Tensor, "B S K"]
    log_prob: Float[Tensor, "B S"]
    allowed: Bool[Tensor, "B S K N"]


class Distributions(NamedTuple):
    """log p(. | a_1..a_t-1, S, u) before each choice of given cards, and what was allowed there.

    Forbidden positions have -inf.
    """

    log_probs: Float[Tensor, "B S K N"]
    allowed: Bool[Tensor, "B S K N"]


def sample(
    steps: Steps[Any],
    feasible: Feasible,
    num_samples: int,
    temperature: float = 1.0,
    generator: torch.Generator | None = None,
) -> Sampled:
    """Draw `num_samples` cards per request in one roll-out; log-probabilities are of the tempered distribution.

    The roll-out itself records no gradient: when gradients are enabled the cards are replayed, all steps at once.
    """
    with torch.no_grad():
        prefix, state = feasible.start(num_samples), steps.start(num_samples)
        masks, log_prob = [], torch.zeros(prefix.cards.shape[:2], device=prefix.open.device)
        for t in range(feasible.longest):
            masks.append(feasible.allowed(prefix))
            log_probs = log_probabilities(steps.step(state), masks[-1], temperature)
            # argmax of p / e with e ~ Exp(1) is a draw from p; e > 0, so a forbidden position (p = 0) never wins.
            noise = torch.empty_like(log_probs).exponential_(generator=generator)
            position = (log_probs.exp() / noise).argmax(-1)  # B S
            chosen = log_probs.gather(-1, position.unsqueeze(-1)).squeeze(-1)
            if feasible.ragged:
                chosen = chosen.where(feasible.live(t), 0.0)
                position = position.where(feasible.live(t), -1)
            log_prob = log_prob + chosen
            prefix = feasible.extend(prefix, position)
            if t + 1 < feasible.longest:
                state = steps.advance(state, position)
    allowed = torch.stack(masks, 2)
    if torch.is_grad_enabled():
        log_prob = log_prob_of(
            prefix.cards, distributions(steps, feasible, prefix.cards, temperature, allowed)
        )
    return Sampled(prefix.cards, log_prob, allowed)


def distributions(
    steps: Steps[Any],
    feasible: Feasible,
    cards: Int[Tensor, "B S K"],
    temperature: float = 1.0,
    allowed: Bool[Tensor, "B S K N"] | None = None,
) -> Distributions:
    """The model's distribution before each choice of these cards; `allowed` spares asking again what is known."""
    mask = feasible.along(cards) if allowed is None else allowed
    return Distributions(log_probabilities(steps.replay(cards), mask, temperature), mask)


def log_prob_of(cards: Int[Tensor, "B S K"], along: Distributions) -> Float[Tensor, "B S"]:
    """log P(A|S,u) by the chain rule (eq. 9) from the distributions along A; -inf if a choice was forbidden."""
    chosen = along.log_probs.gather(-1, cards.clamp(min=0).unsqueeze(-1)).squeeze(-1)  # B S K
    return chosen.masked_fill(cards < 0, 0.0).sum(-1)


def log_prob(
    steps: Steps[Any], feasible: Feasible, cards: Int[Tensor, "B S K"], temperature: float = 1.0
) -> Float[Tensor, "B S"]:
    """log P(A|S,u) of given cards, each in its given order, under the distribution that `sample` draws from."""
    return log_prob_of(cards, distributions(steps, feasible, cards, temperature))
