"""`exactk bench footprint`: what an install brings and how long it takes to answer for the first time.

Every figure is of a process of its own. `python -m exactk_lab.bench.footprint CHECKOUT` measures another checkout.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
import tomllib
import urllib.request
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from exactk_lab.bench.report import Goal, Report

HERE = Path(__file__).resolve().parents[3]
MODEL = HERE / "tests" / "fixtures" / "model-1-pair_value"
GOAL_MEGABYTES = 250  # of a worker; 499 before a runtime of its own
EXTRAS = ("", "serve", "learn")

# Programs of a process each; whether torch came along is asked at their end.
HELP = """
import sys
sys.argv = ["exactk", "--help"]
from exactk.cli import app
try:
    app()
except SystemExit:
    pass
"""
SOLVE = """
import exactk
exactk.solve(scores=[0.9, 0.8, 0.7], k=2, items={{"item_id": [1, 2, 3]}})
"""
CARD = """
import exactk
exactk.Recommender.load({model!r}).recommend("u3", ["i3", "i14", "i8", "i25", "i11"], k=3)
"""
SERVE = """
from pathlib import Path
from exactk.serving.run import serve
serve(Path({model!r}), port={port}, log_level="warning")
"""
STARTS = {
    "import exactk": "import exactk",
    "exactk --help": HELP,
    "first card by solve": SOLVE,
    "first card of a loaded model": CARD,
}


def run(quick: bool = False, checkout: Path = HERE) -> Report:
    """Bytes installed by extra, seconds of first answers, memory of a worker of the service."""
    rows = [installed(checkout, extra) for extra in EXTRAS if extra in extras_of(checkout)]
    rows += [started(what, code, checkout, 2 if quick else 5) for what, code in STARTS.items()]
    rows.append(served(checkout))
    megabytes = rows[-1]["resident_megabytes"]
    goal = Goal("megabytes resident, one worker with a model", megabytes, GOAL_MEGABYTES, "most")
    return Report("footprint", rows, [goal], quick=quick)


def extras_of(checkout: Path) -> set[str]:
    """The extras of a checkout; the empty one is the install without any."""
    return {"", *project_of(checkout).get("optional-dependencies", {})}


def project_of(checkout: Path) -> dict[str, Any]:
    """Its `[project]` table."""
    table: dict[str, Any] = tomllib.loads((checkout / "pyproject.toml").read_text(encoding="utf-8"))[
        "project"
    ]
    return table


def installed(checkout: Path, extra: str) -> dict[str, Any]:
    """Packages and megabytes that an install brings, as they lie in this environment."""
    project = project_of(checkout)
    asked = [*project["dependencies"], *(project["optional-dependencies"][extra] if extra else [])]
    sizes = {name: size_of(name) for name in closure(asked)}
    most = sorted(sizes, key=lambda name: -sizes[name])[:3]
    name = f"exactk[{extra}]" if extra else "exactk"
    return {
        "what": f"install of {name}",
        "packages": len(sizes),
        "megabytes": round(sum(sizes.values()) / 1e6),
        "largest": ", ".join(f"{each} {sizes[each] / 1e6:.0f}" for each in most),
    }


def closure(requirements: list[str]) -> set[str]:
    """Every package that these lead to; what is only for other systems is not installed here, and does not count."""
    found: set[str] = set()
    waiting = list(requirements)
    while waiting:
        text = waiting.pop()
        name = re.split(r"[^A-Za-z0-9._-]", text.strip())[0].lower().replace("_", "-")
        try:
            needed = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue
        if name not in found and name != "exactk":
            found.add(name)
            waiting += [each for each in needed if "extra ==" not in each]
    return found


def size_of(package: str) -> int:
    """Bytes of a package's files."""
    paths = [Path(str(file.locate())) for file in metadata.files(package) or []]
    return sum(path.stat().st_size for path in paths if path.is_file())


def environment(checkout: Path) -> dict[str, str]:
    """That of a process which finds this checkout's package first."""
    return {**os.environ, "PYTHONPATH": str(checkout / "src"), "OMP_NUM_THREADS": "1"}


def started(what: str, code: str, checkout: Path, repeats: int) -> dict[str, Any]:
    """Seconds of a fresh process, the least of a few: the first compiles and warms the disk."""
    asked = "\nimport sys\nsys.stderr.write('torch' in sys.modules and 'with torch' or '')"
    command = [sys.executable, "-c", code.format(model=str(MODEL)) + asked]
    seconds = []
    for _ in range(repeats + 1):
        began = time.perf_counter()
        done = subprocess.run(command, env=environment(checkout), capture_output=True, text=True, check=True)
        seconds.append(time.perf_counter() - began)
    return {"what": what, "seconds": round(min(seconds[1:]), 3), "torch": "with torch" in done.stderr}


def served(checkout: Path) -> dict[str, Any]:
    """Seconds until the service is ready, and its memory after a hundred cards."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
    began = time.perf_counter()
    command = [sys.executable, "-c", SERVE.format(model=str(MODEL), port=port)]
    with subprocess.Popen(command, env=environment(checkout)) as process:
        try:
            ready = next(seconds for seconds in _until_ready(f"http://127.0.0.1:{port}/readyz", began))
            body = json.dumps(
                {"user": "u3", "candidates": ["i3", "i14", "i8", "i25", "i11"], "k": 3}
            ).encode()
            for _ in range(100):
                asked = urllib.request.Request(
                    f"http://127.0.0.1:{port}/v1/cards", body, {"content-type": "application/json"}
                )
                urllib.request.urlopen(asked, timeout=30).read()
            megabytes = resident(process.pid)
        finally:
            process.terminate()
    return {"what": "service ready", "seconds": round(ready, 2), "resident_megabytes": round(megabytes)}


def _until_ready(address: str, began: float) -> Iterator[float]:
    while time.perf_counter() - began < 120:
        try:
            urllib.request.urlopen(address, timeout=1)
            yield time.perf_counter() - began
        except OSError:
            time.sleep(0.05)


def resident(pid: int) -> float:
    """Megabytes of a process that lie in memory."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", text)[1]) / 1024  # type: ignore[index]


if __name__ == "__main__":
    report = run(checkout=Path(sys.argv[1]).resolve())
    sys.stdout.write(json.dumps(report.as_dict(), indent=1) + "\n")
