"""`POST /v1/feedback`: what became of a card. Acknowledged means on the disk.

Knows the log, no model.
"""

from __future__ import annotations

import asyncio

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from exactk.errors import InputError
from exactk.serving.http.openapi import described
from exactk.serving.http.problems import RefusalError
from exactk.serving.http.wire import answer, read
from exactk.serving.log.request_ids import arm_in, is_on_card, is_ours
from exactk.serving.routes.schemas import Feedback, Kept
from exactk.serving.service import Service

router = APIRouter()


@router.post(
    "/v1/feedback",
    summary="Say what became of a card",
    **described(Feedback, Kept, 401, 404, 408, 413, 422, 503),
)
async def keep_feedback(request: Request) -> Response:
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
