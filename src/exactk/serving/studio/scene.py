"""A request ready to be looked at: its items, weights and switched-on rules, what cards are worth, which are valid.

Knows the exact engine and the rules, no route and no words for the page.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float64

from exactk.problem.brief import card_worth
from exactk.problem.deadline import ENDLESS, Deadline
from exactk.problem.exact.cliques import Solutions, arranged, best
from exactk.problem.graph import Requests, is_valid_card
from exactk.problem.rules.constraints import Constraints
from exactk.problem.rules.sheet import Demand, RuleSheet
from exactk.problem.solving import broken_preferences
from exactk.serving.http.wire import columns_of


class Weights(NamedTuple):
    """How one request is weighed. `influence` is shown and never added up: what a policy makes of pairs.

    `link` makes of a sum of scores and pairs what the API calls the value of a card, where the sum is all there is to
    it; `judge` asks the model for that of a card, where it is not. `proof` says what an optimum of the sums is.
    """

    scores: Float64[np.ndarray, "N"]
    pairs: Float64[np.ndarray, "N N"] | None = None
    attention: list[list[float]] | None = None
    influence: list[list[float]] | None = None
    link: Callable[[float], float] | None = None
    judge: Callable[[Sequence[int]], float] | None = None
    proof: str = "proven best for these scores"


@dataclass(frozen=True)
class Scene:
    """One request under the rules that are on; `sheet` holds each of them apart."""

    items: Sequence[dict[str, Any]]
    weights: Weights
    constraints: Constraints
    requests: Requests
    sheet: RuleSheet

    @property
    def card_size(self) -> int:
        """Items on the card."""
        return int(self.requests.card_size[0])

    @property
    def has_places(self) -> bool:
        """Whether a card stands in an order of places."""
        return self.requests.brief is not None and self.requests.brief.has_slots

    @property
    def forbidden(self) -> Bool[np.ndarray, "N N"]:
        """Pairs that some rule forbids; wishes do not count: an excluded item conflicts with nobody."""
        return np.asarray(~self.sheet.allowed.all(0))

    def value(self, positions: Sequence[int]) -> float | None:
        """What a set of items is worth, valid or not; as `/v1/cards` says it where a model scores."""
        if self.weights.judge is not None:
            return self.weights.judge(positions) if len(positions) == self.card_size else None
        return self.worth(self.weight(positions))

    def worth(self, weight: float) -> float:
        """What a sum of weights is worth."""
        link = self.weights.link
        return weight if link is None or not math.isfinite(weight) else link(weight)

    def weight(self, positions: Sequence[int]) -> float:
        """Scores, in their places where there are any, and pair scores added up, less what broken preferences cost."""
        return card_worth(self.requests.brief, 0, positions, self.weights.scores, self.weights.pairs)

    def best(self, requests: Requests, time_limit: float | None, with_pairs: bool = True) -> Solutions:
        """The exact engine on variants of this request, so many seconds for each."""
        B, scores, pairs = len(requests), self.weights.scores, self.weights.pairs
        nodes = np.broadcast_to(scores, (B, len(scores))).copy()
        if not with_pairs or pairs is None:
            return best(requests, nodes, None, time_limit=time_limit)
        return best(requests, nodes, np.broadcast_to(pairs, (B, *pairs.shape)).copy(), time_limit=time_limit)

    def in_places(self, positions: Sequence[int]) -> list[int]:
        """A whole card in its best order of places, where cards have places and it fits them."""
        if not self.has_places or len(positions) != self.card_size:
            return list(positions)
        ordered: list[int] = arranged(self.requests, np.array([positions]), self.weights.scores[None])[
            0
        ].tolist()
        return ordered

    def is_valid(self, positions: Sequence[int]) -> bool:
        """Whether these are a card that keeps everything asked for."""
        return is_valid_card(self.requests, 0, np.array(positions, np.int64))

    def rules_broken(self, positions: Sequence[int]) -> list[str]:
        """The rules that a card of any size breaks, each asked alone."""
        card = np.array(positions, np.int64)
        alone = (self.sheet.requests([Demand("rule", r)], len(card)) for r in range(len(self.sheet.names)))
        return [
            name
            for name, asked in zip(self.sheet.names, alone, strict=True)
            if not is_valid_card(asked, 0, card)
        ]

    def preferences_broken(self, positions: Sequence[int]) -> list[dict[str, Any]]:
        """The preferences that a card breaks, and what that costs."""
        return [broken._asdict() for broken in broken_preferences(self.constraints, self.requests, positions)]


def scene_of(
    items: Sequence[dict[str, Any]],
    weights: Weights,
    constraints: Constraints,
    k: int,
    wishes: tuple[Sequence[Any], Sequence[Any]] = ((), ()),
    deadline: Deadline = ENDLESS,
) -> Scene:
    """Evaluate the rules once together, and each on its own, so that the page can say which rule forbids what.

    `wishes` are the ids that must be on the card, and those that must not.
    """
    columns = columns_of(items, constraints.fields)
    include, exclude = ([list(ids)] for ids in wishes)
    requests = constraints.requests(columns, k, include=include, exclude=exclude, deadline=deadline)
    present = np.ones((1, len(items)), bool)
    sheet = RuleSheet.of(constraints, columns, k, present, include, exclude, deadline=deadline)
    return Scene(items, weights, constraints, requests, sheet)
