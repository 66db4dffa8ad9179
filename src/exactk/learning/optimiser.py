"""How weights move and are kept: the optimiser, how long and how fast a phase trains, and checkpoints.

Knows no loss and no loop: it neither decides when to write nor what the tensors mean.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.optim import Optimizer

from exactk.atomic import atomic_file, failed
from exactk.errors import DataError
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
        kept = filed("optimiser", optimiser_tensors(self.dense))
        if self.sparse is not None:
            kept |= filed("sparse", optimiser_tensors(self.sparse))
        return kept

    def restore(self, saved: Checkpoint) -> None:
        """Take its memory back."""
        restore_optimiser(self.dense, saved.part("optimiser"))
        if self.sparse is not None:
            restore_optimiser(self.sparse, saved.part("sparse"))

    def _parts(self) -> list[Any]:
        return [self.dense] if self.sparse is None else [self.dense, self.sparse]


def with_sparse_gradients(*modules: nn.Module | None) -> None:
    """From here on, embeddings pass back the rows they gave out, not a whole table of mostly zeros."""
    for module in modules:
        for inner in module.modules() if module is not None else ():
            if isinstance(inner, nn.Embedding):
                inner.sparse = True


WARM_UP = 100  # steps a cosine schedule takes to reach its learning rate, at most a tenth of all


@dataclass(frozen=True)
class FitSettings:
    """How long and how fast; zero means "not at all" for decay, clipping and patience."""

    epochs: int = 10
    learning_rate: float = 0.001
    schedule: Schedule = "constant"
    full_pace: int = 0  # steps beyond which the rate falls as one over their square root
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
        full_pace=phase.full_pace if isinstance(phase, PairValueConfig) else 0,
        weight_decay=phase.weight_decay,
        clip_norm=common.clip_norm,
        patience=phase.patience,
        checkpoint_seconds=common.checkpoint_seconds,
        seed=common.seed,
        device=device,
    )


def learning_rate(settings: FitSettings, step: int, total_steps: int) -> float:
    """Constant; or up in a short line, then down along half a cosine to zero, so that the last steps average noise out.

    Many steps are taken the slower: what a fast pace wins in a thousand steps it loses in ten thousand. A function of
    the step alone: a resumed run takes the same one.
    """
    rate = settings.learning_rate
    if 0 < settings.full_pace < total_steps:
        rate *= math.sqrt(settings.full_pace / total_steps)
    if settings.schedule == "constant":
        return rate
    rise = min(1.0, (step + 1) / max(1, min(WARM_UP, total_steps // 10)))
    return rate * rise * 0.5 * (1.0 + math.cos(math.pi * step / total_steps))


FORMAT = 1


class Checkpoint(NamedTuple):
    """Tensors under slash-separated names, and what JSON can say beside them."""

    tensors: dict[str, Tensor]
    facts: dict[str, Any]

    def part(self, name: str) -> dict[str, Tensor]:
        """The tensors filed under one name, without that name."""
        return {key[len(name) + 1 :]: t for key, t in self.tensors.items() if key.startswith(f"{name}/")}


def filed(name: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The opposite of `Checkpoint.part`."""
    return {f"{name}/{key}": t for key, t in tensors.items()}


def write_checkpoint(path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    """Write all of it or nothing."""
    metadata = {"format": str(FORMAT), "facts": json.dumps(dict(facts))}
    # Tied weights would be refused and strided ones rearranged: what is saved is a plain copy of each.
    plain = {key: t.detach().cpu().contiguous().clone() for key, t in tensors.items()}
    try:
        with atomic_file(path) as draft:
            save_file(plain, draft, metadata=metadata)
    except SafetensorError as error:
        raise failed(path, error) from error


def read_checkpoint(path: Path) -> Checkpoint:
    """The last whole checkpoint; `DataError` where the file is missing, damaged or from a later exactk."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (not a mapping)
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such checkpoint") from error
    except (SafetensorError, OSError) as error:
        raise DataError(f"{path}: not a checkpoint, or a damaged one ({error})") from error
    if metadata.get("format") != str(FORMAT):
        raise DataError(
            f"{path}: checkpoint format {metadata.get('format')!r}; this exactk reads format {FORMAT}"
        )
    return Checkpoint(tensors, json.loads(metadata["facts"]))


def optimiser_tensors(optimiser: Optimizer) -> dict[str, Tensor]:
    """An optimiser's memory as flat tensors: "3/exp_avg" belongs to the fourth parameter."""
    memory: dict[int, dict[str, Tensor]] = optimiser.state_dict()["state"]
    return {
        f"{index}/{name}": torch.as_tensor(t) for index, held in memory.items() for name, t in held.items()
    }


def restore_optimiser(optimiser: Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Give an optimiser over the same parameters its memory back; its settings stay as constructed."""
    memory: dict[int, dict[str, Tensor]] = {}
    for key, t in tensors.items():
        index, name = key.split("/")
        memory.setdefault(int(index), {})[name] = t
    optimiser.load_state_dict({"state": memory, "param_groups": optimiser.state_dict()["param_groups"]})
