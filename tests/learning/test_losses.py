"""Losses against hand numbers and independent formulas."""

import math

import pytest
import torch
from torch import Tensor

from exactk.learning import losses

# Two steps over three positions; the third is forbidden at the second step.
PROBABILITIES = torch.tensor([[[0.5, 0.3, 0.2], [0.25, 0.75, 0.0]]])
ALLOWED = PROBABILITIES > 0
LOWEST = torch.finfo(torch.float32).min
SCORES = [[[1.0, 0.5, 0.0], [0.3, 0.1, LOWEST]]]


def log_probs() -> Tensor:
    return PROBABILITIES.log().clamp(min=LOWEST).requires_grad_()


def test_the_target_loss_is_minus_the_sum_of_the_targets_log_probabilities() -> None:
    loss = losses.target_loss(log_probs(), ALLOWED, torch.tensor([[2, 1]]))
    assert loss.item() == pytest.approx(-math.log(0.2) - math.log(0.75))


def test_a_forbidden_target_contributes_neither_value_nor_gradient() -> None:
    scores = torch.tensor(SCORES, requires_grad=True)
    loss = losses.target_loss(scores.log_softmax(dim=2), ALLOWED, torch.tensor([[0, 2]]))
    torch.autograd.backward(loss.sum())
    first = torch.tensor([1.0, 0.5, 0.0])
    assert loss.item() == pytest.approx(-first.log_softmax(dim=0)[0].item())
    assert scores.grad is not None
    assert scores.grad[0, 1].tolist() == [0.0, 0.0, 0.0]
    assert torch.isfinite(scores.grad).all()


def test_an_absent_target_contributes_nothing() -> None:
    assert losses.target_loss(log_probs(), ALLOWED, torch.tensor([[-1, -1]])).item() == 0.0


def test_the_spread_loss_is_the_mean_over_all_that_is_allowed_where_there_is_a_target() -> None:
    loss = losses.spread_loss(log_probs(), ALLOWED, torch.tensor([[2, 1]]))
    first = (math.log(0.5) + math.log(0.3) + math.log(0.2)) / 3
    assert loss.item() == pytest.approx(-first - (math.log(0.25) + math.log(0.75)) / 2)
    without = losses.spread_loss(log_probs(), ALLOWED, torch.tensor([[2, -1]]))
    assert without.item() == pytest.approx(-first)  # no target, nothing to spread
    forbidden = losses.spread_loss(log_probs(), ALLOWED, torch.tensor([[2, 2]]))
    assert forbidden.item() == pytest.approx(-first)


def test_target_and_spread_together_are_torchs_label_smoothing() -> None:
    scores, target = torch.tensor([[0.3, -1.2, 2.0, 0.1]]), torch.tensor([2])
    told, allowed = scores.log_softmax(1).unsqueeze(1), torch.ones(1, 1, 4, dtype=torch.bool)
    mixed = 0.7 * losses.target_loss(told, allowed, target[:, None])
    mixed = mixed + 0.3 * losses.spread_loss(told, allowed, target[:, None])
    expected = torch.nn.functional.cross_entropy(scores, target, label_smoothing=0.3)
    assert mixed.item() == pytest.approx(expected.item())


def test_the_set_loss_sums_the_probabilities_of_all_that_is_wanted() -> None:
    wanted = torch.tensor([[[True, False, True], [True, False, True]]])
    loss = losses.set_loss(log_probs(), ALLOWED, wanted)
    assert loss.item() == pytest.approx(-math.log(0.5 + 0.2) - math.log(0.25))


def test_the_set_loss_of_a_single_wanted_position_is_the_target_loss() -> None:
    wanted = torch.tensor([[[False, True, False], [False, True, False]]])
    by_set = losses.set_loss(log_probs(), ALLOWED, wanted)
    by_target = losses.target_loss(log_probs(), ALLOWED, torch.tensor([[1, 1]]))
    torch.testing.assert_close(by_set, by_target)
    torch.testing.assert_close(losses.uniform_loss(log_probs(), ALLOWED, wanted), by_target)


def test_the_uniform_loss_is_the_mean_over_what_is_wanted_and_possible() -> None:
    wanted = torch.tensor([[[True, False, True], [True, False, True]]])
    loss = losses.uniform_loss(log_probs(), ALLOWED, wanted)
    assert loss.item() == pytest.approx(-(math.log(0.5) + math.log(0.2)) / 2 - math.log(0.25))


