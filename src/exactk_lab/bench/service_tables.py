"""Tables of docs/guide/serve.md, made from the committed results of the service.

Knows the shape of `results/bench-serve.json` and `results/bench-soak.json`, no benchmark.
"""

from __future__ import annotations

from typing import Any

WHAT = {"echo": "FastAPI echo of the same body", "cards": "cards", "solve": "solve, items inline"}
LOAD = {"most": "most, 16 connections", "half": "half of the most"}


def serve_table(document: dict[str, Any]) -> str:
    """Requests a second, latencies and processor time by what was asked and how hard."""
    lines = [
        "| what | load | requests/s | p50, ms | p99, ms | processor, µs a request |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for row in document["rows"]:
        asked = f"| {WHAT[row['what']]} | {LOAD.get(row['load'], row['load'])} "
        times = f"| {row['p50_ms']:.2f} | {row['p99_ms']:.2f} | {row['processor_us']:.0f} |"
        lines.append(f"{asked}| {row['requests_per_s']:,.0f} {times}")
    return "\n".join(lines)


def soak_table(document: dict[str, Any]) -> str:
    """What was asked all the while, how it was answered, and the memory at ten moments."""
    lines = ["| asked | load | bad answers | p50, ms | p99, ms |", "|---|---|---:|---:|---:|"]
    for row in document["rows"]:
        if "what" in row:
            times = f"{row['p50_ms']:.1f} | {row['p99_ms']:,.0f}"
            lines.append(f"| `{row['what']}` | {row['load']} | {row['bad']} | {times} |")
    memory = [row for row in document["rows"] if "megabytes" in row]
    shown = memory[:: max(len(memory) // 10, 1)]
    lines += ["", _across("minute", [row["minute"] for row in shown]), "|---|" + "---:|" * len(shown)]
    lines += [_across("resident MB", [row["megabytes"] for row in shown])]
    return "\n".join(lines)


def _across(name: str, figures: list[float]) -> str:
    return f"| {name} | " + " | ".join(f"{figure:.0f}" for figure in figures) + " |"
