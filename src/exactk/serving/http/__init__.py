"""Errors as RFC 9457 problem bodies: one shape for everything that is not a success.

Knows no route.
"""

from __future__ import annotations

import json
import logging
import re
from collections import Counter
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel, Field, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from exactk.errors import ExactKError, InfeasibleError, OutOfTimeError, without_place

MEDIA_TYPE = "application/problem+json"
LONGEST_DETAIL = 1000
KIND = re.compile(r"(list|dict)\[|constrained-|(int|str|float|bool)$")
log = logging.getLogger("exactk.serving")


class ProblemBody(BaseModel):
    """What went wrong, in the words of RFC 9457, plus the two things a client of exactk may act on."""

    type: str = Field(examples=["urn:exactk:problem:infeasible"])
    title: str = Field(examples=["No valid card exists"])
    status: int = Field(examples=[409])
    detail: str = Field(examples=["no card of 4: at most 3 of the 8 candidates may share a card"])
    blocking: list[str] | None = Field(
        None, description="Infeasible only: a minimal set of rules that together forbid every card."
    )
    unfinished: list[str] | None = Field(
        None, description="Budget only, or a blocking set that may not be minimal: what time ran out for."
    )
    errors: list[dict[str, Any]] | None = Field(
        None, description="Invalid only: each offending place in the body, and why."
    )


class RefusalError(Exception):
    """Raised anywhere below a route: becomes this status and problem body."""

    def __init__(
        self,
        status: int,
        kind: str,
        title: str,
        detail: str,
        headers: dict[str, str] | None = None,
        unfinished: tuple[str, ...] = (),
    ):
        super().__init__(detail)
        self.status, self.kind, self.title, self.detail, self.headers = status, kind, title, detail, headers
        self.unfinished = unfinished

    def body(self) -> dict[str, Any]:
        """The problem as plain values; a detail that quotes what was sent is cut short."""
        cut = self.detail if len(self.detail) <= LONGEST_DETAIL else f"{self.detail[:LONGEST_DETAIL]} ..."
        problem: dict[str, Any] = {
            "type": f"urn:exactk:problem:{self.kind}",
            "title": self.title,
            "status": self.status,
            "detail": cut,
        }
        return problem | ({"unfinished": list(self.unfinished)} if self.unfinished else {})


def unfinished_refusal(*what: str, detail: str = "") -> RefusalError:
    """The answer where time ran out before there was a card, or a proof that there is none."""
    said = detail or f"no {' and '.join(what)} in the time given; ask for less, or with a larger budget_ms"
    return RefusalError(422, "budget", "Not finished within the budget", said, unfinished=what)


def closing_refusal() -> RefusalError:
    """The answer of a process that is about to end."""
    return RefusalError(503, "closing", "Shutting down", "this process takes no new requests")


def problem_of(error: BaseException) -> dict[str, Any]:
    """The problem body of any error exactk or the framework raises on purpose; others are our fault."""
    if isinstance(error, RefusalError):
        return error.body()
    if isinstance(error, InfeasibleError):
        body = RefusalError(409, "infeasible", "No valid card exists", without_place(error)).body()
        unproven = {} if error.minimal else {"unfinished": ["blocking"]}
        return {**body, "blocking": list(error.blocking), **unproven}
    if isinstance(error, OutOfTimeError):
        return unfinished_refusal("card", detail=str(error)).body()
    if isinstance(error, ValidationError):
        return _invalid(error)
    if isinstance(error, ExactKError):
        return RefusalError(422, "invalid", "The request cannot be used", without_place(error)).body()
    if isinstance(error, HTTPException):
        phrase = HTTPStatus(error.status_code).phrase
        return RefusalError(error.status_code, "http", phrase, str(error.detail)).body()
    return RefusalError(500, "internal", "Our fault", "an unexpected error; it has been logged").body()


def _invalid(error: ValidationError) -> dict[str, Any]:
    complaints = error.errors(include_url=False, include_context=False, include_input=False)
    found = _of_one_choice([(each["loc"], each["msg"]) for each in complaints])[:20]
    first = found[0]
    body = RefusalError(422, "invalid", "The request cannot be used", f"{first['at']}: {first['why']}").body()
    return {**body, "errors": found}


def _of_one_choice(complaints: list[tuple[tuple[int | str, ...], str]]) -> list[dict[str, str]]:
    """Places and reasons. Where a value may be one of several kinds, pydantic complains about each of them.

    The kind with the fewest complaints is what was meant; where several are as near, all are named.
    """
    counts: dict[tuple[Any, ...], Counter[str]] = {}
    for place, _ in complaints:
        before, kind, _rest = _parted(place)
        if kind:
            counts.setdefault(before, Counter())[kind] += 1
    whys: dict[str, list[str]] = {}
    for place, why in complaints:
        before, kind, rest = _parted(place)
        if kind and counts[before][kind] > min(counts[before].values()):
            continue
        listed = whys.setdefault("/" + "/".join(str(step) for step in (*before, *rest)), [])
        if why not in listed:
            listed.append(why)
    return [{"at": at[:200], "why": "; or: ".join(listed)[:500]} for at, listed in whys.items()]


def _parted(place: tuple[int | str, ...]) -> tuple[tuple[Any, ...], str, tuple[Any, ...]]:
    """What stands before and behind the name pydantic gives to one kind of a value; no name, no kind."""
    for at, step in enumerate(place[1:], 1):
        if isinstance(step, str) and KIND.match(step):
            return place[:at], step, place[at + 1 :]
    return place, "", ()


def problem_response(problem: dict[str, Any], headers: dict[str, str] | None = None) -> Response:
    """A problem on the wire."""
    body = json.dumps(problem, allow_nan=False).encode()
    return Response(body, problem["status"], headers, MEDIA_TYPE)


async def _answer(request: Request, error: Exception) -> Response:
    return response_to(error, f"{request.method} {request.url.path}")


def logged_problem_of(error: BaseException, where: str) -> dict[str, Any]:
    """The problem of any error; what nobody raised on purpose is logged."""
    problem = problem_of(error)
    if problem["status"] == 500:
        log.error("unexpected error on %s", where, exc_info=error)
    return problem


def response_to(error: BaseException, where: str) -> Response:
    """The answer to any error."""
    problem = logged_problem_of(error, where)
    headers = error.headers if isinstance(error, RefusalError | HTTPException) else None
    return problem_response(problem, dict(headers) if headers else None)


def install(app: FastAPI) -> None:
    """Answer every error of this app with a problem body."""
    for kind in (RefusalError, ExactKError, ValidationError, HTTPException, Exception):
        app.add_exception_handler(kind, _answer)
