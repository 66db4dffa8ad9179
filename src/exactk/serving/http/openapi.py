"""The OpenAPI document: routes read their own bodies, so their schemas are put in here.

Knows every body, no route's work.
"""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from exactk.serving.http import problems
from exactk.serving.routes import feedback as feedback_routes
from exactk.serving.routes import schemas
from exactk.serving.routes import state as state_routes
from exactk.serving.studio import schemas as studio_schemas


def bodies() -> list[type[BaseModel]]:
    """Every body that may travel."""
    rooms = (schemas, studio_schemas, state_routes, feedback_routes, problems)
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
