"""create_app: the service put together, and the routes that say how it is doing: alive, ready, which model, figures.

Layers from outside: measure, gate (keys and limits), routes. Knows the rooms of the service, decides nothing itself.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.concurrency import run_in_threadpool
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from exactk import __version__
from exactk.serving import http, routes, schemas
from exactk.serving.http import closing_refusal
from exactk.serving.http.protocol import FAST_PATH, PATIENCE, FastPath, Patience
from exactk.serving.http.security import Gate
from exactk.serving.http.wire import answer
from exactk.serving.metrics import CONTENT_TYPE, Measure
from exactk.serving.schemas import Health, ModelState, described
from exactk.serving.service import Service
from exactk.serving.settings import Settings
from exactk.serving.studio import routes as studio_routes

MEASURED = frozenset((
    "/v1/solve", "/v1/cards", "/v1/feedback", "/v1/model", "/v1/studio/view", "/healthz", "/readyz", "/metrics", "/",
))  # fmt: skip


class Fronted(FastAPI):
    """FastAPI with our layers before its own, not behind: the busiest routes never enter the framework."""

    front: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (self.front if scope["type"] == "http" else self.behind)(scope, receive, send)

    async def behind(self, scope: Scope, receive: Receive, send: Send) -> None:
        await super().__call__(scope, receive, send)


def create_app(settings: Settings | None = None) -> FastAPI:
    """The ASGI app; without settings, those `serve` left in the environment."""
    settings = Settings.from_environment() if settings is None else settings
    service = Service(settings)
    patience = Patience(settings.head_timeout_s, settings.unread_timeout_s, settings.max_connections)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[dict[str, Any]]:
        await service.start()
        try:
            yield {PATIENCE: patience, FAST_PATH: fast}
        finally:
            await service.close()

    app = Fronted(
        title="exactk",
        version=__version__,
        description="The best whole card: exactly K items, every pair of them allowed.",
        lifespan=lifespan,
        docs_url=None,  # their page loads scripts from another host
        redoc_url=None,
    )
    app.state.service = service
    http.install(app)
    for each in (routes.router, router, studio_routes.router):
        app.include_router(each)
    app.openapi = lambda: document(app, bool(settings.key_hashes))  # type: ignore[method-assign]
    direct = {"/v1/cards": partial(routes.cards, service), "/v1/solve": partial(routes.solution, service)}
    if settings.cors_origins:
        app.add_middleware(CORSMiddleware, allow_origins=list(settings.cors_origins), allow_methods=["GET", "POST"],
                           allow_headers=["authorization", "content-type", "x-api-key"])  # fmt: skip
    gate = Gate(app.behind, settings.key_hashes, settings.max_body_bytes, settings.body_timeout_s)
    app.front = measure = Measure(gate, metrics=service.metrics, routes=MEASURED)
    # A page of another origin needs the headers that the framework's layer adds.
    fast = None if settings.cors_origins else FastPath(direct, gate, measure)
    return app


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
        raise closing_refusal()
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


def bodies() -> list[type[BaseModel]]:
    """Every body that may travel."""
    found = [each for room in (schemas, http) for each in vars(room).values() if isinstance(each, type)]
    return [each for each in dict.fromkeys(found) if issubclass(each, BaseModel) and each is not BaseModel]


def document(app: FastAPI, keyed: bool) -> dict[str, Any]:
    """What /openapi.json answers, made once."""
    if app.openapi_schema is not None:
        return app.openapi_schema
    made = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    _, definitions = models_json_schema(
        [(each, "validation") for each in bodies()], ref_template="#/components/schemas/{model}"
    )
    components = made.setdefault("components", {})
    components.setdefault("schemas", {}).update(definitions.get("$defs", {}))
    if keyed:
        components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        made["security"] = [{"key": []}]
    app.openapi_schema = made
    return made
