"""`reproduce curves`: validation figures epoch by epoch, with and without hill climbing and policy sampling.

Knows which rows of the ablation stand for which curve; nothing is trained for the picture alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from exactk_lab.bench.report import Report
from exactk_lab.reproduce.cells import Cell, Options, Result, run_cells
from exactk_lab.reproduce.sources import Place

COLUMN = "k4-n20"
CURVES = {
    "RL, no hill climbing": "ablation_1",
    "RL, hill climbing": "ablation_2",
    "SL, no policy sampling": "ablation_3",
    "SL, policy sampling": "ablation_4",
    "RLfD, preset paper": "paper",
    "preset best-ids": "best_ids",
}


def run(place: Place, options: Options) -> Report:
    """A row per curve and epoch: mean and spread over seeds."""
    place.need(COLUMN)
    chosen = {name: method for name, method in CURVES.items() if method != "best_ids" or not options.quick}
    found = run_cells([Cell(COLUMN, method) for method in chosen.values()], place, options)
    rows = [row for name, method in chosen.items() for row in _epochs(name, found[COLUMN, method])]
    notes = ["Figures are of validation requests carved out of train; the reward is the learned estimator's."]
    return Report("reproduce curves", rows, (), notes, options.seeds, options.quick)


def _epochs(name: str, result: Result) -> list[dict[str, Any]]:
    runs = [header["chosen"]["curve"] for header in result.headers]
    rows = []
    for epoch in range(min(map(len, runs), default=0)):
        row: dict[str, Any] = {"curve": name, "epoch": epoch + 1}
        for figure, short in (("precision", "P"), ("hit_ratio", "HR"), ("reward", "reward")):
            values = [run[epoch][figure] for run in runs if figure in run[epoch]]
            if values:
                row[short] = float(np.mean(values))
                row[f"{short}_sd"] = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
        rows.append(row)
    return rows
