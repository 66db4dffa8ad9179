"""How fast a policy trains, beside the authors' own code, and how soon it is as good as the paper says.

Knows no model from inside: it times the loop that trains every model, on one core.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Generator

from exactk.bench.made import MOVIELENS
from exactk.bench.made import logged_batch as random_batch
from exactk.bench.report import Goal, Report
from exactk.config import Config, preset
from exactk.data.published import build_published
from exactk.learning.fit import FitSettings, Task, fit
from exactk.learning.rlfd import policy_step
from exactk.models.policy import Policy
from exactk.models.reward import reward_of
from exactk.problem.batch import Batch
from exactk.recommender import Recommender

K, N, BATCH = 4, 20, 32
SIZES = MOVIELENS
PAPER_PRECISION = 0.4743

# (name, overrides of the preset "paper", the authors' samples per second on one core of such a machine)
VARIANTS: tuple[tuple[str, tuple[str, ...], float | None], ...] = (
    ("without hill climbing", ("training.hill_climbing=false", "training.samples=1"), 2950.0),
    ("hill climbing, 5 samples", (), None),
    ("hill climbing, 32 samples", ("training.samples=32",), 340.0),
)

# The paper's network and losses; each step asks for the clicked item until it is chosen (FINDINGS: the other targets
# of these files are random), and two epochs are enough.
QUICK_TO_QUALITY = ("training.target=clicked", "training.epochs=2", "reward.epochs=1", "training.device=cpu")


def run(
    quick: bool = False, published: Path | None = None, device: str = "cpu", batch_size: int = BATCH
) -> Report:
    """Samples per second of a training step, and seconds to the paper's P@4 on the authors' files, if given."""
    rows: list[dict[str, Any]] = []
    goals: list[Goal] = []
    notes: list[str] = []
    with one_core():
        for name, overrides, authors in VARIANTS:
            rates = speeds(preset("paper").with_overrides(overrides), device, batch_size, quick)
            rows.append(
                {
                    "what": name,
                    "device": device,
                    "batch": batch_size,
                    "samples_per_second": round(float(np.median(rates))),
                    "least": round(min(rates)),
                    "most": round(max(rates)),
                    "authors_samples_per_second": authors,
                }
            )
            if authors is not None and device == "cpu":
                goals.append(Goal(f"samples/s {name}", float(np.median(rates)), authors, "least"))
        if published is None or not Path(published).is_dir():
            notes.append(
                "time to the paper's P@4: skipped, as the authors' files were not given (--published PATH)"
            )
        else:
            row = time_to_quality(Path(published))
            rows.append(row)
            goals.append(Goal("P@4 on the authors' test samples", row["precision"], PAPER_PRECISION, "least"))
            goals.append(Goal("seconds of training for it", row["seconds"], 30.0, "most"))
    return Report("train", rows, goals, notes, seeds=(0,), quick=quick)


def speeds(config: Config, device: str, batch_size: int, quick: bool) -> list[float]:
    """Samples per second of the training loop, several times over."""
    generator = Generator().manual_seed(0)
    reward = reward_of(config, SIZES, K, generator).eval().to(device)
    policy = Policy(config.policy, SIZES, generator).to(device)
    batches = [random_batch(batch_size, generator) for _ in range(20)]
    steps = 100 if quick else 400

    def source(_: int, start: int) -> Iterator[Batch]:
        for number in range(start, steps):
            yield batches[number % len(batches)]

    task = Task(
        "policy", policy, source, steps,
        lambda batch, progress, g: policy_step(policy, reward, 0.0, config.training, batch, progress, g),
    )  # fmt: skip
    rates = []
    for repeat in range(4 if quick else 6):
        began = time.perf_counter()
        fit(task, FitSettings(epochs=1, device=device))
        if repeat:  # the first warms up
            rates.append(steps * batch_size / (time.perf_counter() - began))
    return rates


def time_to_quality(published: Path) -> dict[str, Any]:
    """Train as set out beforehand, validation included, and only then look at the test samples."""
    with tempfile.TemporaryDirectory() as folder:
        data = build_published(Path(folder) / "data", published, "k4-n20")
        train, valid, test = data.split()
        next(train.batches(train.vocabulary(), BATCH))  # compiles what reads the data
        began = time.perf_counter()
        recommender = Recommender(preset("paper").with_overrides(QUICK_TO_QUALITY)).fit(
            train, valid, show=False
        )
        seconds = time.perf_counter() - began
        figures = recommender.evaluate(test)
    return {
        "what": "both phases on the authors' k4-n20 files",
        "settings": list(QUICK_TO_QUALITY),
        "seconds": round(seconds, 2),
        "precision": figures["precision"],
        "hit_ratio": figures["hit_ratio"],
        "paper_precision": PAPER_PRECISION,
    }


@contextmanager
def one_core() -> Iterator[None]:
    """One thread for the arithmetic, whatever the machine has."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
