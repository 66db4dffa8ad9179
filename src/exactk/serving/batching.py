"""Dynamic batching without waiting: whoever arrives while the engine is busy shares the next run.

Knows no model. A lone request starts at once; under load batches grow by themselves, up to a limit. A queue that is
full refuses at the door (`OverloadedError`) instead of letting everyone wait.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

Q = TypeVar("Q")
A = TypeVar("A")


class OverloadedError(Exception):
    """The queue is full."""


class ClosedError(Exception):
    """The service is shutting down."""


class Batcher(Generic[Q, A]):
    """Gathers questions for `run`, which answers a list of them in one thread: an answer or an exception for each."""

    def __init__(
        self,
        run: Callable[[Sequence[Q]], Sequence[A | Exception]],
        max_batch: int,
        max_waiting: int,
        on_batch: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._run, self._max_batch, self._max_waiting, self._on_batch = run, max_batch, max_waiting, on_batch
        self._waiting: deque[tuple[Q, asyncio.Future[A]]] = deque()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="engine")
        self._drain: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def num_waiting(self) -> int:
        """Questions not yet handed to the engine."""
        return len(self._waiting)

    async def ask(self, question: Q) -> A:
        """The answer to one question; raises what `run` returned as its exception."""
        return await self.enqueue(question)

    def enqueue(self, question: Q) -> asyncio.Future[A]:
        """Put a question in the queue and return at once."""
        if self._closed:
            raise ClosedError
        if len(self._waiting) >= self._max_waiting:
            raise OverloadedError
        future: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        self._waiting.append((question, future))
        if self._drain is None or self._drain.done():
            self._drain = asyncio.create_task(self._work())
        return future

    async def close(self) -> None:
        """Answer all who wait, take nobody new."""
        self._closed = True
        if self._drain is not None:
            await self._drain
        self._thread.shutdown(wait=True)

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            taken: list[tuple[Q, asyncio.Future[A]]] = []
            while self._waiting and len(taken) < self._max_batch:
                entry = self._waiting.popleft()
                if not entry[1].cancelled():  # the client went away
                    taken.append(entry)
            if not taken:
                continue
            self._on_batch(len(taken))
            try:
                answers = await loop.run_in_executor(
                    self._thread, self._run, [question for question, _ in taken]
                )
            except Exception as error:
                answers = [error] * len(taken)
            for (_, future), answer in zip(taken, answers, strict=True):
                if future.done():
                    continue
                if isinstance(answer, Exception):
                    future.set_exception(answer)
                else:
                    future.set_result(answer)
