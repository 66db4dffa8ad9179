"""Checkpoints: one safetensors file that holds tensors and plain facts, replaced in one step or not at all.

Knows no training: it neither decides when to write nor what the tensors mean.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.optim import Optimizer

from exactk.atomic import atomic_file
from exactk.errors import DataError

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


def write(path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    """Write all of it or nothing."""
    metadata = {"format": str(FORMAT), "facts": json.dumps(dict(facts))}
    # Tied weights would be refused and strided ones rearranged: what is saved is a plain copy of each.
    plain = {key: t.detach().cpu().contiguous().clone() for key, t in tensors.items()}
    with atomic_file(path) as draft:
        save_file(plain, draft, metadata=metadata)


def read(path: Path) -> Checkpoint:
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
