"""Do the rows of a caller's log make sense? Each row that does not gets a reason; a report tells what became of all.

Knows typed columns, no files.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Bool, Int64

from exactk.data.assemble import ItemLists, card_positions
from exactk.data.columns import NO_USER, bare_name, is_of_candidates
from exactk.data.table import (
    SPLITS,
    RowLookup,
    combine,
    first_flagged,
    flagged,
    flags_in,
    flatten,
    is_list,
    owners,
    replaced,
)

Rows = Int64[np.ndarray, "R"]

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
        return {**vars(self), "rows_dropped": self.rows_dropped}


def _plain(value: Any) -> Any:
    """A value as JSON can say it: an endless number or a moment as text."""
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    endless = isinstance(value, float) and not math.isfinite(value)
    return value if isinstance(value, str | int | float | None) and not endless else str(value)


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


def build_lines(
    report: ReadReport, signal: Sequence[str], faults: Sequence[str], made: Mapping[str, Sequence[str]]
) -> Iterator[str]:
    """The lines, the most important last; `made` is what is made of the columns used."""
    for use, names in report.used.items():
        yield f"used as {use}: {', '.join(names)}"
    for what, held in made.items():
        yield f"made of these, {what}: {', '.join(held)}"
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


SHORT = "its list is not as long as that of the candidates"


@dataclass(frozen=True)
class Problem:
    """Why one row of a table cannot stay."""

    row: int
    column: str
    reason: str
    value: Any


def completed(table: pa.Table, first_row: int, report: ReadReport, positives_only: bool = False) -> pa.Table:
    """Fill in what follows from the rest: request ids from row numbers, clicks from clicked items and back.

    Clicks outside the card are clicks of the list: they stay in `clicked_items`, the card counts as not clicked.
    """
    R = len(table)
    if alone := table["user_id"].null_count:
        report.note("a request without a user: it teaches what suits unknown users", None, alone)
        users = table["user_id"]
        table = replaced(table, "user_id", pc.fill_null(users, NO_USER[str(users.type)]))
    if "request_id" not in table.column_names:
        table = table.append_column("request_id", pa.array(np.arange(first_row, first_row + R)))
    if "clicked_items" in table.column_names:
        table = _of_the_card(table)
    if positives_only:
        table = replaced(table, "clicked", pa.array(np.ones(R, bool)))
    elif "clicked" not in table.column_names:
        known = "clicked_item" in table.column_names
        named = table["clicked_item"].is_valid() if known else pa.array(np.zeros(R, bool))
        table = table.append_column("clicked", named)
    if "clicked_item" in table.column_names and "clicked_items" not in table.column_names:
        table = _outside_the_card(table, report)
    return table


def flags_as_ids(table: pa.Table, rows: Rows, report: ReadReport) -> tuple[pa.Table, Int64[np.ndarray, "Q"]]:
    """Flags beside the candidates as the ids they mark; rows where they are not as many are dropped."""
    for flags, named in (("clicked", "clicked_items"), ("on_card", "card")):
        if flags not in table.column_names or not is_list(table[flags].type):
            continue
        fits = flatten(table[flags])[1] == flatten(table["candidates"])[1]
        for place in np.flatnonzero(~fits).tolist():
            report.drop(SHORT, int(rows[place]), flags, table[flags][place].as_py())
        if not fits.all():
            table, rows = table.filter(pa.array(fits)), rows[fits]
        candidates, sizes = flatten(table["candidates"])
        marked = flags_in(flatten(table[flags])[0])
        table = replaced(table.drop_columns([flags]), named, flagged(sizes, candidates, marked))
    return table, rows


def _of_the_card(table: pa.Table) -> pa.Table:
    """`clicked_item`, where not given, is the first of the clicked ones that is on the card."""
    if "clicked_item" in table.column_names:
        return table
    clicks, counts = flatten(table["clicked_items"])
    first = first_flagged(counts, _among(table, clicks, counts, "card"))
    table = table.append_column("clicked_item", clicks.take(pa.array(first, mask=first < 0)))
    return replaced(table, "clicked", pa.array(first >= 0)) if "clicked" not in table.column_names else table


def _outside_the_card(table: pa.Table, report: ReadReport) -> pa.Table:
    """A clicked item that was not on the card is kept as a click of the list."""
    click = combine(table["clicked_item"])
    one = np.ones(len(table), np.int64)
    named = ~_missing(click)
    moved = named & _among(table, click, one, "candidates") & ~_among(table, click, one, "card")
    for row in np.flatnonzero(moved)[:1].tolist():
        text = "a click outside the card, kept as a click on the list"
        report.note(text, click[row].as_py(), int(moved.sum()))
    lists = flagged(one, click, named)
    table = replaced(table, "clicked_item", pc.if_else(pa.array(moved), None, click))
    table = replaced(table, "clicked", pc.if_else(pa.array(moved), False, combine(table["clicked"])))
    return table.append_column("clicked_items", lists)


def _among(table: pa.Table, items: pa.Array, counts: Rows, column: str) -> Bool[np.ndarray, "L"]:
    """Which of the items, `counts` of them a row, stand in the row's list; where there is no card, candidates do."""
    offered, sizes = flatten(table["candidates"])
    owner = owners(sizes)
    if column == "card":
        card, card_sizes = _card_lists(table, offered.type)
        bare = np.repeat(card_sizes == 0, sizes)
        offered = pa.concat_arrays([card, offered.filter(pa.array(bare))])
        owner = np.concatenate([owners(card_sizes), owner[bare]])
    lookup = RowLookup(pc.unique(pc.drop_null(offered)))
    width = len(lookup.ids) + 1
    wanted = lookup(items)
    keys = owners(counts) * width + wanted
    return np.asarray((wanted >= 0) & np.isin(keys, owner * width + lookup(offered)))


