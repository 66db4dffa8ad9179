"""`exactk bench serve`: the service beside a bare FastAPI echo of the same body, on loopback, in one run.

Server, echo and load generator are processes of their own. What the model has learned does not matter here: it is
fitted on a random log of the shape N=50, K=4.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from exactk_lab.bench.report import Goal, Report

N, K, NUM_ITEMS, NUM_USERS = 50, 4, 2000, 200
CONNECTIONS = 16
SEED = 7

ECHO = """
import sys, uvicorn
from typing import Any
from fastapi import FastAPI
from exactk.serving.run import listening
app = FastAPI()
@app.get("/healthz")
async def alive() -> dict[str, str]:
    return {"status": "alive"}
@app.post("/echo")
async def echo(body: dict[str, Any]) -> dict[str, Any]:
    return body
config = uvicorn.Config(app, log_level="warning", access_log=False, ws="none")
uvicorn.Server(config).run(sockets=[listening("127.0.0.1", int(sys.argv[1]))])
"""
SERVE = """
import sys
from pathlib import Path
from exactk.serving.run import serve
log = Path(sys.argv[3]) if sys.argv[3] else None
serve(model=Path(sys.argv[2]), port=int(sys.argv[1]), log_level="warning", log=log)
"""


def run(quick: bool = False) -> Report:
    """Throughput beside the echo, in turns, and latency at half load; `soak.py` has the memory."""
    rounds, seconds = (2, 2.0) if quick else (7, 4.0)
    bodies = card_bodies()
    with tempfile.TemporaryDirectory(prefix="exactk-bench-") as scratch:
        model = Path(scratch) / "model"
        fit_model(model)
        with (
            started(ECHO) as (echo_port, echo_process),
            started(SERVE, str(model), str(Path(scratch) / "log")) as (port, process),
        ):

            def most(at: int, path: str, sent: list[str], pid: int) -> dict[str, Any]:
                return measured(pid, at, path, sent, seconds, connections=CONNECTIONS)

            most(echo_port, "/echo", bodies, echo_process.pid)  # first turns warm caches and do not count
            most(port, "/v1/cards", bodies, process.pid)
            turns = [
                (
                    most(echo_port, "/echo", bodies, echo_process.pid),
                    most(port, "/v1/cards", bodies, process.pid),
                )
                for _ in range(rounds)
            ]
            echo, cards = (middle([turn[n] for turn in turns]) for n in (0, 1))
            lone = measured(process.pid, port, "/v1/cards", bodies, seconds, connections=1)
            rate = cards["requests_per_s"] / 2
            half = measured(process.pid, port, "/v1/cards", bodies, 2 * seconds, rate=rate)
            solving = most(port, "/v1/solve", solve_bodies(), process.pid)
    share = float(np.median([ours["requests_per_s"] / theirs["requests_per_s"] for theirs, ours in turns]))
    rows = [
        {"what": "echo", "load": "most", **echo},
        {"what": "cards", "load": "most", **cards},
        {"what": "cards", "load": "one at a time", **lone},
        {"what": "cards", "load": "half", **half},
        {"what": "solve", "load": "most", **solving},
    ]
    return Report(
        name="serve",
        rows=rows,
        goals=[
            Goal("cards/s over echo/s, one worker, N=50 K=4", share, 0.6, "least"),
            Goal("p99 of cards at half load, ms", half["p99_ms"], 10.0, "most"),
            Goal("answers that were no card", float(sum(row["bad"] for row in rows)), 0.0, "most"),
        ],
        notes=(f"echo and cards took {rounds} turns of {seconds:g} s each; their rows are medians",),
        seeds=(SEED,),
        quick=quick,
    )


def measured(
    pid: int, port: int, path: str, bodies: list[str], seconds: float, **load: float
) -> dict[str, Any]:
    """A load and what a request cost the server's process, in microseconds of processor time."""
    before = processor_seconds(pid)
    figures_of_run = loaded(port, path, bodies, seconds, **load)
    spent = processor_seconds(pid) - before
    return {
        **figures_of_run,
        "processor_us": 1e6 * spent / max(figures_of_run["requests_per_s"] * seconds, 1),
    }


