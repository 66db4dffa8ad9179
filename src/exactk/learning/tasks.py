"""The tasks of a recommender: phase 1 fits a value of cards, phase 2 a policy to it (Algorithm 2).

Knows models, losses and data, and where the kinds of a pair value begin; the loop that runs a task is `fit.py`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int
from torch import Generator, Tensor, nn

from exactk.data.columns.vocabulary import Vocabulary
from exactk.data.dataset import Dataset
from exactk.data.split import epoch_order, in_batches
from exactk.errors import DataError
from exactk.learning import calibrate, losses
from exactk.learning.fit import Step, Task
from exactk.learning.process import current_ranks, gathered
from exactk.learning.recorded import RULES_ASIDE, Fused, safe_facts
from exactk.learning.rlfd import Adversaries, estimated_rewards, policy_step
from exactk.models.pairvalue import Ensemble, PairMember, PairValue
from exactk.models.policy import Policy
from exactk.models.reward import Reward
from exactk.problem.batch import Batch
from exactk.search import exact
from exactk.settings.config import Config, TrainingConfig
from exactk.tensors import TensorBatch

VALIDATION_BATCH = 512

# Figures of cards on one batch, one number per request, NaN where a figure does not apply (P@K without a click).
Measure = Callable[[Int[np.ndarray, "B K"], Batch], dict[str, np.ndarray]]


@dataclass(frozen=True)
class Data:
    """What a task reads: views of a dataset, the vocabulary fitted on train, and where tensors go."""

    train: Dataset
    valid: Dataset | None
    vocabulary: Vocabulary
    device: torch.device
    seed: int

    def task(
        self,
        name: str,
        module: nn.Module,
        batch_size: int,
        loss: Callable[[TensorBatch, float, Generator], Step],
        validate: Callable[[], dict[str, float]] | None,
    ) -> Task:
        """This loss on these data, the weights with the least of it on validation kept."""
        batches, weight = self.train_batches(batch_size), self.train_weight(batch_size)
        return Task(name, module, batches, self.train.num_batches(batch_size), loss, validate, weight=weight)

    def train_batches(self, batch_size: int) -> Callable[[int, int], Iterator[TensorBatch]]:
        """Batches of an epoch from a place on, shuffled by seed and epoch alone; of each, this process's share."""
        process = current_ranks()

        def shared(epoch: int, start: int) -> Iterator[TensorBatch]:
            windows = epoch_order(len(self.train), self.seed, epoch, start * batch_size)
            for places in in_batches(windows, batch_size):
                yield TensorBatch.of(self.train.batch(self.vocabulary, process.share(places)))

        return shared

    def train_weight(self, batch_size: int) -> Callable[[int], float]:
        """What the share of a batch counts: the last one of an epoch may be dealt unevenly."""
        process, rows = current_ranks(), len(self.train)
        return lambda batch: process.weight(min(batch_size, rows - batch * batch_size))

    def valid_batches(self) -> Iterator[TensorBatch]:
        """The validation requests in their own order, on the device; this process's share of them."""
        if self.valid is None:
            return
        process = current_ranks()
        if len(self.valid) < process.world:
            raise DataError(
                f"{self.valid.path}: {len(self.valid)} validation requests are too few for {process.world} workers"
            )
        own = self.valid if process.world == 1 else self.valid.take(slice(process.rank, None, process.world))
        for batch in own.batches(self.vocabulary, VALIDATION_BATCH):
            yield TensorBatch.of(batch, self.device)


