"""Which column of a log plays which role: those known, then usual names that fit what they hold, then what fits alone.

Knows the beginning of a log and the tables of items and users beside it. A wrong guess does harm, so a name alone is
not enough: ids must part the rows as such ids do, flags must be flags, what happened afterwards is no feature.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Bool, Int64

from exactk.data.columns import MEASURED
from exactk.data.logs.columns import ID_LISTS, LONG, WIDE
from exactk.data.logs.guess import (
    ROLE_NAMES,
    holds_lists,
    is_afterwards_name,
    is_clock,
    is_flag,
    is_id_name,
    is_list_text,
    is_moment_name,
    is_noun_of,
    is_outcome,
    looks_like_moments,
    may_be_asked_at,
    moments_as_numbers,
    name_words,
    named_for,
    plain_name,
    role_fits,
    speaks_of_clicks,
)
from exactk.data.logs.written import are_marked, flags_of, ids_and_marks, split_lists
from exactk.data.table import codes_of, flatten, is_list, is_number, is_text, owners, plain_values, replaced

_NEARLY = 0.98  # of the rows must be as the role says
_MOSTLY = 0.6
_MOST_UNKNOWN = 0.3
_ID_ROLES = ("request_id", "user_id", "item_id")
_CLICKS = frozenset({"clicked", "clicked_item", "clicked_items"})
_MOST_SHOWN = 12  # items on a card that was shown; more of a list are merely in sight
_CHOSEN = frozenset(
    {"bundle", "outfit", "basket", "cart", "combo", "look", "meal", "menu", "set", "playlist"}
)  # what people put together: under such a name of the card, or of what the card is, every card was chosen


class Recognised(NamedTuple):
    """`roles`: our name -> the log's; `lists`: one row per request; `table`: with lists written as text made lists."""

    roles: dict[str, str]
    lists: bool
    table: pa.Table
    positives_only: bool
    marks: pa.Array | None  # flags that were written at the ids of candidates, as in N123-1


def recognised(
    table: pa.Table, known: Mapping[str, str], items: pa.Table | None = None, users: pa.Table | None = None
) -> Recognised:
    """Roles of the columns of a log, of which this is the beginning."""
    look = _Look(table, known, items, users)
    layout = WIDE if look.lists else LONG
    look.find_ids()
    for role in layout:
        if role not in look.roles:
            look.find(role)
    named = [word for role in ("card", "request_id") for word in name_words(look.roles.get(role, ""))]
    chosen = (
        look.lists
        and "card" in look.roles
        and not _CHOSEN.isdisjoint(named)
        and not look.roles.keys() & {*_CLICKS, "reward"}
    )
    marks = look.marks.get(look.roles.get("candidates", ""))
    return Recognised(look.roles, look.lists, look.table, chosen, marks)


