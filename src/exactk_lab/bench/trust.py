"""Off-policy estimates beside the truth they estimate: many logs of a world, drawn over and over.

Knows no estimator: `evaluation.trust` draws and counts.
"""

from __future__ import annotations

from typing import Any

from exactk_lab.bench.report import Goal, Report
from exactk_lab.trust import offpolicy_check

# name -> settings of `offpolicy_check`: a short and a long log, one without interactions, one with larger cards.
CASES: dict[str, dict[str, Any]] = {
    "K=2 of N=8, 4,000 requests": {"requests": 4_000, "rounds": 60},
    "K=2 of N=8, 20,000 requests": {"requests": 20_000, "rounds": 40},
    "K=2 of N=8, 4,000 requests, items add up": {"requests": 4_000, "rounds": 60, "strength": 0.0},
    "K=4 of N=14, 4,000 requests": {"requests": 4_000, "rounds": 20, "n": 14, "k": 4},
}
QUICK: dict[str, dict[str, Any]] = {"K=2 of N=8, 1,500 requests": {"requests": 1_500, "rounds": 12}}
SHOWN = ("ips", "snips", "dr")  # the estimators a comparison shows
FEWEST = 20  # answers, before a share of them says anything
COVERED = 0.9  # of intervals that promise 95%


def run(quick: bool = False) -> Report:
    """A row per log, policy and estimator; goals on the estimators a comparison shows, where they answered."""
    rows = [
        {"case": case, **row}
        for case, settings in (QUICK if quick else CASES).items()
        for row in offpolicy_check(**settings)
    ]
    answered = [row for row in rows if row["estimator"] in SHOWN and answers(row) >= (1 if quick else FEWEST)]
    covered = min((row["coverage"] for row in answered), default=float("nan"))
    biased = max((abs(row["bias"]) / row["true_value"] for row in answered), default=float("nan"))
    goals = [
        Goal(
            "least share of 95% intervals that hold the truth, where the check answers",
            covered,
            COVERED,
            "least",
        ),
        Goal("largest bias over the true value, where the check answers", biased, 0.05, "most"),
    ]
    return Report("bench-trust", rows, goals, seeds=[0], quick=quick)


def answers(row: dict[str, Any]) -> int:
    """The number of logs for which an estimate was given."""
    return round((1 - float(row["refused"])) * int(row["rounds"]))
