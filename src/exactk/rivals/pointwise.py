"""DeepRank, the paper's pointwise baseline: a network for the click on one item; plain and diversified.

Knows no list: each item is judged alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from exactk.models.inputs import InputLayer, Vectors, initialise
from exactk.rivals.contract import Budget, Logs, Setting, TrainedMethod
from exactk.rivals.losses import pointwise_loss, shown_items
from exactk.rivals.selection import by_weight, diversified
from exactk.rivals.training import ItemWeights, settings_for, train_scorer
from exactk.settings.config import Inputs, InputSizes
from exactk.tensors import TensorBatch

EMBEDDING, WIDTH = 16, 32


class DeepRank(nn.Module):
    """The paper's input layer, two hidden layers of 32, one logit."""

    def __init__(self, inputs: Inputs, sizes: InputSizes, generator: Generator) -> None:
        super().__init__()
        self.inputs = InputLayer(Vectors(inputs, sizes, EMBEDDING), WIDTH)
        self.hidden = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU())
        self.out = nn.Linear(WIDTH, 1)
        initialise(self, generator)

    def forward(self, batch: TensorBatch) -> Float[Tensor, "B N"]:
        """A logit for each candidate."""
        scores: Tensor = self.out(self.hidden(self.inputs(batch))).squeeze(-1)
        return scores


@dataclass(frozen=True)
class ItemVectors:
    """What makes two items alike: their features or, where there are none, the embeddings learned."""

    vectors: Vectors

    @torch.no_grad()
    def __call__(self, batch: TensorBatch) -> Float[Tensor, "B N F"]:
        """One vector per candidate."""
        return self.vectors.item(batch) if batch.item_features is None else batch.item_features


def fit_deeprank(train: Logs, valid: Logs, budget: Budget) -> TrainedMethod:
    """Clicks on shown items by maximum likelihood; every second trial counts unshown ones as not clicked."""
    settings = [
        {**setting, "variant": negatives}
        for setting in settings_for(train.sizes)
        for negatives in ("shown", "candidates")
    ]

    def loss(network: DeepRank, setting: Setting, batch: TensorBatch) -> Float[Tensor, ""]:
        assert batch.card is not None
        assert batch.clicked_position is not None
        shown = shown_items(batch.card, batch.item.shape[1])
        counted = shown if setting["variant"] == "shown" else batch.present
        if (
            batch.clicked is not None
        ):  # a click on nobody knows which item tells nothing about any one of them
            counted = counted & ~(batch.clicked & (batch.clicked_position < 0)).unsqueeze(1)
        return pointwise_loss(network(batch), counted, batch.clicked_position)

    network, chosen, score = train_scorer(
        "deeprank",
        settings,
        lambda setting, generator: DeepRank(setting["inputs"], train.sizes, generator),
        lambda network: ItemWeights(network, "sigmoid"),
        loss,
        train,
        valid,
        budget,
    )
    scorer = ItemWeights(network, "sigmoid")
    diverse, tuned_to = diversified("DeepRank", scorer, ItemVectors(network.inputs.vectors), valid, budget)
    return TrainedMethod({**by_weight("DeepRank", scorer), **diverse}, {**chosen, **tuned_to}, score)
