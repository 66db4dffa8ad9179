"""How kernels are compiled: to machine code, cached on disk, without the interpreter lock.

Knows no kernel. numba's own cache looks at a kernel's file alone, so that a change to a kernel it calls in another
file would go unseen; ours looks at those too.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from types import CodeType
from typing import Any

import numpy as np
from numba import njit
from numba.core.caching import FunctionCache

PLAIN = (bool, int, float, str, bytes, tuple, np.generic)


def compiled(kernel: Callable[..., Any]) -> Any:
    """Compile on first call, or fetch from the disk what an earlier run compiled."""
    dispatcher: Any = njit(cache=True, nogil=True, error_model="numpy")(kernel)
    cache: Any = KernelCache
    dispatcher._cache = cache(kernel)
    return dispatcher


def num_cores() -> int:
    """How many cores this process may use, as far as the system says."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class KernelCache(FunctionCache):
    """numba's disk cache with one more part in its key: what the kernel calls."""

    def _index_key(self, signature: Any, codegen: Any) -> tuple[Any, ...]:
        own: Any = super()
        return (*own._index_key(signature, codegen), fingerprint(self._py_func))


def fingerprint(kernel: Callable[..., Any]) -> str:
    """A hash of a kernel's code, of the constants it names and of every kernel it calls, wherever they live."""
    parts: list[str] = []
    waiting, seen = [kernel], set()
    while waiting:
        function: Any = waiting.pop()
        if function in seen:
            continue
        seen.add(function)
        code: CodeType = function.__code__
        parts.append(f"{code.co_name} {hashlib.sha256(code.co_code).hexdigest()} {code.co_consts!r}")
        for name in code.co_names:
            value = function.__globals__.get(name)
            if hasattr(value, "py_func"):
                waiting.append(value.py_func)
            elif isinstance(value, PLAIN):
                parts.append(f"{name} = {value!r}")
    return hashlib.sha256("\n".join(sorted(parts)).encode()).hexdigest()
