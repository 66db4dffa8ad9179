"""How fast and in how much memory a log of the Taobao shape is built, opened and turned into batches.

Each stage runs in a process of its own, so that its peak memory is its own; knows no model.
"""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from exactk.scale.cluster import require_ray
from exactk_lab.bench import candidate_rows
from exactk_lab.bench.report import Goal, Report

SEED = 7
FULL = {"users": 580_000, "items": 3_100_000, "impressions": 1_100_000}
QUICK = {"users": 6_000, "items": 30_000, "impressions": 20_000}
BATCH_SIZES = (32, 256, 1024)
BATCHED = 200_000  # requests timed for each kind of batch
_BUILD_ROWS = "build rows of shown candidates, 20 features each"
_ON_RAY = f"the same rows in {candidate_rows.FILES} files, on Ray with {candidate_rows.WORKERS} workers"
TRAINING_RATE = (
    50_000  # requests a second no training on one core of ours comes near: batching must outrun it
)


def run(quick: bool = False, folder: Path | None = None) -> Report:
    """Measure every stage once on a fresh log (in `folder`, which is kept, or a temporary one)."""
    require_ray()
    size = QUICK if quick else FULL
    with tempfile.TemporaryDirectory(prefix="exactk-bench-") as scratch:
        path = (folder or Path(scratch)) / "log"
        rows = [
            {"stage": "build the world, and open it", **_in_a_process("build", path, size)},
            {"stage": "first opening: check every byte, build the index", **_in_a_process("first", path)},
            {"stage": "later opening", **_in_a_process("open", path)},
            {"stage": "fit the vocabulary", **_in_a_process("vocabulary", path)},
            *({"stage": "batches", **row} for row in _in_a_process("batches", path)["measured"]),
            *_candidate_rows(path.with_name("rows"), quick),
        ]
    rates = {
        kind: max(row["requests_per_s"] for row in rows if row.get("inputs") == kind)
        for kind in ("ids", "both")
    }
    weight = next(row["bytes_over_numbers"] for row in rows if "bytes_over_numbers" in row)
    built, on_ray = (next(row for row in rows if row["stage"] == stage) for stage in (_BUILD_ROWS, _ON_RAY))
    ray_memory = max(on_ray["peak_memory_mb"], on_ray["worker_peak_memory_mb"])
    return Report(
        name="data",
        rows=rows,
        goals=[
            Goal("requests/s batched, ids", rates["ids"], TRAINING_RATE, "least"),
            Goal("requests/s batched, ids and 40+52 features", rates["both"], TRAINING_RATE, "least"),
            Goal("bytes of a folder over those of its candidates' 20 features", weight, 1.3, "most"),
            Goal("MB of peak memory, building rows of candidates", built["peak_memory_mb"], 2_000, "most"),
            Goal("the same on Ray, the largest process", ray_memory, 2_000, "most"),
        ],
        notes=[
            f"{size['users']:,} users, {size['items']:,} items, {size['impressions']:,} impressions, K=4, N=50",
            "peak memory counts mapped pages of the index, which the system takes back when it needs them; "
            "own memory does not",
            "on Ray: peak and own memory are those of the process that puts the parts together, Ray's start is in no "
            "figure, read_seconds are those until every file was read",
        ],
        seeds=[SEED],
        quick=quick,
    )


def _candidate_rows(path: Path, quick: bool) -> Iterator[dict[str, Any]]:
    """Rows of shown candidates with 20 features of their own: written, built, opened, batched."""
    size = candidate_rows.SIZES["quick" if quick else "full"]
    candidate_rows.write_rows(path.with_suffix(".parquet"), **size, seed=SEED)
    yield {"stage": _BUILD_ROWS, **_in_a_process("rows-build", path, size)}
    yield {"stage": "the same: first opening, rolling counts", **_in_a_process("rows-open", path)}
    yield {"stage": "the same: batches of 256 with every column", **_in_a_process("rows-batches", path)}
    path.with_suffix(".parquet").unlink()
    shutil.rmtree(path)
    files = path.with_suffix(".files")
    candidate_rows.write_files(files, **size, seed=SEED)
    yield {"stage": _ON_RAY, **_in_a_process("rows-ray", path)}
    shutil.rmtree(files)


