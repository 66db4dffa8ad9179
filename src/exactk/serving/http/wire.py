"""From bytes to checked values and back: what every route shares, and what a body may hold beyond its bytes.

Knows the bodies and the rules' JSON form, no solver and no model. Everything a search, a rule or the log would choke
on later is refused here, before any work is done, with the place in the body and the setting that allows more.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from time import perf_counter
from typing import Any, TypeVar

import numpy as np
from pydantic import BaseModel
from pydantic_core import to_json
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from exactk.data.requests import Request
from exactk.errors import ConfigError, InputError
from exactk.problem.rules.columns import nearest
from exactk.problem.rules.constraints import Constraints
from exactk.serving.http import RefusalError
from exactk.serving.settings import Settings

B = TypeVar("B", bound=BaseModel)

LARGE_BODY = 64 << 10  # read beside the event loop
LARGEST_WHOLE = 2**53  # beyond it JSON loses digits
LARGEST_FEATURE = 1e30  # squares of sums of such numbers overflow the single precision that models compute in
LONGEST_VECTOR = 4096


async def read(request: HttpRequest, body: type[B]) -> B:
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
    for number, rule in enumerate(getattr(found, "constraints", None) or ()):
        # The page sends rules with a switch.
        check_value(getattr(rule, "rule", rule), f"constraints/{number}", settings)
    check_features(getattr(found, "user_features", None), "user_features")
    check_context(getattr(found, "context", None), settings)


def answer(value: Any) -> Response:
    return as_response(as_json(value))


def as_json(value: Any) -> bytes:
    """A value on the wire; numbers that JSON cannot say become null."""
    return to_json(value, inf_nan_mode="null")


def as_response(body: bytes) -> Response:
    """JSON that is already written, as an answer."""
    return Response(body, media_type="application/json")


def request_of(asked: Any, candidates: Sequence[Any], k: int) -> Request:
    """A checked body as models take it; candidates are ids, or items with all that was sent of each."""
    items = candidates if isinstance(candidates[0], dict) else ()
    ids = tuple(item["item_id"] for item in items) or tuple(candidates)
    return Request(
        user_id=asked.user,
        candidates=ids,
        k=k,
        include=tuple(asked.include),
        exclude=tuple(asked.exclude),
        attributes=dict(zip(ids, items, strict=True)) if items else {},
        user_features=None if asked.user_features is None else tuple(asked.user_features),
        context=asked.context or {},
    )


def constraints_of(rules: Sequence[Mapping[str, Any]]) -> Constraints:
    """Rules as they stand in a body; the same list twice is read once."""
    if not rules:
        return Constraints()
    return _constraints(json.dumps(rules, sort_keys=True))


@lru_cache(maxsize=256)
def _constraints(text: str) -> Constraints:
    try:
        return Constraints.from_dict({"rule": json.loads(text)})
    except (TypeError, ValueError, OverflowError) as error:
        raise ConfigError(f"constraints: {error}") from error


def columns_of(items: Sequence[Mapping[str, Any]], fields: Sequence[str]) -> dict[str, np.ndarray]:
    """The columns some rules need of one request's items, [1, N] each."""
    columns = {"item_id": _column([item["item_id"] for item in items])}
    for field in fields:
        if not any(field in item for item in items):
            known = {name for item in items for name in item}
            raise InputError(f'the items have no field "{field}"{nearest(field, known)}')
        columns.setdefault(field, _column([item.get(field) for item in items]))
    return columns


def frame_of(items: Sequence[Mapping[str, Any]], fields: Sequence[str]) -> dict[str, list[Any]]:
    """The same as plain lists, field -> values: what `exactk.solve` takes as items."""
    return {name: column[0].tolist() for name, column in columns_of(items, fields).items()}


def _column(values: list[Any]) -> np.ndarray:
    if any(isinstance(value, dict) for value in values):
        raise InputError("an attribute that a rule reads must be a text, a number or a list of numbers")
    column = np.empty((1, len(values)), object)
    column[0] = values
    return column


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


