"""Tables of docs/benchmarks/speed.md, made from the committed speed results.

Knows the shape of `results/bench-*.json`, no benchmark; `tables.py` puts them on the page.
"""

from __future__ import annotations

from typing import Any


def goal_table(document: dict[str, Any]) -> str:
    """Every goal of a result: measured, wanted, met or missed."""
    lines = ["| goal | measured | wanted | |", "|---|---:|---:|---|"]
    for goal in document["goals"]:
        kept = "met" if goal["met"] else "**missed**"
        lines.append(f"| {goal['name']} | {_figure(goal['measured'])} | {goal['goal']} | {kept} |")
    return "\n".join(lines)


def decode_table(document: dict[str, Any]) -> str:
    """Milliseconds a card by engine and shape: median, 99th percentile, times eager."""
    lines = [
        "| N | K | batch | engine | p50, ms | p99, ms | times eager |",
        "|---|---|---|---|---:|---:|---:|",
    ]
    for row in document["rows"]:
        times = f"{row['times_eager']:.1f}" if "times_eager" in row else ""
        shape = f"| {row['N']} | {row['K']} | {row['batch']} "
        lines.append(f"{shape}| {row['engine']} | {row['ms_p50']:.3f} | {row['ms_p99']:.3f} | {times} |")
    return "\n".join(lines)


def train_table(document: dict[str, Any]) -> str:
    """Samples a second of a training step on one core, beside the authors' graph."""
    lines = ["| step | samples/s | least to most | the authors' graph |", "|---|---:|---:|---:|"]
    for row in document["rows"]:
        if "least" in row:
            spread = f"{row['least']:,} to {row['most']:,}"
            authors = row["authors_samples_per_second"]
            theirs = "" if authors is None else f"{authors:,.0f}"
            lines.append(f"| {row['what']} | {row['samples_per_second']:,} | {spread} | {theirs} |")
    return "\n".join(lines)


def train_cuda_table(document: dict[str, Any]) -> str:
    """Samples a second of a training step on a GPU, by way and precision."""
    lines = [
        "| way | precision | ms a step | samples/s | peak memory, GB |",
        "|---|---|---:|---:|---:|",
    ]
    lines += [
        f"| {row['way']} | {row['precision']} | {row['ms_a_step']:.2f} | {row['samples_per_second']:,.0f} "
        f"| {row['peak_gigabytes']:.1f} |"
        for row in document["rows"]
        if "samples_per_second" in row
    ]
    return "\n".join(lines)


def growth_table(document: dict[str, Any]) -> str:
    """The ends of each growth curve."""
    lines = ["| what grows | from | to | of | ms at first | ms at last |", "|---|---:|---:|---|---:|---:|"]
    curves: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in document["rows"]:
        curves.setdefault((row["what"], row["of"]), []).append(row)
    for (what, of), rows in curves.items():
        first, last = rows[0], rows[-1]
        lines.append(
            f"| {what} | {first['to']:,} | {last['to']:,} | {of} | {first['ms']:.3f} | {last['ms']:.3f} |"
        )
    return "\n".join(lines)


def _figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
