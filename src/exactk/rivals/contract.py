"""The contract of every method compared: learn from the same logs, within one budget, pick valid cards.

Knows no method.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, TypeVar, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float32, Int

from exactk.data.columns.vocabulary import Vocabulary
from exactk.data.dataset import Dataset
from exactk.problem.batch import Batch, in_tie_order, moved_positions
from exactk.problem.exact import cliques
from exactk.settings.config import QUICK as QUICK
from exactk.settings.config import Budget as Budget
from exactk.settings.config import InputSizes

Setting = Mapping[str, Any]
T = TypeVar("T")


@runtime_checkable
class CardPicker(Protocol):
    """Anything that picks cards."""

    def recommend(self, batch: Batch) -> Int[np.ndarray, "B K"]:
        """One valid card per request, as positions, -1 beyond a card's size."""


@dataclass(frozen=True)
class Logs:
    """A view of logged cards and the vocabulary (of the train view) in which its batches are written.

    `widen`, where there is one, joins a log's columns into the features of every batch. `liked` says what `clicks` of a
    batch mark: the clicked item of the card; of lists seen whole, what was clicked anywhere in them; of clicked cards
    none of whose items is named (bundles that people chose, say), the whole card.
    """

    view: Dataset
    vocabulary: Vocabulary
    widen: Callable[[Batch], Batch] | None = None
    liked: Literal["item", "list", "card"] = "item"

    @classmethod
    def of(cls, train: Dataset, *others: Dataset) -> tuple[Logs, ...]:
        """Several views in the vocabulary of the first."""
        vocabulary, signal = train.vocabulary(), train.signal
        named = "list" if signal.whole_lists else "item" if signal.named_clicks else "card"
        return tuple(cls(view, vocabulary, liked=named) for view in (train, *others))  # type: ignore[arg-type]

    def __len__(self) -> int:
        return len(self.view)

    @property
    def sizes(self) -> InputSizes:
        """What a network's input layer must hold."""
        v = self.vocabulary
        if self.widen is None:
            return InputSizes(v.num_users, v.num_items, v.user_feature_size, v.item_feature_size)
        one = self.widen(self.view.batch(v, slice(0, 1)))
        assert one.user_features is not None
        assert one.item_features is not None
        return InputSizes(v.num_users, v.num_items, one.user_features.shape[-1], one.item_features.shape[-1])

    @property
    def card_size(self) -> int:
        return int(self.view.meta.K or 1)

    @property
    def num_candidates(self) -> int:
        return int(self.view.meta.N or 1)

    @property
    def passed_over(self) -> bool:
        """Whether a card shows what was not liked, too: lists without cards and cards chosen whole do not."""
        return self.liked != "card" and self.view.signal.cards > 0

    def clicked_places(self) -> Int[np.ndarray, "R"]:
        """Where a card was clicked; of lists seen whole, where anything was."""
        if self.liked != "list":
            return np.flatnonzero(self.view.clicked)
        index, rows = self.view.folder.index, self.view.rows
        return np.flatnonzero(index.click_start[rows + 1] > index.click_start[rows])

    def clicked_only(self) -> Logs:
        """The demonstrations."""
        return replace(self, view=self.view.take(self.clicked_places()))

    def first(self, num_rows: int) -> Logs:
        """At most so many rows from the start."""
        return replace(self, view=self.view.take(slice(num_rows)))

    def widened(self, widen: Callable[[Batch], Batch]) -> Logs:
        return replace(self, widen=widen)

    def batches(
        self, batch_size: int, seed: int | None = None, epoch: int = 0, start: int = 0
    ) -> Iterator[Batch]:
        """Batches in the order of (seed, epoch); in file order without a seed."""
        for batch in self.view.batches(self.vocabulary, batch_size, seed, epoch, start):
            marked = replace(batch, clicks=self._clicks(batch))
            yield marked if self.widen is None else self.widen(marked)

    def _clicks(self, batch: Batch) -> Float32[np.ndarray, "B N"]:
        """1 for each candidate that the request says was liked."""
        if self.liked == "list" and batch.clicks is not None:
            return (batch.clicks > 0).astype(np.float32)
        if self.liked == "card" and batch.card is not None:
            assert batch.clicked is not None
            return marked(np.where(batch.clicked[:, None], batch.card, -1), batch.item.shape[1])
        if batch.clicked_position is not None:
            return marked(batch.clicked_position[:, None], batch.item.shape[1])
        return np.zeros(batch.item.shape, np.float32)

    def solvable_batches(self, batch_size: int) -> Iterator[Batch]:
        """Batches in file order, without the requests for which no valid card exists."""
        for batch in self.batches(batch_size):
            kept = solvable(batch)
            yield batch if kept.all() else batch.rows(kept)


def marked(cards: Int[np.ndarray, "B K"], num_candidates: int) -> Float32[np.ndarray, "B N"]:
    """1 at the positions of each card, 0 elsewhere."""
    marks = np.zeros((len(cards), num_candidates + 1), np.float32)
    np.put_along_axis(marks, cards, 1.0, axis=1)  # -1 lands in the spare column
    return marks[:, :-1]


def solvable(batch: Batch) -> Bool[np.ndarray, "B"]:
    """Which requests have a valid card at all."""
    return cliques.exists(batch.requests())


@dataclass(frozen=True)
class TrainedMethod:
    """A method after training: the ways it offers to pick a card, and what tuning chose."""

    ways: Mapping[str, CardPicker]
    chosen: Setting = field(default_factory=dict)
    valid_score: float = math.nan

    def __post_init__(self) -> None:
        object.__setattr__(self, "ways", {name: OrderFree(way) for name, way in self.ways.items()})


@dataclass(frozen=True)
class OrderFree:
    """A way that is shown candidates in the one order that does not depend on how they came.

    So ties, and what rounding makes of sums, cannot leak the order in which a site displays its items.
    """

    way: CardPicker

    def recommend(self, batch: Batch) -> Int[np.ndarray, "B K"]:
        """Its cards, as positions in the batch as it came."""
        ordered, order = in_tie_order(batch)
        return moved_positions(np.asarray(self.way.recommend(ordered)), order)


def batch_size_for(num_rows: int, budget: Budget) -> int:
    """A batch size: the budget's, or smaller where the log is short, so that an epoch has about a hundred steps."""
    return max(32, min(budget.batch_size, num_rows // 100))


Method = Callable[[Logs, Logs, Budget], TrainedMethod]


def tuned(
    settings: Sequence[Setting],
    budget: Budget,
    attempt: Callable[[Setting], tuple[T, float]],
    final: Callable[[T], float] | None = None,
) -> tuple[T, Setting, float]:
    """Try the first `budget.trials` settings; the highest validation score wins, the earlier on a tie.

    Scores of settings with different "variant" (another loss, say) cannot be compared: then the best of each variant
    meets the others under `final`.
    """
    best: dict[Any, tuple[T, Setting, float]] = {}
    for setting in settings[: budget.trials]:
        fitted, score = attempt(setting)
        score = -math.inf if math.isnan(score) else score
        variant = setting.get("variant")
        if variant not in best or score > best[variant][2]:
            best[variant] = (fitted, setting, score)
    found = list(best.values())
    if len(found) == 1 or final is None:
        return max(found, key=lambda trial: trial[2])
    return max(found, key=lambda trial: final(trial[0]))
