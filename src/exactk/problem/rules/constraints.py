"""Rules on what items are: their titles, groups, vectors and numbers. Also the door to all rules.

Knows no search. Rules on named pairs live in `pairs.py`, rules taken together in `rule_set.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Int32

from exactk.errors import ConfigError
from exactk.problem.deadline import ENDLESS, Deadline
from exactk.problem.rules.columns import (
    LARGEST_COORDINATE,
    MISSING_CHOICES,
    TITLE_METRICS,
    VECTOR_METRICS,
    Columns,
    Mask,
    Missing,
    Number,
    PairMask,
    RequestError,
    RuleColumn,
    TitleMetric,
    VectorMetric,
    Whole,
    is_finite_number,
    settle_missing,
)
from exactk.problem.rules.counting import Count, Prefer, Share, Total, Variety
from exactk.problem.rules.pairs import Allowed, Forbid, Rule
from exactk.problem.rules.places import Slots
from exactk.problem.rules.rule_set import Constraint, Constraints, ValueRule, load_rules, save_rules
from exactk.problem.rules.where import Where

__all__ = [
    "Allowed",
    "AtMost",
    "Constraint",
    "Constraints",
    "Count",
    "Distinct",
    "Forbid",
    "MinimumDistance",
    "MinimumGap",
    "Prefer",
    "Rule",
    "Share",
    "Slots",
    "TitleDistance",
    "Total",
    "Variety",
    "Where",
    "load_rules",
    "save_rules",
]


PAIRS_AT_ONCE = 1 << 17  # held against each other between two looks at the clock


class FieldRule(ValueRule):
    """A rule on pairs that reads one column."""

    def __post_init__(self) -> None:
        self._check_field()
        self._check_choice("missing", MISSING_CHOICES)

    def _check_minimum(self, minimum: Any, most: int | float = math.inf) -> None:
        if isinstance(minimum, np.generic):
            minimum = minimum.item()
            object.__setattr__(self, "minimum", minimum)  # the JSON form holds plain numbers only
        if not is_finite_number(minimum) or not 0 <= minimum <= most:
            bounds = f"between 0 and {most:g}" if math.isfinite(most) else "of at least 0"
            raise ConfigError(f'rule "{self.type}": minimum must be a number {bounds}, got {minimum!r}')


@dataclass(frozen=True)
class TitleDistance(FieldRule):
    """The titles of two items are at least `minimum` apart, from 0 (equal) to 1.

    `metric` is "ned" (normalised edit distance of Marzal and Vidal) or "levenshtein" (edits over the longer length)."""

    type = "title_distance"
    minimum: Number
    metric: TitleMetric = "ned"
    field: str = "title"
    missing: Missing = "error"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_minimum(self.minimum, most=1)
        self._check_choice("metric", TITLE_METRICS)

    @property
    def name(self) -> str:
        """For example: title distance >= 0.5 (ned)."""
        return f"{self.field} distance >= {self.minimum:.12g} ({self.metric})"

    def allowed(self, columns: Columns, present: Mask, deadline: Deadline = ENDLESS) -> PairMask:
        """Far enough apart, through the shared cache of title pairs; long titles are compared piece by piece."""
        # Imported here so that rules without titles need neither rapidfuzz nor compiled code.
        from exactk.problem.rules.titles import MOST_LETTERS, title_pairs

        column, lacking = self._values(columns, present)
        titles = column.texts(present & ~lacking)
        for b, row in enumerate(titles):
            longest = max(range(len(row)), key=lambda position: len(row[position]))
            if len(row[longest]) > MOST_LETTERS:
                raise RequestError(
                    b,
                    f'the "{self.field}" of {column.label(b, longest)} has {len(row[longest]):,} letters; '
                    f'rule "{self.name}" compares up to {MOST_LETTERS:,}: shorten it',
                )
        far = title_pairs(float(self.minimum), self.metric).far_apart(titles, deadline)
        return settle_missing(far, lacking, self.missing)


@dataclass(frozen=True)
class Distinct(FieldRule):
    """No two items have the same value of a field."""

    type = "distinct"
    field: str
    missing: Missing = "error"

    @property
    def name(self) -> str:
        """For example: distinct brand."""
        return f"distinct {self.field}"

    def allowed(self, columns: Columns, present: Mask, deadline: Deadline = ENDLESS) -> PairMask:  # noqa: ARG002
        """Different values."""
        column, lacking = self._values(columns, present)
        plain = column.values.dtype.kind in "iu"  # compared as they are
        number = column.values if plain else column.codes(present & ~lacking)
        return settle_missing(number[:, :, None] != number[:, None, :], lacking, self.missing)


@dataclass(frozen=True)
class AtMost(FieldRule):
    """At most `m` items with the same value of a field. It is a cap, not a rule on pairs, unless m is 1."""

    type = "at_most"
    field: str
    m: Whole
    missing: Missing = "error"

    def __post_init__(self) -> None:
        super().__post_init__()
        m: Any = self.m.item() if isinstance(self.m, np.generic) else self.m
        if not isinstance(m, int) or isinstance(m, bool) or not 1 <= m < 2**31:
            raise ConfigError(f'rule "at_most": m must be a whole number of at least 1, got {m!r}')
        object.__setattr__(self, "m", m)

    @property
    def name(self) -> str:
        """For example: at most 2 per brand."""
        return f"at most {self.m} per {self.field}"

    @property
    def cap(self) -> int:
        """m."""
        return self.m

    def groups(self, columns: Columns, present: Mask) -> Int32[np.ndarray, "B N"]:
        """One group per value; an item without one is counted nowhere."""
        column, lacking = self._values(columns, present)
        return column.codes(present & ~lacking)

    def allowed(self, columns: Columns, present: Mask, deadline: Deadline = ENDLESS) -> PairMask:  # noqa: ARG002
        """Every pair, unless one lacks a value and missing = "forbid", or m = 1 and the values are equal."""
        column, lacking = self._values(columns, present)
        B, N = present.shape
        apart = np.ones((B, N, N), bool)
        if self.m == 1:
            number = column.codes(present & ~lacking)
            apart = number[:, :, None] != number[:, None, :]
        return settle_missing(apart, lacking, self.missing)


@dataclass(frozen=True)
class MinimumDistance(FieldRule):
    """The vectors of two items are at least `minimum` apart.

    `metric` is "euclidean" or "cosine" (1 - similarity; a vector of zeros counts as missing).
    """

    type = "minimum_distance"
    field: str
    minimum: Number
    metric: VectorMetric = "euclidean"
    missing: Missing = "error"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_choice("metric", VECTOR_METRICS)
        self._check_minimum(self.minimum, most=2 if self.metric == "cosine" else LARGEST_COORDINATE)

    @property
    def name(self) -> str:
        """For example: embedding distance >= 0.3 (cosine)."""
        return f"{self.field} distance >= {self.minimum:.12g} ({self.metric})"

    def allowed(self, columns: Columns, present: Mask, deadline: Deadline = ENDLESS) -> PairMask:
        """Far enough apart; a distance that equals the minimum up to rounding counts as reaching it.

        Squared distances by matrix products; pairs near the threshold are measured again, one by one.
        """
        column = RuleColumn.of(columns, self.field, self.name)
        vector = column.vectors(present)  # B N F
        absent = np.isnan(vector).any(2)
        length = np.linalg.norm(vector, axis=2)  # B N
        least = float(self.minimum) ** 2
        if self.metric == "cosine":
            absent |= length == 0
            vector = vector / np.where(length == 0, 1.0, length)[:, :, None]
            length = np.ones_like(length)
            least = 2.0 * self.minimum  # between unit vectors |a - b|^2 = 2 (1 - cos)
        lacking = self._lacking(column, absent & present)
        unread = absent | ~present
        vector = np.where(unread[:, :, None], 0.0, vector)
        length = np.where(unread, 0.0, length)
        unit = np.finfo(np.float64).eps
        far = np.empty((*present.shape, present.shape[1]), bool)
        for rows in blocks(present, deadline, self.name):
            scale = length[:, rows, None] ** 2 + length[:, None, :] ** 2  # B R N
            squared = scale - 2 * np.matmul(vector[:, rows], vector.transpose(0, 2, 1))
            near = np.abs(squared - least) <= 8 * unit * (vector.shape[2] + 4) * (scale + least)
            b, i, j = np.nonzero(near)
            squared[b, i, j] = np.sum((vector[b, i + rows.start] - vector[b, j]) ** 2, axis=1)
            far[:, rows] = squared >= least - 8 * unit * (math.sqrt(least) * np.sqrt(scale) + least)
        return settle_missing(far, lacking, self.missing)


@dataclass(frozen=True)
class MinimumGap(FieldRule):
    """The numbers of two items are at least `minimum` apart: prices, durations, years."""

    type = "minimum_gap"
    field: str
    minimum: Number
    missing: Missing = "error"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_minimum(self.minimum)

    @property
    def name(self) -> str:
        """For example: price gap >= 10."""
        return f"{self.field} gap >= {self.minimum:.12g}"

    def allowed(self, columns: Columns, present: Mask, deadline: Deadline = ENDLESS) -> PairMask:
        """19.99 and 9.99 are 10 apart, though float64 makes it 9.999999999999998."""
        value, lacking = self._numbers(columns, present, self.field)
        far = np.empty((*present.shape, present.shape[1]), bool)
        for rows in blocks(present, deadline, self.name):
            high = np.maximum(value[:, rows, None], value[:, None, :])  # B R N
            low = np.minimum(value[:, rows, None], value[:, None, :])
            # Whole numbers are compared exactly; unsigned, so that no gap overflows.
            if value.dtype.kind in "iu":
                gap = (high.astype(np.int64) - low.astype(np.int64)).view(np.uint64)
                far[:, rows] = gap >= math.ceil(self.minimum)
            else:
                rounding = 4 * np.finfo(np.float64).eps * np.maximum(np.abs(high), np.abs(low))
                far[:, rows] = high - low >= self.minimum - rounding
        return settle_missing(far, lacking, self.missing)


def blocks(present: Mask, deadline: Deadline, rule: str) -> Iterator[slice]:
    """Rows of candidates to be held against all others between two looks at the clock; few enough for fast memory."""
    B, N = present.shape
    at_once = max(1, PAIRS_AT_ONCE // max(B * N, 1))
    for start in range(0, N, at_once):
        if start:
            deadline.check(f'rule "{rule}" was not read for all pairs of items')
        yield slice(start, min(start + at_once, N))
