"""Beam search: W likeliest sets, wide enough the very best."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from exactk.search import Feasible, beam, greedy
from exactk.search.beam import likeliest, seen_before, set_keys
from small_batches import (
    TableSteps,
    batch_of,
    complete_batch,
    graph_of,
    ordered_cards,
    random_graphs,
    valid_cards,
)


def best_orders(batch: object, b: int, steps: TableSteps) -> list[tuple[tuple[int, ...], float]]:
    """Every set with the log-probability of its likeliest order, likeliest set first, by enumeration."""
    best: dict[tuple[int, ...], float] = {}
    for card, log in ordered_cards(batch, b, steps).items():  # type: ignore[arg-type]
        key = tuple(sorted(card))
        best[key] = max(log, best.get(key, -math.inf))
    return sorted(best.items(), key=lambda entry: -entry[1])


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([0.5, 0.8, 1.1]), st.integers(1, 4))
def test_a_beam_wide_enough_is_brute_force(seed: int, density: float, size: int) -> None:
    batch, steps = batch_of(random_graphs(1, 6, density, seed), size), TableSteps(1, 6, seed)
    if not valid_cards(batch, 0):
        return
    truth = best_orders(batch, 0, steps)
    found = beam(steps, Feasible.of(batch), 100)
    num = len(truth)
    assert [tuple(sorted(card)) for card in found.cards[0, :num].tolist()] == [card for card, _ in truth]
    assert found.log_prob[0, :num].tolist() == pytest.approx([log for _, log in truth], abs=1e-4)
    assert found.cards[0, num:].eq(-1).all()
    assert found.log_prob[0, num:].eq(-torch.inf).all()


def test_a_beam_of_width_one_is_greedy() -> None:
    graphs = random_graphs(300, 8, 0.7, 4)
    keep = [b for b in range(300) if valid_cards(batch_of(graphs[b : b + 1], 3), 0)][:100]
    batch, steps = batch_of(graphs[keep], 3), TableSteps(len(keep), 8)
    rules = Feasible.of(batch)
    assert beam(steps, rules, 1).cards[:, 0].equal(greedy(steps, rules))


def test_a_beam_holds_distinct_sets_likeliest_first() -> None:
    batch, steps = complete_batch(20, 7, 4), TableSteps(20, 7)
    found = beam(steps, Feasible.of(batch), 6)
    assert (found.log_prob.diff(dim=1) <= 0).all()
    for cards in found.cards.sort(-1).values.tolist():
        assert len({tuple(card) for card in cards}) == 6


def test_a_set_reached_in_two_orders_takes_one_place_with_its_better_order() -> None:
    # Two choices of three, all scores equal: six orders of probability 1/6, three sets.
    steps = TableSteps(1, 3)
    steps.first, steps.shift = torch.zeros(1, 3), torch.zeros(1, 3, 3)
    found = beam(steps, Feasible.of(complete_batch(1, 3, 2)), 4)
    assert found.cards[0].tolist() == [[0, 1], [0, 2], [1, 2], [-1, -1]]
    assert found.log_prob[0, :3].exp().tolist() == pytest.approx([1 / 6] * 3)
    assert found.log_prob[0, 3].item() == -math.inf


def test_a_second_order_of_a_set_waits_behind_other_sets() -> None:
    log_prob, sets = torch.tensor([[-1.0, -1.1, -3.0, -torch.inf]]), torch.tensor([[3, 3, 5, 6]])
    assert seen_before(sets).tolist() == [[False, True, False, False]]
    assert likeliest(log_prob, sets, 2, distinct=False)[1].tolist() == [[0, 2]]
    assert likeliest(log_prob, sets, 3, distinct=False)[1].tolist() == [[0, 2, 1]]
    kept, chosen = likeliest(log_prob, sets, 3, distinct=True)
    assert kept.tolist() == [[-1.0, -3.0, -math.inf]]
    assert chosen.tolist() == [[0, 2, 0]]


def test_a_beam_can_do_better_than_greedy() -> None:
    # Greedy takes 0 (p 0.6) and then has to split evenly; 1 is followed by 2 almost surely.
    steps = TableSteps(1, 4)
    steps.first = torch.tensor([[0.6, 0.4, 1e-9, 1e-9]]).log()
    steps.shift = torch.zeros(1, 4, 4) - steps.first / 2
    steps.shift[0, 1, 2] += 10
    rules = Feasible.of(complete_batch(1, 4, 2))
    assert greedy(steps, rules)[0, 0].item() == 0
    assert beam(steps, rules, 3).cards[0, 0].tolist() == [1, 2]


def test_a_batch_of_one_equals_the_batch_with_sizes_and_candidates_that_differ() -> None:
    graph = random_graphs(6, 7, 0.9, 8)
    present = torch.ones(6, 7, dtype=torch.bool)
    present[::2, 5:] = False
    batch, steps = batch_of(graph, [1, 2, 3, 2, 3, 1], present=present), TableSteps(6, 7)
    together = beam(steps, Feasible.of(batch), 3)
    for b in range(6):
        table = TableSteps(1, 7)
        table.first, table.shift = steps.first[b : b + 1], steps.shift[b : b + 1]
        alone = beam(table, Feasible.of(batch.rows(torch.tensor([b]))), 3)
        size = alone.cards.shape[2]
        assert together.cards[b, :, :size].equal(alone.cards[0])
        assert together.cards[b, :, size:].eq(-1).all()
        assert torch.allclose(together.log_prob[b], alone.log_prob[0])


def test_a_beam_never_leaves_the_valid_cards() -> None:
    # Triangles 0-1-2 and 3-4-5 hang on a path, whose nodes score highest and lead nowhere.
    edges = [(0, 1), (1, 2), (0, 2), (3, 4), (4, 5), (3, 5), (2, 6), (6, 7), (7, 3)]
    batch, steps = batch_of(graph_of(8, edges).unsqueeze(0), 3), TableSteps(1, 8)
    steps.first[0, 6:] = 50.0
    found = beam(steps, Feasible.of(batch), 5)
    assert {tuple(sorted(card)) for card in found.cards[0, :2].tolist()} == {(0, 1, 2), (3, 4, 5)}
    assert found.cards[0, 2:].eq(-1).all()


def test_sets_are_told_apart_beyond_62_positions() -> None:
    assert len(set(set_keys(200, torch.device("cpu")).tolist())) == 200
    batch, steps = complete_batch(2, 80, 3), TableSteps(2, 80)
    found = beam(steps, Feasible.of(batch), 40)
    for cards in found.cards.sort(-1).values.tolist():
        assert len({tuple(card) for card in cards}) == 40
