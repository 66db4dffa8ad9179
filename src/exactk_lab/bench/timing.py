"""Repeating a call for a while, and telling the times. Knows nothing of what is timed."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np


def repeated(call: Callable[[], Any], seconds: float, most: int = 200) -> list[float]:
    """How long each of several calls took: as many as fit in the time, one at least."""
    times: list[float] = []
    while not times or (sum(times) < seconds and len(times) < most):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return times


def spread(times: list[float]) -> dict[str, float]:
    """Median, 10th and 90th percentile in milliseconds."""
    low, median, high = (round(float(t), 4) for t in np.percentile(times, [10, 50, 90]) * 1e3)
    return {"median": median, "p10": low, "p90": high}
