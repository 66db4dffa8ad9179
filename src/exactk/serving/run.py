"""serve: settings to running processes: a port, a supervisor, and workers that it replaces when they die or hang.

Knows uvicorn, no route. The process that starts workers loads nothing of what they load: it is small.
Workers that wait at one shared socket do not take turns: whoever wakes first takes every connection that has come, and
the others stay idle. With a socket for each (SO_REUSEPORT), Linux spreads connections.
"""

from __future__ import annotations

import fcntl
import ipaddress
import logging
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.config import LOGGING_CONFIG, STARTUP_FAILURE

from exactk.errors import ConfigError, DataError, MissingExtraError
from exactk.model_files import checked_description
from exactk.serving.settings import ENVIRONMENT, Settings, read_key_hashes
from exactk.serving.supervisor import Supervisor

log = logging.getLogger("exactk.serving")

# uvicorn's own lines, and ours in the same hand, in every worker.
LOGGING: dict[str, Any] = {
    **LOGGING_CONFIG,
    "loggers": {
        **LOGGING_CONFIG["loggers"],
        "exactk": {"handlers": ["default"], "level": "INFO", "propagate": False},
    },
}
NEEDED = ("fastapi", "httptools", "prometheus_client", "pydantic")  # by the workers
METRICS = "exactk-metrics-"  # what a folder of theirs is called
FLUSH_SHARE = 0.3  # of the time to end, kept for the log once open requests are answered


def serve(
    model: Path | None = None,
    host: str = "127.0.0.1",
    port: int = 8000,
    workers: int = 1,
    keys_file: Path | None = None,
    log_level: str = "info",
    **settings: Any,
) -> None:
    """Serve until told to stop (SIGINT, SIGTERM); then open requests are answered and the log is flushed.

    That takes `shutdown_seconds` at most, whatever the workers do. Further arguments are fields of `Settings`. API keys
    come hashed from `keys_file` or EXACTK_API_KEYS.
    """
    for package in NEEDED:
        if find_spec(package) is None:
            raise MissingExtraError(f"serving needs the package {package}: pip install 'exactk[serve]'")
    if workers < 1:
        raise ConfigError(f"workers must be at least 1, got {workers}")
    hashes = (*settings.pop("key_hashes", ()), *read_key_hashes(keys_file))
    chosen = Settings(model=model, key_hashes=hashes, **settings)
    check_folders(chosen)
    opened = listening if workers == 1 else for_workers
    with shared_metrics(workers), opened(host, port) as listener:
        os.environ[ENVIRONMENT] = chosen.to_json()
        config = uvicorn.Config(
            "exactk.serving.app:create_app",
            factory=True,
            workers=workers,
            log_config=LOGGING,
            log_level=log_level,
            access_log=False,
            server_header=False,
            ws="none",
            http="exactk.serving.http.protocol:FastPathProtocol",  # by name: only workers load it
            proxy_headers=False,  # nothing here asks who the client is
            timeout_graceful_shutdown=max(int((1 - FLUSH_SHARE) * chosen.shutdown_seconds), 1),
        )
        name = f"[{host}]" if ":" in host else host
        log.info("exactk: http://%s:%d, %d worker(s)", name, listener.getsockname()[1], workers)
        if not is_loopback(host) and not hashes:
            log.warning("serving on %s without API keys: anyone who reaches this address may ask", host)
        supervisor = Supervisor(config, [listener], workers, chosen.hang_seconds, chosen.shutdown_seconds)
        try:
            supervisor.run()
        finally:
            os.environ.pop(ENVIRONMENT, None)
    if supervisor.has_failed:
        raise SystemExit(STARTUP_FAILURE)


@contextmanager
def shared_metrics(workers: int) -> Iterator[None]:
    """A folder in which the figures of several workers are added up.

    Folders of services that were killed outright are removed: nobody holds their lock any more.
    """
    if workers == 1:
        yield
        return
    for left in Path(tempfile.gettempdir()).glob(f"{METRICS}*/lock"):
        with suppress(OSError), left.open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(left.parent, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=METRICS) as folder, Path(folder, "draft").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        Path(folder, "draft").rename(Path(folder, "lock"))  # no other service sees it unlocked
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
        try:
            yield
        finally:
            os.environ.pop("PROMETHEUS_MULTIPROC_DIR", None)


def check_folders(settings: Settings) -> None:
    """Refuse what no worker could serve, before any is started: a supervisor would start them again for ever."""
    for name in ("model", "challenger", "dataset"):
        folder = getattr(settings, name)
        if folder is None:
            continue
        if not folder.is_dir():
            raise ConfigError(f"the {name} folder {folder} does not exist")
        if name != "dataset":
            checked_description(folder)
        elif not (folder / "meta.json").is_file():
            raise DataError(f"{folder} is not a dataset folder: it has no meta.json")
    if settings.log is not None:
        try:
            settings.log.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"cannot make the log folder {settings.log}: {error.strerror}") from error
        if not os.access(settings.log, os.W_OK | os.X_OK):
            raise ConfigError(f"the log folder {settings.log} may not be written")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


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
