"""The comparison as a picture: value against latency, ours apart from the rivals.

Knows figures only; matplotlib is asked for when a picture is drawn.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from exactk.errors import MissingExtraError
from exactk.evaluation.table import HEADLINES, Comparison

COLOURS = {"ours": "#c2410c", "yours": "#c2410c", "rival": "#475569", "probe": "#cbd5e1"}


def value_against_latency(found: Comparison, path: Path | str) -> Path:
    """Headline figure with its 95% interval over milliseconds a card (a request by itself), to a PNG, PDF or SVG."""
    figure = _figure()
    axes = figure.subplots()
    rows = [row for row in found.rows if row.kind != "probe"]
    for row in rows:
        interval = found.headline_of(row)
        spread = [[interval.estimate - interval.low], [interval.high - interval.estimate]]
        axes.errorbar(
            row.ms_alone, interval.estimate, yerr=spread, fmt="o", color=COLOURS[row.kind],
            markersize=7 if row.kind in ("ours", "yours") else 5, capsize=2, elinewidth=1,
        )  # fmt: skip
    for row, height in zip(rows, _apart([found.headline_of(row).estimate for row in rows]), strict=True):
        weight = "bold" if row.kind in ("ours", "yours") else "normal"
        axes.annotate(
            row.way, (row.ms_alone, found.headline_of(row).estimate), xytext=(6, height), fontsize=7,
            textcoords="offset points", color=COLOURS[row.kind], weight=weight,
        )  # fmt: skip
    if found.optimum is not None and found.headline == "value":
        axes.axhline(found.optimum, color="#94a3b8", linewidth=1, linestyle="--")
        axes.annotate("exact optimum", (1, found.optimum), xycoords=("axes fraction", "data"), ha="right", fontsize=7,
                      xytext=(0, 3), textcoords="offset points", color="#64748b")  # fmt: skip
    axes.set_xscale("log")
    axes.set_xlabel("milliseconds for one request (log scale)")
    axes.set_ylabel(HEADLINES[found.headline])
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(visible=True, alpha=0.25)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    return Path(path)


def _apart(heights: list[float]) -> list[float]:
    """Label offsets that keep the names of near-equal points from lying on each other: up, down, in turns."""
    order = sorted(range(len(heights)), key=lambda i: heights[i])
    offsets = [0.0] * len(heights)
    for place, i in enumerate(order):
        offsets[i] = 4.0 if place % 2 else -9.0
    return offsets


def _figure() -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("plots need matplotlib: pip install 'exactk[plot]'") from error
    return Figure(figsize=(8, 5), dpi=150, layout="constrained")
