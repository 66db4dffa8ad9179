"""Swaps: never worse, never invalid, and at the end no single swap helps."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from exactk.errors import InfeasibleError
from exactk.problem.graph import is_valid_card
from exactk.search import Feasible, exact, improve, sample
from exactk.search.maximise import Value, swaps, valid_swaps
from small_batches import TableSteps, batch_of, complete_batch, graph_of, random_graphs, valid_cards


def sum_of(node: Tensor, pair: Tensor) -> Value:
    """The value of cards: node values plus pair values."""

    def value(cards: Tensor) -> Tensor:
        real = (cards >= 0).float()
        request = torch.arange(len(cards))[:, None, None]
        nodes = (node[request, cards] * real).sum(-1)
        pairs = pair[request.unsqueeze(-1), cards.unsqueeze(-1), cards.unsqueeze(-2)]
        return nodes + (pairs * real.unsqueeze(-1) * real.unsqueeze(-2)).sum((-1, -2)) / 2

    return value


def test_swaps_by_hand() -> None:
    made = swaps(torch.tensor([[2, 0]]), 3)
    assert made[0].tolist() == [[0, 0], [1, 0], [2, 0], [2, 0], [2, 1], [2, 2]]
    # Of three candidates with 1 and 2 apart, the card (2, 0) may trade its 2 for 1, and its 0 for nothing.
    graph = torch.tensor([[[False, True, True], [True, False, False], [True, False, False]]])
    valid = valid_swaps(batch_of(graph, 2), torch.tensor([[2, 0]]))
    assert valid[0].int().tolist() == [[0, 1, 0], [0, 0, 0]]


def test_without_rules_swaps_find_the_top_items() -> None:
    node = torch.tensor([[0.1, 0.9, 0.5, 0.7, 0.3]])
    value = sum_of(node, torch.zeros(1, 5, 5))
    improved = improve(complete_batch(1, 5, 2), torch.tensor([[0, 4]]), value)
    assert set(improved[0].tolist()) == {1, 3}


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(0, 1), st.integers(0, 1))
def test_improved_cards_are_valid_no_worse_and_locally_best(seed: int, num_caps: int, num_pins: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    B, N = 3, 7
    given_: dict[str, Tensor] = {
        "group": torch.randint(-1, 3, (B, num_caps, N), generator=generator),
        "cap": torch.full((B, num_caps), 2),
        "pinned": (torch.arange(N) < num_pins).expand(B, N),
        "present": (torch.arange(N) < 6).expand(B, N),
    }
    batch = batch_of(random_graphs(B, N, 0.8, seed), [3, 2, 3], **given_)
    if not all(valid_cards(batch, b) for b in range(B)):
        return
    cards = sample(TableSteps(B, N), Feasible.of(batch), 1, generator=generator).cards[:, 0]
    pair = torch.randn(B, N, N, generator=generator)
    value = sum_of(torch.randn(B, N, generator=generator), pair + pair.transpose(1, 2))
    before = cards.clone()
    improved = improve(batch, cards, value)
    assert cards.equal(before)
    assert (value(improved.unsqueeze(1)) >= value(cards.unsqueeze(1)) - 1e-5).all()
    requests = batch.requests()
    for b in range(B):
        card = [p for p in improved[b].tolist() if p >= 0]
        assert is_valid_card(requests, b, np.array(card))
        worth = float(value(improved.unsqueeze(1))[b, 0])
        for k, j in itertools.product(range(len(card)), range(N)):
            other = [*card[:k], j, *card[k + 1 :]]
            if is_valid_card(requests, b, np.array(other)):
                swapped = improved.clone()
                swapped[b, : len(other)] = torch.tensor(other)
                assert float(value(swapped.unsqueeze(1))[b, 0]) <= worth + 1e-5


def worth(node: torch.Tensor, pair: torch.Tensor, card: tuple[int, ...]) -> float:
    pairs = sum(float(pair[i, j]) for i, j in itertools.combinations(card, 2))
    return sum(float(node[i]) for i in card) + pairs


def test_the_exact_card_is_the_best_of_all_valid_ones() -> None:
    graphs = random_graphs(60, 7, 0.7, 9)
    keep = [b for b in range(60) if valid_cards(batch_of(graphs[b : b + 1], 3), 0)]
    batch = batch_of(graphs[keep], 3)
    generator = torch.Generator().manual_seed(0)
    node = torch.randn(len(keep), 7, generator=generator)
    pair = torch.randn(len(keep), 7, 7, generator=generator)
    pair = pair + pair.transpose(1, 2)
    found = exact(batch, node, pair)
    assert found.optimal.all()
    for b in range(len(keep)):
        best = max(valid_cards(batch, b), key=lambda card: worth(node[b], pair[b], card))
        assert tuple(found.cards[b].tolist()) == best
        assert float(found.value[b]) == pytest.approx(worth(node[b], pair[b], best), abs=1e-5)
        assert float(found.bound[b]) == pytest.approx(float(found.value[b]))


def test_without_pairs_and_rules_the_exact_card_is_the_top_k() -> None:
    node = torch.tensor([[0.1, 0.9, 0.5, 0.7]])
    assert exact(complete_batch(1, 4, 2), node).cards.tolist() == [[1, 3]]


def test_sizes_may_differ_and_shorter_cards_are_padded() -> None:
    node = torch.tensor([[3.0, 2.0, 1.0], [1.0, 2.0, 3.0]])
    assert exact(complete_batch(2, 3, [1, 2]), node).cards.tolist() == [[0, -1], [1, 2]]


def test_no_valid_card_is_an_error_naming_the_request() -> None:
    ring = graph_of(4, [(0, 1), (1, 2), (2, 3), (3, 0)])
    batch = batch_of(torch.stack([~torch.eye(4, dtype=torch.bool), ring]), 3)
    with pytest.raises(InfeasibleError, match="request 1 "):
        exact(batch, torch.zeros(2, 4))
