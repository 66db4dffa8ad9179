"""What a log's signals say of a card value's scores, as losses: docs/guide/models.md says which log gets which.

Functions of tensors; they know no model and no loop.
"""

from __future__ import annotations

import itertools
import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

from exactk.models.ensemble import Values
from exactk.problem.exact import cliques
from exactk.search.exact import as_weights
from exactk.tensors import TensorBatch

MOST_SUBSETS = 2048  # cards of a request that are all compared with the one chosen
HARD, DRAWN = 32, 256  # where there are more: the best ones under the value, and random ones
FAR = -1e9


def list_weights(batch: TensorBatch) -> Float[Tensor, "B N"]:
    """What each shown item was worth: its clicks, or its reward where one is known, never less than nothing."""
    worth = torch.zeros_like(batch.present, dtype=torch.float32) if batch.clicks is None else batch.clicks
    if batch.reward is not None:
        worth = torch.where(batch.reward.isnan(), worth, batch.reward)
    return worth.clamp(min=0) * batch.present


def list_loss(
    node: Float[Tensor, "B N"], present: Bool[Tensor, "B N"], weights: Float[Tensor, "B N"]
) -> Float[Tensor, "B"]:
    """Cross entropy of the softmax over a whole shown list against each item's share of the weights; 0 without any.

    Scores log 1, log 2, log 5 and one click on the second: -log(2/8).
    """
    log_share = node.masked_fill(~present, FAR).log_softmax(-1)
    total = weights.sum(-1, keepdim=True)
    return -(weights / total.clamp(min=1e-9) * log_share).sum(-1)


class Rivals(NamedTuple):
    """Cards of one request as rows of 0 and 1, padded to S; `right` is the row of the card that was chosen."""

    rows: Float[Tensor, "B S N"]
    real: Bool[Tensor, "B S"]
    right: Int[Tensor, "B"]


def subset_loss(values: Values, rivals: Rivals) -> Float[Tensor, "B"]:
    """Minus log of the chosen card's share in the softmax over all cards of its size that could have been chosen."""
    worth = (rivals.rows * values.node.unsqueeze(1)).sum(-1)
    worth = worth + ((rivals.rows @ values.pair) * rivals.rows).sum(-1) / 2
    log_share = worth.masked_fill(~rivals.real, FAR).log_softmax(-1)
    return -log_share.gather(1, rivals.right.unsqueeze(1)).squeeze(1)


def rivals_of(batch: TensorBatch, values: Values, generator: Generator | None) -> Rivals:
    """Every card of the chosen one's size where they are few; else the best under the value, all swaps of one item,
    and random ones.
    """
    assert batch.card is not None
    present, card = batch.present.cpu(), batch.card.cpu()
    hard: np.ndarray | None = None
    found: list[Tensor] = []
    for b in range(len(present)):
        places = present[b].nonzero().squeeze(-1)
        chosen = torch.zeros(present.shape[1])
        chosen[card[b][card[b] >= 0]] = 1.0
        size = int(chosen.sum())
        if math.comb(len(places), size) <= MOST_SUBSETS:
            rows = torch.zeros(math.comb(len(places), size), present.shape[1])
            rows[:, places] = all_cards(len(places), size)
        else:
            hard = hardest(batch, values) if hard is None else hard
            rows = torch.cat([_members(hard[b], present.shape[1]), *_near(chosen, places, size, generator)])
        others = rows[(rows != chosen).any(1)]
        found.append(torch.cat([chosen.unsqueeze(0), others]))
    S = max(map(len, found))
    rows = torch.stack([torch.nn.functional.pad(r, (0, 0, 0, S - len(r))) for r in found])
    real = torch.arange(S) < torch.tensor([len(r) for r in found]).unsqueeze(1)
    device = batch.present.device
    return Rivals(rows.to(device), real.to(device), torch.zeros(len(found), dtype=torch.long, device=device))


def hardest(batch: TensorBatch, values: Values) -> Int[np.ndarray, "B M K"]:
    """The best valid cards under the value, found exactly; -1 beyond a card's size."""
    pair = as_weights(values.pair)
    pair = (pair + pair.transpose(0, 2, 1)) / 2
    return cliques.best_n(batch.requests(), as_weights(values.node), pair, HARD).card


def _near(chosen: Tensor, places: Tensor, size: int, generator: Generator | None) -> list[Tensor]:
    inside, outside = chosen.nonzero().squeeze(-1), places[chosen[places] == 0]
    swaps = chosen.repeat(len(inside) * len(outside), 1)
    out_of, into = torch.cartesian_prod(inside, outside).unbind(1)
    at = torch.arange(len(swaps))
    swaps[at, out_of], swaps[at, into] = 0.0, 1.0
    order = torch.rand(DRAWN, len(places), generator=generator).argsort(1)[:, :size]
    drawn = torch.zeros(DRAWN, len(chosen)).scatter_(1, places[order], 1.0)
    return [swaps, drawn]


def _members(cards: Int[np.ndarray, "M K"], num_candidates: int) -> Float[Tensor, "M N"]:
    held = torch.from_numpy(cards[(cards >= 0).any(1)].astype(np.int64))
    rows = torch.zeros(len(held), num_candidates + 1)
    return rows.scatter_(1, torch.where(held >= 0, held, num_candidates), 1.0)[:, :-1]


@lru_cache(maxsize=256)
def all_cards(num_candidates: int, size: int) -> Float[Tensor, "S N"]:
    """Every card of this size as a row of 0 and 1."""
    at = torch.tensor(list(itertools.combinations(range(num_candidates), size)), dtype=torch.long)
    return torch.zeros(len(at), num_candidates).scatter_(1, at.view(len(at), size), 1.0)
