"""`Prefer`: a rule that may be broken at a price. Knows any rule on pairs, counts, totals and variety."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Int32

from exactk.errors import ConfigError
from exactk.problem.brief import ENDLESS, Brief, blank, preferred, sums
from exactk.problem.graph import pairs_of
from exactk.problem.rules.columns import CardSizes, Columns, Mask, Missing
from exactk.problem.rules.counting import CardRule, Total
from exactk.problem.rules.places import Slots
from exactk.problem.rules.rule_set import Constraint


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
        whole_card = isinstance(rule, Constraint) and not (rule.speaks_of_pairs or isinstance(rule, CardRule))
        if not isinstance(rule, Constraint) or isinstance(rule, Prefer | Slots) or whole_card:
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

    def brief(self, columns: Columns, present: Mask, card_size: CardSizes) -> Brief:
        """The rule's arrays, at a price."""
        B, N = present.shape
        rule = self.rule
        once = self.once or isinstance(rule, Total)
        if isinstance(rule, CardRule):
            part = rule.brief(columns, present, card_size)
            return preferred(part, np.empty((B, 0, N, N), bool), self.worth, once)
        part, clash = blank(B, N), np.empty((B, 0, N, N), bool)
        groups = rule.groups(columns, present)
        if groups is not None:
            part = _caps(groups, rule.cap)
            rule = replace(
                rule, m=2
            )  # the pairs of "at most 1" are its cap; left are those that lack a value
        if groups is None or rule.missing == "forbid":
            clash = (~rule.allowed(columns, present) & pairs_of(present))[:, None]
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
