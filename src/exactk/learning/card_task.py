"""What a card value learns: the task of whatever signal a log has, its losses, and long lists in parts that fit memory.

docs/guide/models.md says which log gets which loss; the loop that runs the task is `fit.py`'s.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

from exactk.data.assemble import entries
from exactk.data.columns.vocabulary import Vocabulary
from exactk.data.dataset import Dataset
from exactk.learning.fit import Step, Task
from exactk.learning.losses import FAR, list_loss, reward_loss
from exactk.learning.process import current_ranks, gathered
from exactk.learning.recorded import RULES_ASIDE
from exactk.learning.tasks import Data, mixed_precision
from exactk.models.card_value import CardValue
from exactk.models.pairvalue import Values
from exactk.problem.batch import CANDIDATE_AXES
from exactk.search.feasible import mark
from exactk.search.maximise import best_few, exact
from exactk.settings.config import CardValueConfig, PairValueConfig, ShownAs
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
    view = valid.spread(SCALES_FROM)
    folder, index = view.folder, view.folder.index
    offered = index.candidates[entries(index.candidate_start, view.rows)[1]]
    items = vocabulary.index_items(folder.item_ids)[offered] > 0
    users = vocabulary.index_users(folder.user_ids)[index.user[view.rows]] > 0
    return bool(items.mean() >= KNOWN_ENOUGH), bool(users.mean() >= KNOWN_ENOUGH)


def with_signal(view: Dataset, shown: ShownAs) -> Dataset:
    """The impressions that say something: of lists those with a click (or rewards), of cards all."""
    if shown != "list" or "reward" in view.folder.columns.measured:
        return view
    start = view.folder.index.click_start
    return view.take(start[view.rows + 1] > start[view.rows])


def batch_size_for(config: CardValueConfig | PairValueConfig, rows: int) -> int:
    """The configured one, or fewer requests where an epoch would be over in a few steps."""
    return max(min(config.batch_size, rows * config.epochs // FEWEST_STEPS), SMALLEST_BATCH)


def fit_scales(model: CardValue, data: Data) -> None:
    """Take the scales of all columns from requests evenly spaced through train."""
    few = SCALES_FROM_PAIRS // max(int(data.train.meta.N or 1), 1) ** 2
    batches = data.train.spread(min(SCALES_FROM, max(few, 1))).batches(data.vocabulary, 512)
    model.inputs.fit([TensorBatch.of(batch, data.device) for batch in batches])


def card_value_task(model: CardValue, data: Data, batch_size: int, precision: str, choice: float) -> Task:
    """Phase 1 of a card value; validation judges the members together, as they decide."""
    alone = current_ranks().world == 1  # gradients of several ranks are averaged as the loss descends

    def loss(batch: TensorBatch, _: float, generator: Generator) -> Step:
        parts = in_parts(batch) if alone else [batch]
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


MOST_READ = 64  # candidates of a list that a training step reads: what it takes grows with their square
MOST_SUBSETS = 2048  # cards of a request that are all compared with the one chosen
HARD, DRAWN = 32, 256  # where there are more: the best ones under the value, and random ones


def losses_of(
    model: CardValue, batch: TensorBatch, choice: float, generator: Generator
) -> Float[Tensor, "M B"]:
    """The loss of every request under each member by itself."""
    if model.sizes.shown == "card":
        return torch.stack([_card_loss(batch, choice, *part) for part in model.on_cards(batch)])
    if model.sizes.shown == "list" and model.training and batch.item.shape[1] > MOST_READ:
        at = some_candidates(batch, MOST_READ, generator)
        weights, present = list_weights(batch).gather(1, at), batch.present.gather(1, at)
        return torch.stack([list_loss(v.node.float(), present, weights) for v in model.raw_values(batch, at)])
    parts = model.raw_values(batch)
    return torch.stack(_losses(model, batch, parts, parts, generator))


def drawn(shape: Sequence[int], generator: Generator) -> Tensor:
    """Numbers from 0 to 1, where the generator is: a GPU's own draws on the GPU."""
    return torch.rand(tuple(shape), generator=generator, device=generator.device)


def some_candidates(batch: TensorBatch, most: int, generator: Generator) -> Int[Tensor, "B R"]:
    """Positions of what was clicked, then of others drawn at random; padding comes last."""
    order = drawn(batch.present.shape, generator).to(batch.present.device)
    order = order.masked_fill(list_weights(batch) > 0, -1.0).masked_fill(~batch.present, 2.0)
    return order.argsort(1)[:, :most]


def mean_losses(
    model: CardValue, batch: TensorBatch, choice: float, generator: Generator
) -> Float[Tensor, "B"]:
    """The loss of every request under the members' mean."""
    if model.sizes.shown == "card":
        means = (torch.stack(part).mean(0) for part in zip(*model.on_cards(batch), strict=True))
        return _card_loss(batch, choice, *means)
    parts = model.raw_values(batch)
    return _losses(model, batch, [Values.mean(parts)], parts, generator)[0]


def _losses(
    model: CardValue, batch: TensorBatch, judged: list[Values], members: list[Values], generator: Generator
) -> list[Float[Tensor, "B"]]:
    if model.sizes.shown == "list":
        weights = list_weights(batch)
        return [list_loss(values.node.float(), batch.present, weights) for values in judged]
    rivals = rivals_of(batch, Values.mean(members), generator)
    return [subset_loss(values, rivals) for values in judged]


