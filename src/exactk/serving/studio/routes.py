"""The page, its files, and the answers it asks for.

Knows the view, no engine. Files come from the package alone: a path in a request is looked up in a fixed table.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

import numpy as np
from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from exactk.errors import InfeasibleError, InputError, OutOfTimeError
from exactk.problem.deadline import Deadline
from exactk.problem.solving import solve
from exactk.serving.http.problems import RefusalError, problem_of
from exactk.serving.http.wire import (
    Clock,
    answer,
    check_size,
    columns_of,
    constraints_of,
    described,
    frame_of,
    read,
)
from exactk.serving.routes.solve import weights_of
from exactk.serving.service import Service, Work
from exactk.serving.studio import view
from exactk.serving.studio.schemas import (
    ModelStory,
    Pasted,
    RequestNames,
    SourceNames,
    StudioRequest,
    Switch,
    View,
    ViewRequest,
)
from exactk.serving.studio.story import Weights, policy_card, story
from exactk.serving.studio.story import weights as model_weights

router = APIRouter()

KINDS = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


@cache
def static_files() -> dict[str, tuple[bytes, str]]:
    """Every file of the page, by its path below /studio/."""
    found: dict[str, tuple[bytes, str]] = {}

    def walk(folder: Traversable, before: str) -> None:
        for entry in folder.iterdir():
            if entry.is_dir():
                walk(entry, f"{before}{entry.name}/")
            elif (kind := KINDS.get(entry.name.rpartition(".")[2])) is not None:
                found[before + entry.name] = (entry.read_bytes(), kind)

    walk(files("exactk.serving.studio").joinpath("static"), "")
    return found


@router.get("/", include_in_schema=False)
async def page() -> Response:
    """The studio."""
    content, kind = static_files()["index.html"]
    return Response(content, media_type=kind, headers={"cache-control": "no-cache"})


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


@router.get("/v1/studio/sources", summary="Where requests may come from", **described(None, SourceNames, 401))
async def sources(request: Request) -> Response:
    """The page's first question."""
    service: Service = request.app.state.service
    return answer({"sources": service.sources.names(), "model": service.champion is not None})


@router.get(
    "/v1/studio/requests/{source}", summary="What a source holds", **described(None, RequestNames, 401, 404)
)
async def requests(request: Request, source: str) -> Response:
    """Names only."""
    service: Service = request.app.state.service
    held = await run_in_threadpool(service.sources.requests, source)
    return answer({"requests": [{"index": i, "name": each["name"]} for i, each in enumerate(held)]})


@router.get(
    "/v1/studio/requests/{source}/{index}",
    summary="One request of a source",
    **described(None, StudioRequest, 401, 404),
)
async def one_request(request: Request, source: str, index: str) -> Response:
    """The whole request."""
    service: Service = request.app.state.service
    number = int(index) if index.isascii() and index.isdigit() and len(index) < 10 else -1
    held = await run_in_threadpool(service.sources.request, source, number)
    return answer({"lesson": "", "constraints": [], **held})


@router.post(
    "/v1/studio/read", summary="Read a pasted request", **described(Pasted, StudioRequest, 401, 413, 422)
)
async def read_pasted(request: Request) -> Response:
    """Accepts what `/v1/solve` and `/v1/cards` accept, and items that carry their score."""
    pasted = await read(request, Pasted)
    items = pasted.items or pasted.candidates
    if not items:
        raise InputError("the request has no items; give a list of {item_id, title, score, ...}")
    kept = pasted.model_dump(exclude={"candidates", "items"})
    return answer({**kept, "name": "Pasted", "lesson": "Your own request.", "items": items})


@router.post(
    "/v1/studio/view", summary="All about one request", **described(ViewRequest, View, 401, 413, 422)
)
async def look(request: Request) -> Response:
    """Rules, graph, the exact card beside other methods', and why each item is in or out."""
    service: Service = request.app.state.service
    clock = Clock()
    asked = await read(request, ViewRequest)
    check_size(len(asked.items), service.settings.max_candidates, "candidates")
    budget_ms = service.settings.max_budget_ms if asked.budget_ms is None else asked.budget_ms
    ends, is_patient = service.deadline(budget_ms, clock.started)
    return answer(await service.finished(Work(partial(_view, service, asked, ends), ends, is_patient)))


@router.get("/v1/studio/model", summary="The model's own story", **described(None, ModelStory, 401))
async def model_story(request: Request) -> Response:
    """Facts, training curves and comparison table, where the model folder holds them."""
    service: Service = request.app.state.service
    if service.champion is None:
        return answer({"loaded": False})
    return answer({"loaded": True, **await run_in_threadpool(story, service.champion)})


