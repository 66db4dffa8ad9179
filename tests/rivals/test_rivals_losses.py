"""The rivals' losses against hand numbers, closed-form gradients and torch's own."""

from __future__ import annotations

import math

import pytest
import torch

from exactk.rivals.losses import bpr_loss, pointwise_loss, shown_items, softmax_loss

SCORES = torch.tensor([[2.0, 0.0, -1.0, 1.0], [0.5, 0.5, 0.0, -2.0]])
CLICKED = torch.tensor([0, -1])


def test_shown_items_mark_the_card_and_never_the_padding() -> None:
    marks = shown_items(torch.tensor([[2, 0, -1], [3, 1, 2]]), 4)
    assert marks.long().tolist() == [[1, 0, 1, 0], [0, 1, 1, 1]]


def test_pointwise_loss_by_hand() -> None:
    # Row 0 shows 0 (clicked) and 2; row 1 shows 1 and nothing is clicked.
    counted = torch.tensor([[True, False, True, False], [False, True, False, False]])
    expected = (math.log1p(math.exp(-2.0)) + math.log1p(math.exp(-1.0)) + math.log1p(math.exp(0.5))) / 3
    assert pointwise_loss(SCORES, counted, CLICKED).item() == pytest.approx(expected)


def test_bpr_loss_by_hand() -> None:
    # Only row 0 has a click: clicked 2.0 against 0.0 and 1.0 (position 2 is not among the others).
    others = torch.tensor([[True, True, False, True], [True, True, True, True]])
    expected = (math.log1p(math.exp(-2.0)) + math.log1p(math.exp(-1.0))) / 2
    assert bpr_loss(SCORES, others, CLICKED).item() == pytest.approx(expected)


def test_the_gradient_of_bpr_is_rendles() -> None:
    # d/dx_uij of -ln sigmoid(x_uij) is -sigmoid(-x_uij), x_uij = s_i - s_j.
    scores = SCORES[:1].clone().double().requires_grad_()
    bpr_loss(scores, torch.tensor([[True, True, False, False]]), torch.tensor([0])).backward()  # type: ignore[no-untyped-call]
    slope = 1 / (1 + math.exp(2.0))
    assert scores.grad is not None
    assert scores.grad.tolist() == [[pytest.approx(-slope), pytest.approx(slope), 0.0, 0.0]]


def test_softmax_loss_is_cross_entropy_over_what_is_present() -> None:
    present = torch.tensor([[True, True, False, True], [True, True, True, True]])
    clicked = torch.tensor([3, 1])
    expected = (
        torch.nn.functional.cross_entropy(SCORES[:1, [0, 1, 3]], torch.tensor([2]))
        + torch.nn.functional.cross_entropy(SCORES[1:], torch.tensor([1]))
    ) / 2
    assert softmax_loss(SCORES, present, clicked).item() == pytest.approx(expected.item())


def test_rows_without_click_teach_the_listwise_losses_nothing() -> None:
    scores = SCORES.clone().requires_grad_()
    everything = torch.ones(2, 4, dtype=torch.bool)
    loss = softmax_loss(scores, everything, torch.tensor([-1, -1])) + bpr_loss(
        scores, everything, torch.tensor([-1, -1])
    )
    loss.backward()  # type: ignore[no-untyped-call]
    assert loss.item() == 0.0
    assert scores.grad is not None
    assert scores.grad.abs().sum().item() == 0.0
