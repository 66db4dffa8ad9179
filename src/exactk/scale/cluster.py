"""Ray, started and stopped, or met where it runs; kept quiet, and named clearly where it is not installed.

Knows no work: what runs on the cluster is the business of the other files.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from exactk.errors import ConfigError, MissingExtraError

STORE_BYTES = 512 << 20  # what travels through Ray's object store is plans and reports, never logs or cards
# Ray reports its use to its makers unless told not to; workers keep the number of threads they were started with.
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
