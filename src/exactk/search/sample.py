"""Cards drawn from a model's distribution, and the distribution itself along given cards.

Knows no network. Drawing and scoring go through one mask and one softmax, so they cannot disagree.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from exactk.search.feasible import Feasible
from exactk.search.steps import Steps, log_probabilities, spread_rows


class Sampled(NamedTuple):
    """S cards per request in order of choice (-1 beyond a card's size); log P(A|S,u), with gradient if enabled."""

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
    """Draw `num_samples` cards per request in one roll-out; `log_prob` is of the tempered distribution.

    The roll-out records no gradient: when gradients are enabled the cards are replayed, all steps at once.
    """
    shape = (feasible.longest, len(feasible.open), num_samples)
    uniform = torch.rand(shape, generator=generator, device=feasible.open.device)
    drawn = rolled_out(steps, feasible, uniform, temperature)
    if not torch.is_grad_enabled():
        return drawn
    along = distributions(steps, feasible, drawn.cards, temperature, drawn.allowed)
    return drawn._replace(log_prob=log_prob_of(drawn.cards, along))


@torch.no_grad()
def rolled_out(
    steps: Steps[Any], feasible: Feasible, uniform: Float[Tensor, "K B S"], temperature: float
) -> Sampled:
    """Cards drawn step by step by the numbers given, without gradient."""
    num_samples = uniform.shape[2]
    prefix, state = feasible.start(num_samples), steps.start(1)
    masks, log_prob = [], torch.zeros(prefix.cards.shape[:2], device=prefix.open.device)
    for t in range(feasible.longest):
        masks.append(feasible.allowed(prefix))
        # Before the first choice all samples are one: scored once, then spread.
        scores = steps.step(state).expand(masks[-1].shape)
        log_probs = log_probabilities(scores, masks[-1], temperature)
        position = draw(log_probs, uniform[t])
        if feasible.ragged:
            position = position.where(feasible.live(t), -1)
        log_prob = log_prob + at_position(log_probs, position)
        prefix = feasible.extend(prefix, position)
        if t == 0:
            state = spread_rows(state, num_samples)
        if t + 1 < feasible.longest:
            state = steps.advance(state, position)
    return Sampled(prefix.cards, log_prob, torch.stack(masks, 2))


def draw(log_probs: Float[Tensor, "B S N"], uniform: Float[Tensor, "B S"]) -> Int[Tensor, "B S"]:
    """One position per row from its distribution, given a number in [0, 1): where the running sum passes it.

    The first position at which the sum is *above* the number has added to it, so a forbidden one is never
    drawn; the factor keeps the number below the whole sum whatever the rounding.
    """
    if log_probs.device.type == "cuda":
        # Along the first axis: a GPU's running sums over short rows take as long as all the rest of a roll-out.
        sums = log_probs.movedim(-1, 0).contiguous().exp().cumsum(0)  # N B S
        level = uniform * (1 - 2**-22) * sums[-1]
        return (sums <= level).sum(0)
    sums = log_probs.exp().cumsum(-1)
    level = uniform.unsqueeze(-1) * (1 - 2**-22) * sums[..., -1:]
    return torch.searchsorted(sums, level, right=True).squeeze(-1)


def distributions(
    steps: Steps[Any],
    feasible: Feasible,
    cards: Int[Tensor, "B S K"],
    temperature: float = 1.0,
    allowed: Bool[Tensor, "B S K N"] | None = None,
) -> Distributions:
    """The model's distribution before each choice of these cards; `allowed` spares asking what is known."""
    mask = feasible.along(cards) if allowed is None else allowed
    return Distributions(log_probabilities(steps.replay(cards), mask, temperature), mask)


def log_prob_of(cards: Int[Tensor, "B S K"], along: Distributions) -> Float[Tensor, "B S"]:
    """log P(A|S,u) by the chain rule (eq. 9) from the distributions along A; -inf if it is forbidden."""
    return at_position(along.log_probs, cards).sum(-1)


def at_position(
    log_probs: Float[Tensor, "*rows N"], position: Int[Tensor, "*rows"]
) -> Float[Tensor, "*rows"]:
    """The log-probability of what was chosen; of nothing (-1), 0."""
    return picked(log_probs, position.clamp(min=0)).masked_fill(position < 0, 0.0)


def picked(values: Float[Tensor, "*rows N"], position: Int[Tensor, "*rows"]) -> Float[Tensor, "*rows"]:
    """values[..., position]; on a GPU by a mask, whose gradient is a mask and no scattered sum."""
    if values.device.type != "cuda":
        return values.gather(-1, position.unsqueeze(-1)).squeeze(-1)
    every = torch.arange(values.shape[-1], device=values.device)
    return torch.where(position.unsqueeze(-1) == every, values, 0.0).sum(-1)


def log_prob(
    steps: Steps[Any], feasible: Feasible, cards: Int[Tensor, "B S K"], temperature: float = 1.0
) -> Float[Tensor, "B S"]:
    """log P(A|S,u) of given cards, each in its given order, under the distribution `sample` draws from."""
    return log_prob_of(cards, distributions(steps, feasible, cards, temperature))