class _Look:
    def __init__(
        self, table: pa.Table, known: Mapping[str, str], items: pa.Table | None, users: pa.Table | None
    ) -> None:
        self.table = table
        self.marks: dict[str, pa.Array] = {}
        self.beside = {"item_id": items, "user_id": users}
        self.roles = {ours: theirs for ours, theirs in known.items() if theirs in table.column_names}
        self.lists = "candidates" in (*self.roles, *table.column_names) or self._no_rows_of_items()
        if self.lists:
            self._read_list_texts()
            self._name_very("candidates")
        for ours in WIDE if self.lists else LONG:
            self._name_very(ours)

    def find_ids(self) -> None:
        """The request, the item (or the lists of them) and the user."""
        if self.lists:
            if "candidates" not in self.roles:
                self._take("candidates", next(self._candidate_lists(), None))
            self._take("request_id", next(self._ids_of("request_id"), None))
        else:
            request, item = next(self._request_and_item(), (None, None))
            self._take("request_id", request or next(self._ids_of("request_id"), None))
            self._take("item_id", item or next(self._ids_of("item_id"), None))
        self._take("user_id", next(self._users(), None))

    def find(self, role: str) -> None:
        """Any other role."""
        named = [name for name in named_for(role, self._free()) if role_fits(role, self.column(name))]
        if role == "timestamp":
            named = [name for name in named if self._constant(name) or self._about_once(name)]
            named += [
                name for name in self._free()
                if name not in named and is_moment_name(name) and looks_like_moments(self.column(name))
                and (self._constant(name) or self._about_once(name))
            ]  # fmt: skip
            clocks = [
                name for name in self._free()
                if not named and may_be_asked_at(name) and is_clock(self.column(name)) and self._constant(name)
            ]  # fmt: skip
            named += clocks if len(clocks) == 1 else []
        elif self.lists and role in ID_LISTS:
            named = [name for name in self._clicks_by_name(named, role) if self._within_candidates(name)]
            named += [
                name for name in self._free() if name not in named and role == "card"
                and self._is_list(name) and self._within_candidates(name)
                and not named_for("clicked_items", [name])
            ]  # fmt: skip
        elif self.lists and role == "clicked_item":
            named = [name for name in self._clicks_by_name(named, role) if not self._is_list(name)]
            named = list(filter(self._within_candidates, named))
        elif self.lists and role in (*MEASURED, "on_card"):
            named = [name for name in named if self._beside_candidates(name)]
        elif role == "split":
            named = list(filter(self._constant, named))
        elif role in ("clicked", "on_card", "position", "reward"):
            named = [name for name in named if getattr(self, f"_fits_{role}")(name)]
        if role == "reward" and not (named or self.roles.keys() & _CLICKS):
            named = list(filter(self._fits_afterwards, self._free()))
        self._take(role, named[0] if named else None)

    def _clicks_by_name(self, named: list[str], role: str) -> list[str]:
        """Those of usual names, then those whose names speak of clicks, as in clicked_product."""
        if role not in ("clicked_item", "clicked_items"):
            return named
        return list(dict.fromkeys([*named, *filter(speaks_of_clicks, self._free())]))

    def column(self, name: str) -> pa.Array:
        """One column, its values plain."""
        return plain_values(self.table[name])

    def codes(self, name: str) -> Int64[np.ndarray, "R"]:
        """A number for every value of a column, by first appearance."""
        return codes_of(self.column(name))

    def _free(self) -> list[str]:
        return [name for name in self.table.column_names if name not in self.roles.values()]

    def _take(self, role: str, name: str | None) -> None:
        if name is not None and role not in self.roles and name not in self.roles.values():
            self.roles[role] = name

    def _name_very(self, ours: str) -> None:
        """Its very name is a role's: whether its values are right is for the reader to say."""
        if ours not in self._free() or ours in MEASURED:
            return
        if ours == "clicked" and self.lists and not role_fits(ours, self.column(ours)):
            return  # what was clicked, by its ids
        self._take(ours, ours)

    def _no_rows_of_items(self) -> bool:
        """There are lists of ids, and no column parts the rows into items of requests."""
        if {"item_id", "on_card"} & {*self.roles, *self.table.column_names}:
            return False
        lists = [name for name in self._free() if holds_lists(name, self.column(name))]
        if not lists:
            return False
        item = next((item for _, item in self._request_and_item()), None)
        surely = item is not None and (named_for("item_id", [item]) or self._in_key(item, "item_id"))
        offered = named_for("candidates", lists)
        return item is None or bool(offered and (not surely or self._one_holds_another(lists, offered)))

    def _one_holds_another(self, names: list[str], offered: list[str]) -> bool:
        """Lists of what was offered, and of what of it was taken."""
        columns = {name: self.column(name) for name in names}
        lists = {name: split_lists(held) if is_text(held.type) else held for name, held in columns.items()}
        return any(among(lists[one], lists[other]) for other in offered for one in names if one != other)

    def _is_list(self, name: str) -> bool:
        return is_list(self.column(name).type)

    def _read_list_texts(self) -> None:
        for name in self.table.column_names:
            listed = name not in self.roles.values() and is_list_text(name, self.column(name))
            if listed or name in ID_LISTS or name in (self.roles.get(ours) for ours in ID_LISTS):
                self._make_list(name)

    def _make_list(self, name: str) -> None:
        if is_text(self.column(name).type):
            lists = split_lists(self.column(name))
            if are_marked(lists):
                lists, self.marks[name] = ids_and_marks(lists)
            self.table = replaced(self.table, name, _with_numbers(lists))

    def _candidate_lists(self) -> Iterator[str]:
        """Lists by their usual names; else the one that holds all of another list, or of a column of clicks."""
        held = list(filter(self._is_list, self._free()))
        holding = [
            name for name in held
            if any(among(self.column(other), self.column(name)) for other in self._free() if other != name)
        ]  # fmt: skip
        yield from (name for name in named_for("candidates", held) if name in holding)
        yield from sorted(holding, key=lambda name: -len(flatten(self.column(name))[0]))
        yield from self.marks
        yield from named_for("candidates", held)
        lists = {name: flatten(self.column(name)) for name in filter(self._is_list, self.table.column_names)}
        flags = [sizes for values, sizes in lists.values() if is_flag(values)]
        flagged = [name for name in held if any(np.array_equal(lists[name][1], sizes) for sizes in flags)]
        yield from named_for("item_id", flagged)
        yield from (name for name in flagged if name.lower().endswith(".id"))
        yield from (name for name in flagged if _are_distinct(*lists[name]))

    def _ids_of(self, role: str) -> Iterator[str]:
        yield from (
            name for name in named_for(role, self._free())
            if role_fits(role, self.column(name)) and not self._is_list(name)
            and (not self.lists or role != "request_id" or self._mostly_distinct(name))
        )  # fmt: skip

    def _request_and_item(self) -> Iterator[tuple[str, str]]:
        """Pairs of columns such that nearly no item stands twice in a request, and requests have several."""

        def options(role: str) -> list[str]:
            if role in self.roles:
                return [self.roles[role]]
            if role in self._free():
                return [role]
            fitting = [
                name for name in self._free()
                if role_fits(role, self.column(name)) and self.column(name).null_count < _MOST_UNKNOWN * len(self.table)
            ]  # fmt: skip
            named = [name for name in named_for(role, fitting) if not self._is_list(name)]
            taken = {one for ours in _ID_ROLES if ours != role for one in named_for(ours, fitting)}
            free = [name for name in fitting if name not in taken]
            known = [name for name in free if role == "item_id" and self._in_key(name, role)]
            other = [name for name in free if is_id_name(name) and name not in named]
            if role == "request_id":
                other = sorted(filter(self._stands_together, other), key=lambda name: -self.codes(name).max())
            nouns = [name for name in free if role == "item_id" and is_noun_of(role, name)]
            return list(dict.fromkeys([*known, *named, *other, *nouns]))

        requests = [(name, self.codes(name)) for name in options("request_id")]
        items = [(name, self.codes(name)) for name in options("item_id")]
        usual = {*named_for("request_id", self._free()), *named_for("item_id", self._free())}
        for request, code in requests:
            size = len(code) / max(1, int(code.max(initial=-1)) + 1)
            if size < 1.5:
                continue
            for item, of_item in items:
                distinct = len(np.unique(code * (int(of_item.max(initial=0)) + 1) + of_item))
                wanted = _MOSTLY if {request, item} <= usual else _NEARLY  # a click may be a row of its own
                if item != request and distinct > wanted * len(code):
                    yield request, item

    def _users(self) -> Iterator[str]:
        """By name, the same throughout a request; or whose values are those of the table of users."""
        plain = [name for name in self._free() if not self._is_list(name)]
        free = [name for name in plain if role_fits("user_id", self.column(name))]
        known = [name for name in free if self._in_key(name, "user_id")]
        yield from filter(self._constant, dict.fromkeys([*known, *named_for("user_id", free)]))

    def _in_key(self, name: str, role: str) -> bool:
        beside = self.beside.get(role)
        key = None if beside is None else key_of(beside, role, self.column(name), None)
        if key is None or is_text(self.column(name).type):
            return key is not None
        return name == key or bool(named_for(role, [name]))  # small whole numbers are among any table's ids

    def _requests(self) -> Int64[np.ndarray, "R"]:
        if self.lists or "request_id" not in self.roles:
            return np.arange(len(self.table))
        return self.codes(self.roles["request_id"])

    def _constant(self, name: str) -> bool:
        """The same in nearly all rows of a request."""
        code = self.codes(name)
        return bool((self._firsts(code) == code).mean() > _NEARLY) if len(code) else True

    def _about_once(self, name: str) -> bool:
        """Moments of one request lie close together, against the time that all of them span."""
        moments = moments_as_numbers(self.column(name))
        if moments is None or not len(moments):
            return False
        return bool((np.abs(moments - self._firsts(moments)) < 0.01 * np.ptp(moments)).mean() > _NEARLY)

    def _firsts(self, values: np.ndarray) -> np.ndarray:
        """For every row the value of the first row of its request."""
        request = self._requests()
        first = np.zeros(int(request.max(initial=-1)) + 1, values.dtype)
        first[request[::-1]] = values[::-1]
        return np.asarray(first[request])

    def _stands_together(self, name: str) -> bool:
        """Rows of one value follow each other."""
        code = self.codes(name)
        return bool(len(code) and 1 + (np.diff(code) != 0).sum() <= (int(code.max()) + 1) / _NEARLY)

    def _mostly_distinct(self, name: str) -> bool:
        return len(pc.unique(self.column(name))) > 0.5 * len(self.table)

    def _within_candidates(self, name: str) -> bool:
        if "candidates" not in self.roles or name == self.roles["candidates"]:
            return False
        return among(self.column(name), self.column(self.roles["candidates"]))

    def _beside_candidates(self, name: str) -> bool:
        """A list as long as that of the candidates."""
        column = self.column(name)
        if "candidates" not in self.roles or not is_list(column.type) or is_text(column.type.value_type):
            return False
        offered = self.column(self.roles["candidates"])
        return is_list(offered.type) and bool(np.array_equal(flatten(column)[1], flatten(offered)[1]))

    def _fits_clicked(self, name: str) -> bool:
        """Neither always nor never; of the ambiguous names, only some of a list."""
        if self._is_list(name):
            return self.lists and self._beside_candidates(name)
        if plain_name(name) not in ("label", "target", "y", "converted", "conversion", "selected", "chosen"):
            return True
        return bool(len(self.table) and 0 < _true(self.column(name)).mean() < 0.5)

    def _fits_on_card(self, name: str) -> bool:
        """Some of a list, and few: what was merely in sight is known only after."""
        flags, request = _true(self.column(name)), self._requests()
        sizes = np.bincount(request, flags)
        return bool(len(flags) and 0 < flags.mean() < 0.9 and 1 < np.median(sizes[sizes > 0]) <= _MOST_SHOWN)

    def _fits_position(self, name: str) -> bool:
        """Whole numbers; under the name "rank" or "slot", no two of a request alike and rising with the rows."""
        if plain_name(name) not in ("rank", "slot"):
            return True
        column, request = self.column(name), self._requests()
        if not pa.types.is_integer(column.type) or column.null_count:
            return False
        step, same = np.diff(column.to_numpy()), np.diff(request) == 0
        return bool(same.any() and (step[same] > 0).mean() > _NEARLY)

    def _fits_afterwards(self, name: str) -> bool:
        """Amounts of what came of candidates, none of most of them: seconds watched."""
        column = self.column(name)
        if not is_afterwards_name(name) or (self.lists and not self._beside_candidates(name)):
            return False
        values = flatten(column)[0] if is_list(column.type) else column
        if not is_number(values.type):
            return False
        amounts = np.nan_to_num(np.asarray(values.cast(pa.float64(), safe=False)))
        return bool(len(amounts) and amounts.min() >= 0 and 0 < (amounts > 0).mean() < _MOSTLY)

    def _fits_reward(self, name: str) -> bool:
        """Where clicks are known, one value where there was none; or a grade, which every candidate may have."""
        usual, plain, column = ROLE_NAMES["reward"], plain_name(name), self.column(name)
        if plain == "label" and len(pc.unique(column)) <= 2:
            return False
        if "clicked" not in self.roles or usual.index(plain) >= usual.index("grade") or plain == "reward":
            return True
        return is_outcome(column, _true(self.column(self.roles["clicked"])))


