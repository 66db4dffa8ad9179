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

from exactk.data.columns.roles import MEASURED
from exactk.data.logs.collected import MetBefore
from exactk.data.logs.report import EXAMPLES, ReadReport
from exactk.data.table import combine

CONSTANT = ("user_id", "propensity", "timestamp", "split", "k")
_CONSTANT_CARRIERS = ("context", "user")


class Piece(NamedTuple):
    """Impressions, one a row, with the first source row of each and how many source rows it had."""

    table: pa.Table
    rows: Int64[np.ndarray, "R"]
    counts: Int64[np.ndarray, "R"]


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
            waits = _flags(last)
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
        ids = combine(table["request_id"])
        encoded = ids.dictionary_encode()  # numbered by first appearance
        code = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        if (np.diff(code) < 0).any():
            order = np.argsort(code, kind="stable")
            table, code = table.take(pa.array(order)), code[order]
        self._closed.add(encoded.dictionary)
        twice, of = _repeats(table, code)
        if twice.any():
            late = twice & (
                _flag_column(table, "clicked", False) != _flag_column(table, "clicked", False)[of]
            )
            self._drop("the same row twice, the first one kept", table, twice & ~late)
            table, code = self._with_late_clicks(table, late, of).filter(pa.array(~twice)), code[~twice]
        starts = np.flatnonzero(np.diff(code, prepend=-1))
        counts = np.diff(np.append(starts, len(table)))
        rows = table["_row"].to_numpy()[starts]
        one_user = self._one_user(table, starts, rows, counts)
        wide = self._wide(table, starts)
        yield Piece(
            wide if one_user.all() else wide.filter(pa.array(one_user)), rows[one_user], counts[one_user]
        )

    def _with_late_clicks(
        self, table: pa.Table, late: Bool[np.ndarray, "L"], of: Int64[np.ndarray, "L"]
    ) -> pa.Table:
        """Shown in one row and clicked in another: the first is the one that was clicked."""
        if not late.any():
            return table
        self.report.note(
            "a click in a row of its own, joined to that of its item",
            int(table["_row"][int(late.argmax())].as_py()),
            int(late.sum()),
        )
        clicked = _flag_column(table, "clicked", False).copy()
        clicked[of[late]] = True
        return table.set_column(table.column_names.index("clicked"), "clicked", pa.array(clicked))

    def _one_user(
        self,
        table: pa.Table,
        starts: Int64[np.ndarray, "R"],
        rows: Int64[np.ndarray, "R"],
        counts: Int64[np.ndarray, "R"],
    ) -> Bool[np.ndarray, "R"]:
        """Which requests are of one user; the others are reported."""
        differs = _differs(combine(table["user_id"]), starts)
        mixed = np.add.reduceat(differs.astype(np.int64), starts) > 0
        for request in np.flatnonzero(mixed).tolist():
            name = table["request_id"][int(starts[request])].as_py()
            reason = "its request is of several users"
            self.report.drop(reason, int(rows[request]), "user_id", name, int(counts[request]))
        return ~mixed

    def _usable(self, table: pa.Table) -> pa.Table:
        """Leave out rows without a request, and requests that were closed before."""
        nameless = _flags(table["request_id"].is_null())
        self._drop("a value is missing", table, nameless)
        late = self._closed(combine(table["request_id"])) & ~nameless
        self._drop("its request came to an end before; sort the rows by request", table, late)
        kept = ~(nameless | late)
        return table if kept.all() else table.filter(pa.array(kept))

    def _drop(self, reason: str, table: pa.Table, lost: Bool[np.ndarray, "L"]) -> None:
        places = np.flatnonzero(lost).tolist()
        for number, place in enumerate(places[:EXAMPLES], 1):
            row, request = table["_row"][place].as_py(), table["request_id"][place].as_py()
            rest = max(0, len(places) - EXAMPLES) if number == EXAMPLES else 0
            self.report.drop(reason, row, "request_id", request, 1 + rest)

    def _wide(self, table: pa.Table, starts: Int64[np.ndarray, "R"]) -> pa.Table:
        offsets = pa.array(np.append(starts, len(table)), pa.int32())
        item = combine(table["item_id"])
        on_card = _flag_column(table, "on_card", self.card_size is None)
        clicked = _flag_column(table, "clicked", False)
        if "on_card" not in table.column_names and self.card_size is not None:
            first_click = _first_of(clicked, starts)
        else:
            first_click = _first_of(clicked & on_card, starts)
        columns = {
            "request_id": table["request_id"].take(pa.array(starts)),
            "candidates": pa.ListArray.from_arrays(offsets, item),
            "card": _listed(item, on_card, starts),
            "clicked": pa.array(first_click >= 0),
            "clicked_item": item.take(pa.array(first_click, mask=first_click < 0)),
            "clicked_items": _listed(item, clicked, starts),
        }
        for name in table.column_names:
            if name in CONSTANT or name.partition(".")[0] in _CONSTANT_CARRIERS:
                columns[name] = self._constant(table, name, starts)
            elif name in MEASURED or name.partition(".")[0] in ("candidate", "item"):
                columns[name] = pa.ListArray.from_arrays(offsets, combine(table[name]))
        return pa.table(columns)

    def _constant(self, table: pa.Table, name: str, starts: Int64[np.ndarray, "R"]) -> pa.Array:
        """The value of a request's first row, which its other rows should share."""
        column = combine(table[name])
        differing = np.flatnonzero(_differs(column, starts))
        if len(differing):
            said = name.partition(".")[2] or name
            text = f"'{said}' differs within a request, that of its first row kept"
            self.report.note(text, table["_row"][int(differing[0])].as_py(), len(differing))
        return column.take(pa.array(starts))


