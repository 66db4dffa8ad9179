"""How kernels are compiled (to machine code, cached on disk, without the interpreter lock), and how threads share them.

Knows no kernel. numba's own cache looks at a kernel's file alone, so that a change to a kernel it calls in another
file would go unseen; ours looks at those too. Threads of our own: numba's abort the process when two callers meet.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, lru_cache
from inspect import unwrap
from types import CodeType
from typing import Any, cast

import numpy as np
from llvmlite import binding as llvm
from numba import njit
from numba.core.caching import CompileResultCacheImpl, FunctionCache
from numba.core.runtime._nrt_python import c_helpers
from numba.core.types import unliteral

PLAIN = (bool, int, float, str, bytes, tuple, np.generic)


def compiled(kernel: Callable[..., Any], **options: Any) -> Any:
    """Compile on first call, or fetch from the disk what an earlier run compiled."""
    settings: dict[str, Any] = {
        "cache": True, "nogil": True, "error_model": "numpy", "_nrt": True, "no_cfunc_wrapper": True,
    } | options  # fmt: skip
    kernel = unwrap(kernel)  # the tests put checks of types around every function; kernels have none
    dispatcher: Any = njit(**settings)(kernel)
    cache: Any = KernelCache
    dispatcher._cache = cache(kernel)
    called, plain = dispatcher.get_call_template, cast(Any, unliteral)

    def called_with_any(given: Any, named: Any) -> Any:
        # Handed a constant, as 0 or True, numba would compile the kernel once more, for that value alone.
        return called(tuple(map(plain, given)), {name: plain(type_) for name, type_ in named.items()})

    dispatcher.get_call_template = called_with_any
    return dispatcher


def compiled_within(kernel: Callable[..., Any], **options: Any) -> Any:
    """The same for kernels that only kernels call: without the door for Python, which takes long to compile."""
    dispatcher = compiled(kernel, no_cpython_wrapper=True, **options)

    def refuse(*_: Any, **__: Any) -> Any:
        raise TypeError(f"{kernel.__name__} is compiled for kernels alone: Python cannot call it")

    # Python would look among these for what to call, and end where there is nothing.
    dispatcher._insert = lambda *_: None
    dispatcher._compile_for_args = refuse
    return dispatcher


def compiled_into(kernel: Callable[..., Any]) -> Any:
    """The same for a kernel that becomes a part of whichever calls it: one layer less for LLVM to go through."""
    return compiled_within(kernel, inline="always")


def compiled_inside(kernel: Callable[..., Any]) -> Any:
    """The same for kernels that also make no arrays.

    They do not count who holds those they are handed, which would take longer than what many of them do.
    """
    return compiled_within(kernel, _nrt=False)


def compiled_sums(kernel: Callable[..., Any]) -> Any:
    """The same for loops that add up numbers in any order: for bounds, which leave room for rounding."""
    # Not a set: its text, and with it the key in the disk cache, would be another in another process.
    return compiled_within(kernel, _nrt=False, fastmath={"reassoc": True, "nsz": True})


def num_cores() -> int:
    """How many cores this process may use, as far as the system says."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def no_bitcode() -> bytes:
    """Of a module that holds nothing."""
    empty: bytes = llvm.parse_assembly("").as_bitcode()
    return empty


@cache
def add_array_symbols() -> None:
    """Name to LLVM what machine code from the disk calls to make, hold and let go of arrays."""
    for name, address in c_helpers.items():
        llvm.add_symbol(name if name.startswith("_") else f"NRT_{name}", address)


class LeanResults(CompileResultCacheImpl):
    """Kernels from the disk without what only compiling needs.

    numba parses the code of each, for other kernels to link, and keeps it: half a second and 50 MB for a search.
    """

    def rebuild(self, target_context: Any, payload: Any) -> Any:
        """Machine code, ready; what others link is parsed where one that calls it is compiled."""
        base: Any = super()
        (name, kind, data), described, *rest = payload
        if kind != "object":
            return base.rebuild(target_context, payload)
        code, bitcode = data
        doors = (described.llvm_func_name, described.llvm_cpython_wrapper_name, described.env_name)
        known: set[str] = target_context.codegen()._engine._defined_symbols  # what may be asked for by name
        known.update(door for door in doors if door.encode() + b"\0" in code)
        result = base.rebuild(target_context, ((name, kind, (code, no_bitcode())), described, *rest))
        result.library._shared_module = None
        result.library._get_module_for_linking = lambda: llvm.parse_bitcode(bitcode)
        return result


class KernelCache(FunctionCache):
    """numba's disk cache with one more part in its key: what the kernel calls.

    Its list of what is there names types by their modules: one that an earlier exactk wrote, whose modules have moved
    since, is as good as none.
    """

    _impl_class = LeanResults

    def __init__(self, kernel: Callable[..., Any]) -> None:
        begin: Any = super().__init__
        begin(kernel)
        file: Any = self._cache_file
        read = file._load_index

        def what_is_there() -> dict[Any, str]:
            try:
                held: dict[Any, str] = read()
            except (ImportError, AttributeError):
                held = {}
            return held

        file._load_index = what_is_there

    def load_overload(self, signature: Any, target_context: Any) -> Any:
        """From the disk, without what numba reads and compiles before it compiles the first kernel: 40 MB, 0.2 s.

        Where there is nothing to load, the compiler sees to that by itself.
        """
        add_array_symbols()
        load: Any = super()._load_overload
        with self._guard_against_spurious_io_errors():
            return load(signature, target_context)

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
                parts.append(
                    f"{name} {sorted((key, str(set_)) for key, set_ in value.targetoptions.items())}"
                )
            elif isinstance(value, PLAIN):
                parts.append(f"{name} = {value!r}")
    return hashlib.sha256("\n".join(sorted(parts)).encode()).hexdigest()


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
