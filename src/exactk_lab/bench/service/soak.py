"""`exactk bench soak`: the service at a steady load for half an hour, as in real life; its memory must stay flat.

Knows `serve.py`'s servers and load. Cards, solving and feedback go on all the while, the log rotates every minute, and
every few minutes a new model takes over.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np

from exactk_lab.bench.report import Goal, Report
from exactk_lab.bench.service.serve import (
    SEED,
    card_bodies,
    fit_model,
    loaded,
    resident_bytes,
    solve_bodies,
    started,
)

SERVE = """
import sys
from pathlib import Path
from exactk.serving.run import serve
serve(model=Path(sys.argv[2]), port=int(sys.argv[1]), log_level="warning", log=Path(sys.argv[3]), log_rotate_seconds=60)
"""
RATES = {"/v1/cards": 150.0, "/v1/solve": 25.0, "/v1/feedback": 25.0}  # a second
MINUTES = 30.0


def run(quick: bool = False) -> Report:
    """Memory every few seconds, what was answered, and how many models took over."""
    seconds = 20.0 if quick else MINUTES * 60
    bodies = {"/v1/cards": card_bodies(), "/v1/solve": solve_bodies(), "/v1/feedback": feedback_bodies()}
    answered: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="exactk-soak-") as scratch:
        model = Path(scratch) / "model"
        fit_model(model)
        with started(SERVE, str(model), str(Path(scratch) / "log")) as (port, process):
            loads = [
                threading.Thread(
                    target=lambda path: answered.update(
                        {path: loaded(port, path, bodies[path], seconds, rate=RATES[path])}
                    ),
                    args=(path,),
                )
                for path in RATES
            ]
            for load in loads:
                load.start()
            memory = watched(process.pid, model, seconds)
            for load in loads:
                load.join()
            swaps = swapped(port)
    growth = grown([row["megabytes"] for row in memory])
    answers = [{"what": path, "load": f"{RATES[path]:g} a second", **answered[path]} for path in RATES]
    return Report(
        name="soak",
        rows=[*answers, *memory],
        goals=[
            Goal(f"growth of memory over {seconds / 60:g} minutes", growth, 0.05, "most"),
            Goal("bad answers", float(sum(each["bad"] for each in answered.values())), 0.0, "most"),
            Goal("models that took over under load", swaps, 1.0, "least"),
        ],
        seeds=(SEED,),
        quick=quick,
    )


def watched(pid: int, model: Path, seconds: float) -> list[dict[str, float]]:
    """The server's memory through the run; ten times in it, a model of another version is put in the folder."""
    begun, memory, turn = time.monotonic(), [], 1
    while (now := time.monotonic() - begun) < seconds:
        memory.append({"minute": round(now / 60, 3), "megabytes": resident_bytes(pid) / 2**20})
        if now > turn * seconds / 10:
            renew(model, turn)
            turn += 1
        time.sleep(min(10.0, seconds / 50))
    return memory


def renew(model: Path, turn: int) -> None:
    """The same weights under another version, swapped in as `Recommender.save` swaps."""
    fresh, old = model.with_name(f"fresh-{turn}"), model.with_name(f"old-{turn}")
    shutil.copytree(model, fresh)
    described = json.loads((fresh / "config.json").read_text())
    described["calibration"]["shift"] += 1e-9
    (fresh / "config.json").write_text(json.dumps(described))
    model.rename(old)
    fresh.rename(model)
    shutil.rmtree(old)


def grown(megabytes: list[float]) -> float:
    """How much larger the last sixth is than the second one: the first belongs to caches that fill."""
    sixth = max(len(megabytes) // 6, 1)
    return float(np.mean(megabytes[-sixth:]) / np.mean(megabytes[sixth : 2 * sixth]) - 1)


def feedback_bodies(count: int = 256) -> list[str]:
    """Feedback for cards that were never shown, which costs the service the same."""
    return [json.dumps({"request_id": f"{n:025x}a", "clicked": n % 7 == 0}) for n in range(count)]


def swapped(port: int) -> float:
    """How many models took over, by the service's own count."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return sum(
        float(line.split()[-1])
        for line in lines
        if line.startswith("exactk_reloads_total") and "swapped" in line
    )


def picture(result: Path, out: Path) -> None:
    """The memory curve of a kept result, as a small figure."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = [row for row in json.loads(result.read_text())["rows"] if "megabytes" in row]
    figure, axes = pyplot.subplots(figsize=(7, 2.2), layout="constrained")
    axes.plot([row["minute"] for row in rows], [row["megabytes"] for row in rows], color="#2a6f97")
    axes.set(xlabel="minutes under load", ylabel="resident MB", ylim=(0, None))
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(out, dpi=130)
