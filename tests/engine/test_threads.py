"""Work shared by threads: every piece is done once, the caller works too, helpers stay off its core."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, no_type_check

import numpy as np
import pytest

from exactk.engine.lanes import take_next
from exactk.problem.compiling import compiled, current_core, shared

PIECES = 200_000


@compiled
@no_type_check
def marked(counter, marks):
    """How many pieces this thread took; each leaves a mark."""
    own, piece = 0, take_next(counter, 0)
    while piece < len(marks):
        marks[piece] += 1
        own += 1
        piece = take_next(counter, 0)
    return own


def test_every_piece_is_taken_by_one_thread() -> None:
    counter, marks = np.zeros(1, np.int64), np.zeros(PIECES, np.int64)
    taken_by = shared(3, lambda _: marked(counter, marks))
    assert sum(taken_by) == PIECES
    assert (marks == 1).all()


def test_one_thread_is_the_caller_alone() -> None:
    assert shared(1, lambda number: (number, threading.current_thread())) == [(0, threading.current_thread())]


def test_an_error_of_a_helper_reaches_the_caller() -> None:
    begun = threading.Event()

    def work(number: int) -> Any:
        if number:
            begun.set()
            raise ValueError("of a helper")
        return begun.wait(60)

    with pytest.raises(ValueError, match="of a helper"):
        shared(2, work)


@pytest.mark.skipif(current_core() < 0, reason="this system does not say on which core a thread runs")
def test_a_helper_runs_on_another_core_than_the_caller() -> None:
    cores, begun = os.sched_getaffinity(0), threading.Event()
    if len(cores) < 2:
        pytest.skip("there is only one core")
    core = min(cores)

    def work(number: int) -> Any:
        if number:
            begun.set()
            return os.sched_getaffinity(0)
        return begun.wait(60)

    def call() -> Any:
        os.sched_setaffinity(0, {core})  # of this thread alone
        return shared(2, work)[1]

    with ThreadPoolExecutor(1) as caller:
        helper = caller.submit(call).result()
    assert core not in helper
    assert helper < cores
