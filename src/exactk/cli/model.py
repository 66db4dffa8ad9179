"""`exactk train`, `evaluate`, `compare`, `export`: a model from a dataset folder, its figures, rivals and graph."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

from exactk.cli import app
from exactk.cli.output import (
    ADDRESS,
    DATASET,
    JSON,
    LOST,
    MODEL,
    RAY,
    emit,
    emit_figures,
    emit_json,
    keep_json,
    plain,
    talk,
)
from exactk.errors import DataError

if TYPE_CHECKING:
    from exactk.data.dataset import Dataset, SplitRecord
    from exactk.evaluation.offpolicy import Estimate
    from exactk.settings.config import Config

AT_ONCE = 256
UNKNOWN_SPLIT = (
    "this model does not say how its log was split: rows it was trained on may be among those judged"
)
Split = Literal["recorded", "random", "user", "time", "pair"]
Part = Literal["train", "valid", "test"]


@app.command("train")
def train(
    data: Path = DATASET,
    out: Path = typer.Option(..., "--out", help="The model folder to write."),
    preset: str = typer.Option(
        "best",
        "--preset",
        help="A set of settings: best, paper, pair-value, guided, best-ids, large or tiny.",
    ),
    config: Path | None = typer.Option(None, "--config", help="Settings as TOML, instead of a preset."),
    overrides: list[str] = typer.Option(
        [], "--set", help="Change a setting: policy.beam=5. May be repeated."
    ),
    rules: Path | None = typer.Option(
        None, "--rules", help="Rules that every card must keep (TOML or JSON), instead of those of the data."
    ),
    split: Split | None = typer.Option(
        None, "--split", help="How to split the log; by default as recorded in the data, or else at random."
    ),
    seed: int = typer.Option(
        0, "--seed", help="Seed of the split. The seed of the training is the setting training.seed."
    ),
    run: Path | None = typer.Option(
        None, "--run", help="Folder for checkpoints and learning curves. [default: OUT.run]"
    ),
    resume: bool = typer.Option(False, "--resume", help="Resume an earlier run where it stopped."),
    track: bool = typer.Option(
        False, "--track", help="Write to TensorBoard and MLflow, if they are installed."
    ),
    on_ray: bool = RAY,
    address: str | None = ADDRESS,
    workers: int = typer.Option(1, "--workers", help="Processes that train together, with --ray."),
    strict: bool = typer.Option(
        False,
        "--strict",
        help="Exit with status 3 if training learned nothing. The model is written all the same.",
    ),
    as_json: bool = JSON,
) -> None:
    """Train a model on the train split. The validation split decides which weights to keep; the test split is not read.

    With --ray, or when started by torchrun, several processes train one model together.
    """
    from exactk.data.dataset import Dataset
    from exactk.learning.calibrate import training_faults
    from exactk.learning.process import current_ranks
    from exactk.model_folder import check_free
    from exactk.problem.rules.constraints import load_rules
    from exactk.recommender import Recommender

    check_free(out)
    settings = chosen_settings(preset, config, overrides)
    for name in settings.unread(overrides):
        inner = name.rpartition(".")[2]
        instead = (
            f"; {settings.model}.{inner} is read" if hasattr(getattr(settings, settings.model), inner) else ""
        )
        talk(f"note: model={settings.model} does not read the setting {name}{instead}")
    dataset = Dataset.open(data)
    learned, held_out, _ = dataset.split(split, seed=seed)
    recommender = Recommender(settings, load_rules(rules) if rules else None)
    folder = run or out.with_name(out.name + ".run")
    if on_ray:
        from exactk.learning.progress import ProgressBar
        from exactk.scale.cluster import Placement
        from exactk.scale.training import TrainingJob
        from exactk.scale.training import train as train_on_ray

        own = None if recommender.constraints is None else recommender.constraints.to_dict()
        places = [str(path.absolute()) for path in (data, out, folder)]
        job = TrainingJob(places[0], places[1], places[2], settings.to_dict(), own, split, seed)
        recommender = train_on_ray(job, Placement(True, address, workers), resume, ProgressBar())
    else:
        recommender.fit(learned, held_out, folder=folder, resume=resume, track=track)
        if not current_ranks().first:
            return  # one of torchrun's other processes: the first one keeps and tells
        recommender.save(out)
    figures = recommender.evaluate(held_out)
    share_clicked = float(held_out.clicked.mean()) if len(held_out) else 0.0
    by_card = recommender.fitted.sizes.shown != "list"
    faults = training_faults(recommender.history, len(held_out) if by_card else 0, share_clicked)
    if as_json:
        emit_json({"model": str(out), "run": str(folder), "valid": figures, "faults": faults})
    else:
        emit(f"written: {out}")
        emit_figures(figures, "the validation split")
        for fault in faults:
            emit(f"WARNING: {fault}")
    if strict and faults:
        raise typer.Exit(LOST)


@app.command("evaluate")
def evaluate(
    model: Path = MODEL,
    data: Path = DATASET,
    part: Part = typer.Option("test", "--part", help="The part of the log to measure on."),
    split: Split | None = typer.Option(
        None,
        "--split",
        help="Split the log in another way than for training. By default the model remembers its split.",
    ),
    seed: int = typer.Option(0, "--seed", help="Seed of that other split."),
    keep: Path | None = typer.Option(None, "--keep", help="Add the figures as a row to this JSON file."),
    as_json: bool = JSON,
) -> None:
    """Measure a model on a log: clicked item on the card, overlap with logged cards, true value on a world.

    If the log holds propensities, it also estimates what the model's cards would have earned.
    """
    import numpy as np

    from exactk.data.dataset import Dataset
    from exactk.evaluation import this_machine
    from exactk.evaluation.judging import true_figures
    from exactk.evaluation.offpolicy import stacked
    from exactk.evaluation.table import Logged
    from exactk.recommender import Recommender

    recommender = Recommender.load(model)
    divided, caution = split_of(recommender.fitted.split, Dataset.open(data), split, seed)
    if caution is not None:
        talk(caution)
    parts = dict(zip(("train", "valid", "test"), divided, strict=True))
    written: list[np.ndarray] = []
    judged: list[Dataset] = []

    def judge(view: Dataset, places: np.ndarray, cards: np.ndarray) -> dict[str, np.ndarray]:
        judged.append(view)
        written.append(cards)
        return true_figures(view, places, cards)

    figures = recommender.evaluate(parts[part], AT_ONCE, judge)
    if "optimum" in figures:
        figures["share_of_optimum"] = figures["true_value"] / figures["optimum"]
    logged = Logged.of(judged[0]) if judged else None
    estimates: Mapping[str, Estimate] = {}
    if logged is not None and not np.isnan(logged.propensity).all():
        estimates = logged.estimates(stacked(written), np.random.default_rng(seed))
    off_policy = {name: estimate.as_dict() for name, estimate in estimates.items()}
    document = {"model": str(model), "data": str(data), "part": part, **figures, "off_policy": off_policy}
    document["caution"] = caution
    if keep is not None:
        origin = {"command": " ".join(["exactk", *sys.argv[1:]]), "machine": plain(this_machine())}
        row = plain({**document, "config": recommender.config.to_dict(), "command": origin["command"]})
        rows = _kept_rows(keep)
        rows = [other for other in rows if (other["model"], other["part"]) != (row["model"], row["part"])]
        keep_json({"name": "evaluate", "quick": False, **origin, "rows": [*rows, row], "goals": []}, keep)
    if as_json:
        emit_json(document)
        return
    emit_figures(figures, part)
    for name, estimate in estimates.items():
        if estimate.interval is None:
            emit(f"off-policy, {name}: {estimate.support.reason}")
        else:
            low, high = estimate.interval.low, estimate.interval.high
            emit(
                f"off-policy, {name}: clicked {estimate.interval.estimate:.4f} of the time ({low:.4f} to {high:.4f})"
            )


def split_of(
    trained: SplitRecord | None, dataset: Dataset, split: Split | None, seed: int
) -> tuple[tuple[Dataset, Dataset, Dataset], str | None]:
    """Train, valid, test as the model was trained; a caution where another split is asked for, or none is known."""
    asked = dataset.split(split, seed=seed)
    here = asked[0].parted
    assert here is not None
    if trained is None:
        return asked, UNKNOWN_SPLIT
    if trained.impressions != here.impressions:
        said = (
            "this model was trained on other impressions: these are split as asked, or as the folder has it"
        )
        return asked, said
    if trained.cutoffs is not None:
        return asked, (
            f"this model was trained on a split at {', '.join(trained.cutoffs)}, which only Python can repeat"
        )
    if split is None:
        return dataset.split(trained.by, trained.seed, trained.valid, trained.test), None  # type: ignore[arg-type]
    if trained == here:
        return asked, None
    return asked, f"this model was trained by another split ({trained}): rows it was trained on are judged"


@app.command("compare")
def compare(
    data: Path = DATASET,
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
    split: Split | None = typer.Option(
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
    as_json: bool = JSON,
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


@app.command("export")
def export(
    model: Path = MODEL,
    out: Path = typer.Option(..., "--out", help="The file to write."),
    to: Literal["onnx"] = typer.Option("onnx", "--to", help="The format."),
    k: int | None = typer.Option(
        None, "--k", "-k", help="How many items a card has, for a policy; the model's own by default."
    ),
    candidates: int = typer.Option(
        64,
        "--candidates",
        help="How many candidates the graph takes; shorter lists are padded. Not for a policy.",
    ),
) -> None:
    """Write a trained model as one ONNX file for other runtimes.

    The default model becomes a graph that scores each candidate and each pair; `exactk.solve` finds the best card from
    these scores. A policy becomes a graph that writes whole cards.
    """
    from exactk.learning.onnx import export_onnx, export_value
    from exactk.recommender import Recommender

    recommender = Recommender.load(model)
    if recommender.fitted.weights.policy is None:
        written = export_value(recommender, out, candidates)
    else:
        written = export_onnx(recommender, out, k)
    emit(f"written: {written} ({to})")


def _kept_rows(keep: Path) -> list[dict[str, Any]]:
    """The rows of a file that earlier runs of `evaluate --keep` wrote."""
    if not keep.exists():
        return []
    try:
        rows: list[dict[str, Any]] = json.loads(keep.read_text(encoding="utf-8"))["rows"]
        return [row for row in rows if row["model"] and row["part"]]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(f"--keep {keep} does not hold figures of `evaluate`: {error!r}") from error


def chosen_settings(preset_name: str, path: Path | None, overrides: list[str]) -> Config:
    """A preset or a file, with single settings changed."""
    from exactk.settings.presets import preset, read_settings

    base = read_settings(path) if path else preset(preset_name)
    return base.with_overrides(overrides)
