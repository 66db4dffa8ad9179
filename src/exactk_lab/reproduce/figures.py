"""The reproduction as pictures, each from a report's own rows: what is drawn is what is kept.

Knows rows, no runs; matplotlib is asked for when a picture is drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from exactk.errors import MissingExtraError

INK, OURS, PAPER, PLAIN, PALE = "#1e293b", "#c2410c", "#0f766e", "#64748b", "#cbd5e1"
KINDS = {"ours": OURS, "paper": PLAIN, "beyond": "#94a3b8", "control": PALE, "probe": PALE}
TITLES = {
    "k4-n20": "authors' files, K=4, N=20",
    "k10-n50": "authors' files, K=10, N=50",
    "leak-free": "leak-free MovieLens",
}
Rows = Sequence[Mapping[str, Any]]


def draw(name: str, rows: Rows, folder: Path) -> list[Path]:
    """The picture of a part, as PNG and SVG; parts without one draw nothing."""
    if name not in PICTURES or not rows:
        return []
    figure = PICTURES[name](rows)
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"reproduce-{name}.{kind}" for kind in ("png", "svg")]
    for path in paths:
        figure.savefig(path, dpi=130, metadata={"Date": None} if path.suffix == ".svg" else None)
    return paths


def main(rows: Rows) -> Any:
    """P@K of every method on every column, our mean over seeds as a dot, the paper's printed figure as a diamond."""
    columns = [column for column in TITLES if any(row["column"] == column for row in rows)]
    figure, axes = _figure(4.1 * len(columns) + 0.6, 4.4, len(columns))
    for axis, column in zip(axes, columns, strict=True):
        shown = [row for row in rows if row["column"] == column and "P" in row]
        for place, row in enumerate(reversed(shown)):
            colour = KINDS[row["kind"]]
            axis.plot([0, row["P"]], [place, place], color=colour, linewidth=1.2, alpha=0.45, zorder=1)
            axis.errorbar(
                row["P"], place, xerr=row["P_sd"], fmt="o", color=colour, markersize=7, capsize=2, zorder=3
            )
            _figure_beside(axis, row, place, row["kind"] == "ours")
            if "paper_P" in row:
                axis.plot(
                    row["paper_P"], place, marker="D", color=PAPER, markersize=5, zorder=4, linestyle="none"
                )
        axis.set_yticks(range(len(shown)), [row["method"] for row in reversed(shown)])
        axis.axvline(0.2, color=PALE, linewidth=1, linestyle="--", zorder=0)
        axis.annotate(
            "chance", (0.2, -0.6), fontsize=7, color=PLAIN, xytext=(3, 0), textcoords="offset points"
        )
        _tidy(axis, TITLES[column], "P@K on test requests")
        _emphasise(axis.get_yticklabels(), [row["kind"] == "ours" for row in reversed(shown)])
        axis.set_xlim(0, 1.12)
        axis.set_ylim(-0.8, len(shown) - 0.4)
    axes[0].plot([], [], "D", color=PAPER, label="printed in the paper")
    axes[0].plot([], [], "o", color=PLAIN, label="measured here, mean and spread over seeds")
    figure.legend(
        *axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False, fontsize=8
    )
    return figure


def ablation(rows: Rows) -> Any:
    """The paper's seven rows: its figures beside ours."""
    figure, (axis,) = _figure(8.2, 4.6)
    shown = [row for row in rows if "P" in row]
    names = [f"{row['row']}  {row['setting']}" for row in shown]
    for place, row in enumerate(reversed(shown)):
        ours = row["row"] > 8
        axis.errorbar(
            row["P"], place, xerr=row["P_sd"], fmt="o", color=OURS if ours else PLAIN, markersize=7, capsize=2
        )
        _figure_beside(axis, row, place)
        if "paper_P" in row:
            axis.plot([row["paper_P"], row["P"]], [place, place], color=PALE, linewidth=1.5, zorder=0)
            axis.plot(row["paper_P"], place, "D", color=PAPER, markersize=6)
    axis.set_yticks(range(len(shown)), list(reversed(names)))
    axis.axvline(0.2, color=PALE, linewidth=1, linestyle="--")
    axis.annotate(
        "chance", (0.2, len(shown) - 0.6), fontsize=7, color=PLAIN, xytext=(3, 0), textcoords="offset points"
    )
    axis.plot([], [], "D", color=PAPER, label="printed in the paper")
    axis.plot([], [], "o", color=PLAIN, label="measured here")
    axis.plot([], [], "o", color=OURS, label="our own options")
    figure.legend(
        *axis.get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False, fontsize=8
    )
    _tidy(axis, "RLfD taken apart (authors' files, K=4, N=20)", "P@4")
    _emphasise(axis.get_yticklabels(), [row["row"] > 8 for row in reversed(shown)])
    return figure


def beam(rows: Rows) -> Any:
    """P@K, HR@K and milliseconds over the width."""
    figure, axes = _figure(9.6, 3.2, 3)
    for method, colour in zip(dict.fromkeys(row["method"] for row in rows), (PLAIN, OURS), strict=False):
        own = [row for row in rows if row["method"] == method]
        widths = [row["beam"] for row in own]
        for axis, figure_name in zip(axes, ("P", "HR", "ms_per_card"), strict=True):
            values = np.array([row[figure_name] for row in own])
            spread = np.array([row.get(f"{figure_name}_sd", 0.0) for row in own])
            axis.fill_between(widths, values - spread, values + spread, color=colour, alpha=0.15, linewidth=0)
            axis.plot(widths, values, "o-", color=colour, markersize=4, label=method)
    for axis, title in zip(axes, ("P@4", "HR@4", "ms a card (eager)"), strict=True):
        _tidy(axis, title, "beam width")
        axis.axvline(3, color=PALE, linewidth=1, linestyle="--", zorder=0)
    axes[2].set_ylim(bottom=0)
    axes[0].annotate(
        "the paper's",
        (3, axes[0].get_ylim()[0]),
        xytext=(3, 3),
        textcoords="offset points",
        fontsize=7,
        color=PLAIN,
    )
    figure.legend(
        *axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False, fontsize=8
    )
    return figure


