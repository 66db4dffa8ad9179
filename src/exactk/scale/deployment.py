"""The service of one machine as a Ray Serve deployment: the same app in every replica.

Knows no route: `serving.app` is what answers.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from exactk.scale.cluster import Placement, cluster
from exactk.serving.app import create_app
from exactk.serving.run import check_folders
from exactk.serving.settings import ENVIRONMENT, Settings

NAME = "exactk"


def application(settings: Settings, replicas: int) -> Any:
    """What `serve.run` takes; each replica makes the app itself, from settings that reach it as any worker's do."""
    from ray import serve

    ingress: Any = serve.ingress(create_app)(type("ExactK", (), {}))
    options = {"num_cpus": 1, "runtime_env": {"env_vars": {ENVIRONMENT: settings.to_json()}}}
    deploy: Any = serve.deployment(name=NAME, num_replicas=replicas, ray_actor_options=options)
    return deploy(ingress).bind()


@contextmanager
def deployed(settings: Settings, placement: Placement, host: str, port: int) -> Iterator[str]:
    """The service, ready, for the time of a `with` block; yields its address."""
    check_folders(settings)
    with cluster(placement.address, placement.workers):
        from ray import serve

        serve.start(http_options={"host": host, "port": port})
        try:
            serve.run(application(settings, placement.workers), name=NAME, route_prefix="/")
            yield f"http://{host}:{port}"
        finally:
            serve.shutdown()  # type: ignore[no-untyped-call]


def serve_until_stopped(settings: Settings, placement: Placement, host: str, port: int) -> None:
    """Serve until SIGINT or SIGTERM."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with deployed(settings, placement, host, port):
        stop.wait()
