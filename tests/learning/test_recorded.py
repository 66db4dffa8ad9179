"""Recorded training on a GPU learns what the loop learns; what is known of a batch is not read again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from torch import Generator

from exactk.learning.fit import Step, Task, fit
from exactk.learning.optimiser import FitSettings
from exactk.learning.recorded import safe_facts
from exactk.learning.rlfd import policy_step
from exactk.models.policy import Policy
from exactk.models.reward import Reward
from exactk.search import Feasible
from exactk.settings.config import InputSizes, PolicyConfig, RewardConfig, TrainingConfig
from exactk.tensors import TensorBatch
from small_batches import complete_batch

SIZES = InputSizes(num_users=6, num_items=31)


def demonstrated(seed: int) -> TensorBatch:
    batch = complete_batch(16, 9, 3)
    card = torch.rand(16, 9, generator=Generator().manual_seed(seed)).argsort(1)[:, :3]
    return replace(batch, card=card, clicked=torch.ones(16, dtype=torch.bool), clicked_position=card[:, 0])


def test_known_facts_are_taken_for_granted() -> None:
    batch = demonstrated(0)
    facts = Feasible.of(batch).facts
    assert facts.complete
    assert Feasible.of(replace(batch, facts=facts._replace(complete=False))).facts.complete is False
    assert replace(batch, facts=facts).rows(torch.tensor([0])).facts is None


@pytest.mark.gpu
@pytest.mark.parametrize("recordable", [True, False])
def test_a_recorded_step_learns_as_the_loop_does(recordable: bool) -> None:
    def learned(recorded: bool) -> list[float]:
        policy = Policy(PolicyConfig(width=16, heads=2), SIZES, Generator().manual_seed(1)).cuda()
        reward = Reward(RewardConfig(), SIZES, 3, Generator().manual_seed(2)).cuda().eval()
        batches = [demonstrated(seed) for seed in range(8)]

        def source(_: int, start: int) -> Iterator[TensorBatch]:
            yield from batches[start:]

        def loss(batch: TensorBatch, progress: float, generator: Generator) -> Step:
            return policy_step(policy, reward, TrainingConfig(), batch, progress, generator)

        fit(
            Task("policy", policy, source, 8, loss, recordable=safe_facts if recorded else None),
            FitSettings(epochs=2, device="cuda"),
        )
        return [float(p.detach().double().sum()) for p in policy.parameters()]

    assert learned(recordable) == pytest.approx(learned(False), rel=1e-4, abs=1e-4)
