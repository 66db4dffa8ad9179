"""`POST /v1/cards`: the model's card for one request or many, within a time budget, logged with its propensity; and
`POST /v1/feedback`: what became of it. Acknowledged means on the disk.

Knows the batcher and the log, not what they run.
"""

from __future__ import annotations

import asyncio
import math
import re
from concurrent.futures import Future
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from exactk.errors import InputError
from exactk.serving.http.problems import RefusalError, logged_problem_of
from exactk.serving.http.wire import (
    Clock,
    answer,
    as_json,
    as_response,
    check_size,
    check_within_limits,
    constraints_of,
    parsed,
    read,
    request_of,
)
from exactk.serving.log.impressions import (
    Impression,
    ImpressionLog,
    arm_in,
    is_on_card,
    is_ours,
    new_request_id,
)
from exactk.serving.model.answering import Answer, Question
from exactk.serving.routes.schemas import (
    CardAnswer,
    CardRequest,
    Feedback,
    Kept,
    ManyAnswers,
    ManyCards,
    described,
)
from exactk.serving.service import Service
from exactk.serving.settings import arm_of

router = APIRouter()

MANY = re.compile(rb'\s*\{\s*"requests"\s*:')


@router.post(
    "/v1/cards",
    summary="The model's card for one request or many",
    **described((CardRequest, ManyCards), (CardAnswer, ManyAnswers), 401, 404, 408, 409, 413, 422, 429, 503),
)
async def make_cards(request: HttpRequest) -> Response:
    """Exactly k candidates, every pair allowed, that the user most likely clicks as a whole."""
    return as_response(await cards(request.app.state.service, await request.body()))


async def cards(service: Service, body: bytes) -> bytes:
    """The same, from the bytes of the body."""
    clock = Clock()
    if not service.arms:
        raise RefusalError(
            404, "missing", "No model", "this service only solves; start it with a model folder"
        )
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
    row = log.shown(
        Impression(
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
    )
    return row, items


@router.post(
    "/v1/feedback",
    summary="Say what became of a card",
    **described(Feedback, Kept, 401, 404, 408, 413, 422, 503),
)
async def keep_feedback(request: HttpRequest) -> Response:
    """Answers once the feedback is flushed to the disk; any other answer means: send it again."""
    service: Service = request.app.state.service
    sent = await read(request, Feedback)
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
    return answer(
        {"kept": True, "request": "known" if known else "unknown", "item": item, "repeated": repeated}
    )
