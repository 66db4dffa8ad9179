"""The fast path: whole requests are answered without the app, all others by it, and nobody can tell the difference."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx
import numpy as np
import pytest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from exactk.serving.app import Fronted, create_app
from exactk.serving.http.protocol import HOLD_SECONDS
from exactk.serving.http.security import new_key
from exactk.serving.schemas import SOLVE_EXAMPLE
from exactk.serving.settings import Settings
from serving_server import served

CHANGING = {b"date", b"content-length", b"server"}  # the last one is off in `serve`
BODY = json.dumps(SOLVE_EXAMPLE).encode()


def request(body: bytes = BODY, *headers: str, path: str = "/v1/solve", version: str = "1.1") -> bytes:
    """A POST as bytes."""
    lines = [
        f"POST {path} HTTP/{version}",
        "host: x",
        f"content-length: {len(body)}",
        *headers,
        "",
        "",
    ]
    return "\r\n".join(lines).encode() + body


@contextmanager
def connected(address: str) -> Iterator[socket.socket]:
    host, port = address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.settimeout(60)
        yield connection


def answers(connection: socket.socket, count: int = 1) -> list[tuple[bytes, dict[str, Any]]]:
    """Heads and bodies of the next answers."""
    heard = b""
    found: list[tuple[bytes, dict[str, Any]]] = []
    while len(found) < count:
        head, end, rest = heard.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0]) if end else 1
        if end and len(rest) >= length:
            found.append((head, json.loads(rest[:length])))
            heard = rest[length:]
            continue
        piece = connection.recv(65536)
        assert piece, f"the connection ended after {heard!r}"
        heard += piece
    assert heard == b""
    return found


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with served(Settings()) as at:
        yield at


@pytest.fixture(scope="module")
def behind_a_shut_app() -> Iterator[str]:
    """A service whose app answers everything with 418: a card can only come by the fast path."""

    async def shut(scope: Scope, receive: Receive, send: Send) -> None:
        await Response(b'{"from": "the app"}', 418, media_type="application/json")(scope, receive, send)

    app = create_app(Settings())
    assert isinstance(app, Fronted)
    app.front = shut
    with served(Settings(), app=app) as at:
        yield at


def test_a_whole_request_never_enters_the_app(behind_a_shut_app: str) -> None:
    with connected(behind_a_shut_app) as connection:
        for _ in range(2):  # on a connection that is kept
            connection.sendall(request())
            ((head, body),) = answers(connection)
            assert head.startswith(b"HTTP/1.1 200 OK\r\n")
            assert body["card"] == ["scarf-red", "beanie", "boots"]


def test_other_routes_and_late_bodies_do(behind_a_shut_app: str) -> None:
    with connected(behind_a_shut_app) as connection:
        connection.sendall(request(path="/v1/feedback"))
        assert answers(connection)[0][0].startswith(b"HTTP/1.1 418")
        connection.sendall(request()[:-5])
        time.sleep(20 * HOLD_SECONDS)
        connection.sendall(request()[-5:])
        assert answers(connection)[0][0].startswith(b"HTTP/1.1 418")


def test_both_ways_give_the_same_answer(address: str) -> None:
    heads, bodies = [], []
    for pause in (None, 20 * HOLD_SECONDS):
        with connected(address) as connection:
            sent = request()
            if pause is None:
                connection.sendall(sent)
            else:
                connection.sendall(sent[:-5])
                time.sleep(pause)
                connection.sendall(sent[-5:])
            ((head, body),) = answers(connection)
        fields = (line.partition(b": ") for line in head.lower().split(b"\r\n")[1:])
        heads.append({name: value for name, _, value in fields if name not in CHANGING})
        bodies.append({name: value for name, value in body.items() if name != "ms"})
    assert heads[0] == heads[1] == {b"content-type": b"application/json"}
    assert bodies[0] == bodies[1]


def test_head_and_body_sent_apart_one_byte_at_a_time_are_one_request(address: str) -> None:
    with connected(address) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in request():
            connection.sendall(bytes([byte]))
        assert answers(connection)[0][1]["card"] == ["scarf-red", "beanie", "boots"]


def test_requests_sent_ahead_are_answered_in_order(address: str) -> None:
    sizes = [1, 2, 3, 2, 1]
    with connected(address) as connection:
        connection.sendall(
            b"".join(request(json.dumps({"k": k, "scores": [3, 2, 1]}).encode()) for k in sizes)
        )
        assert [len(body["card"]) for _, body in answers(connection, len(sizes))] == sizes


@pytest.mark.parametrize(
    ("body", "path", "status"),
    [
        (b"{", "/v1/solve", 422),
        (b"", "/v1/solve", 422),
        (json.dumps({**SOLVE_EXAMPLE, "k": 4}).encode(), "/v1/solve", 409),  # the two scarves are too alike
        (BODY, "/v1/cards", 404),
        (b"[" * 3_000_000, "/v1/solve", 413),
    ],
)
def test_errors_are_problems_and_the_connection_goes_on(
    address: str, body: bytes, path: str, status: int
) -> None:
    with connected(address) as connection:
        connection.sendall(request(body, path=path))
        ((head, problem),) = answers(connection)
        assert head.startswith(f"HTTP/1.1 {status} ".encode())
        assert b"application/problem+json" in head
        assert problem["status"] == status
        if status != 413:
            connection.sendall(request())
            assert answers(connection)[0][0].startswith(b"HTTP/1.1 200")


def test_a_client_of_the_first_http_is_answered_and_hung_up_on(address: str) -> None:
    with connected(address) as connection:
        connection.sendall(request(version="1.0"))
        heard = b"".join(iter(lambda: connection.recv(65536), b""))
    assert b"connection: close\r\n" in heard
    assert b'"card":["scarf-red","beanie","boots"]' in heard


def test_who_asks_before_sending_a_body_is_told_to_go_on_at_once(address: str) -> None:
    with connected(address) as connection:
        whole = request(BODY, "expect: 100-continue")
        connection.sendall(whole[: -len(BODY)])
        assert connection.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(BODY)
        assert answers(connection)[0][0].startswith(b"HTTP/1.1 200")


def test_the_fast_path_has_the_same_lock() -> None:
    key, digest = new_key()
    with served(Settings(key_hashes=(digest,))) as at, connected(at) as connection:
        connection.sendall(request(BODY, f"x-api-key: {key}"))
        assert answers(connection)[0][0].startswith(b"HTTP/1.1 200")
        connection.sendall(request(BODY, "x-api-key: ek_wrong"))
        assert answers(connection)[0][0].startswith(b"HTTP/1.1 401")


def test_what_the_fast_path_answers_is_counted() -> None:
    with served(Settings()) as at:
        with connected(at) as connection:
            for body in (BODY, BODY, b"{"):
                connection.sendall(request(body))
                answers(connection)
        told = httpx.get(f"{at}/metrics", timeout=30).text
    assert 'exactk_responses_total{route="/v1/solve",status="200"} 2.0' in told
    assert 'exactk_responses_total{route="/v1/solve",status="422"} 1.0' in told
    assert 'exactk_seconds_count{route="/v1/solve"} 3.0' in told


def test_clients_that_leave_before_their_answer_harm_nobody(address: str) -> None:
    for cut in (0, 5):
        for _ in range(20):
            with connected(address) as connection:
                connection.sendall(request()[: len(request()) - cut])
    with connected(address) as connection:
        connection.sendall(request())
        assert answers(connection)[0][0].startswith(b"HTTP/1.1 200")


def test_an_end_that_was_asked_for_waits_for_the_fast_path() -> None:
    """The service is told to stop while it searches; the answer still comes."""
    draws = np.random.default_rng(0).normal(size=(60, 60)).round(2)
    pairs = np.triu(draws, 1) + np.triu(draws, 1).T
    hard = json.dumps(
        {"k": 24, "scores": [1.0] * 60, "pair_scores": pairs.tolist(), "budget_ms": 1500}
    ).encode()
    assert len(hard) < 40_000  # larger ones go the long way
    with ExitStack() as client:
        with served(Settings()) as at:
            connection = client.enter_context(connected(at))
            connection.sendall(request(hard))
            time.sleep(0.4)
        ((head, body),) = answers(connection)
    assert b"connection: close" in head
    assert len(body["card"]) == 24
    assert body["ms"] > 500
