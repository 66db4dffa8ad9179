"""The page, its files, and the answers it asks for.

Knows no engine. Files come from the package alone: a path in a request is looked up in a fixed table.
"""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from exactk.errors import InputError
from exactk.serving import schemas
from exactk.serving.http import RefusalError
from exactk.serving.http.wire import Clock, answer, check_size, read
from exactk.serving.schemas import described
from exactk.serving.service import Service, Work
from exactk.serving.studio.view import story, view

router = APIRouter()

KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


@cache
def static_files() -> dict[str, tuple[bytes, str]]:
    """Every file of the page, by its path below /studio/."""
    root = Path(__file__).with_name("static")
    files = [path for path in root.rglob("*") if path.suffix in KINDS]
    return {path.relative_to(root).as_posix(): (path.read_bytes(), KINDS[path.suffix]) for path in files}


@router.get("/", include_in_schema=False)
async def page() -> Response:
    """The studio."""
    return await static("index.html")


@router.get("/studio/{path:path}", include_in_schema=False)
async def static(path: str) -> Response:
    """A file of the studio."""
    if path not in static_files():
        raise RefusalError(404, "missing", "Not Found", "the studio has no such file")
    content, kind = static_files()[path]
    return Response(content, media_type=kind, headers={"cache-control": "no-cache"})


@router.get("/favicon.ico", include_in_schema=False)
async def icon() -> Response:
    """For browsers that ask without reading the page."""
    return await static("icon.svg")


@router.get(
    "/v1/studio/sources", summary="Where requests may come from", **described(None, schemas.SourceNames, 401)
)
async def sources(request: Request) -> Response:
    """The page's first question."""
    service: Service = request.app.state.service
    return answer({"sources": service.sources.names(), "model": service.champion is not None})


@router.get(
    "/v1/studio/requests/{source}",
    summary="What a source holds",
    **described(None, schemas.RequestNames, 401, 404),
)
async def requests(request: Request, source: str) -> Response:
    """Names only."""
    service: Service = request.app.state.service
    held = await run_in_threadpool(service.sources.requests, source)
    return answer({"requests": [{"index": i, "name": each["name"]} for i, each in enumerate(held)]})


@router.get(
    "/v1/studio/requests/{source}/{index}",
    summary="One request of a source",
    **described(None, schemas.StudioRequest, 401, 404),
)
async def one_request(request: Request, source: str, index: str) -> Response:
    """The whole request."""
    service: Service = request.app.state.service
    number = int(index) if index.isascii() and index.isdigit() and len(index) < 10 else -1
    held = await run_in_threadpool(service.sources.request, source, number)
    return answer({"lesson": "", "constraints": [], "context": {}, **held})


@router.post(
    "/v1/studio/read",
    summary="Read a pasted request",
    **described(schemas.Pasted, schemas.StudioRequest, 401, 413, 422),
)
async def read_pasted(request: Request) -> Response:
    """Accepts what `/v1/solve` and `/v1/cards` accept, and items that carry their score."""
    pasted = await read(request, schemas.Pasted)
    items = pasted.items or pasted.candidates
    if not items:
        raise InputError("the request has no items; give a list of {item_id, title, score, ...}")
    kept = pasted.model_dump(exclude={"candidates", "items"})
    return answer({**kept, "name": "schemas.Pasted", "lesson": "Your own request.", "items": items})


@router.post(
    "/v1/studio/view",
    summary="All about one request",
    **described(schemas.ViewRequest, schemas.View, 401, 413, 422),
)
async def look(request: Request) -> Response:
    """Rules, graph, the exact card beside other methods', and why each item is in or out."""
    service: Service = request.app.state.service
    clock = Clock()
    asked = await read(request, schemas.ViewRequest)
    check_size(len(asked.items), service.settings.max_candidates, "candidates")
    budget_ms = service.settings.max_budget_ms if asked.budget_ms is None else asked.budget_ms
    ends, is_patient = service.deadline(budget_ms, clock.started)
    work = Work(partial(view, service.champion, asked, ends), ends, is_patient)
    return answer(await service.finished(work))


@router.get("/v1/studio/model", summary="The model's own story", **described(None, schemas.ModelStory, 401))
async def model_story(request: Request) -> Response:
    """Facts, training curves and comparison table, where the model folder holds them."""
    service: Service = request.app.state.service
    if service.champion is None:
        return answer({"loaded": False})
    return answer({"loaded": True, **await run_in_threadpool(story, service.champion)})
