"""Dynamic batching without waiting, and without one slow request holding up the others.

Knows no model. A light question is tried in the event loop, together with all that arrived in the same turn. What is
not light, or would take longer than the loop may be held, runs in a few threads, again together with whoever waits.
Nobody waits beyond his deadline: he is told that the queue was too long (`OverloadedError`) or that the work was not
finished (`UnfinishedError`). A full queue refuses at the door.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

log = logging.getLogger("exactk.serving")

# Batches of light questions are cut so that each is expected to hold the event loop no longer than this.
INLINE_SECONDS = 0.004
GRACE_SECONDS = 0.015  # work looks at its deadline now and then: it may end this much later


class OverloadedError(Exception):
    """The queue is full, or so slow that the time of a question ran out in it."""


class ClosedError(Exception):
    """The service is shutting down."""


class UnfinishedError(Exception):
    """The time of a question ran out while it was worked on."""


@runtime_checkable
class Timed(Protocol):
    """What is known of a question here."""

    @property
    def deadline(self) -> float:
        """On the clock of `perf_counter`."""

    @property
    def is_patient(self) -> bool:
        """Whether it asks for more time than is usual."""

    @property
    def so_far(self) -> Sequence[Any] | None:
        """Answers found on the way to the whole one: the last of them is given where time runs out."""

    @property
    def group(self) -> Hashable:
        """Questions of one group may share a batch in a thread: what is slow in one must not delay another kind."""


Q = TypeVar("Q", bound=Timed)
A = TypeVar("A")


@dataclass(eq=False)
class Waiting(Generic[Q, A]):
    """A question in the queue and the future of its answer."""

    question: Q
    future: asyncio.Future[A]
    started: bool = False
    timer: asyncio.TimerHandle | None = None


@dataclass(frozen=True)
class Inline(Generic[Q, A]):
    """Which questions are light, and what answers them within milliseconds: None for whom it cannot."""

    is_light: Callable[[Q], bool]
    run: Callable[[Sequence[Q]], Sequence[A | Exception | None]]


class Batcher(Generic[Q, A]):
    """Gathers questions for `run`, which answers a list of them: an answer or an exception for each.

    Half of the threads never take patient questions, so that those who ask for seconds cannot keep out those who ask
    for the usual time.
    """

    def __init__(
        self,
        run: Callable[[Sequence[Q]], Sequence[A | Exception]],
        max_batch: int,
        max_waiting: int,
        on_batch: Callable[[int], None] = lambda _: None,
        inline: Inline[Q, A] | None = None,
        threads: int = 1,
    ) -> None:
        self._run, self._max_batch, self._max_waiting = run, max_batch, max_waiting
        self._on_batch, self._inline = on_batch, inline
        self._light: deque[Waiting[Q, A]] = deque()
        self._queues: dict[bool, deque[Waiting[Q, A]]] = {False: deque(), True: deque()}  # by patience
        self._free = {False: threads - threads // 2, True: max(threads // 2, 1)}
        self._pool = ThreadPoolExecutor(sum(self._free.values()), thread_name_prefix="engine")
        self._begun: dict[int, float] = {}  # of what runs in threads
        self._count = 0
        self._booked = False  # a turn of the loop, for the light ones
        self._dispatching: dict[bool, bool] = {False: False, True: False}
        self._closed = False
        self._unanswered = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._seconds = 0.0  # of one light question, as lately measured

    def enqueue(self, question: Q) -> asyncio.Future[A]:
        """Put a question in the queue; the future of its answer raises what `run` returned as its exception."""
        if self._closed:
            raise ClosedError
        if len(self._light) + sum(map(len, self._queues.values())) >= self._max_waiting:
            raise OverloadedError(f"{self._max_waiting} requests wait already")
        loop = asyncio.get_running_loop()
        waiting: Waiting[Q, A] = Waiting(question, loop.create_future())
        waiting.future.add_done_callback(self._answered)
        self._unanswered += 1
        self._idle.clear()
        if self._inline is not None and self._seconds < INLINE_SECONDS and self._inline.is_light(question):
            self._light.append(waiting)
            if not self._booked:
                self._booked = True
                loop.call_soon(self._turn)  # after all who are being heard in this turn of the loop
        else:
            self._seconds *= 0.98  # a slow moment must not keep the loop shut for ever
            self._to_threads(waiting)
        return waiting.future

    async def close(self) -> None:
        """Answer all who wait, take nobody new. Work that overran its deadline is left behind, not waited for."""
        self._closed = True
        await self._idle.wait()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def longest_run(self) -> float:
        """Seconds since the oldest batch in a thread was begun; 0 where none is."""
        begun = list(self._begun.values())
        return perf_counter() - min(begun) if begun else 0.0

    def _turn(self) -> None:
        """Answer a batch of light ones in the loop; then book the next turn if anyone waits."""
        assert self._inline is not None
        most = min(self._max_batch, int(INLINE_SECONDS / max(self._seconds, 1e-6)) or 1)
        taken = _taken(self._light, most)
        if taken:
            started = perf_counter()
            questions = [each.question for each in taken]
            try:
                answers = self._inline.run(questions)
            except Exception:  # the long way finds out whose fault it is, and spares the others
                log.exception("a batch could not be answered in the event loop")
                answers = [None] * len(taken)
            answered = sum(answer is not None for answer in answers)
            if answered:
                self._on_batch(answered)
            for waiting, answer in zip(taken, answers, strict=True):
                if answer is None:
                    self._to_threads(waiting)
                else:
                    _settle(waiting, answer)
            self._seconds += 0.1 * ((perf_counter() - started) / len(taken) - self._seconds)
        self._booked = bool(self._light)
        if self._booked:
            asyncio.get_running_loop().call_soon(self._turn)

    def _to_threads(self, waiting: Waiting[Q, A]) -> None:
        """Queue a question for a thread, and see to it that it is answered by its deadline."""
        loop = asyncio.get_running_loop()
        left = waiting.question.deadline - perf_counter()
        waiting.timer = loop.call_later(max(left, 0.0) + GRACE_SECONDS, self._expire, waiting)
        patient = waiting.question.is_patient
        self._queues[patient].append(waiting)
        if not self._dispatching[patient]:
            self._dispatching[patient] = True
            loop.call_soon(self._dispatch, patient)

    def _dispatch(self, patient: bool) -> None:
        """Give what waits to free threads."""
        self._dispatching[patient] = False
        queue = self._queues[patient]
        while queue and self._free[patient]:
            taken = _taken_of_a_group(queue, self._max_batch)
            if not taken:
                break
            for waiting in taken:
                waiting.started = True
            self._on_batch(len(taken))
            self._free[patient] -= 1
            self._count += 1
            self._begun[self._count] = perf_counter()
            questions = [waiting.question for waiting in taken]
            running = asyncio.get_running_loop().run_in_executor(self._pool, self._safely, questions)
            running.add_done_callback(partial(self._after, patient, self._count, taken))

    def _safely(self, questions: Sequence[Q]) -> Sequence[A | Exception]:
        try:
            return self._run(questions)
        except Exception as error:
            if len(questions) == 1:
                return [error]
            return [self._safely([question])[0] for question in questions]

    def _after(
        self, patient: bool, number: int, taken: list[Waiting[Q, A]], done: asyncio.Future[Any]
    ) -> None:
        del self._begun[number]
        self._free[patient] += 1
        if not done.cancelled():
            for waiting, answer in zip(taken, done.result(), strict=True):
                _settle(waiting, answer)
        self._dispatch(patient)

    def _expire(self, waiting: Waiting[Q, A]) -> None:
        """The time of a question is over."""
        if waiting.future.done():
            return
        if so_far := waiting.question.so_far:
            waiting.future.set_result(so_far[-1])
        elif waiting.started:
            waiting.future.set_exception(UnfinishedError())
        else:
            waiting.future.set_exception(
                OverloadedError("its time ran out while others were answered, before it was begun")
            )

    def _answered(self, _: asyncio.Future[A]) -> None:
        self._unanswered -= 1
        if not self._unanswered:
            self._idle.set()


def _taken(queue: deque[Waiting[Q, A]], most: int) -> list[Waiting[Q, A]]:
    """The next few whose client still waits."""
    taken: list[Waiting[Q, A]] = []
    while queue and len(taken) < most:
        waiting = queue.popleft()
        if not waiting.future.done():
            taken.append(waiting)
    return taken


def _taken_of_a_group(queue: deque[Waiting[Q, A]], most: int) -> list[Waiting[Q, A]]:
    """The first whose client still waits, and who else is of its group; the others keep their places."""
    taken: list[Waiting[Q, A]] = []
    others: list[Waiting[Q, A]] = []
    for waiting in queue:
        if waiting.future.done():
            continue
        mine = len(taken) < most and (not taken or waiting.question.group == taken[0].question.group)
        (taken if mine else others).append(waiting)
    queue.clear()
    queue.extend(others)
    return taken


def _settle(waiting: Waiting[Q, A], answer: A | Exception) -> None:
    if waiting.timer is not None:
        waiting.timer.cancel()
    if waiting.future.done():
        return
    if isinstance(answer, Exception):
        waiting.future.set_exception(answer)
    else:
        waiting.future.set_result(answer)
