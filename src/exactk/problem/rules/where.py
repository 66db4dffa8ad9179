"""`Where`: which items a rule speaks of, by what their columns hold; the same words in Python and in files.

Knows no rule. An item whose values do not settle the question is neither in nor out: the rule says what then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from exactk.errors import ConfigError
from exactk.problem.rules.columns import (
    Columns,
    Mask,
    RequestError,
    RuleColumn,
    as_written,
    is_finite_number,
    is_plain,
    nearest,
    shown,
)

PLAIN = (str, int, float, bool, np.generic)
MOST_DEEP = 32  # conditions within each other: every step goes down into them


class Verdict(NamedTuple):
    """Which items are in, and which nobody knows of (never both)."""

    yes: Mask
    unknown: Mask


@dataclass(frozen=True)
class Where:
    """`Where("on_sale")` (a flag that is true), `Where("brand", equals="acme")`, `Where("size", one_of=["S", "M"])`,
    `Where("price", at_least=10, at_most=20)`; joined by `&`, `|` and `~`.

    In files: {field = "brand", equals = "acme"}, {all = [...]}, {any = [...]}, {not = {...}}; a text is a flag.
    """

    field: str = ""
    equals: Any = None
    one_of: Any = None
    at_least: Any = None
    at_most: Any = None
    all: Any = None
    any: Any = None
    not_: Any = None

    def __post_init__(self) -> None:
        for name in ("all", "any"):
            parts = getattr(self, name)
            if parts is not None:
                if isinstance(parts, str | Mapping) or not isinstance(parts, Sequence) or not parts:
                    raise ConfigError(f"where: {name} must be a list of conditions, got {parts!r}")
                object.__setattr__(self, name, tuple(Where.of(part) for part in parts))
        if self.not_ is not None:
            object.__setattr__(self, "not_", Where.of(self.not_))
        if self.one_of is not None:
            if isinstance(self.one_of, str) or not isinstance(self.one_of, Sequence | set | np.ndarray):
                raise ConfigError(f"where: one_of must be a list of values, got {self.one_of!r}")
            object.__setattr__(self, "one_of", tuple(_plain(value, "one_of") for value in self.one_of))
        for name in ("equals", "at_least", "at_most"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, _plain(getattr(self, name), name))
        if self._depth > MOST_DEEP:
            raise ConfigError(f"where: conditions are nested deeper than {MOST_DEEP}")
        self._check()

    @cached_property
    def _depth(self) -> int:
        return 1 + max((part._depth for part in self._parts), default=0)

    @property
    def _parts(self) -> tuple[Where, ...]:
        return (*(self.all or ()), *(self.any or ()), *((self.not_,) if self.not_ is not None else ()))

    def _check(self) -> None:
        joints = [name for name in ("all", "any", "not_") if getattr(self, name) is not None]
        tests = [name for name in ("equals", "one_of") if getattr(self, name) is not None]
        limits = [value for value in (self.at_least, self.at_most) if value is not None]
        if joints and (len(joints) > 1 or self.field or tests or limits):
            raise ConfigError("where: give only one of all, any and not")
        name: Any = self.field
        if not joints and (not isinstance(name, str) or not name):
            raise ConfigError(f"where needs the name of a column in field, got {self.field!r}")
        if len(tests) + bool(limits) > 1:
            raise ConfigError(
                f'where: "{self.field}" takes one of equals, one_of, or a range; join two with {{all = [...]}}'
            )
        if any_is(bool, limits) or len({isinstance(value, str) for value in limits}) > 1:
            raise ConfigError(f'where: the range of "{self.field}" must be two numbers or two texts')
        if not all(isinstance(value, str) or is_finite_number(value) for value in limits):
            raise ConfigError(f'where: the range of "{self.field}" must be finite')
        if len(limits) == 2 and limits[0] > limits[1]:
            raise ConfigError(
                f'where: at_least {limits[0]!r} of "{self.field}" is more than at_most {limits[1]!r}'
            )

    @classmethod
    def of(cls, written: Any) -> Where:
        """From a condition, a flag's name, or the form of files."""
        if isinstance(written, Where):
            return written
        if isinstance(written, str):
            return cls(written)
        if not isinstance(written, Mapping):
            raise ConfigError(f'where must be a condition such as {{field = "on_sale"}}, got {written!r}')
        known = {("not" if f.name == "not_" else f.name): f.name for f in fields(cls)}
        for key, value in written.items():
            if key not in known:
                raise ConfigError(f'where has no setting "{key}"{nearest(key, known)}')
            if value is None:
                raise ConfigError(
                    f"where: {key} is null; leave it out (what a missing value means, `missing` of the rule says)"
                )
        try:
            return cls(**{known[key]: value for key, value in written.items()})
        except RecursionError:
            raise ConfigError(f"where: conditions are nested deeper than {MOST_DEEP}") from None

    def to_dict(self) -> dict[str, Any]:
        """The form of files."""
        if self.not_ is not None:
            return {"not": self.not_.to_dict()}
        for name in ("all", "any"):
            if getattr(self, name) is not None:
                return {name: [part.to_dict() for part in getattr(self, name)]}
        said: dict[str, Any] = {"field": self.field}
        if self.one_of is not None:
            said["one_of"] = list(self.one_of)
        said |= {
            name: getattr(self, name)
            for name in ("equals", "at_least", "at_most")
            if getattr(self, name) is not None
        }
        return said

    def __bool__(self) -> bool:
        raise ConfigError(
            "where: join conditions by &, | and ~; Python's `and`, `or` and `not` would drop one"
        )

    def __and__(self, other: Any) -> Where:
        return Where(all=(self, Where.of(other)))

    def __or__(self, other: Any) -> Where:
        return Where(any=(self, Where.of(other)))

    def __invert__(self) -> Where:
        return self.not_ if isinstance(self.not_, Where) else Where(not_=self)

    def __str__(self) -> str:
        if self.not_ is not None:
            return f"not {self.not_}" if self.not_.field else f"not ({self.not_})"
        for name, word in (("all", " and "), ("any", " or ")):
            parts = getattr(self, name)
            if parts is not None:
                return word.join(f"({p})" if p.all or p.any else str(p) for p in parts)
        if self.equals is not None:
            return f"{self.field} = {self.equals}"
        if self.one_of is not None:
            return f"{self.field} in {', '.join(map(str, self.one_of))}"
        limits = [f">= {self.at_least}"] * (self.at_least is not None)
        limits += [f"<= {self.at_most}"] * (self.at_most is not None)
        return f"{self.field} {' and '.join(limits)}" if limits else self.field

    @property
    def fields(self) -> tuple[str, ...]:
        """Every column it reads."""
        found = [self.field] if self.field else [name for part in self._parts for name in part.fields]
        return tuple(dict.fromkeys(found))

    def verdict(self, columns: Columns, present: Mask, rule: str) -> Verdict:
        """Item by item; `any` is settled by one condition that holds, `all` by one that does not."""
        if self.not_ is not None:
            inner = self.not_.verdict(columns, present, rule)
            return Verdict(present & ~inner.yes & ~inner.unknown, inner.unknown)
        for parts, of_all in ((self.all, True), (self.any, False)):
            if parts is not None:
                each = [part.verdict(columns, present, rule) for part in parts]
                yes = np.array([v.yes for v in each])
                open_ = np.array([v.yes | v.unknown for v in each])
                hold, may = (yes.all(0), open_.all(0)) if of_all else (yes.any(0), open_.any(0))
                return Verdict(hold & present, may & ~hold & present)
        return self._of_column(columns, present, rule)

    def _of_column(self, columns: Columns, present: Mask, rule: str) -> Verdict:
        column = RuleColumn.of(columns, self.field, rule)
        if column.values.ndim != 2:
            raise ConfigError(f'rule "{rule}" needs one value per item, but "{self.field}" holds vectors')
        absent = column.absent() & present
        asked = present & ~absent
        if self.at_least is not None or self.at_most is not None:
            yes = self._within(column, asked)
        elif self.equals is None and self.one_of is None:
            yes = _flags(column, asked)
        else:
            yes = self._equal(column, asked)
        return Verdict(yes & asked, absent)

    def _equal(self, column: RuleColumn, asked: Mask) -> Mask:
        wanted = self.one_of if self.one_of is not None else (self.equals,)
        values, rule = column.values, column.rule
        if values.dtype.kind in "iufb":
            texts = [value for value in wanted if isinstance(value, str)]
            if texts:
                raise ConfigError(f'rule "{rule}": "{self.field}" holds numbers, {texts[0]!r} is a text')
            return np.asarray(np.isin(as_written(values), wanted), bool)
        known = set(wanted)
        if wanted and not any_is(str, wanted) and any_is(str, values[asked].tolist()):
            raise ConfigError(f'rule "{rule}": "{self.field}" holds texts, {wanted[0]!r} is a number')
        return np.array(
            [[is_plain(value) and value in known for value in row] for row in values.tolist()], bool
        ).reshape(values.shape)

    def _within(self, column: RuleColumn, asked: Mask) -> Mask:
        low, high, values = self.at_least, self.at_most, column.values
        if isinstance(low if low is not None else high, str):
            texts = [[_text(value) for value in row] for row in values.tolist()]
            found = [
                [(low is None or low <= v) and (high is None or v <= high) for v in row] for row in texts
            ]
            return np.array(found, bool).reshape(values.shape)
        number = column.numbers(asked)
        above = np.ones(values.shape, bool) if low is None else number >= low
        return np.asarray(above & (True if high is None else number <= high), bool)