def alpha(rows: Rows) -> Any:
    """P@4 and HR@4 over alpha."""
    figure, axes = _figure(7.4, 3.2, 2)
    at = [row["alpha"] for row in rows]
    for axis, name, title in zip(axes, ("P", "HR"), ("P@4", "HR@4"), strict=True):
        values = np.array([row[name] for row in rows])
        spread = np.array([row[f"{name}_sd"] for row in rows])
        axis.fill_between(at, values - spread, values + spread, color=OURS, alpha=0.15, linewidth=0)
        axis.plot(at, values, "o-", color=OURS)
        axis.axvline(0.5, color=PALE, linewidth=1, linestyle="--", zorder=0)
        axis.annotate("the paper's", (0.5, axis.get_ylim()[0]), xytext=(3, 3), textcoords="offset points",
                      fontsize=7, color=PLAIN)  # fmt: skip
        _tidy(axis, title, "alpha: 0 reward alone, 1 supervision alone")
    return figure


def curves(rows: Rows) -> Any:
    """Two pictures of the paper in one row each: hill climbing (reward, P@4, HR@4), policy sampling (P@4, HR@4)."""
    figure, axes = _figure(10.4, 3.3, 3)
    colours = dict(zip(dict.fromkeys(row["curve"] for row in rows),
                       ("#94a3b8", PAPER, "#f59e0b", "#7c3aed", INK, OURS), strict=False))  # fmt: skip
    for axis, name, title in zip(
        axes, ("reward", "P", "HR"), ("reward (learned)", "P@4", "HR@4"), strict=True
    ):
        for curve, colour in colours.items():
            own = [row for row in rows if row["curve"] == curve and name in row]
            if not own or (name == "reward" and curve == "preset best-ids"):
                continue
            epochs = [row["epoch"] for row in own]
            values = np.array([row[name] for row in own])
            spread = np.array([row[f"{name}_sd"] for row in own])
            axis.fill_between(epochs, values - spread, values + spread, color=colour, alpha=0.12, linewidth=0)
            axis.plot(epochs, values, color=colour, linewidth=1.8, label=curve)
        _tidy(axis, title, "epoch")
    figure.legend(
        *axes[1].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False, fontsize=8
    )
    return figure


def attention(rows: Rows) -> Any:
    """Which film attends to which: the darker, the more."""
    films = [row["film"] for row in rows]
    weights = np.array([[row["attends_to"][film] for film in films] for row in rows])
    figure, (axis,) = _figure(7.2, 5.6)
    picture = axis.imshow(weights, cmap="Oranges", vmin=0)
    axis.set_xticks(range(len(films)), films, rotation=45, ha="right", rotation_mode="anchor", fontsize=8)
    axis.set_yticks(range(len(films)), films, fontsize=8)
    for texts in (axis.get_xticklabels(), axis.get_yticklabels()):
        for text, row in zip(texts, rows, strict=True):
            text.set_color(PAPER if row["liked"] else OURS if row["chosen"] else INK)
            text.set_weight("bold" if row["liked"] or row["chosen"] else "normal")
    axis.set_title(
        "attention in the encoder: row looks at column\n(orange: on the card; green: liked)",
        loc="left",
        fontsize=9,
        color=INK,
    )
    axis.spines[:].set_visible(False)
    axis.tick_params(length=0)
    figure.colorbar(picture, shrink=0.7, label="weight")
    return figure


PICTURES: dict[str, Callable[[Rows], Any]] = {
    "main": main,
    "ablation": ablation,
    "beam": beam,
    "alpha": alpha,
    "curves": curves,
    "attention": attention,
}


def _figure_beside(axis: Any, row: Mapping[str, Any], place: int, bold: bool = False) -> None:
    at = row["P"] + row["P_sd"]
    if 0 <= row.get("paper_P", 0.0) - row["P"] < 0.12:
        at = max(at, row["paper_P"])  # beyond the paper's mark, which would lie under the figure
    axis.annotate(
        f"{row['P']:.3f}", (at, place), xytext=(7, -3), textcoords="offset points",
        fontsize=8, color=INK, weight="bold" if bold else "normal", zorder=5,
        bbox={"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.8},
    )  # fmt: skip


def _emphasise(labels: Sequence[Any], ours: Sequence[bool]) -> None:
    for label, own in zip(labels, ours, strict=True):
        label.set_color(OURS if own else INK)
        label.set_weight("bold" if own else "normal")


def _tidy(axis: Any, title: str, x: str) -> None:
    axis.set_title(title, fontsize=9, loc="left", color=INK)
    axis.set_xlabel(x, fontsize=8, color=PLAIN)
    axis.spines[["top", "right"]].set_visible(False)
    axis.spines[["left", "bottom"]].set_color(PALE)
    axis.tick_params(labelsize=8, colors=PLAIN)
    axis.grid(visible=True, alpha=0.2)


def _figure(width: float, height: float, columns: int = 1) -> tuple[Any, Any]:
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("pictures need matplotlib: pip install 'exactk[plot]'") from error
    mpl.rcParams["svg.hashsalt"] = "exactk"  # the same rows, the same file
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, np.atleast_1d(figure.subplots(1, columns))
