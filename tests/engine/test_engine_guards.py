"""Nothing gets slower unseen: how many operations a decode step and a training step hand to torch may not grow.

Counts, not times: they are the same on every machine, and what costs small models is operations, not arithmetic.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Generator
from torch.utils._python_dispatch import TorchDispatchMode

from exactk.learning.phases import compiled_decoder
from exactk.learning.rlfd import policy_step
from exactk.models.policy import Policy
from exactk.models.reward import reward_of
from exactk.search import Feasible, beam
from exactk.settings.presets import preset
from exactk_lab.bench.engine.made import logged_batch as random_batch
from exactk_lab.bench.engine.made import made_batch, made_policy
from exactk_lab.bench.engine.train import BATCH, SIZES, K, N

# Counted on torch 2.13: 175, 88, 3, 624; what is above that is room for another version of torch, not for us.
ONE_CHOICE, EACH_FURTHER_CHOICE = 190, 95
COMPILED = 4
TRAINING = 660


_mode: Any = TorchDispatchMode


class Counted(_mode):  # type: ignore[misc]
    """How many operations reach torch's kernels; views of a tensor cost next to nothing and are not counted."""

    num: int = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.num += not func.is_view
        return func(*args, **(kwargs or {}))


@torch.no_grad()
def operations_of_beam(card_size: int) -> int:
    policy, batch = made_policy(0), made_batch(1, 50, card_size, 0.99, 1)
    with Counted() as counted:
        beam(policy.steps(batch), Feasible.of(batch), 3)
    return int(counted.num)


def test_the_models_beam_stays_within_its_operations() -> None:
    once, four, five = operations_of_beam(1), operations_of_beam(4), operations_of_beam(5)
    assert once <= ONE_CHOICE
    assert five - four <= EACH_FURTHER_CHOICE


def test_the_compiled_decoder_asks_torch_for_nothing_but_types() -> None:
    decoder, batch = compiled_decoder(made_policy(0), threads=1), made_batch(1, 50, 4, 0.98, 1).arrays()
    with Counted() as counted:
        decoder.recommend(batch)
    assert counted.num <= COMPILED


def test_a_training_step_stays_within_its_operations() -> None:
    config, generator = preset("paper"), Generator().manual_seed(0)
    reward = reward_of(config, SIZES, K, generator).eval()
    policy = Policy(config.policy, SIZES, generator)
    batch = random_batch(BATCH, generator)
    assert batch.item.shape == (BATCH, N)
    with Counted() as counted:
        step = policy_step(policy, reward, config.training, batch, 0.0, generator)
        step.loss.backward()  # type: ignore[no-untyped-call]
    assert counted.num <= TRAINING
