"""What a rule is, and rules taken together: to and from files, and from columns of candidates to `Requests`.

Knows no particular rule (`constraints.py` is the door to those) and no search.
"""

from __future__ import annotations

import difflib
import json
import os
import tomllib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar, no_type_check

import numpy as np
from jaxtyping import Int32

from exactk.errors import ConfigError, InputError, why_unreadable
from exactk.problem.brief import Brief, joined
from exactk.problem.compiling import compiled
from exactk.problem.deadline import ENDLESS, Deadline
from exactk.problem.given import (
    GivenRequests,
    check_candidates,
    check_columns,
    sizes,
    wished_positions,
)
from exactk.problem.graph import Requests
from exactk.problem.rules.columns import (
    CardSizes,
    Columns,
    Mask,
    Missing,
    PairMask,
    RequestError,
    RuleColumn,
    absent_values,
    nearest,
)
from exactk.problem.ties import tie_keys

RULE_TYPES: dict[str, type[Constraint]] = {}
# What people call a rule that has another name here; the nearest spelling would say the opposite.
OTHER_WORDS = {
    "at_least": '"count" with at_least (or "variety" for different values, "total" for sums)',
    "exactly": '"count" with exactly',
    "min_count": '"count" with at_least',
    "max_count": '"count" with at_most',
    "quota": '"count"',
    "limit": '"at_most" for each value, "count" for one, or "total" for sums',
    "sum": '"total"',
    "average": '"total": an average of 50 on a card of 4 is a total of 200',
    "budget": '"total" with at_most',
    "unique": '"distinct"',
    "diversity": '"variety", or "distinct"',
    "distance": '"title_distance", "minimum_distance" (of vectors) or "minimum_gap" (of numbers)',
    "position": '"slots"',
    "places": '"slots"',
    "neighbours": '"slots" with apart',
    "soft": '"prefer"',
}


@compiled
@no_type_check
def fill_complete(present, graph):
    """Everyone present may share a card with everyone else."""
    for b in range(len(graph)):
        for i in range(graph.shape[1]):
            for j in range(graph.shape[1]):
                graph[b, i, j] = present[b, i] & present[b, j]
            graph[b, i, i] = False


