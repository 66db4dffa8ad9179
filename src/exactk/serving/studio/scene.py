"""A request ready to be looked at: items, weights, switched-on rules; the best card, and what others would have shown.

Knows the exact engine, the rules and the Recommender's parts, no route. Every card is worth what it is worth under the
same value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float64

from exactk.data.requests import Request
from exactk.engine import log_softmax
from exactk.engine.card_values import LearnedValue, SummedValue
from exactk.engine.decide import Calibration, PolicyDecider
from exactk.problem.batch import Batch
from exactk.problem.brief import card_worth
from exactk.problem.deadline import ENDLESS, Deadline
from exactk.problem.exact.cliques import Solutions, arranged, best, naive_node_weight
from exactk.problem.given import GivenRequests
from exactk.problem.graph import Requests, is_valid_card
from exactk.problem.rules.constraints import Constraints
from exactk.problem.rules.sheet import Demand, RuleSheet
from exactk.problem.solving import broken_preferences
from exactk.serving.http.wire import columns_of
from exactk.serving.model import Arm
from exactk.serving.model.answering import Answer, Answerer, Question


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


def weights_by(arm: Arm, request: Request) -> Weights:
    """One request as the model sees it; an excluded item, which it never sees, weighs as little as any.

    A value that is a sum over items and pairs gives its own numbers. Any other model gives the first step's
    log-probabilities of its policy, and how they change once some item is chosen.
    """
    fitted, decider = arm.loaded.recommender.fitted, arm.loaded.recommender.decider
    batch = fitted.builder.batch([request])
    seen = batch.present[0]
    attention = None
    value, calibration = decider.value, fitted.calibration
    if isinstance(decider, PolicyDecider) and fitted.config.policy.encoder_layers:
        attention = decider.decoder.attention(batch)[0, -1].mean(0).tolist()  # last layer, heads together
    judge = None if value is None else partial(judged, value, batch, calibration)
    if isinstance(value, SummedValue):
        values, whole = value.values(batch), value.only_pairs
        bias, pairs = float(values.bias[0]), np.where(seen[:, None] & seen, values.pair[0], 0.0)
        return Weights(
            np.where(seen, values.node[0], values.node[0, seen].min()),
            pairs if pairs.any() else None,  # of a log whose pairs say nothing, none is shown
            attention,
            # Preferences cost in the model's own units: the sum is weighed as it is, and calibrated to be shown.
            link=(lambda weight: calibration.one(weight + bias)) if whole else None,
            judge=None if whole else judge,
            proof="proven best under this model" if whole else "proven best by scores and pairs alone",
        )
    assert isinstance(decider, PolicyDecider)
    first = log_softmax(decider.decoder.scores(batch)[0].astype(np.float64))
    first = np.where(seen, first, first[seen].min())
    return Weights(
        first, None, attention, _influence(decider, batch, first), judge=judge,
        proof="proven best by the policy's first step alone",
    )  # fmt: skip


def judged(value: LearnedValue, batch: Batch, calibration: Calibration, positions: Sequence[int]) -> float:
    """The click probability of a card by any model of cards."""
    return calibration.one(float(value.logits(batch, np.array([[list(positions)]]))[0, 0]))


def _influence(decider: PolicyDecider, batch: Batch, first: Float64[np.ndarray, "N"]) -> list[list[float]]:
    """By how much choosing one of two items raises the log-probability of the other, the mean of both ways."""
    N = len(first)
    alike = batch.rows(np.zeros(N, np.int64))  # row by row another item was chosen before
    second = decider.decoder.scores(alike, np.arange(N)[:, None]).astype(np.float64)
    np.fill_diagonal(second, -np.inf)  # nobody is chosen twice
    gain = log_softmax(second) - first
    np.fill_diagonal(gain, 0.0)
    return list(((gain + gain.T) / 2).tolist())


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
        (ordered,) = arranged(self.requests, np.array([positions]), self.weights.scores[None])
        return list(ordered.tolist())

    def is_valid(self, positions: Sequence[int]) -> bool:
        """Whether these are a card that keeps everything asked for."""
        return is_valid_card(self.requests, 0, np.array(positions, np.int64))

    def rules_broken(self, positions: Sequence[int]) -> list[str]:
        """The rules that a card of any size breaks, each asked alone."""
        card = np.array(positions, np.int64)
        alone = (self.sheet.requests([Demand("rule", r)], len(card)) for r in range(len(self.sheet.names)))
        named = zip(self.sheet.names, alone, strict=True)
        return [name for name, asked in named if not is_valid_card(asked, 0, card)]

    def preferences_broken(self, positions: Sequence[int]) -> list[dict[str, Any]]:
        """The preferences that a card breaks, and what that costs."""
        found = broken_preferences(self.constraints, self.requests.brief, 0, positions)
        return [broken._asdict() for broken in found]


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
    asked = GivenRequests(columns, k, None, include, exclude)
    sheet = RuleSheet.of(constraints, asked, deadline)
    return Scene(items, weights, constraints, constraints.requests(asked, deadline), sheet)


MMR_BALANCE = 0.7  # weight of relevance against likeness to what is already chosen


class Method(NamedTuple):
    """How somebody makes cards, in words."""

    key: str
    name: str
    note: str


OURS = Method("exact", "exactk", "exact search over the whole card")
POLICY = Method("policy", "The policy", "as the trained network writes it")
TOP = Method("top", "Top-K", "the highest scores, whatever the rules")
GREEDY = Method("greedy", "Algorithm 1", "best first, skip what clashes")
MMR = Method("mmr", "MMR", "score against likeness, one by one")
SOLVER = Method("solver", "Score + solver", "exact, but blind to pairs")


def best_card(scene: Scene, deadline: Deadline = ENDLESS) -> dict[str, Any] | None:
    """The exact card with its proof; None where no valid card exists, or none was found in half of the time."""
    started = perf_counter()
    solution = scene.best(scene.requests, deadline.part(0.4).limit())
    if not solution.found[0]:
        return None
    positions, optimal = solution.card[0].tolist(), bool(solution.optimal[0])
    return {
        "positions": positions,
        "value": scene.value(positions),
        "weight": float(solution.weight[0]),
        "bound": None if scene.weights.judge else scene.worth(float(solution.bound[0])),
        "optimal": optimal,
        "proof": scene.weights.proof if optimal else "time ran out: there may be a better one",
        "broken": scene.preferences_broken(positions),
        "in_places": scene.has_places,
        "ms": round((perf_counter() - started) * 1000, 3),
    }


def policy_card(arm: Arm, request: Request, constraints: Constraints, ends: float) -> list[int] | None:
    """The card the model's policy writes for this request, as positions; None where it has no policy."""
    if arm.loaded.recommender.fitted.weights.policy is None:
        return None
    try:
        (answer,) = Answerer(0)([Question(arm, request, constraints, (), False, ends)])
    except Exception:  # the cards of the other methods are shown all the same
        return None
    return list(answer.card.positions) if isinstance(answer, Answer) else None


