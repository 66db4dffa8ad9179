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

from exactk.data.columns.codes import category_texts
from exactk.data.columns.roles import MEASURED, Columns
from exactk.data.logs.files import lists_of
from exactk.data.logs.guess import FLAG_TEXTS, SPLIT_NAMES
from exactk.data.logs.moments import Order, order_of, read_moments
from exactk.data.logs.number_texts import numbers_of_texts
from exactk.data.table import combine, flatten, is_list, is_text
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
_SEPARATORS = (",", "|", ";", " ")


def renamed(
    table: pa.Table, mapping: Mapping[str, str], known: Sequence[str], required: Sequence[str], source: str
) -> pa.Table:
    """The known columns of a table, under our names; `mapping` is from our name to the caller's."""
    for ours, theirs in mapping.items():
        if ours not in known:
            raise InputError(f"there is no column {ours!r} to map{nearest(ours, known)}")
        if theirs not in table.column_names:
            raise DataError(f"{source}: there is no column {theirs!r}{nearest(theirs, table.column_names)}")
    named = {ours: mapping.get(ours, ours) for ours in known}
    held = {ours: theirs for ours, theirs in named.items() if theirs in table.column_names}
    for ours in required:
        if ours not in held:
            raise DataError(
                f"{source}: no column for {ours!r}; map one of {', '.join(table.column_names)} to it, "
                f"as in {ours}={table.column_names[0] if table.column_names else '...'}"
            )
    return table.select(list(held.values())).rename_columns(list(held))


def selected(table: pa.Table, columns: Columns, layout: Sequence[str], source: str) -> pa.Table:
    """Every column that has a use, under our name: roles as they are, features as "candidate.price".

    Features of items and users may stand in tables of their own; all others must be here.
    """
    roles = {
        ours: columns.roles.get(ours, ours)
        for ours in layout
        if ours in columns.roles or ours not in MEASURED
    }
    for ours, theirs in columns.roles.items():
        if ours not in layout:
            kind = "one row per item" if "item_id" in layout else "lists of candidates"
            raise InputError(
                f"{source} holds {kind}, where there is no column {ours!r} to map{nearest(ours, layout)}"
            )
        if theirs not in table.column_names:
            raise DataError(f"{source}: there is no column {theirs!r}{nearest(theirs, table.column_names)}")
    told = set(columns.roles.values())
    used = {
        ours: theirs
        for ours, theirs in roles.items()
        if theirs in table.column_names and (ours in columns.roles or theirs not in told)
    }
    for ours in REQUIRED_LONG if "item_id" in layout else REQUIRED_WIDE:
        if ours not in used:
            raise DataError(
                f"{source}: no column for {ours!r}; {_WANTED[ours]}; map one of {', '.join(table.column_names)} to it, "
                f"as in {ours}={table.column_names[0] if table.column_names else '...'}"
            )
    for carrier, held in columns.carriers():
        for name in held.names:
            if carrier == "item" and name in columns.context.names:
                continue  # the log's is the request's: that of items stands in their table
            if name in table.column_names:
                used[f"{carrier}.{name}"] = name
            elif carrier in ("candidate", "context"):
                raise DataError(f"{source}: there is no column {name!r}{nearest(name, table.column_names)}")
    return table.select(list(used.values())).rename_columns(list(used))


WRITTEN_WHOLE = r"^(0|-?[1-9]\d{0,17})(\.0)?$"
REQUIRED_WIDE = ("candidates",)
REQUIRED_LONG = ("request_id", "item_id")