def value_task(model: Ensemble, data: Data, batch_size: int, precision: str, choice: float = 0.0) -> Task:
    """Phase 1: learn P(r=1|A,u) from cards that were and were not clicked; every member of an ensemble by itself.

    `choice` weighs a second lesson, for pair values only: which item of a clicked card was clicked.
    """

    def loss(batch: TensorBatch, _: float, __: Generator) -> Step:
        assert batch.card is not None
        assert batch.clicked is not None
        with mixed_precision(data.device, precision):
            logits = model.member_logits(batch, batch.card.unsqueeze(1)).squeeze(2).float()  # M B
        clicks = losses.reward_loss(logits.flatten(), batch.clicked.repeat(len(logits))).mean()
        figures = {"log_loss": clicks.detach()}
        total = clicks
        if choice and isinstance(model, PairValue):
            chosen = choice_losses(model, batch).mean()
            figures["choice_loss"] = chosen.detach()
            total = clicks + choice * chosen
        return Step(total * len(logits), figures)

    def validate() -> dict[str, float]:
        figures = calibrate.reward_figures(*predictions(model, data.valid_batches()))
        if choice and isinstance(model, PairValue):
            surprise = [choice_losses(model, batch).mean(0).cpu() for batch in data.valid_batches()]
            figures["choice_loss"] = float(gathered(torch.cat(surprise)).mean())
        return {**figures, "loss": figures["log_loss"] + choice * figures.get("choice_loss", 0.0)}

    task = data.task("value", model, batch_size, loss, None if data.valid is None else validate)
    return replace(task, recordable=lambda _: RULES_ASIDE)


def choice_losses(model: PairValue, batch: TensorBatch) -> Float[Tensor, "M B"]:
    """How surprising the clicked item of each card is to each member; 0 where none was clicked."""
    assert batch.card is not None
    assert batch.clicked_position is not None
    cards, by_member = batch.card.unsqueeze(1), []
    clicked = (batch.card == batch.clicked_position.unsqueeze(1)) & (batch.card >= 0)
    for member in model.members:
        appeals = member.appeals(batch, cards).squeeze(1) * member.choice_scale.exp()  # type: ignore[operator]
        by_member.append(losses.list_loss(appeals.float(), batch.card >= 0, clicked.float()))
    return torch.stack(by_member)


def policy_task(
    policy: Policy, reward: Ensemble | None, data: Data, config: Config, measure: Measure
) -> Task:
    """Phase 2: RLfD. Validation decodes as the recommender will, and says what `measure` and the reward make of it."""
    training = config.training
    adversaries = None if reward is None or not training.adversarial else Adversaries(policy, reward)
    judge = reward if adversaries is None else adversaries.discriminator

    def loss(batch: TensorBatch, progress: float, generator: Generator) -> Step:
        if training.demonstrations == "exact":
            assert isinstance(reward, PairValue)  # the settings saw to it
            batch = shown_the_best(reward, batch)
        with mixed_precision(data.device, training.precision), fused():
            return policy_step(policy, judge, training, batch, progress, generator)

    fused = Fused(policy) if training.compile and data.device.type == "cuda" else nullcontext

    def validate() -> dict[str, float]:
        collected: dict[str, list[Tensor]] = {}
        for batch in data.valid_batches():
            cards = policy.cards(batch)
            figures = {
                name: torch.from_numpy(values)
                for name, values in measure(cards.cpu().numpy(), batch.arrays()).items()
            }
            if reward is not None:
                figures["reward"] = estimated_rewards(reward, batch, cards.unsqueeze(1)).squeeze(1)
            for name, values in figures.items():
                collected.setdefault(name, []).append(values.double().cpu())
        return {name: float(gathered(torch.cat(values)).nanmean()) for name, values in collected.items()}

    validated = data.valid is not None and training.choose_by != "last"
    known = None if data.valid is None else data.valid.signal
    named = known is None or known.named_clicks or known.whole_lists
    by_cards = "precision" if named else "hit_ratio"  # where no clicked item is named
    module = policy if adversaries is None else adversaries
    plain = always_alike(training)
    return replace(
        data.task("policy", module, training.batch_size, loss, validate if validated else None),
        score="reward" if training.choose_by == "reward" and reward is not None else by_cards,
        higher_is_better=True,
        recordable=safe_facts if plain and (reward is None or isinstance(reward, Reward)) else None,
        starts_useful=policy.guide is not None,
    )


def always_alike(training: TrainingConfig) -> bool:
    """Whether a step's loss is the same function of its batch from the first step to the last, and never looks."""
    return (
        not training.warm_start_epochs
        and training.demonstrations == "logged"
        and not training.group
        and not training.adversarial
    )


