"""Losses of a card value: whole lists, graded, and cards of which only the chosen are known."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import torch

from exactk.learning.signals import Rivals, hardest, list_loss, list_weights, rivals_of, subset_loss
from exactk.models.ensemble import Values
from small_batches import complete_batch


def values_of(num: int, num_candidates: int, seed: int = 0) -> Values:
    draw = torch.Generator().manual_seed(seed)
    pair = torch.randn(num, num_candidates, num_candidates, generator=draw).triu(1)
    node = torch.randn(num, num_candidates, generator=draw)
    return Values(torch.zeros(num), node, pair + pair.transpose(1, 2))


def worth(values: Values, b: int, card: tuple[int, ...]) -> float:
    pairs = sum(values.pair[b, i, j].item() for i, j in itertools.combinations(card, 2))
    return sum(values.node[b, i].item() for i in card) + pairs


def test_the_loss_of_a_list_is_the_clicked_items_share_of_the_softmax() -> None:
    node = torch.tensor([[1.0, 2.0, 5.0, 99.0]]).log()
    present = torch.tensor([[True, True, True, False]])
    one = torch.tensor([[0.0, 1.0, 0.0, 0.0]])
    assert math.isclose(list_loss(node, present, one).item(), -math.log(2 / 8), rel_tol=1e-6)
    two = torch.tensor([[0.0, 3.0, 1.0, 0.0]])
    wanted = -(0.75 * math.log(2 / 8) + 0.25 * math.log(5 / 8))
    assert math.isclose(list_loss(node, present, two).item(), wanted, rel_tol=1e-6)
    assert list_loss(node, present, torch.zeros(1, 4)).item() == 0


def test_a_known_reward_stands_in_for_clicks_and_never_counts_below_nothing() -> None:
    clicks = torch.tensor([[1.0, 0.0, 2.0, 1.0, 1.0]])
    reward = torch.tensor([[5.0, -3.0, math.nan, 0.0, 7.0]])
    batch = complete_batch(1, 5, 2, clicks=clicks, reward=reward)
    present = torch.tensor([[True, True, True, True, False]])
    assert list_weights(replace(batch, present=present)).tolist() == [[5.0, 0.0, 2.0, 0.0, 0.0]]
    assert list_weights(replace(batch, reward=None)).equal(clicks)


def test_the_loss_of_a_chosen_card_is_its_share_among_all_cards_of_its_size() -> None:
    present = torch.tensor([[True] * 6, [True] * 5 + [False]])
    card = torch.tensor([[1, 4, 5], [0, 3, -1]])
    batch, values = complete_batch(2, 6, [3, 2], present=present, card=card), values_of(2, 6)
    found = subset_loss(values, rivals_of(batch, values, None))
    for b, (n, chosen) in enumerate([(6, (1, 4, 5)), (5, (0, 3))]):
        every = [math.exp(worth(values, b, c)) for c in itertools.combinations(range(n), len(chosen))]
        wanted = -math.log(math.exp(worth(values, b, chosen)) / sum(every))
        assert math.isclose(found[b].item(), wanted, rel_tol=1e-5)


def test_among_many_cards_the_best_wrong_ones_and_all_swaps_are_compared() -> None:
    card = torch.tensor([[0, 1, 2, 3]])
    batch, values = complete_batch(1, 30, 4, card=card), values_of(1, 30)
    rivals: Rivals = rivals_of(batch, values, torch.Generator().manual_seed(0))
    rows = {tuple(row.nonzero().flatten().tolist()) for row in rivals.rows[0][rivals.real[0]]}
    assert rivals.rows[0, 0].nonzero().flatten().tolist() == card[0].tolist()
    assert {tuple(sorted(c.tolist())) for c in hardest(batch, values)[0]} <= rows
    assert {(0, 1, 2, new) for new in range(4, 30)} <= rows
    assert all(len(row) == 4 for row in rows)
    assert len(rivals.rows[0]) > 4 * 26 + 32 + 200
    assert rivals.rows[0].eq(rivals.rows[0, 0]).all(1).sum() == 1


def test_hard_cards_are_the_best_under_the_value() -> None:
    values = values_of(1, 9)
    found = hardest(complete_batch(1, 9, 3), values)[0]
    every = sorted((worth(values, 0, c) for c in itertools.combinations(range(9), 3)), reverse=True)
    np.testing.assert_allclose([worth(values, 0, tuple(c)) for c in found], every[: len(found)], rtol=1e-5)