_CLICKS_ALONE = "of clicks alone, without what else was there to click, nothing can be learned"
_WANTED = {
    "request_id": "rows of one request must share an id (where there is none, make one, say of user and time; "
    f"{_CLICKS_ALONE})",
    "item_id": f"each row is one shown candidate (where items have no ids, number the rows; {_CLICKS_ALONE})",
    "candidates": "each row is one request with a list of candidates (or, with item_id, one shown candidate)",
}


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
        self._kinds = {
            f"{carrier}.{name}": kind
            for carrier, held in (columns or Columns()).carriers()
            for kind in ("numbers", "categories", "texts", "vectors")
            for name in getattr(held, kind)
        } | dict.fromkeys(MEASURED, "numbers")

    def typed(self, table: pa.Table, first_row: int) -> pa.Table:
        """The same table, ids as int64 or text, lists as lists, flags as booleans."""
        self._lists = "candidates" in table.column_names
        names = sorted(table.column_names, key=lambda name: _is_empty(table[name].type))
        if self._lists and is_text(table["candidates"].type):
            table = self._unmarked(table, first_row)
        read = {name: self._read(name, table[name], first_row) for name in names}
        marks = (
            {"clicked": table["clicked"]} if "clicked" in table.column_names and "clicked" not in read else {}
        )
        return pa.table({name: read[name] for name in table.column_names if name in read} | marks)

    def _unmarked(self, table: pa.Table, first_row: int) -> pa.Table:
        """N1-0 N2-1 is a list of items and one of flags, unless the log says otherwise what was clicked."""
        parted = split_lists(combine(table["candidates"]))
        if self._marked is None:
            self._marked = are_marked(parted)
        if not self._marked:
            return table
        ids, flags = ids_and_marks(parted)
        if flags.flatten().null_count:
            owner = np.repeat(np.arange(len(parted)), flatten(parted)[1])
            row = int(owner[flags.flatten().is_null().to_numpy(zero_copy_only=False)][0])
            raise DataError(
                f"{self.source}: row {first_row + row}, column 'candidates': {table['candidates'][row].as_py()!r} does "
                "not end in -1 or -0 at every item as those before it do"
            )
        table = table.set_column(table.column_names.index("candidates"), "candidates", ids)
        said = {"clicked", "clicked_item", "clicked_items"} & {*table.column_names}
        return table if said else table.append_column("clicked", flags)

    def _read(self, name: str, held: pa.ChunkedArray, first_row: int) -> pa.Array:
        try:
            return self._column(name, combine(held), first_row)
        except (pa.ArrowException, OverflowError) as error:
            raise DataError(
                f"{self._where(name)}, rows from {first_row}: its values ({held.type}) cannot be read so: {error}"
            ) from error

    def _column(self, name: str, column: pa.Array, first_row: int) -> pa.Array:
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if name in self._kinds:
            kind = self._kinds[name]
            listed = (
                self._lists
                and is_text(column.type)
                and name.partition(".")[0] in (*MEASURED, "candidate", "item")
            )
            if listed and kind in ("numbers", "categories"):
                column = self._split_text(name, column, first_row)
            if name in MEASURED and self._lists and not is_list(column.type):
                raise DataError(f"{self._where(name)} holds {column.type}, not a list beside the candidates")
            return self._feature(name, kind, column, first_row)
        if name in ID_LISTS:
            return self._id_list(name, column, first_row)
        if name in IDS:
            return self._ids(
                name, "request_id" if name == "request_id" else _owner(name), column, first_row, None,
                self._untyped,
            )  # fmt: skip
        if name in ("clicked", "on_card"):
            if self._lists and is_text(column.type) and flags_of(column) is None:
                column = self._split_text(name, column, first_row)
            if self._lists and is_list(column.type):
                values, lengths = flatten(column)
                return lists_of(lengths, self._flag(name, values, first_row), column)
            return self._flag(name, column, first_row)
        if name == "propensity":
            return self._cast(name, column, pa.float64(), first_row)
        if name == "timestamp":
            return self._moment(column, first_row)
        if name == "features":
            return self._numbers(name, column, first_row)
        if name == "split":
            if not (is_text(column.type) or pa.types.is_null(column.type)):
                raise DataError(f"{self._where(name)} holds {column.type}, not train, valid or test")
            return _renamed_values(column.cast(pa.string()), SPLIT_NAMES)
        return column

    def _feature(self, name: str, kind: str, column: pa.Array, first_row: int) -> pa.Array:
        """Numbers as float32, a missing one NaN; categories as text; lists of either stay lists."""
        if pa.types.is_null(column.type):
            return column.cast(pa.float32() if kind == "numbers" else pa.string())
        if kind == "vectors":
            return self._numbers(name, column, first_row)
        if kind == "texts":
            labels = is_list(column.type) and pa.types.is_integer(column.type.value_type)
            return column.cast(pa.list_(pa.string())) if labels else column
        if is_list(column.type):
            by_candidate = self._lists and name.partition(".")[0] in (*MEASURED, "candidate", "item")
            if not by_candidate or is_list(column.type.value_type):
                raise DataError(f"{self._where(name)} holds {column.type}, not {kind}")
            values, lengths = flatten(column)
            return lists_of(lengths, self._feature(name, kind, values, first_row), column)
        if kind == "categories":
            return category_texts(column, self._where(name))
        if pa.types.is_boolean(column.type):
            column = column.cast(pa.uint8())
        if is_text(column.type) and (read := numbers_of_texts(column)) is not None:
            column = read
        return pc.fill_null(self._cast(name, column, pa.float32(), first_row), float("nan"))

    def _where(self, name: str) -> str:
        return f"{self.source}: column '{name.partition('.')[2] or name}'"

    def _id_list(self, name: str, column: pa.Array, first_row: int) -> pa.Array:
        bare = is_text(column.type) and not _has_quotes(column)
        if is_text(column.type):
            column = self._split_text(name, column, first_row)
        if pa.types.is_null(column.type):
            column = column.cast(pa.list_(pa.string()))
        if not is_list(column.type):
            raise DataError(
                f"{self.source}: row {first_row}, column '{name}': {column[0].as_py()!r} is no list"
            )
        values, lengths = flatten(column)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        ids = self._ids(name, "item", values, first_row, offsets, bare)
        return lists_of(lengths, ids, column)

    def _split_text(self, name: str, column: pa.Array, first_row: int) -> pa.Array:
        """Lists out of text: 1,2,3 or [1 2 3] or a|b, or quoted as Python and JSON do. Empty text, empty list."""
        if _has_quotes(column):
            return self._quoted(name, column, first_row)
        if name not in self._separators:
            self._separators[name] = self._separator or separator_of(column)
        return split_lists(column, self._separators[name])

    def _quoted(self, name: str, column: pa.Array, first_row: int) -> pa.Array:
        read: list[Any] = []
        for row, text in enumerate(column.to_pylist()):
            try:
                read.append(list(ast.literal_eval(text)) if text else text and [])
            except (ValueError, SyntaxError, TypeError) as error:
                raise DataError(
                    f"{self.source}: row {first_row + row}, column '{name}': {text!r} is no list"
                ) from error
        try:
            return pa.array(read)
        except (pa.ArrowException, TypeError, OverflowError) as error:
            raise DataError(f"{self._where(name)} holds lists of mixed kinds: {error}") from error

    def _ids(
        self,
        name: str,
        owner: str,
        values: pa.Array,
        first_row: int,
        offsets: np.ndarray | None,
        untyped: bool,
    ) -> pa.Array:
        """Integers or text, as the source has them. What a kind of id was at first it must remain.

        Untyped ones are integers if all are written as such (42 or 42.0, not 042), else text.
        """
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
        bad = -1
        if is_text(kind) and wanted == pa.int64() and untyped:
            bad = pc.index(pc.match_substring_regex(values, WRITTEN_WHOLE), False).as_py()
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
        row = bad if offsets is None else int(np.searchsorted(offsets, bad, side="right")) - 1
        before = "whole numbers" if wanted == pa.int64() else "text"
        raise DataError(
            f"{self.source}: row {first_row + row}, column '{name}': {values[bad].as_py()!r} is not an id like "
            f"those before it ({before}); read all ids as text (text_ids=True)"
        )

    def _flag(self, name: str, column: pa.Array, first_row: int) -> pa.Array:
        if pa.types.is_boolean(column.type) or pa.types.is_null(column.type):
            return column.cast(pa.bool_())
        flags = flags_of(column)
        if flags is None:
            known = pa.array(list(FLAG_TEXTS)) if is_text(column.type) else pa.array([0.0, 1.0])
            held = pc.utf8_lower(pc.utf8_trim_whitespace(column)) if is_text(column.type) else self._cast(
                name, column, pa.float64(), first_row
            )  # fmt: skip
            wrong = pc.and_(pc.invert(pc.is_in(held, value_set=known)), column.is_valid())
            row = int(np.flatnonzero(wrong.to_numpy(zero_copy_only=False))[0])
            raise DataError(
                f"{self.source}: row {first_row + row}, column '{name}': {column[row].as_py()!r} is neither "
                "true nor false, 0 nor 1; numbers of clicks may be the reward"
            )
        return pa.array(flags, mask=column.is_null().to_numpy(zero_copy_only=False))

    def _moment(self, column: pa.Array, first_row: int) -> pa.Array:
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
            whole = _whole(column) if self._whole_moments is None else self._whole_moments
            self._whole_moments = whole
            if whole:
                return pc.floor(column).cast(pa.int64())
            return pc.round(pc.multiply(column, 1e6)).cast(pa.int64()).cast(pa.timestamp("us"))
        if pa.types.is_date(kind):
            return column.cast(pa.timestamp("us"))
        return self._cast("timestamp", column, pa.timestamp("us"), first_row)

    def _numbers(self, name: str, column: pa.Array, first_row: int) -> pa.Array:
        if is_text(column.type):
            column = self._split_text(name, column, first_row)
        if not is_list(column.type):
            raise DataError(f"{self._where(name)} holds {column.type}, not lists of numbers")
        return self._cast(name, column, pa.list_(pa.float32()), first_row)

    def _cast(self, name: str, column: pa.Array, wanted: pa.DataType, first_row: int) -> pa.Array:
        try:
            return column.cast(wanted, safe=not pa.types.is_floating(getattr(wanted, "value_type", wanted)))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            bad = _first_failing(column, wanted)
            raise DataError(
                f"{self.source}: row {first_row + bad}, column '{name.partition('.')[2] or name}': "
                f"{column[bad].as_py()!r} does not read as {wanted}"
            ) from error


