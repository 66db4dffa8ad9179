"""create_app: the service put together. Layers from outside: measure, gate (keys and limits), routes.

Knows the rooms of the service, and decides nothing itself.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from exactk import __version__
from exactk.serving.http import problems
from exactk.serving.http.openapi import document
from exactk.serving.http.protocol import FAST_PATH, PATIENCE, FastPath, Patience
from exactk.serving.http.security import Gate
from exactk.serving.metrics import Measure
from exactk.serving.routes import cards as card_routes
from exactk.serving.routes import solve as solve_routes
from exactk.serving.routes import state as state_routes
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
    problems.install(app)
    for routes in (card_routes, solve_routes, state_routes, studio_routes):
        app.include_router(routes.router)
    app.openapi = lambda: document(app, bool(settings.key_hashes))  # type: ignore[method-assign]
    direct = {
        "/v1/cards": partial(card_routes.cards, service),
        "/v1/solve": partial(solve_routes.solution, service),
    }
    if settings.cors_origins:
        app.add_middleware(CORSMiddleware, allow_origins=list(settings.cors_origins), allow_methods=["GET", "POST"],
                           allow_headers=["authorization", "content-type", "x-api-key"])  # fmt: skip
    gate = Gate(app.behind, settings.key_hashes, settings.max_body_bytes, settings.body_timeout_s)
    app.front = measure = Measure(gate, metrics=service.metrics, routes=MEASURED)
    # A page of another origin needs the headers that the framework's layer adds.
    fast = None if settings.cors_origins else FastPath(direct, gate, measure)
    return app
