"""`POST /v1/feedback`: what became of a card. Acknowledged means on the disk.

Knows the log, no model.
"""

from __future__ import annotations

import asyncio

from fastapi import APIRouter
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from exactk.errors import InputError
from exactk.serving.http.problems import RefusalError
from exactk.serving.http.wire import answer, described, read
from exactk.serving.log.request_ids import arm_in
from exactk.serving.routes.schemas import Feedback
from exactk.serving.service import Service

router = APIRouter()


class Kept(BaseModel):
    """The feedback is safe."""

    kept: bool


@router.post(
    "/v1/feedback",
    summary="Say what became of a card",
    **described(Feedback, Kept, 401, 404, 408, 413, 422, 503),
)
async def keep_feedback(request: Request) -> Response:
    """Answers once the feedback is flushed to the disk; any other answer means: send it again."""
    service: Service = request.app.state.service
    told = await read(request, Feedback)
    if told.clicked_item is not None and not told.clicked:
        raise InputError("clicked_item is given, but clicked is false; one of the two is wrong")
    if service.log is None:
        raise RefusalError(404, "missing", "No log", "this service keeps no log; start it with a log folder")
    try:
        await asyncio.wrap_future(service.log.answered(told.request_id, told.clicked, told.clicked_item))
    except OSError as error:
        detail = f"the log cannot be written ({error.strerror or error}); send it again"
        raise RefusalError(503, "log", "Not kept", detail, {"retry-after": "5"}) from error
    service.metrics.feedback.labels(arm_in(told.request_id), str(told.clicked).lower()).inc()
    return answer({"kept": True})
