"""Columns: what each column of a log is for, by name; written as TOML, kept in meta.json and with a model.

Knows no table: whether the columns are there, and hold what they should, is asked where the log is read.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from exactk.errors import ConfigError, why_unreadable
from exactk.problem.rules.columns import nearest

ROLES = (
    "request_id", "user_id", "item_id", "candidates", "card", "on_card", "clicked", "clicked_item", "clicked_items",
    "score", "position", "reward", "propensity", "timestamp", "split",
)  # fmt: skip
ROLLING = (
    "clicks_so_far", "shown_so_far", "rate_so_far", "user_clicks_so_far", "user_shown_so_far", "user_rate_so_far",
)  # fmt: skip
USUAL_ROLLING = ROLLING[:3]
# Nobody, where no user is known: in no vocabulary, so that it trains what an unknown user is served.
NO_USER: Mapping[str, Any] = {"string": "", "int64": -(1 << 63)}
MEASURED = ("score", "position", "reward")  # roles that hold a number for every candidate
SENT_MEASURES = MEASURED[:2]  # what a request may say; a reward is known only afterwards

_KINDS = {
    "candidate": ("numbers", "categories"),
    "context": ("numbers", "categories"),
    "item": ("numbers", "categories", "texts", "vectors"),
    "user": ("numbers", "categories"),
}
_PAIR_KINDS = {
    "same": ("categories",), "cosine": ("texts", "vectors"), "overlap": ("texts",), "gap": ("numbers",),
}  # fmt: skip


@dataclass(frozen=True)
class FeatureColumns:
    """Columns of one carrier (candidate, context, item or user), by what they hold."""

    numbers: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    vectors: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """All of them."""
        return (*self.numbers, *self.categories, *self.texts, *self.vectors)


class PairFeature(NamedTuple):
    """A feature of two candidates: `kind` of their `column`, written "same:brand"."""

    kind: str
    column: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.column}"


@dataclass(frozen=True)
class Columns:
    """Roles and features by the caller's names. None for `rolling` or `pair_features`: whatever the log supports."""

    roles: Mapping[str, str] = field(default_factory=dict)  # our name -> the caller's
    candidate: FeatureColumns = FeatureColumns()
    context: FeatureColumns = FeatureColumns()
    item: FeatureColumns = FeatureColumns()
    user: FeatureColumns = FeatureColumns()
    ignored: tuple[str, ...] = ()
    rolling: tuple[str, ...] | None = None
    pair_features: tuple[PairFeature, ...] | None = None
    encoders: Mapping[str, str] = field(default_factory=dict)  # texts of items -> who makes vectors of them
    k: int | None = None
    positives_only: bool = False  # every card of the log was chosen: there is no column of clicks

    def __post_init__(self) -> None:
        _once(self)
        for name in self.rolling or ():
            if name not in ROLLING:
                raise ConfigError(f"rolling: there is no count {name!r}{nearest(name, ROLLING)}")
        for pair in self.pair_features or ():
            self._check_pair(pair)
        for name in self.encoders:
            if name not in self.item.texts:
                raise ConfigError(
                    f"encoders: {name!r} is not one of the items' texts{nearest(name, self.item.texts)}"
                )

    def with_encoded(self) -> Columns:
        """As a dataset has it once its texts are encoded: vectors like any others."""
        made = tuple(encoded_name(name) for name in self.encoders)
        return replace(self, encoders={}, item=replace(self.item, vectors=(*self.item.vectors, *made)))

    def carriers(self) -> Iterator[tuple[str, FeatureColumns]]:
        """candidate, context, item, user, each with its features."""
        for name in _KINDS:
            yield name, getattr(self, name)

    def groups(self) -> Iterator[tuple[str, str, tuple[str, ...]]]:
        """Carrier, kind and names of all features that there are."""
        for carrier, held in self.carriers():
            yield from ((carrier, kind, names) for kind in _KINDS[carrier] if (names := getattr(held, kind)))

    @property
    def measured(self) -> tuple[str, ...]:
        """Which of score, position and reward the log has."""
        return tuple(name for name in MEASURED if name in self.roles)

    def _check_pair(self, pair: PairFeature) -> None:
        where, kinds = f"pair_features: {str(pair)!r}", _PAIR_KINDS.get(pair.kind)
        if kinds is None:
            raise ConfigError(f"{where}: no kind {pair.kind!r}{nearest(pair.kind, _PAIR_KINDS)}")
        carriers = (self.candidate, self.item)
        fitting = [name for held in carriers for kind in kinds for name in getattr(held, kind)]
        if pair.kind == "cosine":
            fitting += map(encoded_name, self.encoders)
        if pair.column not in fitting:
            raise ConfigError(
                f"{where} reads {' or '.join(kinds)} of candidates or items, and {pair.column!r} is none"
                f"{nearest(pair.column, fitting)}"
            )

    def to_dict(self) -> dict[str, Any]:
        """The plain form of the TOML file and of meta.json; what is empty is left out."""
        plain: dict[str, Any] = {
            "k": self.k,
            "positives_only": self.positives_only or None,
            "ignored": list(self.ignored) or None,
            "rolling": None if self.rolling is None else list(self.rolling),
            "pair_features": None if self.pair_features is None else [*map(str, self.pair_features)],
            "roles": dict(self.roles) or None,
            "encoders": dict(self.encoders) or None,
        }
        described = {name: said for name, said in plain.items() if said is not None}
        for carrier, kind, names in self.groups():
            described.setdefault(carrier, {})[kind] = list(names)
        return described

    @classmethod
    def from_dict(cls, described: Mapping[str, Any], place: str = "columns") -> Columns:
        """Read the plain form; `place` is what errors call it."""
        known = ("k", "positives_only", "ignored", "rolling", "pair_features", "roles", "encoders", *_KINDS)
        lists = ("ignored", "rolling", "pair_features")
        try:
            for name in described:
                if name not in known:
                    raise ConfigError(f"there is no entry {name!r}{nearest(name, known)}")
            named = {key: _names(described[key], key) for key in lists if key in described}
            pairs = named.get("pair_features")
            return cls(
                roles=_texts(described.get("roles", {}), "roles must map our names to your columns"),
                encoders=_texts(described.get("encoders", {}), "encoders must map texts to encoders"),
                ignored=named.get("ignored", ()),
                rolling=named.get("rolling"),
                pair_features=None if pairs is None else tuple(map(_pair, pairs)),
                k=_k(described.get("k")),
                positives_only=_flag(described.get("positives_only", False), "positives_only"),
                **{carrier: _features(described.get(carrier, {}), carrier) for carrier in _KINDS},
            )
        except ConfigError as error:
            raise ConfigError(f"{place}: {error}") from None

    @classmethod
    def load(cls, path: Path | str) -> Columns:
        """Read a columns file."""
        try:
            described = tomllib.loads(Path(path).read_text(encoding="utf-8-sig"))
        except (OSError, UnicodeDecodeError, RecursionError, tomllib.TOMLDecodeError) as error:
            raise ConfigError(f"{path} is not valid TOML: {why_unreadable(path, error)}") from error
        return cls.from_dict(described, str(path))

    def to_toml(self) -> str:
        """The columns file that says the same."""
        described = self.to_dict()
        top = [f"{key} = {_toml(value)}" for key, value in described.items() if not isinstance(value, dict)]
        tables = [
            "\n".join([f"[{name}]", *(f"{_key(key)} = {_toml(value)}" for key, value in table.items())])
            for name, table in described.items()
            if isinstance(table, dict)
        ]
        return "\n\n".join([*(["\n".join(top)] if top else []), *tables]) + "\n"

    def with_roles(self, roles: Mapping[str, str]) -> Columns:
        """The same, other roles over its own; a column that gets a role leaves the features."""
        taken = set(roles.values())
        freed: dict[str, Any] = {
            carrier: FeatureColumns(
                **{kind: _without(getattr(held, kind), taken) for kind in FeatureColumns.__annotations__}
            )
            for carrier, held in self.carriers()
        }
        kept = {ours: theirs for ours, theirs in self.roles.items() if theirs not in taken}
        return replace(self, roles={**kept, **roles}, ignored=_without(self.ignored, taken), **freed)

    def completing(self, said: Columns) -> Columns:
        """This guess with all that somebody `said` in place of it."""
        kept = self.with_roles(said.roles)
        return replace(
            kept,
            ignored=tuple(dict.fromkeys((*kept.ignored, *said.ignored))),
            rolling=said.rolling,
            k=kept.k if said.k is None else said.k,
            positives_only=kept.positives_only or said.positives_only,
        )