def _flags(column: RuleColumn, asked: Mask) -> Mask:
    """True and false, or 1 and 0."""
    values = column.values
    if values.dtype.kind == "b":
        return values
    yes = np.zeros(values.shape, bool)
    listed = values[asked].tolist()
    if set(map(type, listed)) <= {bool}:
        yes[asked] = listed
        return yes
    for b, n in np.argwhere(asked).tolist():
        value = values[b, n]
        plain = value.item() if isinstance(value, np.generic) else value
        if isinstance(plain, str) or not is_plain(plain) or plain not in (0, 1):
            raise RequestError(
                b,
                f'rule "{column.rule}" reads "{column.field}" as true or false, but {column.label(b, n)} has '
                f"{shown(value)}; to ask for a value, give equals",
            )
        yes[b, n] = bool(plain)
    return yes


def any_is(kind: type, values: Sequence[Any] | set[Any]) -> bool:
    """Whether some value is of a type."""
    return any(isinstance(value, kind) for value in values)


def _text(value: Any) -> str:
    """Dates as ISO writes them, so that they compare as texts."""
    return (
        value if isinstance(value, str) else value.isoformat() if hasattr(value, "isoformat") else str(value)
    )


def _plain(value: Any, name: str) -> Any:
    if not isinstance(value, PLAIN):
        raise ConfigError(f"where: {name} must be a text, a number or true or false, got {value!r}")
    return value.item() if isinstance(value, np.generic) else value