@torch.no_grad()
def shown_the_best(value: PairValue, batch: TensorBatch) -> TensorBatch:
    """The same requests, each demonstrated the best valid card under the value: a teacher who knows no luck."""
    values = value.values(batch)
    card = exact(batch, values.node, values.pair).cards
    return replace(batch, card=card, clicked=torch.ones_like(batch.user).bool(), clicked_position=None)


@torch.no_grad()
def predictions(
    model: Ensemble, batches: Iterator[TensorBatch]
) -> tuple[Float[Tensor, "B"], Bool[Tensor, "B"]]:
    """Logits of the logged cards, and whether they were clicked; those of all processes that train together."""
    logits, clicked = [], []
    for batch in batches:
        assert batch.card is not None
        assert batch.clicked is not None
        logits.append(model(batch, batch.card.unsqueeze(1)).squeeze(1).float().cpu())
        clicked.append(batch.clicked.cpu())
    return gathered(torch.cat(logits)), gathered(torch.cat(clicked))


def mixed_precision(device: torch.device, precision: str) -> torch.autocast:
    """bfloat16 where asked for and the device gains by it; weights and losses stay in float32."""
    return torch.autocast(
        device.type, torch.bfloat16, enabled=precision == "bfloat16" and device.type == "cuda"
    )


REQUESTS, ITEMS = 4096, 20_000  # of train, evenly spaced; of what they offer, by chance
ROUNDS = 30
SHARPNESS = 5.0  # over the number of features: how far an item leans to the nearest middle


@torch.no_grad()
def start_kinds(value: nn.Module, data: Data) -> None:
    """Let k_c = softmax_c(-s/2 |x - middle_c|^2) of every member; where there are no features, nothing changes."""
    members = [part for part in value.modules() if isinstance(part, PairMember)]
    points = _item_features(data) if members else np.empty((0, 0))
    for number, member in enumerate(members):
        size, kinds = member.vectors.item_feature_size, member.kinds.out_features
        if not size or len(points) <= kinds:
            continue
        middles = k_means(points, kinds, np.random.default_rng([data.seed, number]))
        sharpness = SHARPNESS / size
        member.kinds.weight.zero_()  # of ids: they say nothing yet
        member.kinds.weight[:, -size:] = torch.from_numpy(sharpness * middles)
        member.kinds.bias.copy_(torch.from_numpy(-sharpness / 2 * np.square(middles).sum(1)))


def k_means(
    points: Float64[np.ndarray, "P D"], count: int, rng: np.random.Generator
) -> Float64[np.ndarray, "C D"]:
    """Middles of groups, each point in that of its nearest; begun far from each other (k-means++)."""
    middles = points[rng.integers(len(points), size=1)]
    nearest = np.square(points - middles[0]).sum(1)
    while len(middles) < count:
        reach = nearest.sum()
        chance = nearest / reach if reach > 0 else None
        chosen = points[rng.choice(len(points), p=chance)]
        middles = np.concatenate([middles, chosen[None]])
        nearest = np.minimum(nearest, np.square(points - chosen).sum(1))
    for _ in range(ROUNDS):
        own = (np.square(middles).sum(1) - 2 * points @ middles.T).argmin(1)
        sizes = np.bincount(own, minlength=count)
        sums = np.zeros_like(middles)
        np.add.at(sums, own, points)
        moved = np.where(sizes[:, None] > 0, sums / np.maximum(sizes, 1)[:, None], middles)
        if np.array_equal(moved, middles):
            break
        middles = moved
    return middles


def _item_features(data: Data) -> Float[np.ndarray, "P D"]:
    """Different feature vectors of what train offered."""
    held = [
        batch.item_features[batch.present]
        for batch in data.train.spread(REQUESTS).batches(data.vocabulary, 512)
        if batch.item_features is not None
    ]
    if not held:
        return np.empty((0, 0))
    points = np.unique(np.concatenate(held).astype(np.float64), axis=0)
    if len(points) > ITEMS:
        points = points[np.random.default_rng(data.seed).choice(len(points), ITEMS, replace=False)]
    return points
