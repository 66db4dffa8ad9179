"""Ray, started and stopped, or met where it runs; parts of a job placed on it, the service deployed on it.

Knows no work: what a part is, is the business of the other files, and `serving.app` is what answers. Where Ray is not
installed, that is said clearly.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from exactk.errors import ConfigError, DataError, ExactKError, MissingExtraError
from exactk.scale.plan import JobPart

if TYPE_CHECKING:
    from exactk.serving.settings import Settings

STORE_BYTES = 512 << 20  # what travels through Ray's object store is plans and reports, never logs or cards
# Ray reports its use to its makers unless asked not to; workers keep the number of threads they were started with.
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}


def require_ray() -> Any:
    """The ray package, or an error that says how to get it."""
    if find_spec("ray") is None:
        raise MissingExtraError("Ray is not installed: pip install 'exactk[scale]'")
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    import ray

    return ray


@contextmanager
def cluster(address: str | None = None, workers: int = 1, cpus: int = 1) -> Iterator[Any]:
    """Ray for the time of a `with` block: that at `address` or RAY_ADDRESS, else a local one that stops afterwards.

    A local one has `cpus` for each worker. A Ray that this process has joined before is used and left running.
    """
    if workers < 1:
        raise ConfigError(f"workers must be at least 1, got {workers}")
    ray = require_ray()
    if ray.is_initialized():
        yield ray
        return
    where = address or os.environ.get("RAY_ADDRESS")
    options: dict[str, Any] = {"address": where} if where else _local(workers * cpus)
    try:
        ray.init(logging_level=logging.ERROR, log_to_driver=False, **options)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise ConfigError(f"no Ray answers at {where or 'this machine'}: {error}") from error
    try:
        yield ray
    finally:
        ray.shutdown()


def _local(cpus: int) -> dict[str, Any]:
    """One logical CPU more than the workers take: what drives them (Ray's own actors) must not wait for them."""
    return {
        "address": "local",
        "num_cpus": cpus + 1,
        "include_dashboard": False,
        "object_store_memory": STORE_BYTES,
    }


Report = dict[str, Any]
Work = Callable[[JobPart], Report]  # makes a part and reports on it, in plain JSON


@dataclass(frozen=True)
class Placement:
    """Where parts are made: in this process, or by `workers` of a Ray cluster."""

    ray: bool = False
    address: str | None = None
    workers: int = 1


HERE = Placement()


def placed(
    prepare: Callable[[Any], Work], job: Any, parts: Sequence[JobPart], placement: Placement
) -> Iterator[Report]:
    """Reports in whatever order parts are finished. `prepare(job)`, say loading a model, is done once a worker."""
    if not parts:
        return
    if placement.ray:
        yield from _on_ray(prepare, job, parts, placement)
        return
    work = prepare(job)
    for part in parts:
        yield work(part)


class PartWorker:
    """The work as Ray Data takes it: one to a worker, rows that name parts in, rows that report on them out."""

    def __init__(self, prepare: Callable[[Any], Work], job: Any) -> None:
        self.work = prepare(job)

    def __call__(self, rows: Mapping[str, Any]) -> dict[str, list[str]]:
        """Make the parts named. What is wrong with the data is reported, not raised: Ray would try again and again."""
        reports = []
        for text in rows["part"]:
            try:
                reports.append(json.dumps(self.work(JobPart(**json.loads(text)))))
            except ExactKError as error:
                reports.append(json.dumps({"error": str(error)}))
        return {"report": reports}


def _on_ray(
    prepare: Callable[[Any], Work], job: Any, parts: Sequence[JobPart], placement: Placement
) -> Iterator[Report]:
    with cluster(placement.address, placement.workers):
        from ray import data

        logging.getLogger("ray.data").setLevel(logging.ERROR)
        data.DataContext.get_current().enable_progress_bars = False  # ours tells more
        named = [{"part": json.dumps(asdict(part))} for part in parts]
        done = data.from_items(named, override_num_blocks=len(named)).map_batches(
            PartWorker,
            fn_constructor_args=(prepare, job),
            batch_size=1,
            compute=data.ActorPoolStrategy(size=min(placement.workers, len(parts))),
            num_cpus=1,
        )
        for row in done.iter_rows():
            report: Report = json.loads(row["report"])
            if "error" in report:
                raise DataError(report["error"])
            yield report


NAME = "exactk"  # of the deployment


def application(settings: Settings, replicas: int) -> Any:
    """What `serve.run` takes; each replica makes the app itself, from settings that reach it as any worker's do."""
    from ray import serve

    from exactk.serving.app import create_app
    from exactk.serving.settings import ENVIRONMENT

    ingress: Any = serve.ingress(create_app)(type("ExactK", (), {}))
    options = {"num_cpus": 1, "runtime_env": {"env_vars": {ENVIRONMENT: settings.to_json()}}}
    deploy: Any = serve.deployment(name=NAME, num_replicas=replicas, ray_actor_options=options)
    return deploy(ingress).bind()


@contextmanager
def deployed(settings: Settings, placement: Placement, host: str, port: int) -> Iterator[str]:
    """The service, ready, for the time of a `with` block; yields its address."""
    from exactk.serving.run import check_folders

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
