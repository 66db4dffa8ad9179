"""The demo's two pictures: how close each method comes to the optimum, and how the training went.

Knows no training.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from exactk.demo.story import Story

OURS, OTHERS, INK = "#1f6f5c", "#b9c4c9", "#26323a"


def draw(story: Story, folder: Path) -> list[Path]:
    """Write the pictures; none where matplotlib is missing."""
    try:
        import matplotlib
    except ImportError:
        return []
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    paths = [folder / "value.png", folder / "training.png"]
    figure, axis = plt.subplots(figsize=(7.2, 0.9 + 0.42 * len(story.judged)), layout="constrained")
    _bars(axis, story)
    figure.savefig(paths[0], dpi=150)
    plt.close(figure)
    figure, axis = plt.subplots(figsize=(7.2, 3.2), layout="constrained")
    _curve(axis, story)
    figure.savefig(paths[1], dpi=150)
    plt.close(figure)
    return paths


def _bars(axis: Any, story: Story) -> None:
    rows = story.judged[::-1]
    colours = [OURS if "pair value" in row.name else OTHERS for row in rows]
    axis.barh([row.name for row in rows], [row.share for row in rows], color=colours, height=0.65)
    for place, row in enumerate(rows):
        axis.text(row.share + 0.01, place, f"{row.share:.0%}", va="center", color=INK, fontsize=9)
    axis.axvline(1.0, color=INK, linewidth=1, linestyle="--")
    axis.set_xlim(0, 1.08)
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axis.set_title("True value of the card, as a share of the optimum", loc="left", color=INK, fontsize=11)
    axis.spines[["top", "right", "left"]].set_visible(False)
    axis.tick_params(left=False)


def _curve(axis: Any, story: Story) -> None:
    rows = [row for row in story.recommender.history if row.get("event") == "valid" and "log_loss" in row]
    axis.plot(
        [row["epoch"] for row in rows],
        [row["log_loss"] for row in rows],
        color=OURS,
        marker="o",
        markersize=4,
    )
    axis.set_xlabel("epoch")
    axis.set_title("Log loss of the card's click on the validation split", loc="left", color=INK, fontsize=11)
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(axis="y", alpha=0.3)
