"""A real service on a loopback port, in a thread of the test process; and the workers of one in processes."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import uvicorn
from fastapi import FastAPI

from exactk.serving.app import create_app
from exactk.serving.http.protocol import FastPathProtocol
from exactk.serving.run import listening
from exactk.serving.settings import Settings


@contextmanager
def served(settings: Settings, send_buffer: int | None = None, app: FastAPI | None = None) -> Iterator[str]:
    """Yields the address; leaving shuts down gracefully."""
    listener = listening("127.0.0.1", 0)
    if send_buffer is not None:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
    config = uvicorn.Config(
        app or create_app(settings), log_level="critical", access_log=False, ws="none", http=FastPathProtocol
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    deadline = time.monotonic() + 240
    while not server.started:
        if not thread.is_alive() or time.monotonic() > deadline:
            raise RuntimeError("the service did not start")
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(30)
        listener.close()


@contextmanager
def client_of(settings: Settings) -> Iterator[httpx.Client]:
    """A client of a fresh service."""
    with served(settings) as address, httpx.Client(base_url=address, timeout=30) as client:
        yield client


def workers_of(parent: int) -> list[int]:
    """The children that serve (multiprocessing starts one more that keeps track of resources)."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            command = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if int(fields[1]) == parent and fields[0] != "Z" and b"spawn_main" in command:
            found.append(int(entry.name))
    return found
