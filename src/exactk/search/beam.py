"""Beam search: the W likeliest cards begun, batched over requests; a card is a set, so its orders count once.

Knows no network.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from exactk.search.feasible import Feasible
from exactk.search.steps import Steps, log_probabilities, take_rows


class Beams(NamedTuple):
    """The W likeliest cards found, best first; where there are fewer, cards of -1 with log_prob -inf."""

    cards: Int[Tensor, "B W K"]
    log_prob: Float[Tensor, "B W"]


def beam(steps: Steps[Any], feasible: Feasible, width: int, temperature: float = 1.0) -> Beams:
    """Keep the `width` likeliest prefixes at every step, distinct sets before further orders of the same set.

    So a narrow beam spends no place on a second order, and one wide enough tries every order of every card.
    Of a card found in several orders the likeliest is returned. Ties go to the better parent, then to the
    lower position.
    """
    prefix, state = feasible.start(1), steps.start(1)
    total = torch.zeros(prefix.cards.shape[:2], device=prefix.open.device)  # B W
    identity = torch.zeros_like(total, dtype=torch.long)  # of the set chosen so far
    for t in range(feasible.longest):
        final = t + 1 == feasible.longest
        allowed = feasible.allowed(prefix)
        log_probs = log_probabilities(steps.step(state), allowed, temperature)
        sets = identity.unsqueeze(-1) + set_keys(allowed.shape[2], allowed.device)  # B W N
        if feasible.ragged:  # a finished card has one expansion, itself
            live = feasible.live(t).unsqueeze(-1)
            log_probs = log_probs.where(live, stay(log_probs))
            sets = sets.where(live, identity.unsqueeze(-1))
        total, chosen = likeliest(
            (total.unsqueeze(-1) + log_probs).flatten(1), sets.flatten(1), width, distinct=final
        )
        identity = sets.flatten(1).gather(1, chosen)
        parent, position = chosen // allowed.shape[2], chosen % allowed.shape[2]
        if feasible.ragged:
            position = position.where(feasible.live(t), -1)
        prefix = feasible.extend(take_rows(prefix, parent), position)
        if not final:
            state = steps.advance(take_rows(state, parent), position)
    missing = width - total.shape[1]
    cards = feasible.placed(prefix.cards).masked_fill((total == -torch.inf).unsqueeze(-1), -1)
    return Beams(
        torch.nn.functional.pad(cards, (0, 0, 0, missing), value=-1),
        torch.nn.functional.pad(total, (0, missing), value=-torch.inf),
    )


def likeliest(
    log_prob: Float[Tensor, "B E"], sets: Int[Tensor, "B E"], width: int, distinct: bool
) -> tuple[Float[Tensor, "B W"], Int[Tensor, "B W"]]:
    """The `width` best expansions: the likeliest order of each set by log-probability, then the other orders.

    With `distinct` the other orders are left out. Where too few remain, the rest name the best one again, at
    -inf, so that every row stays a valid prefix.
    """
    log_prob, order = log_prob.sort(descending=True, stable=True)
    repeated = seen_before(sets.gather(1, order))
    if distinct:
        log_prob = log_prob.masked_fill(repeated, -torch.inf)
    last = repeated.to(torch.uint8) + 2 * (log_prob == -torch.inf).to(torch.uint8)
    first = last.sort(stable=True).indices[:, :width]
    log_prob, order = log_prob.gather(1, first), order.gather(1, first)
    return log_prob, order.where(log_prob > -torch.inf, order[:, :1])


def seen_before(sets: Int[Tensor, "B E"]) -> Bool[Tensor, "B E"]:
    """Which entries repeat an earlier one of their row: [5, 7, 5, 5] gives [no, no, yes, yes]."""
    ordered, where = sets.sort(stable=True)
    again = torch.nn.functional.pad(ordered[:, 1:] == ordered[:, :-1], (1, 0))
    return torch.empty_like(again).scatter_(1, where, again)


def stay(log_probs: Float[Tensor, "B W N"]) -> Float[Tensor, "N"]:
    """Expansions of a finished card: one, named by position 0, certain."""
    only = torch.full_like(log_probs[0, 0], -torch.inf)
    only[0] = 0.0
    return only


@lru_cache(maxsize=64)
def set_keys(num_positions: int, device: torch.device) -> Int[Tensor, "N"]:
    """A number per position such that sums tell sets apart: powers of two; random ones beyond 62 positions."""
    if num_positions <= 62:
        return 2 ** torch.arange(num_positions, device=device)
    generator = torch.Generator().manual_seed(0)
    return torch.randint(2**62, (num_positions,), generator=generator).to(device)
