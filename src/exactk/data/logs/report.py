"""What became of a log: rows read and dropped, columns used and ignored, and what a build says of it at its end.

Knows no files.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

MOST_LOST = 0.03
EXAMPLES = 5

_REMEDY = (
    "name the column of clicks (clicked, clicked_item) or of grades (reward), or say positives_only = true where every "
    "card was chosen"
)

NOTHING_ELSE = (
    "a card beside which nothing else was on offer, so that nothing tells what was chosen from what was not; give the "
    "lists the cards were chosen from (candidates), or rows of what was left (on_card = 0)"
)


@dataclass
class ReadReport:
    """What became of every row: read, kept, dropped and why, and what had to be added. `to_dict` is plain JSON."""

    source: str
    rows_read: int = 0
    impressions: int = 0
    dropped: dict[str, dict[str, Any]] = field(default_factory=dict)
    notes: dict[str, dict[str, Any]] = field(default_factory=dict)
    used: dict[str, list[str]] = field(default_factory=dict)
    ignored: dict[str, str] = field(default_factory=dict)
    cards: str = ""  # what a card is, where no column says

    def drop(self, reason: str, row: int, column: str, value: Any, rows: int = 1) -> None:
        """Count a row as lost; the first few are kept as examples."""
        _count(self.dropped, reason, {"row": row, "column": column, "value": _plain(value)}, rows)

    def note(self, text: str, example: Any, count: int = 1) -> None:
        """Count something the reader should know though nothing was lost."""
        _count(self.notes, text, _plain(example), count)

    @property
    def rows_dropped(self) -> int:
        """All of them, for whatever reason."""
        return sum(entry["rows"] for entry in self.dropped.values())

    def to_dict(self) -> dict[str, Any]:
        """What `--report` writes and the folder's provenance keeps."""
        return {
            "source": self.source,
            "rows_read": self.rows_read,
            "rows_dropped": self.rows_dropped,
            "impressions": self.impressions,
            "dropped": self.dropped,
            "notes": self.notes,
            "used": self.used,
            "ignored": self.ignored,
            "cards": self.cards,
        }


def _plain(value: Any) -> Any:
    """A value as JSON can say it: an endless number or a moment as text."""
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    sayable = (
        value is None or isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value))
    )
    return value if sayable else str(value)


def _count(entries: dict[str, dict[str, Any]], key: str, example: Any, rows: int) -> None:
    entry = entries.setdefault(key, {"rows": 0, "examples": []})
    entry["rows"] += rows
    if len(entry["examples"]) < EXAMPLES:
        entry["examples"].append(example)


def build_faults(report: ReadReport, signal: Sequence[str]) -> list[str]:
    """Why a careful caller would not use what was built; empty where all is well."""
    faults = []
    lost = report.rows_dropped / max(1, report.rows_read)
    if lost > MOST_LOST:
        faults.append(f"{lost:.1%} of the rows were lost ({report.rows_dropped:,} of {report.rows_read:,})")
    if NOTHING_ELSE in report.notes:
        faults.append(f"there is nothing to learn from: {NOTHING_ELSE}")
    elif not signal:
        faults.append(f"there is nothing to learn from: {_REMEDY}")
    return faults


def build_lines(report: ReadReport, signal: Sequence[str], faults: Sequence[str]) -> Iterator[str]:
    """The lines, the most important last."""
    for use, names in report.used.items():
        yield f"used as {use}: {', '.join(names)}"
    for name, reason in report.ignored.items():
        yield f"ignored {name}: {reason}"
    if report.cards:
        yield f"cards: {report.cards}"
    for text, entry in report.notes.items():
        yield f"note, {entry['rows']:,} times: {text}"
    for reason, entry in report.dropped.items():
        yield f"dropped {entry['rows']:,} rows: {reason}; the first: {entry['examples'][0]}"
    if signal:
        yield f"learns from: {', '.join(signal)}"
    for fault in faults:
        yield f"WARNING: {fault}"
