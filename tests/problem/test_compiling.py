"""The disk cache of compiled kernels notices changes in what a kernel calls."""

from __future__ import annotations

from types import FunctionType

from exactk.problem.compiling import compiled, fingerprint
from exactk.problem.exact import partners as clique_partners
from exactk.problem.exact import ranking as clique_ranking
from exactk.problem.exact.pairs import branch

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


def test_a_kernel_two_files_away_counts() -> None:
    # branch (clique_pairs) calls tighten (clique_partners), which calls sweep.
    before = fingerprint(branch.py_func)
    kept = clique_partners.tighten.py_func.__globals__["sweep"]
    try:
        clique_partners.tighten.py_func.__globals__["sweep"] = clique_ranking.offer
        assert fingerprint(branch.py_func) != before
    finally:
        clique_partners.tighten.py_func.__globals__["sweep"] = kept
