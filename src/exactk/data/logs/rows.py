"""One row per item into one row per request: candidates, card and click gathered from the rows of a request.

Knows typed columns and their order, no files; `check.py` judges what comes out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Bool, Int64

from exactk.data.columns import bare_name, is_of_candidates
from exactk.data.columns.codes import hashed_rows
from exactk.data.logs.check import EXAMPLES, ReadReport
from exactk.data.table import codes_of, combine, first_flagged, flagged, flags_in, lists_of, replaced

_HASHES = (1 << 63) - 1
CONSTANT = ("user_id", "propensity", "timestamp", "split", "k")

Flags = Bool[np.ndarray, "L"]  # of source rows
Counts = Int64[np.ndarray, "R"]


class Piece(NamedTuple):
    """Impressions, one a row, with the first source row of each and how many source rows it had."""

    table: pa.Table
    rows: Int64[np.ndarray, "R"]
    counts: Int64[np.ndarray, "R"]


class DistinctIds:
    """Ids met so far. New ones wait until they are as many as the known, so that a long log costs n log n, not n^2."""

    def __init__(self) -> None:
        self._known: pa.Array | None = None
        self._waiting: list[pa.Array] = []
        self._count = 0

    def add(self, ids: Any) -> None:
        """Some more, in any number of repetitions."""
        values = combine(ids)
        fresh = pc.unique(values.flatten() if pa.types.is_list(values.type) else values)
        self._waiting.append(fresh)
        self._count += len(fresh)
        if self._count > max(1 << 16, 0 if self._known is None else len(self._known)):
            self._settle()

    def array(self) -> pa.Array:
        """All of them in the order they were met."""
        self._settle()
        return pa.array([]) if self._known is None else self._known

    def _settle(self) -> None:
        held = [] if self._known is None else [self._known]
        parts = [*held, *self._waiting]
        kind = next((part.type for part in parts if not pa.types.is_null(part.type)), None)
        if parts and kind is not None:
            self._known = pc.unique(pa.concat_arrays([part.cast(kind) for part in parts]))
        self._waiting, self._count = [], 0


class MetBefore:
    """Whether ids were met before, by 63-bit hashes: 8 bytes an id, and one slip in 10 million logs of a million."""

    def __init__(self) -> None:
        self._runs: list[Int64[np.ndarray, "_"]] = []  # sorted, each at least twice as long as the next

    def __call__(self, ids: pa.Array) -> Bool[np.ndarray, "R"]:
        """Which of the ids were added."""
        wanted = hashed_rows(ids, _HASHES)
        found = np.zeros(len(wanted), bool)
        for run in self._runs:
            place = np.minimum(np.searchsorted(run, wanted), len(run) - 1)
            found |= run[place] == wanted
        return found

    def add(self, ids: pa.Array) -> None:
        """More of them."""
        run = np.sort(hashed_rows(ids, _HASHES))
        while self._runs and len(self._runs[-1]) < 2 * len(run):
            run = np.sort(np.concatenate([self._runs.pop(), run]))
        if len(run):
            self._runs.append(run)


class RequestGatherer:
    """Takes pieces of a long table and gives back whole requests; the last one of a piece waits for the next piece.

    Rows of a request should stand together. Within a piece they need not; a request that reappears in a later
    piece is dropped and reported, as its impression is already written. Without `on_card` the card is the whole
    list, or, where the log says so by `card_size`, lists were shown whole and there is no card.
    """

    def __init__(self, report: ReadReport, card_size: int | None = None) -> None:
        self.report, self.card_size = report, card_size
        self._waiting: pa.Table | None = None
        self._closed = MetBefore()

    def requests(self, pieces: Iterator[tuple[int, pa.Table]]) -> Iterator[Piece]:
        """Wide tables, with the first source row of each request and how many it had."""
        for first_row, table in pieces:
            rows = pa.array(np.arange(first_row, first_row + len(table)))
            table = table.append_column("_row", rows)
            if self._waiting is not None:
                table = pa.concat_tables([self._waiting, table], promote_options="permissive")
            if not len(table):
                self._waiting = table
                continue
            last = pc.fill_null(pc.equal(table["request_id"], table["request_id"][-1]), False)
            waits = np.asarray(last, bool)
            together = int(np.argmin(waits[::-1])) if not waits.all() else len(table)
            if waits.sum() == together:  # as a rule: a slice costs nothing, a filter copies every column
                self._waiting = table.slice(len(table) - together)
                yield from self._gathered(table.slice(0, len(table) - together))
            else:
                self._waiting = table.filter(last)
                yield from self._gathered(table.filter(pc.invert(last)))
        if self._waiting is not None:
            yield from self._gathered(self._waiting)

    def _gathered(self, table: pa.Table) -> Iterator[Piece]:
        table = self._usable(table)
        if not len(table):
            return
        encoded = combine(table["request_id"]).dictionary_encode()  # numbered by first appearance
        code = np.asarray(encoded.indices, np.int64)
        if (np.diff(code) < 0).any():
            order = np.argsort(code, kind="stable")
            table, code = table.take(pa.array(order)), code[order]
        self._closed.add(encoded.dictionary)
        twice, of = _repeats(table, code)
        if twice.any():
            clicked = _flag_column(table, "clicked", False)
            late = twice & (clicked != clicked[of])
            self._drop("the same row twice, the first one kept", table, twice & ~late)
            table, code = self._with_late_clicks(table, late, of).filter(pa.array(~twice)), code[~twice]
        counts = np.bincount(code)
        counts = counts[counts > 0]
        rows = table["_row"].to_numpy()[_starts(counts)]
        kept = self._one_user(table, rows, counts)
        wide = self._wide(table, counts)
        yield Piece(wide if kept.all() else wide.filter(pa.array(kept)), rows[kept], counts[kept])

    def _with_late_clicks(self, table: pa.Table, late: Flags, of: Int64[np.ndarray, "L"]) -> pa.Table:
        """Shown in one row and clicked in another: the first is the one that was clicked."""
        if not late.any():
            return table
        example = int(table["_row"][int(late.argmax())].as_py())
        self.report.note("a click in a row of its own, joined to that of its item", example, int(late.sum()))
        clicked = _flag_column(table, "clicked", False).copy()
        clicked[of[late]] = True
        return replaced(table, "clicked", pa.array(clicked))

    def _one_user(self, table: pa.Table, rows: Counts, counts: Counts) -> Bool[np.ndarray, "R"]:
        """Which requests are of one user; the others are reported."""
        starts = _starts(counts)
        mixed = np.logical_or.reduceat(_differs(combine(table["user_id"]), counts), starts)
        for request in np.flatnonzero(mixed).tolist():
            name = table["request_id"][int(starts[request])].as_py()
            reason = "its request is of several users"
            self.report.drop(reason, int(rows[request]), "user_id", name, int(counts[request]))
        return ~mixed

    def _usable(self, table: pa.Table) -> pa.Table:
        """Leave out rows without a request, and requests that were closed before."""
        nameless = np.asarray(table["request_id"].is_null(), bool)
        self._drop("a value is missing", table, nameless)
        late = self._closed(combine(table["request_id"])) & ~nameless
        self._drop("its request came to an end before; sort the rows by request", table, late)
        kept = ~(nameless | late)
        return table if kept.all() else table.filter(pa.array(kept))

    def _drop(self, reason: str, table: pa.Table, lost: Flags) -> None:
        places = np.flatnonzero(lost).tolist()
        for number, place in enumerate(places[:EXAMPLES], 1):
            row, request = table["_row"][place].as_py(), table["request_id"][place].as_py()
            rest = max(0, len(places) - EXAMPLES) if number == EXAMPLES else 0
            self.report.drop(reason, row, "request_id", request, 1 + rest)

    def _wide(self, table: pa.Table, counts: Counts) -> pa.Table:
        item = combine(table["item_id"])
        on_card = _flag_column(table, "on_card", self.card_size is None)
        clicked = _flag_column(table, "clicked", False)
        whole = "on_card" not in table.column_names and self.card_size is not None
        first_click = first_flagged(counts, clicked if whole else clicked & on_card)
        columns = {
            "request_id": table["request_id"].take(pa.array(_starts(counts))),
            "candidates": lists_of(counts, item),
            "card": flagged(counts, item, on_card),
            "clicked": pa.array(first_click >= 0),
            "clicked_item": item.take(pa.array(first_click, mask=first_click < 0)),
            "clicked_items": flagged(counts, item, clicked),
        }
        for name in table.column_names:
            if name in CONSTANT or name.startswith(("context.", "user.")):
                columns[name] = self._constant(table, name, counts)
            elif is_of_candidates(name):
                columns[name] = lists_of(counts, combine(table[name]))
        return pa.table(columns)

    def _constant(self, table: pa.Table, name: str, counts: Counts) -> pa.Array:
        """The value of a request's first row, which its other rows should share."""
        column = combine(table[name])
        differing = np.flatnonzero(_differs(column, counts))
        if len(differing):
            text = f"'{bare_name(name)}' differs within a request, that of its first row kept"
            self.report.note(text, table["_row"][int(differing[0])].as_py(), len(differing))
        return column.take(pa.array(_starts(counts)))


