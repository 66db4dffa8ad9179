"""Tables of README and docs, made from committed results: what stands there was measured.

Knows the shape of `results/*.json`, no benchmark. `python -m exactk_lab.bench.pages.tables` writes every block anew; it
stands between `<!-- made from results/NAME.json: TABLE -->` and `<!-- end -->`, several results parted by commas.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from exactk.evaluation.table import HEADLINES, Comparison, Row
from exactk.evaluation.verdict import markdown
from exactk_lab.bench.pages import reproduced, speed_tables
from exactk_lab.bench.pages.kept import comparison_of, goals
from exactk_lab.bench.report import table

CELLS = ((50, 4), (50, 6), (200, 4), (200, 10), (500, 10))
DENSITY = 0.9
OURS = ("ours", "yours")
LOGS = {
    "hotels": "**hotel lists** (real log)",
    "movielens": "**MovieLens 100K**, leak-free (real ratings)",
    "world": "world: pairs matter",
    "world-strong": "world: pairs matter twice as much",
    "world-themed": "world: threes matter, too",
    "world-flat": "world: pairs do not matter",
}
NAMES = {
    "card_value": "the default: here a pair value, searched exactly",
    "pair_value": "pair value + exact search",
    "policy": "GAttN + RLfD",
}
PARTS = {
    "context: no attention among candidates": "context (attention among candidates)",
    "whole-list loss: the card of the log alone": "whole-list loss (learned from the logged card alone)",
    "pair features left out": "pair features",
    "pairs as they were learned": "pairs shrunk by what validation bears out",
    "one member": "all members but one",
    "items alone: no pairs": "pairs, in the decision",
    "greedy instead of exact": "exact decoding (greedy instead)",
}
_RESULT = r"results/[\w.-]+\.json"
BLOCK = re.compile(
    rf"(<!-- made from ({_RESULT}(?:, {_RESULT})*): (\w+) -->\n)(.*?)(\n<!-- end -->)", re.DOTALL
)


def exact_table(document: dict[str, Any]) -> str:
    """The exact engine beside the best solver of each cell: items and pairs scored, nine in ten pairs allowed."""
    lines = []
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
        lines.append(f"{num_nodes} | {card_size} | {_seconds(ours)} | {rival} | {ratio}")
    return table("N | K | exactk | the best of CP-SAT and HiGHS | times faster", lines)


def full_comparison(document: dict[str, Any]) -> str:
    """Every row of a comparison, what it was made of, the verdict, and its goals."""
    facts, budget = document["facts"], document["facts"]["budget"]
    made = (
        f"`{document['command']}`: {facts['train']:,} logged cards to train on, {facts['valid']:,} to tune on, "
        f"{facts['judged']:,} test requests; {budget['trials']} trials of at most {budget['epochs']} epochs each."
    )
    found = comparison_of(document)
    promises = "".join(
        f"\n- Goal {'met' if goal.met else 'missed'}: {goal.name}: {goal.measured:.4g} (goal {goal.as_dict()['goal']})."
        for goal in goals(found)
    )
    return f"{made}\n\n{markdown(found).strip()}{promises}"


def overview(*documents: dict[str, Any]) -> str:
    """A line for each log: the best of ours, the strongest rival, how far apart they are, and what counting reaches."""
    lines = []
    for document in documents:
        found, facts = comparison_of(document), document["facts"]
        assert found.strongest_rival is not None
        rival = found.row(found.strongest_rival)
        counted = next(row for row in found.rows if row.way.startswith("popularity"))
        ours = next(row for row in found.rows if row.kind in OURS)
        cells = [_overviewed(found, row, bold=found.rows[0] is row) for row in (ours, rival)]
        cells += [_gain(found, ours, rival), f"{found.headline_of(counted).estimate:.3f}"]
        judged = f"{LOGS[facts['data']]}, {facts['judged']:,} requests | {HEADLINES[found.headline]}"
        lines.append(f"{judged} | {' | '.join(cells)}")
    return table("log | judged by | >exactk | >strongest rival | >difference | >popularity", lines)


def _overviewed(found: Comparison, row: Row, bold: bool) -> str:
    """0.734 (card value + exact)."""
    figure = f"{found.headline_of(row).estimate:.3f}"
    return f"{f'**{figure}**' if bold else figure} ({row.way})"


def strength_table(*documents: dict[str, Any]) -> str:
    """Worlds side by side: what our two methods gain over the best rival, most of which score single items."""
    lines = []
    for document in documents:
        found, world = comparison_of(document), document["facts"]["world"]
        assert found.strongest_rival is not None
        rival = found.row(found.strongest_rival)
        assert rival.value is not None
        ours = [
            next(row for row in found.rows if row.kind in OURS and row.way.startswith(way))
            for way in ("pair value + exact", "GAttN + RLfD")
        ]
        gains = [_gain(found, row, rival) for row in ours]
        name = f"strength {world['strength']:g}" + (f", theme {world['theme']:g}" if world["theme"] else "")
        lines.append(f"{name} | {rival.way} | {rival.value.estimate:.4f} | {' | '.join(gains)}")
    return table("world | the best rival | >its true value | >pair value + exact | >GAttN + RLfD", lines)


def _gain(found: Comparison, row: Row, rival: Row) -> str:
    """+14.2% (p 0.0001)."""
    assert row.difference is not None
    assert row.p_value is not None
    share = row.difference.estimate / found.headline_of(rival).estimate
    return f"{share:+.1%} (p {row.p_value:.4f})"


def trust_table(document: dict[str, Any]) -> str:
    """Bias and coverage where the support check answers, and where it does not what believing would have brought."""
    heads = (
        "log | policy asked about | estimator | >true value | >refused | >bias | >95% interval holds the truth "
        "| >unchecked: bias | >holds the truth"
    )
    return table(heads, (
        f"{row['case']} | {row['policy']} | {row['estimator'].upper()} | {row['true_value']:.4f} "
        f"| {row['refused']:.0%} | {_trusted(row)} | {_trusted(row['unchecked'])}"
        for row in document["rows"]
    ))  # fmt: skip


def _trusted(row: dict[str, Any]) -> str:
    if row["bias"] is None:
        return " | "
    return f"{row['bias']:+.4f} | {row['coverage']:.0%}"


def evaluate_table(document: dict[str, Any]) -> str:
    """Models judged on one world: true value, share of the optimum, valid cards."""
    return table("model | >true value | >the optimum | >share | >requests | >invalid cards", (
        f"{NAMES[row['config']['model']]} | {_of_the_optimum(row)} | {round((1 - row['valid']) * row['requests'])}"
        for row in document["rows"]
    ))  # fmt: skip


def _of_the_optimum(row: dict[str, Any]) -> str:
    value = f"{row['true_value']:.4f} | {row['optimum']:.4f} | **{row['share_of_optimum']:.1%}**"
    return f"{value} | {row['requests']:,.0f}"


def seeds_table(document: dict[str, Any]) -> str:
    """One model's settings on several worlds, a row for each."""
    lines = (f"{Path(row['data']).name} | {_of_the_optimum(row)}" for row in document["rows"])
    return table("world | >true value | >the optimum | >share | >requests", lines)


