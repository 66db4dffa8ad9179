"""`exactk.solve` with whatever a caller may hand over; its cards beside brute force.

Knows no files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np

from exactk.errors import ExactKError, InfeasibleError
from exactk.problem.rules.constraints import AtMost, Distinct, MinimumGap, TitleDistance
from exactk.problem.solving import Card, solve

NUMBERS: list[Any] = [
    0.0, 1.0, -1.0, 1e308, -1e308, 1.7e308, 1e300, 1e16, 5e-324, float("nan"), float("inf"), None, True, "1", "x",
    b"1", 1 + 2j, 10**400, 2**63, [1.0], (1.0, 2.0), {}, object(), np.float32(3), np.int64(7), np.datetime64("2020"),
]  # fmt: skip
WHOLES: list[Any] = [0, 1, 2, 3, -1, 10**12, 2**63, None, True, 1.5, "2", [1, 2], float("nan")]
IDS: list[Any] = [
    1,
    2,
    "1",
    "",
    None,
    1.5,
    True,
    (1, 2),
    [1],
    float("nan"),
    2**70,
    "x" * 10_000,
    b"b",
    "\ud800",
]
TITLES: list[Any] = ["", "a", "red shoe", "x" * 9_999, "x" * 10_001, None, 3, "\ud800", "é" * 50]


def trials(seed: int, number: int) -> Iterator[tuple[Callable[..., str], tuple[Any, ...]]]:
    """Half are nonsense, half are hard but sound."""
    for n in range(number):
        yield (nonsense if n % 2 else sound), (seed, n)


def nonsense(seed: int, n: int) -> str:
    """A card, or one of exactk's own errors."""
    rng = np.random.default_rng([seed, n])

    def one(choices: list[Any]) -> Any:
        return choices[int(rng.integers(len(choices)))]

    def some(choices: list[Any], N: int, calm: Any) -> list[Any]:
        return [one(choices) if rng.random() < 0.15 else calm(p) for p in range(N)]

    N = int(rng.integers(1, 12))
    scores: Any = some(NUMBERS, N, lambda p: float(p)) if rng.random() < 0.9 else one([None, 5, "x", [], {}])
    items = {
        "item_id": some(IDS, N, lambda p: p),
        "title": some(TITLES, N, lambda p: f"title {p}"),
        "brand": some(IDS, N, lambda p: p % 3),
        "price": some(NUMBERS, N, lambda p: float(p)),
    }
    rules = [Distinct("brand"), TitleDistance(0.5), AtMost("brand", 2), MinimumGap("price", 1.0)]
    more: dict[str, Any] = {
        "pair_scores": [some(NUMBERS, N, lambda _: 0.0) for _ in range(N)],
        "allowed": [some([True, 1, 0, 2, None, "x"], N, lambda _: True) for _ in range(N)],
        "include": one([[1], [[1]], 5, "a", {1: 2}, [None], [99]]),
        "exclude": one([[2], [[1]], 5, "a", {1: 2}, [None], [99]]),
        "relax": one([["distinct"], "distinct", 5, [None]]),
        "time_limit": one([1e-9, 0.01, -1, float("nan"), "x", True]),
        "n": one(WHOLES),
        "explain": True,
        "items": items,
    }
    options = {name: value for name, value in more.items() if rng.random() < 0.3}
    if "items" in options:
        options["constraints"] = [rule for rule in rules if rng.random() < 0.4]
    options.setdefault("time_limit", 2.0)
    size = one(WHOLES) if rng.random() < 0.3 else min(N, 3)
    try:
        solve(scores, size, infeasible="return" if rng.random() < 0.5 else "raise", **options)
    except ExactKError as error:
        return "" if str(error) else "an error without a word"
    return ""


def sound(seed: int, n: int) -> str:
    """A request that brute force can check: ties, large and small numbers, rules, pins, another order."""
    rng = np.random.default_rng([seed, n])
    N, K = int(rng.integers(1, 10)), int(rng.integers(1, 6))
    K = min(N, K)
    scale = float(rng.choice([1.0, 1e-9, 1e150, 1e295]))
    scores = rng.choice(rng.normal(size=int(rng.integers(1, 6))).round(2), N) * scale
    upper = np.triu(rng.choice([0.0, 0.5, -1.0], (N, N)), 1) * scale
    pairs = upper + upper.T if rng.random() < 0.5 else None
    allowed = np.triu(rng.random((N, N)) < rng.choice([0.5, 0.9, 1.0]), 1)
    allowed = allowed | allowed.T
    include = [f"i{int(rng.integers(N))}"] if rng.random() < 0.2 else []
    ids = np.array([f"i{p}" for p in range(N)], object)

    def ask(order: np.ndarray) -> Any:
        return solve(
            scores[order], K, None if pairs is None else pairs[order][:, order], allowed=allowed[order][:, order],
            items={"item_id": ids[order].tolist()}, include=include, infeasible="return",
        )  # fmt: skip

    straight, shuffled = ask(np.arange(N)), ask(rng.permutation(N))
    valid = [
        card
        for card in combinations(range(N), K)
        if all(allowed[i, j] for i, j in combinations(card, 2)) and set(include) <= {ids[p] for p in card}
    ]
    if not valid:
        return "" if isinstance(straight, InfeasibleError) else f"a card where there is none: {straight}"
    if not isinstance(straight, Card) or not isinstance(shuffled, Card):
        return f"no card where there is one: {straight}"
    worth = {card: _worth(card, scores, pairs) for card in valid}
    best = max(worth.values())
    rounding = Fraction(scale) * Fraction(1, 10**12)
    if straight.positions not in worth:
        return f"an invalid card: {straight}"
    if worth[straight.positions] < best - rounding or not straight.optimal:
        return f"not the best card: {straight}, which is worth {float(best)}"
    if set(straight.items) != set(shuffled.items) or straight.value != shuffled.value:
        return f"the order of candidates changed {straight} into {shuffled}"
    return ""


def _worth(card: tuple[int, ...], scores: np.ndarray, pairs: np.ndarray | None) -> Fraction:
    """Exactly."""
    total = sum((Fraction(float(scores[p])) for p in card), Fraction(0))
    if pairs is not None:
        total += sum((Fraction(float(pairs[i, j])) for i, j in combinations(card, 2)), Fraction(0))
    return total
