"""From node weights to valid cards: Algorithm 1 made safe, the exact engine, MMR and DPP; and their judge.

Knows no network: a scorer is any function of a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

from exactk.problem.batch import Batch
from exactk.rivals.contract import Budget, CardPicker, Logs, Setting, tuned
from exactk.rivals.rerank import DeterminantalGreedy, MaximalMarginalRelevance, similarity_of, unit_range
from exactk.search.exact import exact
from exactk.search.feasible import Feasible
from exactk.search.greedy import greedy, greedy_by_weight
from exactk.tensors import TensorBatch

Scorer = Callable[[TensorBatch], Float[Tensor, "B N"]]
Likeness = Callable[
    [TensorBatch], Float[Tensor, "B N F"]
]  # vectors whose cosine says how like two candidates are

TIE_BREAK = 1e-9  # of the scores' range: decides between equals, and between nothing else
TRADE_OFFS: Sequence[Setting] = [{"trade_off": t} for t in (0.9, 0.7, 0.95, 0.5, 0.99, 0.3)]
SHARPNESSES: Sequence[Setting] = [{"sharpness": s} for s in (5.0, 2.0, 10.0, 1.0, 20.0, 0.5)]


def scatter(
    item: Int[Tensor, "B N"], user: Int[Tensor, "B"] | None = None, seed: int = 0
) -> Float64[Tensor, "B N"]:
    """A number in [0, 1) from the item (and user) alone: chance that no order or batching can change."""
    mixed = item.to(torch.int64) + (seed + 1) * 0x632BE5AB
    if user is not None:
        mixed = mixed + user.to(torch.int64).unsqueeze(1) * 0x27D4EB2F165667C5
    for shift, factor in ((31, 0x7FB5D329728EA185), (27, 0x1B873593CC9E2D51), (33, 0x2545F4914F6CDD1D)):
        mixed = (mixed ^ (mixed >> shift)) * factor  # wraps around, as a hash should
    return ((mixed >> 11) & ((1 << 52) - 1)).double() / (1 << 52)


def untied(scores: Float[Tensor, "B N"], batch: TensorBatch) -> Float64[Tensor, "B N"]:
    """Scores without ties between different items, so that a card never depends on their order."""
    precise = scores.double()
    present = precise[batch.present]
    spread = float(present.max() - present.min()) if len(present) else 0.0
    return precise + TIE_BREAK * (spread or 1.0) * scatter(batch.item)


@dataclass(frozen=True)
class Greedy:
    """The paper's Algorithm 1: the heaviest node first, made safe against dead ends."""

    scorer: Scorer

    def recommend(self, batch: Batch) -> Int[np.ndarray, "B K"]:
        """One card per request."""
        asked = TensorBatch.of(batch)
        return greedy_by_weight(untied(self.scorer(asked), asked), Feasible.of(asked)).numpy()


@dataclass(frozen=True)
class Exact:
    """The valid card with the largest sum of node weights, proven."""

    scorer: Scorer

    def recommend(self, batch: Batch) -> Int[np.ndarray, "B K"]:
        """One card per request."""
        asked = TensorBatch.of(batch)
        return exact(asked, untied(self.scorer(asked), asked)).cards.numpy()


@dataclass(frozen=True)
class Mmr:
    """Node weights traded against likeness to what is already on the card."""

    scorer: Scorer
    likeness: Likeness
    trade_off: float

    def recommend(self, batch: Batch) -> Int[np.ndarray, "B K"]:
        """One card per request."""
        asked = TensorBatch.of(batch)
        relevance = unit_range(untied(self.scorer(asked), asked), asked.present)
        steps = MaximalMarginalRelevance(relevance, similarity_of(self.likeness(asked)), self.trade_off)
        return greedy(steps, Feasible.of(asked)).numpy()


@dataclass(frozen=True)
class Dpp:
    """The greedy most likely set under a determinantal point process."""

    scorer: Scorer
    likeness: Likeness
    sharpness: float

    def recommend(self, batch: Batch) -> Int[np.ndarray, "B K"]:
        """One card per request."""
        asked = TensorBatch.of(batch)
        relevance = unit_range(untied(self.scorer(asked), asked), asked.present)
        steps = DeterminantalGreedy.of(relevance, similarity_of(self.likeness(asked)), self.sharpness)
        return greedy(steps, Feasible.of(asked)).numpy()


def by_weight(name: str, scorer: Scorer) -> dict[str, CardPicker]:
    """The two selections of the issue: greedy and exact."""
    return {f"{name} greedy": Greedy(scorer), f"{name} exact": Exact(scorer)}


def diversified(
    name: str, scorer: Scorer, likeness: Likeness, valid: Logs, budget: Budget
) -> tuple[dict[str, CardPicker], Setting]:
    """MMR and DPP over the same scores, each tuned on the validation split."""
    judge = Judge.of(valid, budget)

    def mmr(setting: Setting) -> tuple[CardPicker, float]:
        way = Mmr(scorer, likeness, setting["trade_off"])
        return way, judge(way)

    def dpp(setting: Setting) -> tuple[CardPicker, float]:
        way = Dpp(scorer, likeness, setting["sharpness"])
        return way, judge(way)

    best_mmr, trade_off, _ = tuned(TRADE_OFFS, budget, mmr)
    best_dpp, sharpness, _ = tuned(SHARPNESSES, budget, dpp)
    return {f"{name} MMR": best_mmr, f"{name} DPP": best_dpp}, {**trade_off, **sharpness}


@dataclass(frozen=True)
class Judge:
    """P@K on clicked validation cards (HR@K where clicked items are not recorded), batches kept ready."""

    batches: tuple[Batch, ...]

    @classmethod
    def of(cls, valid: Logs, budget: Budget) -> Judge:
        """Read the batches once; every trial is judged on the same ones."""
        shown = valid.clicked_only().first(budget.validation_rows)
        return cls(tuple(batch for batch in shown.solvable_batches(budget.batch_size) if len(batch)))

    def __call__(self, way: CardPicker) -> float:
        """The higher the better; NaN where the split holds no clicked card."""
        found: list[float] = []
        overlaps: list[float] = []
        for batch in self.batches:
            cards = way.recommend(batch)
            assert batch.card is not None
            shared = (cards[:, :, None] == batch.card[:, None]) & (cards[:, :, None] >= 0)
            overlaps += (shared.any(1).sum(1) / batch.card_size).tolist()
            if batch.clicked_position is not None:
                known = batch.clicked_position >= 0
                found += (cards == batch.clicked_position[:, None]).any(1)[known].astype(float).tolist()
        return float(np.mean(found)) if found else float(np.mean(overlaps)) if overlaps else float("nan")