def _repeats(
    table: pa.Table, code: Int64[np.ndarray, "L"]
) -> tuple[Bool[np.ndarray, "L"], Int64[np.ndarray, "L"]]:
    """Rows that say what an earlier one of their request and item says, but for clicks and their moment; and which."""
    item = combine(table["item_id"]).dictionary_encode(null_encoding="encode")
    item_code = item.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    key = code * len(item.dictionary) + item_code
    _, first, of = np.unique(key, return_index=True, return_inverse=True)
    earlier = first[of]
    again = np.flatnonzero(earlier != np.arange(len(key)))
    repeats = np.zeros(len(key), bool)
    if len(again):
        names = [name for name in table.column_names if name not in ("_row", "clicked", "timestamp")]
        one, other = (table.select(names).take(pa.array(rows)) for rows in (again, earlier[again]))
        repeats[again] = np.array([_same(one[name], other[name]) for name in names]).all(axis=0)
    return repeats, earlier


def _same(late: Any, early: Any) -> list[bool]:
    """Value by value, where the later row has one; of the few rows of an item that stands twice."""
    pairs = zip(late.to_pylist(), early.to_pylist(), strict=True)
    return [a is None or a == b or a != a for a, b in pairs]


def _first_of(flags: Bool[np.ndarray, "L"], starts: Int64[np.ndarray, "R"]) -> Int64[np.ndarray, "R"]:
    """The first row of each request whose flag is set, -1 where none is."""
    first = np.full(len(starts), -1)
    places = np.flatnonzero(flags)
    owners = np.searchsorted(starts, places, side="right") - 1
    first[owners[::-1]] = places[::-1]  # written backwards: the first of a request stays
    return first


def _listed(item: pa.Array, flags: Bool[np.ndarray, "L"], starts: Int64[np.ndarray, "R"]) -> pa.Array:
    """The items of each request whose flag is set."""
    sizes = np.add.reduceat(flags.astype(np.int64), starts)
    offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]), pa.int32())
    return pa.ListArray.from_arrays(offsets, item.filter(pa.array(flags)))


def _differs(column: pa.Array, starts: Int64[np.ndarray, "R"]) -> Bool[np.ndarray, "L"]:
    """True where a row's value is not that of the first row of its request."""
    counts = np.diff(np.append(starts, len(column)))
    first = column.take(pa.array(np.repeat(starts, counts)))
    differs = _flags(pc.fill_null(pc.not_equal(column, first), False))
    if pa.types.is_floating(column.type):
        differs &= ~_flags(pc.fill_null(pc.and_(pc.is_nan(column), pc.is_nan(first)), False))
    return differs


def _flag_column(table: pa.Table, name: str, default: bool) -> Bool[np.ndarray, "L"]:
    if name not in table.column_names:
        return np.full(len(table), default)
    return _flags(pc.fill_null(table[name], False))


def _flags(column: object) -> Bool[np.ndarray, "L"]:
    return np.asarray(combine(column).to_numpy(zero_copy_only=False), bool)
