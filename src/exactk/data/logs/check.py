"""Do the rows of a caller's log make sense? Each row that does not gets a reason; nothing goes unsaid.

Knows typed columns, no files.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Bool, Int64

from exactk.data.assemble import FAULTS, card_positions
from exactk.data.columns.roles import MEASURED, NO_USER
from exactk.data.logs.files import lists_of
from exactk.data.logs.report import ReadReport
from exactk.data.table import SPLITS, RowLookup, combine, flatten, is_list

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
        report.note("a request without a user: it teaches what suits somebody unknown", None, alone)
        table = _replaced(
            table, "user_id", pc.fill_null(table["user_id"], NO_USER[str(table["user_id"].type)])
        )
    if "request_id" not in table.column_names:
        table = table.append_column("request_id", pa.array(np.arange(first_row, first_row + R)))
    if "clicked_items" in table.column_names:
        table = _of_the_card(table)
    if positives_only:
        table = _replaced(table, "clicked", pa.array(np.ones(R, bool)))
    elif "clicked" not in table.column_names:
        named = (
            table["clicked_item"].is_valid() if "clicked_item" in table.column_names else np.zeros(R, bool)
        )
        table = table.append_column("clicked", pa.array(named) if isinstance(named, np.ndarray) else named)
    if "clicked_item" in table.column_names and "clicked_items" not in table.column_names:
        table = _outside_the_card(table, report)
    return table


def flags_as_ids(
    table: pa.Table, rows: Int64[np.ndarray, "R"], report: ReadReport
) -> tuple[pa.Table, Int64[np.ndarray, "Q"]]:
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
        marked = pc.fill_null(flatten(table[flags])[0], False)
        owner = np.repeat(np.arange(len(table)), sizes)[_flags(marked)]
        lists = lists_of(np.bincount(owner, minlength=len(table)), candidates.filter(marked), pa.array(rows))
        table = _replaced(table.drop_columns([flags]), named, lists)
    return table, rows


def _of_the_card(table: pa.Table) -> pa.Table:
    """`clicked_item`, where not given, is the first of the clicked ones that is on the card."""
    if "clicked_item" in table.column_names:
        return table
    clicks, counts = flatten(table["clicked_items"])
    inside = _among(table, clicks, counts, "card")
    owner = np.repeat(np.arange(len(table)), counts)
    places = np.flatnonzero(inside)
    first = np.full(len(table), -1)
    first[owner[places[::-1]]] = places[::-1]
    table = table.append_column("clicked_item", clicks.take(pa.array(first, mask=first < 0)))
    return _replaced(table, "clicked", pa.array(first >= 0)) if "clicked" not in table.column_names else table


def _outside_the_card(table: pa.Table, report: ReadReport) -> pa.Table:
    """A clicked item that was not on the card is kept as a click of the list."""
    click = combine(table["clicked_item"])
    one = np.ones(len(table), np.int64)
    named = ~_missing(click)
    moved = named & _among(table, click, one, "candidates") & ~_among(table, click, one, "card")
    for row in np.flatnonzero(moved)[:1].tolist():
        report.note(
            "a click outside the card, kept as a click of the list", click[row].as_py(), int(moved.sum())
        )
    offsets = pa.array(np.concatenate([[0], np.cumsum(named)]), pa.int32())
    lists = pa.ListArray.from_arrays(offsets, click.filter(pa.array(named)))
    table = _replaced(table, "clicked_item", pc.if_else(pa.array(moved), None, click))
    table = _replaced(table, "clicked", pc.if_else(pa.array(moved), False, combine(table["clicked"])))
    return table.append_column("clicked_items", lists)


def _among(
    table: pa.Table, items: pa.Array, counts: Int64[np.ndarray, "R"], column: str
) -> Bool[np.ndarray, "L"]:
    """Which of the items, `counts` of them a row, stand in the row's list; where there is no card, candidates do."""
    offered, sizes = flatten(table["candidates"])
    owner = np.repeat(np.arange(len(table)), sizes)
    if column == "card":
        card, card_sizes = _card_lists(table, offered.type)
        bare = np.repeat(card_sizes == 0, sizes)
        offered = pa.concat_arrays([card, offered.filter(pa.array(bare))])
        owner = np.concatenate([np.repeat(np.arange(len(table)), card_sizes), owner[bare]])
    lookup = RowLookup(pc.unique(pc.drop_null(offered)))
    width = len(lookup.ids) + 1
    wanted = lookup(items)
    keys = np.repeat(np.arange(len(table)), counts) * width + wanted
    return np.asarray((wanted >= 0) & np.isin(keys, owner * width + lookup(offered)))


