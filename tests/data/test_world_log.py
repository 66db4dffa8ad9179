"""The logging policy: its propensities are probabilities of sets, its cards are valid."""

from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exactk.data.world.log import set_propensity, show
from exactk.problem.graph import Requests, complete_graph, is_valid_card


def random_graph(rng: np.random.Generator, N: int, density: float) -> np.ndarray:
    upper = np.triu(rng.random((N, N)) < density, 1)
    return upper | upper.T


def valid_cards(graph: np.ndarray, k: int) -> list[tuple[int, ...]]:
    return [c for c in combinations(range(len(graph)), k) if all(graph[i, j] for i, j in combinations(c, 2))]


def test_the_propensity_of_two_items_by_hand() -> None:
    # weights 1, 2, 3: {0, 1} is drawn 0 then 1 (1/6 * 2/5) or 1 then 0 (2/6 * 1/4)
    scores = np.log(np.array([[1.0, 2.0, 3.0]]))
    graph = complete_graph(3)[None]
    assert set_propensity(scores, graph, np.array([[1, 0]])) == pytest.approx(1 / 6 * 2 / 5 + 2 / 6 * 1 / 4)


def test_dead_ends_are_never_entered() -> None:
    # A triangle 0-1-2 and a tail 2-3: a card of three that starts with 3 could not be completed, so 3 has no chance.
    graph = np.zeros((1, 4, 4), bool)
    for i, j in (0, 1), (1, 2), (0, 2), (2, 3):
        graph[0, i, j] = graph[0, j, i] = True
    scores = np.array([[0.0, 0.0, 0.0, 9.0]])
    drawn = show(np.random.default_rng(0), scores, graph, 3)
    assert sorted(drawn.card[0].tolist()) == [0, 1, 2]
    assert drawn.propensity == pytest.approx(1.0)


def test_a_request_without_any_valid_card_has_propensity_zero() -> None:
    drawn = show(np.random.default_rng(0), np.zeros((1, 5)), np.zeros((1, 5, 5), bool), 2)
    assert drawn.propensity[0] == 0


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), k=st.integers(1, 4), density=st.sampled_from([0.4, 0.7, 1.0]))
def test_over_all_cards_of_a_request_propensities_sum_to_one(seed: int, k: int, density: float) -> None:
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, 8, density)
    cards = valid_cards(graph, k)
    if not cards:
        return
    scores = rng.normal(size=8)
    B = len(cards)
    propensity = set_propensity(
        np.broadcast_to(scores, (B, 8)).copy(), np.broadcast_to(graph, (B, 8, 8)).copy(), np.array(cards)
    )
    assert propensity.sum() == pytest.approx(1.0)
    assert (propensity > 0).all()


def test_a_propensity_is_the_sum_over_all_orders() -> None:
    rng = np.random.default_rng(5)
    graph, scores = random_graph(rng, 7, 0.8), rng.normal(size=7)
    weight = np.exp(scores)
    cards = valid_cards(graph, 4)
    for card in cards:
        total = 0.0
        for order in permutations(card):
            chance = 1.0
            for step, item in enumerate(order):
                before = set(order[:step])
                drawable = sorted({p for c in cards if before <= set(c) for p in c} - before)
                chance *= weight[item] / weight[drawable].sum()
            total += chance
        assert set_propensity(scores[None], graph[None], np.array([card])) == pytest.approx(total)


def test_cards_are_shown_as_often_as_their_propensities_say() -> None:
    rng = np.random.default_rng(1)
    graph, scores = random_graph(rng, 6, 0.8), rng.normal(size=6)
    B = 40_000
    drawn = show(rng, np.broadcast_to(scores, (B, 6)).copy(), np.broadcast_to(graph, (B, 6, 6)).copy(), 3)
    requests = Requests.of(graph[None], 3)
    seen, first, counts = np.unique(
        np.sort(drawn.card, axis=1), axis=0, return_index=True, return_counts=True
    )
    assert all(is_valid_card(requests, 0, card) for card in seen)
    assert len(seen) == len(valid_cards(graph, 3))
    # four standard deviations of a share among 40,000 are at most 0.01
    assert counts / B == pytest.approx(drawn.propensity[first], abs=0.01)
