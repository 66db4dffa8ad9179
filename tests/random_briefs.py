"""Small shelves and briefs at random, and a slow, separate idea of what they mean: rules read from items."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from itertools import combinations, pairwise, permutations
from typing import Any

import numpy as np

from exactk.problem.given import GivenRequests
from exactk.problem.graph import Requests
from exactk.problem.rules.constraints import (
    AtMost,
    Constraint,
    Constraints,
    Count,
    Distinct,
    MinimumGap,
    Prefer,
    Share,
    Slots,
    Total,
    Variety,
    Where,
)
from exactk.problem.ties import tie_keys

Item = dict[str, Any]
PRICES = [0.1, 0.2, 0.3, 0.7, 1.1, 2.5, 19.99, 5.0]


def shelf(rng: np.random.Generator, N: int) -> list[Item]:
    """Items with brands, colours, flags and prices, with ties and gaps."""
    return [
        {
            "item_id": f"i{n}",
            "brand": str(rng.choice(list("xyz"))),
            "colour": str(rng.choice(list("rgb"))) if rng.random() < 0.85 else None,
            "sale": bool(rng.random() < 0.4),
            "hero": bool(rng.random() < 0.3),
            "price": float(rng.choice(PRICES)) if rng.random() < 0.85 else None,
            "rank": int(rng.integers(0, 5)),
        }
        for n in range(N)
    ]


def columns(items: list[Item]) -> dict[str, np.ndarray]:
    """As rules read them; prices are of few bits, and count as they are written."""
    found = {}
    for name in items[0]:
        values = np.empty((1, len(items)), object)
        values[0] = [item[name] for item in items]
        found[name] = values.astype(np.float32) if name == "price" else values
    return found


def a_where(rng: np.random.Generator) -> Where:
    """A condition of any form."""
    simple = [
        Where("sale"),
        Where("brand", equals="x"),
        Where("brand", one_of=["x", "y"]),
        Where("price", at_least=0.2, at_most=2.5),
        Where("colour", equals="r"),
        Where("rank", at_most=2),
    ]
    one, two = (simple[int(rng.integers(len(simple)))] for _ in range(2))
    return [one, one & two, one | two, ~one][int(rng.integers(4))]


def a_rule(rng: np.random.Generator, kind: str, K: int) -> Constraint:
    """A rule of a kind, loose or tight."""
    missing: Any = str(rng.choice(["allow", "forbid"]))
    few = int(rng.integers(0, K + 1))
    if kind == "count":
        bounds = [{"at_least": few}, {"at_most": few}, {"exactly": few}][int(rng.integers(3))]
        return Count(a_where(rng), missing=missing, **bounds)
    if kind == "share":
        return Share(a_where(rng), at_least=float(rng.choice([0.2, 0.25, 0.5])), missing=missing)
    if kind == "total":
        limit = float(np.round(rng.choice([0.3, 0.6, 1.0, 3.0, 20.5]) * (1 + rng.integers(0, 2)), 2))
        where = a_where(rng) if rng.random() < 0.3 else None
        bounds_: Any = {"at_most": limit} if rng.random() < 0.6 else {"at_least": limit}
        return Total("price", where=where, missing=missing, **bounds_)
    if kind == "variety":
        return Variety("colour", at_least=max(1, few), missing=missing)
    if kind == "at_most":
        return AtMost("brand", int(rng.integers(1, 3)))
    if kind == "distinct":
        return MinimumGap("rank", 1) if rng.random() < 0.5 else Distinct("colour", missing=missing)
    if kind == "prefer":
        inner = a_rule(rng, str(rng.choice(["count", "total", "variety", "at_most", "distinct"])), K)
        return Prefer(inner, float(rng.choice([0.5, 1.0, 4.0])), once=bool(rng.random() < 0.4))
    places: dict[str, Any] = {}
    if rng.random() < 0.6:
        places["where"] = {int(rng.integers(1, K + 1)): a_where(rng)}
    if rng.random() < 0.2:
        places["fixed"] = {int(rng.integers(1, K + 1)): "i0"}
    if rng.random() < 0.5:
        places["weights"] = [float(w) for w in rng.choice([1.0, 0.5, 0.25, -1.0], K)]
    if rng.random() < 0.5:
        places["apart"] = "brand"
    if rng.random() < 0.3:
        places["rising"] = "price"
    return Slots(missing=missing, **places)


KINDS = ("count", "share", "total", "variety", "at_most", "distinct", "prefer", "slots")


def holds(where: Where, item: Item) -> bool | None:
    """A condition on one item; None where its values do not settle it."""
    if where.not_ is not None:
        inner = holds(where.not_, item)
        return None if inner is None else not inner
    if where.all is not None:
        told = [holds(part, item) for part in where.all]
        return False if False in told else None if None in told else True
    if where.any is not None:
        told = [holds(part, item) for part in where.any]
        return True if True in told else None if None in told else False
    value = item[where.field]
    if value is None:
        return None
    if where.equals is not None:
        return bool(value == where.equals)
    if where.one_of is not None:
        return value in where.one_of
    if where.at_least is not None or where.at_most is not None:
        above = where.at_least is None or value >= where.at_least
        return bool(above and (where.at_most is None or value <= where.at_most))
    return bool(value)


def times_broken(rule: Constraint, card: list[Item]) -> int:
    """How often a card (in order of place) breaks a rule; 0 keeps it."""
    K = len(card)
    if isinstance(rule, Count | Share):
        told = [holds(rule.where, item) for item in card]
        barred = told.count(None) if rule.missing == "forbid" else 0
        held = told.count(True)
        if isinstance(rule, Count):
            low = rule.at_least if rule.exactly is None else rule.exactly
            high = rule.at_most if rule.exactly is None else rule.exactly
        else:
            low = math.ceil(Decimal(str(rule.at_least)) * K) if rule.at_least is not None else None
            high = None
        short = max(int(low) - held, 0) if low is not None else 0
        return short + (max(held - high, 0) if high is not None else 0) + barred
    if isinstance(rule, Total):
        total, barred = Decimal(0), 0
        for item in card:
            inside = True if rule.where is None else holds(rule.where, item)
            if inside is None or (inside and item["price"] is None):
                barred += rule.missing == "forbid"
            elif inside:
                total += Decimal(str(item["price"]))
        low_, high_ = (None if v is None else Decimal(str(v)) for v in (rule.at_least, rule.at_most))
        wrong = (low_ is not None and total < low_) or (high_ is not None and total > high_)
        return int(wrong) + barred
    if isinstance(rule, Variety):
        values = {item["colour"] for item in card} - {None}
        barred = sum(item["colour"] is None for item in card) if rule.missing == "forbid" else 0
        return max(int(rule.at_least) - len(values), 0) + barred
    if isinstance(rule, AtMost):
        worn = [item["brand"] for item in card]
        return sum(max(worn.count(brand) - int(rule.cap), 0) for brand in set(worn))
    if isinstance(rule, Distinct):
        return sum(not apart(rule, a, b) for a, b in combinations(card, 2))
    if isinstance(rule, MinimumGap):
        return sum(abs(a["rank"] - b["rank"]) < rule.minimum for a, b in combinations(card, 2))
    assert isinstance(rule, Slots)
    broken = 0
    for place, who in rule.where:
        told_ = holds(who, card[place - 1])
        broken += (told_ is False) or (told_ is None and rule.missing == "forbid")
    for place, name in rule.fixed:
        broken += card[place - 1]["item_id"] != name
    for a, b in pairwise(card):
        if rule.apart:
            broken += a["brand"] == b["brand"]
        if rule.rising:
            gap = a["price"] is None or b["price"] is None
            broken += rule.missing == "forbid" if gap else a["price"] > b["price"]
    return int(broken)


def apart(rule: Distinct, a: Item, b: Item) -> bool:
    """Whether two items may share a card."""
    if a[rule.field] is None or b[rule.field] is None:
        return rule.missing == "allow"
    return bool(a[rule.field] != b[rule.field])


@dataclass(frozen=True)
class Shelf:
    """One request in plain form."""

    items: list[Item]
    K: int
    rules: tuple[Constraint, ...]
    node: np.ndarray
    pair: np.ndarray | None
    include: tuple[int, ...] = ()

    @property
    def slots(self) -> list[Slots]:
        return [rule for rule in self.rules if isinstance(rule, Slots)]

    def requests(self) -> Requests:
        wished = [[self.items[p]["item_id"] for p in self.include]]
        return Constraints(self.rules).requests(GivenRequests(columns(self.items), self.K, include=wished))

    def is_valid(self, card: tuple[int, ...]) -> bool:
        chosen = [self.items[p] for p in card]
        hard = [rule for rule in self.rules if not isinstance(rule, Prefer)]
        return set(self.include) <= set(card) and not any(times_broken(rule, chosen) for rule in hard)

    def worth(self, card: tuple[int, ...]) -> float:
        """The value of a card in order of place, less what its broken preferences cost."""
        factor = np.ones(self.K)
        for places in self.slots:
            factor[: len(places.weights)] *= places.weights[: self.K]
        value = float((self.node[list(card)] * factor).sum())
        if self.pair is not None:
            value += sum(float(self.pair[i, j]) for i, j in combinations(card, 2))
        for rule in self.rules:
            if isinstance(rule, Prefer):
                count = times_broken(rule.rule, [self.items[p] for p in card])
                if isinstance(rule.rule, Total) and rule.rule.missing == "allow":
                    count = min(count, 1)
                value -= rule.worth * (min(count, 1) if rule.once or isinstance(rule.rule, Total) else count)
        return value

    def best(self) -> list[tuple[tuple[int, ...], float]]:
        """Every valid set with its worth (in its best order, where there are places), best first, ties in order."""
        found = []
        for chosen in combinations(range(len(self.items)), self.K):
            orders = permutations(chosen) if self.slots else [chosen]
            worths = [self.worth(order) for order in orders if self.is_valid(order)]
            if worths:
                found.append((chosen, max(worths)))
        keys = tie_keys([item["item_id"] for item in self.items])
        place = np.argsort(np.argsort(-keys)).tolist()
        return sorted(found, key=lambda one: (-round(one[1], 9), sorted(place[p] for p in one[0])))


def a_shelf(seed: int, kinds: tuple[str, ...], N: int, K: int, pairs: bool, whole: bool = True) -> Shelf:
    """Whole-number weights (halves and quarters, where places weigh): ties are exact."""
    rng = np.random.default_rng(seed)
    K = min(K, N)
    rules = [a_rule(rng, kind, K) for kind in kinds]
    node = rng.integers(-6, 7, N).astype(float) if whole else rng.normal(size=N)
    pair = np.triu(rng.integers(-3, 4, (N, N)), 1).astype(float)
    include = tuple(rng.permutation(N)[: int(rng.integers(0, 2))].tolist())
    return Shelf(shelf(rng, N), K, tuple(rules), node, pair + pair.T if pairs else None, include)
