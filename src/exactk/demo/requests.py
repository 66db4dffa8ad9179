"""A handful of embedded requests, solved three ways: top-K, the paper's Algorithm 1, and exactly.

Knows no printing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np

from exactk.problem.graph import is_valid_card
from exactk.problem.greedy import naive_node_weight
from exactk.problem.rules.constraints import Constraints
from exactk.problem.rules.explain import card_value
from exactk.problem.solving import Card, solve
from exactk.problem.solving_file import ScoredRequest, pair_matrix


@dataclass(frozen=True)
class MethodCard:
    """A card as one method would show it; invalid where it breaks a rule or is not full."""

    method: str
    titles: tuple[str, ...]
    value: float
    valid: bool


@dataclass(frozen=True)
class Example:
    """One request, what it teaches, and the cards side by side, ours last."""

    name: str
    lesson: str
    rules: tuple[str, ...]
    shown: tuple[MethodCard, ...]
    best: Card


def examples() -> list[Example]:
    """Every embedded request, solved."""
    text = files("exactk.demo").joinpath("requests.json").read_text(encoding="utf-8")
    return [solve_example(request) for request in json.loads(text)]


def solve_example(request: dict[str, Any]) -> Example:
    """Top-K ignores the rules, Algorithm 1 the future, both the pairs; the last card is proven best."""
    items: list[dict[str, Any]] = request["items"]
    columns = {name: [item[name] for item in items] for name in items[0]}
    rules = Constraints.from_dict({"rule": request["rules"]})
    pairs = pair_matrix(
        ScoredRequest(None, columns, request["name"], pair_scores=request.get("pair_scores", ()))
    )
    scores = np.array(columns.pop("score"), np.float64)
    best = solve(scores, request["k"], pairs, constraints=rules, items=columns, explain=True)
    held = {name: np.array([column], object) for name, column in columns.items()}
    requests = rules.requests(held, request["k"])

    def shown(method: str, card: Sequence[int]) -> MethodCard:
        return MethodCard(
            method,
            tuple(columns["title"][p] for p in card),
            card_value(list(card), scores, pairs),
            is_valid_card(requests, 0, np.array(card, np.int64)),
        )

    top = np.argsort(-scores, kind="stable")[: request["k"]].tolist()
    greedy = [p for p in naive_node_weight(requests, scores[None])[0].tolist() if p >= 0]
    cards = (shown("top-K", top), shown("Algorithm 1", greedy), shown("exactk", best.positions))
    return Example(request["name"], request["lesson"], tuple(rules.names), cards, best)
