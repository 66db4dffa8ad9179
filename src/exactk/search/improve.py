"""Swap local search: exchange one item of a card for another while the value rises, within a time budget.

Knows no network: the value is any function of cards.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from exactk.search.feasible import Feasible, mark, same_group
from exactk.search.lookahead import kept_sets
from exactk.tensors import TensorBatch

Value = Callable[[Int[Tensor, "B S K"]], Float[Tensor, "B S"]]


@torch.no_grad()
def improve(
    batch: TensorBatch,
    cards: Int[Tensor, "B K"],
    value: Value,
    time_limit: float | None = None,
    max_rounds: int = 100,
) -> Int[Tensor, "B K"]:
    """The best single swap of every card, again and again until none helps or `time_limit` seconds are over.

    Valid cards stay valid: pinned items are never swapped out; graph, caps and presence hold for what comes in.
    """
    deadline = None if time_limit is None else time.monotonic() + time_limit
    B, N = batch.present.shape
    worth = value(cards.unsqueeze(1)).squeeze(1)  # B
    for _ in range(max_rounds):
        if deadline is not None and time.monotonic() >= deadline:
            break
        swapped = swaps(cards, N)  # B K*N K
        gains = value(swapped).masked_fill(~valid_swaps(batch, cards).flatten(1), -torch.inf)
        best, which = gains.max(-1)
        better = best > worth
        if not better.any():
            break
        chosen = swapped[torch.arange(B, device=cards.device), which]
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
