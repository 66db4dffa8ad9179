"""Who may ask, and how much: API keys, body size, slow senders, headers for the page.

Knows no route. Keys are random and long, so one SHA-256 is the right hash; only hashes are ever kept.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from exactk.serving.http import RefusalError, problem_response

OPEN_PATHS = ("/", "/healthz", "/readyz", "/favicon.ico")
OPEN_PREFIX = "/studio/"

# The page needs nothing from outside and may be framed by nobody.
_PAGE_POLICY = (
    b"default-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
PAGE_HEADERS = [
    (b"content-security-policy", _PAGE_POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
]


def new_key() -> tuple[str, str]:
    """A fresh API key and the hash to keep: give the first away once, store only the second."""
    key = "ek_" + secrets.token_urlsafe(32)
    return key, hash_key(key)


def hash_key(key: str) -> str:
    """What is stored of a key."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()


def is_known_key(key: str, hashes: tuple[str, ...]) -> bool:
    """Compare with every hash, in constant time, without stopping at a match."""
    digest = hash_key(key)
    return sum(hmac.compare_digest(digest, each) for each in hashes) > 0


class Gate:
    """The key is checked, then the whole body is read within its limits, then the app runs.

    Reading the body here means that a slow or endless sender never occupies a route. It meets HTTP alone.
    """

    def __init__(
        self, app: ASGIApp, hashes: tuple[str, ...], max_body_bytes: int, body_timeout_s: float
    ) -> None:
        self.app, self.hashes = app, hashes
        self.max_body_bytes, self.body_timeout_s = max_body_bytes, body_timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self.refusal(scope)
        body = b""
        if refusal is None and scope["method"] in {"POST", "PUT", "PATCH"}:
            try:
                async with asyncio.timeout(self.body_timeout_s):
                    body = await self._read(receive)
            except TimeoutError:
                refusal = RefusalError(
                    408, "slow", "The body came too slowly", f"no whole body within {self.body_timeout_s:g} s"
                )
            except RefusalError as error:
                refusal = error
            except ConnectionResetError:
                return
        if refusal is not None:
            # The connection is closed, since an unread body may still be on its way.
            response = problem_response(refusal.body(), {**(refusal.headers or {}), "connection": "close"})
            await response(scope, receive, send)
            return
        if not scope["path"].startswith(("/v1/", "/metrics")):
            send = _with_page_headers(send)
        await self.app(scope, _replay(body, receive), send)

    def refusal(self, scope: Scope, body_size: int = 0) -> RefusalError | None:
        """Why this request may not pass, as far as its head and the size of its body tell."""
        headers = dict(scope["headers"])
        refused = self._refuse_key(scope["path"], headers) if self.hashes else None
        length = headers.get(b"content-length", b"")
        size = max(body_size, int(length) if length.isdigit() else 0)
        return refused or (self._too_large() if size > self.max_body_bytes else None)

    def _refuse_key(self, path: str, headers: dict[bytes, bytes]) -> RefusalError | None:
        if path in OPEN_PATHS or path.startswith(OPEN_PREFIX):
            return None
        key = headers.get(b"x-api-key", b"")
        scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
        if not key and scheme.lower() == b"bearer":
            key = token.strip()
        if key and is_known_key(key.decode("utf-8", "surrogateescape"), self.hashes):
            return None
        wanted = "send an API key: Authorization: Bearer KEY, or X-API-Key: KEY"
        detail = "the API key is unknown" if key else wanted
        return RefusalError(401, "key", "An API key is needed", detail, {"www-authenticate": "Bearer"})

    def _too_large(self) -> RefusalError:
        return RefusalError(
            413, "size", "The body is too large", f"a body may hold at most {self.max_body_bytes} bytes"
        )

    async def _read(self, receive: Receive) -> bytes:
        pieces: list[bytes] = []
        size, more = 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ConnectionResetError
            pieces.append(message.get("body", b""))
            size, more = size + len(pieces[-1]), message.get("more_body", False)
            if size > self.max_body_bytes:
                raise self._too_large()
        return b"".join(pieces)


def _replay(body: bytes, receive: Receive) -> Receive:
    """The body once more for the app; afterwards the connection's own messages."""
    kept: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return kept.pop() if kept else await receive()

    return replay


def _with_page_headers(send: Send) -> Send:
    async def adding(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", []), *PAGE_HEADERS]}
        await send(message)

    return adding