def flags_of(column: pa.Array) -> np.ndarray | None:
    """True or false of every value, a missing one false; None where some are neither (nor 0, 1, or words for them)."""
    kind = column.type
    if is_text(kind):
        words = pc.utf8_lower(pc.utf8_trim_whitespace(column))
        known = list(FLAG_TEXTS)
        places = pc.index_in(words, value_set=pa.array(known))
        if places.null_count > column.null_count:
            return None
        truths = pa.array([FLAG_TEXTS[word] for word in known])
        held = truths.take(places)
    elif pa.types.is_boolean(kind) or pa.types.is_null(kind):
        held = column.cast(pa.bool_())
    elif pa.types.is_integer(kind) or pa.types.is_floating(kind):
        known = pc.is_in(
            column.cast(pa.float64(), safe=False), value_set=pa.array([0.0, 1.0, None, float("nan")])
        )
        if not pc.all(known).as_py() and len(column):
            return None
        held = pc.equal(column, 1)
    else:
        return None
    return np.asarray(pc.fill_null(held, False).to_numpy(zero_copy_only=False), bool)


def separator_of(column: pa.Array) -> str:
    """What parts the members of lists that are written as text."""
    bare = pc.replace_substring_regex(column, r"^\s*[\[(]|[\])]\s*$", "")
    return next((one for one in _SEPARATORS if pc.any(pc.match_substring(bare, one)).as_py()), ",")