def briefs_table(document: dict[str, Any]) -> str:
    """Random briefs: our times beside those of two solvers, and on the worst request."""
    lines = []
    for row in (row for row in document["rows"] if "brief" in row):
        times = [_seconds(row[name]["median"]) for name in ("ours_ms", "CP-SAT_ms", "HiGHS_ms")]
        lines.append(
            f"{row['brief']} | {row['num_nodes']} | {row['card_size']} | {' | '.join(times)} "
            f"| {row['ratio']:,.0f} | {row['least_ratio']:,.1f}"
        )
    return table("weights | >N | >K | >exactk | >CP-SAT | >HiGHS | >times faster, median | >least", lines)


def gaps_table(document: dict[str, Any]) -> str:
    """What is proven, and what the card lacks, after so many milliseconds."""
    heads = ">N | >K | >budget, ms | >proven gap, median | >short of the best known, median | >worst"
    return table(heads, (
        f"{row['num_nodes']} | {row['card_size']} | {row['budget_ms']:g} | {row['gap']:.1%} | {row['short']:.1%} "
        f"| {row['worst_short']:.1%}"
        for row in document["rows"] if "anytime" in row
    ))  # fmt: skip


def root_table(document: dict[str, Any]) -> str:
    """By how much bounds of several kinds exceed the best card before anything is searched."""
    return table("bound | >N | >K | >above the best card, median | >time", (
        f"{row['root']} | {row['num_nodes']} | {row['card_size']} | {row['above']:.1%} "
        f"| {_seconds(1e3 * row['seconds'])}"
        for row in document["rows"] if "root" in row
    ))  # fmt: skip


