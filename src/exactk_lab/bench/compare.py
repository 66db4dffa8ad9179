"""What a comparison was promised to show on our worlds; other data have a table and no goals.

Knows finished comparisons, nothing of how they are made.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from exactk.evaluation.table import Comparison, Row
from exactk_lab.bench.report import Goal

POLICY, VALUE = "GAttN + RLfD", "pair value + exact"
SURE = 0.01
WITHIN = 0.99  # at strength 0, of the best rival's true value


def goals(found: Comparison) -> list[Goal]:
    """With pairs that matter, ours beat every rival; without, ours lose nothing; with themes, the policy holds up."""
    world: Mapping[str, Any] | None = found.facts.get("world")
    ours = {name: row for name in (POLICY, VALUE) for row in found.rows if _is_ours(row, name)}
    if world is None or found.strongest_rival is None or not ours:
        return []
    rival = _value(found.row(found.strongest_rival))
    if world["theme"] > 0:
        if len(ours) < 2:
            return []
        ratio = _value(ours[POLICY]) / _value(ours[VALUE])
        return [
            Goal(f"true value of {POLICY} over that of {VALUE}, three-way effect on", ratio, 1.0, "least")
        ]
    if world["strength"] == 0:
        return [
            Goal(
                f"true value of {way} over the best rival's, strength 0", _value(row) / rival, WITHIN, "least"
            )
            for way, row in ours.items()
        ]
    best = max(ours.values(), key=_value)
    p_value = 1.0 if best.p_value is None or _value(best) <= rival else best.p_value
    return [Goal(f"p of {best.way} above every rival in true value", p_value, SURE, "most")]


def _is_ours(row: Row, name: str) -> bool:
    """Also where it was trained elsewhere and came as a model folder of that name."""
    return row.kind in ("ours", "yours") and row.way.startswith(name) and row.value is not None


def _value(row: Row) -> float:
    return math.nan if row.value is None else row.value.estimate
