"""What search asks of a model that writes cards position by position, and the one masked distribution.

Knows no network: a `Steps` may be a policy bound to a batch, or ten lines of a test.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

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
        """The scores `step` would give before each choice of these cards, all at once."""


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
    request = torch.arange(len(parent), device=parent.device).unsqueeze(1)  # B 1
    return type(state)(*(tensor[request, parent] for tensor in state))


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
