"""Types of what callers bring, for type checkers alone: at run time all of it is read, and refused in words.

Knows no reading; `problem/reading.py` does that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    import numpy as np

    from exactk.problem.rules.rule_set import Constraint, Constraints

    Scores = Sequence[float] | np.ndarray[tuple[int], np.dtype[Any]]  # of one request
    ScoresOfMany = Sequence[Sequence[float]] | np.ndarray[tuple[int, int], np.dtype[Any]]
    CardSize = int | np.integer[Any]
    Matrix = Sequence[Sequence[float]] | np.ndarray[Any, np.dtype[Any]]
    Matrices = Matrix | Sequence[Matrix]
    Rules = Constraints | Constraint | Sequence[Constraint] | AbstractSet[Constraint] | None
    Ids = Sequence[Any] | AbstractSet[Any] | np.ndarray[Any, np.dtype[Any]]
    RelaxOrder = Sequence[str | Constraint]
else:
    Scores = ScoresOfMany = CardSize = Matrix = Matrices = Rules = Ids = RelaxOrder = Any


class SolveOptions(TypedDict, total=False):
    """Options of `solve` that do not change the type of its answer."""

    constraints: Rules
    allowed: Matrices | None
    include: Ids | Mapping[Any, Ids] | None
    exclude: Ids | Mapping[Any, Ids] | None
    relax: RelaxOrder | str | Constraint
    explain: bool
    time_limit: float | None
