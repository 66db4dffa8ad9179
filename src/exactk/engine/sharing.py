"""Compiled work shared by threads: all take the next piece until none is left, and the caller is one of them.

Knows no work. Threads of our own: numba's abort the process when two callers meet in them.
"""
# ruff: noqa: ARG001 (the signatures of intrinsics are numba's)

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any, no_type_check

from numba import types
from numba.extending import intrinsic


@no_type_check
def _place(context, builder, signature, args):
    array = context.make_array(signature.args[0])(context, builder, args[0])
    return builder.gep(array.data, [args[1]])


@intrinsic
@no_type_check
def taken(typing_context, counters, index):
    """A number nobody else is given: counters[index], and then one more is there."""

    def code(context, builder, signature, args):
        one = context.get_constant(types.int64, 1)
        return builder.atomic_rmw("add", _place(context, builder, signature, args), one, "seq_cst")

    return types.int64(counters, types.int64), code


@intrinsic
@no_type_check
def seen(typing_context, counters, index):
    """counters[index] as another thread left it, and all it wrote before."""

    def code(context, builder, signature, args):
        return builder.load_atomic(_place(context, builder, signature, args), "seq_cst", 8)

    return types.int64(counters, types.int64), code


@intrinsic
@no_type_check
def shown(typing_context, counters, index, value):
    """counters[index] = value, for other threads to see, and all written before."""

    def code(context, builder, signature, args):
        builder.store_atomic(args[2], _place(context, builder, signature, args), "seq_cst", 8)
        return context.get_dummy_value()

    return types.void(counters, types.int64, types.int64), code


def shared(threads: int, work: Callable[[int], Any]) -> list[Any]:
    """work(0) here and work(1), work(2), ... on helpers meanwhile; what they return.

    `work` takes pieces until there is none: a helper that has not begun when the caller is done is not waited for.
    """
    if threads < 2:
        return [work(0)]
    helpers, core, cores = helpers_of(os.getpid(), threads - 1), current_core(), all_cores()
    jobs = [helpers.submit(elsewhere, cores - {core}, work, number) for number in range(1, threads)]
    own = work(0)
    return [own, *(job.result() for job in jobs if not job.cancel())]


def elsewhere(cores: set[int], work: Callable[[int], Any], number: int) -> Any:
    """work(number) on one of these cores, all but the caller's.

    Woken by the caller, a thread is often put on the caller's own core, and waits there for milliseconds.
    """
    if cores and getattr(_own, "cores", None) != cores:
        os.sched_setaffinity(0, cores)
        _own.cores = cores
    return work(number)


def all_cores() -> set[int]:
    """The cores this process may use, as far as the system says."""
    return set() if _sched_getcpu is None else os.sched_getaffinity(os.getpid())


def current_core() -> int:
    """The core this thread runs on; -1 where the system does not say."""
    return -1 if _sched_getcpu is None else int(_sched_getcpu())


@lru_cache(maxsize=4)
def helpers_of(process: int, number: int) -> ThreadPoolExecutor:
    """One pool per process: a forked child must not wait for its parent's threads."""
    return ThreadPoolExecutor(number, thread_name_prefix=f"exactk-{process}")


_own = threading.local()
_sched_getcpu = getattr(ctypes.PyDLL(None), "sched_getcpu", None) if sys.platform == "linux" else None
