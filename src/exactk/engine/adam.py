"""AdamW over one array of weights, compiled.

Knows no network. The arithmetic of torch's own kernel, at half its time.
"""

from __future__ import annotations

import math
from typing import no_type_check

import numpy as np

from exactk.engine.lanes import (
    divide,
    inner,
    load,
    multiply,
    multiply_add,
    spread,
    square_root,
    store,
    subtract,
)
from exactk.problem.compiling import compiled

EPSILON = np.float32(1e-8)
KEEP_FIRST, KEEP_SECOND = 0.9, 0.999


def numbers_of(step: int, rate: float, decay: float) -> tuple[float, ...]:
    """What step number `step` (the first is 1) multiplies by: see `move_range`."""
    size = rate / (1.0 - KEEP_FIRST**step)
    correction = 1.0 / math.sqrt(1.0 - KEEP_SECOND**step)
    return 1.0 - rate * decay, size, correction, 1.0 - KEEP_FIRST, KEEP_SECOND, 1.0 - KEEP_SECOND


@compiled
@no_type_check
def move(w, g, first, second, numbers):
    """All weights."""
    move_range(w, g, first, second, numbers, 0, len(w))
    return 0


@inner
@no_type_check
def move_range(w, g, first, second, numbers, begin, end):
    """w -= size m / (correction sqrt(v) + epsilon), the moments m and v moved on before; `begin` a multiple of 16."""
    shrink, size, correction = spread(numbers[0]), spread(numbers[1]), spread(numbers[2])
    new_first, keep_second, new_second = spread(numbers[3]), spread(numbers[4]), spread(numbers[5])
    epsilon, whole = spread(EPSILON), end // 16 * 16
    for i in range(begin, whole, 16):
        slope = load(g, i)
        m = load(first, i)
        m = multiply_add(subtract(slope, m), new_first, m)
        v = multiply_add(multiply(slope, slope), new_second, multiply(load(second, i), keep_second))
        store(first, i, m)
        store(second, i, v)
        moved = divide(multiply(size, m), multiply_add(square_root(v), correction, epsilon))
        store(w, i, subtract(multiply(load(w, i), shrink), moved))
    for i in range(max(begin, whole), end):
        first[i] += (g[i] - first[i]) * numbers[3]
        second[i] = second[i] * numbers[4] + g[i] * g[i] * numbers[5]
        w[i] = w[i] * numbers[0] - numbers[1] * first[i] / (np.sqrt(second[i]) * numbers[2] + EPSILON)
