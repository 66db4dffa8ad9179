"""The best card with its proof, and beside it what others would have shown for the same request.

Knows a scene; every card is worth what it is worth under the same value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from exactk.problem.deadline import ENDLESS, Deadline
from exactk.problem.greedy import naive_node_weight
from exactk.serving.studio.scene import Scene

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
    return [_shown(scene, method, scene.in_places(card)) for method, card in cards]


def _shown(scene: Scene, method: Method, positions: Sequence[int]) -> dict[str, Any]:
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
