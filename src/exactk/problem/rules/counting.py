"""Rules on the card as a whole: how many items of a kind, what they add up to, how many different values; preferences.

Knows no search: each rule becomes rows of a `Brief`.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Any

import numpy as np
from jaxtyping import Int32

from exactk.errors import ConfigError, InputError
from exactk.problem.brief import ENDLESS, Brief, blank, joined, preferred, sums
from exactk.problem.deadline import Deadline
from exactk.problem.graph import pairs_of
from exactk.problem.rules.columns import (
    MISSING_CHOICES,
    CardSizes,
    Columns,
    Mask,
    Missing,
    RuleColumn,
    absent_values,
    bounds,
    is_finite_number,
    scaled,
)
from exactk.problem.rules.rule_set import Constraint, ValueRule
from exactk.problem.rules.where import Where

NO_CARD = 2**31  # no card is so large: a larger limit says the same


class CardRule(ValueRule):
    """A rule that speaks of the card as a whole. An item that lacks a value it needs: `missing` says what then.

    error: the request is refused. allow: the item may be in the card and counts for nothing. forbid: it may not.
    """

    speaks_of_pairs = False

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; what was not said is left out."""
        said: dict[str, Any] = {"type": self.type}
        for setting in fields(self):  # type: ignore[arg-type]
            value = getattr(self, setting.name)
            if value is not None and value != setting.default:
                said[setting.name] = value.to_dict() if isinstance(value, Where) else value
        return said

    @abstractmethod
    def brief(self, columns: Columns, present: Mask, card_size: CardSizes, deadline: Deadline) -> Brief:
        """What it demands, in arrays."""

    def _check_order(self, low: Any, high: Any) -> None:
        if low is None and high is None:
            raise ConfigError(f'rule "{self.type}" needs at_least or at_most')
        if low is not None and high is not None and low > high:
            raise ConfigError(f'rule "{self.type}": at_least {low:g} is more than at_most {high:g}')

    def _plain(
        self, setting: str, whole: bool, least: int | float = -math.inf, most: int | float = math.inf
    ) -> None:
        """A number as plain Python, or nothing."""
        value = getattr(self, setting)
        if isinstance(value, np.generic):
            value = value.item()
        if value is None:
            return
        number = is_finite_number(value) and (isinstance(value, int) or not whole)
        if not number or not least <= value <= most:
            kind = "a whole number" if whole else "a number"
            within = f" from {least:g} to {most:g}" if most == 1 else f" of at least {least:g}"
            within = within if math.isfinite(least) else ""
            raise ConfigError(f'rule "{self.type}": {setting} must be {kind}{within}, got {value!r}')
        object.__setattr__(self, setting, value)

    def _members(self, where: Where | None, columns: Columns, present: Mask) -> tuple[Mask, Mask]:
        """The items that a condition holds for, and those that lack what it needs."""
        if where is None:
            return present, np.zeros(present.shape, bool)
        yes, unknown = where.verdict(columns, present, self.name)
        if unknown.any() and self.missing == "error":
            for field in where.fields:
                column = RuleColumn.of(columns, field, self.name)
                self._lacking(column, column.absent() & unknown)
        return yes, unknown

    def _beside(self, row: Brief, lacking: Mask) -> Brief:
        """The row, and one that keeps items without a value out, where missing = "forbid"."""
        return joined([row, *self._without(lacking)]) or row

    def _without(self, lacking: Mask) -> list[Brief]:
        """A row that keeps items without a value out, where missing = "forbid"."""
        if self.missing != "forbid" or not lacking.any():
            return []
        return [sums(lacking[:, None].astype(np.int64), upper=0)]


def _told(low: Any, high: Any) -> str:
    """For example: at least 1; 1 to 3; exactly 2."""
    if low is not None and low == high:
        return f"exactly {low:.12g}"
    if low is not None and high is not None:
        return f"{low:.12g} to {high:.12g}"
    return f"at least {low:.12g}" if low is not None else f"at most {high:.12g}"


class MemberRule(CardRule):
    """How many, or what part, of the card satisfy `where`."""

    where: Any
    at_least: Any
    at_most: Any

    @property
    def fields(self) -> tuple[str, ...]:
        """What the condition reads."""
        return self.where.fields  # type: ignore[no-any-return]

    def _check_limits(self, settings: Sequence[str], **range_: Any) -> None:
        object.__setattr__(self, "where", Where.of(self.where))
        for setting in settings:
            self._plain(setting, **range_)
        self._check_choice("missing", MISSING_CHOICES)


