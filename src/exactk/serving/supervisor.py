"""Supervisor: keeps worker processes alive. It watches their pulse, replaces the dead and the stuck, and ends on time.

Knows processes and signals, no route. A worker's event loop leaves a new figure in shared memory ten times a second; a
figure that stands still for too long means that nobody is heard there any more, whatever the reason. The supervisor
never waits for a worker: it looks at all of them, does what is due, and looks again.
"""

from __future__ import annotations

import faulthandler
import logging
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.context import SpawnProcess
from socket import socket
from typing import Any

import uvicorn
from uvicorn.config import STARTUP_FAILURE

log = logging.getLogger("exactk.serving")

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


def work(config: uvicorn.Config, sockets: list[socket], pulse: Any) -> None:
    """What a worker process runs."""
    faulthandler.register(signal.SIGUSR1, all_threads=True, chain=False)
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # a terminal's Ctrl-C reaches everyone: the supervisor decides
    config.configure_logging()
    Server(config, pulse).run(sockets)


@dataclass
class Worker:
    """One process and what was last seen of its pulse."""

    process: SpawnProcess
    pulse: Any
    since: float
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
    sockets: list[socket]
    count: int
    hang_seconds: float = 5.0
    shutdown_seconds: float = 10.0
    target: Callable[[uvicorn.Config, list[socket], Any], None] = work
    workers: list[Worker] = field(default_factory=list)
    has_failed: bool = False  # to start at all
    _stopped: bool = False
    _ever_ready: bool = False
    _failures: int = 0
    _not_before: float = 0.0

    def run(self) -> None:
        """Start, watch, replace; SIGTERM or SIGINT ends it within `shutdown_seconds`."""
        before = {
            each: signal.signal(each, lambda *_: self.stop()) for each in (signal.SIGTERM, signal.SIGINT)
        }
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
            self.workers.append(Worker(process, pulse, time.monotonic()))

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
                log.error(
                    "worker %d has not been heard of for %.1f s: replaced", worker.process.pid, worker.still
                )
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
