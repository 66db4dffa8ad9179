"""What clients send in the mixed load of `exactk bench torture`: plain requests, and bodies that broke something once.

Knows what a right answer to a plain request is, no connection.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from exactk_lab.bench.service.serve import SEED, K, card_bodies, solve_bodies

USUAL_MS = 100.0  # the service's own budget
# What a page of a shop asks for, and what is hard about it: three rules at a time, on 512 candidates.
RULES: list[dict[str, Any]] = [
    {"type": "at_most", "field": "brand", "m": 2},
    {"type": "count", "where": "sale", "at_least": 4},
    {"type": "total", "field": "price", "at_most": 350},
    {"type": "variety", "field": "colour", "at_least": 5},
    {"type": "slots", "where": {"1": "sale"}, "weights": [round(1 / (place + 1), 3) for place in range(10)]},
    {"type": "slots", "apart": "brand", "rising": "price"},
    {"type": "prefer", "worth": 0.5, "rule": {"type": "distinct", "field": "colour"}},
    {"type": "minimum_distance", "field": "vector", "minimum": 4.5},
    {"type": "distinct", "field": "colour"},
]
BRIEFS = list(combinations(RULES, 3))[::4]
NONSENSE: list[dict[str, Any]] = [
    {"type": "total", "field": "price", "at_most": 1e308},
    {"type": "count", "where": "sale", "exactly": 2**52},
    {"type": "prefer", "worth": 1e300, "rule": {"type": "distinct", "field": "colour"}},
]


@dataclass(frozen=True)
class Sent:
    """A request to be sent: what kind it is of, where it goes, its budget, and whether an answer to it is right."""

    kind: str
    path: str
    body: bytes
    budget_ms: float = USUAL_MS
    is_right: Callable[[int, Any], bool] = lambda status, _: 200 <= status < 500


def good_requests() -> list[Sent]:
    """What a plain client asks; an answer is a valid card or, beside too many others, a refusal that says so."""
    asked = []
    for body in card_bodies(64):
        candidates = set(json.loads(body)["candidates"])
        asked.append(Sent("good cards", "/v1/cards", body.encode(), is_right=_is_card(candidates, {})))
    for body in solve_bodies(64):
        items = {each["item_id"]: each["category"] for each in json.loads(body)["items"]}
        asked.append(Sent("good solve", "/v1/solve", body.encode(), is_right=_is_card(set(items), items)))
    return asked


def _is_card(candidates: set[Any], categories: dict[Any, str]) -> Callable[[int, Any], bool]:
    def is_right(status: int, answer: Any) -> bool:
        card = answer.get("card", []) if isinstance(answer, dict) else []
        distinct = not categories or len({categories.get(item) for item in card}) == K
        return status == 200 and len(set(card)) == K and set(card) <= candidates and distinct

    return is_right


def a_shelf(draws: np.random.Generator) -> list[dict[str, Any]]:
    """As many items as a request may hold, with what the briefs read."""
    return [
        {
            "item_id": n,
            "brand": int(draws.integers(100)),
            "colour": int(draws.integers(6)),
            "sale": bool(draws.random() < 0.3),
            "price": float(draws.integers(10, 101)) + 0.99,
            "vector": draws.normal(size=16).round(3).tolist(),
        }
        for n in range(512)
    ]


def hostile_requests() -> list[Sent]:
    """Bodies that have broken something once, or could."""
    draws = np.random.default_rng(SEED)
    titles = ["".join(draws.choice(list("abcdefgh"), 1000)) for _ in range(512)]
    apart = [{"type": "title_distance", "minimum": 0.6}]
    noise = draws.normal(size=(300, 300)).round(2)
    pairs = (np.triu(noise, 1) + np.triu(noise, 1).T).tolist()
    first, second = np.nonzero(np.triu(draws.random((400, 400)) < 0.15, 1))
    forbidden = [{"type": "forbid", "pairs": np.stack([first, second], 1).tolist()}]
    ids = [f"i{n}" for n in range(12)]
    shelf, worth = a_shelf(draws), draws.normal(size=512).round(2).tolist()

    def solve(kind: str, budget_ms: float = USUAL_MS, **body: Any) -> Sent:
        return Sent(kind, "/v1/solve", _body({"budget_ms": budget_ms, **body}), budget_ms)

    def cards(kind: str, features: Any) -> Sent:
        items = [{"item_id": name, "features": features} for name in ids]
        return Sent(kind, "/v1/cards", _body({"user": "u1", "candidates": items}))

    return [
        solve("titles within the limits", 300, k=6, scores=[1] * 512, constraints=apart,
              items=[{"item_id": n, "title": title} for n, title in enumerate(titles)]),
        solve("titles of 10,000 letters", k=3, scores=[1] * 64, constraints=apart,
              items=[{"item_id": n, "title": "a" * n + "bc" * 5000} for n in range(64)]),
        solve("no card of 38", 400, k=38, scores=[1] * 400, constraints=forbidden),
        solve("no card of 38, relaxed", 400, k=38, scores=[1] * 400, constraints=forbidden, relax=["forbid"]),
        solve("hard pairs", 5000, k=20, scores=[0] * 300, pair_scores=pairs),
        solve("hard pairs explained", 400, k=20, scores=[0] * 300, pair_scores=pairs, explain=True),
        solve("overflow", k=3, scores=[1e308] * 3),
        *(solve("briefs", 200, k=10, scores=worth, items=shelf, constraints=list(rules)) for rules in BRIEFS),
        solve("nonsense briefs", k=3, scores=[1] * 8, items=shelf[:8], constraints=list(NONSENSE)),
        solve("totals that overflow", k=5, scores=[1] * 8, items=[{"item_id": n, "p": 1e308} for n in range(8)],
              constraints=[{"type": "total", "field": "p", "at_least": 1}]),
        solve("ties", k=10, scores=draws.integers(0, 3, 60).tolist()),
        *(cards("features", each) for each in ([10**400, 1], [True], ["a"], [1e30] * 8, [[1]], "x", [None] * 8)),
        Sent("view", "/v1/studio/view", _body({"k": 20, "items": [{"item_id": n} for n in range(300)],
             "scores": [0] * 300, "pair_scores": pairs, "budget_ms": 400}), 400),
        *(Sent("no body at all", path, raw) for path in ("/v1/solve", "/v1/cards", "/v1/feedback")
          for raw in (b"", b"\x00", b"[" * 100_000, b"[" * 100_000 + b"]" * 100_000, '{"k":1}'.encode("utf-16"),
                      b'{"k":1,"scores":[' + b"9" * 5000 + b"]}", b'{"k":NaN}', b'{"user":[1],"candidates":[[1]]}')),
        Sent("a million lists", "/v1/solve",
             b'{"k":1,"scores":[1],"items":[{"item_id":1,"x":[' + b"[]," * 600_000 + b"[]]}]}"),
        Sent("feedback for nobody", "/v1/feedback", _body({"request_id": "x" * 500, "clicked": True})),
    ]  # fmt: skip


def _body(value: Any) -> bytes:
    return json.dumps(value).encode()
