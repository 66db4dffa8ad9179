"""`exactk train`, `evaluate`, `recommend`: a model from a dataset folder, its figures, its cards."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

from exactk.cli import app
from exactk.cli.output import (
    ADDRESS,
    LOST,
    RAY,
    emit,
    emit_json,
    emit_table,
    keep_json,
    kept_file,
    plain,
    talk,
)
from exactk.errors import DataError, ExactKError, InputError

if TYPE_CHECKING:
    from exactk.data.dataset import Dataset, SplitRecord
    from exactk.settings.config import Config

AT_ONCE = 256
UNKNOWN_SPLIT = (
    "this model does not say how its log was split: rows it was trained on may be among those judged"
)
Split = Literal["recorded", "random", "user", "time", "pair"]
Part = Literal["train", "valid", "test"]


@app.command("train")
def train(
    data: Path = typer.Argument(help="A dataset folder (exactk data build)."),
    out: Path = typer.Option(..., "--out", help="The model folder to write."),
    preset: str = typer.Option("best", "--preset", help="paper, best or tiny."),
    config: Path | None = typer.Option(None, "--config", help="Settings as TOML, instead of a preset."),
    overrides: list[str] = typer.Option([], "--set", help="One setting, as policy.beam=5; may be repeated."),
    rules: Path | None = typer.Option(
        None, "--rules", help="Rules of every card, instead of the data's own."
    ),
    split: Split | None = typer.Option(
        None, "--split", help="How to split; as recorded in the data, else random."
    ),
    seed: int = typer.Option(0, "--seed", help="Of the split; training.seed is that of the training."),
    run: Path | None = typer.Option(
        None, "--run", help="Folder for checkpoints and curves (OUT.run by default)."
    ),
    resume: bool = typer.Option(False, "--resume", help="Go on where an earlier run stopped."),
    track: bool = typer.Option(False, "--track", help="TensorBoard and MLflow, where installed."),
    on_ray: bool = RAY,
    address: str | None = ADDRESS,
    workers: int = typer.Option(1, "--workers", help="Processes that train together, with --ray."),
    strict: bool = typer.Option(
        False, "--strict", help="Exit 3, the model written all the same, if training learned nothing."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print exactly one JSON object."),
) -> None:
    """Train on the train split; the validation split decides when to stop. The test split is not touched.

    Started by torchrun, or with --ray, several processes train one model together.
    """
    from exactk.data.dataset import Dataset
    from exactk.learning import ranks
    from exactk.learning.faults import training_faults
    from exactk.problem.rules.constraints import load_rules
    from exactk.recommender import Recommender

    settings = chosen_settings(preset, config, overrides)
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
        if not ranks.current().first:
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
        emit_table(("figure on the validation split", "value"), list(figures.items()))
        for fault in faults:
            emit(f"WARNING: {fault}")
    if strict and faults:
        raise typer.Exit(LOST)


@app.command("evaluate")
def evaluate(
    model: Path = typer.Argument(help="A model folder (exactk train)."),
    data: Path = typer.Argument(help="A dataset folder."),
    part: Part = typer.Option("test", "--part", help="What to measure on."),
    split: Split | None = typer.Option(
        None, "--split", help="Another split than the one the model was trained on, which it remembers."
    ),
    seed: int = typer.Option(0, "--seed", help="Of that other split."),
    keep: Path | None = typer.Option(None, "--keep", help="Add the figures, as a row, to this JSON file."),
    as_json: bool = typer.Option(False, "--json", help="Print exactly one JSON object."),
) -> None:
    """Measure a model: P@K, HR@K, estimated value, share of valid cards; on a world, the true value as well.

    Where the log holds propensities, what the model's cards would have earned is estimated off-policy, too.
    """
    import numpy as np

    from exactk.data.dataset import Dataset
    from exactk.evaluation.logged import logged_estimates
    from exactk.evaluation.machine import this_machine
    from exactk.evaluation.truth import true_figures
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
    cards = iter(written)
    batches = judged[0].batches(recommender.fitted.vocabulary, AT_ONCE) if judged else iter(())
    estimates = logged_estimates(lambda _: next(cards), batches, seed)
    off_policy = {name: estimate.as_dict() for name, estimate in estimates.items()}
    document = {"model": str(model), "data": str(data), "part": part, **figures, "off_policy": off_policy}
    document["caution"] = caution
    if keep is not None:
        made = {"command": " ".join(["exactk", *sys.argv[1:]]), "machine": plain(this_machine())}
        row = plain({**document, "config": recommender.config.to_dict(), "command": made["command"]})
        rows = json.loads(keep.read_text(encoding="utf-8"))["rows"] if keep.exists() else []
        rows = [other for other in rows if (other["model"], other["part"]) != (row["model"], row["part"])]
        keep_json({"name": "evaluate", "quick": False, **made, "rows": [*rows, row], "goals": []}, keep)
    if as_json:
        emit_json(document)
        return
    emit_table((f"figure on {part}", "value"), list(figures.items()))
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
        return asked, (
            "this model was trained on other impressions: these are split as asked, or as the folder has it"
        )
    if trained.cutoffs is not None:
        return asked, (
            f"this model was trained on a split at {', '.join(trained.cutoffs)}, which only Python can repeat"
        )
    if split is None:
        return dataset.split(trained.by, trained.seed, trained.valid, trained.test), None  # type: ignore[arg-type]
    if trained == here:
        return asked, None
    return asked, f"this model was trained by another split ({trained}): rows it was trained on are judged"


@app.command("recommend")
def recommend(
    model: Path = typer.Argument(help="A model folder (exactk train)."),
    requests: Path | None = typer.Option(
        None, "--requests", help="JSON lines of requests; - or nothing: stdin."
    ),
    k: int | None = typer.Option(None, "--k", "-k", help="Items on a card, where a request does not say."),
    rules: Path | None = typer.Option(None, "--rules", help="Rules instead of the model's own."),
    relax: list[str] = typer.Option(
        [], "--relax", help="A rule that may be lifted where no card exists, in order."
    ),
    explain: bool = typer.Option(False, "--explain", help="Say for each item left out why it is."),
    out: Path | None = typer.Option(None, "--out", help="Keep the cards in this file (JSON lines)."),
    as_json: bool = typer.Option(False, "--json", help="Print exactly one JSON object."),
) -> None:
    """Write a card for each request.

    A request is a line {"user_id": ..., "candidates": [...], "k": 4, "include": [...], "exclude": [...]}.
    """
    from exactk.problem.rules.constraints import load_rules
    from exactk.recommender import Recommender

    recommender = Recommender.load(model)
    size = recommender.fitted.card_size if k is None else k
    settings: dict[str, Any] = {"relax": tuple(relax), "explain": explain, "infeasible": "return"}
    if rules is not None:
        settings["constraints"] = load_rules(rules)
    answers: list[dict[str, Any]] = []
    for chunk in _chunks(_read_requests(requests, size)):
        found = recommender.recommend_many([request for _, request in chunk], **settings)
        answers += [_answer(place, answer) for (place, _), answer in zip(chunk, found, strict=True)]
    failed = sum("error" in answer for answer in answers)
    if out is not None:
        with kept_file(out, requests, rules) as lines:
            lines.writelines(json.dumps(plain(a), ensure_ascii=False) + "\n" for a in answers)
        talk(f"written: {out}")
    if as_json:
        emit_json({"cards": answers, "requests": len(answers), "infeasible": failed})
    elif out is None:
        for answer in answers:
            emit(json.dumps(plain(answer), ensure_ascii=False))
    if failed:
        talk(f"{failed} of {len(answers)} requests have no card")
        raise typer.Exit(2)


@app.command("export")
def export(
    model: Path = typer.Argument(help="A model folder (exactk train)."),
    out: Path = typer.Option(..., "--out", help="The file to write."),
    to: Literal["onnx"] = typer.Option("onnx", "--to", help="onnx: one graph that decodes whole cards."),
    k: int | None = typer.Option(None, "--k", "-k", help="Items on a card; the model's own by default."),
) -> None:
    """Write a trained policy as one file that other runtimes can decode cards with."""
    from exactk.learning.onnx import export_onnx
    from exactk.recommender import Recommender

    emit(f"written: {export_onnx(Recommender.load(model), out, k)} ({to})")


def chosen_settings(preset_name: str, path: Path | None, overrides: list[str]) -> Config:
    """A preset or a file, with single settings changed."""
    from exactk.settings.presets import preset, read_settings

    base = read_settings(path) if path else preset(preset_name)
    return base.with_overrides(overrides)


def _read_requests(path: Path | None, k: int) -> Iterator[tuple[int, Any]]:
    """Requests with their line numbers."""
    from exactk.data.requests import Request

    if path is None or str(path) == "-":
        name, stream = "stdin", sys.stdin
    elif path.is_file():
        name, stream = str(path), path.open(encoding="utf-8")
    else:
        raise DataError(f"{path}: there is no such file")
    with stream:
        for number, line in enumerate(stream, start=1):
            if not line.strip():
                continue
            try:
                written = json.loads(line)
                if not isinstance(written, dict):
                    raise InputError(f"expected an object, got {type(written).__name__}")
                yield number, Request.from_dict(written, k)
            except (ValueError, ExactKError) as error:
                raise DataError(f"{name}, line {number}: {error}") from error


def _chunks(requests: Iterator[tuple[int, Any]]) -> Iterator[list[tuple[int, Any]]]:
    while chunk := list(islice(requests, AT_ONCE)):
        yield chunk


def _answer(line: int, answer: Any) -> dict[str, Any]:
    if isinstance(answer, ExactKError):
        return {"line": line, "error": str(answer), "blocking": list(getattr(answer, "blocking", ()))}
    return {"line": line, **answer.as_dict()}
