"""Random shelves with random mixes of rules: the same brief as rules for our engine and as plain numbers for rivals.

Knows no solver. Everything is whole numbers, so that equal optima can be told exactly.
"""
# ruff: noqa: ARG001 (makers of rules are called alike, whether they need all they are given or not)

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from exactk.problem.given import GivenRequests
from exactk.problem.graph import Requests
from exactk.problem.rules.constraints import (
    AtMost,
    Constraint,
    Constraints,
    Count,
    Distinct,
    Prefer,
    Slots,
    Total,
    Variety,
    Where,
)

Columns = dict[str, np.ndarray]
Made = dict[str, Any]

SLOT_WEIGHTS = (20, 14, 11, 9, 8, 7, 7, 6, 6, 5)
FLAT_WEIGHT = 10  # of every place where places are worth the same


class SumRow(NamedTuple):
    """A sum over the card, within bounds (None: endless)."""

    coefficient: np.ndarray
    lower: int | None
    upper: int | None


@dataclass(frozen=True)
class BriefInstance:
    """One request under a brief, as rivals read it."""

    node: np.ndarray
    pair: np.ndarray | None
    card_size: int
    rows: tuple[SumRow, ...]
    varieties: tuple[tuple[np.ndarray, int], ...]  # values, how many different ones at least
    colour: np.ndarray | None  # preferred distinct, each pair alike costs `clash`
    clash: int
    slot_weight: np.ndarray | None
    eligible: np.ndarray | None  # S N
    rules: Constraints = field(compare=False)
    columns: dict[str, np.ndarray] = field(compare=False)

    def requests(self) -> Requests:
        """The same request as our engine takes it."""
        return self.rules.requests(GivenRequests(self.columns, self.card_size))


def brief_instance(num_nodes: int, card_size: int, pairs: bool, seed: int) -> BriefInstance:
    """The seed-th random request of a size: five rules of eight kinds, drawn anew each time."""
    rng = np.random.default_rng([seed, num_nodes, card_size, int(pairs)])
    N, K = num_nodes, card_size
    brand, colour, category = (rng.integers(0, kinds, N) for kinds in (max(4, N // 5), 6, 8))
    sale, sponsored, hero = (rng.random(N) < share for share in (0.3, 0.2, 0.25))
    price, weight = rng.integers(10, 101, N), rng.integers(1, 51, N)
    node = rng.integers(0, 1001, N)
    upper = np.triu(rng.integers(-500, 501, (N, N)), 1)
    columns = {
        "item_id": np.arange(N), "brand": brand, "colour": colour, "category": category, "sale": sale,
        "sponsored": sponsored, "hero": hero, "price": price, "weight": weight,
    }  # fmt: skip
    made: dict[str, Any] = {
        "rows": [],
        "varieties": [],
        "colour": None,
        "clash": 0,
        "slot": None,
        "may": None,
    }
    rules = [MAKERS[kind](rng, K, columns, made) for kind in rng.permutation(len(MAKERS))[:5]]
    return BriefInstance(
        node=node,
        pair=upper + upper.T if pairs else None,
        card_size=K,
        rows=tuple(made["rows"]),
        varieties=tuple(made["varieties"]),
        colour=made["colour"],
        clash=made["clash"],
        slot_weight=made["slot"],
        eligible=made["may"],
        rules=Constraints.of(rules),
        columns={name: values[None] for name, values in columns.items()},
    )


def _brand(rng: np.random.Generator, K: int, columns: Columns, made: Made) -> Constraint:
    for value in np.unique(columns["brand"]):
        made["rows"].append(SumRow((columns["brand"] == value).astype(int), None, 2))
    return AtMost("brand", 2)


def _sale(rng: np.random.Generator, K: int, columns: Columns, made: Made) -> Constraint:
    least = int(rng.integers(1, K // 2 + 1))
    made["rows"].append(SumRow(columns["sale"].astype(int), least, None))
    return Count("sale", at_least=least)


def _sponsored(rng: np.random.Generator, K: int, columns: Columns, made: Made) -> Constraint:
    made["rows"].append(SumRow(columns["sponsored"].astype(int), 1, 1))
    return Count("sponsored", exactly=1)


def _price(rng: np.random.Generator, K: int, columns: Columns, made: Made) -> Constraint:
    most = int(55 * K * rng.uniform(0.5, 0.9))
    made["rows"].append(SumRow(columns["price"], None, most))
    return Total("price", at_most=most)


def _weight(rng: np.random.Generator, K: int, columns: Columns, made: Made) -> Constraint:
    middle = int(25 * K * rng.uniform(0.8, 1.3))
    made["rows"].append(SumRow(columns["weight"], middle - 2 * K, middle + 2 * K))
    return Total("weight", at_least=middle - 2 * K, at_most=middle + 2 * K)


def _category(rng: np.random.Generator, K: int, columns: Columns, made: Made) -> Constraint:
    least = int(rng.integers(2, min(K, 7) + 1))
    made["varieties"].append((columns["category"], least))
    return Variety("category", at_least=least)


def _colour(rng: np.random.Generator, K: int, columns: Columns, made: Made) -> Constraint:
    made["colour"], made["clash"] = columns["colour"], int(rng.integers(50, 300))
    return Prefer(Distinct("colour"), made["clash"])


def _places(rng: np.random.Generator, K: int, columns: Columns, made: Made) -> Constraint:
    weights = SLOT_WEIGHTS[:K] if rng.random() < 0.5 else (FLAT_WEIGHT,) * K
    may = np.ones((K, len(columns["hero"])), bool)
    may[0] = columns["hero"]
    may[1] = ~columns["sponsored"]
    made["slot"], made["may"] = np.array(weights), may
    where: dict[int, Any] = {1: Where("hero"), 2: ~Where("sponsored")}
    return Slots(where=where, weights=[w / FLAT_WEIGHT for w in weights])


MAKERS = (_brand, _sale, _sponsored, _price, _weight, _category, _colour, _places)
