"""More than one process: samples and requests a second with one and two workers, what Ray costs, what tables take.

Knows the commands only through the functions they call; every figure is measured here, on one core per worker.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from exactk.data.dataset import Dataset
from exactk.data.world import world
from exactk.recommender import Recommender
from exactk.scale.cluster import HERE, Placement, cluster, require_ray
from exactk.scale.score import ScoringJob, score
from exactk.scale.training import TrainingJob, train
from exactk.settings.presets import preset
from exactk_lab.bench.engine.embeddings import SEEDS, hashing_rows, table_rows
from exactk_lab.bench.report import Goal, Report

N = 50
TURNS = (("plain", 1), ("ray", 1), ("ray", 2), ("plain", 1), ("ray", 1))  # by turns: the machine has moods
SIZES = {  # impressions, requests scored three times, requests scored by one command
    True: (4_000, 24_576, 24_576),
    False: (30_000, 65_536, 1_000_000),
}
TRAINING = (
    "reward.batch_size=512",
    "training.batch_size=512",
    "training.device=cpu",
    "training.requests=all",
    "training.choose_by=last",
)


def run(quick: bool = False) -> Report:
    """Train and score plain, on Ray with one and with two workers; score a million requests in one command."""
    require_ray()
    impressions, num_requests, num_all = SIZES[quick]
    with one_thread_each(), tempfile.TemporaryDirectory() as name:
        place = Path(name)
        data = world(users=2_000, items=5_000, impressions=impressions, seed=7, path=place / "data")
        rows = [*training_rows(place, quick)]
        save_model(data, place / "model")
        write_requests(data, place / "requests.parquet", num_requests)
        rows += scoring_rows(place)
        write_requests(data, place / "all.parquet", num_all)
        rows.append(one_command(place, num_all))
        rows += table_rows(quick)
        rows += hashing_rows(data, quick)
    return Report("scale", rows, goals(rows), NOTES, seeds=SEEDS[quick], quick=quick)


NOTES = (
    "training: one core per worker; plain is the same work in one process without Ray",
    "scoring: a worker's search may use both cores, with Ray and without",
    "efficiency: the rate of two workers over twice that of one; two workers here share two cores with Ray itself",
    "training rates: the fastest report of 20 steps, in samples of the global batch, plain and Ray by turns",
    "wall_seconds has the start of Ray's workers in it",
)


def goals(rows: list[dict[str, Any]]) -> list[Goal]:
    """What was promised beforehand."""
    found = []
    for what in ("train reward", "train policy", "score"):
        speeds = {
            (row["placement"], row["workers"]): row["per_second"] for row in rows if row["what"] == what
        }
        found.append(
            Goal(
                f"{what}: overhead of Ray at one worker",
                1 - speeds["ray", 1] / speeds["plain", 1],
                0.10,
                "most",
            )
        )
    whole = next(row for row in rows if row["what"] == "score, one command")
    found.append(Goal("requests scored by one command", whole["requests"], 1e6, "least"))
    found.append(
        Goal(
            "memory at most over memory after the first part",
            whole["megabytes_most"] / whole["megabytes_first"],
            1.1,
            "most",
        )
    )
    return found


def training_rows(place: Path, quick: bool) -> Iterator[dict[str, Any]]:
    """Both phases, at the same global batch."""
    epochs = 10 if quick else 2
    config = preset("paper").with_overrides(
        [*TRAINING, f"reward.epochs={epochs}", f"training.epochs={epochs}"]
    )

    def job(name: str) -> TrainingJob:
        return TrainingJob(
            str(place / "data"), str(place / name), str(place / f"{name}.run"), config.to_dict()
        )

    seconds: dict[tuple[str, int], float] = {}
    rates: dict[tuple[str, int], dict[str, float]] = {}
    for turn, key in enumerate(TURNS):
        own = job(f"turn{turn}")
        began = time.perf_counter()
        if key[0] == "plain":
            on_one_core(own)
        else:
            train(own, Placement(True, None, key[1]))
        taken = time.perf_counter() - began
        seconds[key] = min(taken, seconds.get(key, taken))
        for task, rate in _rates(Path(own.run)).items():
            held = rates.setdefault(key, {})
            held[task] = max(rate, held.get(task, 0.0))
    for task, what in (("value", "train reward"), ("policy", "train policy")):
        for key in seconds:
            yield _row(what, key, rates[key][task], {k: r[task] for k, r in rates.items()}, seconds[key])


def on_one_core(job: TrainingJob) -> None:
    """What a Ray worker with one core does, in a process that Ray did not start."""
    script = (
        "import json, sys\nfrom exactk.scale.training import TrainingJob, learn\n"
        "learn({'job': TrainingJob(**json.loads(sys.argv[1])), 'cpus': 1})"
    )
    subprocess.run([sys.executable, "-c", script, json.dumps(asdict(job))], check=True)


def scoring_rows(place: Path) -> Iterator[dict[str, Any]]:
    """The same file three times."""
    rates: dict[tuple[str, int], float] = {}
    seconds: dict[tuple[str, int], float] = {}
    for placement in (HERE, Placement(True, None, 1), Placement(True, None, 2)):
        key = ("ray" if placement.ray else "plain", placement.workers)
        out = place / f"cards-{key[0]}-{key[1]}"
        began = time.perf_counter()
        score(ScoringJob(str(place / "model"), str(out)), place / "requests.parquet", placement, rows=8192)
        seconds[key] = time.perf_counter() - began
        rates[key] = _rate_of_parts(out)
    for key, rate in rates.items():
        yield _row("score", key, rate, rates, seconds[key])


def one_command(place: Path, num_requests: int) -> dict[str, Any]:
    """`exactk score ... --ray --workers 2`, from its start to its end."""
    command = [sys.executable, "-c", "from exactk.cli import main; main()", "score", str(place / "model")]
    command += [str(place / "all.parquet"), "--out", str(place / "all"), "--ray", "--workers", "2", "--json"]
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds = time.perf_counter() - began
    reported = json.loads(done.stdout)
    written = sum(pq.read_metadata(file).num_rows for file in (place / "all").glob("part-*.parquet"))
    assert written == reported["requests"] == num_requests
    return {
        "what": "score, one command",
        "placement": "ray",
        "workers": 2,
        "requests": written,
        "per_second": round(num_requests / seconds, 1),
        "wall_seconds": round(seconds, 1),
        "megabytes_first": reported["megabytes_first"],
        "megabytes_most": reported["megabytes_most"],
    }


def save_model(data: Dataset, path: Path) -> None:
    """A pair value, trained for a moment: what it has learned does not change the work."""
    config = preset("best").with_overrides(
        ["pair_value.epochs=1", "pair_value.members=1", "training.device=cpu"]
    )
    learned, valid, _ = data.split()
    Recommender(config).fit(learned, valid, show=False).save(path)


def write_requests(data: Dataset, path: Path, num: int) -> None:
    """Random users, each with N random items; a row group at a time."""
    random = np.random.default_rng(0)
    items, users = data.items["item_id"], data.users["user_id"]
    writer: pq.ParquetWriter | None = None
    for first in range(0, num, 8192):
        count = min(8192, num - first)
        start = random.integers(0, len(items), (count, 1))
        stride = random.integers(1, len(items) // N, (count, 1))
        chosen = (start + stride * np.arange(N)) % len(items)  # N different items each
        table = pa.table(
            {
                "request_id": np.arange(first, first + count),
                "user_id": users.take(pa.array(random.integers(0, len(users), count))),
                "candidates": pa.ListArray.from_arrays(
                    pa.array(np.arange(0, count * N + 1, N), pa.int32()),
                    items.take(pa.array(chosen.ravel())).combine_chunks(),
                ),
            }
        )
        writer = writer or pq.ParquetWriter(path, table.schema, compression="zstd")
        writer.write_table(table)
    assert writer is not None
    writer.close()


def _row(
    what: str, key: tuple[str, int], rate: float, rates: dict[tuple[str, int], float], seconds: float
) -> dict[str, Any]:
    workers = key[1]
    return {
        "what": what,
        "placement": key[0],
        "workers": workers,
        "per_second": round(rate, 1),
        "efficiency": round(rate / (workers * rates[key[0], 1]), 3),
        "wall_seconds": round(seconds, 1),
    }


def _rates(run: Path) -> dict[str, float]:
    """The fastest report of each phase, in samples a second: slower ones measure whoever else uses the machine."""
    reported: dict[str, list[float]] = {}
    for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
        figures = json.loads(line)
        if figures["event"] == "train":
            reported.setdefault(figures["task"], []).append(figures["samples_per_second"])
    return {task: max(rates) for task, rates in reported.items()}


def _rate_of_parts(out: Path) -> float:
    """Requests a second while parts were made: the first of each worker, which compiles, left out."""
    from exactk.scale.plan import facts_in
    from exactk.scale.score import PartReport

    parts = sorted(out.glob("part-*.parquet"), key=lambda file: file.stat().st_mtime_ns)
    reports = [PartReport.from_dict(facts_in(file)) for file in parts]
    done = [file.stat().st_mtime_ns / 1e9 for file in parts]
    skipped = min(2, len(parts) - 1)
    requests = sum(report.requests for report in reports[skipped:])
    return requests / max(done[-1] - done[skipped - 1], 1e-9)


@contextmanager
def one_thread_each() -> Iterator[None]:
    """One thread for the arithmetic of every process, so that one and two workers can be compared."""
    import torch

    before, asked = torch.get_num_threads(), os.environ.get("OMP_NUM_THREADS")
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"
    try:
        with cluster(workers=2):  # started once: its start is not what is measured
            yield
    finally:
        torch.set_num_threads(before)
        os.environ.pop("OMP_NUM_THREADS")
        if asked is not None:
            os.environ["OMP_NUM_THREADS"] = asked