def _view(service: Service, asked: ViewRequest, ends: float) -> dict[str, Any]:
    deadline = Deadline(ends).part(0.9)
    items = [_shown(item) for item in asked.items]
    weights = _weights(service, asked)
    scores = weights.scores
    on = constraints_of([switch.rule for switch in asked.constraints if switch.on])
    k = min(asked.k, len(items) - len(asked.exclude))
    scene = view.scene_of(
        asked.items, scores, weights.pairs, on, max(k, 1), asked.include, asked.exclude, deadline
    )
    scene = replace(scene, link=weights.link, judge=weights.judge)
    best = view.best_card(scene, deadline, weights.proof)
    policy = None
    if best is not None and asked.scored_by == "model" and service.champion is not None:
        policy = policy_card(service.champion, asked, on, scene.card_size, deadline.part(0.3).ends)
    span = float(scores.max() - scores.min()) or 1.0
    methods = view.methods(scene, best, policy, deadline)
    problem = None if best is not None else _problem(scene, asked, deadline.part(0.5))
    why, all_said = view.reasons(scene, best, deadline)
    late = {
        "best": best is not None and not best["optimal"],
        "problem": problem is not None and "unfinished" in problem,
        "why": best is not None and not all_said,
    }
    return {
        "items": items,
        "scores": scores.tolist(),
        "share": (0.08 + 0.92 * (scores - scores.min()) / span).tolist(),
        "pair_scores": None if weights.pairs is None else weights.pairs.tolist(),
        "rules": [_rule(asked, switch, deadline) for switch in asked.constraints],
        "conflicts": view.conflicts(scene),
        "excluded": np.flatnonzero(~scene.requests.present[0]).tolist(),
        "best": best,
        "problem": problem,
        "methods": methods,
        "why": why,
        "unfinished": [part for part, lacks in late.items() if lacks],
        "attention": weights.attention,
        "influence": weights.influence,
    }


def _shown(item: dict[str, Any]) -> dict[str, Any]:
    """What the page shows of an item: text only, short."""
    rest = {
        name: str(value)[:80]
        for name, value in item.items()
        if name not in ("title", "category", "score") and isinstance(value, str | int | float | bool)
    }
    return {
        "item_id": item["item_id"],
        "title": str(item.get("title") or item["item_id"])[:120],
        "category": str(item.get("category") or "")[:60],
        "attributes": rest,
    }


def _weights(service: Service, asked: ViewRequest) -> Weights:
    """Scores and pair scores as given, or by the model."""
    N = len(asked.items)
    if asked.scored_by == "model":
        if service.champion is None:
            raise InputError("there is no model here to score with")
        return model_weights(service.champion, asked)
    given = asked.scores
    if given is None:
        given = [item.get("score", 0.0) for item in asked.items]
        if not all(_is_score(score) for score in given):
            raise InputError("each item needs a number as its score, or the request a list of scores")
        given = [float(score) for score in given]
    if len(given) != N:
        raise InputError(f"there are {N} items and {len(given)} scores; each item needs one")
    scores, pairs = weights_of(given, asked.pair_scores)
    return Weights(scores, pairs)


def _is_score(value: Any) -> bool:
    return isinstance(value, int | float) and abs(value) < 1e15


def _rule(asked: ViewRequest, switch: Switch, deadline: Deadline) -> dict[str, Any]:
    """A rule's name, and what it does to these items, whether it is on or not."""
    rule = constraints_of([switch.rule]).rules[0]
    columns = columns_of(asked.items, rule.fields)
    present = np.ones((1, len(asked.items)), bool)
    try:
        forbidden = int(np.triu(~rule.allowed_within(columns, present, deadline)[0], 1).sum())
    except (InputError, OutOfTimeError):
        if switch.on:
            raise
        return {"name": rule.name, "counts": ""}
    caps = rule.cap is not None and not forbidden
    return {"name": rule.name, "counts": "cap" if caps else f"{forbidden} pair{'s' * (forbidden != 1)}"}


def _problem(scene: view.Scene, asked: ViewRequest, deadline: Deadline) -> dict[str, Any]:
    """What blocks the request, in the words of `/v1/solve`."""
    try:
        solve(
            scene.scores,
            scene.card_size,
            constraints=scene.constraints,
            items=frame_of(asked.items, scene.constraints.fields),
            include=asked.include,
            exclude=asked.exclude,
            time_limit=max(deadline.left, 1e-3),
        )
    except (InfeasibleError, OutOfTimeError) as error:
        return {"blocking": []} | problem_of(error)
    return {"title": "No valid card was found", "detail": "the search ran out of time", "blocking": [],
            "unfinished": ["search"]}  # fmt: skip
