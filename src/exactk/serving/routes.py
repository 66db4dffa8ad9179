"""`POST /v1/solve`: scores and rules in, the proven best card out, no model; `POST /v1/cards`: the model's card for one
request or many, within a time budget, logged with its propensity; `POST /v1/feedback`: what became of it.

Knows `exactk.solve`, the batcher and the log, not what they run. A plain request to solve goes straight to the engine;
one that asks for relaxation or reasons, or that has no card, goes the full way. Small ones are tried in the event loop
for a few milliseconds, all others are worked out in threads. Feedback acknowledged is on the disk.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
from fastapi import APIRouter
from starlette.requests import Request
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from exactk.errors import InputError, OutOfTimeError
from exactk.problem.deadline import Deadline
from exactk.problem.exact import cliques
from exactk.problem.given import GivenRequests
from exactk.problem.rules.constraints import Constraints
from exactk.problem.solving import Card, broken_preferences, solve
from exactk.serving import schemas
from exactk.serving.http import RefusalError, logged_problem_of
from exactk.serving.http.wire import (
    Clock,
    answer,
    as_json,
    as_response,
    check_size,
    check_within_limits,
    columns_of,
    constraints_of,
    frame_of,
    parsed,
    read,
    request_of,
)
from exactk.serving.log import Impression, ImpressionLog, arm_in, is_on_card, is_ours, new_request_id
from exactk.serving.model.answering import Answer, Question
from exactk.serving.schemas import CardRequest, ManyCards, SolveRequest, described
from exactk.serving.service import Service, Work
from exactk.serving.settings import arm_of

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
    **described(SolveRequest, schemas.SolveAnswer, 401, 408, 409, 413, 422),
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
        broken=broken_preferences(constraints, requests.brief, 0, positions),
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


ONE_OR_MANY = (CardRequest, ManyCards), (schemas.CardAnswer, schemas.ManyAnswers)
MANY = re.compile(rb'\s*\{\s*"requests"\s*:')


@router.post(
    "/v1/cards",
    summary="The model's card for one request or many",
    **described(*ONE_OR_MANY, 401, 404, 408, 409, 413, 422, 429, 503),
)
async def make_cards(request: HttpRequest) -> Response:
    """Exactly k candidates, every pair allowed, that the user most likely clicks as a whole."""
    return as_response(await cards(request.app.state.service, await request.body()))


async def cards(service: Service, body: bytes) -> bytes:
    """The same, from the bytes of the body."""
    clock = Clock()
    if not service.arms:
        solves = "this service only solves; start it with a model folder"
        raise RefusalError(404, "missing", "No model", solves)
    if not MANY.match(body):
        return as_json(await _card(service, await parsed(service.settings, CardRequest, body), clock))
    many = await parsed(service.settings, ManyCards, body)
    check_size(len(many.requests), service.settings.max_requests, "requests")
    answers = await asyncio.gather(*(_one_of_many(service, each, clock) for each in many.requests))
    return as_json({"answers": answers})


async def _one_of_many(service: Service, body: Any, clock: Clock) -> dict[str, Any]:
    """A card or a problem: no request of many is refused for what another one says."""
    try:
        asked = CardRequest.model_validate(body)
        check_within_limits(asked, service.settings)
        return await _card(service, asked, clock)
    except Exception as error:
        return logged_problem_of(error, "POST /v1/cards")


def _question(service: Service, asked: CardRequest, clock: Clock) -> Question:
    """A checked body as a question to the user's arm."""
    settings = service.settings
    check_size(len(asked.candidates), settings.max_candidates, "candidates")
    deadline, is_patient = service.deadline(asked.budget_ms, clock.started)
    return Question(
        arm=service.arms[arm_of(asked.user, settings.challenger_share, settings.split_salt)],
        request=request_of(asked, asked.candidates, asked.k or 0),
        constraints=None if asked.constraints is None else constraints_of(asked.constraints),
        relax=tuple(asked.relax or ()),
        explain=asked.explain,
        deadline=deadline,
        is_patient=is_patient,
        so_far=[] if asked.explain else None,
    )