def _card_loss(
    batch: TensorBatch,
    choice: float,
    bias: Float[Tensor, "B"],
    appeals: Float[Tensor, "B K"],
    choice_scale: Float[Tensor, ""],
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


def list_weights(batch: TensorBatch) -> Float[Tensor, "B N"]:
    """What each shown item was worth: its clicks, or its reward where one is known, never less than nothing."""
    worth = torch.zeros_like(batch.present, dtype=torch.float32) if batch.clicks is None else batch.clicks
    if batch.reward is not None:
        worth = torch.where(batch.reward.isnan(), worth, batch.reward)
    return worth.clamp(min=0) * batch.present


class Rivals(NamedTuple):
    """Cards of one request as rows of 0 and 1, padded to S; `right` is the row of the card that was chosen."""

    rows: Float[Tensor, "B S N"]
    real: Bool[Tensor, "B S"]
    right: Int[Tensor, "B"]


def subset_loss(values: Values, rivals: Rivals) -> Float[Tensor, "B"]:
    """Minus log of the chosen card's share in the softmax over all cards of its size that could have been chosen."""
    worth = (rivals.rows * values.node.unsqueeze(1)).sum(-1)
    worth = worth + ((rivals.rows @ values.pair) * rivals.rows).sum(-1) / 2
    log_share = worth.masked_fill(~rivals.real, FAR).log_softmax(-1)
    return -log_share.gather(1, rivals.right.unsqueeze(1)).squeeze(1)


def rivals_of(batch: TensorBatch, values: Values, generator: Generator) -> Rivals:
    """Every card of the chosen one's size where they are few; else the best under the value, all swaps of one item,
    and random ones.
    """
    assert batch.card is not None
    present, card = batch.present.cpu(), batch.card.cpu()
    hard: Tensor | None = None  # B HARD N
    found: list[Tensor] = []
    for b in range(len(present)):
        places = present[b].nonzero().squeeze(-1)
        chosen = torch.zeros(present.shape[1])
        chosen[card[b][card[b] >= 0]] = 1.0
        size = int(chosen.sum())
        if math.comb(len(places), size) <= MOST_SUBSETS:
            rows = torch.zeros(math.comb(len(places), size), present.shape[1])
            rows[:, places] = all_cards(len(places), size)
        else:
            if hard is None:
                hard = mark(best_few(batch, values.node, values.pair, HARD).cpu(), len(chosen)).float()
            rows = torch.cat([hard[b][hard[b].any(1)], *_near(chosen, places, size, generator)])
        others = rows[(rows != chosen).any(1)]
        found.append(torch.cat([chosen.unsqueeze(0), others]))
    S = max(map(len, found))
    rows = torch.stack([torch.nn.functional.pad(r, (0, 0, 0, S - len(r))) for r in found])
    real = torch.arange(S) < torch.tensor([len(r) for r in found]).unsqueeze(1)
    device = batch.present.device
    return Rivals(rows.to(device), real.to(device), torch.zeros(len(found), dtype=torch.long, device=device))


def _near(chosen: Tensor, places: Tensor, size: int, generator: Generator) -> list[Tensor]:
    inside, outside = chosen.nonzero().squeeze(-1), places[chosen[places] == 0]
    swaps = chosen.repeat(len(inside) * len(outside), 1)
    out_of, into = torch.cartesian_prod(inside, outside).unbind(1)
    at = torch.arange(len(swaps))
    swaps[at, out_of], swaps[at, into] = 0.0, 1.0
    order = drawn((DRAWN, len(places)), generator).cpu().argsort(1)[:, :size]
    others = torch.zeros(DRAWN, len(chosen)).scatter_(1, places[order], 1.0)
    return [swaps, others]


@lru_cache(maxsize=256)
def all_cards(num_candidates: int, size: int) -> Float[Tensor, "S N"]:
    """Every card of this size as a row of 0 and 1."""
    at = torch.tensor(list(itertools.combinations(range(num_candidates), size)), dtype=torch.long)
    return torch.zeros(len(at), num_candidates).scatter_(1, at.view(len(at), size), 1.0)


# Pairs of places (requests x candidates x candidates) that a network reads at once; training takes about 2 KB for each.
MOST_PAIRS = {"cpu": 2**19, "cuda": 2**23}


def fits(batch: TensorBatch, most: int | None = None) -> bool:
    """Whether a network may read the whole batch at once."""
    most = MOST_PAIRS[batch.present.device.type] if most is None else most
    return batch.item.shape[0] * batch.item.shape[1] ** 2 <= most


def in_parts(batch: TensorBatch, most: int | None = None) -> list[TensorBatch]:
    """The batch where it is small enough; else its requests by the length of their lists, as many together as fit.

    Lists of 10, 300 and 20 candidates where 1,000 pairs fit: (10, 20), (300). None is longer than its part's longest.
    """
    most = MOST_PAIRS[batch.present.device.type] if most is None else most
    if fits(batch, most):
        return [batch]
    num, longest = batch.item.shape
    places = torch.arange(1, longest + 1, device=batch.present.device)
    lengths = (batch.present * places).amax(1).cpu()
    order = lengths.argsort(stable=True)
    parts, first = [], 0
    for last in range(1, num + 1):
        if last == num or (last + 1 - first) * int(lengths[order[last]]) ** 2 > most:
            rows = order[first:last].to(batch.present.device)
            parts.append(shortened(batch.rows(rows), max(int(lengths[order[last - 1]]), 1)))
            first = last
    return parts


def shortened(batch: TensorBatch, size: int) -> TensorBatch:
    """The first candidates of every request, the others being padding; under a brief, all."""
    if batch.brief is not None:
        return batch
    named = batch.named()
    cut: dict[str, Any] = {}
    for name, axes in CANDIDATE_AXES.items():
        if name in named:
            cut[name] = named[name]
            for axis in axes:
                cut[name] = cut[name].narrow(axis, 0, size)
    return replace(batch, **cut)
