"""Requests out of frames and files: one row per candidate, or one per request with lists, typed as rows of a log are.

Knows the columns that a model and its rules read, no model; `files.py` opens files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Int64

from exactk.data.columns import SENT_MEASURES, Columns, bare_name, is_of_candidates
from exactk.data.columns.vocabulary import Vocabulary
from exactk.data.logs.check import ReadReport
from exactk.data.logs.columns import ColumnReader, refuse_absent
from exactk.data.logs.files import arrow_table, spread
from exactk.data.logs.rows import RequestGatherer
from exactk.data.requests import RequestTable
from exactk.data.table import combine, flatten, is_list, lists_of, owners, replaced
from exactk.errors import DataError, InputError
from exactk.problem.rules.columns import nearest

LISTS = ("request_id", "user_id", "candidates", "k", "include", "exclude")
ROWS = ("request_id", "user_id", "item_id", "k")
_LEFT = ("card", "clicked", "clicked_item", "clicked_items")  # what the gatherer makes of logs


class RequestPiece(NamedTuple):
    """Some requests, and the row of the source each begins at."""

    requests: RequestTable
    rows: Int64[np.ndarray, "B"]


@dataclass(frozen=True)
class AskedColumns:
    """What is read of a request: a model's columns by the names its log gave them, and what rules read of items."""

    columns: Columns
    card_size: int
    fields: tuple[str, ...] = ()
    id_types: Mapping[str, pa.DataType] = field(default_factory=dict)
    counted: tuple[str, ...] = ()  # counts so far: known here, unless they are sent

    @classmethod
    def of(cls, vocabulary: Vocabulary, card_size: int, fields: Sequence[str] = ()) -> AskedColumns:
        """Of a trained model; `fields` are what the rules read."""
        fitted = vocabulary.columns
        candidate = fitted.columns.candidate
        counted = fitted.rolling
        numbers = (*candidate.numbers, *(name for name in counted if name not in candidate.numbers))
        columns = replace(fitted.columns, candidate=replace(candidate, numbers=numbers), rolling=None)
        ids = {"item": vocabulary.item_ids, "user": vocabulary.user_ids}
        own = ("features",) if vocabulary.item_scaling is not None else ()
        types = {owner: held.type for owner, held in ids.items() if len(held)}
        return cls(columns, card_size, tuple(dict.fromkeys([*fields, *own])), types, counted)

    @property
    def wanted(self) -> tuple[str, ...]:
        """What only a request can say: features of candidates and of the request."""
        columns = self.columns
        measures = (name for name in SENT_MEASURES if name in columns.roles)
        names = (*columns.candidate.names, *columns.context.names, *measures)
        return tuple(name for name in names if name not in self.counted)

    @property
    def known(self) -> frozenset[str]:
        """Whatever may be said of candidates, items, requests and users."""
        logged = (self.columns.roles[name] for name in SENT_MEASURES if name in self.columns.roles)
        return frozenset((*self.names.values(), *SENT_MEASURES, *logged, "features", "title", "category"))

    @property
    def names(self) -> dict[str, str]:
        """Every feature under its carrier's name, with the caller's; candidates first, as they own what both name."""
        held = {
            f"{carrier}.{name}": name
            for carrier, names in self.columns.carriers()
            for name in names.names
            if carrier != "item" or name not in self.columns.context.names
        }
        taken = set(held.values())
        return held | {f"item.{name}": name for name in self.fields if name not in taken}