def split_lists(column: pa.Array, separator: str | None = None) -> pa.Array:
    """Lists out of texts such as 1,2,3 or [1 2 3] or a|b."""
    bare = pc.replace_substring_regex(column, r"^\s*[\[(]|[\])]\s*$", "")
    values, lengths = flatten(pc.split_pattern(bare, separator or separator_of(column)))
    trimmed = pc.utf8_trim_whitespace(values)
    kept = pc.not_equal(trimmed, "").to_numpy(zero_copy_only=False)
    owner = np.repeat(np.arange(len(lengths)), lengths)
    counts = np.bincount(owner[kept], minlength=len(lengths))
    return lists_of(counts, trimmed.filter(pa.array(kept)), column)


def _renamed_values(column: pa.Array, names: Mapping[str, str]) -> pa.Array:
    places = pc.index_in(column, value_set=pa.array(list(names)))
    return pc.coalesce(pa.array(list(names.values())).take(places), column.cast(pa.string()))


def are_marked(lists: pa.Array) -> bool:
    """Whether every member ends in -1 or -0, and both are there."""
    held = pc.value_counts(pc.utf8_slice_codeunits(flatten(lists)[0], -2)).field("values").to_pylist()
    return {*held} == {"-0", "-1"}


def ids_and_marks(lists: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Members less their marks, and the marks as flags; a missing one where there is none."""
    values, lengths = flatten(lists)
    marks = pc.index_in(pc.utf8_slice_codeunits(values, -2), value_set=pa.array(["-0", "-1"], values.type))
    ids = pc.utf8_slice_codeunits(values, 0, -2)
    return lists_of(lengths, ids, lists), lists_of(lengths, marks.cast(pa.bool_()), lists)


def _is_empty(kind: pa.DataType) -> bool:
    """Nothing in it says of what kind it is: the other columns of ids do."""
    return pa.types.is_null(kind) or (is_list(kind) and pa.types.is_null(kind.value_type))


def _owner(name: str) -> str:
    return "user" if name == "user_id" else "item"


def _whole(values: pa.Array) -> bool:
    known = values.drop_null()
    return bool(pc.all(pc.equal(known, pc.floor(known))).as_py() in (True, None))


def _all_digits(values: pa.Array) -> bool:
    return bool(pc.all(pc.match_substring_regex(values.drop_null(), WRITTEN_WHOLE)).as_py())


def _has_quotes(column: pa.Array) -> bool:
    """Whether lists are written with quotes around their members, as Python and JSON write texts."""
    return bool(pc.any(pc.match_substring_regex(column, r"""^\s*[\[(]\s*["']""")).as_py())


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