def methods(
    scene: Scene,
    best: Mapping[str, Any] | None,
    policy: Sequence[int] | None = None,
    deadline: Deadline = ENDLESS,
) -> list[dict[str, Any]]:
    """The card of each; the policy's after ours."""
    scores, present = scene.weights.scores, scene.requests.present[0]
    ranked = [p for p in np.argsort(-scores, kind="stable").tolist() if present[p]]
    stuck = [p for p in naive_node_weight(scene.requests, scores[None])[0].tolist() if p >= 0]
    cards: list[tuple[Method, Sequence[int]]] = [(OURS, best["positions"] if best else [])]
    if policy is not None:
        cards.append((POLICY, policy))
    cards += [(TOP, ranked[: scene.card_size]), (GREEDY, stuck), (MMR, mmr(scene))]
    if scene.weights.pairs is not None:
        alone = scene.best(scene.requests, deadline.part(0.2).limit(), with_pairs=False)
        cards.append((SOLVER, alone.card[0].tolist() if alone.found[0] else []))
    return [_card_shown(scene, method, scene.in_places(card)) for method, card in cards]


def _card_shown(scene: Scene, method: Method, positions: Sequence[int]) -> dict[str, Any]:
    missing = scene.card_size - len(positions)
    valid = scene.is_valid(positions)
    broken = [] if missing else scene.rules_broken(positions)
    note = method.note
    if missing and method is not OURS:
        note = f"{note}: stuck after {len(positions)} of {scene.card_size}"
    elif broken:
        more = f" and {len(broken) - 1} more" if len(broken) > 1 else ""
        note = f"{note}: breaks {broken[0]}{more}"
    elif not valid and not missing:
        note = f"{note}: not what you said must or must never be on it"
    return {
        "key": method.key,
        "name": method.name,
        "positions": list(positions),
        "value": scene.value(positions) if positions else None,
        "valid": valid,
        "clashes": [[i, j] for i, j in combinations(positions, 2) if scene.forbidden[i, j]],
        "rules_broken": broken,
        "broken": scene.preferences_broken(positions),
        "missing": missing,
        "note": note,
    }


def mmr(scene: Scene) -> list[int]:
    """Maximal marginal relevance: likeness is the share of the rules on pairs that keep two items apart."""
    N, apart = len(scene.items), [~allowed for allowed in scene.sheet.allowed if not allowed.all()]
    likeness = np.mean(apart, 0) if apart else np.zeros((N, N))
    scores = scene.weights.scores
    low, high = scores.min(), scores.max()
    relevance = (scores - low) / (high - low or 1.0)
    chosen: list[int] = []
    open_ = scene.requests.present[0].copy()
    while len(chosen) < scene.card_size and open_.any():
        nearest = likeness[:, chosen].max(1) if chosen else np.zeros(N)
        marginal = MMR_BALANCE * relevance - (1 - MMR_BALANCE) * nearest
        pick = int(np.where(open_, marginal, -np.inf).argmax())
        chosen.append(pick)
        open_[pick] = False
    return chosen
