"""In which order an epoch visits rows: shuffled from (seed, epoch) alone, so that any batch can be found again.

Knows no data, only how many rows there are.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from jaxtyping import Int64

WINDOW = 1 << 22
BLOCK = 1 << 12


def epoch_order(
    num_rows: int,
    seed: int | None,
    epoch: int = 0,
    start: int = 0,
    window: int = WINDOW,
    block: int = BLOCK,
) -> Iterator[Int64[np.ndarray, "W"]]:
    """Places 0..num_rows-1 from place `start` of the epoch on, a window at a time; seed None keeps the file's order.

    Up to `window` rows the shuffle is perfect. A longer log deals whole blocks of neighbouring rows into windows and
    shuffles within each, so that a log larger than memory is read in long runs, not row by row from all over the disk.
    """
    if seed is None or num_rows <= window:
        yield from _one_window(num_rows, seed, epoch, start, window)
        return
    blocks = np.random.default_rng([seed, epoch]).permutation((num_rows + block - 1) // block)
    per_window = max(1, window // block)
    passed = 0
    for number, first in enumerate(range(0, len(blocks), per_window)):
        chosen = blocks[first : first + per_window]
        size = sum(min(block, num_rows - int(b) * block) for b in chosen)
        if passed + size > start:
            places = np.concatenate([np.arange(b * block, min((b + 1) * block, num_rows)) for b in chosen])
            shuffled = np.random.default_rng([seed, epoch, number]).permutation(places)
            yield shuffled[max(0, start - passed) :]
        passed += size


def _one_window(
    num_rows: int, seed: int | None, epoch: int, start: int, window: int
) -> Iterator[Int64[np.ndarray, "W"]]:
    if seed is not None:
        yield np.random.default_rng([seed, epoch]).permutation(num_rows)[start:]
        return
    for first in range(start, num_rows, window):
        yield np.arange(first, min(first + window, num_rows))


def in_batches(
    windows: Iterator[Int64[np.ndarray, "W"]], batch_size: int
) -> Iterator[Int64[np.ndarray, "B"]]:
    """Runs of `batch_size` places across window ends; only the last may be shorter."""
    rest = np.empty(0, np.int64)
    for window in windows:
        rest = np.concatenate([rest, window]) if len(rest) else window
        whole = len(rest) - len(rest) % batch_size
        for first in range(0, whole, batch_size):
            yield rest[first : first + batch_size]
        rest = rest[whole:]
    if len(rest):
        yield rest
