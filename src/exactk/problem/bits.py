"""Machine words for the compiled searches: count bits, find the lowest bit, read the clock.

Knows no graph. Sets of positions are rows of uint64 words, position p in bit p % 64 of word p // 64.
"""
# ruff: noqa: ARG001 (the signatures of intrinsics are numba's)

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, no_type_check

import numpy as np
from numba import njit, types
from numba.extending import intrinsic

CLOCK = getattr(time, "CLOCK_MONOTONIC", 1)

# Found by name when the compiled code is linked: the disk cache stays valid, as it would not with a ctypes pointer.
_pair_of_words: Any = types.CPointer
_clock_gettime = types.ExternalFunction(
    "clock_gettime", types.int32(types.int32, _pair_of_words(types.int64))
)


def compiled(kernel: Callable[..., Any]) -> Any:
    """Compile to machine code, cached on disk, without the interpreter lock."""
    return njit(cache=True, nogil=True)(kernel)


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
@no_type_check
def seconds():
    """A clock that only goes forward, in seconds."""
    now = np.empty(2, np.int64)
    _clock_gettime(CLOCK, now.ctypes)
    return now[0] + now[1] * 1e-9
