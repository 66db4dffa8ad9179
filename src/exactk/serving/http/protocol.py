"""uvicorn's protocol, with patience in seconds and bytes, and a fast path for the two busiest routes.

Knows uvicorn from inside and the gate's checks, no route. Bodies are timed in `security.py`; here are the head of a
request, the reading of an answer, and how many connections there may be: uvicorn waits for these without end. What a
proxy before us could take for another request than we do (two hosts, an encoding that is not plainly "chunked", a
version that is none) is refused; an offer to change the protocol is not taken up, and the request is read without it.

The fast path: a POST to one of the busiest routes whose body came whole is answered by the protocol itself. The way
through the app costs about as much as a card: a task, an event, a timer, four layers and two writes. Whatever is not
plain (a slow or large body, a missing key, a client that does not read, an error) takes it, with the same answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from time import perf_counter
from typing import Any, NamedTuple

import httptools
from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from exactk.serving.http import MEDIA_TYPE, RefusalError, problem_response, response_to
from exactk.serving.http.security import Gate
from exactk.serving.http.wire import as_response
from exactk.serving.metrics import Measure

# Under these names the app's lifespan leaves to the protocol what it must know.
PATIENCE, FAST_PATH = "exactk_patience", "exactk_fast_path"


class Patience(NamedTuple):
    """Seconds a head may take from the connection or its first byte, seconds an answer may lie unread, and sizes."""

    head_seconds: float = 10.0
    unread_seconds: float = 30.0
    connections: int = 1000
    head_bytes: int = 64 << 10
    pipelined: int = 32  # requests sent ahead of their answers; uvicorn would keep any number


class Parser(httptools.HttpRequestParser):
    """uvicorn's parser, which goes on reading where a client offers to change the protocol."""

    def __init__(self, protocol: GuardedProtocol) -> None:
        super().__init__(protocol)
        self._protocol = protocol
        # As uvicorn does: bytes behind a last request must not spoil its answer.
        self.set_dangerous_leniencies(lenient_data_after_close=True)

    def feed_data(self, data: Any) -> None:
        try:
            super().feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            self._protocol.go_on(bytes(data[offer.args[0] :]))


class GuardedProtocol(HttpToolsProtocol):
    """One timer per connection looks now and then; a request costs two clock readings."""

    def connection_made(self, transport: Any) -> None:
        """Begin to count; one connection too many is refused."""
        super().connection_made(transport)
        self._patience: Patience = self.app_state.get(PATIENCE, Patience())
        self._head_since: float | None = self.loop.time()
        self._head_bytes = 0
        self._unread_since: float | None = None
        self._without_offer: bytes | None = None
        self.parser = Parser(self)
        if len(self.connections) > self._patience.connections:
            self._refuse(503, "crowded", "Too many connections", "come back in a moment")
            return
        self._look_again()

    def data_received(self, data: bytes) -> None:
        """Bytes after a whole request start the clock of the next, even if they are only line breaks."""
        if self._head_since is None and self.cycle.response_complete:  # there was a head, hence a cycle
            self._head_since = self.loop.time()
        if self._head_since is not None:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._head_since is not None and self._head_bytes > self._patience.head_bytes:
            limit = f"a request's headers may hold at most {self._patience.head_bytes} bytes"
            self._refuse(431, "size", "The headers are too large", limit)

    def on_message_begin(self) -> None:
        """So do those of a request that came right behind another."""
        self._head_since = self.loop.time()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """The head is whole: its clock stops, unless it comes once more without an offer to change the protocol."""
        self._check_head()
        if self.parser.should_upgrade():
            self._without_offer = self._head_without_offer()
            return
        if len(self.pipeline) >= self._patience.pipelined:
            raise ValueError("too many requests at once on one connection")  # the parser stops: 400
        self._head_since, self._head_bytes = None, 0
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The parser takes the body behind an offer for another protocol's bytes: that end is none."""
        if self._without_offer is None:
            super().on_message_complete()

    def go_on(self, rest: bytes) -> None:
        """Read the request again without its offer, and what came behind it."""
        assert self._without_offer is not None  # the parser stops nowhere else
        head, self._without_offer = self._without_offer, None
        self.parser = Parser(self)
        self.parser.feed_data(head + rest)

    def _check_head(self) -> None:
        """An error here stops the parser: 400 is answered and the connection closed."""
        version = self.parser.get_http_version()
        names = [name for name, _ in self.headers]
        hosts, encodings = names.count(b"host"), names.count(b"transfer-encoding")
        if version not in ("1.0", "1.1") or self.parser.get_method() == b"CONNECT":
            raise ValueError("not HTTP/1.1, or a tunnel was asked for")
        if hosts > 1 or (hosts == 0 and version == "1.1"):
            raise ValueError("a request names exactly one host")
        if encodings and (encodings > 1 or dict(self.headers)[b"transfer-encoding"].lower() != b"chunked"):
            raise ValueError("the only transfer encoding is chunked")

    def _head_without_offer(self) -> bytes:
        method, version = self.parser.get_method(), self.parser.get_http_version().encode()
        head = b"%b %b HTTP/%b\r\n" % (method, self.url, version)
        for name, value in self.headers:
            if name not in (b"upgrade", b"http2-settings"):
                head += b"%b: %b\r\n" % (name, b"keep-alive" if name == b"connection" else value)
        return head + b"\r\n"

    def pause_writing(self) -> None:
        self._unread_since = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        self._unread_since = None
        super().resume_writing()

    def _look_again(self) -> None:
        shortest = min(self._patience.head_seconds, self._patience.unread_seconds)
        self.loop.call_later(shortest / 4, self._look)

    def _look(self) -> None:
        if self.transport.is_closing():
            return
        now = self.loop.time()
        if self._unread_since is not None and now - self._unread_since >= self._patience.unread_seconds:
            self.transport.abort()
        elif self._head_since is not None and now - self._head_since >= self._patience.head_seconds:
            late = f"no whole head within {self._patience.head_seconds:g} s"
            self._refuse(408, "slow", "The request came too slowly", late)
        else:
            self._look_again()

    def _refuse(self, status: int, kind: str, title: str, detail: str) -> None:
        if self.transport.is_closing():
            return
        body: Any = problem_response(RefusalError(status, kind, title, detail).body()).body
        head = f"HTTP/1.1 {status} {title}\r\ncontent-type: {MEDIA_TYPE}\r\ncontent-length: {len(body)}\r\n"
        self.transport.write(head.encode() + b"connection: close\r\n\r\n" + body)
        self.transport.close()


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
        self._fast_path: FastPath | None = self.app_state.get(FAST_PATH)
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
        super().on_message_complete()
        if self._held is not None:
            self._answer(*self._let_go())

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        waits = cycle.waiting_for_100_continue  # for a word from the app, before it sends its body
        covers = self._fast_path is not None and self._fast_path.covers(cycle.scope)
        if self._in_head and covers and not waits:
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
