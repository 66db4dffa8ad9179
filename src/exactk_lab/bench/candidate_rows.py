"""How fast, in how much memory and into how many bytes rows of shown candidates with features become a dataset.

Knows the builder and the batches, no model. The log is noise in the shape of a real one: only its size matters.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

SIZES = {
    "full": {"requests": 1_100_000, "items": 3_100_000, "users": 580_000},
    "quick": {"requests": 8_000, "items": 30_000, "users": 6_000},
}
CANDIDATES, CARD, NUMBERS, CATEGORIES = 50, 4, 18, 2
FILES, WORKERS = 8, 2  # of the same log on Ray
_AT_ONCE = 2_000


def write_files(folder: Path, requests: int, items: int, users: int, seed: int) -> None:
    """The same number of requests in a folder of files."""
    folder.mkdir()
    for number in range(FILES):
        first, end = (requests * n // FILES for n in (number, number + 1))
        path = folder / f"{number}.parquet"
        write_rows(path, end - first, items, users, seed + number, first)


def write_rows(path: Path, requests: int, items: int, users: int, seed: int, begin: int = 0) -> None:
    """A Parquet file of one row per candidate: 18 numbers, 2 categories, a device, a card, a click."""
    rng = np.random.default_rng(seed)
    values = np.array([f"value {n}" for n in range(30)])
    devices = np.array(["phone", "tablet", "desk"])
    writer: pq.ParquetWriter | None = None
    for first in range(begin, begin + requests, _AT_ONCE):
        count = min(_AT_ONCE, begin + requests - first)
        size = count * CANDIDATES
        start = rng.integers(items, size=count)
        clicked = np.zeros((count, CANDIDATES), bool)
        clicked[np.arange(count), rng.integers(CANDIDATES, size=count)] = rng.random(count) < 0.3
        columns = {
            "request_id": np.repeat(np.arange(first, first + count), CANDIDATES),
            "user_id": np.repeat(rng.integers(users, size=count), CANDIDATES),
            "item_id": ((start[:, None] + 7_919 * np.arange(CANDIDATES)) % items).ravel(),
            "on_card": np.tile(np.arange(CANDIDATES) < CARD, count),
            "clicked": clicked.ravel(),
            "timestamp": np.repeat(np.arange(first, first + count), CANDIDATES),
            "device": np.repeat(devices[rng.integers(3, size=count)], CANDIDATES),
        }
        columns |= {f"number_{n}": rng.normal(size=size).astype(np.float32) for n in range(NUMBERS)}
        columns |= {f"kind_{n}": values[rng.integers(30, size=size)] for n in range(CATEGORIES)}
        table = pa.table(columns)
        writer = writer or pq.ParquetWriter(path, table.schema, compression="zstd")
        writer.write_table(table)
    assert writer is not None
    writer.close()


def build(path: Path, size: dict[str, int]) -> dict[str, Any]:
    """Build the folder of the rows in `path`."""
    from exactk.data.logs.frame import build_frame

    start = time.perf_counter()
    report = build_frame(path, path.with_suffix(".parquet"))
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "rows_per_s": report.rows_read / seconds, "requests": size["requests"]}


def build_on_ray(path: Path, _: dict[str, int]) -> dict[str, Any]:
    """Build the folder of the files beside `path`, read by workers of Ray, put together by this process."""
    from exactk.scale.building import Reading, build_parts
    from exactk.scale.cluster import Placement, cluster

    read: list[float] = []
    with cluster(workers=WORKERS), _largest_worker() as largest:
        start = time.perf_counter()
        report = build_parts(
            path, path.with_suffix(".files"), Reading(str(path.with_name(".reading"))),
            Placement(True, None, WORKERS), progress=lambda *_: read.append(time.perf_counter() - start),
        )  # fmt: skip
        seconds = time.perf_counter() - start
        worker = largest()
    return {
        "workers": WORKERS,
        "seconds": seconds,
        "read_seconds": read[-1],
        "rows_per_s": report.rows_read / seconds,
        "requests": report.impressions,
        "worker_peak_memory_mb": worker,
    }


@contextmanager
def _largest_worker() -> Iterator[Callable[[], float]]:
    """The most memory, in MB, that any one worker of Ray has held so far; looked at five times a second."""
    most, done = [0.0], threading.Event()

    def watch() -> None:
        while not done.wait(0.2):
            for process in Path("/proc").glob("[0-9]*"):
                with suppress(OSError):  # it may have ended meanwhile
                    if (process / "cmdline").read_bytes().startswith(b"ray::"):
                        peak = (process / "status").read_text().partition("VmHWM:")[2].split()
                        most[0] = max(most[0], int(peak[0]) / 1e3)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield lambda: most[0]
    finally:
        done.set()
        watcher.join()


def first_opening(path: Path, _: dict[str, int]) -> dict[str, Any]:
    """Check every byte, build the index, roll the counts; then weigh the folder."""
    from exactk.data.dataset import Dataset

    start = time.perf_counter()
    dataset = Dataset.open(path)
    seconds = time.perf_counter() - start
    held = dataset.folder.candidate_columns
    numbers = len(held.numbers) * (len(held.number_names) + len(held.category_names)) * 4
    rolled = dataset.folder.index.rolling.nbytes
    whole = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    return {
        "seconds": seconds,
        "rows_per_s": len(held.numbers) / seconds,
        "folder_mb": whole / 1e6,
        "bytes_over_numbers": (whole - rolled) / numbers,
        "bytes_over_numbers_and_counts": whole / (numbers + rolled),
    }


def batches(path: Path, _: dict[str, int]) -> dict[str, Any]:
    """Batches with every column, shuffled."""
    from exactk.data.dataset import Dataset

    train = Dataset.open(path).split()[0]
    start = time.perf_counter()
    vocabulary = train.vocabulary()
    fitted = time.perf_counter() - start
    next(iter(train.batches(vocabulary, 256)))  # compiles
    found = _timed(train.batches(vocabulary, 256, seed=1))
    return {"vocabulary_seconds": fitted, **found}


def _timed(several: Iterator[Any], most: int = 100_000) -> dict[str, float]:
    start, requests = time.perf_counter(), 0
    for batch in several:
        requests += len(batch)
        if requests >= most:
            break
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "requests_per_s": requests / seconds}
