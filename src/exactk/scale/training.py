"""Training on Ray: the trainer of one machine, started on every worker by Ray Train, started again where one dies.

Knows no step, no loss and no gradient: a worker runs `Recommender.fit`, which finds the others by itself.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exactk.atomic import write_text
from exactk.data.dataset import Dataset
from exactk.data.split import Method
from exactk.errors import ConfigError, ExactKError
from exactk.learning.process import current_ranks
from exactk.learning.progress import Listener
from exactk.problem.rules.constraints import Constraints
from exactk.recommender import Recommender
from exactk.scale.cluster import Placement, cluster, require_ray
from exactk.settings.config import Config

FAILURES = 3  # of workers that a run survives
REFUSAL = "refused.txt"  # what a worker found wrong that no second try mends


@dataclass(frozen=True)
class TrainingJob:
    """What to train on what, and where to keep it; plain values. All paths must be seen by every worker."""

    data: str
    out: str
    run: str
    config: dict[str, Any]
    rules: dict[str, Any] | None = None
    split: Method | None = None
    seed: int = 0

    def views(self) -> tuple[Dataset, Dataset]:
        """The train and validation part of the data."""
        train, valid, _ = Dataset.open(self.data).split(self.split, seed=self.seed)
        return train, valid

    def recommender(self) -> Recommender:
        """Nothing learned yet."""
        rules = None if self.rules is None else Constraints.from_dict(self.rules)
        return Recommender(Config.from_dict(self.config), rules)


def train(
    job: TrainingJob, placement: Placement, resume: bool = False, listener: Listener | None = None
) -> Recommender:
    """Train on `placement.workers` workers and return what they learned; figures reach the listener as they come.

    A worker that dies takes the run back to its last checkpoint, not to its beginning.
    """
    run = Path(job.run)
    if (run / "run.json").exists() and not resume:
        raise ConfigError(f"{run} holds an earlier run: resume it (resume=True) or choose another folder")
    run.mkdir(parents=True, exist_ok=True)
    (run / REFUSAL).unlink(missing_ok=True)
    on_gpu = _on_gpu(job)
    # A local Ray of our own gives every worker its share of the cores; of another's, a worker takes one.
    ours = not (placement.address or os.environ.get("RAY_ADDRESS") or require_ray().is_initialized())
    cpus = max(1, (os.cpu_count() or 1) // placement.workers) if ours else 1
    with cluster(placement.address, placement.workers, cpus), following(run / "metrics.jsonl", listener):
        from ray.train import FailureConfig, RunConfig, ScalingConfig
        from ray.train.torch import TorchConfig, TorchTrainer

        trainer = TorchTrainer(
            learn,
            train_loop_config={"job": job, "cpus": cpus},
            torch_config=TorchConfig(backend="nccl" if on_gpu else "gloo"),
            scaling_config=ScalingConfig(
                num_workers=placement.workers,
                use_gpu=on_gpu,
                resources_per_worker={"CPU": cpus, "GPU": int(on_gpu)},
            ),
            run_config=RunConfig(
                name="ray",
                storage_path=str(run.absolute()),
                failure_config=FailureConfig(max_failures=FAILURES),
            ),
        )
        try:
            trainer.fit()
        except Exception as error:  # Ray has many ways to say that its workers are gone
            if (run / REFUSAL).exists():
                raise ConfigError((run / REFUSAL).read_text(encoding="utf-8")) from error
            raise ExactKError(f"training on Ray ended early: {_first_line(error)}; resume it") from error
    if (run / REFUSAL).exists():
        raise ConfigError((run / REFUSAL).read_text(encoding="utf-8"))
    return Recommender.load(job.out)


def learn(config: dict[str, Any]) -> None:
    """What each worker does; the first one keeps the model."""
    job: TrainingJob = config["job"]
    if "cpus" in config:
        keep_to_own_cores(config["cpus"])
    refusal = Path(job.run) / REFUSAL
    if refusal.exists():
        return
    try:
        train, valid = job.views()
        recommender = job.recommender()
        recommender.fit(train, valid, folder=job.run, resume=True, show=False)
    except ExactKError as error:  # a second try would meet it again: it is noted, and the try ends at once
        write_text(refusal, str(error))
        if current_ranks().world == 1:
            return
        raise  # the others may be waiting for this one
    if current_ranks().first:
        recommender.save(job.out)


def keep_to_own_cores(cpus: int) -> None:
    """Stay on as many cores as were asked for, next to the other workers of this machine, not on top of them.

    Threads of compiled code are as many as the cores a process may use; without this each worker would use them all.
    """
    if not hasattr(os, "sched_getaffinity"):
        return  # a system that cannot keep a process to some cores
    cores = sorted(os.sched_getaffinity(0))
    if cpus < len(cores):
        first = int(os.environ.get("LOCAL_RANK", 0)) * cpus
        os.sched_setaffinity(0, {cores[(first + n) % len(cores)] for n in range(cpus)})


def _on_gpu(job: TrainingJob) -> bool:
    asked = job.config["training"]["device"]
    if asked != "auto":
        return bool(asked == "cuda")
    import torch

    return torch.cuda.is_available()


def _first_line(error: BaseException) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[-1].strip() if lines else type(error).__name__


EVERY = 0.5  # seconds between two looks


@contextmanager
def following(path: Path, listener: Listener | None) -> Iterator[None]:
    """Tell the listener every line of the file that is written while the block runs."""
    if listener is None:
        yield
        return
    done = threading.Event()
    thread = threading.Thread(target=_follow, args=(path, listener, done), daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        listener.close()


def _follow(path: Path, listener: Listener, done: threading.Event) -> None:
    heard: set[tuple[str, int, str]] = set()
    while True:
        last = done.is_set()  # one more look after the end
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        for line in text.splitlines():
            try:
                figures = json.loads(line)
            except json.JSONDecodeError:
                continue  # half written: whole at the next look
            key = (figures["task"], figures["step"], figures["event"])
            if key not in heard:
                if not any(task == figures["task"] for task, _, _ in heard):
                    listener.begin(figures["task"], 0)
                heard.add(key)
                listener.hear(figures)
        if last:
            return
        done.wait(EVERY)
