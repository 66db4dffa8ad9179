"""serve: settings to running processes: a port, and a supervisor with workers that it replaces when they die or hang.

Knows uvicorn, processes and signals, no route. The process that starts workers loads nothing of what they load: it is
small. A worker's event loop leaves a new figure in shared memory ten times a second; a figure that stands still for too
long means that nobody is heard there any more, whatever the reason. The supervisor never waits for a worker: it looks
at all of them, does what is due, and looks again.
"""

from __future__ import annotations

import faulthandler
import fcntl
import ipaddress
import logging
import multiprocessing
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.config import LOGGING_CONFIG, STARTUP_FAILURE

from exactk.errors import ConfigError, DataError, MissingExtraError
from exactk.model_files import checked_description
from exactk.serving.settings import ENVIRONMENT, Settings, read_key_hashes

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

    Of workers at one shared socket whoever wakes first takes every connection that has come, and the others stay idle;
    with a socket for each (SO_REUSEPORT), Linux spreads connections. A worker listens once it is ready, so that no
    connection waits for one that still loads its model.
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


TICK_SECONDS = 0.1
STARTUP_SECONDS = 600.0  # the very first worker compiles kernels: minutes on a busy machine, and not stuck
LONGEST_PAUSE = 5.0  # between two attempts to start a worker that dies before it is ready
LAST_WORDS_SECONDS = 0.3  # for a stuck worker to write down where each of its threads is
SPAWN = multiprocessing.get_context("spawn")


class Server(uvicorn.Server):
    """A worker's server: shows its pulse, and ends when its supervisor is gone."""

    def __init__(self, config: uvicorn.Config, pulse: Any) -> None:
        super().__init__(config)
        self._pulse, self._parent = pulse, os.getppid()

    async def on_tick(self, counter: int) -> bool:
        """Called by uvicorn ten times a second, in the event loop."""
        if not is_stuck(self.config.loaded_app):
            self._pulse.value = counter + 1
        if os.getppid() != self._parent:
            log.error("the supervisor is gone: this worker ends")
            return True
        return await super().on_tick(counter)


def is_stuck(app: Any) -> bool:
    """Whether the service says that some of its work will never end."""
    service = getattr(getattr(app, "state", None), "service", None)
    return service is not None and bool(service.is_stuck())


def work(config: uvicorn.Config, sockets: list[socket.socket], pulse: Any) -> None:
    """What a worker process runs."""
    faulthandler.register(signal.SIGUSR1, all_threads=True, chain=False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C reaches all: the supervisor decides
    config.configure_logging()
    hold_less()
    Server(config, pulse).run(sockets)


class NoPandas:
    """Finds no pandas, for whoever looks while this stands among those who find modules."""

    def find_spec(self, name: str, *_: Any) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name=name)


def hold_less() -> None:
    """Before anything is read: Arrow takes memory as the system gives it (6 MB less), and goes without pandas.

    It looks for pandas once, at the first list it is handed, and would load it: 30 MB, for frames that nobody sends.
    """
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    import pyarrow as pa

    finder: Any = NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([None])
    finally:
        sys.meta_path.remove(finder)


@dataclass
class Worker:
    """One process and what was last seen of its pulse."""

    process: SpawnProcess
    pulse: Any
    seen: int = 0
    still: float = 0.0  # seconds for which its pulse has not moved, as the supervisor counts them

    @property
    def is_ready(self) -> bool:
        return self.seen > 0

    def look(self, seconds: float) -> None:
        """Compare the pulse with the last one, `seconds` ago.

        More than a few ticks do not count: who was put to sleep with everyone else must not blame others.
        """
        now = int(self.pulse.value)
        self.still = 0.0 if now != self.seen else self.still + min(seconds, 3 * TICK_SECONDS)
        self.seen = now


