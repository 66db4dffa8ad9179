"""A load generator for one URL: as fast as the server answers, or at a fixed rate; run as a process of its own.

Knows nothing of what it sends. At a fixed rate a request's time counts from when it was due, so that a server that
stalls is charged for everyone who had to wait.
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import uvloop

END = b"\r\n\r\n"


@dataclass
class Tally:
    """What came back: milliseconds of each good answer, and how many were not good."""

    ms: list[float] = field(default_factory=list)
    bad: int = 0
    example: str = ""


class Connection(asyncio.Protocol):
    """One kept-alive connection that sends one request at a time."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._waiting: asyncio.Future[tuple[int, bytes]] | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(error or ConnectionResetError("the server closed the connection"))

    def send(self, request: bytes) -> asyncio.Future[tuple[int, bytes]]:
        """A future for status and body."""
        assert self._transport is not None
        self._waiting = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._waiting

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head = self._buffer.find(END)
        if head < 0 or self._waiting is None:
            return
        fields = bytes(self._buffer[:head]).lower()
        at = fields.find(b"content-length:")
        length = int(fields[at + 15 :].split(b"\r\n", 1)[0])
        if len(self._buffer) < head + 4 + length:
            return
        body = bytes(self._buffer[head + 4 : head + 4 + length])
        self._buffer.clear()
        if not self._waiting.done():
            self._waiting.set_result((int(fields[9:12]), body))

    def close(self) -> None:
        """Hang up."""
        if self._transport is not None:
            self._transport.close()


def as_http(path: str, body: bytes, port: int) -> bytes:
    """A POST, ready to be written."""
    head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


async def closed_loop(port: int, requests: list[bytes], connections: int, seconds: float) -> Tally:
    """Every connection asks again as soon as it is answered: the most the server can do."""
    tally = Tally()
    stop = perf_counter() + seconds

    async def ask(number: int) -> None:
        connection = await _connected(port)
        turn = number
        while perf_counter() < stop:
            started = perf_counter()
            _note(tally, *await connection.send(requests[turn % len(requests)]), started)
            turn += connections
        connection.close()

    await asyncio.gather(*(ask(number) for number in range(connections)))
    return tally


async def open_loop(
    port: int, requests: list[bytes], rate: float, seconds: float, connections: int = 64
) -> Tally:
    """Requests fall due evenly at `rate` a second, whether or not earlier ones are answered."""
    tally = Tally()
    free: asyncio.Queue[Connection] = asyncio.Queue()
    for _ in range(connections):
        free.put_nowait(await _connected(port))
    begun = perf_counter()
    running: set[asyncio.Task[None]] = set()

    async def ask(request: bytes, due: float) -> None:
        connection = await free.get()
        try:
            _note(tally, *await connection.send(request), due)
        finally:
            free.put_nowait(connection)

    for number in range(int(rate * seconds)):
        due = begun + number / rate
        wait = due - perf_counter()
        if wait > 0:
            await asyncio.sleep(wait)
        task = asyncio.create_task(ask(requests[number % len(requests)], due))
        running.add(task)
        task.add_done_callback(running.discard)
    await asyncio.gather(*running)
    while not free.empty():
        free.get_nowait().close()
    return tally


async def _connected(port: int) -> Connection:
    _, connection = await asyncio.get_running_loop().create_connection(Connection, "127.0.0.1", port)
    return connection


def _note(tally: Tally, status: int, body: bytes, since: float) -> None:
    tally.ms.append((perf_counter() - since) * 1000)
    if status != 200:
        tally.bad += 1
        tally.example = tally.example or body[:300].decode(errors="replace")


def summary(tally: Tally, seconds: float) -> dict[str, Any]:
    """Rate, median and 99th percentile."""
    ordered = sorted(tally.ms) or [float("nan")]
    return {
        "requests_per_s": len(tally.ms) / seconds,
        "p50_ms": ordered[len(ordered) // 2],
        "p99_ms": ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))],
        "bad": tally.bad,
        "example": tally.example,
    }


def main() -> None:
    """Reads one JSON order from stdin ({port, path, bodies, seconds, and connections or rate}), writes one summary."""
    order = json.load(sys.stdin)
    requests = [as_http(order["path"], body.encode(), order["port"]) for body in order["bodies"]]
    seconds = float(order["seconds"])
    if "rate" in order:
        tally = uvloop.run(open_loop(order["port"], requests, order["rate"], seconds))
    else:
        tally = uvloop.run(closed_loop(order["port"], requests, order["connections"], seconds))
    sys.stdout.write(json.dumps(summary(tally, seconds)))


if __name__ == "__main__":
    main()