class Constraint(ABC):
    """One rule: a frozen value with a readable name, equality, a JSON form and a verdict on a batch."""

    type: ClassVar[str]  # its word in rule files
    speaks_of_pairs: ClassVar[bool] = True  # False: of whole cards only, `allowed` need not be asked

    def __init_subclass__(cls) -> None:
        if "type" in cls.__dict__:
            RULE_TYPES[cls.type] = cls

    @property
    @abstractmethod
    def name(self) -> str:
        """How messages and reports call this rule."""

    @property
    @abstractmethod
    def fields(self) -> tuple[str, ...]:
        """The columns this rule reads."""

    def allowed(self, columns: Columns, present: Mask, deadline: Deadline = ENDLESS) -> PairMask:  # noqa: ARG002
        """True where two candidates may share a card; the diagonal and absent candidates mean nothing.

        Rules that may take long look at the clock meanwhile, and raise OutOfTimeError.
        """
        B, N = present.shape
        return np.ones((B, N, N), bool)

    def brief(
        self,
        columns: Columns,  # noqa: ARG002
        present: Mask,  # noqa: ARG002
        card_size: CardSizes,  # noqa: ARG002
        deadline: Deadline,  # noqa: ARG002
    ) -> Brief | None:
        """What the rule demands of whole cards, if anything; it looks at the clock as `allowed` does."""
        return None

    def check_size(self, card_size: int) -> None:  # noqa: B027 - most rules take any
        """Refuse a card size that makes no sense under this rule."""

    def lenient(self) -> Constraint:
        """The same rule, silent about items that lack a value where it would refuse them."""
        return replace(self, missing="allow") if getattr(self, "missing", None) == "error" else self  # type: ignore[type-var]

    def groups(self, columns: Columns, present: Mask) -> Int32[np.ndarray, "B N"] | None:  # noqa: ARG002
        """The group each candidate counts in (-1: none), where the rule caps groups at `cap`."""
        return None

    @property
    def cap(self) -> int | None:
        """At most so many of one group; None where the rule caps nothing."""
        return None

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values, `type` first."""
        return {"type": self.type} | {f.name: getattr(self, f.name) for f in _settings(type(self))}

    @classmethod
    def from_dict(cls, written: Any) -> Constraint:
        """The rule that `to_dict` wrote; unknown types and keys are refused by name."""
        if not isinstance(written, Mapping) or not isinstance(written.get("type"), str):
            raise ConfigError(f'a rule must be a table with a "type", got {written!r}')
        kind = written["type"]
        if kind not in RULE_TYPES:
            plain = kind.lower().replace("-", "_").replace(" ", "_")
            meant = difflib.get_close_matches(plain, [*RULE_TYPES, *OTHER_WORDS], n=1)
            if meant and meant[0] in OTHER_WORDS:
                raise ConfigError(f'there is no rule "{kind}"; say it as {OTHER_WORDS[meant[0]]}')
            raise ConfigError(f'there is no rule "{kind}"{nearest(plain, RULE_TYPES)}')
        rule = RULE_TYPES[kind]
        settings = {key: value for key, value in written.items() if key != "type"}
        known = {f.name: f for f in _settings(rule)}
        for key in settings:
            if key not in known:
                raise ConfigError(f'rule "{kind}" has no setting "{key}"{nearest(key, known)}')
        for key, setting in known.items():
            if key not in settings and setting.default is MISSING:
                raise ConfigError(f'rule "{kind}" needs the setting "{key}"')
        return rule(**settings)

    def __and__(self, other: Any) -> Constraints:
        if not isinstance(other, Constraint | Constraints):
            return NotImplemented
        return Constraints.of([self]) & other


class ValueRule(Constraint):
    """A rule that reads values, of one column where it says no other, and declares what a missing one means."""

    field: str
    missing: Missing

    @property
    def fields(self) -> tuple[str, ...]:
        """The one column."""
        return (self.field,)

    def _check_choice(self, setting: str, choices: Sequence[str]) -> None:
        value = getattr(self, setting)
        if not isinstance(value, str) or value not in choices:
            raise ConfigError(f'rule "{self.type}": {setting} {value!r} is unknown{nearest(value, choices)}')

    def _check_field(self) -> None:
        field = getattr(self, "field", None)
        if not isinstance(field, str) or not field:
            raise ConfigError(f'rule "{self.type}": field must be the name of a column, got {field!r}')

    def _lacking(self, column: RuleColumn, absent: Mask) -> Mask:
        """The candidates without a value, after refusing them where the rule says so."""
        if self.missing == "error" and absent.any():
            b, position = np.argwhere(absent)[0].tolist()
            raise RequestError(
                b,
                f'{column.label(b, position)} has no "{column.field}", which rule "{self.name}" needs; give it one, or '
                'set missing = "allow" or "forbid" on the rule',
            )
        return absent

    def _values(self, columns: Columns, present: Mask) -> tuple[RuleColumn, Mask]:
        """The rule's column of single values, and where a present candidate lacks one."""
        column = RuleColumn.of(columns, self.field, self.name)
        if column.values.ndim != 2:
            raise InputError(f'rule "{self.name}" needs one value per item, but "{self.field}" holds vectors')
        return column, self._lacking(column, column.absent() & present)

    def _numbers(self, columns: Columns, present: Mask, field: str) -> tuple[np.ndarray, Mask]:
        """A column of numbers, NaN where missing, and where a present candidate lacks one."""
        column = RuleColumn.of(columns, field, self.name)
        values = column.numbers(present)
        return values, self._lacking(column, absent_values(values) & present)


