"""A real web server for downloads: serves a folder on this machine, and breaks off or ignores ranges when told to."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


@dataclass
class Behaviour:
    """How the server treats its clients; `asked` records each path and range."""

    root: Path
    break_after: int | None = None  # send at most so many bytes of each answer, then hang up
    ranges: bool = True
    asked: list[tuple[str, str | None]] = field(default_factory=list)


@contextmanager
def serving(behaviour: Behaviour) -> Iterator[str]:
    """Serve until the block ends; yields the address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers.get("Range")
            behaviour.asked.append((self.path, wanted))
            path = behaviour.root / self.path.lstrip("/")
            if not path.is_file():
                self.send_error(404)
                return
            content, start = path.read_bytes(), 0
            if wanted and behaviour.ranges:
                start = int(wanted.removeprefix("bytes=").rstrip("-"))
                if start >= len(content):
                    self.send_error(416)
                    return
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            self.wfile.write(content[start:][: behaviour.break_after])

        def log_message(self, format: str, *args: object) -> None:
            """Stay quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
