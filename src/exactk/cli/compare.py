"""`exactk compare`: does a whole card pay on this data, and which method should run?"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import typer

from exactk.cli import app
from exactk.cli.output import emit, emit_json, plain, talk


@app.command("compare")
def compare(
    data: Path = typer.Argument(help="A dataset folder."),
    methods: list[str] = typer.Option(
        [], "--method", help="One method; may be repeated. All of them by default."
    ),
    seeds: list[int] = typer.Option([0], "--seed", help="May be repeated."),
    out: Path | None = typer.Option(
        None, "--out", help="Folder for results: run again, only what is missing is run."
    ),
    jobs: int | None = typer.Option(None, "--jobs", help="Processes; as many as cores by default."),
    quick: bool = typer.Option(
        False, "--quick", help="Few methods, few rows, a small budget; marked as such."
    ),
    plot: Path | None = typer.Option(None, "--plot", help="Value against latency, as PNG or SVG."),
    keep: Path | None = typer.Option(None, "--keep", help="Keep the whole comparison in this JSON file."),
    as_json: bool = typer.Option(False, "--json", help="Print exactly one JSON object."),
) -> None:
    """Fit every method on the same train split, tune on the same validation split, judge on the same test requests."""
    from exactk.bench.report import this_machine
    from exactk.data.dataset import Dataset
    from exactk.evaluation.compare import compare as run
    from exactk.evaluation.figures import value_against_latency
    from exactk.evaluation.verdict import markdown

    found = run(Dataset.open(data), methods or None, seeds=seeds, out=out, jobs=jobs, quick=quick)
    document = plain(
        {
            **found.as_dict(),
            "quick": quick,
            "machine": this_machine(),
            "command": "exactk " + " ".join(sys.argv[1:]),
        }
    )
    if keep is not None:
        keep.parent.mkdir(parents=True, exist_ok=True)
        keep.write_text(
            json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8"
        )
        talk(f"written: {keep}")
    if plot is not None:
        talk(f"written: {value_against_latency(found, plot)}")
    if as_json:
        emit_json(document)
    else:
        emit(markdown(found))