def _settings(rule: type[Constraint]) -> tuple[Any, ...]:
    return fields(rule)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Constraints:
    """Rules that all hold. Equal rules are kept once; an empty set allows everything."""

    rules: tuple[Constraint, ...] = ()

    @classmethod
    def of(cls, rules: Any) -> Constraints:
        """From nothing, one rule, a sequence of rules, or Constraints themselves."""
        if rules is None:
            return cls()
        if isinstance(rules, Constraints):
            return rules
        listed = [rules] if isinstance(rules, Constraint) else rules
        if isinstance(listed, str | bytes | Mapping) or not isinstance(listed, Sequence | set | frozenset):
            raise ConfigError(f"constraints must be a rule or a list of rules, got {rules!r}")
        kept: list[Constraint] = []
        for number, rule in enumerate(listed):
            if not isinstance(rule, Constraint):
                raise ConfigError(f"constraint {number} is not a rule: {rule!r}")
            if rule not in kept:
                kept.append(rule)
        return cls(tuple(kept))

    def __and__(self, other: Any) -> Constraints:
        if not isinstance(other, Constraint | Constraints):
            return NotImplemented
        return Constraints.of([*self.rules, *Constraints.of(other).rules])

    def __len__(self) -> int:
        return len(self.rules)

    def __bool__(self) -> bool:
        return bool(self.rules)

    @property
    def names(self) -> tuple[str, ...]:
        """One name per rule, none twice: a second rule of the same name gets " #2"."""
        seen: dict[str, int] = {}
        unique = []
        for rule in self.rules:
            seen[rule.name] = seen.get(rule.name, 0) + 1
            unique.append(rule.name if seen[rule.name] == 1 else f"{rule.name} #{seen[rule.name]}")
        return tuple(unique)

    @property
    def fields(self) -> tuple[str, ...]:
        """Every column some rule reads, each once."""
        return tuple(dict.fromkeys(name for rule in self.rules for name in rule.fields))

    def without(self, names: Sequence[str]) -> Constraints:
        """The others."""
        named = zip(self.names, self.rules, strict=True)
        return Constraints(tuple(rule for name, rule in named if name not in names)) if names else self

    def graph(self, columns: Columns, present: Mask, deadline: Deadline = ENDLESS) -> PairMask:
        """Who may share a card with whom: all rules together, present candidates only, diagonal False."""
        graph = np.empty((*present.shape, present.shape[1]), bool)
        fill_complete(present, graph)
        for rule in self.rules:
            if rule.speaks_of_pairs:
                graph &= rule.allowed(columns, present, deadline)
        return graph

    def caps(
        self, columns: Columns, present: Mask
    ) -> tuple[Int32[np.ndarray, "B C N"], Int32[np.ndarray, "B C"]]:
        """Groups and how many of one are allowed, a row for each rule that caps."""
        B, N = present.shape
        capping = [
            (groups, rule.cap)
            for rule in self.rules
            if rule.cap is not None and (groups := rule.groups(columns, present)) is not None
        ]
        if not capping:
            return np.empty((B, 0, N), np.int32), np.empty((B, 0), np.int32)
        group = np.array([groups for groups, _ in capping], np.int32).reshape(len(capping), B, N)
        cap = np.array([most for _, most in capping], np.int32)
        return np.ascontiguousarray(group.transpose(1, 0, 2)), np.tile(cap, (B, 1))

    def brief(
        self, columns: Columns, present: Mask, card_size: CardSizes, deadline: Deadline = ENDLESS
    ) -> Brief | None:
        """What the rules demand of whole cards; None where they speak of pairs and caps alone."""
        if not self.speak_of_cards:
            return None
        for b, size in enumerate(card_size.tolist()):
            for rule in self.rules:
                try:
                    rule.check_size(size)
                except ConfigError as error:
                    raise RequestError(b, str(error)) from None
        parts = [rule.brief(columns, present, card_size, deadline) for rule in self.rules]
        return joined([part for part in parts if part is not None])

    @property
    def whole(self) -> tuple[Any, ...]:
        """The rules that are functions of whole cards: searches ask them last, of cards they found."""
        return tuple(rule for rule in self.rules if getattr(rule, "on", "pairs") == "card")

    def refuse_functions_of_cards(self) -> None:
        """Models write cards item by item: a function of the finished card tells them nothing on the way."""
        if self.whole:
            raise ConfigError(
                f'rule "{self.whole[0].name}" is a function of whole cards, which `exactk.solve` alone asks; '
                "for a model, say it with count, total, variety or slots, or with a function of pairs"
            )

    @property
    def speak_of_cards(self) -> bool:
        """Whether some rule is about more than pairs and caps."""
        return any(not rule.speaks_of_pairs for rule in self.rules)

    def requests(self, asked: GivenRequests, deadline: Deadline = ENDLESS) -> Requests:
        """Checked requests for search. Rules read the candidates that remain: an excluded item may lack a title."""
        columns = asked.columns
        check_columns(columns, self.fields)
        present = asked.everywhere()
        card_size = sizes(asked.card_size, present)
        check_candidates(columns, present)
        pinned, barred = wished_positions(asked)
        present = present & ~barred
        group, cap = self.caps(columns, present)
        brief = self.brief(columns, present, card_size, deadline)
        graph = self.graph(columns, present, deadline)
        keys = np.where(present, tie_keys(columns["item_id"]), 0) if asked.ties_by_id else None
        return Requests(graph, present, card_size, pinned, group, cap, brief, keys)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values: {"rule": [...]}, the form of rule files."""
        return {"rule": [rule.to_dict() for rule in self.rules]}

    @classmethod
    def from_dict(cls, written: Any) -> Constraints:
        """What `to_dict` wrote; an unknown rule, key or setting is refused by name."""
        if not isinstance(written, Mapping):
            raise ConfigError(f'rules must be a table with a list "rule", got {written!r}')
        for key in written:
            if key != "rule":
                raise ConfigError(f'rules have no "{key}"{nearest(key, ["rule"])}')
        listed = written.get("rule", [])
        if not isinstance(listed, Sequence) or isinstance(listed, str | bytes):
            raise ConfigError(f'"rule" must be a list of tables ([[rule]]), got {listed!r}')
        rules: list[Constraint] = []
        for number, one in enumerate(listed):
            try:
                rules.append(Constraint.from_dict(one))
            except ConfigError as error:
                raise ConfigError(f"rule {number}: {error}") from None
        return Constraints.of(rules)


def load_rules(path: str | os.PathLike[str]) -> Constraints:
    """The rules in a .toml or .json file; errors name the file."""
    file = Path(path)
    parse: Callable[[str], Any] = _format(file, tomllib.loads, json.loads)
    try:
        written = parse(file.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"cannot read the rules in {file}: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        kind = file.suffix[1:].upper()
        raise ConfigError(f"{file} is not valid {kind}: {why_unreadable(file, error)}") from None
    try:
        return Constraints.from_dict(written)
    except (ConfigError, ValueError) as error:
        raise ConfigError(f"{file}: {error}") from None


def save_rules(constraints: Constraints, path: str | os.PathLike[str]) -> None:
    """Write rules so that `load_rules` reads equal ones; the file appears whole or not at all."""
    file = Path(path)
    write: Callable[[dict[str, Any]], str] = _format(
        file, as_toml, lambda rules: json.dumps(rules, indent=2) + "\n"
    )
    half = file.with_name(f".{file.name}.{os.getpid()}.part")
    try:
        half.write_bytes(write(constraints.to_dict()).encode())
        half.replace(file)
    except (OSError, UnicodeEncodeError) as error:
        raise ConfigError(f"cannot write the rules to {file}: {error}") from None


def as_toml(rules: dict[str, Any]) -> str:
    """The TOML form of `Constraints.to_dict()`."""
    tables = []
    for rule in rules["rule"]:
        settings = "".join(f"{key} = {_toml_value(value)}\n" for key, value in rule.items())
        tables.append(f"[[rule]]\n{settings}")
    return "\n".join(tables)


def _toml_value(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(_toml_value(one) for one in value)}]"
    if isinstance(value, dict):
        inside = [f"{json.dumps(key, ensure_ascii=False)} = {_toml_value(one)}" for key, one in value.items()]
        return f"{{{', '.join(inside)}}}"
    # JSON's text, numbers and booleans are TOML's too, but TOML wants the delete character escaped.
    return json.dumps(value, ensure_ascii=False, allow_nan=False).replace("\x7f", "\\u007f")


def _format(file: Path, toml: Any, json_: Any) -> Any:
    formats = {".toml": toml, ".json": json_}
    if file.suffix.lower() not in formats:
        raise ConfigError(f"rules are read from and written to .toml or .json, not {file.name}")
    return formats[file.suffix.lower()]
