"""The exact engine against brute force, hand-made cases, and itself in other clothes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exactk.errors import InputError
from exactk.problem.exact import cliques
from exactk.problem.exact.best import best_pairs_each
from exactk.problem.exact.nodes import heaviest, heaviest_by_colour
from exactk.problem.exact.setup import all_rows
from exactk.problem.graph import Requests, complete_graph, is_valid_card

Weights = tuple[np.ndarray, np.ndarray]


def random_graph(rng: np.random.Generator, num_nodes: int, density: float) -> np.ndarray:
    upper = np.triu(rng.random((num_nodes, num_nodes)) < density, 1)
    return np.asarray(upper | upper.T)


def random_requests(
    seed: int, B: int, N: int, K: int, density: float, num_caps: int = 0, odd: bool = False
) -> Requests:
    """`odd` adds absent and pinned positions and lets K vary."""
    rng = np.random.default_rng(seed)
    graph = np.stack([random_graph(rng, N, density) for _ in range(B)])
    size = rng.integers(max(K - 1, 0), K + 1, B).astype(np.int32) if odd else K
    return replace(
        Requests.of(graph, size),
        present=rng.random((B, N)) < (0.9 if odd else 1.0),
        pinned=rng.random((B, N)) < (0.06 if odd else 0.0),
        group=rng.integers(-1, 4, (B, num_caps, N)).astype(np.int32),
        cap=rng.integers(0, 4, (B, num_caps)).astype(np.int32),
    )


def random_weights(seed: int, B: int, N: int, whole: bool = True) -> Weights:
    """Small whole numbers, many of them equal and half of them negative, or reals."""
    rng = np.random.default_rng(seed + 10_000)
    node = rng.integers(-3, 4, (B, N)).astype(float) if whole else rng.normal(size=(B, N))
    pair = rng.integers(-2, 3, (B, N, N)).astype(float) if whole else rng.normal(size=(B, N, N))
    return node, pair + pair.transpose(0, 2, 1)


def value(card: tuple[int, ...], node: np.ndarray, pair: np.ndarray | None) -> float:
    pairs = 0.0 if pair is None else sum(pair[i, j] for i, j in combinations(card, 2))
    return float(sum(node[i] for i in card) + pairs)


def all_cards(requests: Requests, b: int) -> list[tuple[int, ...]]:
    N = requests.graph.shape[1]
    return [
        c
        for c in combinations(range(N), int(requests.card_size[b]))
        if is_valid_card(requests, b, np.array(c))
    ]


small = st.builds(
    random_requests,
    seed=st.integers(0, 10**6),
    B=st.integers(1, 3),
    N=st.integers(1, 9),
    K=st.integers(1, 6),
    density=st.sampled_from([0.0, 0.3, 0.6, 0.9, 1.0]),
    num_caps=st.integers(0, 2),
    odd=st.booleans(),
)


@settings(max_examples=150, deadline=None)
@given(small, st.integers(0, 10**6), st.booleans())
def test_best_cards_are_those_of_brute_force_in_weight_then_dictionary_order(
    requests: Requests, seed: int, with_pairs: bool
) -> None:
    B, N = requests.present.shape
    node, pair = random_weights(seed, B, N)
    pairs = pair if with_pairs else None
    top = cliques.best(requests, node, pairs)
    ranking = cliques.best_n(requests, node, pairs, n=4)
    for b in range(B):
        pair_b = pair[b] if with_pairs else None
        ranked = sorted(all_cards(requests, b), key=lambda c: (-value(c, node[b], pair_b), c))
        K = int(requests.card_size[b])
        assert top.found[b] == bool(ranked)
        assert top.optimal[b]
        assert ranking.num_found[b] == min(4, len(ranked))
        for listed, weight, card in zip(ranking.card[b], ranking.weight[b], ranked, strict=False):
            assert tuple(listed[:K]) == card
            assert weight == value(card, node[b], pair_b)
        if ranked:
            assert tuple(top.card[b, :K]) == ranked[0]
            assert top.weight[b] == top.bound[b] == value(ranked[0], node[b], pair_b)
        else:
            assert top.weight[b] == top.bound[b] == -np.inf
            assert (top.card[b] == -1).all()
        assert ranking.bound[b] == (value(ranked[3], node[b], pair_b) if len(ranked) >= 4 else -np.inf)


@settings(max_examples=150, deadline=None)
@given(small)
def test_exists_agrees_with_brute_force(requests: Requests) -> None:
    found = [bool(all_cards(requests, b)) for b in range(len(requests))]
    assert cliques.exists(requests).tolist() == found


@settings(max_examples=150, deadline=None)
@given(small, st.integers(0, 10**6))
def test_what_can_be_completed_agrees_with_brute_force(requests: Requests, seed: int) -> None:
    B, N = requests.present.shape
    chosen = np.random.default_rng(seed).random((B, N)) < 0.2
    can, nexts = cliques.can_complete(requests, chosen), cliques.completable(requests, chosen)
    for b in range(B):
        held = set(np.flatnonzero(chosen[b]).tolist())
        cards = [set(card) for card in all_cards(requests, b)]
        assert can[b] == any(held <= card for card in cards)
        for p in range(N):
            assert nexts[b, p] == (p not in held and any(held | {p} <= card for card in cards))


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    N=st.integers(15, 90),
    K=st.integers(2, 8),
    density=st.sampled_from([0.4, 0.7, 0.95]),
    num_caps=st.integers(0, 2),
    with_pairs=st.booleans(),
)
def test_every_returned_card_is_valid_and_worth_its_weight(
    seed: int, N: int, K: int, density: float, num_caps: int, with_pairs: bool
) -> None:
    requests = random_requests(seed, 2, N, K, density, num_caps, odd=True)
    node, pair = random_weights(seed, 2, N, whole=False)
    pairs = pair if with_pairs else None
    ranking = cliques.best_n(requests, node, pairs, n=3)
    assert ((ranking.num_found > 0) == cliques.exists(requests)).all()
    for b in range(2):
        size = int(requests.card_size[b])
        cards = [tuple(ranking.card[b, k, :size].tolist()) for k in range(ranking.num_found[b])]
        assert len(set(cards)) == len(cards)
        for card, weight in zip(cards, ranking.weight[b], strict=False):
            assert is_valid_card(requests, b, np.array(card))
            assert weight == pytest.approx(value(card, node[b], pair[b] if with_pairs else None))


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), K=st.integers(1, 7), density=st.sampled_from([0.3, 0.6, 0.9]))
def test_both_searches_agree_where_pairs_weigh_nothing(seed: int, K: int, density: float) -> None:
    requests = random_requests(seed, 3, 40, K, density, num_caps=1)
    node, pair = random_weights(seed, 3, 40)
    by_nodes = cliques.best_n(requests, node, None, n=3)
    by_pairs = cliques.best_n(requests, node, np.zeros_like(pair), n=3)
    assert (by_nodes.card == by_pairs.card).all()
    assert (by_nodes.weight == by_pairs.weight).all()


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), K=st.integers(1, 7), density=st.sampled_from([0.3, 0.6, 0.9]))
def test_permuting_candidates_permutes_nothing_but_positions(seed: int, K: int, density: float) -> None:
    rng = np.random.default_rng(seed)
    requests = random_requests(seed, 1, 30, K, density, num_caps=1, odd=True)
    node, pair = random_weights(seed, 1, 30, whole=False)
    order = rng.permutation(30)
    moved = replace(
        requests,
        graph=requests.graph[:, order][:, :, order],
        present=requests.present[:, order],
        pinned=requests.pinned[:, order],
        group=requests.group[:, :, order],
    )
    for pairs, moved_pairs in ((None, None), (pair, pair[:, order][:, :, order])):
        here = cliques.best(requests, node, pairs)
        there = cliques.best(moved, node[:, order], moved_pairs)
        assert here.found[0] == there.found[0]
        assert here.weight[0] == pytest.approx(there.weight[0])
        if here.found[0]:
            size = int(requests.card_size[0])
            assert set(order[there.card[0, :size]]) == set(here.card[0, :size])


@pytest.mark.parametrize("with_pairs", [False, True])
def test_a_batch_equals_its_requests_one_by_one(with_pairs: bool) -> None:
    requests = random_requests(
        5, 40, 24, 5, 0.6, num_caps=1, odd=True
    )  # 40 requests: more than one thread's slice
    node, pair = random_weights(5, 40, 24, whole=False)
    pairs = pair if with_pairs else None
    together = cliques.best(requests, node, pairs)
    chosen = np.random.default_rng(0).random((40, 24)) < 0.05
    nexts, can = cliques.completable(requests, chosen), cliques.can_complete(requests, chosen)
    for b in range(40):
        alone = cliques.best(requests.one(b), node[b : b + 1], pair[b : b + 1] if with_pairs else None)
        size = int(requests.card_size[b])
        assert (alone.card[0, :size] == together.card[b, :size]).all()
        assert alone.weight[0] == together.weight[b]
        assert (cliques.completable(requests.one(b), chosen[b : b + 1])[0] == nexts[b]).all()
        assert cliques.can_complete(requests.one(b), chosen[b : b + 1])[0] == can[b]


def test_callers_on_many_threads_do_not_disturb_each_other() -> None:
    requests = random_requests(6, 32, 20, 4, 0.7)
    node, pair = random_weights(6, 32, 20)
    alone = cliques.best(requests, node, pair)
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: cliques.best(requests, node, pair), range(12)))
    assert all((result.card == alone.card).all() for result in results)


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 10**6), left=st.integers(1, 5), density=st.sampled_from([0.2, 0.5, 0.8]))
def test_colours_bound_a_clique_from_above_and_no_looser_than_its_heaviest(
    seed: int, left: int, density: float
) -> None:
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, 9, density)
    weights = np.sort(rng.normal(size=9))[::-1].copy()  # heaviest first, as the search numbers them
    none = np.empty((0, 9), np.int64), np.empty(0, np.int64), np.empty((0, 1), np.uint64)
    rows = all_rows(graph, np.arange(9), 9, *none)
    everyone, scratch = np.array([2**9 - 1], np.uint64), np.empty((2, 1), np.uint64)
    bound = heaviest_by_colour(rows, everyone, weights, left, *scratch)
    cards = [c for c in combinations(range(9), left) if all(graph[i, j] for i, j in combinations(c, 2))]
    assert max((value(c, weights, None) for c in cards), default=-np.inf) <= bound + 1e-12
    assert bound <= heaviest(everyone, weights, left)


def test_three_of_a_ring_of_four_do_not_exist() -> None:
    ring = np.array([[0, 1, 0, 1], [1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 1, 0]], bool)[None]
    assert cliques.exists(Requests.of(ring, 2))[0]
    triples = Requests.of(ring, 3)
    assert not cliques.exists(triples)[0]
    none = cliques.best(triples, np.ones((1, 4)))
    assert not none.found[0]
    assert none.bound[0] == -np.inf
    assert not cliques.completable(triples, np.zeros((1, 4), bool)).any()


def test_a_good_pair_beats_two_good_nodes() -> None:
    # Cards {0,1} 3+2-1 = 4, {0,2} 3+2+0 = 5, {1,2} 2+2+3 = 7.
    node = np.array([[3.0, 2.0, 2.0]])
    pair = np.array([[[0.0, -1.0, 0.0], [-1.0, 0.0, 3.0], [0.0, 3.0, 0.0]]])
    requests = Requests.of(complete_graph(3)[None], 2)
    assert cliques.best(requests, node).card[0].tolist() == [0, 1]
    assert cliques.best(requests, node, pair).card[0].tolist() == [1, 2]
    ranking = cliques.best_n(requests, node, pair, n=5)
    assert ranking.weight[0, :3].tolist() == [7.0, 5.0, 4.0]
    assert ranking.num_found[0] == 3
    assert ranking.bound[0] == -np.inf


def test_negative_weights_do_not_shorten_the_card() -> None:
    requests = Requests.of(complete_graph(5)[None], 3)
    node = np.array([[-5.0, -1.0, -4.0, -2.0, -3.0]])
    solution = cliques.best(requests, node)
    assert solution.card[0].tolist() == [1, 3, 4]
    assert solution.weight[0] == -6.0


def test_pins_and_caps_move_the_optimum() -> None:
    # Groups: 0, 1, 2 of one brand, at most two of them; position 4 pinned.
    node = np.array([[9.0, 8.0, 7.0, 6.0, 0.0]])
    requests = replace(
        Requests.of(complete_graph(5)[None], 4),
        pinned=np.array([[False, False, False, False, True]]),
        group=np.array([[[5, 5, 5, -1, -1]]], np.int32),
        cap=np.array([[2]], np.int32),
    )
    solution = cliques.best(requests, node)
    assert solution.card[0].tolist() == [0, 1, 3, 4]
    assert solution.weight[0] == 23.0
    assert cliques.best(requests, node, np.zeros((1, 5, 5))).card[0].tolist() == [0, 1, 3, 4]


@pytest.mark.parametrize("pair", [None, np.zeros((1, 12, 12))])
def test_among_equals_the_first_positions_win(pair: np.ndarray | None) -> None:
    graph = complete_graph(12)
    graph[0, 2] = graph[2, 0] = False
    solution = cliques.best(Requests.of(graph[None], 4), np.ones((1, 12)), pair)
    assert solution.card[0].tolist() == [0, 1, 3, 4]


@pytest.mark.parametrize("pair", [None, np.zeros((1, 4, 4))])
def test_rounding_does_not_decide_between_equals(pair: np.ndarray | None) -> None:
    # 0.1 + 0.2 is 0.30000000000000004 in binary, but the card [0, 3] of 0.3 + 0.0 comes first.
    graph = np.zeros((1, 4, 4), bool)
    for i, j in ((0, 3), (1, 2)):
        graph[0, i, j] = graph[0, j, i] = True
    solution = cliques.best(Requests.of(graph, 2), np.array([[0.3, 0.1, 0.2, 0.0]]), pair)
    assert solution.card[0].tolist() == [0, 3]


def test_equal_weights_on_a_large_graph_are_settled_at_once() -> None:
    requests = random_requests(1, 1, 400, 8, 0.8)
    solution = cliques.best(requests, np.ones((1, 400)), np.zeros((1, 400, 400)), time_limit=20.0)
    assert solution.optimal[0]
    # The first card in dictionary order takes, at each step, the lowest position from which a card can be completed.
    chosen = np.zeros((1, 400), bool)
    for _ in range(8):
        chosen[0, np.flatnonzero(cliques.completable(requests, chosen)[0])[0]] = True
    assert solution.card[0].tolist() == np.flatnonzero(chosen[0]).tolist()


@pytest.mark.parametrize(("with_pairs", "N", "K", "density"), [(True, 50, 10, 0.9), (False, 200, 10, 0.6)])
def test_a_time_limit_brackets_the_optimum(with_pairs: bool, N: int, K: int, density: float) -> None:
    brackets = []
    for seed in range(4):
        requests = random_requests(seed, 1, N, K, density)
        node, pair = random_weights(seed, 1, N, whole=False)
        pairs = pair if with_pairs else None
        optimum = cliques.best(requests, node, pairs)
        hurried = cliques.best(requests, node, pairs, time_limit=0.0)
        assert optimum.optimal[0]
        assert hurried.weight[0] <= optimum.weight[0] <= hurried.bound[0]
        if hurried.found[0]:
            assert is_valid_card(requests, 0, hurried.card[0])
        brackets.append(not hurried.optimal[0])
    assert any(brackets), "no search was cut short: the test shows nothing"


@pytest.mark.parametrize("with_pairs", [False, True])
def test_a_planted_card_is_found_among_512_candidates(with_pairs: bool) -> None:
    N, K = 512, 9
    rng = np.random.default_rng(3)
    planted = np.sort(rng.choice(N, K, replace=False))
    graph = random_graph(rng, N, 0.5)
    graph[np.ix_(planted, planted)] = complete_graph(K)
    node = rng.random((1, N))
    node[0, planted] += 1.0  # any other card has a member of less than 1 and none of more than 2
    pair = np.zeros((1, N, N))
    pair[0][np.ix_(planted, planted)] = 2.0
    solution = cliques.best(Requests.of(graph[None], K), node, pair if with_pairs else None)
    assert solution.optimal[0]
    assert solution.weight[0] >= node[0, planted].sum()
    if with_pairs:
        assert solution.card[0].tolist() == planted.tolist()


def test_cards_of_one_of_all_of_none_and_of_too_many() -> None:
    node = np.array([[1.0, 4.0, 2.0]])
    pair = np.ones((1, 3, 3))
    whole, empty = complete_graph(3)[None], np.zeros((1, 3, 3), bool)
    for pairs in (None, pair):
        assert cliques.best(Requests.of(empty, 1), node, pairs).card[0].tolist() == [1]
        assert cliques.best(Requests.of(whole, 3), node, pairs).card[0].tolist() == [0, 1, 2]
        assert not cliques.best(Requests.of(empty, 2), node, pairs).found[0]
        assert not cliques.best(Requests.of(whole, 4), node, pairs).found[0]
        nothing = cliques.best(Requests.of(whole, 0), node, pairs)
        assert nothing.found[0]
        assert nothing.weight[0] == 0.0
        assert nothing.card.shape == (1, 0)


def test_no_requests_and_no_candidates_are_answered() -> None:
    none = Requests.of(np.zeros((0, 4, 4), bool), 2)
    assert cliques.best(none, np.zeros((0, 4))).card.shape == (0, 0)
    assert cliques.exists(none).shape == (0,)
    bare = Requests.of(np.zeros((1, 0, 0), bool), 1)
    assert not cliques.exists(bare)[0]
    assert not cliques.best(bare, np.zeros((1, 0)), np.zeros((1, 0, 0))).found[0]


def test_weights_that_are_never_read_may_be_anything() -> None:
    requests = replace(Requests.of(complete_graph(3)[None], 2), present=np.array([[True, True, False]]))
    node = np.array([[1.0, 2.0, np.nan]])
    pair = np.array([[[np.nan, 3.0, np.inf], [3.0, np.nan, 1.0], [7.0, np.nan, 0.0]]])
    assert cliques.best(requests, node).weight[0] == 3.0
    assert cliques.best(requests, node, pair).weight[0] == 6.0


@pytest.mark.parametrize("pinned", [False, True])
def test_weights_that_cannot_be_used_are_named(pinned: bool) -> None:
    pins = np.array([[pinned, False, False]])
    requests = replace(Requests.of(complete_graph(3)[None], 2), pinned=pins)
    node, pair = np.zeros((1, 3)), np.zeros((1, 3, 3))
    with pytest.raises(InputError, match=r"node_weights\[0, 1\] is nan"):
        cliques.best(requests, np.array([[0.0, np.nan, 0.0]]))
    lopsided = pair.copy()
    lopsided[0, 0, 2] = 1.0
    with pytest.raises(InputError, match="not symmetric"):
        cliques.best(requests, node, lopsided)
    endless = pair.copy()
    endless[0, 0, 1] = endless[0, 1, 0] = np.inf
    with pytest.raises(InputError, match=r"pair_weights\[0, ., .\] is inf"):
        cliques.best(requests, node, endless)
    with pytest.raises(InputError, match="n is 0"):
        cliques.best_n(requests, node, n=0)


def test_views_and_read_only_arrays_are_taken_without_compiling_anew() -> None:
    requests = random_requests(2, 2, 10, 3, 0.8)
    node, pair = random_weights(2, 2, 10)
    expected = cliques.best(requests, node, pair)
    backwards = np.asfortranarray(pair)
    backwards.flags.writeable = False
    frozen = replace(requests, graph=np.asfortranarray(requests.graph))
    again = cliques.best(frozen, np.repeat(node, 2, axis=1)[:, ::2], backwards)
    assert (again.card == expected.card).all()
    assert len(best_pairs_each.signatures) == 1


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    N=st.integers(3, 60),
    K=st.integers(1, 10),
    num_values=st.integers(1, 4),
    groups=st.sampled_from([0, 4]),
)
def test_few_distinct_scores_are_settled_in_a_few_steps(
    seed: int, N: int, K: int, num_values: int, groups: int
) -> None:
    rng = np.random.default_rng(seed)
    node = rng.choice(rng.normal(size=num_values).round(2), N)
    graph = complete_graph(N)
    if groups:  # at most one of each
        group = rng.integers(0, groups, N)
        graph = graph & (group[:, None] != group[None, :])
    # The clock is looked at every 256 steps: a limit already passed ends any search that takes more.
    found = cliques.best(Requests.of(graph[None], min(N, K)), node[None], time_limit=1e-12)
    assert found.optimal[0]


@settings(max_examples=150, deadline=None)
@given(small, st.integers(0, 10**6), st.booleans(), st.integers(1, 3))
def test_with_tie_keys_the_order_of_candidates_changes_nothing(
    requests: Requests, seed: int, with_pairs: bool, n: int
) -> None:
    B, N = requests.present.shape
    node, pair = random_weights(seed, B, N)
    rng = np.random.default_rng(seed)
    requests = replace(requests, tie_key=rng.permutation(B * N).reshape(B, N))
    order = rng.permutation(N)
    moved = Requests(
        requests.graph[:, order][:, :, order],
        requests.present[:, order],
        requests.card_size,
        requests.pinned[:, order],
        requests.group[:, :, order],
        requests.cap,
        tie_key=None if requests.tie_key is None else requests.tie_key[:, order],
    )
    odd = 1 / 3  # so that sums round
    before = cliques.best_n(requests, node * odd, pair * odd if with_pairs else None, n=n)
    after = cliques.best_n(
        moved, node[:, order] * odd, pair[:, order][:, :, order] * odd if with_pairs else None, n=n
    )
    assert np.array_equal(before.weight, after.weight)
    for b in range(B):
        for ours, theirs in zip(before.card[b].tolist(), after.card[b].tolist(), strict=True):
            assert ours == sorted(int(order[p]) if p >= 0 else -1 for p in theirs) or -1 in theirs
            assert [p for p in ours if p >= 0] == sorted(int(order[p]) for p in theirs if p >= 0)


EXTREME = st.sampled_from(
    [1.7e308, -1.7e308, 1e308, 6e307, -1e307, 1e301, 9e299, -5e299, 1e150, 5e-324, 1.0, 0.0]
)


@settings(max_examples=150, deadline=None)
@given(st.data(), st.integers(1, 7), st.integers(1, 7), st.booleans(), st.booleans())
def test_weights_whose_sums_could_overflow_are_refused_and_all_others_give_finite_answers(
    data: st.DataObject, N: int, K: int, with_pairs: bool, pinned: bool
) -> None:
    K = min(N, K)
    node = np.array(data.draw(st.lists(EXTREME, min_size=N, max_size=N)))
    pair = np.zeros((N, N))
    if with_pairs:
        upper = data.draw(st.lists(EXTREME, min_size=N * N, max_size=N * N))
        pair = np.triu(np.array(upper).reshape(N, N), 1)
        pair = pair + pair.T
    pins = np.array([[pinned] + [False] * (N - 1)])
    requests = replace(Requests.of(complete_graph(N)[None], K), pinned=pins)
    asked = (requests, node[None], pair[None] if with_pairs else None)
    if K * (np.abs(node).max() / 1e300) > 2 and not pinned:
        with pytest.raises(InputError, match=r"may not exceed 1e\+300"):
            cliques.best(*asked)
    elif K * (np.abs(node).max() / 1e300) + K * K * (np.abs(pair).max() / 1e300) < 1:
        found = cliques.best(*asked)
        assert np.isfinite([found.weight[0], found.bound[0]]).all()
        assert found.optimal[0]


def every_card(requests: Requests, N: int, K: int) -> np.ndarray:
    """All valid cards of request 0, in dictionary order."""
    cards = np.array(list(combinations(range(N), K)), np.int64).reshape(-1, K)
    fits = requests.present[0][cards].all(1)
    for a, b in combinations(range(K), 2):
        fits &= requests.graph[0][cards[:, a], cards[:, b]]
    for p in np.flatnonzero(requests.pinned[0]):
        fits &= (cards == p).any(1)
    for group, cap in zip(requests.group[0], requests.cap[0], strict=True):
        for g in range(int(group.max()) + 1):
            fits &= (group[cards] == g).sum(1) <= cap
    return np.asarray(cards[fits])


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    size=st.sampled_from([(16, 5), (36, 4), (44, 4), (60, 3), (100, 3)]),
    density=st.sampled_from([0.6, 0.9, 1.0]),
    num_caps=st.integers(0, 2),
    spread=st.sampled_from([1, 3, 50]),
    n=st.sampled_from([1, 2, 9]),
)
def test_sets_large_enough_for_a_second_matrix_are_searched_exactly(
    seed: int, size: tuple[int, int], density: float, num_caps: int, spread: int, n: int
) -> None:
    N, K = size
    requests = random_requests(seed, 1, N, K, density, num_caps)
    rng = np.random.default_rng(seed + 1)
    requests = replace(requests, pinned=rng.random((1, N)) < 0.01)
    half = np.triu(rng.integers(-spread, spread + 1, (N, N)), 1).astype(float)
    node, pair = rng.integers(0, 2 * spread, (1, N)).astype(float), (half + half.T)[None]
    cards = every_card(requests, N, K)
    weights = node[0][cards].sum(1)
    for a, b in combinations(range(K), 2):
        weights += pair[0][cards[:, a], cards[:, b]]
    expected = np.argsort(-weights, kind="stable")[:n]
    found = cliques.best_n(requests, node, pair, n=n)
    assert found.num_found[0] == len(expected)
    assert found.card[0, : len(expected)].tolist() == cards[expected].tolist()
    hurried = cliques.best(requests, node, pair, time_limit=2e-5)
    if len(expected):
        assert hurried.bound[0] >= weights[expected[0]]
        assert not hurried.optimal[0] or hurried.weight[0] == weights[expected[0]]
    else:
        assert not hurried.found[0]


@pytest.mark.parametrize("seed", [2, 3, 8, 11])
def test_a_long_search_of_what_joins_a_pin_ends_with_the_best_card(seed: int) -> None:
    # A search this long looks for better cards meanwhile, the one for two cards does not.
    rng = np.random.default_rng(seed)
    N, K = 55, 10
    pinned = np.zeros((1, N), np.bool_)
    pinned[0, seed] = True
    half = np.triu(rng.integers(-20, 30, (N, N)), 1).astype(float)
    node, pair = rng.integers(-3, 40, (1, N)).astype(float), (half + half.T)[None]
    requests = replace(Requests.of(complete_graph(N)[None], K), pinned=pinned)
    top, two = cliques.best(requests, node, pair), cliques.best_n(requests, node, pair, n=2)
    assert top.optimal[0]
    assert top.card[0].tolist() == two.card[0, 0].tolist()
    assert top.weight[0] == two.weight[0, 0]
