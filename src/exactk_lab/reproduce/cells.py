"""Cells of the tables: one method, one data set, one seed; run as resumable jobs, gathered as scores, put into rows.

Knows jobs and scores, no picture: rows have means over seeds with their spread, and paired tests.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from exactk.evaluation import judging, metrics
from exactk.evaluation.jobs import MethodRun, results, run_all
from exactk.evaluation.judging import Scores
from exactk.evaluation.significance import bootstrap_interval, paired_permutation
from exactk.rivals import RIVALS, columns
from exactk.rivals.contract import Budget
from exactk_lab.reproduce.provenance import code_digest
from exactk_lab.reproduce.sources import Place, Source, source

Tell = Callable[[str], None]
OWN = "exactk_lab.reproduce.methods"


@dataclass(frozen=True)
class Options:
    """How much is run: seeds, processes, and whether a small run will do."""

    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    jobs: int = 0  # as many as cores
    quick: bool = False
    tell: Tell = print
    run: bool = True  # False: only gather what earlier runs left

    def budget(self) -> Budget:
        """The paper's ten epochs; rivals tune over four settings on the same validation data."""
        return Budget(trials=1, epochs=2) if self.quick else Budget(trials=4, epochs=10)


@dataclass(frozen=True)
class Cell:
    """A method on a column, with the seeds it is run with (none: the options')."""

    column: str
    method: str
    seeds: tuple[int, ...] | None = None

    @property
    def where(self) -> str:
        """module:function."""
        return f"exactk.rivals.{RIVALS[self.method]}" if self.method in RIVALS else f"{OWN}:{self.method}"


@dataclass(frozen=True)
class Result:
    """What a cell left: scores of each of its ways, one per seed; or why there are none."""

    cell: Cell
    seeds: tuple[int, ...]
    ways: Mapping[str, tuple[Scores, ...]]
    headers: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)
    user: Int[np.ndarray, "R"] = field(default_factory=lambda: np.empty(0, np.int64), repr=False)
    reason: str = ""

    @property
    def first(self) -> str:
        """The way that stands for the method: the one it names first."""
        return next(iter(self.ways), "")

    def per_seed(self, name: str, way: str | None = None) -> list[float]:
        """A figure's mean over the requests, for each seed."""
        return [metrics.mean(getattr(s, name)) for s in self.ways.get(way or self.first, ())]

    def per_request(self, name: str, way: str | None = None) -> Float[np.ndarray, "R"]:
        """A figure of each request, averaged over the seeds."""
        mean: Float[np.ndarray, "R"] = np.mean(
            [getattr(s, name) for s in self.ways[way or self.first]], axis=0
        )
        return mean

    @property
    def train_seconds(self) -> float:
        """Mean over seeds."""
        return float(np.mean([header["train_seconds"] for header in self.headers]))


def run_cells(cells: Sequence[Cell], place: Place, options: Options) -> dict[tuple[str, str], Result]:
    """Run what is missing, as many at once as there are cores, and gather everything by (column, method)."""
    sources = {column: source(column, place, options.quick) for column in {cell.column for cell in cells}}
    asked = {
        (cell, seed): _job(cell, seed, sources[cell.column], options)
        for cell in cells
        for seed in cell.seeds or options.seeds
    }
    if options.run:
        run_all(list(asked.values()), options.jobs or os.cpu_count() or 1, _with_time_left(options.tell))
    else:
        asked = {key: job for key, job in asked.items() if job.finished()}
    gathered = {}
    for cell in cells:
        jobs = [job for (owner, _), job in asked.items() if owner == cell]
        gathered[cell.column, cell.method] = _gathered(cell, jobs, sources[cell.column])
    return gathered


def _job(cell: Cell, seed: int, data: Source, options: Options) -> MethodRun:
    folder = data.rows.parent
    module, function = cell.where.split(":")
    judges = (judging.__name__, None), (columns.__name__, None)
    code = code_digest([(module, function), *judges])
    budget = replace(options.budget(), seed=seed)
    return MethodRun(
        cell.method, cell.where, seed, budget, str(data.data.path), str(data.rows), None, str(folder)
    ).keyed(code)


