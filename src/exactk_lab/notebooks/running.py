"""Runs a notebook as Jupyter would and keeps what its cells print and draw; plain Python, no kernel.

Knows the file format (nbformat 4.5), no notebook. Pictures are SVG that reads on light and dark pages.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

FOLDER = Path("docs/notebooks")
INK, GRID = "#7b8794", "#7b879455"  # read on white and on black
STYLE: Any = {  # of matplotlib
    "figure.figsize": (7.2, 3.2), "figure.facecolor": "none", "axes.facecolor": "none", "savefig.facecolor": "none",
    "figure.constrained_layout.use": True, "axes.spines.top": False, "axes.spines.right": False,
    "axes.edgecolor": INK, "axes.labelcolor": INK, "axes.titlecolor": INK, "text.color": INK, "xtick.color": INK,
    "ytick.color": INK, "grid.color": GRID, "axes.titlesize": 11, "axes.titlelocation": "left", "font.size": 9.5,
    "legend.frameon": False, "svg.fonttype": "none", "svg.hashsalt": "exactk", "font.family": "sans-serif",
    "axes.prop_cycle": "cycler('color', ['#2f855a', '#c05621', '#3182ce', '#9f7aea', '#d53f8c', '#718096'])",
}  # fmt: skip
# Figures that another machine or moment may make otherwise: times, and places of memory.
PASSING = re.compile(r"\d[\d,.]*(?= (?:ms|s|seconds|µs)\b)|0x[0-9a-f]+|127\.0\.0\.1:\d+")


def cells(notebook: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The cells that hold code."""
    return (cell for cell in notebook["cells"] if cell["cell_type"] == "code")


def source(cell: Mapping[str, Any]) -> str:
    """What a cell holds, as one text."""
    return "".join(cell["source"])


def run(notebook: dict[str, Any]) -> dict[str, Any]:
    """The notebook with fresh outputs, run in a new folder that is gone afterwards."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    names: dict[str, Any] = {"__name__": "__main__"}
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder, pyplot.rc_context(STYLE):
        os.chdir(folder)
        try:
            for number, cell in enumerate(cells(notebook), start=1):
                cell["execution_count"] = number
                cell["outputs"] = _outputs(source(cell), f"cell {number}", names, number)
        finally:
            os.chdir(before)
            pyplot.close("all")
    return notebook


def _outputs(code: str, place: str, names: dict[str, Any], number: int) -> list[dict[str, Any]]:
    """What one cell prints, what its last expression is, what it draws, in Jupyter's order."""
    body = ast.parse(code).body
    last = body.pop() if body and isinstance(body[-1], ast.Expr) and not code.rstrip().endswith(";") else None
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(ast.Module(body, []), place, "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), place, "eval"), names)
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        outputs.append({"name": "stdout", "output_type": "stream", "text": _lines(printed.getvalue())})
    if value is not None:
        data = {"text/plain": _lines(repr(value))}
        if hasattr(value, "_repr_markdown_"):
            data["text/markdown"] = _lines(value._repr_markdown_())
        outputs.append(
            {"data": data, "execution_count": number, "metadata": {}, "output_type": "execute_result"}
        )
    return outputs + _drawn()


def _drawn() -> list[dict[str, Any]]:
    """The open figures; the first title of each says what it shows where it cannot be seen."""
    from matplotlib import pyplot

    found = []
    for number in pyplot.get_fignums():
        figure = pyplot.figure(number)
        titles = [axes.get_title(loc="left") or axes.get_title() for axes in figure.axes]
        kept = io.StringIO()
        figure.savefig(kept, format="svg", metadata={"Date": None, "Creator": None}, bbox_inches="tight")
        svg = kept.getvalue()
        svg = svg[svg.index("<svg") :]
        found.append(
            {
                "data": {"image/svg+xml": _lines(svg), "text/plain": ["<Figure>"]},
                "metadata": {"image/svg+xml": {"alt": next(filter(None, titles), "A figure")}},
                "output_type": "display_data",
            }
        )
    pyplot.close("all")
    return found


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def lasting(outputs: list[dict[str, Any]]) -> list[str]:
    """The printed text of outputs, without what changes from run to run."""
    texts = [
        "".join(output["text"] if output["output_type"] == "stream" else output["data"]["text/plain"])
        for output in outputs
    ]
    return [re.sub(r" +", " ", PASSING.sub("…", text)) for text in texts]


def load(path: Path) -> dict[str, Any]:
    """Read a notebook."""
    notebook: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return notebook


def save(notebook: Mapping[str, Any], path: Path) -> None:
    """Write it as Jupyter does, so that its own saving changes nothing."""
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
