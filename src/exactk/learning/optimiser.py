"""Optimiser: Adam for all weights; for embeddings with sparse gradients one that touches only the rows a batch met.

With it, how long and how fast a phase trains. Knows no loss and no loop.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from exactk.learning import checkpoint
from exactk.settings.config import CardValueConfig, PairValueConfig, RewardConfig, Schedule, TrainingConfig


class Optimiser:
    """AdamW, and beside it SparseAdam for tables whose gradients are sparse; weight decay leaves those alone."""

    def __init__(self, module: nn.Module, learning_rate: float, weight_decay: float) -> None:
        tables = [m.weight for m in module.modules() if isinstance(m, nn.Embedding) and m.sparse]
        apart = {id(table) for table in tables}
        self.parameters = [p for p in module.parameters() if p.requires_grad]
        dense = [p for p in self.parameters if id(p) not in apart]
        self.dense = torch.optim.AdamW(dense, lr=learning_rate, weight_decay=weight_decay, fused=True)
        self.sparse = torch.optim.SparseAdam(tables, lr=learning_rate) if tables else None

    def zero_grad(self) -> None:
        """Forget the gradients of the last step."""
        for part in self._parts():
            part.zero_grad()

    def clip(self, most: float) -> None:
        """Scale all gradients so that their norm is at most this."""
        if self.sparse is None:
            nn.utils.clip_grad_norm_(self.parameters, most)
            return
        with torch.no_grad():
            for p in self.parameters:
                if p.grad is not None and p.grad.is_sparse:
                    p.grad = p.grad.coalesce()
            held = [p.grad for p in self.parameters if p.grad is not None]
            values = [grad._values() if grad.is_sparse else grad for grad in held]
            norm = torch.stack([value.norm() for value in values]).norm()
            for value in values:
                value.mul_((most / (norm + 1e-6)).clamp(max=1.0))

    def step(self, learning_rate: float) -> None:
        """Move all weights."""
        for part in self._parts():
            for group in part.param_groups:
                group["lr"] = learning_rate
            part.step()

    def tensors(self) -> dict[str, Tensor]:
        """Its memory, for a checkpoint: by parameters in the module's order."""
        kept = checkpoint.filed("optimiser", checkpoint.optimiser_tensors(self.dense))
        if self.sparse is not None:
            kept |= checkpoint.filed("sparse", checkpoint.optimiser_tensors(self.sparse))
        return kept

    def restore(self, saved: checkpoint.Checkpoint) -> None:
        """Take its memory back."""
        checkpoint.restore_optimiser(self.dense, saved.part("optimiser"))
        if self.sparse is not None:
            checkpoint.restore_optimiser(self.sparse, saved.part("sparse"))

    def _parts(self) -> list[Any]:
        return [self.dense] if self.sparse is None else [self.dense, self.sparse]


def with_sparse_gradients(*modules: nn.Module | None) -> None:
    """From here on, embeddings pass back the rows they gave out, not a whole table of mostly zeros."""
    for module in modules:
        for inner in module.modules() if module is not None else ():
            if isinstance(inner, nn.Embedding):
                inner.sparse = True


def bytes_of(weights: Mapping[str, Tensor], sparse: bool) -> dict[str, int]:
    """What training one module takes on every rank: weights, gradients, Adam's two moments.

    With sparse gradients those of tables are as small as a batch; what is left are weights and moments.
    """
    size = {name: t.numel() * t.element_size() for name, t in weights.items()}
    total = sum(size.values())
    tables = sum(value for name, value in size.items() if _is_table(name))
    return {"weights": total, "gradients": total - tables if sparse else total, "moments": 2 * total}


def _is_table(name: str) -> bool:
    return name.endswith(("users.weight", "items.weight"))


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
    phase: RewardConfig | PairValueConfig | CardValueConfig | TrainingConfig,
    common: TrainingConfig,
    device: str,
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