@pytest.mark.parametrize("loss", [losses.set_loss, losses.uniform_loss], ids=["set", "uniform"])
def test_a_step_with_nothing_wanted_or_only_forbidden_positions_has_no_gradient(loss: object) -> None:
    scores = torch.tensor(SCORES, requires_grad=True)
    wanted = torch.tensor([[[False, False, False], [False, False, True]]])
    assert callable(loss)
    value = loss(scores.log_softmax(dim=2), ALLOWED, wanted)
    torch.autograd.backward(value.sum())
    assert value.item() == 0.0
    assert scores.grad is not None
    assert scores.grad.abs().max().item() == 0.0


def test_remaining_leaves_out_what_the_path_has_taken() -> None:
    path = torch.tensor([[3, 1]])
    wanted = losses.remaining(path, torch.tensor([[1, 3]]), num_candidates=4)
    assert wanted.tolist() == [[[False, True, False, True], [False, True, False, False]]]


def test_remaining_ignores_the_padding_of_short_cards() -> None:
    wanted = losses.remaining(torch.tensor([[2, -1]]), torch.tensor([[0, -1]]), num_candidates=3)
    assert wanted.tolist() == [[[True, False, False], [True, False, False]]]


def test_the_clicked_position_is_wanted_until_it_is_taken() -> None:
    path = torch.tensor([[7, 2, 5, 1], [7, 2, 3, 1], [2, 7, -1, -1]])
    targets = losses.clicked_targets(path, torch.tensor([5, 5, 5]))
    assert targets.tolist() == [[5, 5, 5, -1], [5, 5, 5, 5], [5, 5, -1, -1]]


def test_nothing_clicked_is_no_target() -> None:
    assert losses.clicked_targets(torch.tensor([[1, 0]]), torch.tensor([-1])).tolist() == [[-1, -1]]


def test_the_reinforce_loss_weighs_log_probabilities_by_advantage() -> None:
    loss = losses.reinforce_loss(torch.tensor([[-1.0, -3.0]]), torch.tensor([[0.5, -0.25]]))
    assert loss.item() == pytest.approx((0.5 * 1.0 - 0.25 * 3.0) / 2)


def test_no_gradient_reaches_the_reward_through_the_reinforce_loss() -> None:
    advantage = torch.tensor([[0.5]], requires_grad=True)
    log_prob = torch.tensor([[-1.0]], requires_grad=True)
    torch.autograd.backward(losses.reinforce_loss(log_prob, advantage).sum())
    assert advantage.grad is None
    assert log_prob.grad is not None
    assert log_prob.grad.item() == -0.5


def test_the_reward_loss_is_the_log_loss() -> None:
    logits = torch.tensor([0.0, 2.0])
    loss = losses.reward_loss(logits, torch.tensor([True, False]))
    assert loss.tolist() == pytest.approx([math.log(2), math.log(1 + math.exp(2.0))])


def test_the_mean_over_no_rows_is_zero_with_a_zero_gradient() -> None:
    values = torch.tensor([1.0, 5.0], requires_grad=True)
    assert losses.mean_over(values, torch.tensor([False, True])).item() == 5.0
    nothing = losses.mean_over(values, torch.tensor([False, False]))
    torch.autograd.backward(nothing)
    assert nothing.item() == 0.0
    assert values.grad is not None
    assert values.grad.tolist() == [0.0, 0.0]


def test_the_loss_of_a_list_is_the_log_share_of_the_clicked_item() -> None:
    appeals = torch.tensor([[1.0, 0.0, 2.0], [0.5, 0.5, 9.0], [1.0, 1.0, 1.0], [1.0, 1.0, 1.0]])
    card = torch.tensor([[7, 3, 5], [2, 4, -1], [1, 2, 3], [1, 2, 3]])
    clicked = card == torch.tensor([3, 4, -1, 9]).unsqueeze(1)
    loss = losses.list_loss(appeals, card >= 0, (clicked & (card >= 0)).float())
    whole = math.exp(1) + math.exp(0) + math.exp(2)
    assert loss.tolist() == pytest.approx([math.log(whole), math.log(2), 0.0, 0.0])
