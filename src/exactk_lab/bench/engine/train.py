"""How fast a policy trains, beside the authors' own code, and how soon it is as good as the paper says.

Knows no model from inside: it times the loop that trains every model, by one readable loop.
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

from exactk.data.sources import build_published
from exactk.learning.fit import Step, Task, fit
from exactk.learning.optimiser import FitSettings
from exactk.learning.rlfd import policy_step
from exactk.models.policy import Policy
from exactk.models.reward import reward_of
from exactk.recommender import Recommender
from exactk.settings.config import Config
from exactk.settings.presets import preset
from exactk.tensors import TensorBatch
from exactk_lab.bench.engine.made import MOVIELENS
from exactk_lab.bench.engine.made import logged_batch as random_batch
from exactk_lab.bench.report import Goal, Report

K, N, BATCH = 4, 20, 32
SIZES = MOVIELENS
PAPER_PRECISION = 0.4743

# (name, overrides of the preset "paper", the goal, the authors' samples per second on one core of such a machine)
VARIANTS: tuple[tuple[str, tuple[str, ...], float | None, float | None], ...] = (
    ("without hill climbing", ("training.hill_climbing=false", "training.samples=1"), 2950.0, 2950.0),
    ("hill climbing, 5 samples", (), None, None),
    ("hill climbing, 32 samples", ("training.samples=32",), 1360.0, 340.0),
)

# The paper's network and losses; each step asks for the clicked item until it is chosen (FINDINGS: the other targets
# of these files are random), and two epochs are enough.
QUICK_TO_QUALITY = ("training.target=clicked", "training.epochs=2", "reward.epochs=1", "training.device=cpu")


def run(quick: bool = False, published: Path | None = None) -> Report:
    """Samples per second of a training step, and seconds to the paper's P@4 on the authors' files, if given."""
    rows: list[dict[str, Any]] = []
    goals: list[Goal] = []
    notes: list[str] = []
    with one_core():
        for name, overrides, goal, authors in VARIANTS:
            rates = speeds(preset("paper").with_overrides(overrides), quick)
            ours = float(np.median(rates))
            rows.append(
                {
                    "what": name,
                    "batch": BATCH,
                    "samples_per_second": round(ours),
                    "least": round(min(rates)),
                    "most": round(max(rates)),
                    "authors_samples_per_second": authors,
                }
            )
            if goal is not None:
                goals.append(
                    Goal(f"samples/s {name} (the authors' graph {authors:,.0f})", ours, goal, "least")
                )
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


def speeds(config: Config, quick: bool) -> list[float]:
    """Samples per second of one core's time in the training loop, several times over."""
    generator = Generator().manual_seed(0)
    reward = reward_of(config, SIZES, K, generator).eval()
    batches = [random_batch(BATCH, generator) for _ in range(20)]
    steps = 60 if quick else 300

    def source(_: int, start: int) -> Iterator[TensorBatch]:
        for number in range(start, steps):
            yield batches[number % len(batches)]

    policy = Policy(config.policy, SIZES, Generator().manual_seed(1))

    def loss(batch: TensorBatch, progress: float, g: Generator) -> Step:
        return policy_step(policy, reward, config.training, batch, progress, g)

    task = Task("policy", policy, source, steps, loss)
    rates: list[float] = []
    for repeat in range(4 if quick else 6):
        began = time.process_time()  # of one thread: what else the machine does costs no samples
        fit(task, FitSettings(epochs=1))
        if repeat:  # the first warms up
            rates.append(steps * BATCH / (time.process_time() - began))
    return rates


def time_to_quality(published: Path) -> dict[str, Any]:
    """Train as set out beforehand, validation included, and only then look at the test samples."""
    with tempfile.TemporaryDirectory() as folder:
        data = build_published(Path(folder) / "data", published, "k4-n20")
        train, valid, test = data.split()
        next(train.batches(train.vocabulary(), BATCH))  # compiles what reads the data
        began = time.process_time()
        recommender = Recommender(preset("paper").with_overrides(QUICK_TO_QUALITY)).fit(
            train, valid, show=False
        )
        seconds = time.process_time() - began
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