def check_lists(body: bytes, limits: Settings) -> None:
    """Refuse a body of very many lists and objects unread: each costs as much to read as a hundred bytes of numbers."""
    count = body.count(b"[") + body.count(b"{")
    if count > limits.max_lists:
        detail = f"the body has {count} lists and objects; this service takes at most {limits.max_lists} (max_lists)"
        raise RefusalError(413, "size", "Too many", detail)


def check_items(items: Sequence[Any], limits: Settings, where: str = "items") -> None:
    """Refuse attributes that no rule could read or that the log could not give back."""
    for number, item in enumerate(items):
        if not isinstance(item, Mapping):
            return  # ids alone: all are of one kind
        place = f"{where}/{number}"
        _check_fields(item, place, limits)
        for name, value in item.items():
            _check_text(name, place, limits)
            if name == "features":
                check_features(value, f"{place}/features")
            else:
                check_value(value, f"{place}/{name}", limits, LONGEST_VECTOR)


def check_context(context: Mapping[str, Any] | None, limits: Settings) -> None:
    """Refuse what no model could read of a request, and what the log could not give back."""
    if context:
        _check_fields(context, "context", limits)
        check_value(context, "context", limits, LONGEST_VECTOR)


def check_features(features: Any, place: str) -> None:
    """A list of finite numbers; null stands for an unknown one. True and false are no numbers."""
    if features is None:
        return
    if not isinstance(features, list) or len(features) > LONGEST_VECTOR:
        raise InputError(f"{place} must be a list of at most {LONGEST_VECTOR} numbers, got {shown(features)}")
    for number, value in enumerate(features):
        plain = type(value) is int or type(value) is float
        inside = plain and -LARGEST_FEATURE <= value <= LARGEST_FEATURE  # no comparison holds for NaN
        if value is not None and not inside:
            wanted = "a number from -1e30 to 1e30 or null"
            raise InputError(f"{place}/{number} must be {wanted}, got {shown(value)}")


def check_value(value: Any, place: str, limits: Settings, longest: int | None = None, depth: int = 0) -> None:
    """Refuse long texts, deep nesting, long lists, endless numbers and whole ones beyond 2^53."""
    kind = type(value)
    if kind is str:
        _check_text(value, place, limits)
    elif kind is int:
        if not -LARGEST_WHOLE <= value <= LARGEST_WHOLE:
            raise InputError(
                f"{place}: the whole number {shown(value)} is beyond 2^53, where JSON loses digits; send it as text"
            )
    elif kind is float:
        if not math.isfinite(value):
            raise InputError(f"{place} must be a finite number, got {value}")
    elif kind is list or kind is dict:
        if depth >= limits.max_depth:
            raise InputError(f"{place} is nested deeper than {limits.max_depth} (max_depth)")
        if longest is not None and len(value) > longest:
            raise InputError(f"{place} has {len(value)} entries; this service takes at most {longest}")
        for name in value if kind is dict else ():
            _check_text(name, place, limits)
        for name, inner in value.items() if kind is dict else enumerate(value):
            check_value(inner, f"{place}/{name}" if depth < 2 else place, limits, longest, depth + 1)


def shown(value: Any, most: int = 40) -> str:
    """A value in few letters, for a message; a whole number of thousands of digits is only named."""
    if type(value) is int and value.bit_length() > 200:
        return f"a whole number of {value.bit_length()} bits"
    if isinstance(value, list | dict):
        return f"a {'list' if isinstance(value, list) else 'object'} of {len(value)}"
    text = repr(value)
    return text if len(text) <= most else f"{text[:most]}..."


def _check_text(text: str, place: str, limits: Settings) -> None:
    if len(text) > limits.max_text_letters:
        most = f"this service takes at most {limits.max_text_letters} (max_text_letters)"
        raise InputError(f"{place[:200]} is a text of {len(text)} letters; {most}")


def _check_fields(held: Mapping[str, Any], place: str, limits: Settings) -> None:
    if len(held) > limits.max_item_fields:
        most = f"this service takes at most {limits.max_item_fields} (max_item_fields)"
        raise InputError(f"{place} has {len(held)} fields; {most}")
