"""A small policy learning from demonstrations and rewards, with a checkpoint after every step: something to kill."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import torch
from torch import Generator, Tensor

from exactk.learning.fit import Step, Task, fit
from exactk.learning.optimiser import FitSettings
from exactk.learning.rlfd import policy_step
from exactk.models.policy import Policy
from exactk.models.reward import reward_of
from exactk.settings.config import InputSizes
from exactk.settings.presets import preset
from exactk.tensors import TensorBatch
from small_batches import batch_of, random_graphs

BATCHES = 10
STEPS = 3 * BATCHES


def batches(epoch: int, start: int) -> Iterator[TensorBatch]:
    for number in range(start, BATCHES):
        generator = torch.Generator().manual_seed(1000 * epoch + number)
        graph = random_graphs(6, 8, 0.9, seed=number) | ~torch.eye(8, dtype=torch.bool)
        card = torch.rand(6, 8, generator=generator).argsort(dim=1)[:, :3]
        yield replace(
            batch_of(graph, 3),
            card=card,
            clicked=torch.ones(6, dtype=torch.bool),
            clicked_position=card[:, 0],
        )


def run(folder: Path, told: Callable[[int], None] = lambda _: None) -> dict[str, Tensor]:
    """Train, or go on training, and return the final weights."""
    config = preset("tiny")
    sizes = InputSizes(num_users=6, num_items=31)
    reward = reward_of(config, sizes, 3, Generator().manual_seed(0)).eval()
    policy = Policy(config.policy, sizes, Generator().manual_seed(1))
    steps = 0

    def loss(batch: TensorBatch, progress: float, generator: Generator) -> Step:
        nonlocal steps
        told(steps)
        steps += 1
        return policy_step(policy, reward, config.training, batch, progress, generator)

    task = Task("policy", policy, batches, BATCHES, loss)
    fit(task, FitSettings(epochs=STEPS // BATCHES, checkpoint_seconds=0.0), folder, resume=True)
    return dict(policy.state_dict())
