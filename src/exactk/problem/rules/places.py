"""`Slots`: the card has places. Who may stand where, what a place is worth, who may stand beside whom.

Knows no search: it becomes the places of a `Brief`. Places count from 1, in display order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64

from exactk.errors import ConfigError, InputError
from exactk.problem.brief import Brief, blank, joined, sums
from exactk.problem.deadline import Deadline
from exactk.problem.rules.columns import (
    MISSING_CHOICES,
    CardSizes,
    Columns,
    Mask,
    Missing,
    PairMask,
    RuleColumn,
    flat_ids,
    is_finite_number,
    settle_missing,
)
from exactk.problem.rules.counting import CardRule
from exactk.problem.rules.rule_set import Constraint
from exactk.problem.rules.where import Where

MOST_PLACES = 64  # sets of places are bits of one machine word
MOST_IN_A_ROW = 12  # with rules on neighbours every order of a card is weighed: 12 * 2^12 steps
LARGE_VALUE = 4  # a value worn by more than one candidate in four gets a cap of its own


@dataclass(frozen=True)
class Slots(CardRule):
    """Gives the card places, counted from 1; the items of the card come in that order.

    where:   {place: condition}: which items may stand there
    fixed:   {place: item id}: this item stands there
    weights: for each place, the factor by which the score of its item is multiplied
    scores:  a column with a list for each item: how much is added to its score in each place
    apart:   columns in which no two neighbours may have the same value; or rules on pairs that neighbours must keep
    rising, falling: a column whose numbers never fall (never rise) from one place to the next
    """

    type = "slots"
    where: Any = ()
    fixed: Any = ()
    weights: Any = ()
    scores: str = ""
    apart: Any = ()
    rising: str = ""
    falling: str = ""
    missing: Missing = "error"

    def __post_init__(self) -> None:
        where = tuple((place, Where.of(who)) for place, who in _by_place("where", self.where))
        fixed = tuple(zip(*_ids(_by_place("fixed", self.fixed)), strict=True))
        object.__setattr__(self, "where", where)
        object.__setattr__(self, "fixed", fixed)
        object.__setattr__(self, "weights", _weights(self.weights))
        self._check_choice("missing", MISSING_CHOICES)
        apart = [self.apart] if isinstance(self.apart, str | Mapping | Constraint) else self.apart
        if not isinstance(apart, Sequence):
            raise ConfigError(f'rule "slots": apart takes fields and rules on pairs, got {apart!r}')
        object.__setattr__(self, "apart", tuple(_neighbours(rule, self.missing) for rule in apart))
        for setting in ("scores", "rising", "falling"):
            if not isinstance(getattr(self, setting), str):
                raise ConfigError(
                    f'rule "slots": {setting} must be the name of a column, got {getattr(self, setting)!r}'
                )

    @property
    def name(self) -> str:
        """For example: places (1: hero; no neighbours of one brand)."""
        parts = [f"{place}: {who}" for place, who in self.where]
        parts += [f"{place}: {item!r}" for place, item in self.fixed]
        parts += [f"neighbours: {rule.name}" for rule in self.apart]
        parts += [
            f"{name} {word}" for name, word in ((self.rising, "rising"), (self.falling, "falling")) if name
        ]
        return f"places ({'; '.join(parts)})" if parts else "places"

    @property
    def fields(self) -> tuple[str, ...]:
        """What its conditions, worths and neighbours read."""
        found = [name for _, who in self.where for name in who.fields]
        found += [name for rule in self.apart for name in rule.fields]
        found += [name for name in (self.scores, self.rising, self.falling) if name]
        return tuple(dict.fromkeys(found))

    def to_dict(self) -> dict[str, Any]:
        """Places as texts: keys of JSON and TOML are."""
        said: dict[str, Any] = {"type": self.type}
        if self.where:
            said["where"] = {str(place): who.to_dict() for place, who in self.where}
        if self.fixed:
            said["fixed"] = {str(place): item for place, item in self.fixed}
        if self.weights:
            said["weights"] = list(self.weights)
        if self.apart:
            said["apart"] = [rule.to_dict() for rule in self.apart]
        for setting, silent in (("scores", ""), ("rising", ""), ("falling", ""), ("missing", "error")):
            if getattr(self, setting) != silent:
                said[setting] = getattr(self, setting)
        return said

    def check_size(self, card_size: int) -> None:
        """Refuse cards that these places do not fit."""
        places = [place for place, _ in (*self.where, *self.fixed)]
        if places and max(places) > card_size:
            raise ConfigError(f'rule "{self.name}" names place {max(places)}, but the card has {card_size}')
        if self.weights and len(self.weights) < card_size:
            raise ConfigError(
                f'rule "{self.name}" has {len(self.weights)} weights for the {card_size} places of the card'
            )
        most = MOST_IN_A_ROW if self.apart or self.rising or self.falling else MOST_PLACES
        if card_size > most:
            kind = "with rules on neighbours " if most == MOST_IN_A_ROW else ""
            raise ConfigError(
                f'rule "{self.name}": a card {kind}may have at most {most} places, got {card_size}'
            )

    def brief(self, columns: Columns, present: Mask, card_size: CardSizes, deadline: Deadline) -> Brief:
        """Places, and a cap on what cannot stand apart otherwise."""
        B, N = present.shape
        S = int(card_size.max(initial=1))
        eligible, lacking = self._eligible(columns, present, S), np.zeros(present.shape, bool)
        eligible &= (np.arange(S) < card_size[:, None])[:, :, None]
        score = np.zeros((B, S, N))
        if self.scores:
            score, lacking = self._scores(columns, present, S)
        weight = np.ones((B, S))
        given = self.weights[:S]
        weight[:, : len(given)] = given
        follows = self._follows(columns, present, deadline)
        places = blank(B, N)._replace(
            eligible=eligible,
            slot_weight=weight,
            slot_score=score,
            follows=np.empty((B, 0, N, N), bool) if follows is None else follows[:, None],
        )
        return joined([places, *self._without(lacking), *self._caps(columns, present, card_size)]) or places

    def _eligible(self, columns: Columns, present: Mask, S: int) -> Bool[np.ndarray, "B S N"]:
        eligible = np.repeat(present[:, None], S, axis=1)
        for place, who in self.where:
            if place <= S:
                yes, unknown = self._members(who, columns, present)
                eligible[:, place - 1] &= yes | unknown if self.missing == "allow" else yes
        for place, item in self.fixed:
            if place <= S:
                here = np.array([[one == item for one in row] for row in columns["item_id"].tolist()], bool)
                eligible[:, np.arange(S) != place - 1] &= ~here[:, None]
                eligible[:, place - 1] &= here
        return eligible

    def _scores(self, columns: Columns, present: Mask, S: int) -> tuple[Float64[np.ndarray, "B S N"], Mask]:
        column = RuleColumn.of(columns, self.scores, self.name)
        each = column.vectors(present)
        lacking = self._lacking(column, np.isnan(each).any(2) & present)
        held, score = present & ~lacking, np.zeros((*present.shape, S))
        if held.any():
            if each.shape[2] < S:
                raise InputError(
                    f'rule "{self.name}": "{self.scores}" has {each.shape[2]} numbers per item for {S} places'
                )
            score[held] = each[held][:, :S]
        return np.ascontiguousarray(score.transpose(0, 2, 1)), lacking

    def _follows(self, columns: Columns, present: Mask, deadline: Deadline) -> PairMask | None:
        if not (self.apart or self.rising or self.falling):
            return None
        B, N = present.shape
        follows = np.ones((B, N, N), bool)
        for rule in self.apart:
            follows &= rule.allowed(columns, present, deadline)
        for field, sign in ((self.rising, 1), (self.falling, -1)):
            if field:
                value, lacking = self._numbers(columns, present, field)
                first, then = value[:, :, None], value[:, None, :]
                in_order = first <= then if sign > 0 else first >= then
                follows &= settle_missing(in_order, lacking, self.missing)
        return follows

    def _caps(self, columns: Columns, present: Mask, card_size: CardSizes) -> list[Brief]:
        """Of K places in a row no two neighbours alike: at most (K + 1) / 2 of one value, said where it matters."""
        rows = []
        for rule in self.apart:
            if rule.type != "distinct":
                continue
            column = RuleColumn.of(columns, rule.field, self.name)
            number = column.codes(present & ~column.absent())
            most = (card_size.astype(np.int64) + 1) // 2
            alike = (number[:, :, None] == number[:, None, :]) & (number >= 0)[:, None, :]  # B N N
            first = ~np.tril(alike, -1).any(2) & (number >= 0)
            large = first & (alike.sum(2) * LARGE_VALUE > present.sum(1, keepdims=True))
            M = int(large.sum(1).max(initial=0))
            order = np.argsort(~large, axis=1, kind="stable")[:, :M]
            b = np.arange(len(number))[:, None]
            worn = alike[b, order] & large[b, order][:, :, None]
            rows.append(sums(worn.astype(np.int64), upper=np.repeat(most[:, None], M, axis=1)))
        return rows


def _by_place(setting: str, given: Any) -> list[tuple[int, Any]]:
    """{1: ..., "3": ...}, or pairs of place and value, in order of place."""
    listed = list(given.items()) if isinstance(given, Mapping) else given
    if isinstance(listed, str) or not isinstance(listed, Sequence):
        raise ConfigError(f'rule "slots": {setting} must be a table of places, got {given!r}')
    found: dict[int, Any] = {}
    for entry in listed:
        pair = isinstance(entry, Sequence) and not isinstance(entry, str) and len(entry) == 2
        place = entry[0] if pair else None
        if isinstance(place, str) and place.isdecimal():
            place = int(place)
        if isinstance(place, bool) or not isinstance(place, int | np.integer) or place < 1 or place in found:
            raise ConfigError(
                f'rule "slots": {setting} must name each place once, by its number from 1 up, got {given!r}'
            )
        found[int(place)] = entry[1]
    return sorted(found.items())


def _ids(pairs: list[tuple[int, Any]]) -> tuple[list[int], list[Any]]:
    places, items = [place for place, _ in pairs], flat_ids([item for _, item in pairs])
    if not all(isinstance(item, int | str) for item in items):
        raise ConfigError(f'rule "slots": fixed must name items by their ids, got {items!r}')
    if len(set(items)) < len(items):
        raise ConfigError(f'rule "slots": fixed names an item twice: {items!r}')
    return places, items


def _weights(given: Any) -> tuple[int | float, ...]:
    if isinstance(given, str) or not isinstance(given, Sequence | np.ndarray):
        raise ConfigError(f'rule "slots": weights must be a list of numbers, got {given!r}')
    values = [value.item() if isinstance(value, np.generic) else value for value in given]
    for value in values:
        if not is_finite_number(value):
            raise ConfigError(f'rule "slots": weights must be finite numbers, got {value!r}')
    return tuple(values)


def _neighbours(written: Any, missing: str) -> Constraint:
    """A field is short for "distinct"; other rules on pairs come as rules or in the form of files."""
    if isinstance(written, str):
        return Constraint.from_dict({"type": "distinct", "field": written, "missing": missing})
    rule = Constraint.from_dict(written) if isinstance(written, Mapping) else written
    if not isinstance(rule, Constraint) or not rule.speaks_of_pairs or rule.cap is not None:
        raise ConfigError(f'rule "slots": apart takes fields and rules on pairs, got {written!r}')
    if getattr(rule, "missing", None) == "error" and missing != "error":
        rule = replace(rule, missing=missing)  # type: ignore[type-var]
    return rule
