"""Tables of docs/benchmarks/speed.md and docs/guide/serve.md, made from the committed results.

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


def data_table(document: dict[str, Any]) -> str:
    """What a log of a million requests takes: building, opening, batches; in time and memory."""
    lines = ["| stage | seconds | a second | peak MB | of that its own |", "|---|---:|---:|---:|---:|"]
    for row in document["rows"]:
        stage = row["stage"]
        if "batch_size" in row:
            inputs = {"ids": "ids", "both": "ids and 40+52 features"}[row["inputs"]]
            stage += f" of {row['batch_size']:,}, {inputs}"
        rate = ""
        if "requests_per_s" in row:
            rate = f"{row['requests_per_s']:,.0f} requests"
        elif "rows_per_s" in row:
            rate = f"{row['rows_per_s']:,.0f} rows"
        peak = max(row["peak_memory_mb"], row.get("worker_peak_memory_mb", 0.0))
        memory = f"{peak:,.0f} | {row['own_memory_mb']:,.0f}"
        lines.append(f"| {stage} | {row['seconds']:,.2f} | {rate} | {memory} |")
    return "\n".join(lines)


def doors_table(document: dict[str, Any]) -> str:
    """Hostile inputs by door, and what came of them."""
    lines = ["| door | inputs tried | hangs | raw tracebacks | wrong |", "|---|---:|---:|---:|---:|"]
    for row in document["rows"]:
        if "first" in row:
            counts = f"{row['hangs']} | {row['tracebacks']} | {row['wrong']}"
            lines.append(f"| {row['door']} | {row['tried']:,} | {counts} |")
    return "\n".join(lines)


def mixed_load_table(document: dict[str, Any]) -> str:
    """Requests of hostile and good clients at once."""
    lines = [
        "| asked | requests | no answer | 5xx | wrong | out of time | p50, ms | p99, ms | p99 past the budget, ms |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in document["rows"]:
        if "what" in row:
            counts = f"{row['hangs']} | {row['server_errors']} | {row['wrong']} | {row['refused']}"
            times = f"{row['p50_ms']:,.1f} | {row['p99_ms']:,.0f} | {row['p99_past_budget_ms']:,.0f}"
            lines.append(f"| {row['what']} | {row['tried']:,} | {counts} | {times} |")
    return "\n".join(lines)


def ties_table(document: dict[str, Any]) -> str:
    """Requests of few distinct scores: time on the clock, of the processor, and search nodes."""
    row = next(row for row in document["rows"] if row["door"] == "ties")
    times = [
        f"| {what} | {row[f'p50_{key}']:.3f} | {row[f'p99_{key}']:.3f} | {row[f'max_{key}']:.3f} |"
        for what, key in (("ms on the clock", "ms"), ("ms of the processor", "processor_ms"))
    ]
    head = [f"| of {row['tried']:,} requests | p50 | p99 | worst |", "|---|---:|---:|---:|"]
    return "\n".join(
        [*head, *times, f"| search nodes an item of the card | | | {row['max_nodes_an_item']:g} |"]
    )


def memory_table(document: dict[str, Any]) -> str:
    """What the processes of a service take."""
    lines = [
        "| one worker, with | ready after, s | worker, resident MB | of that its own | supervisor, resident MB |",
        "|---|---:|---:|---:|---:|",
    ]
    for row in document["rows"]:
        if "worker_megabytes" in row:
            own = f"{row['worker_own_megabytes']} | {row['supervisor_megabytes']}"
            what = row["what"].partition(": ")[2]
            lines.append(f"| {what} | {row['seconds']:.1f} | {row['worker_megabytes']} | {own} |")
    return "\n".join(lines)


def _figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


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
