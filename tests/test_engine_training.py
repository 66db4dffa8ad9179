"""The compiled training step: the model's scores, gradients and draws, whatever the shape and the number of threads."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Generator, Tensor

from exactk.bench.made import made_batch, made_policy, ruled_batch
from exactk.config import PolicyConfig
from exactk.engine.training import CompiledSteps, CompiledTraining
from exactk.learning.rlfd import policy_step
from exactk.models.policy import Policy, PolicySteps
from exactk.presets import preset
from exactk.search import Feasible, sample
from exactk.search.sample import distributions, log_prob_of, rolled_out

SHAPES = (
    (PolicyConfig(), 20, 4, 2, 1.0),
    (PolicyConfig(decoder_layers=1, heads=1, feed_forward_size=48), 21, 3, 1, 0.8),
    (PolicyConfig(encoder_layers=1), 13, 5, 3, 1.0),
)


def gradients(policy: Policy) -> dict[str, Tensor]:
    return {name: p.grad.clone() for name, p in policy.named_parameters() if p.grad is not None}


@pytest.mark.parametrize(("config", "N", "K", "P", "present"), SHAPES, ids=["paper", "ragged", "paths"])
def test_scores_and_gradients_are_the_models(
    config: PolicyConfig, N: int, K: int, P: int, present: float
) -> None:
    policy, generator = made_policy(0, config), Generator().manual_seed(2)
    batch = made_batch(17, N, K, 1.0, 1)
    batch = replace(batch, present=torch.rand(17, N, generator=generator) < present)
    cards = torch.rand(17, P, N, generator=generator).argsort(-1)[:, :, :K].contiguous()
    wanted = torch.randn(17, P, K, N, generator=generator)
    told = []
    for bind in (policy.steps, CompiledTraining(policy, 1).steps, CompiledTraining(policy, 3).steps):
        policy.zero_grad()
        scores = bind(batch).replay(cards)
        (scores * wanted).sum().backward()  # type: ignore[no-untyped-call]
        told.append((scores.detach(), gradients(policy)))
    (scores, model), (ours, alone), (_, threaded) = told
    torch.testing.assert_close(ours, scores, rtol=1e-4, atol=1e-4)
    assert alone.keys() == model.keys()
    for name, gradient in model.items():
        assert (alone[name] - gradient).norm() < 1e-4 * gradient.norm().clamp(min=1e-3), name
        assert torch.equal(alone[name], threaded[name]), name


def test_cards_drawn_by_the_same_numbers_are_the_models() -> None:
    policy, batch = made_policy(0), made_batch(40, 20, 4, 0.95, 3)
    batch = batch.rows(Feasible.of(batch).safe)
    feasible = Feasible.of(batch)
    uniform = torch.rand(4, len(batch), 5, generator=Generator().manual_seed(1))
    with torch.no_grad():
        wanted = rolled_out(policy.steps(batch), feasible, uniform, 0.7)
        steps = CompiledTraining(policy, 1).steps(batch)
        assert isinstance(steps, CompiledSteps)
        drawn = steps.draw(feasible, uniform, 0.7)
        assert drawn is not None
        along = distributions(policy.steps(batch), feasible, drawn.cards, 0.7)
    same = (drawn.cards == wanted.cards).all(-1)
    assert same.double().mean() > 0.99  # a number within rounding of the border between two positions
    assert torch.equal(drawn.allowed[same], wanted.allowed[same])
    torch.testing.assert_close(drawn.log_prob, log_prob_of(drawn.cards, along), rtol=1e-4, atol=1e-4)


def test_a_training_step_learns_the_same_either_way() -> None:
    config = preset("paper")
    policy, batch = made_policy(0, config.policy), made_batch(16, 20, 4, 1.0, 5)
    card = torch.rand(16, 20, generator=Generator().manual_seed(0)).argsort(-1)[:, :4]
    clicked = torch.ones(16, dtype=torch.bool)
    batch = replace(batch, card=card, clicked=clicked, clicked_position=card[:, 0])
    losses = []
    for bind in (None, CompiledTraining(policy).steps):
        policy.zero_grad()
        generator = Generator().manual_seed(7)
        step = policy_step(policy, None, 0.0, config.training, batch, 0.0, generator, bind)
        step.loss.backward()  # type: ignore[no-untyped-call]
        losses.append((float(step.loss.detach()), gradients(policy)["encoder.embed.weight"]))
    assert losses[0][0] == pytest.approx(losses[1][0], rel=1e-5)
    torch.testing.assert_close(losses[0][1], losses[1][1], rtol=1e-3, atol=1e-5)


def test_requests_that_need_look_ahead_are_drawn_by_the_model() -> None:
    policy, batch = made_policy(0), ruled_batch(12, 12, 4, 3)
    steps = CompiledTraining(policy).steps(batch)
    assert isinstance(steps, CompiledSteps)
    feasible = Feasible.of(batch)
    assert steps.draw(feasible, torch.rand(4, len(batch), 2), 1.0) is None
    with torch.no_grad():
        drawn = sample(steps, feasible, 2, generator=Generator().manual_seed(0))
        wanted = sample(policy.steps(batch), feasible, 2, generator=Generator().manual_seed(0))
    assert torch.equal(drawn.cards, wanted.cards)


@pytest.mark.parametrize(
    "config",
    [PolicyConfig(cell="gru"), PolicyConfig(attention="qkv"), PolicyConfig(width=24)],
    ids=["gru", "three projections", "odd width"],
)
def test_a_network_the_kernels_do_not_know_trains_by_itself(config: PolicyConfig) -> None:
    steps = CompiledTraining(made_policy(0, config)).steps(made_batch(2, 9, 3, 1.0, 1))
    assert isinstance(steps, PolicySteps)
