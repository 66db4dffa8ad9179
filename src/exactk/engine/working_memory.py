"""Arrays that training steps use again and again, and how a batch is cut into pieces.

Knows no arithmetic.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from exactk.engine.packing import aligned

GRAIN, MOST_SLICES = 8, 16  # requests a thread takes at once, at least; slices of a batch, at most


class WorkingMemory:
    """Arrays by name and thread, made once; their first numbers are zero and stay so."""

    def __init__(self) -> None:
        self._kept: dict[Any, np.ndarray] = {}

    def array(self, name: str, thread: int, size: int) -> np.ndarray:
        """At least `size` numbers."""
        found = self._kept.get((name, thread))
        if found is None or len(found) < size:
            found = self._kept[name, thread] = aligned(size)
        return found


def slice_of(num_requests: int) -> int:
    """How many requests' gradients are summed together: whatever the number of threads, so that all learn alike."""
    return max(GRAIN, -(-num_requests // MOST_SLICES))
