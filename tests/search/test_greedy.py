"""Greedy decoding and Algorithm 1."""

from __future__ import annotations

import math

import torch

from exactk.search import Feasible, greedy
from exactk.search.greedy import greedy_by_weight
from small_batches import (
    TableSteps,
    batch_of,
    complete_batch,
    graph_of,
    may_follow,
    random_graphs,
    valid_cards,
)


def test_each_choice_is_the_likeliest_allowed_one() -> None:
    graphs = random_graphs(30, 6, 0.8, 2)
    keep = [b for b in range(30) if valid_cards(batch_of(graphs[b : b + 1], 3), 0)]
    batch, steps = batch_of(graphs[keep], 3), TableSteps(len(keep), 6)
    cards = greedy(steps, Feasible.of(batch))
    for b, card in enumerate(cards.tolist()):
        scores = steps.first[b]
        for t, chosen in enumerate(card):
            best = max(may_follow(batch, b, tuple(card[:t])), key=lambda j: float(scores[j]))
            assert chosen == best
            scores = scores / 2 + steps.shift[b, chosen]


def test_equal_scores_go_to_the_lower_position() -> None:
    steps = TableSteps(1, 5)
    steps.first, steps.shift = torch.zeros(1, 5), torch.zeros(1, 5, 5)
    assert greedy(steps, Feasible.of(complete_batch(1, 5, 3))).tolist() == [[0, 1, 2]]


def test_sizes_may_differ_within_a_batch() -> None:
    steps = TableSteps(2, 4)
    steps.first, steps.shift = torch.tensor([[4.0, 3, 2, 1], [1, 2, 3, 4]]), torch.zeros(2, 4, 4)
    assert greedy(steps, Feasible.of(complete_batch(2, 4, [1, 2]))).tolist() == [[0, -1], [3, 2]]


def test_algorithm_1_takes_the_heaviest_node_and_removes_what_it_excludes() -> None:
    # 3 is the heaviest but sits on no triangle: plain Algorithm 1 would end with two items, the safe one goes on.
    graph = graph_of(4, [(0, 1), (0, 2), (1, 2), (2, 3)]).unsqueeze(0)
    weights = torch.tensor([[0.1, 0.3, 0.2, 0.9]])
    assert greedy_by_weight(weights, Feasible.of(batch_of(graph, 3))).tolist() == [[1, 2, 0]]
    assert greedy_by_weight(weights, Feasible.of(batch_of(graph, 2))).tolist() == [[3, 2]]
    unlimited = torch.tensor([[-math.inf, 0.3, 0.2, 0.9]])  # a weight of -inf is a weight, not a ban
    assert greedy_by_weight(unlimited, Feasible.of(batch_of(graph, 3))).tolist() == [[1, 2, 0]]
