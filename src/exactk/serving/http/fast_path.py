"""The fast path: a POST to one of the busiest routes whose body came whole is answered by the protocol itself.

Knows uvicorn's protocol and the gate's checks, not what a route does. Whatever is not plain (a slow or large body, a
missing key, a client that does not read, an error) goes through the app, with the same answers. That way,
from bytes to app and back, costs about as much as a card: a task, an event, a timer, four layers and two writes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from time import perf_counter
from typing import Any

from starlette.types import Scope

from exactk.serving.http.guard import GuardedProtocol
from exactk.serving.http.problems import response_to
from exactk.serving.http.security import Gate
from exactk.serving.http.wire import as_response
from exactk.serving.metrics import Measure

STATE = "exactk_fast_path"  # where the app's lifespan leaves it for the protocol
HOLD_SECONDS = 0.02  # many clients send head and body apart; a body later than this is for the app to time

Handler = Callable[[bytes], Coroutine[Any, Any, bytes]]
JSON_LINE = b"content-type: application/json\r\n"


class FastPath:
    """Which routes have a fast path, who may take it, and how what it answered is counted."""

    def __init__(self, handlers: Mapping[str, Handler], gate: Gate, measure: Measure) -> None:
        self._handlers, self._gate, self._measure = handlers, gate, measure

    def covers(self, scope: Scope) -> bool:
        """Whether the route has a fast path."""
        return scope["method"] == "POST" and scope["path"] in self._handlers

    def handler(self, scope: Scope, body: bytearray) -> Handler | None:
        """What answers this request; None where the app must look at it, since the gate would refuse it."""
        if self._gate.refusal(scope, len(body)) is not None:
            return None
        return self._handlers[scope["path"]]

    def count(self, scope: Scope, status: int, seconds: float) -> None:
        """As the app counts what it answers."""
        self._measure.note(scope["path"], status, seconds)


class FastPathProtocol(GuardedProtocol):
    """Holds a request back for a moment: if its body is whole by then, it takes the fast path."""

    def connection_made(self, transport: Any) -> None:
        """One fast path for all connections of a process; an app without one is served as usual."""
        self._fast_path: FastPath | None = self.app_state.get(STATE)
        self._held: tuple[Any, Any] | None = None  # a cycle and its app
        self._late: asyncio.TimerHandle | None = None
        self._in_head = False
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Take in what came; a request whose body is still on its way waits a moment for it."""
        super().data_received(data)
        if self._held is not None and self._late is None:
            seconds = 0.0 if self.flow.read_paused else HOLD_SECONDS  # paused: more than uvicorn keeps ahead
            self._late = self.loop.call_later(seconds, self._leave_to_app)

    def on_headers_complete(self) -> None:
        """A request that begins here may be held back; one that waited behind another may not."""
        self._in_head = True
        try:
            super().on_headers_complete()
        finally:
            self._in_head = False

    def on_message_complete(self) -> None:
        """The body is whole."""
        super().on_message_complete()
        if self._held is not None:
            self._answer(*self._let_go())

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        waits = cycle.waiting_for_100_continue  # for a word from the app, before it sends its body
        if (
            self._in_head
            and self._fast_path is not None
            and self._fast_path.covers(cycle.scope)
            and not waits
        ):
            self._held = (cycle, app)
        else:
            super()._start_asgi_task(cycle, app)

    def _let_go(self) -> tuple[Any, Any]:
        assert self._held is not None
        held, self._held = self._held, None
        if self._late is not None:
            self._late.cancel()
            self._late = None
        return held

    def _leave_to_app(self) -> None:
        if self._held is not None:
            super()._start_asgi_task(*self._let_go())

    def _answer(self, cycle: Any, app: Any) -> None:
        assert self._fast_path is not None  # it held the request back
        handler = self._fast_path.handler(cycle.scope, cycle.body)
        if handler is None:
            super()._start_asgi_task(cycle, app)
            return
        task: asyncio.Task[Any] = self.loop.create_task(handler(bytes(cycle.body)))
        self.tasks.add(task)  # a graceful end waits for it
        task.add_done_callback(partial(self._answered, cycle, self._fast_path, perf_counter()))

    def _answered(self, cycle: Any, fast_path: FastPath, started: float, task: asyncio.Task[Any]) -> None:
        self.tasks.discard(task)
        if task.cancelled():  # by an end that was not graceful
            self.transport.close()
            return
        error = task.exception()
        response: Any = None
        if error is not None:
            response = response_to(error, f"POST {cycle.scope['path']}")
        elif self.flow.write_paused:
            response = as_response(task.result())
        fast_path.count(cycle.scope, response.status_code if response else 200, perf_counter() - started)
        if cycle.disconnected or self.transport.is_closing():
            return
        if response is not None:
            super()._start_asgi_task(cycle, response)
            return
        body: bytes = task.result()
        cycle.response_started = cycle.response_complete = True
        self.transport.write(self._head(cycle.keep_alive, len(body)) + body)  # at once, not head first
        cycle.message_event.set()
        if not cycle.keep_alive:
            self.transport.close()
        self.on_response_complete()

    def _head(self, keep_alive: bool, length: int) -> bytes:
        usual = b"".join([b"%b: %b\r\n" % each for each in self.server_state.default_headers])
        last = b"" if keep_alive else b"connection: close\r\n"
        return b"HTTP/1.1 200 OK\r\n%b%bcontent-length: %d\r\n%b\r\n" % (usual, JSON_LINE, length, last)
