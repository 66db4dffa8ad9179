"""Requests of few distinct scores and no rules, whose answer is plainly the K largest: nodes searched, and time.

Knows the search over node weights so far as to count its steps. On a busy machine nodes say more than time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any
from unittest import mock

import numpy as np
from numba import njit

from exactk.problem.exact import cliques, nodes
from exactk.problem.graph import Requests, complete_graph
from exactk.problem.ties import tie_keys
from exactk_lab.bench.report import Goal

REQUESTS = 10_000
MOST_MS = 2.0


def row(quick: bool, seed: int) -> dict[str, Any]:
    """Milliseconds on the clock and of the processor, and search nodes an item of the card, over all requests."""
    asked = [_request(seed, n) for n in range(REQUESTS // (20 if quick else 1))]
    cliques.best(*asked[0])  # compiles
    wall, processor, searched = [], [], []
    for requests, scores in asked:
        begun, own = time.perf_counter(), time.thread_time()
        found = cliques.best(requests, scores)
        wall.append(1000 * (time.perf_counter() - begun))
        processor.append(1000 * (time.thread_time() - own))
        searched.append(_nodes(requests, scores) / requests.card_size[0])
        assert found.optimal[0]
    return {
        "door": "ties",
        "tried": len(asked),
        "p50_ms": float(np.quantile(wall, 0.5)),
        "p99_ms": float(np.quantile(wall, 0.99)),
        "max_ms": float(max(wall)),
        "p50_processor_ms": float(np.quantile(processor, 0.5)),
        "p99_processor_ms": float(np.quantile(processor, 0.99)),
        "max_processor_ms": float(max(processor)),
        "max_nodes_an_item": float(max(searched)),
    }


def goals(measured: dict[str, Any]) -> list[Goal]:
    """The worst request, in time of the processor and in nodes."""
    return [
        Goal(
            "ms of the processor, the worst request of few scores",
            measured["max_processor_ms"],
            MOST_MS,
            "most",
        ),
        Goal("search nodes an item of the card, the worst", measured["max_nodes_an_item"], 1.0, "most"),
    ]


def _request(seed: int, n: int) -> tuple[Requests, np.ndarray]:
    """Scores of two to four values for 11 to 59 candidates, a card of 1 to 10."""
    rng = np.random.default_rng([seed, n])
    N, K = int(rng.integers(11, 60)), int(rng.integers(1, 11))
    scores = rng.choice(rng.normal(size=int(rng.integers(2, 5))).round(2), N)
    keys = tie_keys(rng.permutation(1_000_000)[:N])
    return replace(Requests.of(complete_graph(N)[None], K), tie_key=keys[None]), scores[None]


@cache
def callable_kernels() -> dict[str, Any]:
    """What the search calls, with a door for Python, which kernels for kernels alone do without."""
    held = vars(nodes).items()
    return {
        name: njit(error_model="numpy")(kernel.py_func) for name, kernel in held if hasattr(kernel, "py_func")
    }


def _nodes(requests: Requests, scores: np.ndarray) -> int:
    """Picks and full cards of the search, run uncompiled."""
    count = 0

    def counted(step: Callable[..., Any]) -> Callable[..., Any]:
        def run(*given: Any) -> Any:
            nonlocal count
            count += 1
            return step(*given)

        return run

    N, K = scores.shape[1], int(requests.card_size[0])
    assert requests.tie_key is not None
    order = np.argsort(-requests.tie_key[0], kind="stable")
    must, card, weight = np.empty(N, np.int64), np.full((1, K), -1), np.full(1, -np.inf)
    kernels = callable_kernels()
    counting = {name: counted(kernels[name]) for name in ("take", "offer")}
    with mock.patch.multiple(nodes, **kernels | counting):
        nodes.search_nodes.py_func(
            requests.graph[0], scores[0], must, 0, order, N, K, requests.group[0], requests.cap[0], np.inf,
            card, weight, np.full(2, -1),
        )  # fmt: skip
    return count
