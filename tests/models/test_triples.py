"""What at least three items of a card share."""

from __future__ import annotations

from itertools import product

import torch

from exactk.models.triples import Sharing


def chance_of_three(has: list[float]) -> float:
    """By enumeration of who has it."""
    total = 0.0
    for outcome in product((0, 1), repeat=len(has)):
        chance = 1.0
        for h, o in zip(has, outcome, strict=True):
            chance *= h if o else 1 - h
        total += chance * (sum(outcome) >= 3)
    return total


@torch.no_grad()
def test_a_card_gains_the_chance_that_at_least_three_items_have_it() -> None:
    sharing = Sharing(2, 5.0)
    sharing.start()
    sharing.weight[:] = torch.tensor([0.2, -0.4])  # worth 1 and -2
    has = [[0.9, 0.1], [0.5, 0.2], [0.7, 0.3], [0.2, 0.4]]
    wanted = chance_of_three([h[0] for h in has]) - 2 * chance_of_three([h[1] for h in has])
    torch.testing.assert_close(sharing(torch.tensor([[has]])), torch.tensor([[wanted]]))
    turned = torch.tensor([[has[::-1]]])
    torch.testing.assert_close(sharing(turned), torch.tensor([[wanted]]))


@torch.no_grad()
def test_two_items_or_absent_ones_share_nothing() -> None:
    sharing = Sharing(1, 1.0)
    sharing.start()
    sharing.weight[:] = 1.0
    assert sharing(torch.ones(1, 1, 2, 1)).tolist() == [[0.0]]
    assert sharing(torch.tensor([[[[1.0], [1.0], [0.0], [0.0]]]])).tolist() == [[0.0]]
    assert sharing(torch.tensor([[[[1.0], [1.0], [0.0], [1.0]]]])).tolist() == [[1.0]]


@torch.no_grad()
def test_an_item_has_a_feature_where_it_stands_out_and_nothing_is_gained_at_the_start() -> None:
    sharing = Sharing(1, 1.0)
    sharing.start()
    assert sharing.has(torch.tensor([[1.0], [4.0], [-2.0]])).flatten().round(decimals=2).tolist() == [
        0.5,
        1.0,
        0.0,
    ]
    assert sharing(torch.ones(1, 1, 4, 1)).tolist() == [[0.0]]
