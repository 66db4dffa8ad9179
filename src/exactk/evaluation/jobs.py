"""Fit one method and judge it, in a process of its own; and many such jobs side by side on the cores there are.

Knows no table. A job leaves one result file, written whole or not at all: a run that was interrupted resumes with
what is missing, and a job that dies, however badly, takes nobody with it.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

import exactk
from exactk.data.dataset import Dataset
from exactk.errors import ExactKError, InputError
from exactk.evaluation.judging import Scores, TrueValues, judged, read_result, write_result
from exactk.learning.process import stop_requests
from exactk.problem.rules.constraints import Constraints
from exactk.rivals.columns import reading_columns
from exactk.rivals.contract import Budget, Logs, Method, TrainedMethod

Tell = Callable[[str], None]
FORMAT = 1
# One thread each: the cores are shared by jobs, and numbers are timed alike.
SINGLE = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1"
)


@dataclass(frozen=True)
class MethodRun:
    """A method, a seed and the rows to learn from and be judged on: plain values that another process can read."""

    name: str
    method: str  # module:function
    seed: int
    budget: Budget
    data: str
    rows: str  # an .npz with train, valid and test
    constraints: dict[str, Any] | None
    out: str
    key: str = ""  # set by `keyed`

    def keyed(self, code: str) -> MethodRun:
        """The same job with a key that changes with anything that could change its result; `code` is a digest of it."""
        described = asdict(self)
        described["rows"] = sha256(Path(self.rows).read_bytes()).hexdigest()
        described["files"] = Dataset.open(self.data).meta.checksums
        described["code"] = code
        del described["out"], described["data"], described["key"]
        text = json.dumps([FORMAT, described], sort_keys=True, default=str)
        return replace(self, key=sha256(text.encode()).hexdigest()[:16])

    @property
    def label(self) -> str:
        """What progress and files call it."""
        return f"{self.name.replace(':', '.')}-seed{self.seed}"

    @property
    def path(self) -> Path:
        return Path(self.out) / f"{self.label}.npz"

    def finished(self) -> bool:
        """Whether its result is there, and is this job's; a failure is tried again."""
        held = read_result(self.path)
        return held is not None and held[0]["key"] == self.key and not held[0]["reason"]


def views(job: MethodRun) -> tuple[Dataset, Dataset, Dataset]:
    """Train, valid, test as the comparison laid them down."""
    data = Dataset.open(job.data)
    if job.constraints is not None:
        data = data.constrained(Constraints.from_dict(job.constraints))
    with np.load(job.rows, allow_pickle=False) as rows:
        train, valid, test = (data.take(rows[part]) for part in ("train", "valid", "test"))
    return train, valid, test


def code_digest(method: str) -> str:
    """Changes with any file of this package, and with the file of somebody else's method."""
    module = method.partition(":")[0]
    digest = sha256(_package_digest().encode())
    if module.split(".")[0] != exactk.__name__:
        try:
            found = importlib.util.find_spec(module)
        except (ImportError, ValueError):
            found = None
        path = None if found is None or found.origin is None else Path(found.origin)
        digest.update(path.read_bytes() if path is not None and path.is_file() else b"")
    return digest.hexdigest()


@cache
def _package_digest() -> str:
    files = sorted(Path(exactk.__file__).parent.rglob("*.py"))
    return sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


def resolve(method: str) -> Method:
    """`module:function` as the function."""
    module, _, function = method.partition(":")
    try:
        found: Method = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise InputError(f"cannot find the method {method!r}: {error}") from error
    return reading_columns(found) if module.startswith("exactk.rivals.") else found


def run(job: MethodRun) -> None:
    """Fit, judge, write the result; what fails is written as the reason."""
    header: dict[str, Any] = {"name": job.name, "seed": job.seed, "key": job.key, "reason": "", "ways": {}}
    arrays: dict[str, np.ndarray] = {}
    try:
        train, valid, test = Logs.of(*views(job))
        began = time.process_time()  # of one thread: neither neighbours nor a pause make a method look slow
        fitted: TrainedMethod = resolve(job.method)(train, valid, job.budget)
        header["train_seconds"] = time.process_time() - began
        header["chosen"] = dict(fitted.chosen)
        header["valid_score"] = fitted.valid_score
        truth = TrueValues.of(test.view)
        for number, (way, recommender) in enumerate(fitted.ways.items()):
            scores = judged(recommender, test, truth)
            for field in fields(Scores):
                value = getattr(scores, field.name)
                if isinstance(value, np.ndarray):
                    arrays[f"{number}.{field.name}"] = value
                else:
                    header["ways"].setdefault(way, {})[field.name] = value
    except Exception as error:  # whatever it is, it must cost this method alone
        said = " ".join(str(error).split())
        header["reason"] = said if isinstance(error, ExactKError) else f"{type(error).__name__}: {said}"
        arrays = {}
    write_result(job.path, header, arrays)


