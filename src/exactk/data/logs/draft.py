"""A draft of the columns file: what each column of a log seems to be for, with the reason where it would be ignored.

Guesses from names, types and what is constant within what; a person decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Bool, Int64

from exactk.data.columns import Columns, FeatureColumns
from exactk.data.logs.columns import ID_LISTS
from exactk.data.logs.files import ENDINGS, beginning, ending_of
from exactk.data.logs.guess import (
    SUGGESTED_K,
    finds_every_click,
    holds_lists,
    ignored_by_name,
    is_category_name,
    is_click_name,
    is_grade_name,
    is_id_name,
    is_outcome,
    is_running_number,
    is_text_name,
    names_clicked,
    names_place_of_click,
    plain_comparable,
    points_at_clicks,
    words,
)
from exactk.data.logs.recognised import among, in_lists, key_of, named_ids, recognised, vectors_of
from exactk.data.logs.written import (
    are_dates,
    are_numbers,
    flags_of,
    hold_digits,
    reads_as_numbers,
    separator_of,
    split_lists,
)
from exactk.data.table import codes_of, flatten, is_list, is_number, is_plain, is_text, owners, plain_values
from exactk.errors import InputError
from exactk.problem.rules.columns import nearest

_ENOUGH = 50  # rows of items met before, to believe that a column is constant within them
_MOSTLY_DISTINCT = 0.5
_CLICKS = (
    "its name says clicks, but it is not a flag: make it the reward, or 0 and 1, to learn from it; a feature if it was "
    "known before"
)
_ODD_LISTS = "its lists are not as long as the candidates'"
_HISTORY = (
    "it lists items, as the history of a user does: no list of a request is read; make numbers of the candidates of it "
    "(how many of its category were read before, how similar its title is to theirs)"
)
_PLACE_OF_CLICK = "its name says which place was clicked, known only afterwards"
_REQUEST_LISTS = "it holds lists of the request, which nothing here reads"
_GRADE = (
    "its name says how good a candidate turned out; make it the reward to learn from it, a feature if it was known "
    "before"
)
_OF_THE_LIST = (
    "it names one of the candidates: surely what came of the list; say clicked_item to learn from it"
)
_DATES = "it holds dates; say timestamp if they are when the request was, or make a number of them"
_FINDS_CLICKS = "alone it finds nearly every click: surely known only afterwards; say what it is if not"
_OUTCOME = "it differs only where something was clicked: an outcome, unknown when a card is chosen"


@dataclass(frozen=True)
class Fact:
    """What was seen of a column and what it was taken for; `use` is empty where it would be ignored."""

    table: str
    column: str
    type: str
    missing: float
    distinct: int
    use: str
    reason: str = ""


@dataclass(frozen=True)
class Draft:
    """A columns file to begin with, and a line of facts for each column."""

    columns: Columns
    facts: tuple[Fact, ...]

    def text(self) -> str:
        """The columns file, the facts as comments before it."""
        lines = [("column", "type", "missing", "distinct", "used as")]
        for fact in self.facts:
            named = fact.column if fact.table == "log" else f"{fact.table}: {fact.column}"
            use = fact.use.replace(".", " ") if fact.use else f"- ({fact.reason})"
            lines.append((named, fact.type, f"{fact.missing:.1%}", str(fact.distinct or "-"), use))
        widths = [max(len(line[place]) for line in lines) for place in range(4)]
        table = [
            "# " + "  ".join([*(cell.ljust(wide) for cell, wide in zip(line, widths, strict=False)), line[4]])
            for line in lines
        ]
        head = "# A guess from the beginning of the log. Read it, correct it, then build with --columns."
        return "\n".join([head, *table, "", self.columns.to_toml()])


def draft_of_files(log: Path, items: Path | None, users: Path | None, roles: Mapping[str, str]) -> Draft:
    """Draft from the beginnings of files; of a folder of files, from the first and the last."""
    held = sorted(path for path in log.rglob("*") if ending_of(path) in ENDINGS) if log.is_dir() else []
    beside = [None if path is None else beginning(path, ID_LISTS) for path in (items, users)]
    table = beginning(tuple(held) or log, ID_LISTS)
    for ours, theirs in roles.items():
        if theirs not in table.column_names:
            raise InputError(
                f"{log} has no column {theirs!r} to map {ours} to{nearest(theirs, table.column_names)}"
            )
    return draft_columns(table, beside[0], beside[1], roles)


def draft_columns(
    log: pa.Table,
    items: pa.Table | None = None,
    users: pa.Table | None = None,
    roles: Mapping[str, str] | None = None,
) -> Draft:
    """Guess from (the beginning of) a log and the tables of items and users beside it; `roles` are known already."""
    reading = _Log(log, dict(roles or {}), items, users)
    found = list(reading.guesses())
    for name, table in (("item", items), ("user", users)):
        if table is not None:
            key = key_of(table, f"{name}_id", *named_ids(reading.table, reading.roles, name))
            found += _entity_guesses(name, table, key)

    def used_as(use: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(fact.column for fact in found if fact.use == use))

    features: dict[str, Any] = {
        carrier: FeatureColumns(*(used_as(f"{carrier}.{kind}") for kind in FeatureColumns.__annotations__))
        for carrier in ("candidate", "context", "item", "user")
    }
    ignored = tuple(fact.column for fact in found if not fact.use and fact.table == "log")
    columns = Columns(
        roles=reading.roles, ignored=ignored, k=reading.card_size(), positives_only=reading.positives_only,
        **features,
    )  # fmt: skip
    return Draft(columns, tuple(found))


class _Log:
    """One log, rows or lists, seen as candidates of requests."""

    def __init__(
        self, table: pa.Table, roles: dict[str, str], items: pa.Table | None, users: pa.Table | None
    ) -> None:
        plain = [name for name in table.column_names if is_plain(table[name].type)]
        found = recognised(table.select(plain), roles, items, users)
        self.written, self.table, self.marks = table, found.table, found.marks
        self.lists, self.roles, self.positives_only = found.lists, found.roles, found.positives_only
        self._items = items
        self._sizes = self._list_sizes()
        self.request = owners(self._sizes)
        ids = self._role("candidates" if self.lists else "item_id")
        flat = flatten(ids)[0] if self.lists and ids is not None and is_list(ids.type) else ids
        self.item = None if flat is None or self._order is None else codes_of(flat)[self._order]
        self.clicked = self._clicks()
        self._paid = self._paid_for() if self.clicked is None else None

    def card_size(self) -> int | None:
        """A suggestion where lists were shown whole and are longer than a card."""
        carded = self.roles.keys() & {"card", "on_card"}
        whole = not carded and len(self._sizes) and np.median(self._sizes) > SUGGESTED_K
        return SUGGESTED_K if whole and not self.positives_only else None

    def guesses(self) -> Iterator[Fact]:
        """One for every column of the log."""
        names = {theirs: ours for ours, theirs in self.roles.items()}
        for name in self.written.column_names:
            written = plain_values(self.written[name])
            fact = _fact("log", name, written)
            use, reason = names.get(name, ""), ""
            if name not in self.table.column_names:
                use, reason = "", _unread(fact)
            elif not use:
                use, reason = self._use(name, plain_values(self.table[name]))
                if reason == _ODD_LISTS and is_text(written.type):  # bars part its words, no members
                    use, reason = self._use(name, written)
                if (not use or use.startswith("context.")) and self._lists_items(name):
                    use, reason = "", _HISTORY
            yield replace(fact, use=use, reason=reason)

    def _role(self, ours: str) -> pa.Array | None:
        return plain_values(self.table[self.roles[ours]]) if ours in self.roles else None

    def _list_sizes(self) -> Int64[np.ndarray, "R"]:
        """Candidates of each request; `_order` brings flat values into the order of requests."""
        self._order: np.ndarray | None = None
        if self.lists:
            held = self._role("candidates")
            if held is None or not is_list(held.type):
                return np.zeros(0, np.int64)
            sizes = flatten(held)[1]
            self._order = np.arange(int(sizes.sum()))
            return sizes
        requests = self._role("request_id")
        code = codes_of(requests) if requests is not None else np.arange(len(self.table))
        self._order = np.argsort(code, kind="stable")
        return np.bincount(code).astype(np.int64)

    def _clicks(self) -> Bool[np.ndarray, "C"] | None:
        """Which candidates were clicked, in the order of requests; None where no column says."""
        if not self.lists:
            column = self._role("clicked")
            flags = None if column is None else flags_of(column)
            return None if flags is None else np.asarray(flags[self._order])
        marks = self._role("clicked") if self.marks is None else self.marks
        if marks is not None and is_list(marks.type):
            values, sizes = flatten(marks)
            return flags_of(values) if np.array_equal(sizes, self._sizes) else None
        clicks = self._role("clicked_items" if "clicked_items" in self.roles else "clicked_item")
        offered = self._role("candidates")
        if clicks is None or offered is None or not is_list(offered.type):
            return None
        return in_lists(clicks, offered)

    def _paid_for(self) -> Bool[np.ndarray, "C"] | None:
        """Which candidates brought something, where most brought nothing; None where no column says."""
        held = self._role("reward")
        flat = None if held is None else flatten(held)[0] if self.lists and is_list(held.type) else held
        if flat is None or self._order is None or not is_number(flat.type) or len(flat) != len(self._order):
            return None
        paid = np.nan_to_num(np.asarray(flat.cast(pa.float64(), safe=False)))[self._order] > 0
        return paid if paid.mean() < 0.5 else None

    def _use(self, name: str, column: pa.Array) -> tuple[str, str]:
        """A use, such as "candidate.numbers", or none and the reason."""
        if reason := ignored_by_name(name):
            return "", reason
        if is_grade_name(name):
            return "", _GRADE
        if self.clicked is None and "reward" not in self.roles and is_click_name(name):
            return "", _CLICKS
        flat, of_request = self._flat(column)
        if flat is None:
            return "", _ODD_LISTS
        if of_request and names_place_of_click(name):
            return "", _PLACE_OF_CLICK
        if of_request and is_list(flat.type):
            return "", _REQUEST_LISTS
        if not is_list(flat.type) and len(pc.unique(flat.drop_null())) < 2:
            return "", "it holds one value only"
        if not is_list(flat.type) and is_running_number(flat):
            return "", "it numbers the requests" if of_request else "it numbers the rows"
        if reason := self._of_requests_afterwards(flat) if of_request else self._afterwards(flat):
            return "", reason
        carrier = "context" if of_request else self._carrier(flat)
        kind, reason = _kind(name, flat, carrier, self._carriers(carrier))
        return (f"{'item' if kind in ('texts', 'vectors') else carrier}.{kind}" if kind else ""), reason

    def _flat(self, column: pa.Array) -> tuple[pa.Array | None, bool]:
        """The values by candidate in the order of requests, or by request where they say nothing of candidates."""
        if self.lists:
            if not is_list(column.type):
                return column, True
            values, sizes = flatten(column)
            return (values, False) if np.array_equal(sizes, self._sizes) else (None, False)
        ordered = column.take(pa.array(self._order))
        code = codes_of(ordered)
        if not len(code):
            return ordered, False
        starts = np.cumsum(self._sizes) - self._sizes
        constant = (code == np.repeat(code[starts], self._sizes)).all() and self._sizes.max() > 1
        return (ordered.take(pa.array(starts)), True) if constant else (ordered, False)

    def _lists_items(self, name: str) -> bool:
        """Whether a column of requests holds lists of ids of items: what a user read before, or the like."""
        column = plain_values(self.written[name])
        if not holds_lists(name, column):
            return False
        if is_text(column.type) and separator_of(column) == " ":
            return True  # only codes are parted so
        members = flatten(split_lists(column) if is_text(column.type) else column)[0].drop_null()
        known = pc.is_in(pc.unique(members).cast(pa.string()), value_set=self._item_ids)
        return bool(len(known) and pc.mean(known.cast(pa.int8())).as_py() > 0.5)

    @cached_property
    def _item_ids(self) -> pa.Array:
        """All that are offered in the log, and those of the table of items."""
        offered = named_ids(self.table, self.roles, "item")[0]
        key = (
            None
            if self._items is None
            else key_of(self._items, "item_id", offered, self.roles.get("item_id"))
        )
        held = [offered, None if key is None or self._items is None else plain_values(self._items[key])]
        return pa.concat_arrays(
            [pa.array([], pa.string()), *(each.cast(pa.string()) for each in held if each is not None)]
        )

    def _afterwards(self, values: pa.Array) -> str:
        """Why values of candidates were surely written after the click; empty where nothing says so."""
        if self.clicked is None:
            paid = self._paid
            return _OUTCOME if paid is not None and is_outcome(values, paid, luck=1e-6, strays=0.0) else ""
        if is_outcome(values, self.clicked):
            return _OUTCOME
        return _FINDS_CLICKS if finds_every_click(values, self.clicked, self._sizes) else ""

    def _of_requests_afterwards(self, values: pa.Array) -> str:
        """The same of requests: what tells requests with a click from others, or which of the candidates it was."""
        offered = self._role("candidates")
        if self.lists and offered is not None and among(values, offered):
            return _OF_THE_LIST
        if self.clicked is None or len(values) != len(self._sizes):
            return ""
        clicked = np.bincount(self.request[self.clicked], minlength=len(values)) > 0
        if is_outcome(values, clicked, luck=1e-6):  # requests without a click may be few
            return _OUTCOME
        if points_at_clicks(values, self.clicked, self._sizes):
            return _FINDS_CLICKS
        said = plain_comparable(values)
        for name, of_candidates in self._of_candidates.items():
            if names_clicked(said, of_candidates, self.clicked, self._sizes):
                return f"it is the {name} of what was clicked, known only afterwards"
        return ""

    @cached_property
    def _of_candidates(self) -> dict[str, np.ndarray]:
        """What differs among the candidates of a request, as plain values."""
        flats = {name: self._flat(plain_values(self.table[name])) for name in self.table.column_names}
        return {
            name: plain_comparable(flat) for name, (flat, of_request) in flats.items()
            if flat is not None and not of_request and not is_list(flat.type) and len(flat) == self._sizes.sum()
        }  # fmt: skip

    def _carrier(self, flat: pa.Array) -> str:
        """An item's where the column is constant within every item met again, else the candidate's."""
        if self.item is None or is_list(flat.type):
            return "item" if is_list(flat.type) else "candidate"
        order = np.argsort(self.item, kind="stable")
        item, code = self.item[order], codes_of(flat)[order]
        again = item[1:] == item[:-1]
        return "item" if again.sum() >= _ENOUGH and (code[1:] == code[:-1])[again].all() else "candidate"

    def _carriers(self, carrier: str) -> int:
        if carrier == "context" or self.item is None:
            return len(self._sizes)
        return len(np.unique(self.item))


def _entity_guesses(kind: str, table: pa.Table, key: str | None) -> Iterable[Fact]:
    for name in table.column_names:
        column = plain_values(table[name])
        fact = _fact(f"{kind}s", name, column)
        if not is_plain(column.type):
            yield replace(fact, reason=_unread(fact))
        elif name in (key, "features"):
            yield replace(fact, use=f"{kind}_id" if name != "features" else "features")
        elif reason := ignored_by_name(name):
            yield replace(fact, reason=reason)
        elif not is_list(column.type) and len(pc.unique(column.drop_null())) < 2:
            yield replace(fact, reason="it holds one value only")
        else:
            found, reason = _kind(name, column, kind, len(table))
            if found in ("texts", "vectors") and kind == "user":
                found, reason = "", f"{found} of users are not read"
            if found == "numbers" and "features" in table.column_names:
                found, reason = "", "the column 'features' holds the numbers"
            yield replace(fact, use=f"{kind}.{found}" if found else "", reason=reason)


def _kind(name: str, values: pa.Array, carrier: str, carriers: int) -> tuple[str, str]:
    """numbers, categories, texts or vectors; or nothing, and why."""
    kind = values.type
    if is_list(kind):
        return _list_kind(name, values)
    if pa.types.is_boolean(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return "numbers", ""
    distinct = len(pc.unique(values.drop_null()))
    rare = distinct > _MOSTLY_DISTINCT * max(carriers, 1) and distinct > 20
    if pa.types.is_integer(kind):
        if not is_category_name(name):
            return "numbers", ""
        return ("", "nearly every value is different") if rare else ("categories", "")
    if not is_text(kind):
        if pa.types.is_temporal(kind) and not pa.types.is_duration(kind):
            return "", f"it holds {kind}; say timestamp if it is when the request was, or make a number of it"
        return "", f"it holds {kind}; make a number or a category of it"
    if not is_category_name(name) and are_numbers(values):
        return "numbers", ""
    if are_dates(values):
        return "", _DATES
    if carrier in ("item", "candidate") and (vectors := vectors_of(name, values)) is not None:
        return _list_kind(name, vectors)
    wordy = distinct > 0.2 * carriers and words(values) >= 2.5
    if carrier != "context" and carrier != "user" and (wordy or (rare and is_text_name(name))):
        return "texts", ""
    if rare and not is_id_name(name) and not is_category_name(name) and reads_as_numbers(values):
        return "numbers", ""
    if rare and hold_digits(values):
        return "", "it is text with numbers in a form that is not read; write 1234.5, or 1,234.5"
    return ("", "nearly every value is different") if rare else ("categories", "")


def _list_kind(name: str, values: pa.Array) -> tuple[str, str]:
    flat, sizes = flatten(values)
    if is_text(flat.type):
        return "texts", ""
    if pa.types.is_integer(flat.type) and (is_category_name(name) or is_category_name(name.rstrip("s"))):
        return "texts", ""  # a bag of labels
    if is_number(flat.type):
        known = sizes[sizes > 0]
        if len(known) and (known == known[0]).all():
            return "vectors", ""
        return "", "its lists of numbers have different lengths"
    return "", f"it holds lists of {flat.type}"


def _unread(fact: Fact) -> str:
    return f"it holds {fact.type}, which nothing here reads"


def _fact(table: str, name: str, column: pa.Array) -> Fact:
    if is_list(column.type) or not is_plain(column.type):
        return Fact(table, name, str(column.type), column.null_count / max(1, len(column)), 0, "")
    missing = column.null_count
    if pa.types.is_floating(column.type):
        missing += int(pc.sum(pc.fill_null(pc.is_nan(column), False)).as_py() or 0)
    return Fact(table, name, str(column.type), missing / max(1, len(column)), len(pc.unique(column)), "")
