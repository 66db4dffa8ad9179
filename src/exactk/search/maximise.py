"""The best card under a value: proven where it is a sum over items and pairs, reached by swaps where it is not.

Knows no network: it is given the numbers, or a function of cards.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int
from torch import Tensor

from exactk.errors import InfeasibleError
from exactk.search.feasible import Feasible, kept_sets, mark, same_group
from exactk.tensors import TensorBatch, rows_of

ROUNDS = 100  # of swaps, at most


class ExactCards(NamedTuple):
    """Best cards, ascending, -1 beyond a card's size; `bound` is proven: no valid card is worth more."""

    cards: Int[Tensor, "B K"]
    value: Float64[Tensor, "B"]
    bound: Float64[Tensor, "B"]
    optimal: Bool[Tensor, "B"]


def exact(
    batch: TensorBatch, node: Float[Tensor, "B N"], pair: Float[Tensor, "B N N"] | None = None
) -> ExactCards:
    """Maximise the sum of `node` over the card plus `pair` (symmetric) over its pairs, all rules kept."""
    from exactk.problem.exact import cliques  # numba is needed only here

    found = cliques.best(batch.requests(), _weights(node), None if pair is None else _weights(pair))
    if not found.found.all():
        b = int(np.flatnonzero(~found.found)[0])
        raise InfeasibleError(
            f"request {b} of the batch has no valid card of {int(batch.card_size[b])} items"
        )
    device = batch.present.device
    return ExactCards(*(torch.from_numpy(np.ascontiguousarray(a)).to(device) for a in found[:4]))


def best_few(
    batch: TensorBatch, node: Float[Tensor, "B N"], pair: Float[Tensor, "B N N"], count: int
) -> Int[Tensor, "B M K"]:
    """The `count` best cards, best first, -1 beyond a card's size and where a request has fewer cards."""
    from exactk.problem.exact import cliques  # numba is needed only here

    cards = cliques.best_n(batch.requests(), _weights(node), _weights(pair), count).card
    return torch.from_numpy(cards).to(batch.present.device)


def _weights(values: Float[Tensor, "..."]) -> Float64[np.ndarray, "..."]:
    """Numbers as the clique engine takes them: a product of matrices is symmetric only up to rounding."""
    exact = np.ascontiguousarray(values.detach().to("cpu", torch.float64).numpy())
    return exact if exact.ndim == 2 else (exact + exact.transpose(0, 2, 1)) / 2


Value = Callable[[Int[Tensor, "B S K"]], Float[Tensor, "B S"]]


@torch.no_grad()
def improve(batch: TensorBatch, cards: Int[Tensor, "B K"], value: Value) -> Int[Tensor, "B K"]:
    """The best single swap of every card, again and again until none helps, at most `ROUNDS` times.

    Valid cards stay valid: pinned items are never swapped out; graph, caps and presence hold for what comes in.
    """
    N = batch.present.shape[1]
    worth = value(cards.unsqueeze(1)).squeeze(1)  # B
    for _ in range(ROUNDS):
        swapped = swaps(cards, N)  # B K*N K
        gains = value(swapped).masked_fill(~valid_swaps(batch, cards).flatten(1), -torch.inf)
        best, which = gains.max(-1)
        better = best > worth
        if not better.any():
            break
        chosen = rows_of(swapped, which)
        cards = chosen.where(better.unsqueeze(-1), cards)
        worth = best.where(better, worth)
    return Feasible.of(batch).placed(cards.unsqueeze(1)).squeeze(1)


def swaps(cards: Int[Tensor, "B K"], num_positions: int) -> Int[Tensor, "B E K"]:
    """Every card that differs in one place: number k * N + j has position j in place k."""
    K = cards.shape[1]
    swapped = cards[:, None, None, :].repeat(1, K, num_positions, 1)  # B K N K
    at = torch.arange(K, device=cards.device)
    swapped[:, at, :, at] = torch.arange(num_positions, device=cards.device)
    return swapped.flatten(1, 2)


def valid_swaps(batch: TensorBatch, cards: Int[Tensor, "B K"]) -> Bool[Tensor, "B K N"]:
    """Which swaps (out: place k, in: position j) turn these valid cards into valid cards."""
    B, K = cards.shape
    N = batch.present.shape[1]
    request = torch.arange(B, device=cards.device).unsqueeze(1)
    real, at = cards >= 0, cards.clamp(min=0)
    adjacent = (batch.graph[request, at] | ~real.unsqueeze(-1)).long()  # B K N
    with_others = adjacent.sum(1, keepdim=True) - adjacent == K - 1  # j allowed beside all but place k
    chosen = mark(cards.unsqueeze(1), N)  # B 1 N
    removable = real & ~batch.pinned[request, at]
    valid = with_others & batch.present.unsqueeze(1) & ~chosen & removable.unsqueeze(-1)
    if batch.cap.shape[1]:
        same = same_group(batch)  # B C N N
        beside = same[request, :, at].long() * real[:, :, None, None]  # B K C N: place k counts in j's group
        counts = beside.sum(1, keepdim=True) - beside  # of the others
        full = (counts >= batch.cap[:, None, :, None]) & (batch.group >= 0).unsqueeze(1)
        valid = valid & ~full.any(2)
    if batch.brief is not None:
        valid = valid & kept_sets(batch.requests(), mark(swaps(cards, N), N), valid.flatten(1)).view_as(valid)
    return valid
