"""Ranks: which of several processes that train together this one is, and the few words they exchange.

Knows no launcher: torchrun and Ray both set the environment that `joined` reads. Alone, everything here is nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from jaxtyping import Int
from torch import Tensor


class Ranks(NamedTuple):
    """This process is number `rank` of `world`."""

    rank: int = 0
    world: int = 1

    @property
    def first(self) -> bool:
        """The one that writes and talks."""
        return self.rank == 0

    def share(self, places: Int[np.ndarray, "G"]) -> Int[np.ndarray, "H"]:
        """Every world-th place, from this rank's on; where there are fewer places than ranks, a place all the same.

        Four places and three ranks: (0, 3), (1), (2). One place: everybody takes it, and `weight` counts it once.
        """
        held = places[self.rank :: self.world]
        return held if len(held) else places[:1]

    def weight(self, num_places: int) -> float:
        """What this rank's mean counts in the mean over ranks, so that each of `num_places` counts the same."""
        own = len(range(self.rank, num_places, self.world))
        return own * self.world / max(num_places, 1)

    def seed(self, seed: int, step: int) -> int:
        """A seed for one step of one rank: nothing to keep in a checkpoint, nothing shared by two ranks."""
        mixed = (
            seed * 0x9E3779B97F4A7C15 + self.rank * 0xBF58476D1CE4E5B9 + step * 0x94D049BB133111EB
        ) % 2**64
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
        return (mixed ^ (mixed >> 27)) % 2**63


def current() -> Ranks:
    """The processes this one has joined; before and after joining, what the launcher says."""
    if dist.is_available() and dist.is_initialized():
        return Ranks(dist.get_rank(), dist.get_world_size())
    return Ranks(int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1)))


@contextmanager
def joined(device: torch.device) -> Iterator[Ranks]:
    """Join the processes the environment names, and leave them again; those joined before are taken as they are."""
    here = current()
    if here.world == 1 or dist.is_initialized():
        yield here
        return
    if device.type == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield current()
    finally:
        dist.destroy_process_group()


def mean_over_ranks(values: Tensor) -> Tensor:
    """The mean of what all ranks hold; what this one holds where it is alone."""
    ranks = current()
    if ranks.world == 1:
        return values
    total = values.clone()
    dist.all_reduce(total)
    return total / ranks.world


def gathered(values: Tensor) -> Tensor:
    """The rows of all ranks, rank after rank, for every rank; numbers of rows may differ."""
    ranks = current()
    if ranks.world == 1:
        return values
    device = "cuda" if dist.get_backend() == "nccl" else "cpu"
    count = torch.tensor([len(values)], device=device)
    counts = [torch.zeros_like(count) for _ in range(ranks.world)]
    dist.all_gather(counts, count)
    most = max(int(c) for c in counts)
    plain = values.to(torch.uint8) if values.dtype == torch.bool else values
    room = torch.zeros((most, *values.shape[1:]), dtype=plain.dtype, device=device)
    room[: len(values)] = plain.to(device)
    rooms = [torch.zeros_like(room) for _ in range(ranks.world)]
    dist.all_gather(rooms, room)
    rows = torch.cat([held[: int(c)] for held, c in zip(rooms, counts, strict=True)])
    return rows.to(values.device, values.dtype)


def agreed(value: float) -> float:
    """What the first rank says: a figure that decides must be the same everywhere, to the last bit."""
    ranks = current()
    if ranks.world == 1:
        return value
    device = "cuda" if dist.get_backend() == "nccl" else "cpu"
    shared = torch.tensor([value], dtype=torch.float64, device=device)
    dist.broadcast(shared, 0)
    return float(shared)