def middle(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians, but every bad answer counts."""
    figures = [name for name in rows[0] if name != "example"]
    figures_of_run: dict[str, Any] = {name: float(np.median([row[name] for row in rows])) for name in figures}
    return figures_of_run | {"bad": sum(row["bad"] for row in rows)}


def fit_model(folder: Path) -> None:
    """A pair value model of the preset `best`, fitted for one epoch on a random log."""
    from exactk.data.dataset import Dataset
    from exactk.data.writer import DatasetWriter
    from exactk.recommender import Recommender
    from exactk.settings.presets import preset

    random = np.random.default_rng(SEED)
    items = pa.table(
        {
            "item_id": [f"i{n}" for n in range(NUM_ITEMS)],
            "title": [f"thing number {n}" for n in range(NUM_ITEMS)],
            "category": [f"c{n % 24}" for n in range(NUM_ITEMS)],
            "features": random.normal(size=(NUM_ITEMS, 8)).tolist(),
        }
    )
    users = pa.table({"user_id": [f"u{n}" for n in range(NUM_USERS)]})
    shown = []
    for n in range(600):
        candidates = random.choice(NUM_ITEMS, N, replace=False)
        shown.append(
            {
                "request_id": f"r{n}",
                "user_id": f"u{random.integers(NUM_USERS)}",
                "candidates": [f"i{i}" for i in candidates],
                "card": [f"i{i}" for i in candidates[:K]],
                "clicked": bool(random.random() < 0.3),
            }
        )
    rules = {"rule": [{"type": "distinct", "field": "category"}]}
    data = folder.with_name("data")
    with DatasetWriter(data, {"constraint": rules}) as writer:
        writer.write_items(items)
        writer.write_users(users)
        writer.write_impressions(pa.Table.from_pylist(shown))
    train, valid, _ = Dataset.open(data).split(seed=SEED)
    config = preset("best")
    Recommender(replace(config, pair_value=replace(config.pair_value, epochs=1))).fit(
        train, valid, show=False
    ).save(folder)


def card_bodies(count: int = 256) -> list[str]:
    """Requests for cards by ids, as a client with a catalogue on the server's side sends them."""
    random = np.random.default_rng(SEED)
    return [
        json.dumps(
            {
                "user": f"u{random.integers(NUM_USERS)}",
                "candidates": [f"i{i}" for i in random.choice(NUM_ITEMS, N, replace=False)],
                "k": K,
            }
        )
        for _ in range(count)
    ]


def solve_bodies(count: int = 256) -> list[str]:
    """Requests with scores and attributes inline."""
    random = np.random.default_rng(SEED)
    return [
        json.dumps(
            {
                "k": K,
                "scores": random.random(N).round(4).tolist(),
                "items": [{"item_id": f"i{n}", "category": f"c{random.integers(24)}"} for n in range(N)],
                "constraints": [{"type": "distinct", "field": "category"}],
            }
        )
        for _ in range(count)
    ]


@contextmanager
def started(script: str, *arguments: str) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """A server process on a free port, ready; ended at the end."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
    process = subprocess.Popen([sys.executable, "-c", script, str(port), *arguments])
    try:
        deadline = time.monotonic() + 240
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5).read()
                break
            except OSError:
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError("the server did not start") from None
                time.sleep(0.05)
        yield port, process
    finally:
        process.terminate()
        process.wait(30)


def loaded(port: int, path: str, bodies: list[str], seconds: float, **load: float) -> dict[str, Any]:
    """One run of the load generator, in its own process."""
    order = {"port": port, "path": path, "bodies": bodies, "seconds": seconds, **load}
    ended = subprocess.run(
        [sys.executable, "-m", "exactk_lab.bench.service.load"],
        input=json.dumps(order),
        capture_output=True,
        text=True,
        check=True,
        timeout=seconds + 120,
    )
    figures_of_run: dict[str, Any] = json.loads(ended.stdout)
    if not figures_of_run["bad"]:
        del figures_of_run["example"]
    return figures_of_run


def family(pid: int) -> list[int]:
    """A process and its children: a service is a supervisor and its workers."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(each for child in children for each in family(int(child)))]


def resident_bytes(pid: int) -> int:
    """Memory a process and its children hold now."""
    pages = sum(int(Path(f"/proc/{each}/statm").read_text().split()[1]) for each in family(pid))
    return pages * os.sysconf("SC_PAGE_SIZE")


def processor_seconds(pid: int) -> float:
    """What a process, its threads and its children have computed so far."""
    ticks = 0
    for each in family(pid):
        fields = Path(f"/proc/{each}/stat").read_text().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")
