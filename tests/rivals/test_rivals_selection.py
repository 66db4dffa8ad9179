"""MMR by hand; the fast DPP against determinants computed from scratch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from exactk.rivals.selection import DeterminantalGreedy, MaximalMarginalRelevance, similarity_of, unit_range
from exactk.search.decoding import greedy
from exactk.search.feasible import Feasible
from exactk.tensors import TensorBatch


def plain_batch(num_requests: int, num_candidates: int, card_size: int) -> TensorBatch:
    """Requests without any rule."""
    B, N = num_requests, num_candidates
    return TensorBatch(
        user=torch.zeros(B, dtype=torch.long),
        item=torch.arange(N).expand(B, N),
        present=torch.ones(B, N, dtype=torch.bool),
        graph=~torch.eye(N, dtype=torch.bool).expand(B, N, N),
        card_size=torch.full((B,), card_size),
        pinned=torch.zeros(B, N, dtype=torch.bool),
        group=torch.empty(B, 0, N, dtype=torch.long),
        cap=torch.empty(B, 0, dtype=torch.long),
    )


def symmetric(pairs: dict[tuple[int, int], float], size: int) -> torch.Tensor:
    matrix = torch.eye(size, dtype=torch.float64)
    for (i, j), likeness in pairs.items():
        matrix[i, j] = matrix[j, i] = likeness
    return matrix.unsqueeze(0)


def test_mmr_by_hand() -> None:
    # Relevance 1.0, 0.9, 0.5, 0.4; 0 and 1 nearly alike (0.9), 0 and 3 opposite (-0.5), trade-off 0.5.
    # First 0 (0.5). Then 1: 0.45 - 0.45 = 0; 2: 0.25 - 0.05 = 0.2; 3: 0.2 + 0.25 = 0.45 -> 3.
    # Then nearest of 1: max(0.9, 0.1) -> 0; of 2: max(0.1, 0.8) -> 0.25 - 0.4 = -0.15 -> 1.
    relevance = torch.tensor([[1.0, 0.9, 0.5, 0.4]], dtype=torch.float64)
    likeness = symmetric({(0, 1): 0.9, (0, 2): 0.1, (0, 3): -0.5, (1, 3): 0.1, (2, 3): 0.8}, 4)
    steps = MaximalMarginalRelevance(relevance, likeness, 0.5)
    second = steps.advance(steps.start(1), torch.tensor([[0]]))
    assert steps.step(second)[0, 0, 1:].tolist() == pytest.approx([0.0, 0.2, 0.45])
    assert greedy(steps, Feasible.of(plain_batch(1, 4, 3))).tolist() == [[0, 3, 1]]


def test_mmr_that_only_cares_for_relevance_is_top_k() -> None:
    relevance = torch.rand(5, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    likeness = torch.rand(5, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    cards = greedy(MaximalMarginalRelevance(relevance, likeness, 1.0), Feasible.of(plain_batch(5, 8, 3)))
    assert cards.tolist() == relevance.topk(3).indices.tolist()


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**31), st.integers(2, 5), st.floats(0.0, 3.0))
def test_the_fast_dpp_picks_what_recomputed_determinants_pick(seed: int, size: int, sharpness: float) -> None:
    rng = np.random.default_rng(seed)
    vectors, relevance = rng.normal(size=(1, 8, 8)), rng.random((1, 8))
    steps = DeterminantalGreedy.of(
        torch.from_numpy(relevance), similarity_of(torch.from_numpy(vectors)), sharpness
    )
    kernel = steps.kernel[0].numpy()
    chosen: list[int] = []
    for _ in range(size):
        volume = [
            -1.0 if i in chosen else np.linalg.det(kernel[np.ix_([*chosen, i], [*chosen, i])])
            for i in range(8)
        ]
        chosen.append(int(np.argmax(volume)))
    assert greedy(steps, Feasible.of(plain_batch(1, 8, size)))[0].tolist() == chosen


def test_residuals_are_ratios_of_determinants() -> None:
    vectors = torch.randn(2, 6, 6, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    steps = DeterminantalGreedy.of(torch.rand(2, 6, dtype=torch.float64), similarity_of(vectors), 1.0)
    state = steps.advance(steps.advance(steps.start(1), torch.tensor([[2], [0]])), torch.tensor([[4], [1]]))
    for b, pair in enumerate([[2, 4], [0, 1]]):
        kernel = steps.kernel[b].numpy()
        for i in set(range(6)) - set(pair):
            ratio = np.linalg.det(kernel[np.ix_([*pair, i], [*pair, i])]) / np.linalg.det(
                kernel[np.ix_(pair, pair)]
            )
            assert state.residual[b, 0, i].item() == pytest.approx(ratio, rel=1e-9)


def test_a_sharp_dpp_is_top_k_and_a_flat_one_avoids_twins() -> None:
    relevance = torch.tensor([[1.0, 0.99, 0.2, 0.1]], dtype=torch.float64)
    likeness = symmetric({(0, 1): 0.999}, 4)
    feasible = Feasible.of(plain_batch(1, 4, 2))
    assert set(greedy(DeterminantalGreedy.of(relevance, likeness, 50.0), feasible)[0].tolist()) == {0, 1}
    assert set(greedy(DeterminantalGreedy.of(relevance, likeness, 1.0), feasible)[0].tolist()) == {0, 2}


def test_an_exhausted_kernel_still_fills_the_card_by_quality() -> None:
    # Six candidates in a plane: after two, no volume is left; the card must still hold four, the best ones.
    vectors = torch.tensor([[[1.0, 0], [0, 1], [1, 0], [0, 1], [1, 0], [0, 1]]])
    relevance = torch.tensor([[0.9, 0.8, 0.7, 0.1, 0.6, 0.2]], dtype=torch.float64)
    cards = greedy(
        DeterminantalGreedy.of(relevance, similarity_of(vectors), 1.0), Feasible.of(plain_batch(1, 6, 4))
    )
    assert cards[0, :2].tolist() == [0, 1]
    assert set(cards[0, 2:].tolist()) == {2, 4}


def test_both_obey_the_graph() -> None:
    batch = plain_batch(1, 4, 2)
    batch.graph.copy_(torch.tensor([[[0, 0, 0, 1], [0, 0, 1, 0], [0, 1, 0, 0], [1, 0, 0, 0]]]).bool())
    relevance = torch.tensor([[1.0, 0.9, 0.3, 0.1]], dtype=torch.float64)
    likeness = symmetric({}, 4)
    for steps in (
        MaximalMarginalRelevance(relevance, likeness, 0.7),
        DeterminantalGreedy.of(relevance, likeness, 2.0),
    ):
        assert greedy(steps, Feasible.of(batch))[0].tolist() == [0, 3]


def test_scores_are_stretched_over_the_present_candidates_only() -> None:
    scores, present = torch.tensor([[2.0, 4.0, 3.0, 99.0]]), torch.tensor([[True, True, True, False]])
    assert unit_range(scores, present).tolist() == [[0.0, 1.0, 0.5, 0.0]]
