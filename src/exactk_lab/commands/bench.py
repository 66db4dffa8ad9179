"""`exactk bench`: every speed claim, measured here and now beside its rivals.

Each benchmark is a module of `exactk_lab.bench` with a `run`; this file only names them.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from typing import Any, Literal

import typer

from exactk.cli import app
from exactk.cli.output import emit, emit_json, emit_table, keep_json, plain, talk
from exactk.errors import ExactKError, InputError
from exactk_lab.bench import benchmark
from exactk_lab.bench.report import Report

BENCHMARKS = {
    "exact": "the exact engine beside CP-SAT, HiGHS and networkx",
    "briefs": "counts, totals, variety, places and preferences beside CP-SAT and HiGHS; gaps after a few ms",
    "data": "building, opening and batching a log of the Taobao shape",
    "train": "training steps a second beside the authors' figures",
    "decode": "cards a second: the compiled decoder and ONNX beside PyTorch",
    "growth": "milliseconds and memory against candidates, card size, beam, batch and catalogue",
    "serve": "the service under load beside a bare echo",
    "soak": "the service's memory over half an hour of steady load",
    "scale": "training and scoring with one and two workers on Ray, and what large vocabularies take",
    "footprint": "bytes installed, seconds of first answers, memory of a worker",
    "torture": "hostile inputs at every door: hangs, tracebacks, wrong cards",
    "trust": "off-policy estimates beside the truth",
}
ON_GPU = ("train",)


@app.command("bench")
def bench(
    name: str = typer.Argument(help=f"One of: {', '.join(BENCHMARKS)}, or all."),
    quick: bool = typer.Option(
        False, "--quick", help="A smaller run, in under a minute; the result is marked as such."
    ),
    device: Literal["cpu", "cuda"] = typer.Option("cpu", "--device", help="The device, for train."),
    published: Path | None = typer.Option(None, "--published", help="The authors' files, for train."),
    as_json: bool = typer.Option(False, "--json", help="Print exactly one JSON object."),
    out: Path | None = typer.Option(None, "--out", help="Folder for bench-NAME.json, for example results."),
) -> None:
    """Measure speed, and compare it with the goals. `all` runs every benchmark that this machine can run."""
    if name == "all":
        _all(quick, published, as_json, out)
        return
    if name not in BENCHMARKS:
        raise InputError(f"unknown benchmark {name!r}; there are: {', '.join(BENCHMARKS)}, all")
    if device == "cuda" and name not in ON_GPU:
        raise InputError(f"bench {name} runs on the CPU; on a GPU there is: {', '.join(ON_GPU)}")
    module = f"{name}_cuda" if device == "cuda" else name
    report = _measured(module, quick, published)
    emit_report(report, as_json, _place(out, module), command="exactk " + " ".join(sys.argv[1:]))


def emit_report(report: Report, as_json: bool, out: Path | None, command: str) -> None:
    """Print a report, and keep it as a committed result where asked."""
    document = plain({**report.as_dict(), "command": command})
    if out is not None:
        keep_json(document, out)
    if as_json:
        emit_json(document)
        return
    for columns, rows in itertools.groupby(report.rows, key=tuple):  # a table for rows of one kind
        emit_table(columns, [[_cell(value) for value in row.values()] for row in rows], report.name)
    for goal in report.goals:
        described = goal.as_dict()
        emit(
            f"{'met   ' if goal.met else 'MISSED'}  {goal.name}: {goal.measured:.4g} (goal {described['goal']})"
        )
    for note in report.notes:
        emit(note)


def _cell(value: object) -> object:
    """A spread in the width of a table."""
    if isinstance(value, dict) and {"median", "p10", "p90"} <= value.keys():
        return f"{value['median']:.4g} ({value['p10']:.4g} to {value['p90']:.4g})"
    return value


def _measured(module: str, quick: bool, published: Path | None) -> Report:
    talk(f"bench {module.replace('_', ' on ')}: {BENCHMARKS[module.removesuffix('_cuda')]}")
    settings: dict[str, Any] = {"published": published} if module == "train" else {}
    report: Report = benchmark(module).run(quick=quick, **settings)
    return report


def _place(out: Path | None, module: str) -> Path | None:
    return None if out is None else out / f"bench-{module.replace('_', '-')}.json"


def _all(quick: bool, published: Path | None, as_json: bool, out: Path | None) -> None:
    """Every benchmark in turn; what cannot run here is left out and named. As JSON, one object of all reports."""
    import torch

    modules = [*BENCHMARKS, *(f"{name}_cuda" for name in ON_GPU if torch.cuda.is_available())]
    reports, left_out = [], {}
    for module in modules:
        try:
            report = _measured(module, quick, published)
        except (ExactKError, ImportError) as error:
            left_out[module] = str(error)
            talk(f"left out: {error}")
            continue
        command = f"exactk bench {module.removesuffix('_cuda')}"
        command += " --device cuda" if module.endswith("_cuda") else ""
        if as_json:
            reports.append(plain({**report.as_dict(), "command": command}))
            if (place := _place(out, module)) is not None:
                keep_json(reports[-1], place)
        else:
            emit_report(report, as_json, _place(out, module), command)
    if as_json:
        emit_json({"name": "all", "quick": quick, "reports": reports, "left_out": left_out})
