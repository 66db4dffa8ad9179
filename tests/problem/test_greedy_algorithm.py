"""Algorithm 1 of the paper, its dead end, and the version without one."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from exactk.problem.exact import cliques
from exactk.problem.exact.cliques import naive_node_weight, safe_node_weight
from exactk.problem.graph import Requests, complete_graph, is_valid_card
from exactk.problem.ties import tie_keys


def requests_of(seed: int, N: int, K: int, density: float, num_caps: int = 0, pins: bool = False) -> Requests:
    rng = np.random.default_rng(seed)
    upper = np.triu(rng.random((3, N, N)) < density, 1)
    return replace(
        Requests.of(upper | upper.transpose(0, 2, 1), rng.integers(1, K + 1, 3).astype(np.int32)),
        present=rng.random((3, N)) < 0.9,
        pinned=rng.random((3, N)) < (0.05 if pins else 0.0),
        group=rng.integers(-1, 3, (3, num_caps, N)).astype(np.int32),
        cap=rng.integers(1, 3, (3, num_caps)).astype(np.int32),
    )


def test_algorithm_1_takes_the_heaviest_and_drops_its_non_neighbours() -> None:
    # 1 (9) is heaviest; it may not stand with 3 (8), so 0 (7) is next, then 2 (1).
    graph = complete_graph(4)
    graph[1, 3] = graph[3, 1] = False
    card = naive_node_weight(Requests.of(graph[None], 3), np.array([[7.0, 9.0, 1.0, 8.0]]))
    assert card[0].tolist() == [1, 0, 2]


def test_algorithm_1_runs_into_a_dead_end_that_the_safe_version_avoids() -> None:
    # A triangle 1-2-3 and the heavy 0 joined to 1 only: 0 first leaves no third.
    graph = np.zeros((1, 4, 4), bool)
    for i, j in ((0, 1), (1, 2), (2, 3), (1, 3)):
        graph[0, i, j] = graph[0, j, i] = True
    weights = np.array([[9.0, 1.0, 2.0, 3.0]])
    requests = Requests.of(graph, 3)
    assert naive_node_weight(requests, weights)[0].tolist() == [0, 1, -1]
    assert safe_node_weight(requests, weights)[0].tolist() == [3, 2, 1]


def test_equal_weights_go_to_the_lower_position() -> None:
    requests = Requests.of(complete_graph(4)[None], 2)
    assert naive_node_weight(requests, np.zeros((1, 4)))[0].tolist() == [0, 1]
    assert safe_node_weight(requests, np.zeros((1, 4)))[0].tolist() == [0, 1]


def test_equal_weights_of_items_with_ids_go_by_the_ids_wherever_they_stand() -> None:
    ids = np.array([["a", "b", "c", "d", "e"]], object)
    chosen = set()
    for order in permutations(range(5)):
        requests = replace(Requests.of(complete_graph(5)[None], 2), tie_key=tie_keys(ids[:, order]))
        for way in (naive_node_weight, safe_node_weight):
            chosen.add(frozenset(ids[0, list(order)][way(requests, np.ones((1, 5)))[0]].tolist()))
    assert len(chosen) == 1


def test_pinned_positions_come_first() -> None:
    requests = replace(Requests.of(complete_graph(4)[None], 3), pinned=np.array([[False, False, True, True]]))
    assert safe_node_weight(requests, np.array([[1.0, 5.0, 0.0, 0.0]]))[0].tolist() == [2, 3, 1]


@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    N=st.integers(1, 14),
    K=st.integers(1, 5),
    density=st.sampled_from([0.2, 0.5, 0.8, 1.0]),
    num_caps=st.integers(0, 2),
    pins=st.booleans(),
)
def test_the_safe_card_is_valid_wherever_one_exists(
    seed: int, N: int, K: int, density: float, num_caps: int, pins: bool
) -> None:
    requests = requests_of(seed, N, K, density, num_caps, pins)
    weights = np.random.default_rng(seed).normal(size=(3, N))
    cards = safe_node_weight(requests, weights)
    for b, exists in enumerate(cliques.exists(requests)):
        if exists:
            assert is_valid_card(requests, b, cards[b, : requests.card_size[b]])
            assert (cards[b, requests.card_size[b] :] == -1).all()
        else:
            assert (cards[b] == -1).all()


@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    N=st.integers(1, 14),
    K=st.integers(1, 5),
    density=st.sampled_from([0.2, 0.5, 0.8]),
)
def test_both_agree_where_algorithm_1_reaches_the_end(seed: int, N: int, K: int, density: float) -> None:
    requests = requests_of(seed, N, K, density)
    weights = np.random.default_rng(seed).normal(size=(3, N))
    naive, safe = naive_node_weight(requests, weights), safe_node_weight(requests, weights)
    for b in range(3):
        size = requests.card_size[b]
        if (naive[b, :size] >= 0).all():
            assert (naive[b, :size] == safe[b, :size]).all()
