"""What a policy makes of its own samples: reward scale, best of m, baselines.

Knows no network: samples and their estimated click probabilities come in, advantages go out.
"""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

Baseline = Literal["none", "leave_one_out"]


def rescaled(click_probability: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """R = 2 (p - 0.5), between -1 and 1 (eq. 20)."""
    return 2.0 * (click_probability - 0.5)


def best_of(rewards: Float[Tensor, "B S"], *held: Tensor) -> tuple[Tensor, ...]:
    """Hill climbing: of what is held for S samples of a request, [B, S, ...], that of the best one, [B, 1, ...]."""
    rows = torch.arange(len(rewards), device=rewards.device).unsqueeze(1)
    best = rewards.argmax(dim=1, keepdim=True)
    return tuple(tensor[rows, best] for tensor in held)


def advantages(rewards: Float[Tensor, "B S"], baseline: Baseline) -> Float[Tensor, "B S"]:
    """Rewards less what was to be expected anyway: the mean of the other samples.

    That leaves the expected gradient as it is, since it does not depend on the sample it is taken from.
    """
    if baseline == "none":
        return rewards
    num_samples = rewards.shape[1]
    if num_samples < 2:
        raise ValueError("leaving one out needs at least two samples per request")
    others = (rewards.sum(dim=1, keepdim=True) - rewards) / (num_samples - 1)
    return rewards - others
