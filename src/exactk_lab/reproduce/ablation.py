"""`reproduce ablation`: the seven rows of the paper's Table 2, then rows for our own options.

Knows which settings make which row.
"""

from __future__ import annotations

from typing import Any

from exactk.settings.presets import ABLATIONS
from exactk_lab.bench.report import Report
from exactk_lab.reproduce import methods, paper
from exactk_lab.reproduce.cells import Cell, Options, difference, figures, left_out, run_cells
from exactk_lab.reproduce.sources import Place

COLUMN = "k4-n20"
ROWS = ("ablation_1", "ablation_2", "ablation_3", "ablation_4", "ablation_5", "ablation_6", "paper")
# Ours, each one step away from the row before it; fewer seeds, because they explain and do not compete.
OWN = {
    "own_clicked": "the clicked item as target of every step",
    "own_loo": "and rewards against the other samples (leave one out)",
    "own_adversarial": "row 7, its reward a discriminator of logged clicked cards and the policy's own",
    "own_group": "row 7 with a pair value, its 16 best cards and the samples as one group's targets",
    "own_affinity_16": "the clicked item alone, and <p_u, q_i> of rank 16 in the scores",
    "own_affinity_128": "rank 128, decayed, twenty times as fast as the network",
    "own_smoothed": "and 0.3 of each target given to all candidates, along the shown cards",
    "own_likings": "the likings of row 13 alone, without a network",
    "best_ids": "preset best-ids: row 13 with a memory of single pairs instead of the likings",
    "own_memory": "the memory of row 15 and a bias of each item, without a network",
}
OWN_SEEDS = (0, 1)
ALL_SEEDS = ("best_ids", "own_likings", "own_memory")


def run(place: Place, options: Options) -> Report:
    """Rows 1 to 7 beside the paper's, the first step's top K of row 7, then our own."""
    place.need(COLUMN)
    quick = options.quick
    ours = list(OWN)[:1] if quick else list(OWN)
    cells = [Cell(COLUMN, name) for name in ROWS]
    seeds = options.seeds[:1] if quick else OWN_SEEDS
    cells += [Cell(COLUMN, name, None if name in ALL_SEEDS else seeds) for name in ours]
    found = run_cells(cells, place, options)
    rows: list[dict[str, Any]] = []
    last = found[COLUMN, "paper"]
    for number, (name, title) in enumerate(zip(ROWS, ABLATIONS, strict=True)):
        result = found[COLUMN, name]
        row: dict[str, Any] = {"row": number + 1, "setting": title, **figures(result)}
        row["paper_P"], row["paper_HR"] = paper.ABLATION[number]
        if result is not last and result.ways and last.ways:
            row["row_7_minus_this"] = difference(last, result)
        rows.append(row)
    rows.append(
        {"row": 8, "setting": "row 7, top K of the first step's scores", **figures(last, "first step")}
    )
    for number, name in enumerate(ours):
        settings = list(getattr(getattr(methods, name), "overrides", ()))
        rows.append(
            {"row": 9 + number, "setting": OWN[name], "overrides": settings, **figures(found[COLUMN, name])}
        )
    notes = [
        *left_out(rows, "setting"),
        "Rows 1 to 7 are preset `paper` with the overrides of presets.ABLATIONS; epochs are chosen on validation P@4.",
        "Each row names its own seeds: rows that explain and do not compete have fewer.",
    ]
    measured = [row for row in rows if "P" in row]
    return Report("reproduce ablation", measured, (), notes, options.seeds, quick)
