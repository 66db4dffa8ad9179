"""A rival in a process of its own, so that it can be stopped: some overrun their own time limit by minutes.

Knows no formulation (`exact_rivals.py`) and no measurement (`exact.py`).
"""

from __future__ import annotations

from multiprocessing import get_context
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any

import numpy as np

from exactk.errors import ExactKError
from exactk_lab.bench.solving.brief_instances import BriefInstance
from exactk_lab.bench.solving.brief_rivals import BRIEF_RIVALS
from exactk_lab.bench.solving.exact_rivals import RIVALS, Instance, SolverOutcome

KNOWN: dict[str, Any] = RIVALS | {f"brief, {name}": rival for name, rival in BRIEF_RIVALS.items()}
GRACE = 1.0  # seconds a solver may take to notice its own limit, on top of a tenth of it


class Ring:
    """Where rivals fight, one at a time; a context manager that leaves no process behind."""

    def __init__(self) -> None:
        self._start()

    def __enter__(self) -> Ring:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def solve(self, name: str, instance: Instance | BriefInstance, limit: float) -> SolverOutcome:
        """What the rival says. It builds its model at leisure, then has until the limit and a little grace."""
        self._line.send((name, instance, limit))
        try:
            self._line.recv()  # the model is built
            if self._line.poll(1.1 * limit + GRACE):
                outcome: SolverOutcome = self._line.recv()
                return outcome
        except (EOFError, OSError):
            raise ExactKError(
                f"the process of {name} ended on a request of {len(instance.node)} candidates; a script that "
                "calls this must do so under `if __name__ == '__main__':`, as its main file is loaded there again"
            ) from None
        self._stop()
        self._start()
        return SolverOutcome("limit", -np.inf, np.inf, limit)

    def _start(self) -> None:
        context = get_context("spawn")
        self._line, other = context.Pipe()
        self._process = context.Process(target=serve, args=(other,), daemon=True)
        self._process.start()
        other.close()

    def _stop(self) -> None:
        self._process.kill()
        self._process.join()
        self._line.close()


def serve(line: Connection) -> None:
    """Solve what comes down the line, until nobody is at its other end."""
    while True:
        try:
            name, instance, limit = line.recv()
        except EOFError:
            return
        solve = KNOWN[name](instance, limit)
        line.send("ready")
        line.send(solve())