def _in_a_process(stage: str, path: Path, size: dict[str, int] | None = None) -> dict[str, Any]:
    command = [sys.executable, "-m", "exactk_lab.bench.data", stage, str(path), json.dumps(size or {})]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    measured: dict[str, Any] = json.loads(done.stdout)
    return measured


def _build(path: Path, size: dict[str, int]) -> dict[str, Any]:
    from exactk.data.world import World
    from exactk.data.world.recipe import WorldConfig

    start = time.perf_counter()
    World(WorldConfig(**size, seed=SEED)).write(path)
    seconds = time.perf_counter() - start
    written = sum(file.stat().st_size for file in path.glob("*.parquet"))
    return {"seconds": seconds, "rows_per_s": size["impressions"] / seconds, "parquet_mb": written / 1e6}


def _first(path: Path, size: dict[str, int]) -> dict[str, Any]:
    shutil.rmtree(path / ".index", ignore_errors=True)  # the build opened it already
    return _open(path, size)


def _open(path: Path, _: dict[str, int]) -> dict[str, Any]:
    from exactk.data.dataset import Dataset

    start = time.perf_counter()
    dataset = Dataset.open(path)
    seconds = time.perf_counter() - start
    mapped = sum(file.stat().st_size for file in path.glob(".index/*/*.bin"))
    return {"seconds": seconds, "rows_per_s": len(dataset) / seconds, "index_mb": mapped / 1e6}


def _vocabulary(path: Path, _: dict[str, int]) -> dict[str, Any]:
    from exactk.data.dataset import Dataset

    train, _valid, _test = Dataset.open(path).split()
    start = time.perf_counter()
    vocabulary = train.vocabulary()
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "num_users": vocabulary.num_users, "num_items": vocabulary.num_items}


def _batches(path: Path, _: dict[str, int]) -> dict[str, Any]:
    import torch

    from exactk.data.dataset import Dataset

    torch.set_num_threads(1)
    train, _valid, _test = Dataset.open(path).split()
    both = train.vocabulary()
    ids = replace(both, user_scaling=None, item_scaling=None)
    measured = []
    for inputs, vocabulary in (("ids", ids), ("both", both)):
        for batch_size in BATCH_SIZES:
            next(iter(train.batches(vocabulary, batch_size)))  # compiles, and looks the ids up
            requests, seconds = _timed(train.batches(vocabulary, batch_size, seed=SEED))
            measured.append(
                {
                    "inputs": inputs,
                    "batch_size": batch_size,
                    "seconds": seconds,
                    "requests_per_s": requests / seconds,
                    **_memory(),
                }
            )
    return {"measured": measured}


def _timed(batches: Iterable[Any]) -> tuple[int, float]:
    start, requests = time.perf_counter(), 0
    for batch in batches:
        requests += len(batch)
        if requests >= BATCHED:
            break
    return requests, time.perf_counter() - start


def _memory() -> dict[str, float]:
    """Peak memory of this process, and what of its present memory is its own rather than mapped from files."""
    own = 0.0
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            own = int(line.split()[1]) / 1e3
    return {"peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3, "own_memory_mb": own}


_STAGES = {
    "rows-build": candidate_rows.build, "rows-ray": candidate_rows.build_on_ray,
    "rows-open": candidate_rows.first_opening, "rows-batches": candidate_rows.batches,
    "build": _build, "first": _first, "open": _open, "vocabulary": _vocabulary, "batches": _batches,
}  # fmt: skip

if __name__ == "__main__":
    _, chosen, where, wanted = sys.argv
    result = _STAGES[chosen](Path(where), json.loads(wanted))
    sys.stdout.write(json.dumps(result if chosen == "batches" else {**result, **_memory()}))
