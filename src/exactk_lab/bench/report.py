"""The one shape of a benchmark's result: rows measured, goals met or missed, the machine that ran it.

Knows no benchmark.
"""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

PACKAGES = ("exactk", "numpy", "numba", "torch", "pyarrow", "ortools", "scipy", "networkx")


@dataclass(frozen=True)
class Goal:
    """A figure promised beforehand, and what was measured; `at` says on which side of it the promise is kept."""

    name: str
    measured: float
    goal: float
    at: Literal["most", "least"]

    @property
    def met(self) -> bool:
        """A NaN measurement meets nothing."""
        return self.measured <= self.goal if self.at == "most" else self.measured >= self.goal

    def as_dict(self) -> dict[str, Any]:
        """JSON form; the sense of the goal is part of its text."""
        sign = "<=" if self.at == "most" else ">="
        return {
            "name": self.name,
            "measured": self.measured,
            "goal": f"{sign} {self.goal:g}",
            "met": self.met,
        }


@dataclass(frozen=True)
class Report:
    """What a benchmark or experiment returns; `as_dict` is what `--json` prints and what `results/` keeps."""

    name: str
    rows: Sequence[dict[str, Any]]
    goals: Sequence[Goal] = ()
    notes: Sequence[str] = ()
    seeds: Sequence[int] = ()
    quick: bool = False
    machine: dict[str, Any] = field(default_factory=lambda: this_machine())

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values only."""
        return {
            "name": self.name,
            "quick": self.quick,
            "rows": list(self.rows),
            "goals": [goal.as_dict() for goal in self.goals],
            "notes": list(self.notes),
            "seeds": list(self.seeds),
            "machine": self.machine,
        }


def this_machine() -> dict[str, Any]:
    """Cores, versions and commit: enough to know what a number was measured on."""
    return {
        "cores": os.cpu_count(),
        "processor": platform.machine(),
        "python": platform.python_version(),
        "versions": {name: version for name in PACKAGES if (version := _version(name))},
        "commit": _commit(),
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _commit() -> str | None:
    """The checkout's commit, with a plus sign where the tree has changes; None outside a checkout."""
    here = Path(__file__).parent
    try:
        head = subprocess.run(
            ["git", "describe", "--always", "--dirty=+", "--exclude=*"],
            cwd=here, capture_output=True, text=True, timeout=10, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return head.stdout.strip()