@dataclass(frozen=True)
class Count(MemberRule):
    """Limits how many items of the card satisfy the condition `where`."""

    type = "count"
    where: Any
    at_least: Any = None
    at_most: Any = None
    exactly: Any = None
    missing: Missing = "error"

    def __post_init__(self) -> None:
        self._check_limits(("at_least", "at_most", "exactly"), whole=True, least=0)
        if self.exactly is not None and (self.at_least is not None or self.at_most is not None):
            raise ConfigError('rule "count": give either exactly, or at_least and at_most')
        self._check_order(*self._limits)

    @property
    def _limits(self) -> tuple[Any, Any]:
        return (self.exactly, self.exactly) if self.exactly is not None else (self.at_least, self.at_most)

    @property
    def name(self) -> str:
        """For example: at least 1 with on_sale."""
        return f"{_told(*self._limits)} with {self.where}"

    def brief(self, columns: Columns, present: Mask, card_size: CardSizes, deadline: Deadline) -> Brief:  # noqa: ARG002
        """One row of zeros and ones."""
        yes, lacking = self._members(self.where, columns, present)
        low, high = (None if limit is None else min(limit, NO_CARD) for limit in self._limits)
        row = sums(yes[:, None], -ENDLESS if low is None else low, ENDLESS if high is None else high)
        return self._beside(row, lacking)


@dataclass(frozen=True)
class Share(MemberRule):
    """Limits which share of the card satisfies `where`: at least 0.25 of a card of 6 means two items."""

    type = "share"
    where: Any
    at_least: Any = None
    at_most: Any = None
    missing: Missing = "error"

    def __post_init__(self) -> None:
        self._check_limits(("at_least", "at_most"), whole=False, least=0, most=1)
        self._check_order(self.at_least, self.at_most)

    @property
    def name(self) -> str:
        """For example: at least 0.25 of the card with on_sale."""
        return f"{_told(self.at_least, self.at_most)} of the card with {self.where}"

    def brief(self, columns: Columns, present: Mask, card_size: CardSizes, deadline: Deadline) -> Brief:  # noqa: ARG002
        """One row; its bounds follow K, by decimal arithmetic."""
        yes, lacking = self._members(self.where, columns, present)
        low = [_part(self.at_least, int(K), ROUND_CEILING, -ENDLESS) for K in card_size]
        high = [_part(self.at_most, int(K), ROUND_FLOOR, ENDLESS) for K in card_size]
        return self._beside(sums(yes[:, None], np.array(low)[:, None], np.array(high)[:, None]), lacking)


def _part(fraction: Any, size: int, rounding: str, none: int) -> int:
    if fraction is None:
        return none
    return int((Decimal(str(fraction)) * size).to_integral_value(rounding=rounding))


@dataclass(frozen=True)
class Total(CardRule):
    """Limits the sum of a field over the card, in exact decimals: 0.1 + 0.2 is 0.3. `where`: of these items only."""

    type = "total"
    field: str
    at_least: Any = None
    at_most: Any = None
    where: Any = None
    missing: Missing = "error"

    def __post_init__(self) -> None:
        self._check_field()
        if self.where is not None:
            object.__setattr__(self, "where", Where.of(self.where))
        for setting in ("at_least", "at_most"):
            self._plain(setting, whole=False)
        self._check_order(self.at_least, self.at_most)
        self._check_choice("missing", MISSING_CHOICES)

    @property
    def name(self) -> str:
        """For example: total price at most 200."""
        of = f" of items with {self.where}" if self.where is not None else ""
        return f"total {self.field} {_told(self.at_least, self.at_most)}{of}"

    @property
    def fields(self) -> tuple[str, ...]:
        """The numbers, and what the condition reads."""
        return tuple(dict.fromkeys((self.field, *(self.where.fields if self.where is not None else ()))))

    def brief(self, columns: Columns, present: Mask, card_size: CardSizes, deadline: Deadline) -> Brief:  # noqa: ARG002
        """One row of whole numbers."""
        yes, unknown = self._members(self.where, columns, present)
        column = RuleColumn.of(columns, self.field, self.name)
        value = column.numbers(present)
        lacking = self._lacking(column, absent_values(value) & (yes | unknown)) | unknown
        value = np.where(yes & ~lacking, value, np.zeros((), value.dtype))
        most = int(card_size.max(initial=1))
        largest = float(np.abs(value.astype(np.float64)).max(initial=0.0)) * most
        if largest == math.inf or (value.dtype.kind in "iu" and largest >= ENDLESS):
            kind = "2^62" if value.dtype.kind in "iu" else "the largest number there is"
            raise InputError(f'rule "{self.name}": sums of "{self.field}" are beyond {kind}')
        whole, places = scaled(value, most)
        limits = [bounds(self.at_least, self.at_most, at, ENDLESS) for at in places]
        low, high = np.array(limits, np.int64).reshape(len(limits), 2).T
        row = sums(whole[:, None], low[:, None], high[:, None])
        return self._beside(row, lacking)