def problems(table: pa.Table) -> Iterator[Problem]:
    """At most one problem a row, the rows ascending within each kind of problem."""
    found = np.zeros(len(table), bool)

    def of_column(column: str, wrong: Bool[np.ndarray, "R"], reason: str) -> Iterator[Problem]:
        for row in np.flatnonzero(wrong & ~found).tolist():
            yield Problem(row, bare_name(column), reason, table[column][row].as_py())
        found[wrong] = True

    for name in ("request_id", "candidates", "clicked"):
        yield from of_column(name, _missing(table[name]), "a value is missing")
    _, counts = flatten(table["candidates"])
    yield from of_column("candidates", counts == 0, "there are no candidates")
    if "propensity" in table.column_names:
        values = pc.fill_null(table["propensity"], float("nan")).to_numpy()
        wrong = (values <= 0) | (values > 1)
        yield from of_column("propensity", wrong, "is not a probability above 0 and at most 1")
    if "split" in table.column_names:
        known = pc.is_in(table["split"], value_set=pa.array([*SPLITS, None], table["split"].type))
        yield from of_column("split", ~np.asarray(known, bool), f"is none of {', '.join(SPLITS)}")
    if "clicked_item" in table.column_names:
        named = ~_missing(table["clicked_item"])
        silent = named & ~flags_in(table["clicked"])
        yield from of_column("clicked_item", silent, "an item is named though nothing was clicked")
    for name in table.column_names:
        if is_of_candidates(name):
            yield from of_column(name, flatten(table[name])[1] != counts, SHORT)
    for problem in _card_problems(table):
        if not found[problem.row]:
            found[problem.row] = True
            yield problem
    if "clicked_items" in table.column_names:
        clicks, sizes = flatten(table["clicked_items"])
        strange = ~_among(table, clicks, sizes, "candidates")
        rows = np.zeros(len(table), bool)
        rows[owners(sizes)[strange]] = True
        yield from of_column("clicked_items", rows, "a clicked item is not among the candidates")


def _card_problems(table: pa.Table) -> Iterator[Problem]:
    ids, counts = flatten(table["candidates"])
    cards, sizes = _card_lists(table, ids.type)
    named = "clicked_item" in table.column_names
    click = combine(table["clicked_item"]) if named else pa.nulls(len(table), ids.type)
    lookup = RowLookup(pc.unique(pc.drop_null(ids)))
    # A card item that is nobody's candidate gets a number of its own, so that it is reported like any other.
    unknown = len(lookup.ids)
    numbered = [np.where(_missing(column), -1, lookup(column)) for column in (ids, cards, click)]
    for column, numbers in zip((ids, cards, click), numbered, strict=True):
        numbers[~_missing(column) & (numbers < 0)] = unknown
    scratch = np.full((unknown + 1, 2), -1, np.int64)
    lists = ItemLists(numbered[0], counts), ItemLists(numbered[1], sizes)
    placed = card_positions(*lists, numbered[2], scratch, 0)
    flat = {"candidates": ids, "card": cards, "clicked_item": click}
    for row, column, text, item in placed.faults(flat):
        yield Problem(row, column, text.replace("{item!r} ", ""), item)


def _card_lists(table: pa.Table, kind: pa.DataType) -> tuple[pa.Array, Rows]:
    if "card" not in table.column_names:
        return pa.array([], kind), np.zeros(len(table), np.int64)
    return flatten(table["card"])


def _missing(column: Any) -> Bool[np.ndarray, "R"]:
    return np.asarray(column.is_null(), bool)
