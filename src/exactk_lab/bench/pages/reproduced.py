"""The reproduction as Markdown tables, for the terminal and `docs/benchmarks/paper.md`.

Knows the rows of `results/reproduce-*.json`, no runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from exactk_lab.bench.report import table as markdown_table

Rows = Sequence[Mapping[str, Any]]


def table(name: str, rows: Rows) -> str:
    """The rows of a part, few columns, means with their spread over seeds."""
    if name == "main":
        return "\n\n".join(_main(column, rows) for column in dict.fromkeys(row["column"] for row in rows))
    if name == "ablation":
        return _lines(
            ("row", "setting", "P@4", "HR@4", "paper's P@4", "paper's HR@4", "seeds"),
            [
                (
                    row["row"],
                    row["setting"],
                    spread(row, "P"),
                    spread(row, "HR"),
                    *_printed(row),
                    len(row["seeds"]),
                )
                for row in rows
            ],
        )
    if name == "beam":
        return _lines(
            ("method", "beam", "P@4", "HR@4", "ms a card"),
            [
                (row["method"], row["beam"], spread(row, "P"), spread(row, "HR"), f"{row['ms_per_card']:.3f}")
                for row in rows
            ],
        )
    if name == "alpha":
        return _lines(
            ("alpha", "P@4", "HR@4"),
            [(f"{row['alpha']:g}", spread(row, "P"), spread(row, "HR")) for row in rows],
        )
    if name == "curves":
        last = {row["curve"]: row for row in rows}
        return _lines(
            ("curve", "last epoch", "P@4 on validation", "HR@4"),
            [(curve, row["epoch"], spread(row, "P"), spread(row, "HR")) for curve, row in last.items()],
        )
    return _lines(
        ("film", "on the card", "liked", "looks most at"),
        [(row["film"], _mark(row["chosen"]), _mark(row["liked"]), _favourite(row)) for row in rows],
    )


def full(document: Mapping[str, Any]) -> str:
    """A result's table, its goals and its remarks."""
    goals = [
        f"- Goal {'met' if goal['met'] else 'missed'}: {goal['name']}: {goal['measured']:.4g} (goal {goal['goal']})."
        for goal in document["goals"]
    ]
    notes = [f"- {note}" for note in document["notes"]]
    made = f"`{document['command']}`, commit {document['machine']['commit']}:"
    parts = [made, table(document["name"].split()[-1], document["rows"]), "\n".join([*goals, *notes])]
    return "\n\n".join(part for part in parts if part)


def spread(row: Mapping[str, Any], name: str) -> str:
    """0.641 ± 0.004; nothing where nothing was measured."""
    if row.get(name) is None:
        return ""
    return f"{row[name]:.3f}" + (f" ± {row[f'{name}_sd']:.3f}" if len(row.get("seeds", [0, 0])) > 1 else "")


def _main(column: str, rows: Rows) -> str:
    own = [row for row in rows if row["column"] == column]
    valued = any("value" in row for row in own)
    heads = ["method", "P@K", "HR@K", "paper's P@K", "paper's HR@K", "p against ours", "seeds"]
    return f"**{column}**\n\n" + _lines(
        [*heads, "true value", "of the optimum"] if valued else heads,
        [
            (
                row["method"],
                spread(row, "P"),
                spread(row, "HR"),
                *_printed(row),
                _p(row),
                len(row["seeds"]),
                *((spread(row, "value"), _share(row)) if valued else ()),
            )
            for row in own
        ],
    )


def _share(row: Mapping[str, Any]) -> str:
    return f"{row['share_of_optimum']:.1%}" if "share_of_optimum" in row else ""


def _p(row: Mapping[str, Any]) -> str:
    tested = row.get("ours_minus_this")
    if tested is None:
        return row.get("failed", "") and "failed"
    return f"{tested['p']:.4f}".rstrip("0") if tested["p"] >= 0.001 else "< 0.001"


def _printed(row: Mapping[str, Any]) -> tuple[str, str]:
    return tuple(f"{row[name]:.4f}" if name in row else "" for name in ("paper_P", "paper_HR"))  # type: ignore[return-value]


def _mark(value: bool) -> str:
    return "yes" if value else ""


def _favourite(row: Mapping[str, Any]) -> str:
    film = max(row["attends_to"], key=row["attends_to"].get)
    return f"{film} ({row['attends_to'][film]:.2f})"


def _lines(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    return markdown_table(" | ".join(columns), (" | ".join(map(str, row)) for row in rows))
