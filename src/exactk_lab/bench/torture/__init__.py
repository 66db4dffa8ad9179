"""Hostile inputs at every door, counted: hangs, raw tracebacks, wrong cards. None of them may be above 0.

A door is a name and a list of trials; each trial runs in a process of its own pool and is ended when it takes too long.
Register a further door in `DOORS`: a function that yields trials.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from exactk.serving.model.warming import warm_engine
from exactk_lab.bench.report import Goal, Report
from exactk_lab.bench.torture import asking, building, files, folders, http_door, python_door, rules, ties

SECONDS = 20.0  # after which a trial counts as hung: each should take milliseconds

# name -> trials(seed, number): pairs of a function that runs in another process and what it is given. The function
# returns "" or what went wrong, and raises only where exactk let something through that is none of its own errors.
Trials = Iterator[tuple[Callable[..., str], tuple[Any, ...]]]
DOORS: dict[str, Callable[[int, int], Trials]] = {
    "python": python_door.trials,
    "rules": rules.trials,
    "files": files.trials,
    "logs to be built": building.trials,
    "requests": asking.trials,
    "command line": files.commands,
    "model folders": folders.models,
    "log folders": folders.logs,
    "service logs": folders.service_logs,
}
NUMBERS = {
    "python": 20_000,
    "rules": 12_000,
    "files": 4_000,
    "logs to be built": 3_000,
    "requests": 3_000,
    "command line": 300,
    "model folders": 300,
    "log folders": 300,
    "service logs": 300,
}


@dataclass
class DoorCounts:
    """What came of the trials of one door."""

    tried: int = 0
    hangs: int = 0
    tracebacks: int = 0
    wrong: int = 0
    first: str = ""

    def note(self, kind: str, detail: str) -> None:
        """Count a trial that went wrong; the first is kept in words."""
        setattr(self, kind, getattr(self, kind) + 1)
        self.first = self.first or detail[:500]


def run(quick: bool = False, seed: int = 0) -> Report:
    """A row per door; quick tries a thirtieth."""
    rows = []
    for door, trials in DOORS.items():
        counts = tortured(trials(seed, max(6, NUMBERS[door] // (30 if quick else 1))))
        rows.append({"door": door, **vars(counts)})
    total = {kind: sum(row[kind] for row in rows) for kind in ("hangs", "tracebacks", "wrong")}
    goals = [Goal(f"{kind} over all doors", float(count), 0.0, "most") for kind, count in total.items()]
    alike = ties.row(quick, seed)
    served = http_door.doors(quick)
    goals += [*ties.goals(alike), *http_door.goals(served)]
    return Report("torture", [*rows, alike, *served], goals, seeds=[seed], quick=quick)


def tortured(trials: Trials) -> DoorCounts:
    """Run trials one after another in a child; one that hangs costs the child its life, not the others theirs."""
    counts = DoorCounts()
    with tempfile.TemporaryDirectory(prefix="exactk-torture-") as scratch:
        worker = TrialWorker(scratch)
        try:
            for function, given in trials:
                counts.tried += 1
                kind, detail = worker.ask(function, given)
                if kind:
                    counts.note(kind, f"{function.__name__}{given!r:.300}: {detail}")
        finally:
            worker.end()
    return counts


class TrialWorker:
    """A child process that runs trials; replaced when one hangs or kills it. What it leaves, it leaves in `scratch`."""

    def __init__(self, scratch: str) -> None:
        self.scratch = scratch
        self.process: Any = None

    def ask(self, function: Callable[..., str], given: tuple[Any, ...]) -> tuple[str, str]:
        """(what to count it as, why), both empty where all went well."""
        if self.process is None:
            spawn = multiprocessing.get_context("spawn")
            self.pipe, theirs = spawn.Pipe()
            self.process = spawn.Process(target=_serve, args=(theirs, self.scratch), daemon=True)
            self.process.start()
            theirs.close()
            self.pipe.recv()  # ready: starting up is not part of a trial
        self.pipe.send((function, given))
        if not self.pipe.poll(SECONDS):
            self.end()
            return "hangs", f"no answer in {SECONDS:g} s"
        try:
            answer: tuple[str, str] = self.pipe.recv()
        except EOFError:
            self.end()
            return "tracebacks", "the process died"
        return answer

    def end(self) -> None:
        """Stop the child, whatever it does."""
        if self.process is not None:
            self.process.kill()
            self.process.join()
            self.pipe.close()
            self.process = None


def _serve(pipe: Connection, scratch: str) -> None:
    tempfile.tempdir = scratch
    warm_engine()  # compile what trials run, so that no trial is charged for it
    warnings.simplefilter("error", RuntimeWarning)  # a sum that overflowed unseen
    pipe.send("ready")
    while True:
        try:
            function, given = pipe.recv()
        except EOFError:
            return
        try:
            wrong = function(*given)
            pipe.send(("wrong", wrong) if wrong else ("", ""))
        except BaseException as error:  # whatever came through is what is counted
            pipe.send(("tracebacks", f"{type(error).__name__}: {error}"))
