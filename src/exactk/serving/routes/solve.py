"""`POST /v1/solve`: scores and rules in, the proven best card out. No model.

Knows `exactk.solve`. A plain request goes straight to the engine; one that asks for relaxation or reasons, or that has
no card, goes the full way. Small ones are tried in the event loop for a few milliseconds, all others are worked out in
threads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from exactk.errors import InputError, OutOfTimeError
from exactk.problem.deadline import Deadline
from exactk.problem.exact import cliques
from exactk.problem.given import GivenRequests
from exactk.problem.rules.constraints import Constraints
from exactk.problem.solving import Card, broken_preferences, solve
from exactk.serving.http.wire import (
    Clock,
    as_json,
    as_response,
    check_size,
    columns_of,
    constraints_of,
    frame_of,
    parsed,
)
from exactk.serving.routes.schemas import SolveAnswer, SolveRequest, described
from exactk.serving.service import Service, Work

router = APIRouter()

# What may be tried in the event loop, which must not be held for more than some milliseconds.
SMALL_CANDIDATES = 64
SMALL_BODY = 16 << 10
SMALL_TITLES = 4 << 10  # bytes of a body whose titles are compared: comparing costs the square of it
AT_ONCE_SECONDS = 0.004
SEARCH_SHARE = 0.9  # of the time left: a card that was found must still be written down ...
EXPLAIN_SHARE = 0.75  # ... and hundreds of reasons, too
FIRST_SHARE = 0.15  # for a card that is there before the reasons are


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
    asked = await parsed(service.settings, SolveRequest, body)
    check_size(len(asked.scores), service.settings.max_candidates, "candidates")
    deadline, is_patient = service.deadline(asked.budget_ms, clock.started)
    so_far: list[Card] = []
    card = _at_once(asked) if is_small(asked, len(body)) else None
    if card is None:
        work = Work(partial(solved, asked, deadline, so_far), deadline, is_patient, so_far)
        card = await service.finished(work)
    written = {"reasons": None} | card.as_dict()
    late = any(card is each for each in so_far) or not all(reason.exact for reason in card.reasons)
    unfinished = {"search": not card.optimal, "reasons": late}
    written["unfinished"] = [part for part, lacks in unfinished.items() if lacks]
    return as_json({"card": written.pop("items"), **written, "ms": clock.ms()})


def is_small(asked: SolveRequest, size: int) -> bool:
    """Whether it may be tried in the event loop."""
    titles = any(rule.get("type") in ("title_distance", "prefer") for rule in asked.constraints)
    plain = not asked.relax and not asked.explain and len(asked.scores) <= SMALL_CANDIDATES
    return plain and size <= (SMALL_TITLES if titles else SMALL_BODY)


def _at_once(asked: SolveRequest) -> Card | None:
    """The proven best card, if a few milliseconds are enough for it."""
    try:
        card = _straight(asked, Deadline.after(AT_ONCE_SECONDS))
    except OutOfTimeError:
        return None
    return card if card is not None and card.optimal else None


def solved(asked: SolveRequest, ends: float, so_far: list[Card]) -> Card:
    """The card of one checked body, best by proof or by the time it ends; with reasons where they were asked for.

    Reasons may come too late on a busy machine: the card of a short search is put into `so_far` first.
    """
    deadline = Deadline(ends)
    if not asked.relax and not asked.explain:
        card = _straight(asked, deadline)
        if card is not None:
            return card
    elif asked.explain:
        with suppress(OutOfTimeError):
            so_far += filter(None, [_straight(asked, deadline.part(FIRST_SHARE))])
    items, scores, pairs, constraints = _read(asked)
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
        time_limit=max((EXPLAIN_SHARE if asked.explain else SEARCH_SHARE) * deadline.left, 1e-3),
    )
    return found


def _read(
    asked: SolveRequest,
) -> tuple[Sequence[Mapping[str, Any]], np.ndarray, np.ndarray | None, Constraints]:
    """Items, scores, pair scores and rules of a body."""
    scores, pairs = weights_of(asked.scores, asked.pair_scores)
    items = asked.items if asked.items is not None else [{"item_id": place} for place in range(len(scores))]
    if len(items) != len(scores):
        raise InputError(f"there are {len(items)} items and {len(scores)} scores; each item needs one")
    return items, scores, pairs, constraints_of(asked.constraints)


def _straight(asked: SolveRequest, deadline: Deadline) -> Card | None:
    """Engine alone; None where it found nothing."""
    items, scores, pairs, constraints = _read(asked)
    wished = GivenRequests(
        columns_of(items, constraints.fields),
        asked.k,
        include=[asked.include] if asked.include else None,
        exclude=[asked.exclude] if asked.exclude else None,
        ties_by_id=asked.items is not None,
    )
    requests = constraints.requests(wished, deadline)
    limit = SEARCH_SHARE * deadline.left
    solution = cliques.best(requests, scores[None], None if pairs is None else pairs[None], time_limit=limit)
    if not solution.found[0]:
        return None
    positions = solution.card[0].tolist()
    return Card(
        items=tuple(items[place]["item_id"] for place in positions),
        positions=tuple(positions),
        value=float(solution.weight[0]),
        bound=float(solution.bound[0]),
        optimal=bool(solution.optimal[0]),
        broken=broken_preferences(constraints, requests, positions),
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
