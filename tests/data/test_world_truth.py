"""The click model against hand numbers, and the best card against plain enumeration."""

import math
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from exactk.data.world.recipe import (
    CATEGORIES,
    CHOICE,
    LIKENESS,
    THEMES,
    Effects,
    Goods,
    People,
    Truth,
    best_themed,
    card_logits,
    choice_probabilities,
    item_logits,
    node_pair,
    sigmoid,
)
from exactk.problem.graph import Requests, complete_graph

HAT, SCARF, SNEAKERS, LAMP = (CATEGORIES.index(name) for name in ("hat", "scarf", "sneakers", "lamp"))
EFFECTS = Effects(taste=0.8, quality=0.5, price=0.1, complement=0.4, same_category=0.3, near_duplicate=0.2)


def tiny_truth(strength: float = 1.0, theme: float = 0.0) -> Truth:
    """One user; item 0 a hat, 1 and 2 scarves with styles 0.5 apart, 3 sneakers, 4 a lamp."""
    people = People(
        taste=np.array([[1.0, 2.0]], np.float32),
        budget=np.array([0.5], np.float32),
        coordination=np.array([1.25], np.float32),
        activity=np.ones(1, np.float32),
    )
    goods = Goods(
        category=np.array([HAT, SCARF, SCARF, SNEAKERS, LAMP], np.int8),
        theme=np.array([0, 0, 0, 3, -1], np.int8),
        brand=np.zeros(5, np.int32),
        family=np.arange(5, dtype=np.int32),
        style=np.array([[1, 0], [0, 0.5], [0, 1], [0.5, 0.5], [0, 0]], np.float32),
        price=np.array([0.5, 1.5, -0.5, 0.5, 2.5], np.float32),
        quality=np.array([1, 0, 0, -1, 2], np.float32),
        words=np.zeros((5, 3), np.int32),
    )
    return Truth(people, goods, strength, theme, effects=EFFECTS)


USER = np.array([0])


def test_liking_is_taste_plus_quality_less_distance_in_price() -> None:
    # hat: 0.8 + 0.5; scarves: 0.8 - 0.1 and 0.8 * 2 - 0.1; sneakers: 0.8 * 1.5 - 0.5; lamp: 0.5 * 2 - 0.1 * 4
    hand = [1.3, 0.7, 1.5, 0.7, 0.6]
    assert item_logits(tiny_truth(), USER, np.arange(5)[None])[0] == pytest.approx(hand, abs=1e-6)


def test_a_hat_beside_a_scarf_helps_and_sneakers_beside_it_hurt() -> None:
    _, pair = node_pair(tiny_truth(), USER, np.arange(5)[None])
    assert pair[0, 0, 1] == pytest.approx(1.25 * 0.4 * 1.0)
    assert pair[0, 1, 3] == pytest.approx(1.25 * 0.4 * -0.5)
    assert pair[0, 1, 4] == 0
    assert np.array_equal(pair[0], pair[0].T)
    assert np.array_equal(np.diagonal(pair[0]), np.zeros(5))


def test_two_of_a_kind_hurt_and_the_more_the_more_they_are_alike() -> None:
    _, pair = node_pair(tiny_truth(), USER, np.array([[1, 2]]))
    assert pair[0, 0, 1] == pytest.approx(-1.25 * (0.3 + 0.2 * math.exp(-(0.5**2) / LIKENESS)))
    _, same = node_pair(tiny_truth(), USER, np.array([[1, 1]]))
    assert same[0, 0, 1] == pytest.approx(-1.25 * (0.3 + 0.2))


def test_the_logit_of_a_card_by_hand() -> None:
    # item_logits 1.3 + 0.7 + 0.7; hat and scarf 0.5, hat and sneakers 1.25 * 0.4 * 0.5, scarf and sneakers -0.25
    assert card_logits(tiny_truth(), USER, np.array([[0, 1, 3]])) == pytest.approx(
        2.7 + 0.5 + 0.25 - 0.25, abs=1e-6
    )


def test_without_strength_only_likings_count() -> None:
    assert card_logits(tiny_truth(0.0), USER, np.array([[0, 1, 3]])) == pytest.approx(2.7, abs=1e-6)


def test_a_theme_pays_once_when_three_items_share_it() -> None:
    plain, themed = tiny_truth(), tiny_truth(theme=2.0)
    for card, gain in ([0, 1, 2], 2.0), ([0, 1, 3], 0.0), ([0, 1, 2, 4], 2.0), ([0, 1], 0.0):
        cards = np.array([card])
        difference = card_logits(themed, USER, cards) - card_logits(plain, USER, cards)
        assert difference == pytest.approx(gain, abs=1e-9)


def test_the_clicked_item_is_a_softmax_of_liking_and_half_the_pairs() -> None:
    appeal = np.array([1.3 + 0.5 / 2, 0.7 + 0.5 / 2])
    hand = np.exp(CHOICE * appeal) / np.exp(CHOICE * appeal).sum()
    assert choice_probabilities(tiny_truth(), USER, np.array([[0, 1]]))[0] == pytest.approx(hand, abs=1e-6)


def test_sigmoid_is_safe_at_both_ends() -> None:
    assert sigmoid(np.array([-800.0, 0.0, 800.0, math.log(3)])) == pytest.approx([0, 0.5, 1, 0.75])


@pytest.mark.parametrize("gain", [0.0, 0.7, 3.0])
@pytest.mark.parametrize("k", [2, 4, 6])
def test_the_best_themed_card_is_the_best_of_all(gain: float, k: int) -> None:
    rng = np.random.default_rng(k)
    B, N = 12, 11
    node, pair = rng.normal(size=(B, N)), rng.normal(scale=0.5, size=(B, N, N))
    pair = (pair + pair.transpose(0, 2, 1)) / 2
    graph = rng.random((B, N, N)) < 0.85
    graph = graph & graph.transpose(0, 2, 1) & complete_graph(N)
    present = rng.random((B, N)) < 0.95
    theme = rng.integers(-1, len(THEMES), size=(B, N)).astype(np.int8)
    requests = replace(Requests.of(graph, k), present=present)
    found = best_themed(requests, node, pair, theme, gain)
    for b in range(B):
        weights = {
            card: sum(node[b, list(card)])
            + sum(pair[b, i, j] for i, j in combinations(card, 2))
            + gain * sum((theme[b, list(card)] == t).sum() >= 3 for t in range(len(THEMES)))
            for card in combinations(range(N), k)
            if present[b, list(card)].all() and all(graph[b, i, j] for i, j in combinations(card, 2))
        }
        if weights:
            assert weights[tuple(found[b].tolist())] == pytest.approx(max(weights.values()))
        else:
            assert (found[b] == -1).all()
