"""The HTTP doors of the torture count what they are there to count: servers that do everything wrong are found out."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable

import pytest

from exactk_lab.bench.torture import http_door
from exactk_lab.bench.torture.http_door import Outcome, goals
from exactk_lab.bench.torture.http_requests import Sent, good_requests


def outcome_of(reply: bytes | None, sent: Sent) -> Outcome:
    """What is counted where a server gives this reply, or none."""
    outcomes: dict[str, Outcome] = defaultdict(Outcome)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        if reply is None:
            await reader.read()  # until the client gives up
        else:
            writer.write(reply)
        writer.close()

    async def main() -> None:
        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            await http_door._ask(server.sockets[0].getsockname()[1], sent, outcomes)

    asyncio.run(main())
    return outcomes[sent.kind]


def http(status: int, body: str) -> bytes:
    return f"HTTP/1.1 {status} X\r\ncontent-length: {len(body)}\r\n\r\n{body}".encode()


@pytest.mark.parametrize(
    ("reply", "found"),
    [
        (
            http(500, "Traceback (most recent call last)"),
            lambda o: o.server_errors == o.tracebacks == o.wrong == 1,
        ),
        (http(200, '{"card": ["nobody", "x", "y", "z"]}'), lambda o: o.wrong == 1 and not o.server_errors),
        (http(200, "no json"), lambda o: o.wrong == 1),
        (http(429, "{}"), lambda o: o.refused == 1 and not o.wrong),
        (None, lambda o: o.hangs == 1 and not o.ms),
    ],
    ids=["a traceback", "a wrong card", "no JSON", "too many", "silence"],
)
def test_what_goes_wrong_is_counted(
    monkeypatch: pytest.MonkeyPatch, reply: bytes | None, found: Callable[[Outcome], bool]
) -> None:
    monkeypatch.setattr(http_door, "HANG_SECONDS", 0.3)
    assert found(outcome_of(reply, good_requests()[0]))


def test_goals_are_missed_where_anything_went_wrong() -> None:
    good = http_door._row("all", Outcome(ms=[10.0], late_ms=[-90.0]))
    assert all(goal.met for goal in goals([good]))
    for name in ("hangs", "server_errors", "tracebacks", "wrong"):
        assert not all(goal.met for goal in goals([{**good, name: 1}]))
    assert not all(goal.met for goal in goals([http_door._row("all", Outcome(ms=[160.0], late_ms=[60.0]))]))
