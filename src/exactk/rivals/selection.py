"""From node weights to valid cards: Algorithm 1 made safe, the exact engine, MMR and DPP; and their judge.

Knows no network: a scorer is any function of a batch; likeness makes a step function, which search makes cards of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int
from torch import Tensor

from exactk.problem.batch import Batch
from exactk.rivals.contract import Budget, CardPicker, Logs, Setting, tuned
from exactk.search.decoding import Steps, greedy, greedy_by_weight
from exactk.search.feasible import Feasible
from exactk.search.maximise import exact
from exactk.tensors import TensorBatch, off_diagonal, rows_of

EXHAUSTED = 1e-10  # a residual below this is rounding: the kernel has no more independent directions


def similarity_of(vectors: Float[Tensor, "B N F"]) -> Float[Tensor, "B N N"]:
    """Cosine between every two candidates; a zero vector is like nothing but itself."""
    unit = torch.nn.functional.normalize(vectors.double(), dim=-1)
    likeness = unit @ unit.transpose(1, 2)
    return likeness.masked_fill(~off_diagonal(likeness.shape[1], likeness.device), 1.0)


def unit_range(scores: Float[Tensor, "B N"], present: Bool[Tensor, "B N"]) -> Float[Tensor, "B N"]:
    """Scores of each request stretched to [0, 1], so that one trade-off means the same everywhere."""
    low = scores.masked_fill(~present, torch.inf).amin(1, keepdim=True)
    high = scores.masked_fill(~present, -torch.inf).amax(1, keepdim=True)
    spread = (high - low).clamp(min=1e-12)
    return ((scores - low) / spread).double().masked_fill(~present, 0.0)


class Nearest(NamedTuple):
    """How like the most similar chosen item each candidate is; -inf while nothing is chosen."""

    likeness: Float[Tensor, "B S N"]


@dataclass(frozen=True)
class MaximalMarginalRelevance(Steps[Nearest]):
    """Carbonell and Goldstein 1998: t * relevance - (1 - t) * likeness to the nearest chosen item."""

    relevance: Float[Tensor, "B N"]
    similarity: Float[Tensor, "B N N"]
    trade_off: float

    def start(self, num_rows: int) -> Nearest:
        """Nothing chosen: like nothing."""
        return Nearest(torch.full_like(self.relevance, -torch.inf).unsqueeze(1).expand(-1, num_rows, -1))

    def step(self, state: Nearest) -> Float[Tensor, "B S N"]:
        likeness = state.likeness.masked_fill(state.likeness.isneginf(), 0.0)
        return self.trade_off * self.relevance.unsqueeze(1) - (1 - self.trade_off) * likeness

    def advance(self, state: Nearest, position: Int[Tensor, "B S"]) -> Nearest:
        """The chosen item may now be the nearest."""
        to_chosen = rows_of(self.similarity, position.clamp(min=0))  # B S N
        return Nearest(torch.maximum(state.likeness, to_chosen))


class Cholesky(NamedTuple):
    """Row by row, the Cholesky factor of the chosen items' kernel against all, and what remains."""

    factor: Float[Tensor, "B S N T"]
    residual: Float[Tensor, "B S N"]


@dataclass(frozen=True)
class DeterminantalGreedy(Steps[Cholesky]):
    """Greedy MAP of a DPP in the fast form of Chen, Zhang and Zhou 2018: each step adds the most volume.

    Given the chosen set Y, det(L_{Y+i}) / det(L_Y) is the residual d_i^2; choosing j updates every residual
    by one dot product: e_i = (L_ji - <c_j, c_i>) / d_j, then c_i gains e_i and d_i^2 loses e_i^2.
    """

    kernel: Float[Tensor, "B N N"]

    @classmethod
    def of(
        cls, relevance: Float[Tensor, "B N"], similarity: Float[Tensor, "B N N"], sharpness: float
    ) -> DeterminantalGreedy:
        """L = diag(q) S diag(q), q = exp(sharpness * relevance / 2): large sharpness is plain top-K."""
        quality = torch.exp(sharpness * relevance.double() / 2)
        return cls(quality.unsqueeze(2) * similarity.double() * quality.unsqueeze(1))

    def start(self, num_rows: int) -> Cholesky:
        """The empty set: each residual is the item's own quality."""
        B, N, _ = self.kernel.shape
        own = self.kernel.diagonal(dim1=1, dim2=2).unsqueeze(1).expand(B, num_rows, N)
        return Cholesky(self.kernel.new_zeros(B, num_rows, N, 0), own)

    def step(self, state: Cholesky) -> Float[Tensor, "B S N"]:
        """log of the factor on the determinant; once the kernel is exhausted, the best own quality wins."""
        own = self.kernel.diagonal(dim1=1, dim2=2).unsqueeze(1)
        left = state.residual / own.clamp(min=1e-300)
        spent = own.log() - 1e6  # below every item that still adds volume
        return torch.where(left > EXHAUSTED, state.residual.clamp(min=1e-300).log(), spent)

    def advance(self, state: Cholesky, position: Int[Tensor, "B S"]) -> Cholesky:
        at = position.clamp(min=0)
        request = torch.arange(len(at), device=at.device).unsqueeze(1)
        row = torch.arange(at.shape[1], device=at.device).unsqueeze(0)
        chosen = state.factor[request, row, at]  # B S T
        pivot = state.residual[request, row, at].unsqueeze(-1)  # B S 1
        own = self.kernel[request, at, at].unsqueeze(-1)
        gain = self.kernel[request, at] - (state.factor @ chosen.unsqueeze(-1)).squeeze(-1)  # B S N
        live = pivot > EXHAUSTED * own
        gain = torch.where(live, gain / pivot.clamp(min=1e-300).sqrt(), torch.zeros_like(gain))
        factor = torch.cat([state.factor, gain.unsqueeze(-1)], -1)
        return Cholesky(factor, (state.residual - gain**2).clamp(min=0.0))


