"""`exactk score`: cards for a whole user base, on this machine or on a Ray cluster."""

from __future__ import annotations

from pathlib import Path

import typer

from exactk.cli import app
from exactk.cli.data import column_map
from exactk.cli.output import ADDRESS, RAY, column_lines, emit, emit_json, progress_bar


@app.command("score")
def score(
    model: Path = typer.Argument(help="A model folder (exactk train)."),
    source: Path = typer.Argument(
        help="Requests: Parquet, CSV or JSON lines (a row per candidate, or per request with lists), a folder of such, "
        "or a dataset folder."
    ),
    out: Path = typer.Option(..., "--out", help="The folder of Parquet cards to write, or to resume."),
    columns: list[str] = typer.Option(
        [], "--map", help="Say what your columns are called: user_id=uid. May be repeated."
    ),
    candidates: Path | None = typer.Option(
        None, "--candidates", help="A file with an item id per line: offer these to every user."
    ),
    k: int | None = typer.Option(
        None,
        "--k",
        "-k",
        help="How many items a card has, if the request does not say; the model's own by default.",
    ),
    skip_bad: bool = typer.Option(
        False, "--skip-bad", help="Leave out rows that cannot be used, and count them."
    ),
    rows: int = typer.Option(
        65_536, "--rows", help="Rows per part. An interrupted job loses one part at most."
    ),
    on_ray: bool = RAY,
    address: str | None = ADDRESS,
    workers: int = typer.Option(1, "--workers", help="Processes that score, with --ray."),
    as_json: bool = typer.Option(False, "--json", help="Print exactly one JSON object."),
) -> None:
    """Choose a card for every user of a large set of requests. After an interruption, the same command resumes."""
    from exactk.scale.cluster import Placement
    from exactk.scale.score import plain_candidates
    from exactk.scale.score import score as run
    from exactk.scale.scoring import ScoringJob

    job = ScoringJob(
        model=str(model),
        out=str(out),
        columns=column_map(columns),
        candidates=None if candidates is None else plain_candidates(candidates, model),
        k=k,
        skip_bad=skip_bad,
    )
    with progress_bar("scoring", 100) as bar:
        report = run(
            job,
            source,
            Placement(on_ray, address, workers),
            rows,
            lambda done, total: bar(100 * done // max(1, total)),
        )
    if as_json:
        emit_json(report.to_dict())
        return
    emit(
        f"written: {out} ({report.requests:,} requests; parts: {report.parts}, {report.parts_before} made before; "
        f"{report.requests_per_second:,.0f} a second, {report.megabytes_most:,.0f} MB at most)"
    )
    for line in column_lines(report.unread, report.missing, report.notes):
        emit(line)
    if report.infeasible:
        emit(f"{report.infeasible:,} requests have no valid card; their column 'problem' says why")
    if report.bad:
        emit(f"{report.bad:,} rows could not be used and were left out; the first: {report.examples[0]}")
