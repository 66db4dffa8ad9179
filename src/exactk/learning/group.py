"""Group-relative targets: a policy is shown many cards of a request, each in proportion to how good it is among them.

Knows values and log-probabilities as numbers; which cards are in the group is the caller's affair.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

from exactk.models.pairvalue import PairValue
from exactk.search.exact import as_weights
from exactk.tensors import TensorBatch


def first_of_each(cards: Int[Tensor, "B C K"]) -> Bool[Tensor, "B C"]:
    """Which cards of a group are not the same set as one before them."""
    ordered = cards.sort(-1).values
    same = (ordered.unsqueeze(1) == ordered.unsqueeze(2)).all(-1)  # B C C
    return ~same.tril(-1).any(2)


def group_targets(values: Float[Tensor, "B C"], counted: Bool[Tensor, "B C"]) -> Float[Tensor, "B C"]:
    """Softmax of the values less their mean, over their deviation; what is not counted gets nothing.

    Values 1, 2, 3: standardised -1.2247, 0, 1.2247, shares 0.0626, 0.2129, 0.7245.
    """
    count = counted.sum(1, keepdim=True).clamp(min=1)
    mean = (values * counted).sum(1, keepdim=True) / count
    centred = (values - mean) * counted
    deviation = (centred.square().sum(1, keepdim=True) / count).sqrt()
    standard = centred / (deviation + 1e-6)
    return standard.masked_fill(~counted, -torch.inf).softmax(1)


def group_loss(log_prob: Float[Tensor, "B C"], target: Float[Tensor, "B C"]) -> Float[Tensor, "B"]:
    """Cross entropy of the policy's card probabilities, shared out within the group, against the targets."""
    among = log_prob.masked_fill(target == 0, torch.finfo(log_prob.dtype).min).log_softmax(1)
    return -(target * among).sum(1)


@torch.no_grad()
def best_cards_of(
    value: PairValue, batch: TensorBatch, count: int, generator: Generator
) -> Int[Tensor, "B C K"]:
    """The best valid cards under the value, found exactly, the items of each in random order.

    Where a request has fewer, its best card again; `first_of_each` leaves those out.
    """
    from exactk.problem.exact import cliques  # numba is needed only here

    values = value.values(batch)
    pair = as_weights(values.pair)
    ranking = cliques.best_n(
        batch.requests(), as_weights(values.node), (pair + pair.transpose(0, 2, 1)) / 2, count
    )
    cards = torch.from_numpy(ranking.card).to(batch.user.device)
    cards = torch.where((cards >= 0).any(2, keepdim=True), cards, cards[:, :1])
    order = torch.rand(cards.shape, generator=generator, device=cards.device)
    return cards.gather(2, order.masked_fill(cards < 0, 2.0).argsort(2))