class RequestReader:
    """Tables of one source in, requests out, a piece at a time; tells what of the source is not read.

    `mapping` is from our names to the source's; where it says nothing, a role bears the name that the model's log gave
    it, or ours. Rows of a request stand together.
    """

    def __init__(
        self,
        asked: AskedColumns,
        source: str,
        mapping: Mapping[str, str] | None = None,
        untyped: bool = False,
        candidates: Sequence[Any] | None = None,
    ) -> None:
        """`untyped`: cells do not say what is text; `candidates` are offered to all where no column names any."""
        self.asked, self.source, self.mapping = asked, source, dict(mapping or {})
        self.report = ReadReport(source)
        self.met: set[str] = set()  # names that are read, ours and the source's
        self._candidates = candidates
        types = asked.id_types if untyped else None
        self._reader = ColumnReader(source, columns=asked.columns, untyped=untyped, id_types=types)

    def row_id(self, names: Sequence[str]) -> str | None:
        """The column that rows of one request share; None where a row is a request."""
        named = self._theirs("request_id", names)
        return named if named in names and not self._has_lists(names) else None

    def pieces(self, tables: Iterable[tuple[int, pa.Table]]) -> Iterator[RequestPiece]:
        """All requests of the tables, in order; each table comes with the row of the source it begins at."""
        held = self._typed(tables)
        first = next(held, None)
        if first is None:
            return
        if "item_id" not in first[1].column_names:
            for row, table in chain([first], held):
                yield self._of_lists(table, row)
            return
        for piece in RequestGatherer(self.report).requests(chain([first], held)):
            kept = [name for name in piece.table.column_names if name not in _LEFT]
            yield RequestPiece(RequestTable(piece.table.select(kept), self.asked.card_size), piece.rows)

    def spelled(self, ours: str) -> str:
        """What the source calls it, as far as is known before it is read."""
        return self.mapping.get(ours, self.asked.columns.roles.get(ours, ours))

    def _typed(self, tables: Iterable[tuple[int, pa.Table]]) -> Iterator[tuple[int, pa.Table]]:
        for row, table in tables:
            self.report.rows_read += len(table)
            yield row, self._named_and_owned(self._reader.typed(self._selected(table), row), row)

    def _selected(self, table: pa.Table) -> pa.Table:
        """The columns that are read, under our names."""
        table = spread(table, ("item_id", self._theirs("item_id", table.column_names)))
        names = table.column_names
        lists = self._has_lists(names)
        measures = (name for name in SENT_MEASURES if name in self.asked.columns.roles)
        layout = (*(LISTS if lists else ROWS), *measures)
        for ours, theirs in self.mapping.items():
            known = {*LISTS, *ROWS, *SENT_MEASURES}
            if ours not in known:
                raise InputError(f"there is no column {ours!r} to map{nearest(ours, sorted(known))}")
            refuse_absent(theirs, table, self.source, f" to be read as {ours!r}")
        used = {ours: theirs for ours in layout if (theirs := self._theirs(ours, names)) in names}
        if "candidates" not in used and "item_id" not in used and self._candidates is None:
            near = nearest("item_id", table.column_names)
            raise DataError(
                f"{self.source}: there is no column 'item_id' (a row per candidate) and none 'candidates' (a row per "
                f'request); say which one it is (columns={{"item_id": ...}}){near}'
            )
        if not lists and "request_id" not in used:
            raise DataError(
                f"{self.source}: rows of one request share a 'request_id', and there is no such column; "
                'say which one it is (columns={"request_id": ...})'
            )
        free = set(table.column_names) - set(used.values())
        used |= {ours: theirs for ours, theirs in self.asked.names.items() if theirs in free}
        self.met |= {*used.values(), *used}
        for name in names:
            if name not in used.values():
                self.report.ignored.setdefault(name, "neither the model nor a rule reads it")
        return table.select(list(used.values())).rename_columns(list(used))

    def _has_lists(self, names: Sequence[str]) -> bool:
        bare = self._candidates is not None and self._theirs("item_id", names) not in names
        return bare or self._theirs("candidates", names) in names

    def _theirs(self, ours: str, names: Sequence[str]) -> str:
        """What the source calls it."""
        if ours in self.mapping:
            return self.mapping[ours]
        logged = self.asked.columns.roles.get(ours, ours)
        return logged if logged in names else ours

    def _named_and_owned(self, table: pa.Table, row: int) -> pa.Table:
        if "user_id" not in table.column_names:
            if "user" in self.asked.id_types:
                raise DataError(
                    f"{self.source}: there is no column 'user_id', and the model knows users; say which one it is "
                    '(columns={"user_id": ...}), or leave it empty where nobody is known'
                )
            table = table.append_column("user_id", pa.nulls(len(table), pa.string()))
        if "k" not in table.column_names:
            return table
        try:
            return replaced(table, "k", table["k"].cast(pa.int64()))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise DataError(
                f"{self.source}: rows from {row} on, column 'k' holds no whole numbers: {error}"
            ) from error

    def _of_lists(self, table: pa.Table, row: int) -> RequestPiece:
        table = table.select([name for name in table.column_names if name not in _LEFT])
        if "candidates" not in table.column_names:
            same = pa.array([list(self._candidates or ())]).take(pa.array(np.zeros(len(table), np.int64)))
            table = table.append_column("candidates", same)
        for name in ("include", "exclude"):
            if name in table.column_names and not is_list(table[name].type):
                raise DataError(
                    f"{self.source}: column '{name}' holds {table[name].type}, not lists of item ids"
                )
        counts = flatten(table["candidates"])[1]
        for name in filter(is_of_candidates, table.column_names):
            table = replaced(table, name, _whole_lists(table[name], counts, self.source, name))
        return RequestPiece(RequestTable(table, self.asked.card_size), np.arange(row, row + len(table)))


