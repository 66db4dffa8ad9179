"""What a policy makes of its own samples: reward scale, best of m, baselines, schedules.

Knows no network: samples and their estimated click probabilities come in, advantages go out.
"""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

Baseline = Literal["none", "leave_one_out", "greedy"]


def rescaled(click_probability: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """R = 2 (p - 0.5), between -1 and 1 (eq. 20)."""
    return 2.0 * (click_probability - 0.5)


def best_of(rewards: Float[Tensor, "B S"], *held: Tensor) -> tuple[Tensor, ...]:
    """Hill climbing: of what is held for S samples of a request, [B, S, ...], that of the best one, [B, 1, ...]."""
    rows = torch.arange(len(rewards), device=rewards.device).unsqueeze(1)
    best = rewards.argmax(dim=1, keepdim=True)
    return tuple(tensor[rows, best] for tensor in held)


def advantages(
    rewards: Float[Tensor, "B S"], baseline: Baseline, greedy_rewards: Float[Tensor, "B"] | None = None
) -> Float[Tensor, "B S"]:
    """Rewards less what was to be expected anyway. Every baseline here leaves the expected gradient as it is:
    none of them depends on the sample it is taken from."""
    if baseline == "none":
        return rewards
    if baseline == "leave_one_out":
        num_samples = rewards.shape[1]
        if num_samples < 2:
            raise ValueError("leaving one out needs at least two samples per request")
        others = (rewards.sum(dim=1, keepdim=True) - rewards) / (num_samples - 1)
        return rewards - others
    if greedy_rewards is None:
        raise ValueError("the greedy baseline needs the rewards of the greedy cards")
    return rewards - greedy_rewards[:, None]


def scheduled(start: float, end: float, progress: float) -> float:
    """Linear from `start` to `end` while progress goes from 0 to 1, and `end` from there on."""
    return start + (end - start) * min(max(progress, 0.0), 1.0)
