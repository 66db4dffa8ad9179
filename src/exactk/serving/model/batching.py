"""Dynamic batching without waiting: whoever is at the door when the engine is free shares the next run.

Knows no model. A lone request runs in the same turn of the event loop; requests that arrived together, or while the
engine was busy, run together, up to a limit. A queue that is full refuses at the door (`OverloadedError`) instead of
letting everyone wait.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import Generic, TypeVar

Q = TypeVar("Q")
A = TypeVar("A")

# A run expected to take less than this happens in the event loop itself: two threads that compute in turns under one
# interpreter lock cost each other more. A longer one must not keep others from being heard.
INLINE_SECONDS = 0.004


class OverloadedError(Exception):
    """The queue is full."""


class ClosedError(Exception):
    """The service is shutting down."""


class Batcher(Generic[Q, A]):
    """Gathers questions for `run`, which answers a list of them: an answer or an exception for each.

    `run` is never called twice at a time. `is_light` says of a question whether it may run in the event loop.
    """

    def __init__(
        self,
        run: Callable[[Sequence[Q]], Sequence[A | Exception]],
        max_batch: int,
        max_waiting: int,
        on_batch: Callable[[int], None] = lambda _: None,
        is_light: Callable[[Q], bool] = lambda _: False,
    ) -> None:
        self._run, self._max_batch, self._max_waiting = run, max_batch, max_waiting
        self._on_batch, self._is_light = on_batch, is_light
        self._waiting: deque[tuple[Q, asyncio.Future[A]]] = deque()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="engine")
        self._busy = False  # a run is in the thread, or a turn of the loop is booked for one
        self._closed = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._seconds = 0.0  # of one question in the loop, as lately measured

    async def ask(self, question: Q) -> A:
        """The answer to one question; raises what `run` returned as its exception."""
        return await self.enqueue(question)

    def enqueue(self, question: Q) -> asyncio.Future[A]:
        """Put a question in the queue and return at once."""
        if self._closed:
            raise ClosedError
        if len(self._waiting) >= self._max_waiting:
            raise OverloadedError
        loop = asyncio.get_running_loop()
        future: asyncio.Future[A] = loop.create_future()
        self._waiting.append((question, future))
        if not self._busy:
            self._busy = True
            self._idle.clear()
            loop.call_soon(self._turn)  # after all who are being heard in this turn of the loop
        return future

    async def close(self) -> None:
        """Answer all who wait, take nobody new."""
        self._closed = True
        await self._idle.wait()
        self._thread.shutdown(wait=True)

    def _turn(self) -> None:
        """Run one batch, in the loop if it is light, else in the thread; then book the next turn if anyone waits."""
        inline = self._seconds < INLINE_SECONDS
        most = (
            min(self._max_batch, int(INLINE_SECONDS / max(self._seconds, 1e-6)))
            if inline
            else self._max_batch
        )
        taken, light = self._take(most, inline)
        if not taken:
            self._next()
            return
        self._on_batch(len(taken))
        questions = [question for question, _ in taken]
        if light:
            started = perf_counter()
            self._settle(taken, self._safely(questions))
            spent = (perf_counter() - started) / len(taken)
            self._seconds += 0.1 * (spent - self._seconds)
            self._next()
        else:
            self._seconds *= 0.9  # a slow moment must not keep the loop shut for ever
            running = asyncio.get_running_loop().run_in_executor(self._thread, self._safely, questions)
            running.add_done_callback(lambda done: self._after(taken, done))

    def _take(self, most: int, inline: bool) -> tuple[list[tuple[Q, asyncio.Future[A]]], bool]:
        """The next batch, and whether it may run in the loop: light questions are not kept waiting by a heavy one."""
        taken: list[tuple[Q, asyncio.Future[A]]] = []
        light = inline
        while self._waiting and len(taken) < most:
            entry = self._waiting[0]
            if not entry[1].cancelled():  # else the client went away
                if inline and not self._is_light(entry[0]):
                    if taken:
                        break
                    inline = light = False
                taken.append(entry)
            self._waiting.popleft()
        return taken, light

    def _safely(self, questions: Sequence[Q]) -> Sequence[A | Exception]:
        try:
            return self._run(questions)
        except Exception as error:
            return [error] * len(questions)

    def _after(
        self, taken: list[tuple[Q, asyncio.Future[A]]], done: asyncio.Future[Sequence[A | Exception]]
    ) -> None:
        self._settle(taken, done.result())
        self._next()

    def _settle(self, taken: list[tuple[Q, asyncio.Future[A]]], answers: Sequence[A | Exception]) -> None:
        for (_, future), answer in zip(taken, answers, strict=True):
            if future.done():
                continue
            if isinstance(answer, Exception):
                future.set_exception(answer)
            else:
                future.set_result(answer)

    def _next(self) -> None:
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._turn)
        else:
            self._busy = False
            self._idle.set()
