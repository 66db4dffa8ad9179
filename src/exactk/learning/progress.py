"""Who hears how training goes: a progress bar on stderr, metrics.jsonl, TensorBoard, MLflow.

Knows no training: figures come in and are passed on.
"""

from __future__ import annotations

import json
import math
import os
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from exactk.atomic import write_text
from exactk.errors import MissingExtraError

Figures = dict[str, Any]  # always with "task", "step", "epoch"; "event" is "train" or "valid"

# What the bar calls a figure; anything else keeps its name.
LABELS = {
    "precision": "clicked item",
    "hit_ratio": "overlap",
    "auc": "AUC",
    "log_loss": "log loss",
    "calibration_error": "ECE",
}
SHOWN = ("loss", "reward", *LABELS)


class Listener:
    """Someone who hears figures, in order, and at last that there will be no more."""

    def begin(self, task: str, step: int) -> None:
        """A task starts, or resumes, after this step."""

    def hear(self, figures: Figures) -> None:
        """One report of a training loop."""

    def close(self) -> None:
        """No more reports of this run."""


class MetricsFile(Listener):
    """metrics.jsonl: one JSON object a line. A task that resumes from a checkpoint first cuts what came after it."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path

    def begin(self, task: str, step: int) -> None:
        kept = [line for line in self._lines() if line["task"] != task or line["step"] <= step]
        write_text(self._path, "".join(as_line(line) for line in kept if step or line["task"] != task))

    def hear(self, figures: Figures) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(as_line(figures))

    def _lines(self) -> list[Figures]:
        """What is there already; a line cut in half by a kill is left out."""
        found = []
        for line in self._path.read_text(encoding="utf-8").splitlines() if self._path.exists() else []:
            with suppress(json.JSONDecodeError):
                found.append(json.loads(line))
        return found


class ProgressBar(Listener):
    """One line per task: steps done, the latest figures, samples a second, time left."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._bar = Progress(
            TextColumn("{task.description}"), BarColumn(bar_width=20), MofNCompleteColumn(), TimeRemainingColumn(),
            TextColumn("{task.fields[figures]}"), console=Console(stderr=True),
        )  # fmt: skip
        self._rows: dict[str, Any] = {}
        self._latest: dict[str, Figures] = {}
        self._bar.start()

    def begin(self, task: str, step: int) -> None:
        if task not in self._rows:
            self._rows[task] = self._bar.add_task(task, total=None, completed=step, figures="")

    def hear(self, figures: Figures) -> None:
        row, latest = self._rows[figures["task"]], self._latest.setdefault(figures["task"], {})
        latest.update(figures)
        self._bar.update(row, completed=figures["step"], total=figures["steps"], figures=summary(latest))

    def close(self) -> None:
        self._bar.stop()


class TensorBoard(Listener):
    """Scalars under task/event/figure, in the run's folder."""

    def __init__(self, folder: Path) -> None:
        if find_spec("tensorboard") is None:
            raise MissingExtraError("TensorBoard is not installed: pip install 'exactk[track]'")
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder))

    def hear(self, figures: Figures) -> None:
        for name, value in numbers(figures).items():
            self._writer.add_scalar(f"{figures['task']}/{figures['event']}/{name}", value, figures["step"])

    def close(self) -> None:
        self._writer.close()


class MLflow(Listener):
    """Metrics named task.event.figure in one MLflow run; where they go is MLflow's own setting."""

    def __init__(self, name: str) -> None:
        if find_spec("mlflow") is None:
            raise MissingExtraError("MLflow is not installed: pip install 'exactk[track]'")
        import mlflow

        self._mlflow = mlflow
        self._run = mlflow.start_run(run_name=name)

    def hear(self, figures: Figures) -> None:
        kind = f"{figures['task']}.{figures['event']}"
        named = {f"{kind}.{name}": value for name, value in numbers(figures).items()}
        self._mlflow.log_metrics(named, step=figures["step"], run_id=self._run.info.run_id)

    def close(self) -> None:
        self._mlflow.end_run()


class Stopwatch:
    """Samples a second between two readings, so that a resumed run tells its own speed."""

    def __init__(self) -> None:
        self._since = time.perf_counter()
        self._samples = 0

    def count(self, samples: int) -> None:
        self._samples += samples

    def read(self) -> float:
        """Samples a second since the last reading."""
        now = time.perf_counter()
        rate = self._samples / max(now - self._since, 1e-9)
        self._since, self._samples = now, 0
        return rate


def trackers(folder: Path) -> list[Listener]:
    """TensorBoard where it is installed, and MLflow where it is and MLFLOW_TRACKING_URI says where runs go."""
    found: list[Listener] = []
    if find_spec("tensorboard") is not None:
        found.append(TensorBoard(folder / "tensorboard"))
    if find_spec("mlflow") is not None and os.environ.get("MLFLOW_TRACKING_URI"):
        found.append(MLflow(folder.name))
    return found


def as_line(figures: Figures) -> str:
    """One line of JSON; what is not a number is null, as JSON has no NaN."""
    plain = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in figures.items()}
    return json.dumps(plain) + "\n"


def numbers(figures: Figures) -> dict[str, float]:
    """The figures one can plot."""
    axes = ("step", "steps", "epoch")
    return {
        name: float(value)
        for name, value in figures.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and name not in axes
    }


def summary(figures: Figures) -> str:
    """The latest figures in one line: "loss 1.204  reward 0.312  clicked item 0.471  2,950/s"."""
    parts = [f"{LABELS.get(name, name)} {figures[name]:.4f}" for name in SHOWN if name in figures]
    if "samples_per_second" in figures:
        parts.append(f"{figures['samples_per_second']:,.0f}/s")
    return "  ".join(parts)
