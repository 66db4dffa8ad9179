"""Impressions in integers: external ids become rows of `items.parquet` and `users.parquet`, cards become positions.

Knows no files beyond the names it puts into messages; refuses, by row and column, what a log cannot mean.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Float32, Float64, Int8, Int32, Int64, UInt8

from exactk.data.assemble import ItemLists, card_positions, list_positions
from exactk.data.columns import Columns
from exactk.data.columns.codes import CategoryCoder, category_texts
from exactk.data.table import FILES, SPLITS, RowLookup, combine, flags_in, flatten, owners, packed_size
from exactk.errors import DataError

NO_TIMESTAMP = np.iinfo(np.int64).min


Rows = Int64[np.ndarray, "R"]


class Coder:
    """Turns a table of impressions into the arrays of the index, refusing what a log cannot mean."""

    def __init__(self, items: RowLookup, users: RowLookup, columns: Columns | None = None) -> None:
        self.items, self.users = items, users
        self.context = (columns or Columns()).context
        self.categories = CategoryCoder(self.context.categories)
        self.row = 0  # first row of the table at hand
        self._ends = {"candidates": 0, "card": 0, "graph": 0, "click": 0}
        self._last_request: tuple[Any, int] = (None, -1)
        self._scratch = np.full((len(items.ids), 2), -1, np.int64)

    def coded(self, table: pa.Table) -> dict[str, np.ndarray]:
        R = len(table)
        ids, num_candidates = flatten(table["candidates"])
        candidates = self._rows_of(self.items, ids, num_candidates, "candidates")
        user = self._rows_of(self.users, table["user_id"], np.ones(R, np.int64), "user_id")
        cards, card_sizes = flatten(self._or_null(table, "card", pa.list_(self.items.ids.type)))
        card = self._rows_of(self.items, cards, card_sizes, "card")
        clicked_item = combine(self._or_null(table, "clicked_item", self.items.ids.type))
        named, click = np.asarray(clicked_item.is_valid()), self.items(clicked_item)
        self._refuse("clicked_item", named & (click < 0),
                     lambda row: f"{clicked_item[row].as_py()!r} is not in items.parquet")  # fmt: skip
        offered = ItemLists(candidates, num_candidates)
        placed = card_positions(offered, ItemLists(card, card_sizes), click, self._scratch, self.row)
        flat = {"candidates": ids, "card": cards, "clicked_item": clicked_item}
        for row, column, text, item in placed.faults(flat):
            raise self._error(row, column, text.format(item=item))
        clicked = flags_in(self._or_null(table, "clicked", pa.bool_()))
        silent = named & ~clicked
        self._refuse("clicked_item", silent, lambda _: "an item is named though nothing was clicked")
        click_positions, click_counts = self._clicks(table, offered, placed.clicked)
        graph, graph_sizes = self._graphs(table, num_candidates)
        coded = {
            "candidates": candidates, "candidate_start": self._advance("candidates", num_candidates),
            "card": placed.card, "card_start": self._advance("card", card_sizes),
            "click": click_positions, "click_start": self._advance("click", click_counts),
            "graph": graph, "graph_start": self._advance("graph", graph_sizes),
            "user": user, "clicked": clicked, "clicked_position": placed.clicked,
            "propensity": self._propensity(table), "timestamp": self._timestamp(table),
            "request": self._requests(table["request_id"]), "split": self._splits(table),
            "context_numbers": self._context_numbers(table), "context_categories": self._context_categories(table),
        }  # fmt: skip
        self.row += R
        return coded

    def _clicks(
        self, table: pa.Table, offered: ItemLists, clicked: Int32[np.ndarray, "R"]
    ) -> tuple[Int32[np.ndarray, "L"], Rows]:
        """Positions of all clicked items; where only one is named, of that one."""
        if "clicked_items" not in table.column_names:
            return clicked[clicked >= 0], (clicked >= 0).astype(np.int64)
        ids, counts = flatten(table["clicked_items"])
        items = self._rows_of(self.items, ids, counts, "clicked_items")
        positions = list_positions(offered, ItemLists(items, counts))
        self._refuse(
            "clicked_items", positions < 0,
            lambda bad: f"the clicked item {ids[bad].as_py()!r} is not among the candidates", counts,
        )  # fmt: skip
        return positions, counts

    def _context_numbers(self, table: pa.Table) -> Float32[np.ndarray, "R F"]:
        held = [self._or_null(table, name, pa.float32()) for name in self.context.numbers]
        columns = [np.asarray(column.cast(pa.float32())) for column in held]
        return np.column_stack(columns) if columns else np.empty((len(table), 0), np.float32)

    def _context_categories(self, table: pa.Table) -> Int32[np.ndarray, "R F"]:
        codes = [
            self.categories.coded(name, category_texts(self._or_null(table, name, pa.string())))
            for name in self.context.categories
        ]
        return np.column_stack(codes) if codes else np.empty((len(table), 0), np.int32)

    def _rows_of(self, lookup: RowLookup, ids: Any, lengths: Rows, column: str) -> Int64[np.ndarray, "C"]:
        """The rows of ids, `lengths` of them in each row of the table."""
        rows = lookup(ids)
        file = FILES["items" if lookup is self.items else "users"]
        self._refuse(column, rows < 0, lambda bad: f"{ids[bad].as_py()!r} is not in {file}", lengths)
        return rows

    def _or_null(self, table: pa.Table, name: str, kind: pa.DataType) -> Any:
        return table[name] if name in table.column_names else pa.chunked_array([pa.nulls(len(table), kind)])

    def _advance(self, name: str, lengths: Rows) -> Rows:
        ends = self._ends[name] + np.cumsum(lengths)
        self._ends[name] = int(ends[-1]) if len(ends) else self._ends[name]
        return ends

    def _refuse(
        self, column: str, wrong: np.ndarray, text: Callable[[int], str], lengths: Rows | None = None
    ) -> None:
        """Refuse the first wrong value: one a row, or `lengths` of them."""
        if wrong.any():
            bad = int(wrong.argmax())
            raise self._error(bad if lengths is None else int(owners(lengths)[bad]), column, text(bad))

    def _error(self, row: int, column: str, text: str) -> DataError:
        return DataError(f"impressions.parquet: row {self.row + row}, column '{column}': {text}")

    def _graphs(self, table: pa.Table, num_candidates: Rows) -> tuple[UInt8[np.ndarray, "G"], Rows]:
        if "graph" not in table.column_names:
            return np.empty(0, np.uint8), np.zeros(len(table), np.int64)
        column = combine(table["graph"])
        sizes = np.asarray(pc.fill_null(pc.binary_length(column), 0), np.int64)
        wanted = np.array([packed_size(int(n)) for n in num_candidates])
        self._refuse(
            "graph", np.asarray(column.is_valid()) & (sizes != wanted),
            lambda row: f"{sizes[row]} bytes, {num_candidates[row]} candidates need {wanted[row]}",
        )  # fmt: skip
        held = b"".join(value for value in column.to_pylist() if value is not None)
        return np.frombuffer(held, np.uint8), sizes

    def _propensity(self, table: pa.Table) -> Float64[np.ndarray, "R"]:
        values = np.asarray(self._or_null(table, "propensity", pa.float64()).cast(pa.float64()))
        self._refuse(
            "propensity", (values <= 0) | (values > 1),
            lambda row: f"{values[row]} is not a probability of having been shown (above 0, at most 1)",
        )  # fmt: skip
        return values

    def _timestamp(self, table: pa.Table) -> Rows:
        column = self._or_null(table, "timestamp", pa.int64()).cast(pa.int64())
        return np.asarray(pc.fill_null(column, NO_TIMESTAMP))

    def _requests(self, ids: Any) -> Rows:
        ids = combine(ids)
        last, number = self._last_request
        starts = np.ones(len(ids), bool)
        if len(ids) > 1:
            starts[1:] = pc.not_equal(ids[1:], ids[:-1])
        if len(ids) and self.row and ids[0].as_py() == last:
            starts[0] = False
        numbers = number + np.cumsum(starts)
        if len(ids):
            self._last_request = (ids[-1].as_py(), int(numbers[-1]))
        return np.asarray(numbers)

    def _splits(self, table: pa.Table) -> Int8[np.ndarray, "R"]:
        column = combine(self._or_null(table, "split", pa.string()))
        places = np.asarray(pc.fill_null(pc.index_in(column, value_set=pa.array(SPLITS)), -1), np.int8)
        self._refuse(
            "split", np.asarray(column.is_valid()) & (places < 0),
            lambda row: f"{column[row].as_py()!r} is none of {', '.join(SPLITS)}",
        )  # fmt: skip
        return places
