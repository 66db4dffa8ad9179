"""What a training run asks of its process: Ctrl-C between steps, randomness of its own, the same sums twice.

Knows no training.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType

import torch
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
