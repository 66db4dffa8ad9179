"""Where batches of one shape are learned from: arrays laid out once, threads that stay beside them.

Knows arrays alone; `lesson.py` says what is to be learned. Helpers wait for the next step within compiled code, for
about a millisecond: to sleep and be woken would take them a good part of a step.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

import numpy as np
import torch

from exactk.engine.packing import aligned, rounded
from exactk.engine.sharing import all_cores, current_core, elsewhere, helpers_of
from exactk.engine.train_encoder import TrainSizes
from exactk.engine.train_inputs import InputSpots
from exactk.engine.train_layout import (
    back_places,
    draw_places,
    encode_room,
    matrices_of,
    rows_of,
    spots_of,
    tape_of,
)
from exactk.engine.train_losses import Plan
from exactk.engine.train_request import Network, Scratch, Work
from exactk.engine.train_reward import Judge, judge_room
from exactk.engine.train_step import CLAIMS, EXPLORE, LEARN, LEAVE, MOVE, PATIENCE, opened, teach_each
from exactk.engine.working_memory import slice_of

Moving = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # weights, gradient, Adam's two moments


class Desk:
    """Room for B requests of N candidates, cards of K, and what a plan makes of them."""

    def __init__(
        self,
        B: int,
        N: int,
        K: int,
        plan: Plan,
        sizes: TrainSizes,
        into: InputSpots,
        moving: Moving,
        judge: Judge,
        threads: int,
    ) -> None:
        self.plan, self.each = plan, slice_of(B)
        num = -(-B // self.each)
        self.whole = plan.judged or not plan.rewarded  # nothing but compiled code from ids to gradients
        self.net, room = network_of(sizes, into, N, K, plan, moving, judge)
        self.work = work_of(B, N, K, num, plan, self.net, judge)
        self.num_steps = 0
        self.uniform = torch.from_numpy(self.work.uniform)
        self.counters = np.ones(CLAIMS + 8 * num, np.int64)  # all pieces are taken
        shared_tape = None if self.whole else aligned(B * self.net.tape.end)
        self.scratch = [
            Scratch(
                np.zeros(1, np.int64),
                aligned(self.net.tape.end) if shared_tape is None else shared_tape,
                *map(aligned, room),
            )
            for _ in range(min(threads, num))
        ]
        self.helpers: list[Future[Any] | None] = [None] * (len(self.scratch) - 1)

    def fill(self, arrays: Mapping[str, Any]) -> None:
        """Take a batch: its arrays by their names in `Work`."""
        for name, values in arrays.items():
            getattr(self.work, name)[...] = values

    def explored(self) -> bool:
        """Samples drawn and, where that is done here, judged and learned from; False if some could not be drawn."""
        self.num_steps += 1
        return self._all(EXPLORE | LEARN if self.whole else EXPLORE) == 0

    def learned(self) -> list[float]:
        """What is left to learn, the gradient of all weights in place; the figures of `Work`."""
        if not self.whole:
            self._all(LEARN)
        told: list[float] = self.work.figures.tolist()
        return told

    def moved(self, numbers: tuple[float, ...]) -> None:
        """A step of AdamW."""
        self.net.moving[:] = numbers
        self._all(MOVE)

    def leave(self) -> None:
        """Send the helpers away: they are needed elsewhere."""
        self.counters[LEAVE] = 1

    def _all(self, stages: int) -> int:
        self.counters[LEAVE] = 0
        opened(self.counters, stages, self.num_steps)
        self._call_helpers()
        return int(self._teach(0))

    def _teach(self, thread: int) -> Any:
        home = thread * len(self.work.sums) // len(self.scratch)
        return teach_each(
            self.counters, PATIENCE if thread else 0, home, self.each, self.plan, self.net, self.work,
            self.scratch[thread],
        )  # fmt: skip

    def _call_helpers(self) -> None:
        """Those that are not here."""
        for place, helper in enumerate(self.helpers):
            if helper is None or helper.done():
                pool, cores = helpers_of(os.getpid(), len(self.helpers)), all_cores() - {current_core()}
                self.helpers[place] = pool.submit(elsewhere, cores, self._teach, place + 1)


def network_of(
    s: TrainSizes,
    into: InputSpots,
    N: int,
    K: int,
    plan: Plan,
    moving: Moving,
    judge: Judge,
) -> tuple[Network, tuple[int, ...]]:
    """Places and weights, and the sizes of a thread's working memory, in the order of `Scratch` from `turned` on."""
    span, P, S = rounded(N), plan.paths, plan.samples
    rows, room = rows_of(s, N, P, K), rounded(max(span, 4 * s.width))
    drawing, draw_size = draw_places(s, N, S)
    backing, end = back_places(s, N, P, K)
    embedding = 2 * rounded(N, 4) * into.size + 4 * into.size + 4 * s.width
    net = Network(
        s, spots_of(s), into, tape_of(s, N), rows, drawing, backing, room,
        (end, end + span, end + 2 * span), end + 3 * span, matrices_of(s, into), *moving, np.empty(6, np.float32),
    )  # fmt: skip
    free = max(embedding, judge_room(judge, S, K))
    turned = into.end or net.spots.end
    return net, (turned, 2 * s.width, encode_room(s, N), draw_size, room + rows.end, net.free + free)


def work_of(B: int, N: int, K: int, num: int, plan: Plan, net: Network, judge: Judge) -> Work:
    """Empty arrays for a batch in `num` pieces."""
    S, E, D = plan.samples, net.inputs.size, net.sizes.width
    given = 0 if E else B  # inputs that are not made here
    size = rounded(net.inputs.end or net.spots.end)
    return Work(
        np.empty(B, np.int64), np.empty((B, N), np.int64), np.empty((B, N), np.bool_), np.empty((B, N, N), np.bool_),
        np.empty((B, K), np.int64), np.empty(B, np.bool_), np.empty(B, np.int64),
        np.empty((K, B, S), np.float32), np.empty(4, np.float32), np.empty((given, N, D), np.float32), judge,
        np.empty((B, S, K), np.int64), np.empty((B, S), np.float32), np.empty((B, S, K, N), np.bool_),
        np.empty((B, S), np.float32), np.zeros((B, N), np.float32),
        np.empty((B, 3), np.float32), np.zeros(4), aligned(num * size).reshape(num, size),
        np.empty((given, N, D), np.float32), np.empty((B, N, E), np.float32), np.empty((B, E), np.float32),
    )  # fmt: skip