def bare_name(column: str) -> str:
    """Of "candidate.price" price; the name of a role has no carrier before it."""
    return column.partition(".")[2] or column


def is_of_candidates(column: str) -> bool:
    """Whether a column says something of each candidate: score, "candidate.price", "item.brand"."""
    return column in MEASURED or column.startswith(("candidate.", "item."))


def encoded_name(text: str) -> str:
    """The column of vectors that an encoder makes of a column of texts."""
    return f"{text}_vector"


def _without(names: tuple[str, ...], taken: set[str]) -> tuple[str, ...]:
    return tuple(name for name in names if name not in taken)


def _once(columns: Columns) -> None:
    """A column is used once; items and candidates may share a name, as a price usual and a price now do."""
    for ours in columns.roles:
        if ours not in ROLES:
            raise ConfigError(f"roles: there is no role {ours!r}{nearest(ours, ROLES)}")
    used: dict[str, str] = {theirs: f"role {ours!r}" for ours, theirs in columns.roles.items()}
    if len(used) < len(columns.roles):
        twice = next(name for name in used if list(columns.roles.values()).count(name) > 1)
        raise ConfigError(f"roles: the column {twice!r} has two roles; a column has one")
    for carrier, held in columns.carriers():
        here: set[str] = set()
        for name in held.names:
            if name in here or (name in used and (carrier != "item" or used[name].startswith("role"))):
                also = used.get(name, carrier)
                raise ConfigError(
                    f"{carrier}: the column {name!r} is named twice (also as {also}); name it once"
                )
            here.add(name)
            if name in ROLES and name not in MEASURED and carrier in ("candidate", "context"):
                raise ConfigError(
                    f"{carrier}: {name!r} is the name of a role; rename the column, or give it that role"
                )
        if carrier != "user":
            used |= dict.fromkeys(here, carrier)


