"""The task of a card value: whatever signal a log has, as one loss of all members in one step.

docs/guide/models.md says which log gets which loss; the loop that runs the task is `fit.py`'s.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor

from exactk.data.columns.vocabulary import Vocabulary
from exactk.data.dataset import Dataset
from exactk.learning.card_losses import losses_of, mean_losses
from exactk.learning.fit import Step, Task
from exactk.learning.parts import fits, in_parts
from exactk.learning.process import current_ranks, gathered
from exactk.learning.recorded import RULES_ASIDE
from exactk.learning.tasks import Data, mixed_precision
from exactk.models.card_value import CardValue
from exactk.search.maximise import exact
from exactk.settings.config import CardValueConfig, InputSizes, PairValueConfig, ShownAs
from exactk.tensors import Facts, TensorBatch

KNOWN_ENOUGH = (
    0.8  # share of validation's candidates, or users, that train met: below, ids are learned by heart
)
FEWEST_STEPS = 1000  # of a whole training: a small log is read in smaller batches
SMALLEST_BATCH = 8
SCALES_FROM = 4096  # requests of train; fewer where lists are long
SCALES_FROM_PAIRS = 2**24


def shown_in(train: Dataset) -> ShownAs:
    """What users saw, by what the log holds: clicks outside every card (or rewards alone, where there is no card), or
    cards that were all chosen.
    """
    graded = train.signal.rewards > 0 and not train.signal.cards
    if train.signal.whole_lists or graded:
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
    few = SCALES_FROM_PAIRS // max(int(data.train.meta.N or 1), 1) ** 2
    num = min(len(data.train), SCALES_FROM, max(few, 1))
    places = np.linspace(0, len(data.train) - 1, num).astype(np.int64)
    batches = data.train.take(np.unique(places)).batches(data.vocabulary, 512)
    model.inputs.fit([TensorBatch.of(batch, data.device) for batch in batches])


def card_value_task(model: CardValue, data: Data, batch_size: int, precision: str, choice: float) -> Task:
    """Phase 1 of a card value; validation judges the members together, as they decide."""

    alone = current_ranks().world == 1

    def loss(batch: TensorBatch, _: float, generator: Generator) -> Step:
        parts = (
            in_parts(batch) if alone else [batch]
        )  # gradients of several ranks are averaged as the loss descends
        if len(parts) > 1:
            model.zero_grad()
        summed = torch.zeros((), device=batch.present.device)
        for part in parts:
            with mixed_precision(data.device, precision):
                own = losses_of(model, part, choice, generator).sum() / len(batch)  # of M x B
            if len(parts) > 1:
                own.backward()  # type: ignore[no-untyped-call]
                own = own.detach()
            summed = summed + own
        figures = {"member_loss": summed.detach() / len(model.members)}
        return Step(summed, figures, has_gradients=len(parts) > 1)

    def validate() -> dict[str, float]:
        generator = Generator().manual_seed(0)  # the same cards are compared every time
        losses = [
            mean_losses(model, part, choice, generator).cpu()
            for batch in data.valid_batches()
            for part in in_parts(batch)
        ]
        return {"loss": float(gathered(torch.cat(losses)).mean())}

    def recordable(batch: TensorBatch) -> Facts | None:
        return RULES_ASIDE if model.sizes.shown != "session" and fits(batch) else None

    validated = data.valid is not None and len(data.valid)
    task = data.task("value", model, batch_size, loss, validate if validated else None)
    return replace(task, recordable=recordable)


@torch.no_grad()
def own_cards(
    model: CardValue, batches: Iterator[TensorBatch]
) -> tuple[Float[Tensor, "B"], Bool[Tensor, "B"]]:
    """The value of the best card of each list, and whether a click fell on it."""
    logits, clicked = [], []
    for batch in itertools.chain.from_iterable(map(in_parts, batches)):
        values = model.values(batch)
        found = exact(batch, values.node, values.pair)
        assert batch.clicks is not None
        hits = batch.clicks.gather(1, found.cards.clamp(min=0)) * (found.cards >= 0)
        logits.append((found.value + values.bias).float().cpu())
        clicked.append((hits > 0).any(1).cpu())
    return gathered(torch.cat(logits)), gathered(torch.cat(clicked))
