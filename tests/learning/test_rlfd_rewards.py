"""Exploration: exact expectations over every card of a tiny problem, never a statistical guess."""

from itertools import permutations, product

import pytest
import torch
from torch import Tensor

from exactk.learning import losses, rlfd

# Four positions, cards of two; 0-1 and 2-3 may not stand together. A table policy: row 0 scores the first pick,
# row 1 + i the pick after position i.
ALLOWED = ~torch.eye(4, dtype=torch.bool)
for i, j in ((0, 1), (2, 3)):
    ALLOWED[i, j] = ALLOWED[j, i] = False
PATHS = [(i, j) for i, j in permutations(range(4), 2) if ALLOWED[i, j]]
REWARDS = {
    frozenset(path): value for path, value in zip(PATHS, torch.linspace(-1, 1, 8).tolist(), strict=True)
}


def table() -> Tensor:
    return torch.randn(
        5, 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64, requires_grad=True
    )


def path_log_probs(scores: Tensor) -> Tensor:
    first = scores[0].log_softmax(dim=0)
    second = scores[1:].masked_fill(~ALLOWED, -torch.inf).log_softmax(dim=1)
    return torch.stack([first[i] + second[i, j] for i, j in PATHS])


def rewards() -> Tensor:
    return torch.tensor([REWARDS[frozenset(path)] for path in PATHS], dtype=torch.float64)


def exact_gradient() -> Tensor:
    scores = table()
    torch.autograd.backward((path_log_probs(scores).exp() * rewards()).sum())
    assert scores.grad is not None
    return scores.grad


def expected_loss_gradient(num_samples: int, baseline: rlfd.Baseline) -> Tensor:
    """Gradient of the loss averaged over every possible draw of samples, each with its exact probability."""
    scores = table()
    log_prob, reward = path_log_probs(scores), rewards()
    total = torch.zeros((), dtype=torch.float64)
    for draw in product(range(len(PATHS)), repeat=num_samples):
        index = torch.tensor([draw])
        advantage = rlfd.advantages(reward[index], baseline)
        weight = log_prob[index].sum().exp().detach()
        total = total + weight * losses.reinforce_loss(log_prob[index], advantage).sum()
    torch.autograd.backward(total)
    assert scores.grad is not None
    return scores.grad


@pytest.mark.parametrize(
    ("num_samples", "baseline"),
    [(1, "none"), (2, "none"), (2, "leave_one_out"), (3, "leave_one_out")],
)
def test_the_expected_reinforce_gradient_is_the_gradient_of_the_expected_reward(
    num_samples: int, baseline: rlfd.Baseline
) -> None:
    torch.testing.assert_close(expected_loss_gradient(num_samples, baseline), -exact_gradient())


def test_leave_one_out_subtracts_the_mean_of_the_others() -> None:
    advantage = rlfd.advantages(torch.tensor([[1.0, 2.0, 6.0]]), "leave_one_out")
    assert advantage.tolist() == [[1 - 4.0, 2 - 3.5, 6 - 1.5]]


def test_leaving_one_out_of_one_is_refused() -> None:
    with pytest.raises(ValueError, match="at least two samples"):
        rlfd.advantages(torch.tensor([[1.0]]), "leave_one_out")


def test_hill_climbing_keeps_the_best_sample_of_each_request() -> None:
    cards = torch.arange(12).reshape(2, 3, 2)
    rewards = torch.tensor([[0.1, 0.9, 0.3], [0.5, 0.2, 0.4]])
    best, reward = rlfd.best_of(rewards, cards, rewards)
    assert best.tolist() == [[[2, 3]], [[6, 7]]]
    assert reward.flatten().tolist() == pytest.approx([0.9, 0.5])


def test_rewards_are_rescaled_to_minus_one_and_one() -> None:
    assert rlfd.rescaled(torch.tensor([0.0, 0.5, 0.75, 1.0])).tolist() == [-1.0, 0.0, 0.5, 1.0]
