"""One method on the test requests: its cards, what each scored, how long they took; kept as one file per method.

Knows no other method: comparing is `compare.py`'s business. Where a dataset knows the true value of cards, as only a
simulated world does, it is for judging alone: nothing of it may reach training.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from jaxtyping import Float, Float64, Int

from exactk.atomic import atomic_file
from exactk.data.dataset import Dataset
from exactk.data.world import World
from exactk.errors import DataError
from exactk.evaluation import metrics
from exactk.evaluation.offpolicy import stacked
from exactk.problem.batch import Batch
from exactk.rivals.contract import CardPicker, Logs, solvable

AT_ONCE = 2048  # requests whose graphs are held in memory together


@dataclass(frozen=True)
class TrueValues:
    """A world and the view whose requests are judged."""

    world: World
    view: Dataset

    @classmethod
    def of(cls, view: Dataset) -> TrueValues | None:
        """The truth behind a view, None where nobody knows it."""
        known = view.meta.provenance.get("source") == "world"
        return cls(World.of(view), view) if known else None

    def value(self, places: Int[np.ndarray, "R"], cards: Int[np.ndarray, "R K"]) -> Float64[np.ndarray, "R"]:
        """True click probability of a card for each of these places of the view; NaN for a card that is not full."""
        asked = self.world.asked(self.view, places)
        full = (cards >= 0).sum(1) == asked.requests.card_size
        items = np.take_along_axis(asked.items, cards.clip(0), axis=1)
        return np.where(full, self.world.value(asked.users, items), np.nan)

    def optimum(self, places: Int[np.ndarray, "R"]) -> Float64[np.ndarray, "R"]:
        """The true value of the best valid card for each of these places."""
        found = []
        for first in range(0, len(places), AT_ONCE):
            asked = self.world.asked(self.view, places[first : first + AT_ONCE])
            found.append(self.world.optimum(asked.users, asked.items, asked.requests).value)
        return np.concatenate([*found, np.empty(0)])


def true_figures(
    view: Dataset, places: Int[np.ndarray, "R"], cards: Int[np.ndarray, "R K"]
) -> dict[str, np.ndarray]:
    """What cards of a world are truly worth, and what the best valid ones would be; nothing where nobody knows."""
    truth = TrueValues.of(view)
    if truth is None:
        return {}
    return {"true_value": truth.value(places, cards), "optimum": truth.optimum(places)}


BATCH = 256
ALONE = 30  # requests timed one by one


@dataclass(frozen=True)
class Scores:
    """What one way of picking cards scored on R test requests, request by request (NaN: says nothing)."""

    request: Int[np.ndarray, "R"]  # place in the test view; requests without any valid card are left out
    cards: Int[np.ndarray, "R K"]
    precision: Float[np.ndarray, "R"]
    hit_ratio: Float[np.ndarray, "R"]
    whole_card: Float[np.ndarray, "R"]  # the card of the log, recovered whole
    valid: Float[np.ndarray, "R"]
    diversity: Float[np.ndarray, "R"]
    value: Float[np.ndarray, "R"]  # true click probability; NaN where no truth is known
    coverage: float
    ms_per_card: float  # in batches of 256, median over batches, processor time of one thread
    ms_alone: float  # a request by itself, median


PER_REQUEST = ("cards", "precision", "hit_ratio", "whole_card", "valid", "diversity", "value")


def judged(way: CardPicker, test: Logs, truth: TrueValues | None) -> Scores:
    """Ask for a card for every solvable test request, and score it."""
    parts: list[dict[str, np.ndarray]] = []
    shown, available = [], []
    seconds, alone = list[float](), list[float]()  # a card: batch by batch, and by itself
    row = 0
    for batch in test.view.batches(test.vocabulary, BATCH):
        rows = np.arange(row, row + len(batch))
        row += len(batch)
        keep = solvable(batch)
        if not keep.all():
            batch, rows = batch.rows(keep), rows[keep]
        if not len(batch):
            continue
        way.recommend(batch.rows(slice(0, 1)))  # compile and warm up outside the clock
        began = time.process_time()
        cards = way.recommend(batch)
        seconds.append((time.process_time() - began) / len(batch))
        if not alone:
            alone = [_timed_alone(way, batch, b) for b in range(min(ALONE, len(batch)))]
        chosen = cards.astype(np.int64)
        value = None if truth is None else truth.value(rows, chosen)
        parts.append({"request": rows, **_scored(batch, chosen, value)})
        item = batch.item
        shown.append(np.where(chosen >= 0, np.take_along_axis(item, chosen.clip(0), 1), -1).ravel())
        available.append(np.where(batch.present, item, -1).ravel())
    if not parts:
        raise DataError(f"{test.view.path}: no test request has a valid card, so there is nothing to compare")
    cards = stacked([part.pop("cards") for part in parts])
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return Scores(
        cards=cards,
        **joined,
        coverage=metrics.coverage(np.concatenate(shown), np.concatenate(available)),
        ms_per_card=1e3 * float(np.median(seconds)),
        ms_alone=1e3 * float(np.median(alone)),
    )


def _timed_alone(way: CardPicker, batch: Batch, b: int) -> float:
    one = batch.rows(slice(b, b + 1))
    began = time.process_time()  # jobs have one thread: its own time, whatever else the machine does
    way.recommend(one)
    return time.process_time() - began


def _scored(batch: Batch, cards: Int[np.ndarray, "B K"], value: np.ndarray | None) -> dict[str, np.ndarray]:
    """Every per-request figure of one batch."""
    found = metrics.card_figures(cards, batch) | {
        "cards": cards,
        "valid": metrics.valid_cards(batch.requests(), cards).astype(np.float64),
    }
    if batch.item_features is not None:
        distance = metrics.cosine_distance(batch.item_features.astype(np.float64))
        found["diversity"] = metrics.diversity(cards, distance)
    if value is not None:
        found["value"] = value
    nothing = np.full(len(cards), np.nan)
    return {name: found.get(name, nothing) for name in PER_REQUEST}


def write_result(path: Path, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """One .npz without pickles, its header as JSON text inside; whole or not at all."""
    text = np.frombuffer(json.dumps(header).encode(), np.uint8)
    with atomic_file(path) as draft, draft.open("wb") as file:
        np.savez_compressed(file, header=text, **arrays)  # type: ignore[arg-type]


def read_result(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]] | None:
    """What `write_result` wrote; None where there is nothing, or nothing whole."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as held:
            arrays = {name: held[name] for name in held.files}
        header: dict[str, Any] = json.loads(arrays.pop("header").tobytes())
    except (OSError, ValueError, KeyError, EOFError, BadZipFile):
        return None
    return header, arrays
