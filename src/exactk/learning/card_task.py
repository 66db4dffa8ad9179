"""The task of a card value: whatever signal a log has, as one loss of all members in one step.

docs/guide/models.md says which log gets which loss; the loop that runs the task is `fit.py`'s.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor

from exactk.data.dataset import Dataset
from exactk.data.vocabulary import Vocabulary
from exactk.learning import ranks
from exactk.learning.fit import Step, Task
from exactk.learning.losses import reward_loss
from exactk.learning.signals import list_loss, list_weights, rivals_of, subset_loss
from exactk.learning.tasks import Data, mixed_precision
from exactk.models.card_value import CardValue
from exactk.models.ensemble import Values
from exactk.search import exact
from exactk.settings.config import CardValueConfig, InputSizes, PairValueConfig, ShownAs
from exactk.tensors import TensorBatch

KNOWN_ENOUGH = (
    0.8  # share of validation's candidates, or users, that train met: below, ids are learned by heart
)
FEWEST_STEPS = 1000  # of a whole training: a small log is read in smaller batches
SMALLEST_BATCH = 8
SCALES_FROM = 4096  # requests of train


def shown_in(train: Dataset) -> ShownAs:
    """What users saw, by what the log holds: clicks outside every card, or cards that were all chosen."""
    if train.signal.whole_lists:
        return "list"
    return "session" if train.signal.positives_only else "card"


def recurring(valid: Dataset | None, vocabulary: Vocabulary) -> tuple[bool, bool]:
    """Whether items, and users, of train are met again later; so assumed where there is no later part."""
    if valid is None or not len(valid):
        return True, True
    items = users = rows = candidates = 0
    view = valid.take(np.linspace(0, len(valid) - 1, min(len(valid), SCALES_FROM)).astype(np.int64))
    for batch in view.batches(vocabulary, 512):
        items += int((batch.item[batch.present] > 0).sum())
        candidates += int(batch.present.sum())
        users += int((batch.user > 0).sum())
        rows += len(batch)
    return items >= KNOWN_ENOUGH * candidates, users >= KNOWN_ENOUGH * rows


def with_signal(view: Dataset, shown: ShownAs) -> Dataset:
    """The impressions that say something: of lists those with a click (or rewards), of cards all."""
    if shown != "list" or "reward" in view.folder.columns.measured:
        return view
    start = view.folder.index.click_start
    return view.take(start[view.rows + 1] > start[view.rows])


def phase_of(
    card: CardValueConfig, pair: PairValueConfig, sizes: InputSizes
) -> CardValueConfig | PairValueConfig:
    """Whose epochs, rates and batches: lists and sessions are few and rich, cards clicked or not many and poor."""
    return pair if sizes.shown == "card" else card


def batch_size_for(config: CardValueConfig | PairValueConfig, rows: int) -> int:
    """The configured one, or fewer requests where an epoch would be over in a few steps."""
    return max(min(config.batch_size, rows * config.epochs // FEWEST_STEPS), SMALLEST_BATCH)


def fit_scales(model: CardValue, data: Data) -> None:
    """Take the scales of all columns from requests evenly spaced through train."""
    places = np.linspace(0, len(data.train) - 1, min(len(data.train), SCALES_FROM)).astype(np.int64)
    batches = data.train.take(np.unique(places)).batches(data.vocabulary, 512)
    model.inputs.fit([TensorBatch.of(batch, data.device) for batch in batches])


def card_value_task(model: CardValue, data: Data, batch_size: int, precision: str, choice: float) -> Task:
    """Phase 1 of a card value; validation judges the members together, as they decide."""

    def loss(batch: TensorBatch, _: float, generator: Generator) -> Step:
        with mixed_precision(data.device, precision):
            each = losses_of(model, batch, choice, generator)  # M B
        mean = each.mean()
        return Step(mean * len(each), {"member_loss": mean.detach()})

    def validate() -> dict[str, float]:
        generator = Generator().manual_seed(0)  # the same cards are compared every time
        losses = [mean_losses(model, batch, choice, generator).cpu() for batch in data.valid_batches()]
        return {"loss": float(ranks.gathered(torch.cat(losses)).mean())}

    return Task(
        name="value",
        module=model,
        batches=data.train_batches(batch_size),
        batches_per_epoch=data.train.num_batches(batch_size),
        loss=loss,
        validate=None if data.valid is None or not len(data.valid) else validate,
        score="loss",
        higher_is_better=False,
        weight=data.train_weight(batch_size),
    )


def losses_of(
    model: CardValue, batch: TensorBatch, choice: float, generator: Generator
) -> Float[Tensor, "M B"]:
    """The loss of every request under each member by itself."""
    if model.sizes.shown == "card":
        return torch.stack([_card_loss(batch, *part, choice) for part in model.on_cards(batch)])
    parts = model.raw_values(batch)
    return torch.stack(_losses(model, batch, parts, parts, generator))


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


@torch.no_grad()
def own_cards(
    model: CardValue, batches: Iterator[TensorBatch]
) -> tuple[Float[Tensor, "B"], Bool[Tensor, "B"]]:
    """The value of the best card of each list, and whether a click fell on it."""
    logits, clicked = [], []
    for batch in batches:
        values = model.values(batch)
        found = exact(batch, values.node, values.pair)
        assert batch.clicks is not None
        hits = batch.clicks.gather(1, found.cards.clamp(min=0)) * (found.cards >= 0)
        logits.append((found.value + values.bias).float().cpu())
        clicked.append((hits > 0).any(1).cpu())
    return ranks.gathered(torch.cat(logits)), ranks.gathered(torch.cat(clicked))