def _repeats(table: pa.Table, code: Int64[np.ndarray, "L"]) -> tuple[Flags, Int64[np.ndarray, "L"]]:
    """Rows that say what an earlier one of their request and item says, but for clicks and their moment; and which."""
    item = codes_of(table["item_id"])
    _, first, of = np.unique(code * (int(item.max()) + 1) + item, return_index=True, return_inverse=True)
    earlier = first[of]
    again = np.flatnonzero(earlier != np.arange(len(code)))
    repeats = np.zeros(len(code), bool)
    if len(again):
        names = [name for name in table.column_names if name not in ("_row", "clicked", "timestamp")]
        one, other = (table.select(names).take(pa.array(rows)) for rows in (again, earlier[again]))
        repeats[again] = np.array([_same(one[name], other[name]) for name in names]).all(axis=0)
    return repeats, earlier


def _same(late: Any, early: Any) -> list[bool]:
    """Value by value, where the later row has one; of the few rows of an item that stands twice."""
    pairs = zip(late.to_pylist(), early.to_pylist(), strict=True)
    return [a is None or a == b or a != a for a, b in pairs]


def _starts(counts: Counts) -> Counts:
    return np.asarray(np.cumsum(counts) - counts)


def _differs(column: pa.Array, counts: Counts) -> Flags:
    """True where a row's value is not that of the first row of its request."""
    first = column.take(pa.array(np.repeat(_starts(counts), counts)))
    differs = flags_in(pc.not_equal(column, first))
    if pa.types.is_floating(column.type):
        differs &= ~flags_in(pc.and_(pc.is_nan(column), pc.is_nan(first)))
    return differs


def _flag_column(table: pa.Table, name: str, default: bool) -> Flags:
    return flags_in(table[name]) if name in table.column_names else np.full(len(table), default)
