"""Metrics against hand numbers and against plain set arithmetic."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from exactk.errors import InputError
from exactk.evaluation import metrics
from exactk.problem.graph import Requests, complete_graph

# Four requests, K = 3 of N = 6: the card, the logged card, the clicked position.
CARDS = np.array([[0, 1, 2], [5, 4, 3], [1, 3, 5], [0, 2, 4]])
LOGGED = np.array([[2, 1, 5], [0, 1, 2], [5, 3, 1], [0, 1, 3]])
CLICKED = np.array([1, 0, 5, -1])


def test_precision_counts_the_requests_whose_clicked_item_is_in_the_card() -> None:
    # Clicked 1 is in {0,1,2}: yes. 0 in {3,4,5}: no. 5 in {1,3,5}: yes. Nothing clicked: left out. 2 / 3.
    assert metrics.mean(metrics.found_click(CARDS, CLICKED)) == pytest.approx(2 / 3)


def test_hit_ratio_is_the_mean_share_of_the_true_card() -> None:
    # {0,1,2} and {1,2,5} share 2 of 3; 0 of 3; 3 of 3; {0,2,4} and {0,1,3} share 1 of 3: mean 6 / 12.
    assert metrics.mean(metrics.overlap(CARDS, LOGGED)) == pytest.approx(0.5)


def test_hit_ratio_can_be_asked_of_clicked_cards_only() -> None:
    assert metrics.mean(metrics.overlap(CARDS, LOGGED, CLICKED >= 0)) == pytest.approx(5 / 9)


def test_padding_is_never_a_hit_and_the_true_size_divides() -> None:
    cards = np.array([[3, 0, 2, -1]])
    logged = np.array([[0, 3, 7, -1]])
    assert metrics.overlap(cards, logged).tolist() == [pytest.approx(2 / 3)]


def test_without_any_click_precision_is_unknown_not_zero() -> None:
    assert np.isnan(metrics.mean(metrics.found_click(CARDS, np.full(4, -1))))


@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(1, 30))
def test_both_paper_metrics_equal_plain_sets(seed: int, size: int, num: int) -> None:
    rng = np.random.default_rng(seed)
    cards = np.stack([rng.permutation(9)[:size] for _ in range(num)])
    logged = np.stack([rng.permutation(9)[:size] for _ in range(num)])
    clicked = logged[:, 0]
    precision = sum(c in set(card) for c, card in zip(clicked, cards.tolist(), strict=True)) / num
    ratio = (
        sum(len(set(a) & set(b)) / size for a, b in zip(cards.tolist(), logged.tolist(), strict=True)) / num
    )
    assert metrics.mean(metrics.found_click(cards, clicked)) == pytest.approx(precision)
    assert metrics.mean(metrics.overlap(cards, logged)) == pytest.approx(ratio)


@given(st.integers(0, 2**32 - 1))
def test_the_order_of_a_card_never_matters(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shuffled = rng.permuted(CARDS, axis=1)
    distance = np.abs(rng.normal(size=(4, 6, 6)))
    distance += distance.transpose(0, 2, 1)
    assert metrics.mean(metrics.found_click(shuffled, CLICKED)) == metrics.mean(
        metrics.found_click(CARDS, CLICKED)
    )
    assert metrics.mean(metrics.overlap(shuffled, LOGGED)) == metrics.mean(metrics.overlap(CARDS, LOGGED))
    np.testing.assert_allclose(metrics.diversity(shuffled, distance), metrics.diversity(CARDS, distance))


@st.composite
def requests_and_cards(draw: st.DrawFn) -> tuple[Requests, np.ndarray]:
    """Random small requests, and cards now and then valid, repeated, padded, absent or out of range."""
    num, N, K = draw(st.integers(1, 4)), draw(st.integers(2, 6)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    half = np.triu(rng.random((num, N, N)) < 0.8, 1)
    requests = Requests(
        graph=half | half.transpose(0, 2, 1),
        present=rng.random((num, N)) < 0.9,
        card_size=rng.integers(1, K + 1, num).astype(np.int32),
        pinned=rng.random((num, N)) < 0.1,
        group=rng.integers(-1, 2, (num, 2, N)).astype(np.int32),
        cap=rng.integers(1, 3, (num, 2)).astype(np.int32),
    )
    return requests, draw(hnp.arrays(np.int64, (num, K), elements=st.integers(-1, N)))


def every_valid_card(requests: Requests, b: int) -> set[tuple[int, ...]]:
    """By enumeration, each rule as arrays of the whole card."""
    found = set()
    for card in itertools.combinations(range(requests.graph.shape[1]), int(requests.card_size[b])):
        at = list(card)
        pairs = requests.graph[b][np.ix_(at, at)] | np.eye(len(at), dtype=bool)
        pins = requests.pinned[b].sum() == requests.pinned[b, at].sum()
        counts = [np.bincount(group[at][group[at] >= 0], minlength=1).max() for group in requests.group[b]]
        if requests.present[b, at].all() and pairs.all() and pins and (counts <= requests.cap[b]).all():
            found.add(card)
    return found


@given(requests_and_cards())
def test_validity_agrees_with_enumeration(case: tuple[Requests, np.ndarray]) -> None:
    requests, cards = case
    chosen = [tuple(sorted(card[card >= 0].tolist())) for card in cards]
    expected = [card in every_valid_card(requests, b) for b, card in enumerate(chosen)]
    assert metrics.valid_cards(requests, cards).tolist() == expected


def test_a_card_breaking_each_single_rule_is_invalid() -> None:
    graph = complete_graph(5)
    graph[0, 1] = graph[1, 0] = False
    rules = replace(
        Requests.of(np.repeat(graph[None], 7, 0), 2),
        present=np.repeat(np.array([[True, True, True, True, False]]), 7, 0),
        group=np.repeat(np.array([[[-1, -1, 0, 0, -1]]], np.int32), 7, 0),
        cap=np.ones((7, 1), np.int32),
    )
    cards = np.array([[0, 2], [0, 1], [2, 3], [0, 4], [0, 0], [0, -1], [0, 5]])
    #        fine; forbidden pair; over the cap; absent; repeated; too short; out of range
    assert metrics.valid_cards(rules, cards).tolist() == [True] + [False] * 6


def test_one_card_per_request_is_asked_for() -> None:
    with pytest.raises(InputError, match="2 cards for 1 requests"):
        metrics.valid_cards(Requests.of(complete_graph(3)[None], 2), np.array([[0, 1], [0, 2]]))


def test_diversity_is_the_mean_pair_distance_by_hand() -> None:
    distance = np.zeros((1, 4, 4))
    for (i, j), d in {(0, 1): 0.2, (0, 2): 0.4, (1, 2): 0.9}.items():
        distance[0, i, j] = distance[0, j, i] = d
    assert metrics.diversity(np.array([[0, 1, 2]]), distance)[0] == pytest.approx(0.5)
    assert metrics.diversity(np.array([[0, 1, -1]]), distance)[0] == pytest.approx(0.2)
    assert np.isnan(metrics.diversity(np.array([[3, -1, -1]]), distance)[0])


def test_cosine_distance_of_equal_orthogonal_and_opposite_vectors() -> None:
    features = np.array([[[1.0, 0.0], [2.0, 0.0], [0.0, 3.0], [-1.0, 0.0], [0.0, 0.0]]])
    np.testing.assert_allclose(metrics.cosine_distance(features)[0, 0], [0, 0, 1, 2, 1], atol=1e-12)


def test_diversity_of_features_equals_scipys_pairwise_cosine() -> None:
    spatial = pytest.importorskip("scipy.spatial.distance", reason="scipy comes with the extra 'rivals'")
    features = np.random.default_rng(3).normal(size=(5, 7, 4))
    cards = np.stack([np.random.default_rng(b).permutation(7)[:3] for b in range(5)])
    ours = metrics.diversity(cards, metrics.cosine_distance(features))
    theirs = [spatial.pdist(features[b, card], "cosine").mean() for b, card in enumerate(cards)]
    np.testing.assert_allclose(ours, theirs)


def test_coverage_is_the_share_of_available_items_ever_shown() -> None:
    available = np.array([[1, 2, 3, 4], [3, 4, 5, -1]])
    shown = np.array([[1, 3], [3, 4]])
    assert metrics.coverage(shown, available) == pytest.approx(len({1, 3, 4}) / len({1, 2, 3, 4, 5}))


def test_coverage_of_everything_is_one() -> None:
    items = np.array(list(itertools.product(range(3), repeat=2)))
    assert metrics.coverage(items, items) == 1.0


def test_the_clicked_item_is_looked_for_in_the_whole_list() -> None:
    """Three lists: a click below the logged card, one on it, none. The logged card tells of the second alone."""
    cards = np.array([[3, 4], [0, 1], [0, 1]])
    clicks = np.zeros((3, 5))
    clicks[0, 3] = clicks[1, 2] = 1
    on_card = np.array([-1, 2, -1])
    found = metrics.clicked_item_on_card(cards, clicks, on_card)
    np.testing.assert_array_equal(found, [1, 0, np.nan])
    np.testing.assert_array_equal(metrics.clicked_item_on_card(cards, None, on_card), [np.nan, 0, np.nan])
    np.testing.assert_array_equal(
        metrics.clicked_item_on_card(cards, clicks * 0, on_card), [np.nan, 0, np.nan]
    )
    assert np.isnan(metrics.clicked_item_on_card(cards, None, None)).all()
