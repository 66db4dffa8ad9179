"""What each part of the default gains, by leaving it out: `python -m exactk_lab.gains DATA... --work runs/parts`.

Each part is left out in turn, the model trained anew where the part is in its training, and the cards judged as the log
allows: by the clicked item (lists), by whole cards (bundles), by true values (worlds). Settings stay as they are.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from exactk import Recommender
from exactk.cli.output import keep_json, plain
from exactk.data.dataset import Dataset
from exactk.evaluation import this_machine
from exactk.evaluation.judging import TrueValues
from exactk.learning import card_task, phases
from exactk.learning.phases import Models
from exactk.models.card_value import CardValue, shares
from exactk.models.pairvalue import SearchableValue, Values
from exactk.search import Feasible
from exactk.search.decoding import Steps, greedy
from exactk.search.maximise import best_few, exact
from exactk.settings.config import InputSizes
from exactk.settings.presets import preset
from exactk.tensors import TensorBatch, rows_of

BETAS = (0.25, 0.5, 1.0, 2.0)
FEW = 64  # best cards among which caution chooses
AT_ONCE = 500

Cards = Int[Tensor, "B K"]


@contextmanager
def instead(module: Any, name: str, function: Callable[..., Any]) -> Iterator[None]:
    """Another function under this name, for as long as it lasts."""
    kept = getattr(module, name)
    setattr(module, name, function)
    try:
        yield
    finally:
        setattr(module, name, kept)


def without_pair_features(*given: Any) -> InputSizes:
    """What there is to read, but for the log's pair features."""
    return replace(_input_sizes(*given), pair_features=0)


_input_sizes = phases.input_sizes
RETRAINED: dict[str, tuple[tuple[str, ...], tuple[Any, str, Callable[..., Any]] | None]] = {
    "the default": ((), None),
    "context: no attention among candidates": (("card_value.attention=never",), None),
    "whole-list loss: the card of the log alone": (
        ("card_value.attention=always",),
        (card_task, "shown_in", lambda _: "card"),
    ),
    "pair features left out": ((), (phases, "input_sizes", without_pair_features)),
    "pairs as they were learned": ((), (phases, "shrink_pairs", lambda *_: [])),
}


class Additions(NamedTuple):
    """What each candidate would add to the card so far."""

    gain: Float[Tensor, "B S N"]


@dataclass(frozen=True)
class StepByStep(Steps[Additions]):
    """The candidate that adds most, one after the other."""

    values: Values

    def start(self, num_rows: int) -> Additions:
        """Items alone."""
        return Additions(self.values.node.unsqueeze(1).expand(-1, num_rows, -1))

    def step(self, state: Additions) -> Float[Tensor, "B S N"]:
        return state.gain

    def advance(self, state: Additions, position: Int[Tensor, "B S"]) -> Additions:
        """The pairs with what was chosen count from now on."""
        return Additions(state.gain + rows_of(self.values.pair, position.clamp(min=0)))


def member_values(model: SearchableValue, batch: TensorBatch) -> list[Values]:
    """What each member says of items and pairs, as decisions add it up."""
    if not isinstance(model, CardValue):
        return [member.values(batch) for member in model.members]  # type: ignore[operator]
    parts = model.raw_values(batch)
    if model.sizes.shown == "list":
        parts = [v._replace(node=shares(v.node, batch), bias=v.bias * 0) for v in parts]
    return parts


def worth(values: list[Values], cards: Int[Tensor, "B S K"]) -> Float[Tensor, "M B S"]:
    """Of cards, what each member says."""
    at, real = cards.clamp(min=0), cards >= 0
    request = torch.arange(len(cards))[:, None, None, None]
    both = real.unsqueeze(3) & real.unsqueeze(2)
    return torch.stack(
        [
            (rows_of(v.node, at) * real).sum(-1)
            + (v.pair[request, at.unsqueeze(3), at.unsqueeze(2)] * both).sum((2, 3)) / 2
            for v in values
        ]
    )


def ways(model: SearchableValue, batch: TensorBatch) -> dict[str, Cards]:
    """A card of every request by each way to decide."""
    members = member_values(model, batch)
    mean = Values(*(torch.stack(part).mean(0) for part in zip(*members, strict=True)))
    few = best_few(batch, mean.node, mean.pair, FEW)  # B FEW K
    said = worth(members, few).masked_fill((few < 0).all(-1), -torch.inf)
    found = {
        "": exact(batch, mean.node, mean.pair).cards,
        "one member": exact(batch, members[0].node, members[0].pair).cards,
        "items alone: no pairs": exact(batch, mean.node).cards,
        "greedy instead of exact": greedy(StepByStep(mean), Feasible.of(batch)),
    }
    for beta in BETAS if len(members) > 1 else ():
        careful = said.mean(0) - beta * said.std(0, correction=0).nan_to_num()
        found[f"caution, beta {beta}"] = rows_of(few, careful.argmax(1, keepdim=True)).squeeze(1)
    return found