async def _card(service: Service, asked: CardRequest, clock: Clock) -> dict[str, Any]:
    """The answer on the wire; what is shown is logged and counted here."""
    question = _question(service, asked, clock)
    found = await service.answered(service.batcher, question)
    card, arm = found.card, question.arm.name
    request_id = new_request_id(arm, card.items)
    value = card.value if math.isfinite(card.value) else None
    if found.fallback:
        service.metrics.fallbacks.labels(found.method).inc()
    service.metrics.cards[arm].inc()
    if service.log is not None:
        await service.kept(question.deadline, *_log(service.log, request_id, question, found))
    is_cut_short = found.fallback or found.method == "exact, stopped"
    return {
        "request_id": request_id,
        "card": list(card.items),
        "value": value,
        "propensity": found.propensity,
        "gap": card.gap if math.isfinite(card.bound) else None,
        "relaxed": list(card.relaxed),
        **({"broken": [one._asdict() for one in card.broken]} if card.broken else {}),
        "method": found.method,
        "fallback": found.fallback,
        "arm": arm,
        "model": found.version,
        "reasons": [reason.as_dict() for reason in card.reasons] if question.explain else None,
        "unread": question.unread,
        "unfinished": [*(["search"] if is_cut_short else []), *found.unfinished],
        "ms": clock.ms(),
    }


def _log(
    log: ImpressionLog, request_id: str, question: Question, found: Answer
) -> tuple[Future[None] | None, Future[None] | None]:
    """Keep what was shown, out of what, and all that had come along; futures where that is not done yet."""
    request, rules = question.request, question.constraints
    columns, sent = question.arm.loaded.sent_names.parted(
        list(request.attributes.values()), rules.fields if rules is not None else ()
    )
    items = log.described(sent) if sent else None
    value = found.card.value
    impression = Impression(
        request_id=request_id,
        user_id=request.user_id,
        candidates=request.candidates,
        card=found.card.items,
        propensity=found.propensity,
        value=value if math.isfinite(value) else None,
        arm=question.arm.name,
        model=found.version,
        columns={**columns, **found.counted},
        context=request.context,
    )
    return log.shown(impression), items


@router.post(
    "/v1/feedback",
    summary="Say what became of a card",
    **described(schemas.Feedback, schemas.Kept, 401, 404, 408, 413, 422, 503),
)
async def keep_feedback(request: HttpRequest) -> Response:
    """Answers once the feedback is flushed to the disk; any other answer means: send it again."""
    service: Service = request.app.state.service
    sent = await read(request, schemas.Feedback)
    if sent.clicked_item is not None and not sent.clicked:
        raise InputError("clicked_item is given, but clicked is false; one of the two is wrong")
    if sent.reward is not None and sent.clicked_item is None:
        raise InputError("reward is what came of the clicked item: name it as clicked_item")
    if service.log is None:
        raise RefusalError(404, "missing", "No log", "this service keeps no log; start it with a log folder")
    known = is_ours(sent.request_id)
    repeated = sent.clicked and service.log.has_click(sent.request_id)
    try:
        kept = service.log.answered(sent.request_id, sent.clicked, sent.clicked_item, sent.reward)
        await asyncio.wrap_future(kept)
    except OSError as error:
        detail = f"the log cannot be written ({error.strerror or error}); send it again"
        raise RefusalError(503, "log", "Not kept", detail, {"retry-after": "5"}) from error
    service.metrics.feedback.labels(arm_in(sent.request_id), str(sent.clicked).lower()).inc()
    item = None
    if known and sent.clicked_item is not None:
        item = "on the card" if is_on_card(sent.request_id, sent.clicked_item) else "not on the card"
    request_id = "known" if known else "unknown"
    return answer({"kept": True, "request": request_id, "item": item, "repeated": repeated})
