"""How long and how fast a phase trains: its settings, and the learning rate of each step.

Knows no task and no loop.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from exactk.settings.config import PairValueConfig, RewardConfig, Schedule, TrainingConfig

WARM_UP = 100  # steps a cosine schedule takes to reach its learning rate, at most a tenth of all


@dataclass(frozen=True)
class FitSettings:
    """How long and how fast; zero means "not at all" for decay, clipping and patience."""

    epochs: int = 10
    learning_rate: float = 0.001
    schedule: Schedule = "constant"
    weight_decay: float = 0.0
    clip_norm: float = 0.0
    patience: int = 0  # validations without a better score before stopping
    checkpoint_seconds: float = 30.0
    seed: int = 0
    device: str = "cpu"


def fit_settings(
    phase: RewardConfig | PairValueConfig | TrainingConfig, common: TrainingConfig, device: str
) -> FitSettings:
    """How long and how fast one phase trains; what the phases share comes from `training`."""
    return FitSettings(
        epochs=phase.epochs,
        learning_rate=phase.learning_rate,
        schedule=phase.schedule,
        weight_decay=phase.weight_decay,
        clip_norm=common.clip_norm,
        patience=phase.patience,
        checkpoint_seconds=common.checkpoint_seconds,
        seed=common.seed,
        device=device,
    )


def learning_rate(settings: FitSettings, step: int, total_steps: int) -> float:
    """Constant; or up in a short line, then down along half a cosine to zero, so that the last steps average noise out.

    A function of the step alone: a resumed run takes the same one.
    """
    if settings.schedule == "constant":
        return settings.learning_rate
    rise = min(1.0, (step + 1) / max(1, min(WARM_UP, total_steps // 10)))
    return settings.learning_rate * rise * 0.5 * (1.0 + math.cos(math.pi * step / total_steps))
