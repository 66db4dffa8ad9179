"""The one shape of a benchmark's result: rows measured, goals met or missed, the machine that ran it; and of a table.

Knows no benchmark.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from exactk.evaluation import this_machine


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
    machine: dict[str, Any] = field(default_factory=this_machine)

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


def table(heads: str, lines: Iterable[str]) -> str:
    """Markdown of cells parted by " | "; a head that begins with ">" is of figures, which stand to the right.

    >>> print(table("K | >ms", ["4 | 0.3"]))
    | K | ms |
    |---|---:|
    | 4 | 0.3 |
    """
    names = heads.split(" | ")
    rule = "|".join("---:" if name.startswith(">") else "---" for name in names)
    head = " | ".join(name.removeprefix(">") for name in names)
    return "\n".join([f"| {head} |", f"|{rule}|", *(f"| {line} |" for line in lines)])
