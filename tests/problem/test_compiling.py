"""Kernels are compiled once, and the disk cache of them notices changes in what a kernel calls."""

from __future__ import annotations

import os
import pickle
import pkgutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import Any

import numba
import numpy as np
import pytest

from exactk.problem import exact
from exactk.problem.compiling import compiled, compiled_sums, compiled_within, fingerprint
from exactk.problem.exact import cliques
from exactk.problem.exact.leaves import offer
from exactk.problem.exact.levels import tighten
from exactk.problem.exact.pairs import branch
from exactk.problem.graph import Requests, complete_graph
from random_briefs import a_shelf

STEP = 1


@compiled
def inner(x):  # type: ignore[no-untyped-def]
    return x + STEP


@compiled
def outer(x):  # type: ignore[no-untyped-def]
    return 2 * inner(x)


def with_globals(kernel: FunctionType, **changed: object) -> FunctionType:
    """The same kernel in a module where some names mean something else."""
    return FunctionType(kernel.__code__, {**kernel.__globals__, **changed}, kernel.__name__)


def test_compiled_kernels_run() -> None:
    assert outer(3) == 8


def test_a_cache_that_names_what_is_gone_is_as_good_as_none() -> None:
    """As after an upgrade: the list of an earlier exactk holds types of modules that have moved since."""
    cache = outer._cache
    Path(cache.cache_path).mkdir(parents=True, exist_ok=True)
    index, held = Path(cache._cache_file._index_path), None
    if index.exists():
        held = index.read_bytes()
    gone = b"\x80\x04cexactk.gone_by_now\nSizes\n."
    index.write_bytes(pickle.dumps(numba.__version__) + gone)
    try:
        with pytest.raises(ModuleNotFoundError):
            pickle.loads(gone)
        assert cache._cache_file._load_index() == {}
        assert compiled(outer.py_func)(3) == 8
    finally:
        index.unlink() if held is None else index.write_bytes(held)


@compiled_within
def within(x):  # type: ignore[no-untyped-def]
    return x + 2 * STEP


@compiled
def around(x):  # type: ignore[no-untyped-def]
    return 3 * within(x)


@pytest.mark.parametrize(("kernel", "answer"), [(inner, 40), (within, 50)])
def test_a_kernel_from_the_disk_holds_no_parsed_code_and_can_still_be_called_by_a_new_one(
    kernel: Any, answer: int
) -> None:
    assert (inner(3), around(3)) == (4, 15)  # on the disk from now on, whoever compiled them
    make = compiled if kernel is inner else compiled_within
    loaded = make(kernel.py_func)

    @numba.njit
    def caller(x):  # type: ignore[no-untyped-def]
        return 10 * loaded(x)

    assert caller(3) == answer
    assert sum(loaded.stats.cache_hits.values()) == 1
    (held,) = loaded.overloads.values()
    assert held.library._shared_module is None


def test_a_kernel_from_the_disk_needs_nothing_of_what_compiling_needs() -> None:
    """Reading that takes a process 40 MB and 0.2 s."""
    program = """
import numpy as np
from numba.core.runtime import rtsys
from exactk.problem.exact import cliques
from exactk.problem.graph import Requests, complete_graph
found = cliques.best(Requests.of(complete_graph(4)[None], 2), np.array([[0.0, 3.0, 1.0, 2.0]]), None)
print(found.card.tolist(), rtsys._init)
"""
    said = [
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
        for _ in range(2)  # the first may have to compile
    ]
    assert said[1] == "[[1, 3]] False\n"


def test_a_fingerprint_does_not_change_by_itself() -> None:
    assert fingerprint(outer.py_func) == fingerprint(outer.py_func)
    assert len(fingerprint(branch.py_func)) == 64


def test_a_changed_constant_changes_the_fingerprint() -> None:
    assert fingerprint(with_globals(inner.py_func, STEP=2)) != fingerprint(inner.py_func)


def test_a_changed_kernel_changes_the_fingerprint_of_its_callers() -> None:
    @compiled
    def other(x):  # type: ignore[no-untyped-def]
        return x - STEP

    assert fingerprint(with_globals(outer.py_func, inner=other)) != fingerprint(outer.py_func)


def test_a_kernel_two_files_away_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    # branch (pairs) calls tighten (levels), which calls best_sum (partners).
    before = fingerprint(branch.py_func)
    monkeypatch.setitem(tighten.py_func.__globals__, "best_sum", offer)
    assert fingerprint(branch.py_func) != before


def test_how_a_kernel_is_compiled_counts() -> None:
    @compiled
    def other(x):  # type: ignore[no-untyped-def]
        return x + STEP

    other.py_func.__name__ = other.py_func.__qualname__ = "inner"
    before = fingerprint(with_globals(outer.py_func, inner=other))
    assert fingerprint(with_globals(outer.py_func, inner=compiled_sums(other.py_func))) != before


def test_a_fingerprint_is_the_same_in_another_process() -> None:
    show = "from exactk.problem.compiling import fingerprint as f; from exactk.problem.exact.pairs import branch as b; "
    shown = {
        subprocess.run(
            [sys.executable, "-c", show + "print(f(b.py_func))"],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "8")  # at which sets of words come in another order
    }
    assert len(shown) == 1


def test_a_constant_needs_no_kernel_of_its_own() -> None:
    @compiled_within
    def sum_of(x, y, more):  # type: ignore[no-untyped-def]
        return x + y if more else x

    @compiled
    def sums(x):  # type: ignore[no-untyped-def]
        return sum_of(x, 1, True) + sum_of(0, x, False) + sum_of(2, 3, x > 1)

    assert sums(4) == 10
    assert len(sum_of.overloads) == 1


def test_python_cannot_call_what_is_for_kernels_alone() -> None:
    @compiled_within
    def one_more(x):  # type: ignore[no-untyped-def]
        return x + 1

    @compiled
    def two_more(x):  # type: ignore[no-untyped-def]
        return one_more(x) + 1

    for _ in range(2):  # not compiled yet, and compiled
        with pytest.raises(TypeError, match="one_more is compiled for kernels alone"):
            one_more(1)
        assert two_more(1) == 3


def test_every_kernel_of_the_search_is_compiled_twice_at_most() -> None:
    shelf = a_shelf(0, ("row",), 6, 3, True, True)
    node, pair = shelf.node[None], np.zeros((1, 6, 6))
    for asked in (Requests.of(complete_graph(6)[None], 3), shelf.requests()):
        assert cliques.best(asked, node, pair).optimal[0]
    for module in pkgutil.iter_modules(exact.__path__):
        for name, kernel in vars(import_module(f"{exact.__name__}.{module.name}")).items():
            assert len(getattr(kernel, "overloads", ())) <= 2, f"{name}: {list(kernel.overloads)}"