def _texts(held: Any, wanted: str) -> dict[str, str]:
    if not isinstance(held, Mapping) or not all(isinstance(theirs, str) for theirs in held.values()):
        raise ConfigError(f"{wanted}, got {held!r}")
    return dict(held)


def _features(held: Any, carrier: str) -> FeatureColumns:
    if not isinstance(held, Mapping):
        raise ConfigError(f"{carrier} must be a table of lists of columns, got {held!r}")
    for kind in held:
        if kind not in _KINDS[carrier]:
            raise ConfigError(f"{carrier} has no {kind!r}{nearest(kind, _KINDS[carrier])}")
    return FeatureColumns(**{kind: _names(names, f"{carrier}.{kind}") for kind, names in held.items()})


def _names(held: Any, where: str) -> tuple[str, ...]:
    listed = isinstance(held, Sequence) and not isinstance(held, str)
    if not listed or not all(isinstance(name, str) for name in held):
        raise ConfigError(f"{where} must be a list of column names, got {held!r}")
    return tuple(held)


def _pair(text: str) -> PairFeature:
    kind, colon, column = text.partition(":")
    if not (colon and column):
        raise ConfigError(f'pair_features: {text!r} must be written "kind:column", as "same:brand"')
    return PairFeature(kind, column)


def _k(held: Any) -> int | None:
    if held is not None and (isinstance(held, bool) or not isinstance(held, int) or held < 1):
        raise ConfigError(f"k must be a whole number of at least 1, got {held!r}")
    return held


def _flag(held: Any, where: str) -> bool:
    if not isinstance(held, bool):
        raise ConfigError(f"{where} must be true or false, got {held!r}")
    return held


def _toml(value: Any) -> str:
    if isinstance(value, list):
        members = [*map(_toml, value)]
        short = ", ".join(members)
        return f"[{short}]" if len(short) < 100 else "[\n" + "".join(f"  {one},\n" for one in members) + "]"
    # TOML's basic strings and integers are JSON's, but for one character that must be escaped.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _key(name: str) -> str:
    return name if name.replace("_", "a").replace("-", "a").isalnum() and name.isascii() else _toml(name)
