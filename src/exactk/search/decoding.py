"""Cards from a model that writes position by position: what is asked of it, cards drawn, the likeliest next or whole.

Knows no network: a `Steps` may be a policy bound to a batch, or ten lines of a test. Drawing and scoring go through one
mask and one softmax, so they cannot disagree. Beside them stands Algorithm 1, greedy by node weight.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from exactk.search.feasible import Feasible
from exactk.tensors import rows_of

# A named tuple of tensors, each [B, S, ...]: S rows (samples, beams) per request, re-parented by indexing.
State = TypeVar("State", bound=tuple[Tensor, ...])


@runtime_checkable
class Steps(Protocol[State]):
    """A model bound to B requests. Its scores are raw: validity is `Feasible`'s business, not the model's."""

    def start(self, num_rows: int) -> State:
        """The state before the first choice, for `num_rows` rows per request."""

    def step(self, state: State) -> Float[Tensor, "B S N"]:
        """Unnormalised scores of every position as the next choice."""

    def advance(self, state: State, position: Int[Tensor, "B S"]) -> State:
        """The state after choosing `position` (-1: the row is finished, its state is not used again)."""

    def replay(self, cards: Int[Tensor, "B S K"]) -> Float[Tensor, "B S K N"]:
        """The scores `step` would give before each choice of these cards; one by one where nobody knows better."""
        return replay_by_steps(self, cards)


def log_probabilities(
    scores: Float[Tensor, "*rows N"], allowed: Bool[Tensor, "*rows N"], temperature: float = 1.0
) -> Float[Tensor, "*rows N"]:
    """softmax(u_tj) with u_tj = -inf where masked (eq. 13, 14), as logarithms: forbidden positions have -inf.

    The softmax itself sees the lowest finite number there, so that a row with nothing allowed (a finished card)
    has -inf everywhere, not NaN, and gradients stay finite.
    """
    if temperature != 1.0:
        scores = scores / temperature
    forbidden = ~allowed
    return (
        scores.masked_fill(forbidden, torch.finfo(scores.dtype).min)
        .log_softmax(-1)
        .masked_fill(forbidden, -torch.inf)
    )


def take_rows(state: Any, parent: Int[Tensor, "B W"]) -> Any:
    """The rows `parent` of every tensor [B, S, ...] of a named tuple: beam w continues row parent[b, w]."""
    return type(state)(*(rows_of(tensor, parent) for tensor in state))


def spread_rows(state: Any, num_rows: int) -> Any:
    """The one row of every tensor [B, 1, ...] of a named tuple as `num_rows` equal ones, without copying it."""
    return type(state)(*(tensor.expand(-1, num_rows, *tensor.shape[2:]) for tensor in state))


def replay_by_steps(steps: Steps[Any], cards: Int[Tensor, "B S K"]) -> Float[Tensor, "B S K N"]:
    """`Steps.replay` in terms of the other three: the definition that faster ones are held against."""
    state = steps.start(cards.shape[1])
    scores = []
    for t in range(cards.shape[2]):
        scores.append(steps.step(state))
        if t + 1 < cards.shape[2]:
            state = steps.advance(state, cards[:, :, t])
    return torch.stack(scores, 2)


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
    shape = (feasible.facts.longest, len(feasible.open), num_samples)
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
    for t in range(feasible.facts.longest):
        masks.append(feasible.allowed(prefix))
        # Before the first choice all samples are one: scored once, then spread.
        scores = steps.step(state).expand(masks[-1].shape)
        log_probs = log_probabilities(scores, masks[-1], temperature)
        position = draw(log_probs, uniform[t])
        if feasible.facts.ragged:
            position = position.where(feasible.live(t), -1)
        log_prob = log_prob + at_position(log_probs, position)
        prefix = feasible.extend(prefix, position)
        if t == 0:
            state = spread_rows(state, num_samples)
        if t + 1 < feasible.facts.longest:
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


def greedy(steps: Steps[Any], feasible: Feasible) -> Int[Tensor, "B K"]:
    """One card per request, -1 beyond its size. Ties go to the lower position."""
    prefix, state = feasible.start(1), steps.start(1)
    for t in range(feasible.facts.longest):
        scores = log_probabilities(steps.step(state), feasible.allowed(prefix))
        position = scores.argmax(-1)  # B 1
        if feasible.facts.ragged:
            position = position.where(feasible.live(t), -1)
        prefix = feasible.extend(prefix, position)
        if t + 1 < feasible.facts.longest:
            state = steps.advance(state, position)
    return feasible.placed(prefix.cards).squeeze(1)


def greedy_by_weight(weights: Float[Tensor, "B N"], feasible: Feasible) -> Int[Tensor, "B K"]:
    """The paper's Algorithm 1, made safe: the heaviest node that still leaves a valid card within reach."""
    prefix = feasible.start(1)
    order = weights.argsort(dim=-1, descending=True, stable=True)
    rank = order.argsort(dim=-1).unsqueeze(1)  # B 1 N, 0: heaviest
    for t in range(feasible.facts.longest):
        position = rank.masked_fill(~feasible.allowed(prefix), rank.shape[2]).argmin(-1)
        if feasible.facts.ragged:
            position = position.where(feasible.live(t), -1)
        prefix = feasible.extend(prefix, position)
    return feasible.placed(prefix.cards).squeeze(1)


class Beams(NamedTuple):
    """The W likeliest cards found, best first; where there are fewer, cards of -1 with log_prob -inf."""

    cards: Int[Tensor, "B W K"]
    log_prob: Float[Tensor, "B W"]


def beam(steps: Steps[Any], feasible: Feasible, width: int) -> Beams:
    """Keep the `width` likeliest prefixes at every step, distinct sets before further orders of the same set.

    So a narrow beam spends no place on a second order, and one wide enough tries every order of every card.
    Of a card found in several orders the likeliest is returned. Ties go to the better parent, then to the
    lower position.
    """
    prefix, state = feasible.start(1), steps.start(1)
    total = torch.zeros(prefix.cards.shape[:2], device=prefix.open.device)  # B W
    identity = torch.zeros_like(total, dtype=torch.long)  # of the set chosen so far
    for t in range(feasible.facts.longest):
        final = t + 1 == feasible.facts.longest
        allowed = feasible.allowed(prefix)
        log_probs = log_probabilities(steps.step(state), allowed)
        sets = identity.unsqueeze(-1) + set_keys(allowed.shape[2], allowed.device)  # B W N
        if feasible.facts.ragged:  # a finished card has one expansion, itself
            live = feasible.live(t).unsqueeze(-1)
            log_probs = log_probs.where(live, stay(log_probs))
            sets = sets.where(live, identity.unsqueeze(-1))
        longer = (total.unsqueeze(-1) + log_probs).flatten(1)
        total, chosen = likeliest(longer, sets.flatten(1), width, distinct=final)
        identity = sets.flatten(1).gather(1, chosen)
        parent, position = chosen // allowed.shape[2], chosen % allowed.shape[2]
        if feasible.facts.ragged:
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
