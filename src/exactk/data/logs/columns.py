"""From a caller's columns to ours: choosing, parsing lists written as text, numbers that should be ids, features.

Knows one table at a time; whether its rows make sense is `check.py`'s question.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from exactk.data.columns import MEASURED, Columns, bare_name, is_of_candidates
from exactk.data.columns.codes import category_texts
from exactk.data.logs.guess import split_names
from exactk.data.logs.written import (
    FLAG_TEXTS,
    Order,
    are_marked,
    flags_of,
    has_quotes,
    ids_and_marks,
    numbers_of_texts,
    order_of,
    read_moments,
    separator_of,
    split_lists,
)
from exactk.data.table import combine, flatten, is_list, is_text, lists_of, owners, plain_values, replaced
from exactk.errors import DataError, InputError
from exactk.problem.rules.columns import nearest

WIDE = (
    "request_id", "user_id", "candidates", "card", "on_card", "clicked", "clicked_item", "clicked_items", *MEASURED,
    "propensity", "timestamp", "split",
)  # fmt: skip
LONG = (
    "request_id", "user_id", "item_id", "on_card", "clicked", *MEASURED, "propensity", "timestamp", "split",
)  # fmt: skip
IDS = ("request_id", "user_id", "item_id", "clicked_item")
ID_LISTS = ("candidates", "card", "clicked_items")


_CLICKS_ALONE = "clicks alone, without the items shown beside them, teach nothing"
_WANTED = {
    "request_id": "rows of one request must share an id (if there is none, make one, for example from user and time; "
    f"{_CLICKS_ALONE}); ",
    "item_id": f"each row is one shown candidate (if items have no ids, number the rows; {_CLICKS_ALONE}); ",
    "candidates": "each row is one request with a list of candidates (or, with item_id, one shown candidate); ",
}
_EXACT = 1 << 53  # beyond it a float holds not every whole number
_WRITTEN_WHOLE = r"^(0|-?[1-9]\d{0,17})(\.0)?$"


def refuse_absent(theirs: str, table: pa.Table, source: str, read_as: str = "") -> None:
    """Refuse to go on without a column that was named."""
    if theirs not in table.column_names:
        near = nearest(theirs, table.column_names)
        raise DataError(f"{source}: there is no column {theirs!r}{read_as}{near}")


def _nothing_for(ours: str, table: pa.Table, source: str, wanted: str = "") -> DataError:
    names = table.column_names
    return DataError(
        f"{source}: no column for {ours!r}; {wanted}map one of {', '.join(names)} to it ({ours}=...)"
    )


def renamed(table: pa.Table, mapping: Mapping[str, str], key: str, source: str) -> pa.Table:
    """All columns of a table, those of `mapping` (from our name to the caller's) under our names; `key` among them."""
    for theirs in mapping.values():
        refuse_absent(theirs, table, source)
    named = {name: name for name in table.column_names if name not in mapping.values()} | dict(mapping)
    if key not in named:
        raise _nothing_for(key, table, source)
    return table.select(list(named.values())).rename_columns(list(named))


def selected(table: pa.Table, columns: Columns, layout: Sequence[str], source: str) -> pa.Table:
    """Every column that has a use, under our name: roles as they are, features as "candidate.price".

    Features of items and users may stand in tables of their own; all others must be here.
    """
    rows = "item_id" in layout
    for ours, theirs in columns.roles.items():
        if ours not in layout:
            kind = "one row per item" if rows else "lists of candidates"
            raise InputError(
                f"{source} holds {kind}, where there is no column {ours!r} to map{nearest(ours, layout)}"
            )
        refuse_absent(theirs, table, source)
    taken = {*columns.roles.values(), *MEASURED}  # a score is one only if it is said to be
    free = {*table.column_names} - taken
    used = {ours: columns.roles.get(ours, ours) for ours in layout if ours in columns.roles or ours in free}
    for ours in ("request_id", "item_id") if rows else ("candidates",):
        if ours not in used:
            raise _nothing_for(ours, table, source, _WANTED[ours])
    for carrier, held in columns.carriers():
        for name in held.names:
            if carrier == "item" and name in columns.context.names:
                continue  # the log's is the request's: that of items stands in their table
            if carrier in ("candidate", "context"):
                refuse_absent(name, table, source)
            if name in table.column_names:
                used[f"{carrier}.{name}"] = name
    return table.select(list(used.values())).rename_columns(list(used))


class ColumnReader:
    """Gives columns their types, and remembers between pieces how lists are written and what ids are."""

    def __init__(
        self,
        source: str,
        separator: str | None = None,
        text_ids: bool = False,
        columns: Columns | None = None,
        untyped: bool = False,
        id_types: Mapping[str, pa.DataType] | None = None,
    ) -> None:
        """`untyped`: the cells of the source, a CSV file, do not say what is text and what is a number; `id_types`
        are then those of items and users that it must fit.
        """
        self.source, self.text_ids, self._untyped = source, text_ids, untyped
        self._separator = separator
        self._separators: dict[str, str] = {}
        self._id_types: dict[str, pa.DataType] = dict(id_types or {})
        self._whole_moments: bool | None = None
        self._dates: Order | None = None
        self._marked: bool | None = None
        self._lists = False
        self._first_row = 0  # of the table at hand
        self._kinds = {
            f"{carrier}.{name}": kind
            for carrier, kind, names in (columns or Columns()).groups()
            for name in names
        } | dict.fromkeys(MEASURED, "numbers")

    def typed(self, table: pa.Table, first_row: int) -> pa.Table:
        """The same table, ids as int64 or text, lists as lists, flags as booleans."""
        self._first_row, self._lists = first_row, "candidates" in table.column_names
        if self._lists and is_text(table["candidates"].type):
            table = self._unmarked(table)
        # What holds nothing does not say of what kind its ids are: the other columns do.
        names = sorted(table.column_names, key=lambda name: _is_empty(table[name].type))
        read = {name: self._read(name, table[name]) for name in names}
        return pa.table({name: read[name] for name in table.column_names})

    def _unmarked(self, table: pa.Table) -> pa.Table:
        """N1-0 N2-1 is a list of items and one of flags, unless the log says otherwise what was clicked."""
        candidates = combine(table["candidates"])
        parted = split_lists(candidates)
        if self._marked is None:
            self._marked = are_marked(parted)
        if not self._marked:
            return table
        ids, flags = ids_and_marks(parted)
        unmarked = np.asarray(flags.flatten().is_null())
        if unmarked.any():
            row = int(owners(flatten(parted)[1])[unmarked][0])
            raise self._refused(
                "candidates",
                candidates,
                row,
                "does not end in -1 or -0 at every item, as the rows before it do",
            )
        table = replaced(table, "candidates", ids)
        said = {"clicked", "clicked_item", "clicked_items"} & {*table.column_names}
        return table if said else table.append_column("clicked", flags)

    def _read(self, name: str, held: pa.ChunkedArray) -> pa.Array:
        try:
            return self._column(name, plain_values(held))
        except (pa.ArrowException, OverflowError) as error:
            raise DataError(
                f"{self._where(name)}, rows from {self._first_row}: its values ({held.type}) cannot be read: "
                f"{error}"
            ) from error

    def _column(self, name: str, column: pa.Array) -> pa.Array:
        if name in self._kinds:
            return self._feature(name, column)
        if name in ID_LISTS:
            return self._id_list(name, column)
        if name in IDS:
            return self._ids(name, column, self._untyped)
        if name in ("clicked", "on_card"):
            if self._lists and is_text(column.type) and flags_of(column) is None:
                column = self._split_text(name, column)
            if self._lists and is_list(column.type):
                values, lengths = flatten(column)
                return lists_of(lengths, self._flag(name, values), column)
            return self._flag(name, column)
        if name == "propensity":
            return self._cast(name, column, pa.float64())
        if name == "timestamp":
            return self._moment(column)
        if name == "features":
            return self._vectors(name, column)
        if name == "split":
            if not (is_text(column.type) or pa.types.is_null(column.type)):
                raise DataError(f"{self._where(name)} holds {column.type}, not train, valid or test")
            return split_names(column)
        return column

    def _feature(self, name: str, column: pa.Array) -> pa.Array:
        kind, listed = self._kinds[name], self._lists and is_of_candidates(name)
        if listed and is_text(column.type) and kind in ("numbers", "categories"):
            column = self._split_text(name, column)
        if name in MEASURED and listed and not is_list(column.type):
            raise DataError(f"{self._where(name)} holds {column.type}, not a list beside the candidates")
        if pa.types.is_null(column.type):
            return column.cast(pa.float32() if kind == "numbers" else pa.string())
        if kind == "vectors":
            return self._vectors(name, column)
        if kind == "texts":
            labels = is_list(column.type) and pa.types.is_integer(column.type.value_type)
            return column.cast(pa.list_(pa.string())) if labels else column
        if not is_list(column.type):
            return self._values(name, kind, column)
        if not listed or is_list(column.type.value_type):
            raise DataError(f"{self._where(name)} holds {column.type}, not {kind}")
        values, lengths = flatten(column)
        return lists_of(lengths, self._values(name, kind, values), column)

    def _values(self, name: str, kind: str, column: pa.Array) -> pa.Array:
        """Numbers as float32, a missing one NaN; categories as text."""
        if pa.types.is_null(column.type):
            return column.cast(pa.float32() if kind == "numbers" else pa.string())
        if kind == "categories":
            return category_texts(column, self._where(name))
        return pc.fill_null(self._cast(name, plain_numbers(column), pa.float32()), float("nan"))

    def _where(self, name: str) -> str:
        return f"{self.source}: column '{bare_name(name)}'"

    def _refused(
        self, name: str, column: pa.Array, row: int, reason: str, at: int | None = None
    ) -> DataError:
        """What is wrong with a value: that at `row`, or at place `at` of the lists' values."""
        value = column[row if at is None else at].as_py()
        return DataError(
            f"{self.source}: row {self._first_row + row}, column '{bare_name(name)}': {value!r} {reason}"
        )

    def _id_list(self, name: str, column: pa.Array) -> pa.Array:
        bare = is_text(column.type) and not has_quotes(column)
        if is_text(column.type):
            column = self._split_text(name, column)
        if pa.types.is_null(column.type):
            column = column.cast(pa.list_(pa.string()))
        if not is_list(column.type):
            raise self._refused(name, column, 0, "is not a list")
        values, lengths = flatten(column)
        return lists_of(lengths, self._ids(name, values, bare, lengths), column)

    def _split_text(self, name: str, column: pa.Array) -> pa.Array:
        """Lists out of text: 1,2,3 or [1 2 3] or a|b, or quoted as Python and JSON do. Empty text, empty list."""
        if has_quotes(column):
            return self._quoted(name, column)
        if name not in self._separators:
            self._separators[name] = self._separator or separator_of(column)
        return split_lists(column, self._separators[name])

    def _quoted(self, name: str, column: pa.Array) -> pa.Array:
        read: list[Any] = []
        for row, text in enumerate(column.to_pylist()):
            try:
                read.append(list(ast.literal_eval(text)) if text else text and [])
            except (ValueError, SyntaxError, TypeError) as error:
                raise self._refused(name, column, row, "is not a list") from error
        try:
            return pa.array(read)
        except (pa.ArrowException, TypeError, OverflowError) as error:
            raise DataError(f"{self._where(name)} holds lists of mixed kinds: {error}") from error

    def _ids(self, name: str, values: pa.Array, untyped: bool, lengths: np.ndarray | None = None) -> pa.Array:
        """Integers or text, as the source has them. What a kind of id was at first it must remain.

        Untyped ones are integers if all are written as such (42 or 42.0, not 042), else text.
        """
        owner = {"request_id": "request", "user_id": "user"}.get(name, "item")
        wanted = self._id_types.get(owner)
        kind = values.type
        if pa.types.is_null(kind):
            return values.cast(wanted or pa.string())
        if self.text_ids:
            wanted = pa.string()
        elif wanted is None:
            if pa.types.is_integer(kind) or (pa.types.is_floating(kind) and _whole(values)):
                wanted = pa.int64()
            elif is_text(kind):
                wanted = pa.int64() if untyped and _all_digits(values) else pa.string()
            else:
                raise DataError(f"{self.source}: column '{name}' holds {kind}, not integer or text ids")
        self._id_types[owner] = wanted
        if pa.types.is_floating(kind) and (pc.max(pc.abs(values)).as_py() or 0) > _EXACT:
            place = int(np.nanargmax(np.abs(pc.fill_null(values, 0).to_numpy())))
            row = place if lengths is None else int(owners(lengths)[place])
            raise self._refused(
                name, values, row, "lost its last digits when it was read; write ids as text", place
            )
        bad = -1
        if is_text(kind) and wanted == pa.int64() and untyped:
            bad = pc.index(pc.match_substring_regex(values, _WRITTEN_WHOLE), False).as_py()
            values = values if bad >= 0 else pc.replace_substring_regex(values, r"\.0$", "")
        elif is_text(kind) != (wanted == pa.string()) and not self.text_ids:
            bad = pc.index(values.is_valid(), True).as_py()
        try:
            if bad < 0:
                if pa.types.is_floating(kind) and wanted == pa.string():
                    values = values.cast(pa.int64())
                return values.cast(wanted)
        except pa.ArrowInvalid:
            bad = _first_failing(values, wanted)
        before = "whole numbers" if wanted == pa.int64() else "text"
        raise self._refused(
            name, values, bad if lengths is None else int(owners(lengths)[bad]),
            f"is not an id like those before it ({before}); read all ids as text (text_ids=True)", bad,
        )  # fmt: skip

    def _flag(self, name: str, column: pa.Array) -> pa.Array:
        if pa.types.is_boolean(column.type) or pa.types.is_null(column.type):
            return column.cast(pa.bool_())
        flags = flags_of(column)
        if flags is None:
            numbers = None if is_text(column.type) else self._cast(name, column, pa.float64())
            known = FLAG_TEXTS if numbers is None else (0.0, 1.0)
            held = pc.utf8_lower(pc.utf8_trim_whitespace(column)) if numbers is None else numbers
            wrong = pc.and_(pc.invert(pc.is_in(held, value_set=pa.array(list(known)))), column.is_valid())
            reason = "is neither true nor false, 0 nor 1; numbers of clicks may be the reward"
            raise self._refused(name, column, pc.index(wrong, True).as_py(), reason)
        return pa.array(flags, mask=np.asarray(column.is_null()))

    def _moment(self, column: pa.Array) -> pa.Array:
        """Whole numbers stay; fractions of seconds become microseconds, text an ISO date and time."""
        kind = column.type
        if is_text(kind):
            if pc.all(pc.match_substring_regex(column.drop_null(), r"^-?\d{5,}$")).as_py():
                return column.cast(pa.int64())
            self._dates = self._dates or order_of(column)
            read = read_moments(column, self._dates)
            if read is not None:
                return read
        if pa.types.is_timestamp(kind):
            return column.cast(pa.timestamp("us", kind.tz), safe=False)  # of nanoseconds the last three go
        if pa.types.is_integer(kind) or pa.types.is_null(kind):
            return column.cast(pa.int64())
        if pa.types.is_floating(kind):
            if self._whole_moments is None:
                self._whole_moments = _whole(column)
            if self._whole_moments:
                return pc.floor(column).cast(pa.int64())
            return pc.round(pc.multiply(column, 1e6)).cast(pa.int64()).cast(pa.timestamp("us"))
        return self._cast("timestamp", column, pa.timestamp("us"))

    def _vectors(self, name: str, column: pa.Array) -> pa.Array:
        if is_text(column.type):
            column = self._split_text(name, column)
        if not is_list(column.type):
            raise DataError(f"{self._where(name)} holds {column.type}, not lists of numbers")
        return self._cast(name, column, pa.list_(pa.float32()))

    def _cast(self, name: str, column: pa.Array, wanted: pa.DataType) -> pa.Array:
        try:
            return column.cast(wanted, safe=not pa.types.is_floating(getattr(wanted, "value_type", wanted)))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            bad = _first_failing(column, wanted)
            raise self._refused(name, column, bad, f"cannot be read as {wanted}") from error


def plain_numbers(column: pa.Array) -> pa.Array:
    """Flags, and texts that are numbers, as numbers; whatever else as it is."""
    if is_text(column.type) and (read := numbers_of_texts(column)) is not None:
        return read
    return column.cast(pa.uint8()) if pa.types.is_boolean(column.type) else column


def _is_empty(kind: pa.DataType) -> bool:
    """Nothing in it says of what kind it is: the other columns of ids do."""
    return pa.types.is_null(kind) or (is_list(kind) and pa.types.is_null(kind.value_type))


def _whole(values: pa.Array) -> bool:
    known = values.drop_null()
    return bool(pc.all(pc.equal(known, pc.floor(known))).as_py() in (True, None))


def _all_digits(values: pa.Array) -> bool:
    return bool(pc.all(pc.match_substring_regex(values.drop_null(), _WRITTEN_WHOLE)).as_py())


def _first_failing(values: Any, wanted: pa.DataType) -> int:
    """The first value that cannot be cast, by halving."""
    low, high = 0, len(values)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            values.slice(low, middle - low).cast(wanted)
            low = middle
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            high = middle
    return low
