"""The port: one listening socket, or, for several workers, one of its own in each of them.

Knows sockets, no server. Workers that wait at one shared socket do not take turns: whoever wakes first takes every
connection that has come, and the others stay idle. With a socket for each (SO_REUSEPORT), Linux spreads connections.
"""

from __future__ import annotations

import socket
import sys
from typing import Any

from exactk.errors import ConfigError

BACKLOG = 2048


def listening(host: str, port: int) -> socket.socket:
    """A socket that takes connections from now on."""
    listener = _bound(socket.socket, host, port)
    listener.listen(BACKLOG)
    return listener


def for_workers(host: str, port: int) -> socket.socket:
    """A socket to hand to worker processes; a port that is in use is refused here, not there."""
    if sys.platform != "linux":
        return listening(host, port)
    with listening(host, port) as probe:  # unlike what follows, it does not share
        port = probe.getsockname()[1]
    return _bound(EachItsOwn, host, port)


class EachItsOwn(socket.socket):
    """A port kept free for workers: pickled to a process, it becomes a socket bound there, for that process alone.

    A worker listens once it is ready, so that no connection waits for one that still loads its model.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        host, port = self.getsockname()[:2]
        return _bound, (EachItsOwn, host, port)


def _bound(kind: type[socket.socket], host: str, port: int) -> socket.socket:
    """Bound, not yet listening.

    Small answers must leave at once: without TCP_NODELAY, header and body of an answer go out 40 ms apart, because
    asyncio sets it only on sockets made with the protocol named (and not on those handed to worker processes).
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = kind(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if kind is EachItsOwn:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        made.bind((host, port))
    except (OSError, OverflowError) as error:
        made.close()
        reason = error.strerror if isinstance(error, OSError) else "a port is a number from 0 to 65535"
        raise ConfigError(f"cannot listen on {host}:{port}: {reason}") from error
    return made
