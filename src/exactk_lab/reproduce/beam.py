"""`reproduce beam`: width of the beam against P@K, HR@K and milliseconds; no training of its own.

Knows that the main table's runs judged every width on the same weights.
"""

from __future__ import annotations

from exactk_lab.bench.report import Report
from exactk_lab.reproduce.cells import Cell, Options, figures, label, run_cells
from exactk_lab.reproduce.methods import BEAMS
from exactk_lab.reproduce.sources import Place

COLUMN = "k4-n20"
METHODS = ("paper", "best_ids")


def run(place: Place, options: Options) -> Report:
    """A row per width, for the paper's setting and ours."""
    place.need(COLUMN)
    methods = METHODS[:1] if options.quick else METHODS
    found = run_cells([Cell(COLUMN, method) for method in methods], place, options)
    rows = [
        {"method": label(method), "beam": width, **figures(found[COLUMN, method], f"beam {width}")}
        for method in methods
        for width in BEAMS
    ]
    for row in rows:
        row.pop("train_seconds", None)
    rows = [row for row in rows if "P" in row]
    notes = [
        "Milliseconds: eager PyTorch, batches of 256, one thread, beside other jobs; compare widths, not machines."
    ]
    return Report("reproduce beam", rows, (), notes, options.seeds, options.quick)
