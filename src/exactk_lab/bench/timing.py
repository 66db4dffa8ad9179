"""Repeating a call for a while, and telling the times. Knows nothing of what is timed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
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


def each_once(call: Callable[[Any], object], inputs: Sequence[Any]) -> list[float]:
    """Milliseconds of a call on each input, a few uncounted calls first."""
    for one in inputs[:3]:
        call(one)
    times = []
    for one in inputs:
        began = time.perf_counter()
        call(one)
        times.append(1e3 * (time.perf_counter() - began))
    return times


def figures(times: list[float], num_requests: int) -> dict[str, float]:
    """Milliseconds a card: median, 99th percentile, and where the middle half of the calls lies."""
    p25, p50, p75, p99 = np.percentile(np.asarray(times) / num_requests, [25, 50, 75, 99])
    return {"ms_p50": float(p50), "ms_p25": float(p25), "ms_p75": float(p75), "ms_p99": float(p99)}