@dataclass(frozen=True)
class Variety(CardRule):
    """The card shows at least this many different values of a field."""

    type = "variety"
    field: str
    at_least: Any
    missing: Missing = "error"

    def __post_init__(self) -> None:
        self._check_field()
        self._plain("at_least", whole=True, least=1, most=2**31 - 1)
        if self.at_least is None:
            raise ConfigError('rule "variety" needs at_least, how many different values')
        self._check_choice("missing", MISSING_CHOICES)

    @property
    def name(self) -> str:
        """For example: at least 3 different category."""
        return f"at least {self.at_least} different {self.field}"

    def brief(self, columns: Columns, present: Mask, card_size: CardSizes, deadline: Deadline) -> Brief:  # noqa: ARG002
        """One row of values as numbers."""
        column, lacking = self._values(columns, present)
        number = column.codes(present & ~lacking)
        B, N = present.shape
        row = blank(B, N)._replace(
            value=number[:, None],
            least=np.full((B, 1), self.at_least, np.int32),
            value_of=np.full((B, 1), -1, np.int32),
        )
        return self._beside(row, lacking)


@dataclass(frozen=True)
class Prefer(CardRule):
    """A rule that may be broken: each break costs `worth`, or all breaks together with `once=True`.

    A break is a pair that clashes, one item too few or too many, one value too few. A total breaks once or not at all.
    """

    type = "prefer"
    rule: Any
    worth: Any
    once: Any = False

    def __post_init__(self) -> None:
        if isinstance(self.rule, Mapping):
            object.__setattr__(self, "rule", Constraint.from_dict(self.rule))
        rule = self.rule
        of_pairs = isinstance(rule, Constraint) and rule.speaks_of_pairs
        if not of_pairs and not isinstance(rule, Count | Share | Total | Variety):
            kind = getattr(rule, "type", rule)
            raise ConfigError(f'rule "prefer" takes rules on pairs, counts, totals and variety, got {kind!r}')
        self._plain("worth", whole=False)
        if self.worth is None or not 0 < self.worth < math.inf:
            raise ConfigError(f'rule "prefer": worth must be above 0, got {self.worth!r}')
        if not isinstance(self.once, bool):
            raise ConfigError(f'rule "prefer": once must be true or false, got {self.once!r}')

    @property
    def missing(self) -> Missing:  # type: ignore[override]
        """The rule's own."""
        return getattr(self.rule, "missing", "allow")

    @property
    def name(self) -> str:
        """For example: rather distinct colour."""
        return f"rather {self.rule.name}"

    @property
    def fields(self) -> tuple[str, ...]:
        """The rule's own."""
        return tuple(self.rule.fields)

    def to_dict(self) -> dict[str, Any]:
        """The rule inside in its own form."""
        said = {"type": self.type, "worth": self.worth, "rule": self.rule.to_dict()}
        return said | ({"once": True} if self.once else {})

    def lenient(self) -> Prefer:
        """The rule inside, silent."""
        return replace(self, rule=self.rule.lenient())

    def brief(self, columns: Columns, present: Mask, card_size: CardSizes, deadline: Deadline) -> Brief:
        """The rule's arrays, at a price."""
        B, N = present.shape
        rule = self.rule
        once = self.once or isinstance(rule, Total)
        if isinstance(rule, CardRule):
            part = rule.brief(columns, present, card_size, deadline)
            return preferred(part, np.empty((B, 0, N, N), bool), self.worth, once)
        part, clash = blank(B, N), np.empty((B, 0, N, N), bool)
        groups = rule.groups(columns, present)
        if groups is not None:
            part = _caps(groups, rule.cap)
            rule = replace(
                rule, m=2
            )  # the pairs of "at most 1" are its cap; left are those that lack a value
        if groups is None or rule.missing == "forbid":
            clash = (~rule.allowed(columns, present, deadline) & pairs_of(present))[:, None]
        return preferred(part, clash, self.worth, once)


def _caps(groups: Int32[np.ndarray, "B N"], cap: int) -> Brief:
    """A row for every group that can overflow."""
    B, N = groups.shape
    overfull = [
        [g for g, count in zip(*np.unique(row[row >= 0], return_counts=True), strict=True) if count > cap]
        for row in groups
    ]
    M = max(map(len, overfull), default=0)
    coefficient, upper = np.zeros((B, M, N), np.int64), np.full((B, M), ENDLESS)
    for b, members in enumerate(overfull):
        for m, group in enumerate(members):
            coefficient[b, m], upper[b, m] = groups[b] == group, cap
    return sums(coefficient, upper=upper)
