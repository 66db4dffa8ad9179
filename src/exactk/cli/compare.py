"""`exactk compare`: does a whole card pay on this data, and which method should run?"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any, Literal

import typer

from exactk.cli import app
from exactk.cli.output import emit, emit_json, keep_json, plain, talk


@app.command("compare")
def compare(
    data: Path = typer.Argument(help="A dataset folder."),
    methods: list[str] = typer.Option(
        [],
        "--method",
        help="A method to run, or module:function for your own. May be repeated. By default all of them.",
    ),
    skip: list[str] = typer.Option([], "--skip", help="A method to leave out; may be repeated."),
    models: list[Path] = typer.Option(
        [],
        "--model",
        help="A trained model to compare with the others. May be repeated. The studio then shows the table.",
    ),
    split: Literal["recorded", "random", "user", "time", "pair"] | None = typer.Option(
        None,
        "--split",
        help="How to split the log; by default as the given models, or else as recorded in the data.",
    ),
    seeds: list[int] = typer.Option(
        [0], "--seed", help="Seed of the training. May be repeated: results are averaged."
    ),
    trials: int = typer.Option(4, "--trials", min=1, help="How many settings each method may try."),
    epochs: int = typer.Option(30, "--epochs", min=1, help="Epochs of each trial, at most."),
    max_test: int = typer.Option(10_000, "--max-test", min=1, help="Test requests to judge on, at most."),
    limit: float | None = typer.Option(None, "--limit", help="Give up a method after this many seconds."),
    out: Path | None = typer.Option(
        None,
        "--out",
        help="Folder for results; run again, it runs only what is missing. [default: runs/compare-DATA]",
    ),
    jobs: int | None = typer.Option(
        None, "--jobs", min=1, help="How many methods to run at a time; as many as cores by default."
    ),
    report_only: bool = typer.Option(
        False, "--report", help="Train nothing: show what earlier runs left in --out."
    ),
    quick: bool = typer.Option(
        False, "--quick", help="Ten methods, few rows, a small budget: an indication, and marked as such."
    ),
    plot: Path | None = typer.Option(None, "--plot", help="Draw value against latency as PNG or SVG."),
    keep: Path | None = typer.Option(None, "--keep", help="Write the whole comparison to this JSON file."),
    as_json: bool = typer.Option(False, "--json", help="Print exactly one JSON object."),
) -> None:
    """Compare our methods with what teams use instead: same training data, same tuning budget, same test requests."""
    from exactk.data.dataset import Dataset
    from exactk.evaluation import this_machine
    from exactk.evaluation.compare import Existing, methods_for
    from exactk.evaluation.compare import compare as run
    from exactk.evaluation.verdict import markdown, studio_table, value_against_latency
    from exactk.settings.config import QUICK, Budget

    named = [name for name in methods or methods_for(quick) if name not in skip]
    trained = [Existing.load(model) for model in models]
    chosen: list[Any] = [*named, *trained]
    dataset = Dataset.open(data)
    parts = dataset.split(split)
    for known in (one.split for one in trained if one.split is not None and split is None):
        if parts[0].parted is not None and known.impressions == parts[0].parted.impressions:
            parts = dataset.split(known.by, known.seed, known.valid, known.test)  # type: ignore[arg-type]
            break
    folder = out or Path("runs") / f"compare-{data.resolve().name}{'-quick' * quick}"
    talk(f"results are in {folder}; after an interruption, the same command resumes")
    budget = QUICK if quick else Budget(trials=trials, epochs=epochs)
    found = run(
        parts, chosen, seeds=seeds, out=folder, jobs=jobs, budget=budget, quick=quick,
        max_test=max_test, limit_seconds=limit, run=not report_only,
    )  # fmt: skip
    command = shlex.join(["exactk", *sys.argv[1:]])
    document = plain({**found.as_dict(), "quick": quick, "machine": this_machine(), "command": command})
    if keep is not None:
        keep_json(document, keep)
    for model in models:
        keep_json(plain(studio_table(found)), model / "comparison.json")
    if plot is not None:
        talk(f"written: {value_against_latency(found, plot)}")
    if as_json:
        emit_json(document)
    else:
        emit(markdown(found))
    if not found.rows:
        raise typer.Exit(1)
