"""Matrix factorisation alone, as large and as long tuned as the likings inside our policy: the control of the tables.

Knows no network. A softmax over the candidates; rank, rate and decay as chosen on validation.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from exactk.learning.fit import Step, Task, fit
from exactk.learning.losses import spread_loss
from exactk.learning.optimiser import FitSettings
from exactk.models.inputs import initialise
from exactk.models.policy import Affinity
from exactk.rivals.contract import Budget, Logs, TrainedMethod
from exactk.rivals.selection import Greedy, Judge, by_weight
from exactk.rivals.training import ItemWeights, liked_in, softmax_loss
from exactk.settings.config import PolicyConfig
from exactk.tensors import TensorBatch


@dataclass(frozen=True)
class Factored:
    """A fit(train, valid, budget): one setting, the best of its epochs by P@K on validation."""

    rank: int = 128
    learning_rate: float = 0.01
    weight_decay: float = 0.1
    batch_size: int = 128
    memory: float = 0.0  # of pairs, as in `policy.memory`
    smoothing: float = 0.0  # share of the target given to all candidates alike, as in `training.smoothing`

    def __call__(self, train: Logs, valid: Logs, budget: Budget) -> TrainedMethod:
        """Train, keep the weights that find most clicks on validation."""
        network = self.network(train, budget.seed)
        logs, judge, batch_size = train.clicked_only(), Judge.of(valid, budget), self.batch_size
        weights = ItemWeights(network, "softmax")

        def batches(epoch: int, start: int) -> Iterator[TensorBatch]:
            return map(TensorBatch.of, logs.batches(batch_size, budget.seed, epoch, start))

        def loss(batch: TensorBatch, progress: float, generator: Generator) -> Step:  # noqa: ARG001 - the loop's signature
            return Step(self.loss(network(batch), batch), {})

        task = Task(
            "factors", network, batches, math.ceil(len(logs) / batch_size), loss,
            lambda: {"precision": judge(Greedy(weights))}, "precision", higher_is_better=True,
        )  # fmt: skip
        settings = FitSettings(
            budget.epochs, self.learning_rate, weight_decay=self.weight_decay, seed=budget.seed
        )
        history = fit(task, settings)
        found = max(event["precision"] for event in history if event["event"] == "valid")
        return TrainedMethod(by_weight("MF softmax", weights), {"rank": self.rank}, found)

    def loss(self, scores: Float[Tensor, "B N"], batch: TensorBatch) -> Float[Tensor, ""]:
        """The clicked item in a softmax over the candidates, smoothed where asked for."""
        assert batch.clicked_position is not None
        loss = softmax_loss(scores, batch.present, liked_in(batch))
        if not self.smoothing:
            return loss
        log_share = scores.masked_fill(~batch.present, -torch.inf).log_softmax(1).unsqueeze(1)  # B 1 N
        spread = spread_loss(log_share, batch.present.unsqueeze(1), batch.clicked_position.unsqueeze(1))
        return (1.0 - self.smoothing) * loss + self.smoothing * spread.mean()

    def network(self, train: Logs, seed: int) -> Affinity:
        """Untrained factors."""
        network = Affinity(PolicyConfig(inputs="ids", affinity=self.rank, memory=self.memory), train.sizes)
        initialise(network, Generator().manual_seed(seed))
        with torch.no_grad():
            assert network.items is not None
            network.items.weight[:, -1] = 0.0
        return network