@dataclass
class Supervisor:
    """Runs `count` workers until told to stop."""

    config: uvicorn.Config
    sockets: list[socket.socket]
    count: int
    hang_seconds: float = 5.0
    shutdown_seconds: float = 10.0
    target: Callable[[uvicorn.Config, list[socket.socket], Any], None] = work
    workers: list[Worker] = field(default_factory=list)
    has_failed: bool = False  # to start at all
    _stopped: bool = False
    _ever_ready: bool = False
    _failures: int = 0
    _not_before: float = 0.0

    def run(self) -> None:
        """Start, watch, replace; SIGTERM or SIGINT ends it within `shutdown_seconds`."""
        ends = (signal.SIGTERM, signal.SIGINT)
        before = {each: signal.signal(each, lambda *_: self.stop()) for each in ends}
        try:
            self.watch()
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    def stop(self) -> None:
        """End soon."""
        self._stopped = True

    def watch(self) -> None:
        """The same without signals, until `stop`."""
        try:
            looked = time.monotonic()
            while not self._stopped and not self.has_failed:
                self._fill()
                time.sleep(TICK_SECONDS)  # a signal does not cut it short: it is a tenth of a second
                now = time.monotonic()
                self._look(now - looked)
                looked = now
        finally:
            self._end()

    def _fill(self) -> None:
        """Start what is missing; after a failure at the start, not at once.

        The very first comes alone: what it compiles, the others find on the disk.
        """
        wanted = self.count if self._ever_ready else 1
        while len(self.workers) < wanted and time.monotonic() >= self._not_before:
            pulse = SPAWN.RawValue("L", 0)
            process = SPAWN.Process(target=self.target, args=(self.config, self.sockets, pulse))
            process.start()
            self.workers.append(Worker(process, pulse))

    def _look(self, seconds: float) -> None:
        """Take out whoever is dead or stuck."""
        for worker in list(self.workers):
            worker.look(seconds)
            self._ever_ready |= worker.is_ready
            limit = self.hang_seconds if worker.is_ready else STARTUP_SECONDS
            if worker.process.exitcode is None and worker.still <= limit:
                continue
            self.workers.remove(worker)
            if worker.process.exitcode is None:
                log.error("worker %d was not heard of for %.1f s: replaced", worker.process.pid, worker.still)
                _end_stuck(worker)
            else:
                log.error("worker %d died (%s): replaced", worker.process.pid, worker.process.exitcode)
            self._count_failure(worker)
            worker.process.join()

    def _count_failure(self, worker: Worker) -> None:
        """A service none of whose workers ever became ready ends; later ones are tried again, with growing pauses."""
        if worker.is_ready:
            self._failures = 0
            return
        if worker.process.exitcode == STARTUP_FAILURE and not self._ever_ready:
            log.error("the service cannot start: no worker was ever ready, and one has failed")
            self.has_failed = True
        # Not killed: it failed by itself.
        if worker.process.exitcode is not None and worker.process.exitcode >= 0:
            self._failures += 1
            self._not_before = time.monotonic() + min(0.5 * 2**self._failures, LONGEST_PAUSE)

    def _end(self) -> None:
        """Ask all to end; whoever has not by the promised time is killed."""
        deadline = time.monotonic() + self.shutdown_seconds - 5 * TICK_SECONDS
        for worker in self.workers:
            worker.process.terminate()
        for worker in self.workers:
            worker.process.join(max(deadline - time.monotonic(), 0.0))
        late = [worker for worker in self.workers if worker.process.exitcode is None]
        for worker in late:
            log.error("worker %d did not end in time: killed", worker.process.pid)
            worker.process.kill()
        for worker in late:
            worker.process.join()


def _end_stuck(worker: Worker) -> None:
    """Have it write down where it stands, then kill it."""
    assert worker.process.pid is not None
    os.kill(worker.process.pid, signal.SIGUSR1)
    worker.process.join(LAST_WORDS_SECONDS)
    worker.process.kill()
    worker.process.join()
