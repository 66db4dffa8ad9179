"""Tables of the README, made from committed results: what stands there was measured.

Knows the shape of `results/*.json`, no benchmark.
"""

from __future__ import annotations

from typing import Any

CELLS = ((50, 4), (50, 6), (200, 4), (200, 10), (500, 10))
DENSITY = 0.9


def exact_table(document: dict[str, Any]) -> str:
    """The exact engine beside the best solver of each cell: items and pairs scored, nine in ten pairs allowed."""
    lines = [
        "| N | K | exactk | the best of CP-SAT and HiGHS | times faster |",
        "|---|---|---|---|---|",
    ]
    for num_nodes, card_size in CELLS:
        wanted = ("node+pair", num_nodes, card_size, DENSITY)
        row = next(
            r for r in document["rows"]
            if (r.get("kind"), r["num_nodes"], r["card_size"], r["density"]) == wanted
        )  # fmt: skip
        times = {
            name: cell["median"]
            for name, cell in row.items()
            if name.endswith("_ms") and isinstance(cell, dict)
        }
        ours = times.pop("ours_ms")
        stopped = not times or min(times.values()) >= 20_000
        rival = "stopped at 20 s" if stopped else _seconds(min(times.values()))
        ratio = (
            f"{'> ' if stopped else ''}{row['ratio']:,.0f}" if row["ratio"] >= 10 else f"> {row['ratio']:.1f}"
        )
        lines.append(f"| {num_nodes} | {card_size} | {_seconds(ours)} | {rival} | {ratio} |")
    return "\n".join(lines)


def _seconds(milliseconds: float) -> str:
    return f"{milliseconds / 1000:.1f} s" if milliseconds >= 1000 else f"{milliseconds:.3g} ms"
