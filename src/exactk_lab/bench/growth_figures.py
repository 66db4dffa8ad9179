"""The growth curves as one picture, drawn from a committed result; matplotlib is asked for when it is drawn.

`python -m exactk_lab.bench.growth_figures results/bench-growth.json docs/img/growth.png` draws them anew.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from exactk.errors import MissingExtraError

PANELS = (
    ("candidates", "candidates N (K=4, beam 3)"),
    ("card size", "card size K (N=200)"),
    ("beam", "beam (N=50, K=4)"),
    ("batch", "batch (N=50, K=4)"),
    ("catalogue", "items in the catalogue"),
)
COLOURS = {"a card decoded": "#c2410c", "a training step": "#1d4ed8"}


def drawn(document: dict[str, Any], path: Path) -> Path:
    """Milliseconds against each number that grows, with the middle half of the calls; memory in the last panel."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("pictures need matplotlib: pip install 'exactk[plot]'") from error
    figure = Figure(figsize=(11, 6), layout="constrained")
    axes = figure.subplots(2, 3).flat
    for axis, (what, label) in zip(axes, PANELS, strict=False):
        for of, colour in COLOURS.items():
            rows = [r for r in document["rows"] if (r["what"], r["of"]) == (what, of)]
            if rows:
                to = [r["to"] for r in rows]
                axis.plot(to, [r["ms"] for r in rows], "o-", color=colour, markersize=4, label=of)
                axis.fill_between(
                    to, [r["ms_p25"] for r in rows], [r["ms_p75"] for r in rows], color=colour, alpha=0.2
                )
        finish(axis, label, "milliseconds")
        if what != "catalogue":
            axis.set_xticks(to, [f"{t:,}" for t in to])
    memory = axes[len(PANELS)]
    for of, colour in COLOURS.items():
        rows = [r for r in document["rows"] if (r["what"], r["of"]) == ("catalogue", of)]
        memory.plot(
            [r["to"] for r in rows],
            [r["model_megabytes"] for r in rows],
            "o-",
            color=colour,
            markersize=4,
            label=of,
        )
    finish(memory, "items in the catalogue", "megabytes")
    figure.savefig(path, dpi=110)
    return path


def finish(axis: Any, label: str, unit: str) -> None:
    """Names, scales, no frame."""
    from matplotlib.ticker import FormatStrFormatter, LogLocator

    axis.set_xlabel(label)
    axis.set_ylabel(unit)
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.minorticks_off()
    axis.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.yaxis.set_major_formatter(FormatStrFormatter("%g"))
    axis.grid(visible=True, alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(fontsize=7)


if __name__ == "__main__":
    drawn(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]))
