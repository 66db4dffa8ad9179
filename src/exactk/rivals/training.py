"""How every network rival is trained: ranking losses, the same loop, the same trials, the weights that validate best.

Knows no network: a method brings one, its loss and the settings worth trying.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor, nn
from torch.nn import functional

from exactk.learning.fit import Step, Task, fit
from exactk.learning.optimiser import FitSettings
from exactk.rivals.contract import Budget, Logs, Setting, TrainedMethod, batch_size_for, tuned
from exactk.rivals.selection import Greedy, Judge, by_weight
from exactk.settings.config import Inputs, InputSizes
from exactk.tensors import TensorBatch


def pointwise_loss(
    scores: Float[Tensor, "B N"], counted: Bool[Tensor, "B N"], liked: Bool[Tensor, "B N"]
) -> Float[Tensor, ""]:
    """Log loss of a click on each counted item, over all counted items."""
    each = functional.binary_cross_entropy_with_logits(scores, liked.to(scores.dtype), reduction="none")
    return (each * counted).sum() / counted.sum().clamp(min=1)


def bpr_loss(
    scores: Float[Tensor, "B N"], others: Bool[Tensor, "B N"], liked: Bool[Tensor, "B N"]
) -> Float[Tensor, ""]:
    """Rendle et al. 2009: -log sigmoid(s_liked - s_other), mean over the pairs of a row, then over rows."""
    most = max(int(liked.sum(1).max()), 1) if len(liked) else 1
    real, at = liked.long().topk(most, dim=1)  # B P
    pairs = (real > 0).unsqueeze(2) & (others & ~liked).unsqueeze(1)  # B P N
    each = functional.softplus(scores.unsqueeze(1) - scores.gather(1, at).unsqueeze(2)) * pairs
    row = each.sum((1, 2)) / pairs.sum((1, 2)).clamp(min=1)
    return row.sum() / pairs.flatten(1).any(1).sum().clamp(min=1)


def softmax_loss(
    scores: Float[Tensor, "B N"], among: Bool[Tensor, "B N"], liked: Bool[Tensor, "B N"]
) -> Float[Tensor, ""]:
    """Cross entropy of the liked items, each as likely, in a softmax over `among`; mean over the rows that have any."""
    some = liked.any(1)
    among = among | ~some.unsqueeze(1)  # a row without click counts nothing; keep its softmax finite
    log_share = scores.masked_fill(~among, torch.finfo(scores.dtype).min).log_softmax(1)
    each = -(log_share.masked_fill(~liked, 0.0).sum(1) / liked.sum(1).clamp(min=1))
    return each.sum() / some.sum().clamp(min=1)


def liked_in(batch: TensorBatch) -> Bool[Tensor, "B N"]:
    """Which candidates the log says were liked."""
    assert batch.clicks is not None
    return batch.clicks > 0


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


def trained(network: nn.Module, task: RivalTask, learning_rate: float, budget: Budget) -> float:
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


@dataclass(frozen=True)
class ItemScorer(Generic[Network]):
    """A network that gives every candidate a score: how it is made and taught, and how scores become weights."""

    name: str
    make: Callable[[Setting, Generator], Network]
    loss: Callable[[Network, Setting, TensorBatch], Float[Tensor, ""]]
    kind: Literal["softmax", "sigmoid"] = "softmax"
    by_clicks_alone: bool = True  # requests without a click teach it nothing


def fit_scorer(
    scorer: ItemScorer[Network], settings: Sequence[Setting], train: Logs, valid: Logs, budget: Budget
) -> tuple[Network, TrainedMethod]:
    """The network with the lowest validation loss; between variants of the loss, P@K of greedy cards decides.

    The loss, because with a few hundred validation clicks P@K is too coarse to choose an epoch by: on the default world
    it picked scores worth 45% of the optimum where the loss picked 55%.
    """
    logs, judge = train, Judge.of(valid, budget)
    if scorer.by_clicks_alone:
        logs, valid = train.clicked_only(), valid.clicked_only()
    held_out = list(map(TensorBatch.of, valid.first(budget.validation_rows).batches(budget.batch_size)))

    def attempt(setting: Setting) -> tuple[Network, float]:
        network = scorer.make(setting, Generator().manual_seed(budget.seed))

        def loss(batch: TensorBatch) -> Float[Tensor, ""]:
            return scorer.loss(network, setting, batch)

        task = RivalTask(scorer.name, lambda batch, _: loss(batch), logs, lambda: -mean_loss(loss, held_out))
        return network, trained(network, task, setting["learning_rate"], budget)

    network, chosen, score = tuned(
        settings, budget, attempt, lambda network: judge(Greedy(ItemWeights(network, scorer.kind)))
    )
    ways = by_weight(scorer.name, ItemWeights(network, scorer.kind))
    return network, TrainedMethod(ways, chosen, score)


def click_softmax(network: nn.Module, _: Setting, batch: TensorBatch) -> Float[Tensor, ""]:
    """The clicked item in a softmax over the candidates."""
    return softmax_loss(network(batch), batch.present, liked_in(batch))


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
