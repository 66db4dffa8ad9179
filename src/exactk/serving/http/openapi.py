"""The OpenAPI document: routes read their own bodies, so what these may hold is said here.

Knows every body, no route's work.
"""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.responses import Response

from exactk.serving.http import problems
from exactk.serving.routes import schemas
from exactk.serving.studio import schemas as studio_schemas

MEANINGS = {
    400: "Not HTTP as we know it.",
    401: "An API key is needed.",
    404: "There is no such thing.",
    408: "The body came too slowly.",
    409: "No valid card exists; `blocking` names the rules that together forbid every card.",
    413: "Too large.",
    422: "The body cannot be used; the detail says where and why.",
    429: "OverloadedError; try again after the seconds in Retry-After.",
    503: "Not now: no model, shutting down, or the log cannot be written.",
}


def described(
    body: type[BaseModel] | tuple[type[BaseModel], ...] | None,
    reply: type[BaseModel] | tuple[type[BaseModel], ...],
    *statuses: int,
) -> dict[str, Any]:
    """Arguments of a route that reads its own body: the OpenAPI text is written here instead."""
    problem = {"content": {problems.MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemBody"}}}}
    extra: dict[str, Any] = {}
    if body is not None:
        extra = {
            "requestBody": {"required": True, "content": {"application/json": {"schema": _reference(body)}}}
        }
    return {
        "response_class": Response,
        "responses": {
            200: {"description": "Done.", "content": {"application/json": {"schema": _reference(reply)}}},
            **{status: {"description": MEANINGS[status], **problem} for status in statuses},
        },
        "openapi_extra": extra,
    }


def _reference(bodies: type[BaseModel] | tuple[type[BaseModel], ...]) -> dict[str, Any]:
    listed = bodies if isinstance(bodies, tuple) else (bodies,)
    references = [{"$ref": f"#/components/schemas/{each.__name__}"} for each in listed]
    return references[0] if len(references) == 1 else {"anyOf": references}


def bodies() -> list[type[BaseModel]]:
    """Every body that may travel."""
    rooms = (schemas, studio_schemas, problems)
    found = [each for room in rooms for each in vars(room).values() if isinstance(each, type)]
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
