"""Multinomial logit (MNL): a linear worth of each item, the chance of a click its share of all on the card.

P(click i | card) = exp(w_i) / (exp(w_0) + sum over the card of exp(w_j)). The best assortment of exactly K items for
the most clicks is the K of the largest worth; under pair rules the exact engine finds it.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from exactk.errors import InputError
from exactk.rivals.contract import Budget, Logs, Setting, TrainedMethod
from exactk.rivals.losses import softmax_loss
from exactk.rivals.selection import by_weight
from exactk.rivals.training import ItemWeights, train_scorer
from exactk.tensors import TensorBatch

SETTINGS: list[Setting] = [{"learning_rate": rate} for rate in (0.01, 0.003, 0.03)]


class LinearWorth(nn.Module):
    """w_i = a x_i + x_u B x_i, by features alone: B is of low rank, so that what a user likes may differ."""

    def __init__(self, item_size: int, user_size: int, rank: int, generator: Generator) -> None:
        super().__init__()
        self.item = nn.Parameter(torch.zeros(item_size))
        self.left = nn.Parameter(0.01 * torch.randn(user_size, rank, generator=generator))
        self.right = nn.Parameter(0.01 * torch.randn(item_size, rank, generator=generator))

    def forward(self, batch: TensorBatch) -> Float[Tensor, "B N"]:
        """The worth of every candidate."""
        assert batch.item_features is not None
        worth: Tensor = batch.item_features @ self.item
        if batch.user_features is None:
            return worth
        return worth + (
            (batch.user_features @ self.left).unsqueeze(1) * (batch.item_features @ self.right)
        ).sum(-1)


def fit_mnl(train: Logs, valid: Logs, budget: Budget) -> TrainedMethod:
    """The choice model, and its best assortment."""
    sizes = train.sizes
    if not sizes.item_feature_size:
        raise InputError("a linear choice model needs features of items, and this log has none")
    network, chosen, score = train_scorer(
        "MNL",
        SETTINGS,
        lambda _, generator: LinearWorth(
            sizes.item_feature_size, max(sizes.user_feature_size, 1), 4, generator
        ),
        lambda network: ItemWeights(network, "softmax"),
        lambda network, _, batch: _choice_loss(network, batch),
        train.clicked_only(),
        valid.clicked_only(),
        budget,
    )
    return TrainedMethod(by_weight("MNL", ItemWeights(network, "softmax")), chosen, score)


def _choice_loss(network: LinearWorth, batch: TensorBatch) -> Float[Tensor, ""]:
    assert batch.clicked_position is not None
    return softmax_loss(network(batch), batch.present, batch.clicked_position)
