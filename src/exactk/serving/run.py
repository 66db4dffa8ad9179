"""serve: settings to running processes: a supervisor, and workers that it replaces when they die or hang.

Knows uvicorn, no route. The process that starts workers loads nothing of what they load: it is small.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.config import LOGGING_CONFIG, STARTUP_FAILURE

from exactk.errors import ConfigError, DataError, MissingExtraError
from exactk.model_files import checked_description
from exactk.serving.http.port import for_workers, listening
from exactk.serving.settings import ENVIRONMENT, Settings, read_key_hashes
from exactk.serving.supervisor import Supervisor

log = logging.getLogger("exactk.serving")

# uvicorn's own lines, and ours in the same hand, in every worker.
LOGGING: dict[str, Any] = {
    **LOGGING_CONFIG,
    "loggers": {
        **LOGGING_CONFIG["loggers"],
        "exactk": {"handlers": ["default"], "level": "INFO", "propagate": False},
    },
}
NEEDED = ("fastapi", "httptools", "prometheus_client", "pydantic")  # by the workers
FLUSH_SHARE = 0.3  # of the time to end, kept for the log once open requests are answered


def serve(
    model: Path | None = None,
    host: str = "127.0.0.1",
    port: int = 8000,
    workers: int = 1,
    keys_file: Path | None = None,
    log_level: str = "info",
    **settings: Any,
) -> None:
    """Serve until told to stop (SIGINT, SIGTERM); then open requests are answered and the log is flushed.

    That takes `shutdown_seconds` at most, whatever the workers do. Further arguments are fields of `Settings`. API keys
    come hashed from `keys_file` or EXACTK_API_KEYS.
    """
    for package in NEEDED:
        if find_spec(package) is None:
            raise MissingExtraError(f"serving needs the package {package}: pip install 'exactk[serve]'")
    if workers < 1:
        raise ConfigError(f"workers must be at least 1, got {workers}")
    hashes = (*settings.pop("key_hashes", ()), *read_key_hashes(keys_file))
    chosen = Settings(model=model, key_hashes=hashes, **settings)
    check_folders(chosen)
    opened = listening if workers == 1 else for_workers
    with tempfile.TemporaryDirectory(prefix="exactk-metrics-") as shared, opened(host, port) as listener:
        os.environ[ENVIRONMENT] = chosen.to_json()
        if workers > 1:
            os.environ["PROMETHEUS_MULTIPROC_DIR"] = shared
        config = uvicorn.Config(
            "exactk.serving.app:create_app",
            factory=True,
            workers=workers,
            log_config=LOGGING,
            log_level=log_level,
            access_log=False,
            server_header=False,
            ws="none",
            http="exactk.serving.http.fast_path:FastPathProtocol",  # by name: only workers load it
            proxy_headers=False,  # nothing here asks who the client is
            timeout_graceful_shutdown=max(int((1 - FLUSH_SHARE) * chosen.shutdown_seconds), 1),
        )
        name = f"[{host}]" if ":" in host else host
        log.info("exactk: http://%s:%d, %d worker(s)", name, listener.getsockname()[1], workers)
        if not is_loopback(host) and not hashes:
            log.warning("serving on %s without API keys: anyone who reaches this address may ask", host)
        supervisor = Supervisor(config, [listener], workers, chosen.hang_seconds, chosen.shutdown_seconds)
        try:
            supervisor.run()
        finally:
            os.environ.pop("PROMETHEUS_MULTIPROC_DIR", None)
            os.environ.pop(ENVIRONMENT, None)
    if supervisor.has_failed:
        raise SystemExit(STARTUP_FAILURE)


def check_folders(settings: Settings) -> None:
    """Refuse what no worker could serve, before any is started: a supervisor would start them again for ever."""
    for name in ("model", "challenger", "dataset"):
        folder = getattr(settings, name)
        if folder is None:
            continue
        if not folder.is_dir():
            raise ConfigError(f"the {name} folder {folder} does not exist")
        if name != "dataset":
            checked_description(folder)
        elif not (folder / "meta.json").is_file():
            raise DataError(f"{folder} is not a dataset folder: it has no meta.json")
    if settings.log is not None:
        try:
            settings.log.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"cannot make the log folder {settings.log}: {error.strerror}") from error
        if not os.access(settings.log, os.W_OK | os.X_OK):
            raise ConfigError(f"the log folder {settings.log} may not be written")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
