"""The losses of a card value: of cards clicked or not, of whole lists, of cards that were all chosen.

Functions of a batch and of what the members say of it; knows no data and no loop. docs/guide/models.md says which log
gets which loss.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

from exactk.learning.losses import FAR, list_loss, reward_loss
from exactk.models.card_value import CardValue
from exactk.models.pairvalue import Values
from exactk.search.feasible import mark
from exactk.search.maximise import best_few
from exactk.tensors import TensorBatch

MOST_READ = 64  # candidates of a list that a training step reads: what it takes grows with their square
MOST_SUBSETS = 2048  # cards of a request that are all compared with the one chosen
HARD, DRAWN = 32, 256  # where there are more: the best ones under the value, and random ones


def losses_of(
    model: CardValue, batch: TensorBatch, choice: float, generator: Generator
) -> Float[Tensor, "M B"]:
    """The loss of every request under each member by itself."""
    if model.sizes.shown == "card":
        return torch.stack([_card_loss(batch, *part, choice) for part in model.on_cards(batch)])
    if model.sizes.shown == "list" and model.training and batch.item.shape[1] > MOST_READ:
        at = some_candidates(batch, MOST_READ, generator)
        weights, present = list_weights(batch).gather(1, at), batch.present.gather(1, at)
        return torch.stack([list_loss(v.node.float(), present, weights) for v in model.raw_values(batch, at)])
    parts = model.raw_values(batch)
    return torch.stack(_losses(model, batch, parts, parts, generator))


def drawn(shape: Sequence[int], generator: Generator) -> Tensor:
    """Numbers from 0 to 1, where the generator is: a GPU's own draws on the GPU."""
    return torch.rand(tuple(shape), generator=generator, device=generator.device)


def some_candidates(batch: TensorBatch, most: int, generator: Generator) -> Int[Tensor, "B R"]:
    """Positions of what was clicked, then of others drawn at random; padding comes last."""
    order = drawn(batch.present.shape, generator).to(batch.present.device)
    order = order.masked_fill(list_weights(batch) > 0, -1.0).masked_fill(~batch.present, 2.0)
    return order.argsort(1)[:, :most]


def mean_losses(
    model: CardValue, batch: TensorBatch, choice: float, generator: Generator
) -> Float[Tensor, "B"]:
    """The loss of every request under the members' mean."""
    if model.sizes.shown == "card":
        bias, appeals, scale = zip(*model.on_cards(batch), strict=True)
        means = [torch.stack(part).mean(0) for part in (bias, appeals, scale)]
        return _card_loss(batch, means[0], means[1], means[2], choice)
    parts = model.raw_values(batch)
    mean = Values(*(torch.stack(part).mean(0) for part in zip(*parts, strict=True)))
    return _losses(model, batch, [mean], parts, generator)[0]


def _losses(
    model: CardValue, batch: TensorBatch, judged: list[Values], members: list[Values], generator: Generator
) -> list[Float[Tensor, "B"]]:
    if model.sizes.shown == "list":
        weights = list_weights(batch)
        return [list_loss(values.node.float(), batch.present, weights) for values in judged]
    mean = Values(*(torch.stack(part).mean(0).detach() for part in zip(*members, strict=True)))
    rivals = rivals_of(batch, mean, generator)
    return [subset_loss(values, rivals) for values in judged]


def _card_loss(
    batch: TensorBatch,
    bias: Float[Tensor, "B"],
    appeals: Float[Tensor, "B K"],
    choice_scale: Float[Tensor, ""],
    choice: float,
) -> Float[Tensor, "B"]:
    """Whether the card was clicked, and which of its items; what an item brings is its node and half its pairs."""
    assert batch.card is not None
    assert batch.clicked is not None
    total = reward_loss(bias + appeals.sum(-1), batch.clicked)
    if not choice:
        return total
    real, at = batch.card >= 0, batch.card.clamp(min=0)
    if batch.clicks is None and batch.clicked_position is not None:
        weights = (batch.card == batch.clicked_position.unsqueeze(1)) & real
    else:
        weights = list_weights(batch).gather(1, at) * real
    return total + choice * list_loss(appeals * choice_scale.exp(), real, weights.float())


def list_weights(batch: TensorBatch) -> Float[Tensor, "B N"]:
    """What each shown item was worth: its clicks, or its reward where one is known, never less than nothing."""
    worth = torch.zeros_like(batch.present, dtype=torch.float32) if batch.clicks is None else batch.clicks
    if batch.reward is not None:
        worth = torch.where(batch.reward.isnan(), worth, batch.reward)
    return worth.clamp(min=0) * batch.present


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


def rivals_of(batch: TensorBatch, values: Values, generator: Generator) -> Rivals:
    """Every card of the chosen one's size where they are few; else the best under the value, all swaps of one item,
    and random ones.
    """
    assert batch.card is not None
    present, card = batch.present.cpu(), batch.card.cpu()
    hard: Tensor | None = None  # B HARD N
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
            if hard is None:
                hard = mark(best_few(batch, values.node, values.pair, HARD).cpu(), len(chosen)).float()
            rows = torch.cat([hard[b][hard[b].any(1)], *_near(chosen, places, size, generator)])
        others = rows[(rows != chosen).any(1)]
        found.append(torch.cat([chosen.unsqueeze(0), others]))
    S = max(map(len, found))
    rows = torch.stack([torch.nn.functional.pad(r, (0, 0, 0, S - len(r))) for r in found])
    real = torch.arange(S) < torch.tensor([len(r) for r in found]).unsqueeze(1)
    device = batch.present.device
    return Rivals(rows.to(device), real.to(device), torch.zeros(len(found), dtype=torch.long, device=device))


def _near(chosen: Tensor, places: Tensor, size: int, generator: Generator) -> list[Tensor]:
    inside, outside = chosen.nonzero().squeeze(-1), places[chosen[places] == 0]
    swaps = chosen.repeat(len(inside) * len(outside), 1)
    out_of, into = torch.cartesian_prod(inside, outside).unbind(1)
    at = torch.arange(len(swaps))
    swaps[at, out_of], swaps[at, into] = 0.0, 1.0
    order = drawn((DRAWN, len(places)), generator).cpu().argsort(1)[:, :size]
    others = torch.zeros(DRAWN, len(chosen)).scatter_(1, places[order], 1.0)
    return [swaps, others]


@lru_cache(maxsize=256)
def all_cards(num_candidates: int, size: int) -> Float[Tensor, "S N"]:
    """Every card of this size as a row of 0 and 1."""
    at = torch.tensor(list(itertools.combinations(range(num_candidates), size)), dtype=torch.long)
    return torch.zeros(len(at), num_candidates).scatter_(1, at.view(len(at), size), 1.0)
