"""Adversarial RLfD: the discriminator's loss by hand, who learns from what, and what is kept afterwards."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Generator, Tensor

from exactk.errors import ConfigError
from exactk.learning.fit import Step, Task, fit
from exactk.learning.optimiser import FitSettings
from exactk.learning.rlfd import Adversaries, adversarial_loss, discriminator_loss, policy_step
from exactk.models.pairvalue import PairValue
from exactk.models.policy import Policy
from exactk.settings.config import Config, InputSizes, PairValueConfig, PolicyConfig, TrainingConfig
from exactk.tensors import TensorBatch
from small_batches import complete_batch

SIZES = InputSizes(num_users=6, num_items=31)
TINY = PolicyConfig(
    embedding_size=8, width=16, encoder_layers=1, heads=2, feed_forward_size=16, decoder_layers=1
)


def both(seed: int = 0) -> Adversaries:
    value = PairValue(
        PairValueConfig(embedding_size=4, hidden_size=8, kinds=4), SIZES, Generator().manual_seed(seed)
    )
    return Adversaries(Policy(TINY, SIZES, Generator().manual_seed(seed)), value)


def clicked_batch(clicked: list[bool]) -> TensorBatch:
    card = torch.tensor([[0, 1, 2], [3, 4, 5]])
    return replace(
        complete_batch(2, 6, 3), card=card, clicked=torch.tensor(clicked), clicked_position=card[:, 0]
    )


def test_the_discriminators_loss_is_the_one_written_down() -> None:
    """Logged 0; own 0 and log 3: log 2 + (log 2 + log 4) / 2 = 2.5 log 2; an unclicked request counts for nothing."""
    logged = torch.tensor([[0.0, 9.0]])
    own = torch.tensor([[[0.0, math.log(3)], [7.0, 7.0]]])
    loss = discriminator_loss(logged, own, torch.tensor([True, False]))
    assert loss.item() == pytest.approx(2.5 * math.log(2))


def test_every_member_of_a_discriminator_pays_for_itself() -> None:
    logged, own = torch.zeros(3, 1), torch.zeros(3, 1, 4)
    assert discriminator_loss(logged, own, torch.tensor([True])).item() == pytest.approx(6 * math.log(2))


def test_a_step_adds_what_the_discriminator_pays_for_the_samples_and_teaches_it_nothing_else() -> None:
    pair, batch = both(), clicked_batch([True, True])
    config = TrainingConfig(alpha=0.0, samples=4, hill_climbing=False, baseline="leave_one_out")

    def step(adversarial: bool) -> Step:
        settings = replace(config, adversarial=adversarial)
        return policy_step(pair.policy, pair.discriminator, settings, batch, 0.0, Generator().manual_seed(3))

    alone, told = step(False), step(True)
    assert told.loss.item() == pytest.approx(
        alone.loss.item() + told.figures["discriminator_loss"].item(), rel=1e-5
    )
    torch.autograd.backward(alone.loss)
    assert all(p.grad is None for p in pair.discriminator.parameters())
    of_policy = [p.grad.clone() for p in pair.policy.parameters() if p.grad is not None]
    pair.zero_grad(set_to_none=True)
    torch.autograd.backward(told.loss)
    assert any(p.grad is not None and p.grad.abs().sum() > 0 for p in pair.discriminator.parameters())
    after = [p.grad for p in pair.policy.parameters() if p.grad is not None]
    for before, now in zip(of_policy, after, strict=True):  # the policy is not taught by what the judge pays
        torch.testing.assert_close(before, now)


def test_the_discriminator_learns_to_tell_the_logged_card_from_others() -> None:
    pair, batch = both(), clicked_batch([True, True])
    others = torch.tensor([[[3, 4, 5], [0, 4, 5]], [[0, 1, 2], [3, 1, 2]]])

    def loss(_: TensorBatch, __: float, ___: Generator) -> Step:
        return Step(adversarial_loss(pair.discriminator, batch, others), {})

    task = Task("told", pair.discriminator, lambda _, start: iter([batch][start:]), 1, loss)
    fit(task, FitSettings(epochs=200, learning_rate=0.02))
    assert batch.card is not None
    with torch.no_grad():
        logged: Tensor = pair.discriminator(batch, batch.card.unsqueeze(1)).sigmoid()
        own: Tensor = pair.discriminator(batch, others).sigmoid()
    assert logged.min() > 0.8
    assert own.max() < 0.2


def test_the_reward_of_phase_1_stays_and_the_judge_never_drops_anything_out() -> None:
    value = PairValue(PairValueConfig(dropout=0.5), SIZES, Generator().manual_seed(0))
    before = {name: tensor.clone() for name, tensor in value.state_dict().items()}
    pair = Adversaries(Policy(TINY, SIZES, Generator().manual_seed(0)), value)
    pair.train()
    assert pair.policy.training
    assert not any(module.training for module in pair.discriminator.modules())
    with torch.no_grad():
        for parameter in pair.discriminator.parameters():
            parameter.add_(1.0)
    for name, tensor in value.state_dict().items():
        assert torch.equal(tensor, before[name])


def test_an_adversary_without_rewards_is_refused() -> None:
    with pytest.raises(ConfigError, match="training.adversarial"):
        Config.from_dict({"training": {"alpha": 1.0, "adversarial": True}})
