"""How value and bound of a hard request close in on each other as the time limit grows.

One random request: 200 candidates, 10 picks, nine in ten pairs allowed, all pairs scored, as in `exact.py`. By the
wall clock: beside other work the same card takes longer. `python -m exactk_lab.bench anytime`.
"""

from __future__ import annotations

from time import perf_counter
from typing import Any

from exactk.problem.solving import solve
from exactk_lab.bench.report import Report
from exactk_lab.bench.solving.exact import PAIRS, InstanceKind, instance_of

LIMITS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 20.0)
CELL = InstanceKind(PAIRS, 10, 0.9, 200)
SEED = 1


def run(quick: bool = False) -> Report:
    """A row for each limit, up to the first that is enough for the proof."""
    instance = instance_of(CELL, SEED)
    pairs = instance.pair
    assert pairs is not None
    rows: list[dict[str, Any]] = []

    def answer(limit: float) -> Any:
        return solve(
            instance.node.astype(float),
            CELL.card_size,
            pairs.astype(float),
            allowed=instance.graph,
            time_limit=limit,
        )

    answer(0.01)  # compiles
    for limit in LIMITS[:4] if quick else LIMITS:
        started = perf_counter()
        card = answer(limit)
        rows.append(
            {
                "limit_ms": 1000 * limit, "took_ms": round(1000 * (perf_counter() - started), 3), "value": card.value,
                "bound": card.bound, "gap": card.gap, "optimal": card.optimal,
            }
        )  # fmt: skip
        if card.optimal:
            break
    notes = ["one request, one run; value and bound are of the same answer, within the limit of its row"]
    return Report("anytime", rows, notes=notes, seeds=[SEED], quick=quick)
