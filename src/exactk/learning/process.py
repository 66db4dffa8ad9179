"""What a training run asks of its process, and of those it trains beside: Ctrl-C between steps, randomness, shares.

Knows no training and no launcher: torchrun and Ray both set the environment that `joined` reads.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from jaxtyping import Int
from torch import Tensor

STOPPING = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def stop_requests() -> Iterator[Callable[[], bool]]:
    """Yield a question: has anybody asked to stop? A step is never cut in half; asking twice does not wait.

    Only the main thread hears of signals: elsewhere the answer is always no.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    asked: list[int] = []
    before = {number: signal.getsignal(number) for number in STOPPING}

    def note(number: int, _: FrameType | None) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)

    for number in STOPPING:
        signal.signal(number, note)
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def private_randomness(seed: int, device: torch.device) -> Iterator[None]:
    """Dropout draws from torch's global generators: seed them for the run, and give the caller's back afterwards."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield


def random_state(device: torch.device) -> dict[str, Tensor]:
    """Where the global generators stand."""
    cuda = {"cuda": torch.cuda.get_rng_state(device)} if device.type == "cuda" else {}
    return {"cpu": torch.get_rng_state(), **cuda}


def restore_random_state(state: Mapping[str, Tensor], device: torch.device) -> None:
    """Put the global generators where they stood."""
    torch.set_rng_state(state["cpu"])
    if device.type == "cuda":
        torch.cuda.set_rng_state(state["cuda"], device)


@contextmanager
def deterministic(device: torch.device) -> Iterator[None]:
    """On a GPU, choose kernels that add in the same order every time; on a CPU they all do."""
    if device.type != "cuda":
        yield
        return
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when the first matrix product runs
    before = torch.are_deterministic_algorithms_enabled()
    filling = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)
        torch.utils.deterministic.fill_uninitialized_memory = filling  # type: ignore[attr-defined]


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


def current_ranks() -> Ranks:
    """The processes this one has joined; before and after joining, what the launcher says."""
    if dist.is_available() and dist.is_initialized():
        return Ranks(dist.get_rank(), dist.get_world_size())
    return Ranks(int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1)))


@contextmanager
def joined(device: torch.device) -> Iterator[Ranks]:
    """Join the processes the environment names, and leave them again; those joined before are taken as they are."""
    here = current_ranks()
    if here.world == 1 or dist.is_initialized():
        yield here
        return
    if device.type == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield current_ranks()
    finally:
        dist.destroy_process_group()


def mean_over_ranks(values: Tensor) -> Tensor:
    """The mean of what all ranks hold; what this one holds where it is alone."""
    ranks = current_ranks()
    if ranks.world == 1:
        return values
    total = values.clone()
    dist.all_reduce(total)
    return total / ranks.world


def gathered(values: Tensor) -> Tensor:
    """The rows of all ranks, rank after rank, for every rank; numbers of rows may differ."""
    ranks = current_ranks()
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
    ranks = current_ranks()
    if ranks.world == 1:
        return value
    device = "cuda" if dist.get_backend() == "nccl" else "cpu"
    shared = torch.tensor([value], dtype=torch.float64, device=device)
    dist.broadcast(shared, 0)
    return float(shared)