def run_all(jobs: Sequence[MethodRun], at_once: int, tell: Tell, limit_seconds: float | None = None) -> None:
    """Every unfinished job in a process of its own, at most `at_once` together, in the order given."""
    waiting = [job for job in jobs if not job.finished()]
    done, total = len(jobs) - len(waiting), len(jobs)
    if not total:
        return
    tell(
        f"{len(waiting)} of {total} jobs to run, {at_once} at a time"
        + (f"; {done} are done already" * bool(done))
    )
    running: dict[str, tuple[MethodRun, subprocess.Popen[bytes], float]] = {}
    with stop_requests() as stop_requested:
        try:
            while (waiting or running) and not stop_requested():
                while waiting and len(running) < at_once:
                    job = waiting.pop(0)
                    running[job.label] = (job, _start(job), time.monotonic())
                for label, (job, process, began) in list(running.items()):
                    seconds = time.monotonic() - began
                    if limit_seconds is not None and seconds > limit_seconds:
                        process.kill()
                        process.wait()
                    if process.poll() is None:
                        continue
                    del running[label]
                    done += 1
                    tell(f"[{done}/{total}] {job.label} {_ended(job, process, seconds, limit_seconds)}")
                time.sleep(0.05)
        finally:
            for _, process, _ in running.values():  # the children we started go with us
                process.terminate()
                process.wait()
        if stop_requested():
            raise KeyboardInterrupt(f"stopped with {done} of {total} results; the same call resumes there")


def _start(job: MethodRun) -> subprocess.Popen[bytes]:
    Path(job.out).mkdir(parents=True, exist_ok=True)
    described = Path(job.out) / f"{job.label}.json"
    described.write_text(json.dumps(asdict(job)), encoding="utf-8")
    log = Path(job.out) / f"{job.label}.log"
    with log.open("wb") as file:
        return subprocess.Popen(
            [sys.executable, "-m", "exactk.evaluation.jobs", str(described), str(os.getpid())],
            stdout=file, stderr=file, stdin=subprocess.DEVNULL, env={**os.environ, **SINGLE},
            process_group=0,  # Ctrl-C in a terminal reaches us alone; we end what we started
        )  # fmt: skip


def _ended(job: MethodRun, process: subprocess.Popen[bytes], seconds: float, limit: float | None) -> str:
    """How a job ended, in words; one that died leaves a result that says so."""
    held = read_result(job.path)
    if process.returncode != 0 or held is None or held[0]["key"] != job.key:
        log = (Path(job.out) / f"{job.label}.log").read_text(encoding="utf-8", errors="replace").strip()
        last = log.splitlines()[-1] if log else "it left no message"
        why = (
            f"killed after {limit:.0f} s"
            if limit is not None and seconds > limit
            else f"exit {process.returncode}"
        )
        header = {"name": job.name, "seed": job.seed, "key": job.key, "reason": f"{why}: {last}", "ways": {}}
        write_result(job.path, header, {})
        held = read_result(job.path)
    assert held is not None
    reason = held[0]["reason"]
    return f"skipped after {seconds:.0f} s: {reason}" if reason else f"done in {seconds:.0f} s"


def read_job(path: Path) -> MethodRun:
    """A job as `run_all` described it."""
    held = json.loads(path.read_text(encoding="utf-8"))
    return MethodRun(**{**held, "budget": Budget(**held["budget"])})


def results(jobs: Sequence[MethodRun]) -> Iterator[tuple[MethodRun, dict[str, Any], dict[str, Scores]]]:
    """What each job left: its header and the scores of each of its ways (none where it was skipped)."""
    for job in jobs:
        held = read_result(job.path)
        if held is None:
            yield job, {"reason": "it was never run", "ways": {}}, {}
            continue
        header, arrays = held
        ways = {}
        for number, (way, numbers) in enumerate(header["ways"].items()):
            values = {f.name: arrays.get(f"{number}.{f.name}", numbers.get(f.name)) for f in fields(Scores)}
            ways[way] = Scores(**values)
        yield job, header, ways


def _end_with(parent: int) -> None:
    """Leave when the comparison is gone, however it went: kill -9 lets it say no goodbye."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


if __name__ == "__main__":
    import torch

    torch.set_num_threads(1)
    threading.Thread(target=_end_with, args=(int(sys.argv[2]),), daemon=True).start()
    run(read_job(Path(sys.argv[1])))
