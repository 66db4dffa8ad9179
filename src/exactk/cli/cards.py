"""How commands keep cards: as JSON lines, or as CSV with a row for each item.

Knows answers as plain objects: a card, or the error in its place.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from exactk.cli.output import kept_file, plain
from exactk.errors import InputError

Answer = Mapping[str, Any]
ENDINGS = (".jsonl", ".ndjson", ".csv", "")
CSV_COLUMNS = ("request_id", "card", "item_id", "position", "value", "bound", "optimal", "relaxed", "error")


@contextmanager
def kept_cards(out: Path, *inputs: Path | None) -> Iterator[Callable[[Answer], object]]:
    """Yield what keeps one answer; the file takes its name when all are kept."""
    if out.suffix not in ENDINGS:
        raise InputError(f"--out {out}: cards are kept as .jsonl or .csv, not {out.suffix}")
    with kept_file(out, *inputs) as lines:
        yield _csv_writer(lines) if out.suffix == ".csv" else _json_writer(lines)


def _json_writer(lines: TextIO) -> Callable[[Answer], object]:
    return lambda answer: lines.write(json.dumps(plain(answer), ensure_ascii=False) + "\n")


def _csv_writer(lines: TextIO) -> Callable[[Answer], object]:
    """A row for each item of each card (card 1 is the best), one with the error where there is no card."""
    writer = csv.writer(lines)
    writer.writerow(CSV_COLUMNS)

    def write(answer: Answer) -> None:
        if "error" in answer:
            writer.writerow([answer["request_id"], *[None] * 7, answer["error"]])
            return
        for rank, card in enumerate([answer, *answer.get("others", ())], start=1):
            figures = (card["value"], card["bound"], card["optimal"], "; ".join(card["relaxed"]), None)
            for item, position in zip(card["items"], card["positions"], strict=True):
                writer.writerow([answer["request_id"], rank, item, position, *figures])

    return write