def key_of(table: pa.Table, role: str, ids: pa.Array | None, named: str | None) -> str | None:
    """The column of a table of items or users that holds its ids: named so, or distinct and with those of the log."""
    names = table.column_names
    if role in names:
        return role
    if named is not None and named in names:
        return named
    usual = named_for(role, names)
    wanted = None if ids is None else pc.unique(ids.drop_null().cast(pa.string()))
    for name in dict.fromkeys([*usual, *names]):
        column = plain_values(table[name])
        if not (pa.types.is_integer(column.type) or is_text(column.type)):
            continue
        if len(pc.unique(column)) < _NEARLY * len(column):
            continue
        if wanted is not None and len(wanted):
            share = pc.mean(pc.is_in(wanted, value_set=column.cast(pa.string())).cast(pa.float64())).as_py()
            if share > 0.5 and (name in usual or is_id_name(name) or (share > 0.9 and is_text(column.type))):
                return str(name)
    return usual[0] if usual and wanted is None else None


def named_ids(log: pa.Table, roles: Mapping[str, str], kind: str) -> tuple[pa.Array | None, str | None]:
    """The ids of items, or of users, in the beginning of a log, and what the log calls their column."""
    name = roles.get(f"{kind}_id")
    lists = "candidates" in roles and kind == "item"
    column = roles["candidates"] if lists else name
    if column is None or column not in log.column_names:
        return None, name
    held = plain_values(log[column])
    if lists and is_text(held.type):
        held = split_lists(held)
        held = ids_and_marks(held)[0] if are_marked(held) else held
    return (flatten(held)[0] if is_list(held.type) else held), name


