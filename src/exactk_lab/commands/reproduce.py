"""`exactk reproduce`: the paper's tables and figures, made again, beside what the paper printed."""

from __future__ import annotations

import importlib
import shlex
import sys
from pathlib import Path

import typer

from exactk.cli import app
from exactk.cli.output import emit, emit_json, keep_json, plain, talk
from exactk.errors import InputError


@app.command("reproduce")
def reproduce(
    part: str = typer.Argument(help="main, ablation, beam, alpha, curves, attention, or all."),
    published: Path | None = typer.Option(None, "--published", help="Folder of the authors' files."),
    movielens: Path | None = typer.Option(None, "--movielens", help="Folder of MovieLens-100K."),
    world: Path | None = typer.Option(
        None, "--world", help="A dataset folder of a world, for one more column of the main table."
    ),
    work: Path = typer.Option(
        Path("runs/reproduce"),
        "--work",
        help="Folder for data and intermediate results; run again, it resumes.",
    ),
    seeds: list[int] = typer.Option(
        [0, 1, 2, 3, 4], "--seed", help="Seeds of the training; may be repeated."
    ),
    jobs: int = typer.Option(0, "--jobs", help="How many processes; as many as cores by default."),
    quick: bool = typer.Option(
        False, "--quick", help="A few minutes: fewer rows, epochs and seeds; the result is marked as such."
    ),
    note: list[str] = typer.Option([], "--note", help="A remark to keep with the result; may be repeated."),
    report_only: bool = typer.Option(
        False, "--report", help="Run nothing: show what earlier runs left in --work."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print exactly one JSON object."),
    out: Path | None = typer.Option(
        None, "--out", help="Folder for reproduce-PART.json, for example results."
    ),
    plot: Path | None = typer.Option(
        None, "--plot", help="Folder for pictures (PNG and SVG), for example docs/img."
    ),
) -> None:
    """Reproduce a table or figure of the paper: train what is missing, judge it on the test requests, print it."""
    from exactk_lab.bench.pages.reproduced import table
    from exactk_lab.reproduce import PARTS, figures
    from exactk_lab.reproduce.cells import Options
    from exactk_lab.reproduce.sources import Place

    if part != "all" and part not in PARTS:
        raise InputError(f"nothing called {part!r} to reproduce; there are: {', '.join(PARTS)}, all")
    place = Place(work, published, movielens, world)
    options = Options(tuple(seeds[:1] if quick else seeds), jobs, quick, talk, not report_only)
    documents = []
    for name in PARTS if part == "all" else [part]:
        talk(f"reproduce {name}: {PARTS[name]}")
        module = "main_table" if name == "main" else name
        report = importlib.import_module(f"exactk_lab.reproduce.{module}").run(place, options)
        command = f"exactk reproduce {name} " + shlex.join(_without_notes(sys.argv[3:]))
        notes = [*report.notes, *note]
        documents.append(plain({**report.as_dict(), "notes": notes, "command": command.strip()}))
        if out is not None:
            keep_json(documents[-1], out / f"reproduce-{name}.json")
        if plot is not None:
            for path in figures.draw(name, report.rows, plot):
                talk(f"written: {path}")
        if not as_json:
            emit(table(name, report.rows) + "\n")
            for goal in report.goals:
                wanted = goal.as_dict()["goal"]
                emit(
                    f"{'met   ' if goal.met else 'MISSED'}  {goal.name}: {goal.measured:.4g} (goal {wanted})"
                )
            for line in notes:
                emit(line)
    if as_json:
        emit_json(documents[0] if part != "all" else {"name": "reproduce all", "parts": documents})


def _without_notes(arguments: list[str]) -> list[str]:
    """The command as somebody else would give it: remarks are kept beside it."""
    return [a for before, a in zip(["", *arguments], arguments, strict=False) if "--note" not in (before, a)]
