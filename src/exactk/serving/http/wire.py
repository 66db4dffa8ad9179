"""From bytes to checked values and back: what every route shares.

Knows the bodies and the rules' JSON form, no solver and no model.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from time import perf_counter
from typing import Any, TypeVar

import numpy as np
from pydantic import BaseModel
from pydantic_core import to_json
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from exactk.errors import ConfigError, InputError
from exactk.problem.rules.constraints import Constraints
from exactk.serving.http.limits import check_context, check_features, check_items, check_lists, check_rules
from exactk.serving.http.problems import MEDIA_TYPE, RefusalError
from exactk.serving.settings import Settings

B = TypeVar("B", bound=BaseModel)

# A function cannot come over the wire, and a file path must not.
WIRE_RULES = (
    "allowed", "at_most", "count", "distinct", "forbid", "minimum_distance", "minimum_gap", "prefer", "share", "slots",
    "title_distance", "total", "variety",
)  # fmt: skip


LARGE_BODY = 64 << 10


async def read(request: Request, body: type[B]) -> B:
    """The body of a request, checked."""
    return await parsed(request.app.state.service.settings, body, await request.body())


async def parsed(settings: Settings, kind: type[B], body: bytes) -> B:
    """The bytes of a body as checked values, by pydantic's own reader; a large one is read beside the event loop."""
    check_lists(body, settings)
    if len(body) <= LARGE_BODY:
        return _checked(settings, kind, body)
    return await run_in_threadpool(_checked, settings, kind, body)


def _checked(settings: Settings, kind: type[B], body: bytes) -> B:
    found = kind.model_validate_json(body)
    check_within_limits(found, settings)
    return found


def check_within_limits(found: BaseModel, settings: Settings) -> None:
    """Items, rules and features of a body, where it has them."""
    for name in ("items", "candidates"):
        check_items(getattr(found, name, None) or (), settings, name)
    rules = getattr(found, "constraints", None) or ()
    check_rules(
        [getattr(rule, "rule", rule) for rule in rules], settings
    )  # the page sends rules with a switch
    check_features(getattr(found, "user_features", None), "user_features")
    check_context(getattr(found, "context", None), settings)


def answer(value: Any, status: int = 200) -> Response:
    """A JSON answer."""
    return as_response(as_json(value), status)


def as_json(value: Any) -> bytes:
    """A value on the wire; numbers that JSON cannot say become null."""
    return to_json(value, inf_nan_mode="null")


def as_response(body: bytes, status: int = 200) -> Response:
    """JSON that is already written, as an answer."""
    return Response(body, status, media_type="application/json")


def constraints_of(rules: Sequence[Mapping[str, Any]]) -> Constraints:
    """Rules as they stand in a body; the same list twice is read once."""
    if not rules:
        return Constraints()
    return _constraints(json.dumps(rules, sort_keys=True))


@lru_cache(maxsize=256)
def _constraints(text: str) -> Constraints:
    rules = json.loads(text)
    for place, rule in enumerate(rules):
        kind = rule.get("type")
        if kind not in WIRE_RULES:
            raise ConfigError(f"constraints/{place}: type {kind!r} is none of {', '.join(WIRE_RULES)}")
    try:
        return Constraints.from_dict({"rule": rules})
    except (TypeError, ValueError, OverflowError) as error:
        raise ConfigError(f"constraints: {error}") from error


def columns_of(items: Sequence[Mapping[str, Any]], fields: Sequence[str]) -> dict[str, np.ndarray]:
    """The columns some rules need of one request's items, [1, N] each."""
    columns = {"item_id": _column([item["item_id"] for item in items])}
    for field in fields:
        if field != "item_id" and any(field in item for item in items):
            columns[field] = _column([item.get(field) for item in items])
    return columns


def frame_of(items: Sequence[Mapping[str, Any]], fields: Sequence[str]) -> dict[str, list[Any]]:
    """The same as plain lists, field -> values: what `exactk.solve` takes as items."""
    return {name: column[0].tolist() for name, column in columns_of(items, fields).items()}


def _column(values: list[Any]) -> np.ndarray:
    column = np.empty((1, len(values)), object)
    column[0] = [_plain(value) for value in values]
    return column


def _plain(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 2**53:
        raise InputError(f"the whole number {str(value)[:24]} is beyond 2^53, where JSON loses digits")
    if isinstance(value, dict):
        raise InputError("an attribute that a rule reads must be a text, a number or a list of numbers")
    return value


def check_size(count: int, most: int, what: str) -> None:
    """Refuse lists longer than the settings allow."""
    if count > most:
        raise RefusalError(413, "size", "Too many", f"{count} {what}; this service takes at most {most}")


class Clock:
    """Milliseconds since it was made."""

    def __init__(self) -> None:
        self.started = perf_counter()

    def ms(self) -> float:
        """Rounded to a microsecond."""
        return round((perf_counter() - self.started) * 1000, 3)


def described(
    body: type[BaseModel] | tuple[type[BaseModel], ...] | None,
    reply: type[BaseModel] | tuple[type[BaseModel], ...],
    *statuses: int,
) -> dict[str, Any]:
    """Arguments of a route that reads its own body: the OpenAPI text is written here instead."""
    problem = {"content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemBody"}}}}
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
