"""Which columns a build will use: as the caller named them, or drafted from the beginning of the log.

Knows the sources only as tables that can be looked into.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pyarrow as pa

from exactk.data.columns import ROLES, Columns, encoded_name
from exactk.data.logs.check import ReadReport
from exactk.data.logs.columns import ID_LISTS
from exactk.data.logs.draft import draft_columns
from exactk.data.logs.files import beginning
from exactk.data.logs.guess import SUGGESTED_K, holds_lists
from exactk.data.logs.recognised import key_of, named_ids
from exactk.data.table import plain_values
from exactk.errors import DataError, InputError
from exactk.problem.rules.columns import nearest

EntityKind = Literal["item", "user"]
BadRows = Literal["error", "drop"]


class ReadOptions(NamedTuple):
    """How a caller's log is read, and the tables of items and users beside it.

    `item_features` and `user_features` name the number columns that are features, instead of those guessed.
    `separator` parts lists written as text. `text_ids` reads every id as text, so that 007 stays 007.
    """

    item_columns: Mapping[str, str] | None = None
    user_columns: Mapping[str, str] | None = None
    item_features: Sequence[str] = ()
    user_features: Sequence[str] = ()
    separator: str | None = None
    text_ids: bool = False
    bad_rows: BadRows = "drop"


AS_USUAL = ReadOptions()


@dataclass(frozen=True)
class Entity:
    """How the table of items, or of users, is read."""

    kind: EntityKind
    mapping: Mapping[str, str]
    columns: Columns

    @property
    def numbers(self) -> tuple[str, ...]:
        """Columns to be joined into features."""
        return (self.columns.item if self.kind == "item" else self.columns.user).numbers


@dataclass(frozen=True)
class ChosenColumns:
    """The columns in use, the layout, and why others are not used."""

    columns: Columns
    lists: bool
    ignored: Mapping[str, str] = field(default_factory=dict)
    k_guessed: bool = False
    mappings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def whole_lists(self) -> bool:
        """Lists were shown whole: no column says which items were a card."""
        return not self.columns.roles.keys() & {"card", "on_card"}

    def cards(self) -> str:
        """What a card of this log is, where no column says."""
        if not self.whole_lists:
            return ""
        if self.columns.k is None:
            return "every list is a card, as no column says what was on one; say k if lists were shown whole"
        guessed = " (a guess: say k in the columns file)" if self.k_guessed else ""
        return f"lists were shown whole, cards of {self.columns.k} are to be chosen of them{guessed}"

    def entity(self, kind: EntityKind) -> Entity:
        """What concerns items, or users."""
        return Entity(kind, self.mappings.get(kind, {}), self.columns)

    def tell(self, report: ReadReport) -> None:
        """What was used as what, and what was left out."""
        roles = {ours: [theirs] for ours, theirs in self.columns.roles.items()}
        features = {f"{carrier} {kind}": list(names) for carrier, kind, names in self.columns.groups()}
        keys = {
            f"{kind}_id of the table of {kind}s": [held[f"{kind}_id"]]
            for kind, held in self.mappings.items()
            if f"{kind}_id" in held
        }
        encoders = self.columns.encoders.items()
        encoded = {f"item vectors, by {said}": [encoded_name(name)] for name, said in encoders}
        report.used = roles | keys | features | encoded
        report.ignored = dict(self.ignored)
        report.cards = self.cards()

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for a worker elsewhere."""
        return {
            "columns": self.columns.to_dict(), "lists": self.lists, "ignored": dict(self.ignored),
            "k_guessed": self.k_guessed,
            "mappings": {kind: dict(held) for kind, held in self.mappings.items()},
        }  # fmt: skip

    @classmethod
    def from_dict(cls, described: Mapping[str, Any]) -> ChosenColumns:
        """The way back."""
        return cls(**{**described, "columns": Columns.from_dict(described["columns"])})


