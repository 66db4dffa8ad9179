"""`reproduce alpha`: the weight of supervision against reward, from 0 to 1.

Knows the grid; 0, 0.5 and 1 are rows of the ablation and are not run twice.
"""

from __future__ import annotations

from exactk_lab.bench.report import Report
from exactk_lab.reproduce.cells import Cell, Options, figures, run_cells
from exactk_lab.reproduce.sources import Place

COLUMN = "k4-n20"
GRID = {
    0.0: "ablation_2", 0.25: "alpha_025", 0.5: "paper", 0.75: "alpha_075", 0.9: "alpha_09", 1.0: "ablation_4",
}  # fmt: skip
SEEDS = (0, 1)


def run(place: Place, options: Options) -> Report:
    """A row per alpha."""
    place.need(COLUMN)
    seeds = options.seeds[: len(SEEDS)]
    found = run_cells([Cell(COLUMN, method, seeds) for method in GRID.values()], place, options)
    rows = [{"alpha": alpha, **figures(found[COLUMN, method])} for alpha, method in GRID.items()]
    rows = [row for row in rows if "P" in row]
    return Report("reproduce alpha", rows, (), (), seeds, options.quick)
