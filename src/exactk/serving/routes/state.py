"""How the service is doing: alive, ready, which model, what to scrape.

Knows no cards.
"""

from __future__ import annotations

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from exactk import __version__
from exactk.serving.http.openapi import described
from exactk.serving.http.problems import RefusalError
from exactk.serving.http.wire import answer
from exactk.serving.metrics import CONTENT_TYPE
from exactk.serving.routes.schemas import Health, ModelState
from exactk.serving.service import Service

router = APIRouter()


@router.head("/healthz", include_in_schema=False)  # some balancers ask so
@router.get("/healthz", summary="Alive", **described(None, Health))
async def alive() -> Response:
    """The process answers."""
    return answer({"status": "alive"})


@router.head("/readyz", include_in_schema=False)
@router.get("/readyz", summary="Ready for requests", **described(None, Health, 503))
async def ready(request: Request) -> Response:
    """Ready until shutdown begins."""
    service: Service = request.app.state.service
    if service.closing:
        raise RefusalError(503, "closing", "Shutting down", "this process takes no new requests")
    return answer({"status": "ready"})


@router.get("/v1/model", summary="Which models serve", **described(None, ModelState, 401))
async def model(request: Request) -> Response:
    """Versions and arms."""
    service: Service = request.app.state.service
    arms = [each.state() for each in service.arms.values()]
    return answer({"exactk": __version__, "mode": "model" if arms else "solve", "arms": arms})


@router.get(
    "/metrics",
    summary="For Prometheus",
    response_class=Response,
    responses={
        200: {"description": "Prometheus text.", "content": {"text/plain": {"schema": {"type": "string"}}}}
    },
)
async def metrics(request: Request) -> Response:
    """Latencies, batch sizes, infeasible and fallback counts, arms, the log."""
    service: Service = request.app.state.service
    text = await run_in_threadpool(service.metrics.exposition)
    return Response(text, headers={"content-type": CONTENT_TYPE})
