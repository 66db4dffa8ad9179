"""The HTTP doors of `exactk bench torture`: hostile clients and good ones ask a real service side by side.

Counts who was not answered, answered with a 5xx or a traceback, or given a wrong card, and how far past their budgets
answers came. Knows `serve.py`'s model and server process, what is sent from next door, nothing of the service's inside.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from exactk_lab.bench.report import Goal
from exactk_lab.bench.service.load import as_http
from exactk_lab.bench.service.serve import SEED, fit_model, started
from exactk_lab.bench.torture.http_requests import Sent, good_requests, hostile_requests

SERVE = """
import sys
from pathlib import Path
from exactk.serving.run import serve
serve(model=Path(sys.argv[2]), port=int(sys.argv[1]), log_level="critical", log=Path(sys.argv[3]))
"""
NEVER = ("hangs", "server_errors", "tracebacks", "wrong")
HANG_SECONDS = 30.0
HOSTILE_CLIENTS, GOOD_CLIENTS = 4, 4
PAUSE_SECONDS = 0.005


@dataclass
class Outcome:
    """What came of all requests of one kind."""

    ms: list[float] = field(default_factory=list)
    late_ms: list[float] = field(default_factory=list)  # past the budget; negative where there was time left
    hangs: int = 0
    server_errors: int = 0
    tracebacks: int = 0
    refused: int = 0  # for want of time or places: 429, or 422 by the budget
    wrong: int = 0
    example: str = ""


def doors(quick: bool = False) -> list[dict[str, Any]]:
    """One row per kind of request, and one for all of them."""
    seconds = 20.0 if quick else 300.0
    with tempfile.TemporaryDirectory(prefix="exactk-torture-") as scratch:
        model = Path(scratch) / "model"
        fit_model(model)
        with started(SERVE, str(model), str(Path(scratch) / "log")) as (port, _):
            outcomes = asyncio.run(_mixed_load(port, seconds))
    together = Outcome()
    for outcome in outcomes.values():
        together.ms += outcome.ms
        together.late_ms += outcome.late_ms
        for name in ("hangs", "server_errors", "tracebacks", "refused", "wrong"):
            setattr(together, name, getattr(together, name) + getattr(outcome, name))
    return [_row(kind, outcome) for kind, outcome in sorted(outcomes.items())] + [_row("all", together)]


def goals(rows: list[dict[str, Any]]) -> list[Goal]:
    """What must hold of all requests together."""
    together = rows[-1]
    never = [Goal(f"{name} over HTTP", float(together[name]), 0.0, "most") for name in NEVER]
    return [
        *never,
        Goal("ms past the budget, p99 of a mixed load", together["p99_past_budget_ms"], 50.0, "most"),
    ]


def _row(kind: str, outcome: Outcome) -> dict[str, Any]:
    ms, late = (np.array(values or [np.nan]) for values in (outcome.ms, outcome.late_ms))
    return {
        "door": "HTTP",
        "what": kind,
        "tried": len(outcome.ms) + outcome.hangs,
        "hangs": outcome.hangs,
        "server_errors": outcome.server_errors,
        "tracebacks": outcome.tracebacks,
        "refused": outcome.refused,
        "wrong": outcome.wrong,
        "p50_ms": float(np.quantile(ms, 0.5)),
        "p99_ms": float(np.quantile(ms, 0.99)),
        "p99_past_budget_ms": float(np.quantile(late, 0.99)),
        **({"example": outcome.example} if outcome.example else {}),
    }


async def _mixed_load(port: int, seconds: float) -> dict[str, Outcome]:
    outcomes: dict[str, Outcome] = defaultdict(Outcome)
    stop = perf_counter() + seconds
    hostile, good = hostile_requests(), good_requests()

    async def client(number: int, requests: list[Sent]) -> None:
        order = np.random.default_rng(SEED + number).permutation(len(requests))
        turn = 0
        while perf_counter() < stop:
            await _ask(port, requests[order[turn % len(order)]], outcomes)
            turn += 1
            await asyncio.sleep(PAUSE_SECONDS)

    await asyncio.gather(
        *(client(number, hostile) for number in range(HOSTILE_CLIENTS)),
        *(client(HOSTILE_CLIENTS + number, good) for number in range(GOOD_CLIENTS)),
    )
    return outcomes


async def _ask(port: int, sent: Sent, outcomes: dict[str, Outcome]) -> None:
    """One request on a connection of its own; its time counts from the last byte sent to the last one received."""
    outcome = outcomes[sent.kind]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(
            as_http(sent.path, sent.body, port).replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n", 1)
        )
        begun = perf_counter()
        reply = await asyncio.wait_for(reader.read(-1), HANG_SECONDS)
    except TimeoutError:
        outcome.hangs += 1
        return
    except ConnectionError:
        reply = b""  # refused at the door while the body was still on its way
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
    took = (perf_counter() - begun) * 1000
    outcome.ms.append(took)
    outcome.late_ms.append(took - sent.budget_ms)
    if reply:
        head, _, body = reply.partition(b"\r\n\r\n")
        status, answer = int(head[9:12]), _json(body)
        out_of_time = status == 429 or (status == 422 and b"problem:budget" in body)
        right = out_of_time or sent.is_right(status, answer)
        outcome.refused += out_of_time
        outcome.server_errors += status >= 500
        outcome.tracebacks += b"Traceback" in body
        outcome.wrong += not right
        if status >= 500 or not right:
            outcome.example = outcome.example or f"{status} {body[:200].decode(errors='replace')}"


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return None
