"""`exactk bench`: every speed claim, measured here and now beside its rivals.

Each benchmark is a module of `exactk.bench` with a `run`; this file only names them.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any, Literal

import typer

from exactk.cli import app
from exactk.cli.output import emit_report, talk
from exactk.errors import InputError

BENCHMARKS = {
    "exact": "the exact engine beside CP-SAT, HiGHS and networkx",
    "data": "building, opening and batching a log of the Taobao shape",
    "train": "training steps a second beside the authors' figures",
    "decode": "cards a second: the compiled decoder and ONNX beside PyTorch",
    "growth": "milliseconds and memory against candidates, card size, beam, batch and catalogue",
    "serve": "the service under load beside a bare echo",
    "soak": "the service's memory over half an hour of steady load",
    "scale": "training and scoring with one and two workers on Ray, and what large vocabularies take",
    "trust": "off-policy estimates beside the truth",
}


@app.command("bench")
def bench(
    name: str = typer.Argument(help=f"One of: {', '.join(BENCHMARKS)}, or all."),
    quick: bool = typer.Option(False, "--quick", help="A smaller run, under a minute, marked as such."),
    device: Literal["cpu", "cuda"] = typer.Option("cpu", "--device", help="For train and decode."),
    published: Path | None = typer.Option(None, "--published", help="The authors' files, for train."),
    as_json: bool = typer.Option(False, "--json", help="Print exactly one JSON object."),
    out: Path | None = typer.Option(None, "--out", help="Folder to keep bench-NAME.json in (say, results)."),
) -> None:
    """Measure: rows for what was measured, goals met or missed, the machine."""
    if name != "all" and name not in BENCHMARKS:
        raise InputError(f"unknown benchmark {name!r}; there are: {', '.join(BENCHMARKS)}, all")
    for chosen in BENCHMARKS if name == "all" else [name]:
        talk(f"bench {chosen}: {BENCHMARKS[chosen]}")
        module = f"{chosen}_cuda" if chosen in ("decode", "train") and device == "cuda" else chosen
        settings: dict[str, Any] = {"published": published} if module == "train" else {}
        report = importlib.import_module(f"exactk.bench.{module}").run(quick=quick, **settings)
        kept = None if out is None else out / f"bench-{module.replace('_', '-')}.json"
        emit_report(report, as_json, kept, command="exactk " + " ".join(sys.argv[1:]))
