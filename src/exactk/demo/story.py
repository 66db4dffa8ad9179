"""The full story on a small world: build its log, learn from it, judge every card by the truth nobody trains on.

Knows no printing and no plotting.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from exactk.data.dataset import Dataset
from exactk.data.world.world import World, world
from exactk.evaluation.truth import TrueValues
from exactk.problem.solving import Card
from exactk.recommender import Recommender
from exactk.rivals import method
from exactk.rivals.contract import Budget, Logs
from exactk.settings.config import Config
from exactk.settings.presets import preset

TEST_REQUESTS = 1_000
RIVALS = {"popularity": "popularity", "deeprank": "pointwise network"}
SETTINGS = (
    "pair_value.inputs=features",
    "pair_value.members=1",
    "pair_value.dropout=0.2",
)  # quick, for few cards


@dataclass(frozen=True)
class Judged:
    """A way of choosing cards and what its cards are truly worth."""

    name: str
    value: float
    share: float


@dataclass(frozen=True)
class Explained:
    """One request of the test day: the card, the titles of all candidates, its true value and the best possible."""

    user_id: Any
    card: Card
    titles: dict[Any, str]
    value: float
    optimum: float


@dataclass(frozen=True)
class Story:
    """What the demo shows."""

    data: Dataset
    recommender: Recommender
    optimum: float
    judged: tuple[Judged, ...]
    explained: Explained


def tell(
    folder: Path, say: Callable[[str], None], impressions: int = 60_000, config: Config | None = None
) -> Story:
    """Build, train and judge in `folder`, which may hold the world of an earlier demo."""
    say(f"building a world of {impressions:,} logged cards")
    data = _world(folder / "world", impressions)
    train, valid, test = data.split()
    test = test.take(np.linspace(0, len(test) - 1, min(TEST_REQUESTS, len(test))).astype(np.int64))
    truth = TrueValues.of(test)
    assert truth is not None
    places = np.arange(len(test))
    optimum = truth.optimum(places)
    solvable = np.isfinite(optimum)
    say(f"training the pair value on {len(train):,} of them")
    recommender = Recommender(config or preset("best").with_overrides(SETTINGS)).fit(train, valid)
    recommender.save(folder / "model")
    logs, held = Logs.of(train, valid)

    def judged(name: str, recommend: Callable[[Any], Any]) -> Judged:
        batches = test.take(solvable).batches(logs.vocabulary, 256)
        cards = np.concatenate([recommend(batch) for batch in batches])
        value = truth.value(places[solvable], cards).mean()
        return Judged(name, float(value), float(value / optimum[solvable].mean()))

    rows = [judged("pair value + exact search", recommender.recommend_batch)]
    for rival, words in RIVALS.items():
        say(f"training {words}")
        fitted = method(rival)(logs, held, Budget(trials=1, epochs=4))
        rows += [judged(way, ways.recommend) for way, ways in fitted.ways.items()]
    singles = truth.world.best_singles(*truth.world.asked(test, places[solvable])).value
    rows.append(
        Judged(
            "true best single items", float(singles.mean()), float(singles.mean() / optimum[solvable].mean())
        )
    )
    shown = int(np.flatnonzero(solvable)[0])
    rows.sort(key=lambda row: -row.value)
    return Story(
        data,
        recommender,
        float(optimum[solvable].mean()),
        tuple(rows),
        _explained(recommender, test, truth, shown),
    )


def _world(path: Path, impressions: int) -> Dataset:
    """The world of an earlier demo where it is the same one, else a new one."""
    if path.exists():
        earlier = Dataset.open(path)
        if len(earlier) == impressions and World.of(earlier).config.impressions == impressions:
            return earlier
    return world(impressions=impressions, path=path)


def _explained(recommender: Recommender, test: Dataset, truth: TrueValues, place: int) -> Explained:
    row = test.impressions(slice(place, place + 1)).to_pylist()[0]
    titles = dict(zip(test.items["item_id"].to_pylist(), test.items["title"].to_pylist(), strict=True))
    card = recommender.recommend(row["user_id"], row["candidates"], explain=True)
    here = np.array([place])
    value = truth.value(here, np.array([card.positions]))[0]
    return Explained(row["user_id"], card, titles, float(value), float(truth.optimum(here)[0]))
