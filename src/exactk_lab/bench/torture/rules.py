"""Briefs of every kind of rule, from sound to nonsense, and rules files of them; small sound ones beside brute force.

Knows the words of rules, no search. What cannot be meant is refused in words, what can is answered in time.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from itertools import combinations, permutations
from pathlib import Path
from typing import Any

import numpy as np

from exactk.errors import ExactKError, InfeasibleError
from exactk.problem.rules.constraints import Constraints, load_rules
from exactk.problem.solving import Card, solve
from exactk_lab.bench.solving.brief_instances import FLAT_WEIGHT, BriefInstance, brief_instance
from exactk_lab.bench.torture.files import PIECES

Rng = np.random.Generator
Written = dict[str, Any]
SECONDS = 2.0  # that each answer may take
ODD: list[Any] = [
    0, -1, 2.5, -0.0, 1e300, 1e308, -1e308, 5e-324, 10**19, 2**62, 2**63, -(2**63), 10**400, True, False, None, "",
    "x", "1", "price", [], {}, [1], ["x"], [[1, 2]], [1.0] * 3, {"field": "x"}, {"1": {"field": "sale"}}, "é" * 2000,
    float("nan"), float("inf"),
]  # fmt: skip
SHARES = (0.0, 0.01, 0.05, 0.2)  # of values that are odd: the calm ones go deeper
FIELDS = {
    "minimum_distance": ["vector"],
    "minimum_gap": ["price"],
    "total": ["price"],
    "title_distance": ["title"],
}
TYPES = (
    "allowed", "at_most", "count", "distinct", "forbid", "minimum_distance", "minimum_gap", "prefer", "share", "slots",
    "title_distance", "total", "variety",
)  # fmt: skip


class Maker:
    """Draws rules in the form of files; now and then an odd value stands where a sound one should."""

    def __init__(self, rng: Rng, odd: float) -> None:
        self.rng, self.odd = rng, odd

    def one(self, choices: Any, odd: bool = False) -> Any:
        """One of these, or of the odd ones."""
        among = ODD if odd and self.rng.random() < self.odd else choices
        return among[int(self.rng.integers(len(among)))]

    def number(self) -> Any:
        """A limit."""
        return self.one([0, 1, 2, 3, 0.5, 1.5, 10], odd=True)

    def where(self, depth: int = 0) -> Any:
        """A condition, some within others."""
        if depth < 3 and self.rng.random() < 0.3:
            parts = [self.where(depth + 1) for _ in range(int(self.rng.integers(1, 3)))]
            return {"not": parts[0]} if self.rng.random() < 0.4 else {self.one(["all", "any"]): parts}
        tests: list[Written] = [
            {"field": "sale"},
            {"field": "brand", "equals": self.one(["x", "y"], odd=True)},
            {"field": "colour", "one_of": self.one([["r"], ["r", "g"]], odd=True)},
            {"field": "price", self.one(["at_least", "at_most"]): self.number()},
        ]
        return self.one(tests, odd=True)

    def rule(self, depth: int = 0) -> Written:
        """A rule of any kind."""
        kind = self.one(TYPES)
        field = self.one(FIELDS.get(kind, ["brand", "colour", "sale"]), odd=True)
        limit = {self.one(["at_least", "at_most"]): self.number()}
        settings: Written = {
            "allowed": {"matrix": self.one([[[[True]]]], odd=True)},
            "at_most": {"field": field, "m": self.number()},
            "count": {"where": self.where(), **limit},
            "distinct": {"field": field},
            "forbid": {
                "pairs": [[self.one(["i0", "i1", "i2"], odd=True) for _ in range(2)] for _ in range(2)]
            },
            "minimum_distance": {
                "field": field,
                "minimum": self.number(),
                "metric": self.one(["euclidean", "cosine"]),
            },
            "minimum_gap": {"field": field, "minimum": self.number()},
            "prefer": {"worth": self.number(), "once": self.one([True, False], odd=True)},
            "share": {"where": self.where(), self.one(["at_least", "at_most"]): self.number()},
            "slots": self.places(depth),
            "title_distance": {
                "minimum": self.number(),
                "metric": self.one(["ned", "levenshtein"], odd=True),
            },
            "total": {"field": field, **limit},
            "variety": {"field": field, "at_least": self.number()},
        }[kind]
        if kind == "prefer":
            settings["rule"] = self.rule(depth + 1) if depth < 2 else {"type": "distinct", "field": "brand"}
        if kind not in ("allowed", "forbid", "prefer") and self.rng.random() < 0.7:
            settings["missing"] = self.one(["error", "allow", "forbid"], odd=True)
        if settings and self.rng.random() < self.odd:
            settings[self.one(sorted(settings))] = self.one(ODD)
        return {"type": kind, **settings}

    def places(self, depth: int) -> Written:
        """The settings of a card with places."""
        said: Written = {
            "where": {self.one(["1", "2", 1], odd=False): self.where()},
            "fixed": {self.one(["1", 2]): self.one(["i0", "i1"], odd=True)},
            "weights": [self.number() for _ in range(int(self.rng.integers(0, 6)))],
            "scores": "by_place",
            "apart": self.one(
                ["brand", ["colour"], [self.rule(depth + 1)] if depth < 1 else "brand"], odd=True
            ),
            "rising": "price",
            "falling": "price",
        }
        return {name: value for name, value in said.items() if self.rng.random() < 0.3}

    def items(self, N: int) -> dict[str, list[Any]]:
        """Columns for all of them."""

        def column(calm: Callable[[int], Any]) -> list[Any]:
            odd = self.rng.random() < 3 * self.odd
            return [self.one(ODD) if odd and self.rng.random() < 0.3 else calm(n) for n in range(N)]

        return {
            "item_id": [f"i{n}" for n in range(N)],
            "brand": column(lambda n: "xyz"[n % 3]),
            "title": column(lambda n: f"title {n}"),
            "price": column(lambda n: [0.1, 0.2, 19.99, 5, 7][n % 5]),
            "sale": column(lambda n: bool(n % 2)),
            "vector": column(lambda n: [float(n), 1.0]),
            "colour": column(lambda n: None if n % 4 == 0 else "rgb"[n % 3]),
            "by_place": column(lambda n: [1.0, n / 2, 3.0, 0.5, 0.25]),
        }


def trials(seed: int, number: int) -> Iterator[tuple[Callable[..., str], tuple[Any, ...]]]:
    """Three of four are odd in some way."""
    for n in range(number):
        yield (nonsense, file, nonsense, sound)[n % 4], (seed, n)


def nonsense(seed: int, n: int) -> str:
    """A card of the right size, the same in any order, or one of exactk's own errors."""
    rng = np.random.default_rng([seed, n])
    maker = Maker(rng, SHARES[n // 4 % len(SHARES)])
    N = int(rng.integers(1, 13))
    K = min(N, int(rng.integers(1, 6)))
    scores = rng.normal(size=N).round(2) * maker.one([1.0, 1.0, 1e298])
    more: dict[str, Any] = {"explain": True, "relax": [maker.one(TYPES)], "n": 3}
    options = {name: value for name, value in more.items() if rng.random() < 0.2}
    order = rng.permutation(N)
    items = maker.items(N)
    shuffled = {name: [values[p] for p in order] for name, values in items.items()}
    try:
        rules = Constraints.from_dict({"rule": [maker.rule() for _ in range(int(rng.integers(1, 4)))]})
        card = _best(solve(scores, K, items=items, constraints=rules, time_limit=SECONDS, **options))
        other = _best(solve(scores[order], K, items=shuffled, constraints=rules, time_limit=SECONDS))
    except ExactKError as error:
        return "" if str(error) else "an error without a word"
    if len(set(card.items)) != K:
        return f"a card of another size: {card}"
    differ = set(card.items) != set(other.items) and not card.relaxed
    return (
        f"the order of candidates changed {card} into {other}"
        if differ and card.optimal and other.optimal
        else ""
    )


def _best(found: Any) -> Card:
    return found[0] if isinstance(found, tuple) else found  # type: ignore[no-any-return]


def file(seed: int, n: int) -> str:
    """Rules from a file, some of it torn or nested without end: rules, or an error that names the file."""
    rng = np.random.default_rng([seed, n])
    maker = Maker(rng, 0.05)
    text = json.dumps({"rule": [maker.rule() for _ in range(2)]})
    depth = int(rng.choice([1, 30, 300, 3000]))
    if rng.random() < 0.3:
        text = '{"rule": [{"type": "count", "at_least": 1, "where": ' + '{"not": ' * depth
        text += '"sale"' + "}" * depth + "}]}"
    content = text.encode("utf-8", "surrogatepass")
    if rng.random() < 0.4:
        at = int(rng.integers(len(content)))
        content = content[:at] + PIECES[int(rng.integers(len(PIECES)))] + content[at + int(rng.integers(3)) :]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "torn.json"
        path.write_bytes(content)
        try:
            load_rules(path)
        except ExactKError as error:
            return "" if "torn.json" in str(error) else f"the error does not name the file: {error}"
    return ""


def sound(seed: int, n: int) -> str:
    """A brief of five kinds of rules that plain counting can check."""
    rng = np.random.default_rng([seed, n])
    instance = brief_instance(int(rng.integers(6, 11)), int(rng.integers(2, 5)), bool(rng.integers(2)), n)
    items = {name: values[0].tolist() for name, values in instance.columns.items()}
    found = solve(
        instance.node,
        instance.card_size,
        instance.pair,
        constraints=instance.rules,
        items=items,
        infeasible="return",
    )
    best = max(_worths(instance), default=None)
    if best is None:
        return "" if isinstance(found, InfeasibleError) else f"a card where there is none: {found}"
    if not isinstance(found, Card) or not found.optimal or abs(found.value - best) > 1e-9 * (1 + abs(best)):
        return f"not the best card, worth {best}: {found}"
    return ""


def _worths(instance: BriefInstance) -> Iterator[float]:
    """What every valid card is worth, in its best order where places matter."""
    N, K = len(instance.node), instance.card_size
    for card in combinations(range(N), K):
        chosen = list(card)
        sums = [(int(row.coefficient[chosen].sum()), row.lower, row.upper) for row in instance.rows]
        if any(
            (low is not None and total < low) or (high is not None and total > high)
            for total, low, high in sums
        ):
            continue
        if any(len(set(values[chosen].tolist())) < least for values, least in instance.varieties):
            continue
        pairs = list(combinations(card, 2))
        worth = 0.0 if instance.pair is None else float(sum(instance.pair[i, j] for i, j in pairs))
        if instance.colour is not None:
            worth -= instance.clash * sum(bool(instance.colour[i] == instance.colour[j]) for i, j in pairs)
        if instance.slot_weight is None or instance.eligible is None:
            yield worth + float(instance.node[chosen].sum())
            continue
        weight = instance.slot_weight / FLAT_WEIGHT
        for placed in permutations(card):
            if all(instance.eligible[place, item] for place, item in enumerate(placed)):
                yield worth + float((weight * instance.node[list(placed)]).sum())