def requests_of_frame(frame: Any, asked: AskedColumns, one: bool = False) -> RequestTable:
    """The requests of a pandas, polars or Arrow frame; `one`: all its rows are candidates of a single request.

    What a file would only be told of is an error here: rows that cannot be used, values that differ within a request.
    """
    table = arrow_table(frame)
    if one:
        asked = replace(asked, id_types={owner: t for owner, t in asked.id_types.items() if owner != "user"})
        taken = ("request_id", asked.columns.roles.get("request_id"))
        for name in {*taken} & {*table.column_names}:
            if (count := len(pc.unique(table[name]))) > 1:
                raise InputError(
                    f"the frame holds {count} requests (column {name!r}), and one is asked for; recommend_many takes "
                    "all of them"
                )
        nameless = [name for name in table.column_names if name not in taken]
        table = table.select(nameless).append_column("request_id", pa.array(np.zeros(len(table), np.int64)))
    reader = RequestReader(asked, "the frame", {"request_id": "request_id"} if one else None)
    pieces = [piece.requests.table for piece in reader.pieces([(0, table)])]
    for said, held in (*reader.report.dropped.items(), *reader.report.notes.items()):
        raise InputError(f"the frame: {said}; the first: {held['examples'][0]}")
    if not pieces:
        raise InputError("the frame has no rows: there is no request to answer")
    return RequestTable(pa.concat_tables(pieces), asked.card_size)


def _whole_lists(column: Any, counts: Int64[np.ndarray, "B"], source: str, name: str) -> pa.Array:
    """One value for every candidate; a missing list says nothing of any."""
    column = combine(column)
    if not is_list(column.type):
        raise DataError(
            f"{source}: column '{bare_name(name)}' holds {column.type}, not a list beside the candidates"
        )
    if not column.null_count:
        return column
    values, lengths = flatten(column)
    missing = np.asarray(column.is_null())
    sizes = np.where(missing, counts, lengths)
    at = np.full(int(sizes.sum()), -1)
    at[~missing[owners(sizes)]] = np.arange(len(values))
    return lists_of(sizes, values.take(pa.array(at, mask=at < 0)))


def numbered(tables: Iterable[pa.Table]) -> Iterator[tuple[int, pa.Table]]:
    """Tables that follow each other, with the row each begins at."""
    row = 0
    for table in tables:
        yield row, table
        row += len(table)
