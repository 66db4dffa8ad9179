"""Work shared by threads: all take the next piece until none is left, and the caller is one of them.

Knows no work. Threads of our own: numba's abort the process when two callers meet in them.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any


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
