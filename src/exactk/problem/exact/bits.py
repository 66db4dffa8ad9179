"""Machine words for the compiled searches: sets as bits, and the clock.

Knows no graph. Sets of positions are rows of uint64 words, position p in bit p % 64 of word p // 64.
"""
# ruff: noqa: ARG001 (the signatures of intrinsics are numba's)

from __future__ import annotations

import time
from typing import Any, no_type_check

import numpy as np
from numba import types
from numba.extending import intrinsic

from exactk.problem.compiling import compiled as compiled
from exactk.problem.compiling import compiled_inside as compiled_inside
from exactk.problem.compiling import compiled_into as compiled_into
from exactk.problem.compiling import compiled_sums as compiled_sums
from exactk.problem.compiling import compiled_within as compiled_within

ONE = np.uint64(1)
CLOCK = getattr(time, "CLOCK_MONOTONIC", 1)

# Found by name when the compiled code is linked: the disk cache stays valid, as it would not with a ctypes pointer.
_pair_of_words: Any = types.CPointer
_clock_gettime = types.ExternalFunction(
    "clock_gettime", types.int32(types.int32, _pair_of_words(types.int64))
)


@intrinsic
@no_type_check
def popcount(typing_context, word):
    """How many bits of a uint64 are set."""

    def code(context, builder, signature, args):
        return builder.ctpop(args[0])

    return types.uint64(types.uint64), code


@intrinsic
@no_type_check
def lowest_bit(typing_context, word):
    """The index of the lowest set bit of a uint64 that is not zero."""

    def code(context, builder, signature, args):
        return builder.cttz(args[0], context.get_constant(types.boolean, True))

    return types.uint64(types.uint64), code


@compiled
def seconds():
    """A clock that only goes forward, in seconds."""
    now = np.empty(2, np.int64)
    _clock_gettime(CLOCK, now.ctypes)
    return now[0] + now[1] * 1e-9


@compiled_within
def size_of(bits):
    """How many members a set has."""
    total = np.uint64(0)
    for w in range(len(bits)):
        total += popcount(bits[w])
    return np.int64(total)


@compiled_within
def first_of(bits):
    """The lowest member of a set, -1 if it is empty."""
    for w in range(len(bits)):
        if bits[w]:
            return w * 64 + np.int64(lowest_bit(bits[w]))
    return -1


@compiled_within
def without(bits, i):
    """Take member i out of a set."""
    bits[i >> 6] &= ~(ONE << np.uint64(i & 63))


@compiled_within
def first_bits(m, bits):
    """Fill a set with 0..m-1."""
    for w in range(len(bits)):
        bits[w] = 0
    for i in range(m):
        bits[i >> 6] |= ONE << np.uint64(i & 63)


@compiled_inside
def falling_order(values, order, num):
    """Sort the indices order[:num] by falling value, equal ones by rising index.

    Shell's sort: the sets are small, and numba's own sorts take seconds to compile.
    """
    gap = 1
    while gap < num // 3:
        gap = 3 * gap + 1
    while gap >= 1:
        for i in range(gap, num):
            moving = order[i]
            value = values[moving]
            at = i
            while at >= gap:
                other = order[at - gap]
                if values[other] > value or (values[other] == value and other < moving):
                    break
                order[at] = other
                at -= gap
            order[at] = moving
        gap //= 3
