"""A comparison as `exactk compare --keep` wrote it, read back.

Knows no table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from exactk.evaluation.offpolicy import Estimate, Support
from exactk.evaluation.significance import Interval
from exactk.evaluation.table import Comparison, Row

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
