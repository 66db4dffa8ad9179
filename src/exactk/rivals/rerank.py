"""Re-ranking by relevance and likeness: MMR, and greedy MAP of a determinantal point process.

Knows no network: scores and similarities in, a step function out, which search makes valid cards of.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from exactk.search.steps import replay_by_steps

EXHAUSTED = 1e-10  # a residual below this is rounding: the kernel has no more independent directions


def similarity_of(vectors: Float[Tensor, "B N F"]) -> Float[Tensor, "B N N"]:
    """Cosine between every two candidates; a zero vector is like nothing but itself."""
    unit = torch.nn.functional.normalize(vectors.double(), dim=-1)
    likeness = unit @ unit.transpose(1, 2)
    diagonal = torch.eye(likeness.shape[1], dtype=torch.bool, device=likeness.device)
    return likeness.masked_fill(diagonal, 1.0)


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
class MaximalMarginalRelevance:
    """Carbonell and Goldstein 1998: t * relevance - (1 - t) * likeness to the nearest chosen item."""

    relevance: Float[Tensor, "B N"]
    similarity: Float[Tensor, "B N N"]
    trade_off: float

    def start(self, num_rows: int) -> Nearest:
        """Nothing chosen: like nothing."""
        return Nearest(torch.full_like(self.relevance, -torch.inf).unsqueeze(1).expand(-1, num_rows, -1))

    def step(self, state: Nearest) -> Float[Tensor, "B S N"]:
        """Marginal relevance of every candidate."""
        likeness = state.likeness.masked_fill(state.likeness.isneginf(), 0.0)
        return self.trade_off * self.relevance.unsqueeze(1) - (1 - self.trade_off) * likeness

    def advance(self, state: Nearest, position: Int[Tensor, "B S"]) -> Nearest:
        """The chosen item may now be the nearest."""
        request = torch.arange(len(position), device=position.device).unsqueeze(1)
        to_chosen = self.similarity[request, position.clamp(min=0)]  # B S N
        return Nearest(torch.maximum(state.likeness, to_chosen))

    def replay(self, cards: Int[Tensor, "B S K"]) -> Float[Tensor, "B S K N"]:
        """Step by step."""
        return replay_by_steps(self, cards)


class Cholesky(NamedTuple):
    """Row by row, the Cholesky factor of the chosen items' kernel against all, and what remains."""

    factor: Float[Tensor, "B S N T"]
    residual: Float[Tensor, "B S N"]


@dataclass(frozen=True)
class DeterminantalGreedy:
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
        """One more row of the factor."""
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

    def replay(self, cards: Int[Tensor, "B S K"]) -> Float[Tensor, "B S K N"]:
        """Step by step."""
        return replay_by_steps(self, cards)
