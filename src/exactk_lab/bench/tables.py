"""Tables of README and docs, made from committed results: what stands there was measured.

Knows the shape of `results/*.json`, no benchmark. `python -m exactk_lab.bench.tables` writes every block anew; a block
stands between `<!-- made from results/NAME.json: TABLE -->` and `<!-- end -->`, several results parted by commas.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from exactk.evaluation.table import Comparison, Row
from exactk.evaluation.verdict import markdown
from exactk_lab.bench import reproduced, service_tables, speed_tables
from exactk_lab.bench.compare import goals

CELLS = ((50, 4), (50, 6), (200, 4), (200, 10), (500, 10))
DENSITY = 0.9
OURS = ("ours", "yours")
NUM_RIVALS = 5  # of a short table: the strongest; chance and popularity stand there, too
NAMES = {"pair_value": "pair value + exact search", "policy": "GAttN + RLfD"}
_RESULT = r"results/[\w.-]+\.json"
BLOCK = re.compile(
    rf"(<!-- made from ({_RESULT}(?:, {_RESULT})*): (\w+) -->\n)(.*?)(\n<!-- end -->)", re.DOTALL
)


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


def full_comparison(document: dict[str, Any]) -> str:
    """Every row of a comparison, what it was made of, the verdict, and its goals."""
    facts, budget = document["facts"], document["facts"]["budget"]
    made = (
        f"`{document['command']}`: {facts['train']:,} logged cards to train on, {facts['valid']:,} to tune on, "
        f"{facts['judged']:,} test requests; {budget['trials']} trials of at most {budget['epochs']} epochs each."
    )
    found = Comparison.of(document)
    promises = "".join(
        f"\n- Goal {'met' if goal.met else 'missed'}: {goal.name}: {goal.measured:.4g} (goal {goal.as_dict()['goal']})."
        for goal in goals(found)
    )
    return f"{made}\n\n{markdown(found).strip()}{promises}"


def short_comparison(document: dict[str, Any]) -> str:
    """Our methods, the strongest rivals, popularity and chance; and the answer in one sentence."""
    found = Comparison.of(document)
    rivals = [row for row in found.rows if row.kind == "rival"]
    plain = [
        next((row for row in rivals if row.way.startswith(name)), None) for name in ("popularity", "random")
    ]
    shown = [row for row in found.rows if row.kind in OURS or row in rivals[:NUM_RIVALS] or row in plain]
    lines = ["| method | true value | of the optimum | ms a request |", "|---|---:|---:|---:|"]
    lines += [_short_row(row) for row in shown]
    return "\n".join([*lines, "", document["verdict"][0]])


def _short_row(row: Row) -> str:
    assert row.value is not None
    assert row.share_of_optimum is not None
    name = f"**{row.way}**" if row.kind in OURS else row.way
    share = row.share_of_optimum.estimate
    return f"| {name} | {row.value.estimate:.4f} | {share:.1%} | {row.ms_alone:.2g} |"


def strength_table(*documents: dict[str, Any]) -> str:
    """Worlds side by side: what our two methods gain over the best rival, most of which score single items."""
    lines = [
        "| world | the best rival | its true value | pair value + exact | GAttN + RLfD |",
        "|---|---|---:|---:|---:|",
    ]
    for document in documents:
        found, world = Comparison.of(document), document["facts"]["world"]
        assert found.strongest_rival is not None
        rival = found.row(found.strongest_rival)
        assert rival.value is not None
        gains = [_gain(found, way, rival.value.estimate) for way in ("pair value + exact", "GAttN + RLfD")]
        name = f"strength {world['strength']:g}" + (f", theme {world['theme']:g}" if world["theme"] else "")
        lines.append(f"| {name} | {rival.way} | {rival.value.estimate:.4f} | {' | '.join(gains)} |")
    return "\n".join(lines)


def _gain(found: Comparison, way: str, base: float) -> str:
    """+14.2% (p 0.0001)."""
    row = next(row for row in found.rows if row.kind in OURS and row.way.startswith(way))
    assert row.difference is not None
    assert row.p_value is not None
    return f"{row.difference.estimate / base:+.1%} (p {row.p_value:.4f})"


def trust_table(document: dict[str, Any]) -> str:
    """Bias and coverage where the support check answers, and where it does not what believing would have brought."""
    lines = [
        "| log | policy asked about | estimator | true value | refused | bias | 95% interval holds the truth "
        "| unchecked: bias | holds the truth |",
        "|---|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for row in document["rows"]:
        answered, all_logs = (_trusted(part) for part in (row, row["unchecked"]))
        start = f"| {row['case']} | {row['policy']} | {row['estimator'].upper()} | {row['true_value']:.4f} "
        lines.append(f"{start}| {row['refused']:.0%} | {answered} | {all_logs} |")
    return "\n".join(lines)


def _trusted(row: dict[str, Any]) -> str:
    if row["bias"] is None:
        return " | "
    return f"{row['bias']:+.4f} | {row['coverage']:.0%}"


def evaluate_table(document: dict[str, Any]) -> str:
    """Models judged on one world: true value, share of the optimum, valid cards."""
    lines = [
        "| model | true value | the optimum | share | requests | invalid cards |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for row in document["rows"]:
        invalid = round((1 - row["valid"]) * row["requests"])
        lines.append(
            f"| {NAMES[row['config']['model']]} | {row['true_value']:.4f} | {row['optimum']:.4f} "
            f"| **{row['share_of_optimum']:.1%}** | {row['requests']:,.0f} | {invalid} |"
        )
    return "\n".join(lines)


def _seconds(milliseconds: float) -> str:
    return f"{milliseconds / 1000:.1f} s" if milliseconds >= 1000 else f"{milliseconds:.3g} ms"


TABLES: dict[str, Callable[..., str]] = {
    "exact_table": exact_table,
    "full_comparison": full_comparison,
    "short_comparison": short_comparison,
    "strength_table": strength_table,
    "trust_table": trust_table,
    "evaluate_table": evaluate_table,
    "goal_table": speed_tables.goal_table,
    "decode_table": speed_tables.decode_table,
    "train_table": speed_tables.train_table,
    "train_cuda_table": speed_tables.train_cuda_table,
    "growth_table": speed_tables.growth_table,
    "serve_table": service_tables.serve_table,
    "soak_table": service_tables.soak_table,
    "reproduced": reproduced.full,
    "reproduced_short": reproduced.short,
}


def pages(root: Path) -> list[Path]:
    """README and every page of the site."""
    return [root / "README.md", *sorted((root / "docs").rglob("*.md"))]


def renewed(text: str, root: Path) -> str:
    """A page with each of its blocks made anew from the results under `root`."""

    def block(match: re.Match[str]) -> str:
        documents = [json.loads((root / name).read_text(encoding="utf-8")) for name in match[2].split(", ")]
        return f"{match[1]}{TABLES[match[3]](*documents)}{match[5]}"

    return BLOCK.sub(block, text)


if __name__ == "__main__":
    for page in map(Path, sys.argv[1:]) if sys.argv[1:] else pages(Path()):
        page.write_text(renewed(page.read_text(encoding="utf-8"), Path()), encoding="utf-8")