def lists_table(document: dict[str, Any]) -> str:
    """Models judged on later lists: the clicked item on the card."""
    return table("model | >members | >requests | >clicked item on the card", (
        f"{Path(row['model']).name} | {row['config']['card_value']['members']} | {row['requests']:,.0f} "
        f"| {row['precision']:.3f}"
        for row in document["rows"]
    ))  # fmt: skip


def bundles_table(document: dict[str, Any]) -> str:
    """Whole cards recovered, fold by fold, and of all requests together."""
    rows = document["rows"]
    lines = [
        f"{Path(row['data']).name} | {row['requests']:,.0f} | {row['whole_card']:.3f} | {row['hit_ratio']:.3f}"
        for row in rows
    ]
    count = sum(row["requests"] for row in rows)
    whole, overlap = (
        sum(row[name] * row["requests"] for row in rows) / count for name in ("whole_card", "hit_ratio")
    )
    lines.append(f"all | {count:,.0f} | **{whole:.3f}** | {overlap:.3f}")
    return table("log | >requests | >whole card recovered | >overlap with it", lines)


def parts_table(document: dict[str, Any]) -> str:
    """What each part of the default gains: its figure less that of the same model without the part.

    Folds of one log count as one. Of caution, the beta that does best on validation.
    """
    lines = []
    logs: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for row in document["rows"]:
        parts = logs.setdefault(re.sub(r"-\d$", "", row["log"]), {})
        parts.setdefault(row["part"], []).append(row)
    for log, found in logs.items():
        figures = {part: [_mean(rows, name) for name in ("valid", "test")] for part, rows in found.items()}
        whole = figures.pop("the default")[1]
        careful = {part: figures.pop(part) for part in list(figures) if part.startswith("caution")}
        seeds = len({row["seed"] for row in found["the default"]})
        start = f"{log} | {seeds}"
        lines.append(f"{start} | **the default** | **{whole:.3f}** | ")
        lines += [
            f"{start} | without: {PARTS.get(part, part)} | {test:.3f} | {whole - test:+.3f}"
            for part, (_, test) in figures.items()
        ]
        if careful:
            beta = max(careful, key=lambda part: careful[part][0])
            test = careful[beta][1]
            lines.append(f"{start} | with {beta} (best on validation) | {test:.3f} | {test - whole:+.3f}")
    return table("log | >seeds | model | >figure | >what the part gains", lines)


def _mean(rows: list[dict[str, Any]], name: str) -> float:
    """Of several folds or seeds, each with the weight of its requests."""
    count = sum(row["requests"] for row in rows)
    return float(sum(row[name] * row["requests"] for row in rows) / count)


def _seconds(milliseconds: float) -> str:
    return f"{milliseconds / 1000:.1f} s" if milliseconds >= 1000 else f"{milliseconds:.3g} ms"


TABLES: dict[str, Callable[..., str]] = {
    made.__name__: made
    for made in (
        exact_table, full_comparison, overview, strength_table, trust_table, evaluate_table, seeds_table, bundles_table,
        lists_table, parts_table, briefs_table, gaps_table, root_table,
        speed_tables.goal_table, speed_tables.decode_table, speed_tables.train_table,
        speed_tables.train_cuda_table, speed_tables.planted_lists_table,
        speed_tables.growth_table, speed_tables.serve_table,
        speed_tables.soak_table, speed_tables.data_table, speed_tables.doors_table, speed_tables.mixed_load_table,
        speed_tables.ties_table, speed_tables.memory_table,
    )
} | {"reproduced": reproduced.full}  # fmt: skip


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
