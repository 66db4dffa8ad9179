"""A comparison as `exactk compare --keep` wrote it, read back, and what it was promised to show on our worlds.

Knows no table, and nothing of how comparisons are made; other data have a table and no goals.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from exactk.evaluation.offpolicy import Estimate, Support
from exactk.evaluation.significance import Interval
from exactk.evaluation.table import Comparison, Row
from exactk_lab.bench.report import Goal

INTERVALS = ("precision", "hit_ratio", "whole_card", "value", "share_of_optimum", "difference")


def comparison_of(document: Mapping[str, Any]) -> Comparison:
    """What `Comparison.as_dict` wrote."""
    names = ("skipped", "headline", "strongest_rival", "optimum", "facts")
    return Comparison(
        rows=tuple(_row(row) for row in document["rows"]),
        seeds=tuple(document["seeds"]),
        **{name: document[name] for name in names},
    )


def _row(document: Mapping[str, Any]) -> Row:
    values = {"weighed": None, **document}
    for name in INTERVALS:  # tables of before 0.2 know no whole cards
        values[name] = _interval(document.get(name))
    for name in ("train_seconds", "ms_per_card", "ms_alone", "coverage"):
        values[name] = np.nan if document[name] is None else document[name]
    values["estimates"] = {kind: _estimate(held) for kind, held in document["estimates"].items()}
    return Row(**values)


def _estimate(document: Mapping[str, Any]) -> Estimate:
    weight = np.nan if document["mean_weight"] is None else document["mean_weight"]
    support = Support(
        document["logged"],
        document["matched"],
        document["effective_samples"],
        weight,
        document["reason"] or "",
    )
    return Estimate(document["estimator"], _interval(document["interval"]), support)


def _interval(held: Mapping[str, float] | None) -> Interval | None:
    return None if held is None else Interval(**held)


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
