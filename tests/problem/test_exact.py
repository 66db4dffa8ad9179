"""The best card under node and pair values, against trying them all."""

from __future__ import annotations

import itertools

import pytest
import torch

from exactk.errors import InfeasibleError
from exactk.search import exact
from small_batches import batch_of, complete_batch, graph_of, random_graphs, valid_cards


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
