"""What `exactk demo` tells: a few embedded requests, each solved three ways; then the full story on a small world.

The world's log is built, learned from, and every card judged by the truth nobody trains on; two pictures show it. Knows
no printing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from exactk.data.dataset import Dataset
from exactk.data.world import World, world
from exactk.evaluation.judging import TrueValues
from exactk.problem.brief import card_worth
from exactk.problem.exact.cliques import naive_node_weight
from exactk.problem.given import GivenRequests
from exactk.problem.graph import is_valid_card
from exactk.problem.rules.constraints import Constraints
from exactk.problem.solving import Card, solve
from exactk.problem.solving_file import ScoredRequest, pair_matrix
from exactk.recommender import Recommender
from exactk.rivals import method
from exactk.rivals.contract import Budget, Logs
from exactk.settings.presets import preset


@dataclass(frozen=True)
class MethodCard:
    """A card as one method would show it; invalid where it breaks a rule or is not full."""

    method: str
    titles: tuple[str, ...]
    value: float
    valid: bool


@dataclass(frozen=True)
class Example:
    """One request, what it teaches, and the cards side by side, ours last."""

    name: str
    lesson: str
    rules: tuple[str, ...]
    shown: tuple[MethodCard, ...]
    best: Card


def examples() -> list[Example]:
    """Every embedded request, solved."""
    text = files("exactk.demo").joinpath("requests.json").read_text(encoding="utf-8")
    return [solve_example(request) for request in json.loads(text)]


def solve_example(request: dict[str, Any]) -> Example:
    """Top-K ignores the rules, Algorithm 1 the future, both the pairs; the last card is proven best."""
    items: list[dict[str, Any]] = request["items"]
    columns = {name: [item[name] for item in items] for name in items[0]}
    rules = Constraints.from_dict({"rule": request["rules"]})
    named = request.get("pair_scores", ())
    pairs = pair_matrix(ScoredRequest(None, columns, request["name"], pair_scores=named))
    scores = np.array(columns.pop("score"), np.float64)
    best = solve(scores, request["k"], pairs, constraints=rules, items=columns, explain=True)
    held = {name: np.array([column], object) for name, column in columns.items()}
    requests = rules.requests(GivenRequests(held, request["k"]))

    def shown(method: str, card: Sequence[int]) -> MethodCard:
        return MethodCard(
            method,
            tuple(columns["title"][p] for p in card),
            card_worth(None, 0, card, scores, pairs),
            is_valid_card(requests, 0, np.array(card, np.int64)),
        )

    top = np.argsort(-scores, kind="stable")[: request["k"]].tolist()
    greedy = [p for p in naive_node_weight(requests, scores[None])[0].tolist() if p >= 0]
    cards = (shown("top-K", top), shown("Algorithm 1", greedy), shown("exactk", best.positions))
    return Example(request["name"], request["lesson"], tuple(rules.names), cards, best)


TEST_REQUESTS = 1_000
RIVALS = {"popularity": "popularity", "deeprank": "pointwise network"}
# Quick, for few cards.
SETTINGS = ("pair_value.inputs=features", "pair_value.members=1", "pair_value.dropout=0.2")


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


def story_of(folder: Path, say: Callable[[str], None], impressions: int = 60_000) -> Story:
    """Build, train and judge in `folder`, which may hold the world of an earlier demo."""
    say(f"building a world of {impressions:,} logged cards")
    data = _world(folder / "world", impressions)
    train, valid, test = data.split()
    test = test.spread(TEST_REQUESTS)
    truth = TrueValues.of(test)
    assert truth is not None
    places = np.arange(len(test))
    optimum = truth.optimum(places)
    solvable = np.isfinite(optimum)
    say(f"training the pair value on {len(train):,} of them")
    recommender = Recommender(preset("best").with_overrides(SETTINGS)).fit(train, valid)
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
    best = float(optimum[solvable].mean())
    rows.append(Judged("true best single items", float(singles.mean()), float(singles.mean() / best)))
    rows.sort(key=lambda row: -row.value)
    explained = _explained(recommender, test, truth, int(np.flatnonzero(solvable)[0]))
    return Story(data, recommender, best, tuple(rows), explained)


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


OURS, OTHERS, INK = "#1f6f5c", "#b9c4c9", "#26323a"


def draw(story: Story, folder: Path) -> list[Path]:
    """Write the pictures; none where matplotlib is missing."""
    try:
        import matplotlib
    except ImportError:
        return []
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    paths = [folder / "value.png", folder / "training.png"]
    figure, axis = plt.subplots(figsize=(7.2, 0.9 + 0.42 * len(story.judged)), layout="constrained")
    _bars(axis, story)
    figure.savefig(paths[0], dpi=150)
    plt.close(figure)
    figure, axis = plt.subplots(figsize=(7.2, 3.2), layout="constrained")
    _curve(axis, story)
    figure.savefig(paths[1], dpi=150)
    plt.close(figure)
    return paths


def _bars(axis: Any, story: Story) -> None:
    rows = story.judged[::-1]
    colours = [OURS if "pair value" in row.name else OTHERS for row in rows]
    axis.barh([row.name for row in rows], [row.share for row in rows], color=colours, height=0.65)
    for place, row in enumerate(rows):
        axis.text(row.share + 0.01, place, f"{row.share:.0%}", va="center", color=INK, fontsize=9)
    axis.axvline(1.0, color=INK, linewidth=1, linestyle="--")
    axis.set_xlim(0, 1.08)
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axis.set_title("True value of the card, as a share of the optimum", loc="left", color=INK, fontsize=11)
    axis.spines[["top", "right", "left"]].set_visible(False)
    axis.tick_params(left=False)


def _curve(axis: Any, story: Story) -> None:
    rows = [row for row in story.recommender.history if row.get("event") == "valid" and "log_loss" in row]
    losses = [row["log_loss"] for row in rows]
    axis.plot([row["epoch"] for row in rows], losses, color=OURS, marker="o", markersize=4)
    axis.set_xlabel("epoch")
    axis.set_title("Log loss of the card's click on the validation split", loc="left", color=INK, fontsize=11)
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(axis="y", alpha=0.3)
