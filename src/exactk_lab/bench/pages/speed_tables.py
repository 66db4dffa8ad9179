"""Tables of docs/benchmarks/speed.md and docs/guide/serve.md, made from the committed results.

Knows the shape of `results/bench-*.json`, no benchmark; `tables.py` puts them on the page.
"""

from __future__ import annotations

from typing import Any

from exactk_lab.bench.report import table


def goal_table(document: dict[str, Any]) -> str:
    """Every goal of a result: measured, wanted, met or missed."""
    return table("goal | >measured | >wanted | ", (
        f"{goal['name']} | {_figure(goal['measured'])} | {goal['goal']} | {'met' if goal['met'] else '**missed**'}"
        for goal in document["goals"]
    ))  # fmt: skip


def decode_table(document: dict[str, Any]) -> str:
    """Milliseconds a card by engine and shape: median, 99th percentile, times eager."""
    return table("N | K | batch | engine | >p50, ms | >p99, ms | >times eager", (
        f"{row['N']} | {row['K']} | {row['batch']} | {row['engine']} | {row['ms_p50']:.3f} | {row['ms_p99']:.3f} | "
        + (f"{row['times_eager']:.1f}" if "times_eager" in row else "")
        for row in document["rows"]
    ))  # fmt: skip


def train_table(document: dict[str, Any]) -> str:
    """Samples a second of a training step on one core, beside the authors' graph."""
    lines = []
    for row in document["rows"]:
        if "least" in row:
            authors = row["authors_samples_per_second"]
            theirs = "" if authors is None else f"{authors:,.0f}"
            spread = f"{row['least']:,} to {row['most']:,}"
            lines.append(f"{row['what']} | {row['samples_per_second']:,} | {spread} | {theirs}")
    return table("step | >samples/s | >least to most | >the authors' graph", lines)


def train_cuda_table(document: dict[str, Any]) -> str:
    """Samples a second of a training step on a GPU, by way and precision."""
    return table("way | precision | >ms a step | >samples/s | >peak memory, GB", (
        f"{row['way']} | {row['precision']} | {row['ms_a_step']:.2f} | {row['samples_per_second']:,.0f} "
        f"| {row['peak_gigabytes']:.1f}"
        for row in document["rows"] if "samples_per_second" in row
    ))  # fmt: skip


def planted_lists_table(document: dict[str, Any]) -> str:
    """The default on a million lists whose truth is known."""
    head = "batch | >learning rate | >seconds | >lists/s | >loss | >of the truth | >clicked on the card | >of the truth"
    return table(head, (
        f"{row['batch']} | {row['learning_rate']} | {row['seconds']:.0f} | {row['requests_per_second']:,.0f} | "
        f"{row['loss']:.4f} | {row['truth_loss']:.4f} | "
        f"{row['clicked_on_card']:.4f} | {row['truth_clicked_on_card']:.4f}"
        for row in document["rows"] if "truth_loss" in row
    ))  # fmt: skip


def growth_table(document: dict[str, Any]) -> str:
    """The ends of each growth curve."""
    curves: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in document["rows"]:
        curves.setdefault((row["what"], row["of"]), []).append(row)
    return table("what grows | >from | >to | of | >ms at first | >ms at last", (
        f"{what} | {rows[0]['to']:,} | {rows[-1]['to']:,} | {of} | {rows[0]['ms']:.3f} | {rows[-1]['ms']:.3f}"
        for (what, of), rows in curves.items()
    ))  # fmt: skip


def data_table(document: dict[str, Any]) -> str:
    """What a log of a million requests takes: building, opening, batches; in time and memory."""
    lines = []
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
        lines.append(f"{stage} | {row['seconds']:,.2f} | {rate} | {peak:,.0f} | {row['own_memory_mb']:,.0f}")
    return table("stage | >seconds | >a second | >peak MB | >of that its own", lines)


def doors_table(document: dict[str, Any]) -> str:
    """Hostile inputs by door, and what came of them."""
    return table("door | >inputs tried | >hangs | >raw tracebacks | >wrong", (
        f"{row['door']} | {row['tried']:,} | {row['hangs']} | {row['tracebacks']} | {row['wrong']}"
        for row in document["rows"] if "first" in row
    ))  # fmt: skip


def mixed_load_table(document: dict[str, Any]) -> str:
    """Requests of hostile and good clients at once."""
    heads = (
        "asked | >requests | >no answer | >5xx | >wrong | >out of time "
        "| >p50, ms | >p99, ms | >p99 past the budget, ms"
    )
    return table(heads, (
        f"{row['what']} | {row['tried']:,} | {row['hangs']} | {row['server_errors']} | {row['wrong']} "
        f"| {row['refused']} | {row['p50_ms']:,.1f} | {row['p99_ms']:,.0f} | {row['p99_past_budget_ms']:,.0f}"
        for row in document["rows"] if "what" in row
    ))  # fmt: skip


def ties_table(document: dict[str, Any]) -> str:
    """Requests of few distinct scores: time on the clock, of the processor, and search nodes."""
    row = next(row for row in document["rows"] if row["door"] == "ties")
    lines = [
        f"{what} | {row[f'p50_{key}']:.3f} | {row[f'p99_{key}']:.3f} | {row[f'max_{key}']:.3f}"
        for what, key in (("ms on the clock", "ms"), ("ms of the processor", "processor_ms"))
    ]
    lines.append(f"search nodes an item of the card | | | {row['max_nodes_an_item']:g}")
    return table(f"of {row['tried']:,} requests | >p50 | >p99 | >worst", lines)


def memory_table(document: dict[str, Any]) -> str:
    """What the processes of a service take."""
    heads = "one worker, with | >ready after, s | >worker, resident MB | >of that its own | >supervisor, resident MB"
    return table(heads, (
        f"{row['what'].partition(': ')[2]} | {row['seconds']:.1f} | {row['worker_megabytes']} "
        f"| {row['worker_own_megabytes']} | {row['supervisor_megabytes']}"
        for row in document["rows"] if "worker_megabytes" in row
    ))  # fmt: skip


def _figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


WHAT = {"echo": "FastAPI echo of the same body", "cards": "cards", "solve": "solve, items inline"}
LOAD = {"most": "most, 16 connections", "half": "half of the most"}


def serve_table(document: dict[str, Any]) -> str:
    """Requests a second, latencies and processor time by what was asked and how hard."""
    return table("what | load | >requests/s | >p50, ms | >p99, ms | >processor, µs a request", (
        f"{WHAT[row['what']]} | {LOAD.get(row['load'], row['load'])} | {row['requests_per_s']:,.0f} "
        f"| {row['p50_ms']:.2f} | {row['p99_ms']:.2f} | {row['processor_us']:.0f}"
        for row in document["rows"]
    ))  # fmt: skip


def soak_table(document: dict[str, Any]) -> str:
    """What was asked all the while, how it was answered, and the memory at ten moments."""
    asked = table("asked | load | >bad answers | >p50, ms | >p99, ms", (
        f"`{row['what']}` | {row['load']} | {row['bad']} | {row['p50_ms']:.1f} | {row['p99_ms']:,.0f}"
        for row in document["rows"] if "what" in row
    ))  # fmt: skip
    memory = [row for row in document["rows"] if "megabytes" in row]
    shown = memory[:: max(len(memory) // 10, 1)]
    minutes = " | ".join(f">{row['minute']:.0f}" for row in shown)
    megabytes = " | ".join(f"{row['megabytes']:.0f}" for row in shown)
    return "\n\n".join([asked, table(f"minute | {minutes}", [f"resident MB | {megabytes}"])])
