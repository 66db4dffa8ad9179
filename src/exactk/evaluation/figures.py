"""The comparison as a picture: value against latency, ours apart from the rivals.

Knows figures only; matplotlib is asked for when a picture is drawn.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from exactk.errors import MissingExtraError
from exactk.evaluation.table import HEADLINES, Comparison, Row

NAME_HEIGHT = 0.036  # of a name, as a part of the plot's height
COLOURS = {"ours": "#c2410c", "yours": "#c2410c", "rival": "#475569", "probe": "#cbd5e1"}


def value_against_latency(found: Comparison, path: Path | str) -> Path:
    """The best way of every method: headline figure with its 95% interval over milliseconds for one request alone.

    Written as PNG, PDF or SVG, by the path's ending.
    """
    figure = _figure()
    axes = figure.subplots()
    best = {row.method: row for row in reversed(found.rows) if row.kind != "probe"}
    rows = [row for row in found.rows if row is best.get(row.method)]
    for row in rows:
        interval = found.headline_of(row)
        spread = [[interval.estimate - interval.low], [interval.high - interval.estimate]]
        axes.errorbar(
            row.ms_alone, interval.estimate, yerr=spread, fmt="o", color=COLOURS[row.kind],
            markersize=7 if row.kind in ("ours", "yours") else 5, capsize=2, elinewidth=1,
        )  # fmt: skip
    if found.optimum is not None and found.headline == "value":
        axes.axhline(found.optimum, color="#94a3b8", linewidth=1, linestyle="--")
        axes.annotate("exact optimum", (1, found.optimum), xycoords=("axes fraction", "data"), ha="right", fontsize=7,
                      xytext=(0, 3), textcoords="offset points", color="#64748b")  # fmt: skip
    _names(axes, found, rows)  # last: they stand by the limits of the plot
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("milliseconds for one request (log scale)")
    axes.set_ylabel(HEADLINES[found.headline])
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(visible=True, alpha=0.25)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    return Path(path)


def _names(axes: Any, found: Comparison, rows: list[Row]) -> None:
    """The names in a column beside the plot, in the order of their points, each with a thin line to its own."""
    axes.set_xscale("log")
    low, high = axes.get_ylim()
    points = [found.headline_of(row).estimate for row in rows]
    heights = spread_out([(point - low) / (high - low) for point in points], NAME_HEIGHT)
    for row, point, height in zip(rows, points, heights, strict=True):
        ours = row.kind in ("ours", "yours")
        axes.annotate(
            row.way, (row.ms_alone, point), xytext=(1.03, height), textcoords="axes fraction", fontsize=8,
            va="center", color=COLOURS[row.kind], weight="bold" if ours else "normal",
            arrowprops={"arrowstyle": "-", "color": COLOURS[row.kind], "alpha": 0.6 if ours else 0.2, "linewidth": 0.6,
                        "shrinkA": 2, "shrinkB": 3, "relpos": (0, 0.5)},
        )  # fmt: skip


def spread_out(heights: list[float], gap: float) -> list[float]:
    """Heights, highest first, moved as little as keeps `gap` between neighbours; none below zero if they fit.

    >>> spread_out([0.9, 0.89, 0.1], 0.05)
    [0.9, 0.85, 0.1]
    """
    found: list[float] = []
    for height in heights:
        found.append(min(height, found[-1] - gap) if found else height)
    floor = 0.0
    for place in reversed(range(len(found))):
        found[place] = max(found[place], floor)
        floor = found[place] + gap
    return found


def _figure() -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("plots need matplotlib: pip install 'exactk[plot]'") from error
    return Figure(figsize=(9, 6), dpi=150, layout="constrained")