Scorer = Callable[[TensorBatch], Float[Tensor, "B N"]]
# Vectors whose cosine says how like two candidates are.
Likeness = Callable[[TensorBatch], Float[Tensor, "B N F"]]

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
        asked = TensorBatch.of(batch)
        return greedy_by_weight(untied(self.scorer(asked), asked), Feasible.of(asked)).numpy()


@dataclass(frozen=True)
class Exact:
    """The valid card with the largest sum of node weights, proven."""

    scorer: Scorer

    def recommend(self, batch: Batch) -> Int[np.ndarray, "B K"]:
        asked = TensorBatch.of(batch)
        return exact(asked, untied(self.scorer(asked), asked)).cards.numpy()


@dataclass(frozen=True)
class Diverse:
    """Node weights traded against likeness to what is already on the card, by MMR or as a determinantal process."""

    scorer: Scorer
    likeness: Likeness
    steps: Callable[[Float[Tensor, "B N"], Float[Tensor, "B N N"]], Steps[Any]]  # of relevance and similarity

    def recommend(self, batch: Batch) -> Int[np.ndarray, "B K"]:
        asked = TensorBatch.of(batch)
        relevance = unit_range(untied(self.scorer(asked), asked), asked.present)
        return greedy(self.steps(relevance, similarity_of(self.likeness(asked))), Feasible.of(asked)).numpy()


def by_weight(name: str, scorer: Scorer) -> dict[str, CardPicker]:
    """The two selections of the issue: greedy and exact."""
    return {f"{name} greedy": Greedy(scorer), f"{name} exact": Exact(scorer)}


class Diversifier(NamedTuple):
    """Settings worth trying, and what one of them makes of relevance and similarity."""

    settings: Sequence[Setting]
    steps: Callable[..., Steps[Any]]


MMR = Diversifier(TRADE_OFFS, MaximalMarginalRelevance)
DPP = Diversifier(SHARPNESSES, DeterminantalGreedy.of)


def diversified(
    kind: Diversifier, scorer: Scorer, likeness: Likeness, judge: Judge, budget: Budget
) -> tuple[CardPicker, Setting, float]:
    """The same scores traded against likeness, as finds most on the validation split."""

    def attempt(setting: Setting) -> tuple[CardPicker, float]:
        way = Diverse(scorer, likeness, partial(kind.steps, **setting))
        return way, judge(way)

    return tuned(kind.settings, budget, attempt)


@dataclass(frozen=True)
class Judge:
    """The share of what was liked that a card holds, on validation: P@K, or HR@K where no item is named."""

    batches: tuple[Batch, ...]

    @classmethod
    def of(cls, valid: Logs, budget: Budget) -> Judge:
        """Read the batches once; every trial is judged on the same ones."""
        shown = valid.clicked_only().first(budget.validation_rows)
        return cls(tuple(batch for batch in shown.solvable_batches(budget.batch_size) if len(batch)))

    def __call__(self, way: CardPicker) -> float:
        """The higher the better; NaN where the split holds no clicked card."""
        found: list[float] = []
        for batch in self.batches:
            assert batch.clicks is not None
            cards, total = way.recommend(batch), batch.clicks.sum(1)
            caught = np.where(cards >= 0, np.take_along_axis(batch.clicks, cards.clip(0), 1), 0.0).sum(1)
            found += (caught[total > 0] / total[total > 0]).tolist()
        return float(np.mean(found)) if found else float("nan")
