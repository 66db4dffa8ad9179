"""What a build says at its end: what was used as what, what was left out and why, and whether it was worth it.

Knows the report and the signal, no files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from exactk.data.logs.check import ReadReport

MOST_LOST = 0.03

_REMEDY = "name the column of clicks (clicked, clicked_item), or say positives_only = true where every card was chosen"


def build_faults(report: ReadReport, signal: Sequence[str]) -> list[str]:
    """Why a careful caller would not use what was built; empty where all is well."""
    faults = []
    lost = report.rows_dropped / max(1, report.rows_read)
    if lost > MOST_LOST:
        faults.append(f"{lost:.1%} of the rows were lost ({report.rows_dropped:,} of {report.rows_read:,})")
    if not signal:
        faults.append(f"there is nothing to learn from: {_REMEDY}")
    return faults


def build_lines(report: ReadReport, signal: Sequence[str], faults: Sequence[str]) -> Iterator[str]:
    """The lines, the most important last."""
    for use, names in report.used.items():
        yield f"used as {use}: {', '.join(names)}"
    for name, reason in report.ignored.items():
        yield f"ignored {name}: {reason}"
    for text, entry in report.notes.items():
        yield f"note, {entry['rows']:,} times: {text}"
    for reason, entry in report.dropped.items():
        yield f"dropped {entry['rows']:,} rows: {reason}; the first: {entry['examples'][0]}"
    if signal:
        yield f"learns from: {', '.join(signal)}"
    for fault in faults:
        yield f"WARNING: {fault}"
