"""How every network rival is trained: the same loop, the same trials, the weights that validate best.

Knows no network: a method brings one, its loss and the settings worth trying.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from exactk.learning.fit import Step, Task, fit
from exactk.learning.optimiser import FitSettings
from exactk.rivals.contract import Budget, Logs, Setting, batch_size_for, tuned
from exactk.rivals.selection import Greedy, Judge, Scorer
from exactk.settings.config import Inputs, InputSizes
from exactk.tensors import TensorBatch

Loss = Callable[[TensorBatch, Generator], Float[Tensor, ""]]
Network = TypeVar("Network", bound=nn.Module)

LARGE_TABLE = 200_000  # ids beyond which a dense id table costs more than it tells, where there are features
RATES = (0.003, 0.001, 0.01, 0.0003)


def settings_for(sizes: InputSizes, rates: Sequence[float] = RATES) -> list[Setting]:
    """Inputs and learning rates in the order of promise; with features, those first: ids mostly add noise to them."""
    kinds: list[Inputs] = ["ids"]
    if sizes.user_feature_size and sizes.item_feature_size:
        kinds = ["features"]
        if sizes.num_users + sizes.num_items <= LARGE_TABLE:
            kinds = ["features", "both"]
    return [{"inputs": kind, "learning_rate": rate} for rate in rates for kind in kinds]


@dataclass(frozen=True)
class RivalTask:
    """What one network is taught: its loss, on which logs, and how it is judged (higher is better)."""

    name: str
    loss: Loss
    logs: Logs
    judged: Callable[[], float]


def train(network: nn.Module, task: RivalTask, learning_rate: float, budget: Budget) -> float:
    """Train in place, keep the weights of the best epoch, return their validation score."""
    batch_size = batch_size_for(len(task.logs), budget)
    batches_per_epoch = math.ceil(len(task.logs) / batch_size)
    if batches_per_epoch == 0:
        return math.nan

    def batches(epoch: int, start: int) -> Iterator[TensorBatch]:
        return map(TensorBatch.of, task.logs.batches(batch_size, budget.seed, epoch, start))

    def loss(batch: TensorBatch, progress: float, generator: Generator) -> Step:  # noqa: ARG001 - the loop's signature
        return Step(task.loss(batch, generator), {})

    best = -math.inf

    def validate() -> dict[str, float]:
        nonlocal best
        score = task.judged()
        score = -math.inf if math.isnan(score) else score
        best = max(best, score)
        return {"score": score}

    whole = Task(
        task.name, network, batches, batches_per_epoch, loss, validate, "score", higher_is_better=True
    )
    settings = FitSettings(
        epochs=budget.epochs,
        learning_rate=learning_rate,
        patience=budget.patience,
        seed=budget.seed,
        clip_norm=1.0,
    )
    fit(whole, settings)
    return best


def train_scorer(
    name: str,
    settings: Sequence[Setting],
    make: Callable[[Setting, Generator], Network],
    scorer: Callable[[Network], Scorer],
    loss: Callable[[Network, Setting, TensorBatch], Float[Tensor, ""]],
    logs: Logs,
    valid: Logs,
    budget: Budget,
) -> tuple[Network, Setting, float]:
    """The network with the lowest validation loss; between variants of the loss, P@K of greedy cards decides.

    The loss, because with a few hundred validation clicks P@K is too coarse to choose an epoch by: on the default world
    it picked scores worth 45% of the optimum where the loss picked 55%.
    """
    held_out = [
        TensorBatch.of(batch) for batch in valid.first(budget.validation_rows).batches(budget.batch_size)
    ]
    judge = Judge.of(valid, budget)

    def attempt(setting: Setting) -> tuple[Network, float]:
        network = make(setting, Generator().manual_seed(budget.seed))
        task = RivalTask(
            name,
            lambda batch, _: loss(network, setting, batch),
            logs,
            lambda: -mean_loss(lambda batch: loss(network, setting, batch), held_out),
        )
        return network, train(network, task, setting["learning_rate"], budget)

    return tuned(settings, budget, attempt, lambda network: judge(Greedy(scorer(network))))


def mean_loss(loss: Callable[[TensorBatch], Float[Tensor, ""]], batches: Sequence[TensorBatch]) -> float:
    """The mean over all rows; NaN without any."""
    rows = sum(map(len, batches))
    return sum(float(loss(batch)) * len(batch) for batch in batches) / rows if rows else math.nan


@dataclass(frozen=True)
class ItemWeights:
    """A network's scores as node weights: click probabilities of single items, or shares of a softmax."""

    network: nn.Module
    kind: str  # "sigmoid" or "softmax"

    @torch.no_grad()
    def __call__(self, batch: TensorBatch) -> Float[Tensor, "B N"]:
        """w_i = P(r=1 | a_i, S, u)."""
        scores: Tensor = self.network(batch).double()
        if self.kind == "sigmoid":
            return scores.sigmoid()
        return scores.masked_fill(~batch.present, -torch.inf).softmax(-1)