def among(values: pa.Array, lists: pa.Array) -> bool:
    """Whether ids, or lists of them, are nearly all in their row's list, and not simply all of it."""
    if not is_list(lists.type):
        return False
    offered, sizes = flatten(lists)
    held, counts = _each(values)
    if not len(held) or (counts > sizes).any() or counts.sum() >= _NEARLY * sizes.sum():
        return False
    if not all(pa.types.is_integer(one.type) or is_text(one.type) for one in (held, offered)):
        return False
    wanted, there = _keys(held, counts, offered, sizes)
    return bool(np.isin(wanted, there).mean() > _NEARLY)


def in_lists(values: pa.Array, lists: pa.Array) -> Bool[np.ndarray, "C"]:
    """Which members of the lists are among their row's ids."""
    offered, sizes = flatten(lists)
    held, counts = _each(values)
    wanted, there = _keys(held, counts, offered, sizes)
    return np.asarray(np.isin(there, wanted))


def _each(values: pa.Array) -> tuple[pa.Array, Int64[np.ndarray, "R"]]:
    if is_list(values.type):
        return flatten(values)
    return values.drop_null(), np.asarray(values.is_valid(), np.int64)


def _are_distinct(values: pa.Array, sizes: Int64[np.ndarray, "R"]) -> bool:
    """Ids, hardly one of which is in its list twice."""
    if not (pa.types.is_integer(values.type) or is_text(values.type)) or is_flag(values):
        return False
    key, _ = _keys(values, sizes, values, sizes)
    return len(np.unique(key)) > _NEARLY * len(key)


