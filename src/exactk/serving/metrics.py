"""What Prometheus may scrape: latencies, batch sizes, refusals, fallbacks, arms, the log.

Knows no route. With several workers the figures of all are added up (PROMETHEUS_MULTIPROC_DIR, set by `serve`).
"""

from __future__ import annotations

import os
from time import perf_counter

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest, multiprocess
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from exactk.serving.settings import CHALLENGER, CHAMPION

SECONDS = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """All figures of one app, in a registry of its own."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"exactk_{name}", text, labels, registry=registry)

        def histogram(name: str, text: str, buckets: tuple[int | float, ...], *labels: str) -> Histogram:
            return Histogram(f"exactk_{name}", text, labels, buckets=buckets, registry=registry)

        self.responses = counter("responses", "Answers by route and status.", "route", "status")
        self.seconds = histogram("seconds", "Time to answer.", SECONDS, "route")
        self.batch_size = histogram("batch_size", "Requests decoded together.", SIZES)
        self.infeasible = counter("infeasible", "Requests without any valid card.")
        self.fallbacks = counter("fallbacks", "Cards made by a quicker method than asked for.", "method")
        self.unfinished = counter("unfinished", "Requests whose budget ran out before there was any answer.")
        self.overloaded = counter("overloaded", "Requests refused with 429.")
        cards = counter("cards", "Cards shown, by arm.", "arm")
        self.cards = {arm: cards.labels(arm) for arm in (CHAMPION, CHALLENGER)}
        self.feedback = counter("feedback", "Feedback kept, by arm and outcome.", "arm", "clicked")
        self.log_lost = counter("log_lost_rows", "Rows the log could not keep.")
        self.log_late = counter(
            "log_late_rows",
            "Cards that left before their impression was with the system, as the disk of the log stood still.",
        )
        self.reloads = counter("reloads", "Attempts to swap a model in.", "arm", "outcome")

    def exposition(self) -> bytes:
        """The text a scraper reads, over all worker processes where there are several."""
        if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
            return generate_latest(self.registry)
        everyone = CollectorRegistry()
        multiprocess.MultiProcessCollector(everyone)  # type: ignore[no-untyped-call]
        return generate_latest(everyone)


class Measure:
    """Layer that times every answer; unknown paths share one label, so that nobody can flood the labels."""

    def __init__(self, app: ASGIApp, metrics: Metrics, routes: frozenset[str]) -> None:
        self.app, self.metrics, self.routes = app, metrics, routes
        self._seconds = {route: metrics.seconds.labels(route) for route in (*routes, "other")}
        self._responses: dict[tuple[str, int], Counter] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = perf_counter()
        route = scope["path"] if scope["path"] in self.routes else "other"

        async def noting(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._count(route, message["status"])
            await send(message)

        try:
            await self.app(scope, receive, noting)
        finally:
            self._seconds[route].observe(perf_counter() - started)

    def note(self, route: str, status: int, seconds: float) -> None:
        """Count an answer that did not come through this layer; `route` is one of ours."""
        self._count(route, status)
        self._seconds[route].observe(seconds)

    def _count(self, route: str, status: int) -> None:
        counter = self._responses.get((route, status))
        if counter is None:
            counter = self._responses[route, status] = self.metrics.responses.labels(route, str(status))
        counter.inc()
