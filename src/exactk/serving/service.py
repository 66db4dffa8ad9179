"""Service: what all routes of one process share: settings, metrics, models, the batcher, the log.

Knows no route.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import logging
import sys
from collections.abc import Callable
from concurrent.futures import Future
from time import perf_counter
from typing import Any, NamedTuple, TypeVar

from starlette.concurrency import run_in_threadpool

from exactk.errors import InfeasibleError, OutOfTimeError
from exactk.problem.rules.constraints import Constraints
from exactk.serving.http import RefusalError, closing_refusal, unfinished_refusal
from exactk.serving.log import ImpressionLog
from exactk.serving.metrics import Metrics
from exactk.serving.model import Arm, stranger_request
from exactk.serving.model.answering import Answer, Answerer, Question
from exactk.serving.model.batching import (
    Batcher,
    ClosedError,
    Inline,
    OverloadedError,
    Timed,
    UnfinishedError,
)
from exactk.serving.model.warming import warm_engine
from exactk.serving.settings import CHALLENGER, CHAMPION, Settings
from exactk.serving.studio.sources import Sources

log = logging.getLogger("exactk.serving")

# Requests leave next to no cycles behind: looking for them less often than every 700 objects saves time, and the odd
# whole look stays short, since what was loaded is not looked at.
GARBAGE = (10_000, 20, 50)

# Where threads compute in Python, the event loop waits so long for its turn, each time it wakes (5 ms unless told).
SWITCH_SECONDS = 0.0005


# After the longest budget: no deadline is overrun by so much unless it is never looked at.
STUCK_SECONDS = 10.0

Q = TypeVar("Q", bound=Timed)
A = TypeVar("A")


class Work(NamedTuple):
    """Work for a thread, other than deciding by a model."""

    work: Callable[[], Any]
    deadline: float
    is_patient: bool
    so_far: list[Any] | None = None
    group: None = None


class Service:
    """Made with the app, started with its event loop, closed once at shutdown."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self.sources = Sources(settings.dataset)
        self.arms: dict[str, Arm] = {}
        self.log: ImpressionLog | None = None
        self.closing = False
        answerer = Answerer(settings.seed)
        self.batcher: Batcher[Question, Answer] = Batcher(
            answerer,
            settings.max_batch,
            settings.max_waiting,
            self.metrics.batch_size.observe,
            Inline(is_light, answerer.at_once),
            settings.threads,
        )
        self.jobs: Batcher[Work, Any] = Batcher(
            lambda jobs: [jobs[0].work()], 1, settings.max_waiting, threads=settings.threads
        )
        self._watching: list[asyncio.Task[None]] = []

    @property
    def champion(self) -> Arm | None:
        """The model that serves most users; None in a service that only solves."""
        return self.arms.get(CHAMPION)

    async def start(self) -> None:
        """Warm the engine, load the models, open the log, watch the folders."""
        await run_in_threadpool(self._load)
        gc.collect()
        give_back_memory()
        gc.freeze()  # what was loaded stays: walking over it again and again would stop everyone for a while
        gc.set_threshold(*GARBAGE)
        sys.setswitchinterval(SWITCH_SECONDS)
        if self.settings.log is not None:
            self.log = ImpressionLog(
                self.settings.log,
                self.settings.log_rotate_bytes,
                self.settings.log_rotate_seconds,
                self.metrics.log_lost.inc,
            )
        if self.arms:
            self._watching = [*map(asyncio.create_task, (self._keep_fresh(), self._keep_counting()))]

    async def close(self) -> None:
        """Answer who waits, flush what was logged."""
        self.closing = True
        for watch in self._watching:
            watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watch
        await self.batcher.close()
        await self.jobs.close()
        if self.log is not None:
            await run_in_threadpool(self.log.close)

    def deadline(self, budget_ms: float | None, started: float) -> tuple[float, bool]:
        """When a request that came at `started` must be answered, and whether that is later than usual."""
        asked = self.settings.budget_ms if budget_ms is None else budget_ms
        return started + min(asked, self.settings.max_budget_ms) / 1000, asked > self.settings.budget_ms

    def is_stuck(self) -> bool:
        """Whether some work goes on long after any deadline there may be: only a fresh process helps."""
        longest = max(self.batcher.longest_run(), self.jobs.longest_run())
        return longest > self.settings.max_budget_ms / 1000 + STUCK_SECONDS

    async def finished(self, work: Work) -> Any:
        """What the job gives, worked out in a thread; refused where it is not done by its deadline."""
        return await self.answered(self.jobs, work)

    async def answered(self, batcher: Batcher[Q, A], question: Q) -> A:
        """The batcher's answer; where there is none, why, as a problem."""
        try:
            return await batcher.enqueue(question)
        except OverloadedError as error:
            self.metrics.overloaded.inc()
            later = {"retry-after": "1"}
            raise RefusalError(429, "overloaded", "Too many requests", str(error), later) from error
        except UnfinishedError as error:
            self.metrics.unfinished.inc()
            raise unfinished_refusal("card") from error
        except ClosedError as error:
            raise closing_refusal() from error
        except InfeasibleError:
            self.metrics.infeasible.inc()
            raise
        except OutOfTimeError:
            self.metrics.unfinished.inc()
            raise

    async def kept(self, deadline: float, *rows: Future[None] | None) -> None:
        """Wait until rows of the log are with the system; where the disk stands still, no longer than the deadline."""
        late = [asyncio.wrap_future(row) for row in rows if row is not None]
        if not late:
            return
        done, open_ = await asyncio.wait(late, timeout=max(deadline - perf_counter(), 0.0))
        for row in done:
            row.exception()  # a full disk is counted by the journal
        if open_:
            self.metrics.log_late.inc()

    def _load(self) -> None:
        warm_engine()
        named = ((CHAMPION, self.settings.model), (CHALLENGER, self.settings.challenger))
        for name, folder in named:
            if folder is not None:
                explore, log_folder = self.settings.explore, self.settings.log
                self.arms[name] = Arm(name, folder, explore, self._count_reload, log_folder)
                self._try_out(self.arms[name])

    def _try_out(self, arm: Arm) -> None:
        """The first request must not pay for what is loaded on first use."""
        request = stranger_request(arm.loaded.recommender.fitted)
        question = Question(arm, request, Constraints(), (), False, perf_counter() + 60)
        with contextlib.suppress(Exception):  # whoever asks the same will hear what is wrong
            Answerer(0)([question])

    def _count_reload(self, arm: str, outcome: str) -> None:
        self.metrics.reloads.labels(arm, outcome).inc()

    async def _keep_fresh(self) -> None:
        while True:
            await asyncio.sleep(self.settings.reload_seconds)
            for arm in self.arms.values():
                try:
                    await run_in_threadpool(arm.refresh)
                except Exception:  # whatever a folder holds, the old model goes on serving
                    log.exception("arm %s could not be refreshed", arm.name)
                    self._count_reload(arm.name, "refused")

    async def _keep_counting(self) -> None:
        """Rolling counts follow the log, of which all workers write a part."""
        while True:
            await asyncio.sleep(self.settings.count_seconds)
            for arm in self.arms.values():
                kept = arm.loaded.log_counts
                try:
                    if kept is not None:
                        await run_in_threadpool(kept.catch_up)
                except Exception:  # counts that stand still are no reason to answer nobody
                    log.exception("the rolling counts of arm %s could not be kept up", arm.name)


def give_back_memory() -> None:
    """What starting took and no longer needs, back to the system, where its C library can be asked for that."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def is_light(question: Question) -> bool:
    """Whether it may be tried in the event loop: few candidates, the model's own rules, no texts sent along."""
    request, loaded = question.request, question.arm.loaded
    plain = not (question.explain or question.relax or question.constraints)
    if not plain or len(request.candidates) > 64 or not loaded.searches:
        return False
    return all(loaded.slow_names.isdisjoint(sent) for sent in request.attributes.values())
