"""`POST /v1/solve`: scores and rules in, the proven best card out. No model.

Knows `exactk.solve`. A plain request goes straight to the engine; one that asks for reasons or relaxation, or that has
no card, goes the full way. Small ones are answered on the spot, large ones in a thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from exactk.errors import InfeasibleError, InputError
from exactk.problem.exact import cliques
from exactk.problem.rules.constraints import Constraints
from exactk.problem.solving import Card, solve
from exactk.serving.http.wire import (
    Clock,
    as_json,
    as_response,
    check_size,
    columns_of,
    constraints_of,
    described,
    frame_of,
)
from exactk.serving.routes.schemas import SolveAnswer, SolveRequest
from exactk.serving.service import Service

router = APIRouter()

# Below this the search takes some hundred microseconds at most: less than a trip to a thread and back.
SMALL_CANDIDATES = 64
SMALL_CARD = 6


@router.post(
    "/v1/solve",
    summary="The best valid card for given scores",
    **described(SolveRequest, SolveAnswer, 401, 408, 409, 413, 422),
)
async def solve_card(request: Request) -> Response:
    """Exactly k items, every pair allowed by the rules, of the largest value; with proof."""
    return as_response(await solution(request.app.state.service, await request.body()))


async def solution(service: Service, body: bytes) -> bytes:
    """The same, from the bytes of the body."""
    clock = Clock()
    asked = SolveRequest.model_validate_json(body)
    check_size(len(asked.scores), service.settings.max_candidates, "candidates")
    small = len(asked.scores) <= SMALL_CANDIDATES and asked.k <= SMALL_CARD and not asked.explain
    budget = service.budget_seconds(asked.budget_ms)
    try:
        card = solved(asked, budget) if small else await run_in_threadpool(solved, asked, budget)
    except InfeasibleError:
        service.metrics.infeasible.inc()
        raise
    told = card.as_dict()
    return as_json({"card": told.pop("items"), "reasons": None, **told, "ms": clock.ms()})


def solved(asked: SolveRequest, budget: float) -> Card:
    """The card of one checked body."""
    scores, pairs = weights_of(asked.scores, asked.pair_scores)
    items = asked.items if asked.items is not None else [{"item_id": place} for place in range(len(scores))]
    if len(items) != len(scores):
        raise InputError(f"there are {len(items)} items and {len(scores)} scores; each item needs one")
    constraints = constraints_of(asked.constraints)
    if not asked.relax and not asked.explain:
        card = _straight(asked, items, scores, pairs, constraints, budget)
        if card is not None:
            return card
    found: Card = solve(
        scores,
        asked.k,
        pairs,
        constraints=constraints,
        items=None if asked.items is None else frame_of(items, constraints.fields),
        include=asked.include,
        exclude=asked.exclude,
        relax=asked.relax or (),
        explain=asked.explain,
        time_limit=budget,
    )
    return found


def _straight(
    asked: SolveRequest,
    items: Sequence[Mapping[str, Any]],
    scores: np.ndarray,
    pairs: np.ndarray | None,
    constraints: Constraints,
    budget: float,
) -> Card | None:
    """Engine alone; None where it found nothing."""
    requests = constraints.requests(
        columns_of(items, constraints.fields),
        asked.k,
        include=[asked.include] if asked.include else None,
        exclude=[asked.exclude] if asked.exclude else None,
        ties_by_id=asked.items is not None,
    )
    solution = cliques.best(requests, scores[None], None if pairs is None else pairs[None], time_limit=budget)
    if not solution.found[0]:
        return None
    positions = solution.card[0].tolist()
    return Card(
        items=tuple(items[place]["item_id"] for place in positions),
        positions=tuple(positions),
        value=float(solution.weight[0]),
        bound=float(solution.bound[0]),
        optimal=bool(solution.optimal[0]),
    )


def weights_of(
    scores: Sequence[float], pair_scores: Sequence[Sequence[float]] | None
) -> tuple[np.ndarray, np.ndarray | None]:
    """Scores and pair scores as arrays, checked for shape and symmetry."""
    N = len(scores)
    if pair_scores is None:
        return np.array(scores, np.float64), None
    if len(pair_scores) != N or any(len(row) != N for row in pair_scores):
        raise InputError(f"pair_scores must be a square of {N} by {N}")
    pairs = np.array(pair_scores, np.float64)
    if not np.array_equal(pairs, pairs.T):
        raise InputError("pair_scores must be symmetric: a pair has one value, both ways round")
    return np.array(scores, np.float64), pairs
