"""`exactk bench footprint`: what an install brings, how long it takes to answer for the first time, what serving takes.

Every figure is of processes of their own, which see what an install of `exactk[serve]` brings and nothing else of this
environment: pandas alone, where it is there, costs 50 MB, as Arrow loads it.
`python -m exactk_lab.bench.service.footprint CHECKOUT` measures another checkout.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
import urllib.request
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from exactk_lab.bench.report import Goal, Report
from exactk_lab.bench.service.serve import fit_model

HERE = Path(__file__).resolve().parents[4]
MODEL = HERE / "tests" / "fixtures" / "model-1-pair_value"
GOAL_MEGABYTES = 250  # of a worker
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
# Run by every Python that starts with its folder in PYTHONPATH, workers included.
HIDE = """
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names!r}:
            raise ModuleNotFoundError(f"hidden from this measurement: {{name}}", name=name)
sys.meta_path.insert(0, Hidden())
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
    with tempfile.TemporaryDirectory(prefix="exactk-footprint-") as scratch:
        models = {"a pair value of one member": MODEL}
        if not quick:
            models["the preset best, on ids and features"] = Path(scratch) / "best"
            fit_model(models["the preset best, on ids and features"])
        rows += [served(checkout, what, model) for what, model in models.items()]
    megabytes = max(row["worker_megabytes"] for row in rows if "worker_megabytes" in row)
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


def environment(checkout: Path, scratch: Path) -> dict[str, str]:
    """That of a process which finds this checkout's package first, and no package beyond what `serve` brings."""
    project = project_of(checkout)
    wanted = closure([*project["dependencies"], *project["optional-dependencies"].get("serve", [])])
    top = metadata.packages_distributions()
    foreign = {
        name for name, owners in top.items()
        if not any(owner.lower().replace("_", "-") in {*wanted, "exactk", "pip", "setuptools"} for owner in owners)
    }  # fmt: skip
    (scratch / "sitecustomize.py").write_text(HIDE.format(names=sorted(foreign)), encoding="utf-8")
    return {**os.environ, "PYTHONPATH": f"{scratch}:{checkout / 'src'}", "OMP_NUM_THREADS": "1"}


def started(what: str, code: str, checkout: Path, repeats: int) -> dict[str, Any]:
    """Seconds of a fresh process, the least of a few: the first compiles and warms the disk."""
    asked = "\nimport sys\nsys.stderr.write('torch' in sys.modules and 'with torch' or '')"
    command = [sys.executable, "-c", code.format(model=str(MODEL)) + asked]
    seconds = []
    with tempfile.TemporaryDirectory(prefix="exactk-footprint-") as scratch:
        alone = environment(checkout, Path(scratch))
        for _ in range(repeats + 1):
            began = time.perf_counter()
            done = subprocess.run(command, env=alone, capture_output=True, text=True, check=True)
            seconds.append(time.perf_counter() - began)
    return {"what": what, "seconds": round(min(seconds[1:]), 3), "torch": "with torch" in done.stderr}


def served(checkout: Path, what: str, model: Path) -> dict[str, Any]:
    """Seconds until the service is ready, and the memory of its processes after a hundred cards."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
    command = [sys.executable, "-c", SERVE.format(model=str(model), port=port)]
    with tempfile.TemporaryDirectory(prefix="exactk-footprint-") as scratch:
        alone = environment(checkout, Path(scratch))
        began = time.perf_counter()
        with subprocess.Popen(command, env=alone) as process:
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
                worker = max(
                    map(memory, [process.pid, *children(process.pid)]), key=lambda held: held.resident
                )
                supervisor = memory(process.pid)
            finally:
                process.terminate()
    return {
        "what": f"service ready: {what}",
        "seconds": round(ready, 2),
        "worker_megabytes": round(worker.resident),
        "worker_own_megabytes": round(worker.own),
        "supervisor_megabytes": round(supervisor.resident),
    }


def _until_ready(address: str, began: float) -> Iterator[float]:
    while time.perf_counter() - began < 120:
        try:
            urllib.request.urlopen(address, timeout=1)
            yield time.perf_counter() - began
        except OSError:
            time.sleep(0.05)


class Memory(NamedTuple):
    """Megabytes of a process that lie in memory, and those of them that it shares with no other process."""

    resident: float
    own: float


def memory(pid: int) -> Memory:
    """As the system counts it; pages of libraries count for every process that uses them."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()

    def megabytes(name: str) -> float:
        return int(re.search(rf"^{name}:\s+(\d+)", text, re.MULTILINE)[1]) / 1024  # type: ignore[index]

    return Memory(megabytes("Rss"), megabytes("Private_Clean") + megabytes("Private_Dirty"))


def children(pid: int) -> list[int]:
    """Processes that a process started."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


if __name__ == "__main__":
    report = run(checkout=Path(sys.argv[1]).resolve())
    sys.stdout.write(json.dumps(report.as_dict(), indent=1) + "\n")
