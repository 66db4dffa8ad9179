"""Networks that score one item at a time: DeepRank, the linear choice model, matrix factorisation.

Know no lists and no cards: a score is of one user and one item.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor, nn

from exactk.errors import InputError
from exactk.models.inputs import InputLayer, Vectors, initialise
from exactk.models.policy import Affinity
from exactk.rivals.contract import Budget, Logs, Setting, TrainedMethod
from exactk.rivals.selection import DPP, MMR, Judge, by_weight, diversified
from exactk.rivals.training import (
    ItemScorer,
    ItemWeights,
    bpr_loss,
    click_softmax,
    fit_scorer,
    liked_in,
    pointwise_loss,
    settings_for,
)
from exactk.search.feasible import mark
from exactk.settings.config import Inputs, InputSizes, PolicyConfig
from exactk.tensors import TensorBatch

EMBEDDING, WIDTH = 16, 32
RANK = 32  # of the factors


class DeepRank(nn.Module):
    """The paper's input layer, two hidden layers of 32, one logit."""

    def __init__(self, inputs: Inputs, sizes: InputSizes, generator: Generator) -> None:
        super().__init__()
        self.inputs = InputLayer(Vectors(inputs, sizes, EMBEDDING), WIDTH)
        self.hidden = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU())
        self.out = nn.Linear(WIDTH, 1)
        initialise(self, generator)

    def forward(self, batch: TensorBatch) -> Float[Tensor, "B N"]:
        scores: Tensor = self.out(self.hidden(self.inputs(batch))).squeeze(-1)
        return scores


def fit_deeprank(train: Logs, valid: Logs, budget: Budget) -> TrainedMethod:
    """Clicks on shown items by maximum likelihood; every second trial counts unshown ones as not clicked."""

    def loss(network: DeepRank, setting: Setting, batch: TensorBatch) -> Float[Tensor, ""]:
        counted, liked = _counted(setting, batch), liked_in(batch)
        if batch.clicked is not None:  # a click on nobody knows which item tells nothing about any of them
            counted = counted & ~(batch.clicked & ~liked.any(1)).unsqueeze(1)
        return pointwise_loss(network(batch), counted, liked)

    scorer = ItemScorer(
        "DeepRank",
        lambda setting, generator: DeepRank(setting["inputs"], train.sizes, generator),
        loss,
        "sigmoid",
        by_clicks_alone=False,
    )
    network, plain = fit_scorer(scorer, _by_variant(train, "shown", "candidates"), train, valid, budget)

    @torch.no_grad()
    def likeness(batch: TensorBatch) -> Float[Tensor, "B N F"]:
        """What makes two items alike: their features or, where there are none, the embeddings learned."""
        return network.inputs.vectors.item(batch) if batch.item_features is None else batch.item_features

    weights = ItemWeights(network, "sigmoid")
    ways, chosen, judge = by_weight("DeepRank", weights), dict(plain.chosen), Judge.of(valid, budget)
    for name, kind in (("DeepRank MMR", MMR), ("DeepRank DPP", DPP)):
        ways[name], setting, _ = diversified(kind, weights, likeness, judge, budget)
        chosen |= setting
    return TrainedMethod(ways, chosen, plain.valid_score)


def _by_variant(train: Logs, *among: str) -> list[Setting]:
    """Every setting with each set of items that a click is compared with."""
    variants = [variant for variant in among if variant == "candidates" or train.passed_over]
    return [{**setting, "variant": variant} for setting in settings_for(train.sizes) for variant in variants]


def _counted(setting: Setting, batch: TensorBatch) -> Bool[Tensor, "B N"]:
    """The rest of the card, or of the candidates."""
    assert batch.card is not None
    if setting["variant"] == "candidates":
        return batch.present
    return mark(batch.card.unsqueeze(1), batch.item.shape[1]).squeeze(1)


class LinearWorth(nn.Module):
    """w_i = a x_i + x_u B x_i, by features alone: B is of low rank, so that what a user likes may differ."""

    def __init__(self, item_size: int, user_size: int, rank: int, generator: Generator) -> None:
        super().__init__()
        self.item = nn.Parameter(torch.zeros(item_size))
        self.left = nn.Parameter(0.01 * torch.randn(user_size, rank, generator=generator))
        self.right = nn.Parameter(0.01 * torch.randn(item_size, rank, generator=generator))

    def forward(self, batch: TensorBatch) -> Float[Tensor, "B N"]:
        assert batch.item_features is not None
        worth: Tensor = batch.item_features @ self.item
        if batch.user_features is None:
            return worth
        return worth + (
            (batch.user_features @ self.left).unsqueeze(1) * (batch.item_features @ self.right)
        ).sum(-1)


def fit_mnl(train: Logs, valid: Logs, budget: Budget) -> TrainedMethod:
    """Multinomial logit: the chance of a click on an item is its share of all worths on the card.

    P(click i | card) = exp(w_i) / (exp(w_0) + sum over the card of exp(w_j)). The best assortment of exactly K items
    is the K of the largest worth; under pair rules the exact engine finds it.
    """
    sizes = train.sizes
    if not sizes.item_feature_size:
        raise InputError("a linear choice model needs features of items, and this log has none")

    def make(_: Setting, generator: Generator) -> LinearWorth:
        return LinearWorth(sizes.item_feature_size, max(sizes.user_feature_size, 1), 4, generator)

    settings = [{"learning_rate": rate} for rate in (0.01, 0.003, 0.03)]
    return fit_scorer(ItemScorer("MNL", make, click_softmax), settings, train, valid, budget)[1]


def factors(inputs: Inputs, sizes: InputSizes, generator: Generator) -> Affinity:
    """<p_u, q_i> + b_i; features, where there are some, add a linear part to each, as in LightFM."""
    network = Affinity(PolicyConfig(inputs=inputs, affinity=RANK), sizes)
    initialise(network, generator)
    for linear in (network.from_user, network.from_item):
        if linear is not None:  # products of two sums of many features start large, not near nothing
            linear.weight.data *= 0.1
    return network


def fit_bpr(train: Logs, valid: Logs, budget: Budget) -> TrainedMethod:
    """BPR-MF, the paper's pairwise baseline; the others are the rest of the card, or of the candidates."""

    def loss(network: Affinity, setting: Setting, batch: TensorBatch) -> Float[Tensor, ""]:
        return bpr_loss(network(batch), _counted(setting, batch), liked_in(batch))

    scorer = ItemScorer("BPR", _factors_of(train), loss, "sigmoid")
    return fit_scorer(scorer, _by_variant(train, "candidates", "shown"), train, valid, budget)[1]


def fit_mf_softmax(train: Logs, valid: Logs, budget: Budget) -> TrainedMethod:
    """The clicked item in a softmax over the candidates: the plainest strong baseline."""
    scorer = ItemScorer("MF softmax", _factors_of(train), click_softmax)
    return fit_scorer(scorer, settings_for(train.sizes), train, valid, budget)[1]


def _factors_of(train: Logs) -> Callable[[Setting, Generator], Affinity]:
    return lambda setting, generator: factors(setting["inputs"], train.sizes, generator)