def judged(
    view: Dataset, places: Int[np.ndarray, "R"], batch: TensorBatch, cards: Cards
) -> Float[np.ndarray, "R"]:
    """One figure a request; NaN where a list has no click."""
    truth = TrueValues.of(view)
    if truth is not None:
        return truth.value(places, cards.numpy())
    if view.signal.positives_only:
        assert batch.card is not None
        pad = max(cards.shape[1], batch.card.shape[1])
        both = [torch.nn.functional.pad(c, (0, pad - c.shape[1]), value=-1) for c in (cards, batch.card)]
        return (both[0].sort(1).values == both[1].sort(1).values).all(1).double().numpy()
    assert batch.clicks is not None
    hit = (rows_of(batch.clicks, cards.clamp(min=0)) * (cards >= 0) > 0).any(1).double()
    return hit.masked_fill(batch.clicks.sum(1) == 0, torch.nan).numpy()


@torch.no_grad()
def figures(recommender: Recommender, view: Dataset, most: int) -> dict[str, float]:
    """The mean figure by way to decide; of a world, as a share of the optimum."""
    fitted = recommender.fitted
    model = Models.of(fitted).value
    assert isinstance(model, SearchableValue)
    places = np.unique(np.linspace(0, len(view) - 1, min(most, len(view))).astype(np.int64))
    found: dict[str, list[np.ndarray]] = {}
    for part in np.array_split(places, -(-len(places) // AT_ONCE)):
        batch = TensorBatch.of(view.batch(fitted.vocabulary, part))
        for name, cards in ways(model, batch).items():
            found.setdefault(name, []).append(judged(view, part, batch, cards))
    truth = TrueValues.of(view)
    best = 1.0 if truth is None else float(truth.optimum(places).mean())
    return {name: float(np.nanmean(np.concatenate(parts))) / best for name, parts in found.items()}


def parts_of(data: Path, work: Path, seeds: int, most: int, overrides: list[str]) -> list[dict[str, Any]]:
    """Rows of one log: what is left out, seed, and figures on validation and test."""
    log = Dataset.open(data)
    train, valid, test = log.split()
    shown = card_task.shown_in(train)
    paired = phases.input_sizes(train.vocabulary(columns=True)).pair_features > 0
    rows = []
    for seed in range(seeds):
        for part, (settings, change) in RETRAINED.items():
            if not _concerns(part, shown, log, paired):
                continue
            folder = work / f"{data.name}-{part.split(':')[0].replace(' ', '-')}-{seed}"
            if not folder.exists():
                config = preset("best").with_overrides([f"training.seed={seed}", *settings, *overrides])
                with instead(*change) if change else nullcontext():
                    Recommender(config).fit(train, valid).save(folder)
            recommender = Recommender.load(folder)
            on_valid, on_test = (figures(recommender, view, most) for view in (valid, test))
            for way, figure in on_test.items():
                if way and part != "the default":
                    continue
                row = {
                    "log": data.name,
                    "shown": shown,
                    "seed": seed,
                    "part": way or part,
                    "requests": len(test),
                }
                rows.append({**row, "valid": on_valid[way], "test": figure})
                print(rows[-1], flush=True)  # noqa: T201 (a command of the laboratory)
    return rows


def _concerns(part: str, shown: str, log: Dataset, paired: bool) -> bool:
    if part.startswith("context"):
        return shown != "card"
    if part.startswith("whole-list"):
        return shown == "list" and bool(log.signal.cards)
    if part.startswith("pairs as"):
        return shown == "card"
    return paired or not part.startswith("pair features")


def main() -> None:
    """Every log given, one after the other."""
    parser = argparse.ArgumentParser(prog="python -m exactk_lab.gains", description=__doc__)
    parser.add_argument("data", nargs="+", type=Path)
    parser.add_argument("--work", type=Path, required=True, help="where models are kept between runs")
    parser.add_argument("--keep", type=Path, help="JSON file of the rows")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--most", type=int, default=6000, help="requests judged in each part of a log")
    parser.add_argument("--set", action="append", default=[], dest="overrides", metavar="NAME=VALUE")
    asked = parser.parse_args()
    rows = [
        row
        for data in asked.data
        for row in parts_of(data, asked.work, asked.seeds, asked.most, asked.overrides)
    ]
    if asked.keep:
        document = {"name": "gains", "quick": False, "rows": rows, "machine": this_machine()}
        command = " ".join(["python -m exactk_lab.gains", *sys.argv[1:]])
        keep_json(plain({**document, "command": command}), asked.keep)


if __name__ == "__main__":
    main()
