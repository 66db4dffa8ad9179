"""Everything the page shows about one request: its columns and rules, graph, cards of several methods, reasons.

Knows who works out each part, and how much of the time each may take; values are sums of scores and pair scores of
the chosen items, less what broken preferences cost.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from exactk.errors import InputError
from exactk.problem.deadline import Deadline
from exactk.problem.rules.explain import infeasible_error
from exactk.serving.http.problems import problem_of
from exactk.serving.http.wire import constraints_of
from exactk.serving.model.arms import Arm
from exactk.serving.routes.solve import weights_of
from exactk.serving.studio.columns import columns_told
from exactk.serving.studio.methods import best_card, methods
from exactk.serving.studio.reasons import reasons
from exactk.serving.studio.rules import rule_states
from exactk.serving.studio.scene import Scene, Weights, scene_of
from exactk.serving.studio.schemas import ViewRequest
from exactk.serving.studio.weighing import policy_card, request_of, weights


def view(champion: Arm | None, asked: ViewRequest, ends: float) -> dict[str, Any]:
    """All of it, by the time it ends; `unfinished` names the parts that there was not enough time for."""
    deadline = Deadline(ends).part(0.9)
    model = champion if asked.scored_by == "model" else None
    on = constraints_of([switch.rule for switch in asked.constraints if switch.on])
    k = max(min(asked.k, len(asked.items) - len(asked.exclude)), 1)
    request = request_of(asked, k)
    weighed = weights(model, request) if model is not None else _given(asked)
    scene = scene_of(asked.items, weighed, on, k, (asked.include, asked.exclude), deadline)
    best = best_card(scene, deadline)
    policy = None
    if best is not None and model is not None:
        policy = policy_card(model, request, on, deadline.part(0.3).ends)
    rows = methods(scene, best, policy, deadline)
    problem = None if best is not None else _problem(scene, deadline.part(0.5))
    rules, all_costed = rule_states(scene, asked.constraints, best, deadline.part(0.4))
    why, all_said = reasons(scene, best, deadline)
    late = {
        "best": best is not None and not best["optimal"],
        "problem": problem is not None and "unfinished" in problem,
        "rules": best is not None and not all_costed,
        "why": best is not None and not all_said,
    }
    builder = None if model is None else model.loaded.recommender.fitted.builder
    return {
        "items": [_shown(item, model is not None) for item in asked.items],
        "scores": weighed.scores.tolist(),
        "share": _share(weighed.scores),
        "pair_scores": None if weighed.pairs is None else weighed.pairs.tolist(),
        **columns_told(asked, on, builder, request),
        "rules": rules,
        "conflicts": np.argwhere(np.triu(scene.forbidden, 1)).tolist(),
        "excluded": np.flatnonzero(~scene.requests.present[0]).tolist(),
        "best": best,
        "problem": problem,
        "methods": rows,
        "why": why,
        "unfinished": [part for part, lacks in late.items() if lacks],
        "attention": weighed.attention,
        "influence": weighed.influence,
    }


def _shown(item: dict[str, Any], score_came_along: bool) -> dict[str, Any]:
    """What the page shows of an item: text only, short; its score apart, where that is what weighs it."""
    apart = {"item_id", "title", "category"} | (set() if score_came_along else {"score"})
    rest = {
        name: str(value)[:80]
        for name, value in item.items()
        if name not in apart and isinstance(value, str | int | float | bool)
    }
    return {
        "item_id": item["item_id"],
        "title": str(item.get("title") or item["item_id"])[:120],
        "category": str(item.get("category") or "")[:60],
        "attributes": rest,
    }


def _share(scores: np.ndarray) -> list[float]:
    """How long the bar of each score is."""
    span = float(scores.max() - scores.min()) or 1.0
    shares: list[float] = (0.08 + 0.92 * (scores - scores.min()) / span).tolist()
    return shares


def _given(asked: ViewRequest) -> Weights:
    """Scores and pair scores as they came."""
    if asked.scored_by == "model":
        raise InputError("there is no model here to score with")
    N, given = len(asked.items), asked.scores
    if given is None:
        given = [item.get("score", 0.0) for item in asked.items]
        if not all(_is_score(score) for score in given):
            raise InputError("each item needs a number as its score, or the request a list of scores")
        given = [float(score) for score in given]
    if len(given) != N:
        raise InputError(f"there are {N} items and {len(given)} scores; each item needs one")
    return Weights(*weights_of(given, asked.pair_scores))


def _is_score(value: Any) -> bool:
    return isinstance(value, int | float) and abs(value) < 1e15


def _problem(scene: Scene, deadline: Deadline) -> dict[str, Any]:
    """What blocks the request, in the words of `/v1/solve`."""
    if scene.sheet.feasible(scene.sheet.pieces(), deadline.part(0.5)) is False:
        return {"blocking": []} | problem_of(infeasible_error(scene.sheet, deadline=deadline))
    return {"title": "No valid card was found", "detail": "the search ran out of time", "blocking": [],
            "unfinished": ["search"]}  # fmt: skip