def choose_columns(
    source: Any, columns: Any = None, items: Any = None, users: Any = None, options: ReadOptions = AS_USUAL
) -> ChosenColumns:
    """Take the columns the caller named; guess those of features where none were named."""
    log = _beginning(source, columns)
    mappings = {"item": dict(options.item_columns or {}), "user": dict(options.user_columns or {})}
    tables = {
        kind: None if table is None else _renamed(_beginning(table), mappings[kind])
        for kind, table in (("item", items), ("user", users))
    }
    named = _named(columns)
    if any(held.names for _, held in named.carriers()):
        chosen, reasons = _with_usual_roles(named, log), {}
    else:
        seen = log.drop_columns([name for name in log.column_names if name in named.ignored])
        draft = draft_columns(seen, tables["item"], tables["user"], named.roles)
        chosen = draft.columns.completing(named)
        reasons = {fact.column: fact.reason for fact in draft.facts if not fact.use and fact.table == "log"}
    for kind, table in tables.items():
        ours = f"{kind}_id"
        if table is None or ours in table.column_names:
            continue
        if key := key_of(table, ours, *named_ids(log, chosen.roles, kind)):
            mappings[kind][ours] = key
            tables[kind] = _renamed(table, {ours: key})
    for kind, names in (("item", options.item_features), ("user", options.user_features)):
        if names:
            chosen = replace(chosen, **{kind: replace(getattr(chosen, kind), numbers=tuple(names))})
    _check_entities(chosen, log, tables)
    if chosen.positives_only:
        chosen = replace(chosen, k=named.k)  # what was chosen is the card
    rows_of_items = "item_id" in (*chosen.roles, *log.column_names)
    lists = "candidates" in chosen.roles or (
        not rows_of_items and any(holds_lists(name, plain_values(log[name])) for name in log.column_names)
    )
    if lists and chosen.k is None and not chosen.roles.keys() & {"card", "on_card"}:
        chosen = replace(chosen, k=SUGGESTED_K)  # a request must ask for some
    return ChosenColumns(chosen, lists, _ignored(chosen, log, reasons), named.k is None, mappings)


def _named(columns: Any) -> Columns:
    """What the caller said: all of it, or only roles, k and the like."""
    if columns is None:
        return Columns()
    if isinstance(columns, Columns):
        return columns
    if isinstance(columns, str | Path):
        return Columns.load(columns)
    if not isinstance(columns, Mapping):
        raise InputError(f"columns must be a mapping or the path of a columns file, got {columns!r}")
    if not all(isinstance(theirs, str) for theirs in columns.values()):
        return Columns.from_dict(columns)
    for ours in columns:
        if ours not in ROLES:
            raise InputError(f"there is no column {ours!r} to map{nearest(ours, ROLES)}")
    return Columns(roles=dict(columns))


def _with_usual_roles(columns: Columns, log: pa.Table) -> Columns:
    """A column that bears the very name of a role and has no other use has that role."""
    used = {*columns.roles.values(), *columns.ignored}
    used |= {*columns.candidate.names, *columns.context.names}
    free = [name for name in ROLES if name in log.column_names and name not in (*used, *columns.roles)]
    return replace(columns, roles={**columns.roles, **{name: name for name in free}})


def _beginning(source: Any, columns: Any = None) -> pa.Table:
    named = columns if isinstance(columns, Mapping) else {}
    as_text = (named.get(name, name) for name in ID_LISTS)
    return beginning(source, [name for name in as_text if isinstance(name, str)])


def _renamed(table: pa.Table, mapping: Mapping[str, str]) -> pa.Table:
    ours = {theirs: ours for ours, theirs in mapping.items()}
    return table.rename_columns([ours.get(name, name) for name in table.column_names])


def _check_entities(columns: Columns, log: pa.Table, tables: Mapping[str, pa.Table | None]) -> None:
    """Features of items and users stand in their table or in the log itself."""
    for kind in ("item", "user"):
        table = tables[kind]
        known = [*(table.column_names if table is not None else ()), *log.column_names]
        for name in getattr(columns, kind).names:
            if name not in known:
                place = "the log" if table is None else f"the {kind} table or the log"
                raise DataError(
                    f"there is no column '{name}' in {place} to make features of{nearest(name, known)}"
                )


def _ignored(columns: Columns, log: pa.Table, reasons: Mapping[str, str]) -> dict[str, str]:
    """Columns of the log that have no use, each with its reason."""
    used = set(columns.roles.values())
    for _, held in columns.carriers():
        used |= set(held.names)
    named = dict.fromkeys(columns.ignored, "as the columns say")
    return {name: reasons.get(name) or named.get(name) or "the columns do not name it"
            for name in log.column_names if name not in used}  # fmt: skip
