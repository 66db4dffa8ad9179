"""The compiled search under briefs against brute force: every rule alone, mixes of all, ties, gaps, infeasible ones."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exactk.problem.exact import cliques
from exactk.problem.graph import is_valid_card
from exactk.problem.rules.constraints import AtMost, Distinct, Prefer
from random_briefs import KINDS, Shelf, a_shelf

seeds = st.integers(0, 10**6)
mixes = st.lists(st.sampled_from(KINDS), min_size=2, max_size=5).map(tuple)


def check_best(shelf: Shelf) -> None:
    """The best and the n best: right sets, right worth, valid in the order given, proven."""
    requests = shelf.requests()
    ranked = shelf.best()
    pair = None if shelf.pair is None else shelf.pair[None]
    top = cliques.best(requests, shelf.node[None], pair)
    assert top.optimal[0]
    assert top.found[0] == bool(ranked)
    listed = cliques.best_n(requests, shelf.node[None], pair, n=3)
    assert listed.num_found[0] == min(3, len(ranked))
    for card, weight, (chosen, worth) in zip(listed.card[0], listed.weight[0], ranked, strict=False):
        assert tuple(sorted(card.tolist())) == chosen
        assert weight == pytest.approx(worth, abs=1e-9)
        assert is_valid_card(requests, 0, card)
        assert shelf.worth(tuple(card.tolist())) == pytest.approx(worth, abs=1e-9)
    if ranked:
        assert top.card[0].tolist() == listed.card[0, 0].tolist()
        assert top.weight[0] == top.bound[0] == pytest.approx(ranked[0][1], abs=1e-9)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60, deadline=None)
@given(seed=seeds, N=st.integers(2, 8), K=st.integers(1, 5), pairs=st.booleans())
def test_every_rule_alone_is_searched_exactly(kind: str, seed: int, N: int, K: int, pairs: bool) -> None:
    check_best(a_shelf(seed, (kind,), N, K, pairs))


@settings(max_examples=250, deadline=None)
@given(seeds, mixes, st.integers(3, 9), st.integers(1, 5), st.booleans(), st.booleans())
def test_mixes_of_rules_are_searched_exactly(
    seed: int, kinds: tuple[str, ...], N: int, K: int, pairs: bool, whole: bool
) -> None:
    check_best(a_shelf(seed, kinds, N, K, pairs, whole))


@settings(max_examples=60, deadline=None)
@given(seeds, st.lists(st.sampled_from(KINDS[:-1]), min_size=1, max_size=3).map(tuple), st.integers(4, 7))
def test_larger_sets_are_searched_exactly(seed: int, kinds: tuple[str, ...], K: int) -> None:
    check_best(a_shelf(seed, kinds, 12, K, pairs=True))


@settings(max_examples=200, deadline=None)
@given(seeds, mixes, st.integers(5, 10), st.integers(3, 5), st.booleans())
def test_a_search_that_had_no_time_brackets_the_best_card(
    seed: int, kinds: tuple[str, ...], N: int, K: int, pairs: bool
) -> None:
    shelf = a_shelf(seed, kinds, N, K, pairs)
    pair = None if shelf.pair is None else shelf.pair[None]
    hurried = cliques.best(shelf.requests(), shelf.node[None], pair, time_limit=0.0)
    ranked = shelf.best()
    best = ranked[0][1] if ranked else -np.inf
    assert hurried.weight[0] - 1e-9 <= best <= hurried.bound[0] + 1e-9
    if hurried.optimal[0]:
        assert hurried.found[0] == bool(ranked)
        assert hurried.weight[0] == pytest.approx(best, abs=1e-9)


@settings(max_examples=150, deadline=None)
@given(seeds, mixes, st.integers(2, 8), st.integers(1, 5))
def test_what_can_be_completed_agrees_with_brute_force(
    seed: int, kinds: tuple[str, ...], N: int, K: int
) -> None:
    shelf = a_shelf(seed, kinds, N, K, pairs=False)
    requests, cards = shelf.requests(), [set(card) for card, _ in shelf.best()]
    assert cliques.exists(requests)[0] == bool(cards)
    chosen = np.random.default_rng(seed).random((1, N)) < 0.2
    held = set(np.flatnonzero(chosen[0]).tolist())
    assert cliques.can_complete(requests, chosen)[0] == any(held <= card for card in cards)
    expected = [p not in held and any(held | {p} <= card for card in cards) for p in range(N)]
    assert cliques.completable(requests, chosen)[0].tolist() == expected


@settings(max_examples=80, deadline=None)
@given(seeds, st.integers(1, 5))
def test_a_set_is_arranged_at_its_best(seed: int, K: int) -> None:
    shelf = a_shelf(seed, ("slots",), 6, K, pairs=False)
    requests = shelf.requests()
    for chosen in combinations(range(6), shelf.K):
        orders = [order for order in permutations(chosen) if shelf.is_valid(order)]
        if not orders:
            continue
        card = cliques.arranged(requests, np.array([chosen]), shelf.node[None])[0]
        assert shelf.is_valid(tuple(card.tolist()))
        assert shelf.worth(tuple(card.tolist())) == pytest.approx(max(map(shelf.worth, orders)))


@settings(max_examples=30, deadline=None)
@given(seeds, st.integers(4, 7), st.sampled_from([0.2, 1.0, 3.0]))
def test_colours_rather_apart_on_cards_larger_than_the_colours_are_many(
    seed: int, K: int, worth: float
) -> None:
    rng = np.random.default_rng(seed)
    N = 13
    plain = a_shelf(seed, (), N, K, pairs=bool(seed % 2))
    for item in plain.items:
        item["colour"] = "rgbw"[int(rng.integers(4))]
    rules = (Prefer(Distinct("colour"), worth), AtMost("brand", 3))
    node = rng.normal(size=N) * 2
    check_best(replace(plain, rules=rules, node=node, include=()))