def _replaced(table: pa.Table, name: str, values: Any) -> pa.Table:
    if name not in table.column_names:
        return table.append_column(name, values)
    return table.set_column(table.column_names.index(name), name, values)


def problems(table: pa.Table) -> Iterator[Problem]:
    """At most one problem a row, the rows ascending within each kind of problem."""
    found = np.zeros(len(table), bool)

    def of_column(column: str, wrong: Bool[np.ndarray, "R"], reason: str) -> Iterator[Problem]:
        named = column.partition(".")[2] or column
        for row in np.flatnonzero(wrong & ~found).tolist():
            yield Problem(row, named, reason, table[column][row].as_py())
        found[wrong] = True

    for name in ("request_id", "candidates", "clicked"):
        yield from of_column(name, _missing(table[name]), "a value is missing")
    _, counts = flatten(table["candidates"])
    yield from of_column("candidates", counts == 0, "there are no candidates")
    if "propensity" in table.column_names:
        values = pc.fill_null(table["propensity"], float("nan")).to_numpy()
        yield from of_column(
            "propensity", (values <= 0) | (values > 1), "is no probability above 0 and at most 1"
        )
    if "split" in table.column_names:
        known = pc.is_in(table["split"], value_set=pa.array([*SPLITS, None], table["split"].type))
        yield from of_column("split", ~_flags(known), f"is none of {', '.join(SPLITS)}")
    if "clicked_item" in table.column_names:
        named = ~_missing(table["clicked_item"])
        silent = named & ~_flags(pc.fill_null(table["clicked"], False))
        yield from of_column("clicked_item", silent, "an item is named though nothing was clicked")
    for name in table.column_names:
        if name in MEASURED or name.partition(".")[0] in ("candidate", "item"):
            short = flatten(table[name])[1] != counts
            yield from of_column(name, short, SHORT)
    for problem in _card_problems(table):
        if not found[problem.row]:
            found[problem.row] = True
            yield problem
    if "clicked_items" in table.column_names:
        clicks, sizes = flatten(table["clicked_items"])
        strange = ~_among(table, clicks, sizes, "candidates")
        rows = np.zeros(len(table), bool)
        rows[np.repeat(np.arange(len(table)), sizes)[strange]] = True
        yield from of_column("clicked_items", rows, "a clicked item is not among the candidates")


def _card_problems(table: pa.Table) -> Iterator[Problem]:
    ids, counts = flatten(table["candidates"])
    cards, sizes = _card_lists(table, ids.type)
    click = (
        combine(table["clicked_item"])
        if "clicked_item" in table.column_names
        else pa.nulls(len(table), ids.type)
    )
    lookup = RowLookup(pc.unique(pc.drop_null(ids)))
    # A card item that is nobody's candidate gets a number of its own, so that it is reported like any other.
    unknown = len(lookup.ids)
    numbered = [np.where(_missing(column), -1, lookup(column)) for column in (ids, cards, click)]
    for column, numbers in zip((ids, cards, click), numbered, strict=True):
        numbers[~_missing(column) & (numbers < 0)] = unknown
    scratch = np.full((unknown + 1, 2), -1, np.int64)
    placed = card_positions(numbered[0], counts, numbered[1], sizes, numbered[2], scratch, 0)
    flat = {"candidates": ids, "card": cards, "clicked_item": click}
    for row in np.flatnonzero(placed.fault).tolist():
        column, text = FAULTS[int(placed.fault[row])]
        item = flat[column][int(placed.culprit[row])].as_py()
        yield Problem(row, column, text.replace("{item!r} ", ""), item)


def _card_lists(table: pa.Table, kind: pa.DataType) -> tuple[pa.Array, Int64[np.ndarray, "R"]]:
    if "card" not in table.column_names:
        return pa.array([], kind), np.zeros(len(table), np.int64)
    return flatten(table["card"])


def _missing(column: Any) -> Bool[np.ndarray, "R"]:
    return _flags(column.is_null())


def _flags(column: Any) -> Bool[np.ndarray, "R"]:
    return np.asarray(combine(column).to_numpy(zero_copy_only=False), bool)