def _gathered(cell: Cell, jobs: Sequence[MethodRun], data: Source) -> Result:
    headers, seeds, reason = [], [], "" if jobs else "not run"
    ways: dict[str, list[Scores]] = {}
    for job, header, scored in results(jobs):
        if header["reason"]:
            reason = f"seed {job.seed}: {header['reason']}"
            continue
        headers.append(header)
        seeds.append(job.seed)
        for way, scores in scored.items():
            ways.setdefault(way, []).append(scores)
    test = data.views()[2]
    user = test.folder.index.user[test.rows].astype(np.int64)
    if ways:
        user = user[next(iter(ways.values()))[0].request]
    return Result(
        cell, tuple(seeds), {way: tuple(s) for way, s in ways.items()}, tuple(headers), user, reason
    )


def _with_time_left(tell: Tell) -> Tell:
    """Progress as the jobs tell it, and from the second finished one on how long the rest will take."""
    began = time.monotonic()

    def with_time(line: str) -> None:
        done, _, rest = line.removeprefix("[").partition("/")
        total = rest.partition("]")[0]
        if line.startswith("[") and done.isdigit() and total.isdigit():
            finished.append(int(done))
            ran = len(finished)
            left = (time.monotonic() - began) / ran * (int(total) - int(done))
            line += f"; about {left / 60:.0f} min left" if ran > 1 and int(done) < int(total) else ""
        tell(line)

    finished: list[int] = []
    return with_time


SEED = 7  # of the permutation tests

LABELS: dict[str, str] = {
    "deeprank": "DeepRank",
    "bpr": "BPR",
    "listwise-gru": "Listwise-GRU",
    "listwise-mhsa": "Listwise-MHSA",
    "paper": "GAttN + RLfD, paper",
    "popularity": "popularity",
    "mf-softmax": "MF softmax",
    "own_likings": "MF softmax, rank 128, smoothed",
    "mf_tuned": "MF softmax, rank 128",
    "least-seen": "least seen (leak probe)",
    "random": "random",
    "best_ids": "GAttN, best-ids",
    "own_memory": "memory alone (control)",
    "guided": "GAttN, guided",
    "pair_value": "pair value + exact",
    "mf_graded": "MF on graded ratings",
    "best_graded": "graded likings and Bayesian FM + exact",
}


def label(method: str) -> str:
    """What tables call a method."""
    return LABELS.get(method, method)


def figures(result: Result, way: str | None = None) -> dict[str, Any]:
    """Mean and spread over seeds of P@K and HR@K, with the seeds' own figures; milliseconds a card."""
    row: dict[str, Any] = {"seeds": list(result.seeds)}
    for name, short in (("precision", "P"), ("hit_ratio", "HR"), ("value", "value")):
        per_seed = result.per_seed(name, way)
        if not per_seed or np.isnan(per_seed).all():
            continue
        row[short] = float(np.mean(per_seed))
        row[f"{short}_sd"] = float(np.std(per_seed, ddof=1)) if len(per_seed) > 1 else 0.0
        row[f"{short}_per_seed"] = [round(value, 4) for value in per_seed]
    scores = result.ways.get(way or result.first, ())
    if scores:
        row["ms_per_card"] = float(np.mean([s.ms_per_card for s in scores]))
        row["train_seconds"] = result.train_seconds
    if result.reason:
        row["missing"] = result.reason
    return row


def difference(ours: Result, theirs: Result, name: str = "precision") -> dict[str, float]:
    """Ours minus theirs, request by request, averaged over seeds; p by random sign flips, one coin per user."""
    a, b = ours.per_request(name), theirs.per_request(name)
    rng = np.random.default_rng(SEED)
    interval = bootstrap_interval(a - b, rng, groups=ours.user)
    return {
        "difference": interval.estimate,
        "low": interval.low,
        "high": interval.high,
        "p": paired_permutation(a, b, rng, ours.user),
    }


def left_out(rows: Sequence[dict[str, Any]], name: str) -> list[str]:
    """A note on rows without figures, so that no reader has to look for holes."""
    holes = [
        f"{row.get('column', '')} {row[name]} ({row['missing']})".strip() for row in rows if "missing" in row
    ]
    return [f"Left out: {'; '.join(holes)}."] if holes else []


def best_of(results: Sequence[Result], name: str = "precision") -> Result:
    """The one with the highest mean."""
    return max(results, key=lambda result: float(np.mean(result.per_seed(name))))
