"""Why: what blocks a request that has no card, which rules to let go, why an item is not in a card.

Knows rules and the exact engine; every answer is proven by it, none is guessed from the graph.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float64

from exactk.errors import ConfigError, InfeasibleError, OutOfTimeError
from exactk.problem.brief import card_worth
from exactk.problem.deadline import ENDLESS, Deadline
from exactk.problem.exact.cliques import Solutions, best
from exactk.problem.graph import Requests
from exactk.problem.rules.columns import nearest
from exactk.problem.rules.rule_set import Constraint, Constraints
from exactk.problem.rules.sheet import CardRules, Demand, RuleSheet, best_under_card_rules

# Weighed between two looks at the clock: four items of 128, one of 400 takes 0.1 s to set up.
PAIRS_IN_TIME = 2**16
PINNED_AT_ONCE = 2**22  # pairs weighed in one call when every item left out is tried: 32 MiB of weights
NOT_SETTLED = "no valid card was found in the time given, nor proven that there is none; give more time"
MOST_NAMED = 8  # in a message for people; the error itself holds them all


class Blocking(NamedTuple):
    """Demands that no card meets; `minimal` where each was proven to be needed for that, none for want of time."""

    pieces: tuple[Demand, ...]
    minimal: bool


def blocking_pieces(sheet: RuleSheet, deadline: Deadline = ENDLESS) -> Blocking:
    """Of a request known to have no card, a minimal set of demands that block it: lift any one and a card exists.

    Found by trying to lift each in turn, for good where the rest still blocks. The size goes first, so that
    included items that cannot stand together are blamed on themselves and not on K.
    """
    kept = list(sheet.pieces())
    minimal = True
    for piece in sheet.pieces():
        rest = [other for other in kept if other != piece]
        met = sheet.feasible(rest, deadline)
        if met is None:
            minimal = False
        elif not met:
            kept = rest
    return Blocking(tuple(kept), minimal)


def infeasible_error(
    sheet: RuleSheet, where: str = "", relaxed: Sequence[Any] = (), deadline: Deadline = ENDLESS
) -> InfeasibleError:
    """The error that says what blocks a request, also after all rules that may go have gone.

    Where the deadline comes first, the demands named are more than block it.
    """
    gone = _rules_named(sheet, relaxed)
    without = f", even without {', '.join(sheet.names[r] for r in gone)}" if gone else ""
    sheet = sheet.without(gone)
    pieces, minimal = blocking_pieces(sheet, deadline)
    blocking = tuple(sheet.named(piece) for piece in pieces)
    together = f"together these {len(blocking)} forbid one" if len(blocking) > 1 else "this forbids one"
    more = f"; and {len(blocking) - MOST_NAMED} more" if len(blocking) > MOST_NAMED else ""
    named = "; ".join(blocking[:MOST_NAMED]) + more
    unsure = "" if minimal else " (no time was left to find out which of them are needed for that)"
    message = f"{where}no valid card exists{without}; {together}: {named}{unsure}"
    return InfeasibleError(message, blocking, minimal)


def relax(
    sheet: RuleSheet, order: Sequence[Any], deadline: Deadline = ENDLESS
) -> tuple[tuple[str, ...], RuleSheet] | None:
    """Let rules go in the caller's order until a card exists, then take back those that need not have gone.

    `order` holds rules, their names, or their types ("title_distance": all of that type). Returns the names
    of the rules let go and the request without them; None where letting all of them go does not help. What is
    not settled in a fair share of the time counts as no card, so that a rule more goes.
    """
    gone: list[int] = []
    for r in _rules_named(sheet, order):
        if _feasible_without(sheet, gone, deadline.part(0.5)):
            break
        gone.append(r)
    met = _feasible_without(sheet, gone, deadline)
    if met is None:
        raise OutOfTimeError(NOT_SETTLED)
    if not met:
        return None
    for r in gone.copy():
        fewer = [other for other in gone if other != r]
        if _feasible_without(sheet, fewer, deadline.part(0.5)):
            gone = fewer
    return tuple(sheet.names[r] for r in gone), sheet.without(gone)


def _feasible_without(sheet: RuleSheet, gone: Sequence[int], deadline: Deadline) -> bool | None:
    left = sheet.without(gone)
    return left.feasible(left.pieces(), deadline)


def check_relaxable(constraints: Constraints, order: Sequence[Any]) -> None:
    """Refuse what names no rule, before any search."""
    for wanted in order:
        _matching(constraints.rules, constraints.names, wanted)


def _rules_named(sheet: RuleSheet, order: Sequence[Any]) -> list[int]:
    found = [r for wanted in order for r in _matching(sheet.rules, sheet.names, wanted)]
    return list(dict.fromkeys(found))


def _matching(rules: Sequence[Constraint], names: Sequence[str], wanted: Any) -> list[int]:
    match = [r for r, rule in enumerate(rules) if wanted in (names[r], rule.type) or rule == wanted]
    if not match:
        known = [*names, *(rule.type for rule in rules)]
        raise ConfigError(
            f"cannot relax {getattr(wanted, 'name', wanted)!r}: there is no such rule{nearest(wanted, known)}"
        )
    return match


class Conflict(NamedTuple):
    """A chosen item that an item left out may not join, and the rules that say so."""

    item: Any
    rules: tuple[str, ...]


@dataclass(frozen=True)
class WhyNot:
    """Why an item is not in a card: whom it may not join, and what the best card that holds it would cost.

    `cost` is that loss of value, `instead` that card; both None where no valid card holds the item, and then
    `blocking` is a minimal set of demands that rule it out. `exact` is False where time ran out: the cost is then
    at most the one given, or unknown, and `blocking` may name more than is needed.
    """

    item: Any
    conflicts: tuple[Conflict, ...]
    cost: float | None
    instead: tuple[Any, ...] | None
    blocking: tuple[str, ...] = ()
    exact: bool = True

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "item": self.item,
            "conflicts": [{"item": other.item, "rules": list(other.rules)} for other in self.conflicts],
            "cost": self.cost,
            "instead": None if self.instead is None else list(self.instead),
            "blocking": list(self.blocking),
            "exact": self.exact,
        }

    def __str__(self) -> str:
        joined = "; ".join(f"not with {other.item!r} ({', '.join(other.rules)})" for other in self.conflicts)
        if self.cost is None:
            named = "; ".join(self.blocking)
            verdict = f"in no valid card: {named}" if named else "not finished in the time given"
        else:
            most = "" if self.exact else "at most "
            verdict = f"the best card with it is worth {most}{self.cost:.6g} less"
        return f"{self.item!r}: {joined + '; ' if joined else ''}{verdict}"


def why_not(
    sheet: RuleSheet,
    card: Sequence[int],
    node_weights: Float64[np.ndarray, "N"],
    pair_weights: Float64[np.ndarray, "N N"] | None = None,
    positions: Sequence[int] | None = None,
    deadline: Deadline = ENDLESS,
) -> tuple[WhyNot, ...]:
    """Why each of `positions` (all that are not in the card, where not said) is not in this best card.

    Each may take an equal share of the time left; what is not finished by then says so.
    """
    left_out = [p for p in np.flatnonzero(sheet.present).tolist() if p not in set(card)]
    asked = left_out if positions is None else [p for p in positions if p in left_out]
    request = sheet.requests(sheet.pieces())
    value = card_worth(request.brief, 0, card, node_weights, pair_weights)
    N = len(sheet.present)
    reasons: list[WhyNot] = []
    at_once = max(1, PINNED_AT_ONCE // N**2)
    if deadline.ends < math.inf:
        at_once = max(1, min(at_once, PAIRS_IN_TIME // N**2))
    took = 0.0
    for start in range(0, len(asked), at_once):
        part = asked[start : start + at_once]
        if deadline.left <= took:
            reasons += [
                WhyNot(sheet.item_ids[p], _conflicts(sheet, card, p), None, None, exact=False) for p in part
            ]
            continue
        begun = time.monotonic()
        limit = deadline.part(1 / (len(asked) - start)).limit()
        found = _best_with(sheet, request, part, node_weights, pair_weights, limit)
        took = max(took, time.monotonic() - begun)
        for row, position in enumerate(part):
            cost = instead = None
            exact = bool(found.optimal[row])
            blocking: tuple[str, ...] = ()
            if found.found[row]:
                cost = max(value - float(found.weight[row]), 0.0)
                instead = tuple(sheet.item_ids[p] for p in found.card[row].tolist() if p >= 0)
            elif exact:
                blocking, exact = _ruling_out(sheet, position, deadline)
            conflicts = _conflicts(sheet, card, position)
            reasons.append(WhyNot(sheet.item_ids[position], conflicts, cost, instead, blocking, exact))
    return tuple(reasons)


def _best_with(
    sheet: RuleSheet,
    request: Requests,
    positions: Sequence[int],
    node_weights: Float64[np.ndarray, "N"],
    pair_weights: Float64[np.ndarray, "N N"] | None,
    time_limit: float | None,
) -> Solutions:
    """The best card with each of these positions; functions of whole cards are asked, too."""
    copies = request.rows(np.zeros(len(positions), np.int64))
    pinned = copies.pinned.copy()
    pinned[np.arange(len(positions)), positions] = True
    asked = replace(copies, pinned=pinned)
    node = np.tile(node_weights, (len(positions), 1))
    pair = None if pair_weights is None else np.tile(pair_weights, (len(positions), 1, 1))
    if not sheet.whole:
        return best(asked, node, pair, time_limit)
    columns = {name: np.repeat(values, len(positions), 0) for name, values in sheet.columns.items()}
    of_cards = CardRules(sheet.whole, columns)
    return Solutions.of(best_under_card_rules(asked, node, pair, of_cards, 1, time_limit))


def _ruling_out(sheet: RuleSheet, position: int, deadline: Deadline) -> tuple[tuple[str, ...], bool]:
    """What keeps an item out of every card (that it was asked for goes without saying), and whether it is minimal."""
    demand = Demand("include", position)
    asked = sheet.including(position)
    pieces, minimal = blocking_pieces(asked, deadline)
    return tuple(asked.named(piece) for piece in pieces if piece != demand), minimal


def _conflicts(sheet: RuleSheet, card: Sequence[int], position: int) -> tuple[Conflict, ...]:
    """A full group conflicts through every chosen item in it."""
    broken: dict[int, list[str]] = {p: [] for p in card}
    for r, name in enumerate(sheet.names):
        same = [p for p in card if sheet.group[r, p] >= 0 and sheet.group[r, p] == sheet.group[r, position]]
        full = len(same) >= sheet.cap[r]
        for p in card:
            if not sheet.allowed[r, position, p] or (full and p in same):
                broken[p].append(name)
    return tuple(Conflict(sheet.item_ids[p], tuple(names)) for p, names in broken.items() if names)
