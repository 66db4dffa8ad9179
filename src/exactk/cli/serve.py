"""`exactk serve`: cards over HTTP, and the studio page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from exactk.cli import app
from exactk.cli.output import ADDRESS, RAY, emit


@app.command("serve")
def serve(
    model: Path | None = typer.Argument(
        None, help="A model folder. Without one, the service takes scores and returns exact cards."
    ),
    host: str = typer.Option(
        "127.0.0.1", "--host", help="The address to listen on; by default only this machine can connect."
    ),
    port: int = typer.Option(8000, "--port", help="The port to listen on."),
    workers: int = typer.Option(1, "--workers", help="Processes that answer (with --ray: replicas)."),
    on_ray: bool = RAY,
    address: str | None = ADDRESS,
    dataset: Path | None = typer.Option(
        None, "--data", help="A dataset folder from which the studio can show requests."
    ),
    challenger: Path | None = typer.Option(
        None, "--challenger", help="A second model, for an A/B split by user."
    ),
    share: float = typer.Option(0.5, "--share", help="Share of users that the challenger serves."),
    log: Path | None = typer.Option(None, "--log", help="Folder for the log of impressions and feedback."),
    explore: float = typer.Option(
        0.0,
        "--explore",
        help="Share of cards drawn at random from the best eight, so that the log can judge other models.",
    ),
    keys: Path | None = typer.Option(
        None, "--keys", help="A file with a hashed API key per line (exactk key makes one)."
    ),
) -> None:
    """Answer over HTTP until stopped. The studio is at /, the API at /v1, its description at /openapi.json."""
    from exactk.serving import serve as run

    settings: dict[str, Any] = {"dataset": dataset, "explore": explore}
    if challenger is not None:
        settings |= {"challenger": challenger, "challenger_share": share}
    if log is not None:
        settings["log"] = log
    if on_ray:
        from exactk.scale.cluster import Placement, serve_until_stopped
        from exactk.serving.settings import Settings, read_key_hashes

        chosen = Settings(model=model and model.absolute(), key_hashes=read_key_hashes(keys), **settings)
        serve_until_stopped(chosen, Placement(True, address, workers), host, port)
        return
    run(model, host, port, workers, keys, **settings)


@app.command("key")
def key() -> None:
    """Make an API key. Give the first line to the client; put the second into the file for `serve --keys`."""
    from exactk.serving.http.security import new_key

    for line in new_key():
        emit(line)
