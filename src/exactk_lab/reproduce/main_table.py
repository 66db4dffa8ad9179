"""`reproduce main`: the paper's Table 1 on its own files, with the rows and columns it lacks.

Knows which methods stand on which data, and the goals set beforehand.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from exactk.evaluation.judging import TrueValues
from exactk_lab.bench.report import Goal, Report
from exactk_lab.reproduce import paper
from exactk_lab.reproduce.cells import (
    Cell,
    Options,
    Result,
    best_of,
    difference,
    figures,
    label,
    left_out,
    run_cells,
)
from exactk_lab.reproduce.sources import COLUMNS, Place, source

PAPERS_OWN = ("deeprank", "bpr", "listwise-gru", "listwise-mhsa", "paper")
PROBES = ("least-seen",)
CONTROLS = ("own_memory",)  # a part of ours without the rest of it: what the rest adds
FACTORS = ("mf-softmax", "mf_tuned")  # as in `exactk compare`, and as large and as long tuned as our likings

# The methods of each column, the one that is ours to win with first.
METHODS: dict[str, tuple[str, ...]] = {
    "k4-n20": (
        "best_ids", "own_memory", "own_likings", *PAPERS_OWN, "pair_value", *FACTORS, "popularity", "least-seen",
    ),
    "k10-n50": (
        "best_ids", "own_memory", "own_likings", *PAPERS_OWN, "pair_value", *FACTORS, "popularity", "least-seen",
    ),
    "leak-free": (
        "best_graded", "best_ids", *PAPERS_OWN, "mf_graded", *FACTORS, "popularity", "least-seen",
    ),
    "world": ("guided", *PAPERS_OWN, "pair_value", "mf-softmax", "popularity"),
}  # fmt: skip
QUICK = ("paper", "mf-softmax", "popularity", "least-seen")
COUNTED_ONCE = ("popularity", "least-seen")  # nothing random in them: one seed is all seeds

# (column, figure, goal): set before anything was measured.
GOALS = (
    ("k4-n20", "P", 0.55),
    ("k4-n20", "HR", 0.272),
    ("k10-n50", "P", 0.53),
    ("k10-n50", "HR", 0.228),
)
OVER_POPULARITY = 1.12
SURE = 0.01


def run(place: Place, options: Options) -> Report:
    """Every column whose data the user gave."""
    columns = [column for column in COLUMNS if place.has(column)]
    if not columns:
        place.need("k4-n20")
    cells = [
        Cell(column, method, (0,) if method in COUNTED_ONCE else None)
        for column in columns
        for method in _methods(column, options.quick)
    ]
    found = run_cells(cells, place, options)
    rows: list[dict[str, Any]] = []
    goals: list[Goal] = []
    for column in columns:
        results = {method: found[column, method] for method in _methods(column, options.quick)}
        rows += _rows(column, results, place, options)
        goals += _goals(column, results)
    remarks = [*notes(columns), *left_out(rows, "method")]
    return Report(
        "reproduce main", [row for row in rows if "P" in row], goals, remarks, options.seeds, options.quick
    )


def _methods(column: str, quick: bool) -> tuple[str, ...]:
    methods = METHODS[column]
    return (methods[0], *(m for m in methods[1:] if m in QUICK)) if quick else methods


def _rows(column: str, results: dict[str, Result], place: Place, options: Options) -> list[dict[str, Any]]:
    """Best first; each with the paper's figure and the test against our method, where there are such."""
    ours = next(iter(results.values()))
    rows = []
    for method, result in results.items():
        row: dict[str, Any] = {"column": column, "method": label(method), "kind": kind(method)}
        row |= figures(result)
        printed = paper.MAIN.get(column, {}).get(label(method))
        if printed is not None:
            row["paper_P"], row["paper_HR"] = printed
        if result is not ours and result.ways and ours.ways:
            row["ours_minus_this"] = difference(ours, result, headline(column))
        rows.append(row)
    if column == "world":
        _add_shares(rows, results, place, options)
    return sorted(rows, key=lambda row: -row.get("value", row.get("P", -1.0)))


def headline(column: str) -> str:
    """What methods are tested by: the click found, or on a world what the card is truly worth."""
    return "value" if column == "world" else "precision"


def kind(method: str) -> str:
    """Whose it is: ours, a part of it, the paper's table, a probe of the split, or a baseline beyond the paper."""
    if method in CONTROLS:
        return "control"
    if method == "own_likings":  # plain factorisation, whoever's settings it has
        return "beyond"
    if method.startswith(("best", "own", "pair_value", "guided")):
        return "ours"
    if method in PAPERS_OWN:
        return "paper"
    return "probe" if method in PROBES else "beyond"


def _add_shares(
    rows: list[dict[str, Any]], results: dict[str, Result], place: Place, options: Options
) -> None:
    """On a world the truth is known: each method's value as a share of the exact optimum's."""
    truth = TrueValues.of(source("world", place, options.quick).views()[2])
    if truth is None:
        return
    ours = next(result for result in results.values() if result.ways)
    optimum = float(np.mean(truth.optimum(ours.ways[ours.first][0].request)))
    for row in rows:
        if "value" in row:
            row["share_of_optimum"] = row["value"] / optimum


def _goals(column: str, results: dict[str, Result]) -> list[Goal]:
    """The goals of a column, as far as the rows they speak of were run."""
    ours = next(iter(results.values()))
    if not ours.ways:
        return []
    ours_figures = figures(ours)
    goals = [
        Goal(
            f"{label(ours.cell.method)}, {column}, {'P@K' if name == 'P' else 'HR@K'}",
            ours_figures[name],
            goal,
            "least",
        )
        for at, name, goal in GOALS
        if at == column
    ]
    rivals = [r for m, r in results.items() if kind(m) in ("paper", "beyond") and r.ways]
    if rivals:
        figure = headline(column)
        strongest = best_of(rivals, figure)
        tested = difference(ours, strongest, figure)
        name = f"{column}: ahead of the best baseline ({label(strongest.cell.method)})"
        what = "true value" if figure == "value" else "P@K"
        goals.append(Goal(f"{name}, difference in {what}", tested["difference"], 0.0, "least"))
        sure = tested["p"] if tested["difference"] > 0 else 1.0  # behind, and sure of it, is not ahead
        goals.append(Goal(f"{name}, p", sure, SURE, "most"))
    popularity = results.get("popularity")
    if column == "leak-free" and popularity is not None and popularity.ways:
        gain = ours_figures["P"] / figures(popularity)["P"]
        goals.append(Goal("leak-free: P@4 over popularity's", gain, OVER_POPULARITY, "least"))
        goals.append(Goal("leak-free: p against popularity", difference(ours, popularity)["p"], SURE, "most"))
    return goals


def notes(columns: list[str]) -> list[str]:
    """What a reader must know to read the table."""
    lines = [
        "Settings were chosen on validation data carved out of train; test requests were judged with these seeds.",
        "P and HR are means over seeds; *_sd is the spread over seeds; p-values flip signs user by user.",
    ]
    if "k4-n20" in columns or "k10-n50" in columns:
        lines.append(
            "The authors' split leaks: a user's lower ratings recur in train and test, the liked item never does. The "
            "probe, which reads nothing but that, shows how much of any figure here may be memory of the split."
        )
    left_out = [COLUMNS[column] for column in COLUMNS if column not in columns]
    return [*lines, *(f"Not in this run: {what}." for what in left_out)]