def _keys(
    held: pa.Array, counts: Int64[np.ndarray, "R"], offered: pa.Array, sizes: Int64[np.ndarray, "R"]
) -> tuple[Int64[np.ndarray, "H"], Int64[np.ndarray, "C"]]:
    """A number for each (row, id)."""
    code = codes_of(pa.concat_arrays([held.cast(pa.string()), offered.cast(pa.string())]))
    width = int(code.max(initial=0)) + 1
    return owners(counts) * width + code[: len(held)], owners(sizes) * width + code[len(held) :]


def vectors_of(name: str, column: pa.Array) -> pa.Array | None:
    """Texts that are lists of numbers with points, as a table of text holds vectors: [0.25, 1.5]."""
    if not is_list_text(name, column):
        return None
    lists = _with_numbers(split_lists(column))
    return lists if pa.types.is_floating(lists.type.value_type) else None


def _with_numbers(lists: pa.Array) -> pa.Array:
    """Lists of texts as lists of numbers, where all read as such."""
    for kind in (pa.int64(), pa.float64()):
        with suppress(pa.ArrowInvalid):
            return lists.cast(pa.list_(kind))
    return lists


def _true(column: pa.Array) -> np.ndarray:
    flags = flags_of(column)
    return np.zeros(len(column), bool) if flags is None else flags
