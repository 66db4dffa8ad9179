"""The training loop: which weights it keeps, that it stops when it must, and that a kill leaves no trace."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Generator, Tensor, nn

from exactk.errors import ConfigError
from exactk.learning.fit import DivergedError, Step, Task, TrainingStopped, fit
from exactk.learning.optimiser import FitSettings, learning_rate
from exactk.learning.progress import MetricsFile
from exactk.tensors import TensorBatch
from small_batches import complete_batch

BATCHES = 5


class Guess(nn.Module):
    """One weight per item and dropout: enough to notice lost random state."""

    def __init__(self) -> None:
        super().__init__()
        self.items = nn.Embedding(40, 3)
        self.dropout = nn.Dropout(0.5)
        self.out = nn.Linear(3, 1)
        with torch.no_grad():
            for number, p in enumerate(self.parameters()):
                p.copy_(torch.linspace(-1, 1, p.numel()).reshape(p.shape) + 0.1 * number)

    def forward(self, batch: TensorBatch) -> Tensor:
        return torch.as_tensor(self.out(self.dropout(self.items(batch.item))).squeeze(-1))  # B N


def batches(epoch: int, start: int) -> Iterator[TensorBatch]:
    for number in range(start, BATCHES):
        batch = complete_batch(4, 6, 2)
        yield replace(batch, item=(batch.item + 11 * epoch + number) % 40)


def noisy_loss(module: nn.Module) -> Task:
    def loss(batch: TensorBatch, progress: float, generator: Generator) -> Step:
        noise = torch.randn(batch.item.shape, generator=generator)
        value = (module(batch) - noise - progress).square().mean()
        return Step(value, {"noise": noise.mean()})

    return Task("guess", module, batches, BATCHES, loss)


def weights(module: nn.Module) -> bytes:
    return b"".join(t.numpy().tobytes() for t in module.state_dict().values())


def test_the_same_seed_gives_the_same_weights_and_another_seed_others() -> None:
    def trained(seed: int) -> bytes:
        module = Guess()
        fit(noisy_loss(module), FitSettings(epochs=3, seed=seed))
        return weights(module)

    torch.manual_seed(int(time.time()))  # whatever the caller's generator says
    assert trained(1) == trained(1)
    assert trained(1) != trained(2)


def test_training_leaves_the_callers_generator_alone() -> None:
    task = noisy_loss(Guess())
    before = torch.get_rng_state()
    fit(task, FitSettings(epochs=1))
    assert torch.equal(before, torch.get_rng_state())


class KilledError(Exception):
    """What a test raises in the middle of a step."""


@pytest.mark.parametrize("fatal", range(12))
def test_a_run_cut_at_any_step_and_resumed_ends_with_the_same_weights_and_report(
    fatal: int, tmp_path: Path
) -> None:
    settings = FitSettings(epochs=2, checkpoint_seconds=0.0)
    straight = Guess()
    whole = fit(with_validation(noisy_loss(straight)), settings)

    module = Guess()
    task = with_validation(noisy_loss(module))
    steps = 0

    def cut(batch: TensorBatch, progress: float, generator: Generator) -> Step:
        nonlocal steps
        if steps == fatal:
            raise KilledError
        steps += 1
        return task.loss(batch, progress, generator)

    listeners = [MetricsFile(tmp_path / "metrics.jsonl")]
    if fatal < 2 * BATCHES:
        with pytest.raises(KilledError):
            fit(replace(task, loss=cut), settings, tmp_path, listeners=listeners)
    else:
        fit(task, settings, tmp_path, listeners=listeners)  # resuming a finished run changes nothing
    again = Guess()
    history = fit(with_validation(noisy_loss(again)), settings, tmp_path, resume=True, listeners=listeners)
    assert weights(again) == weights(straight)
    assert [timeless(f) for f in history] == [timeless(f) for f in whole]
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [timeless(f) for f in lines] == [timeless(f) for f in whole]


def timeless(figures: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in figures.items() if name != "samples_per_second"}


def with_validation(task: Task) -> Task:
    first = next(task.module.parameters())
    return replace(task, validate=lambda: {"score": float(first.detach().sum())}, score="score")


def test_ctrl_c_finishes_the_step_saves_and_says_how_to_resume(tmp_path: Path) -> None:
    settings = FitSettings(epochs=2)
    before = signal.getsignal(signal.SIGINT)  # ignored where the tests run in the background of a shell
    straight, module, again = Guess(), Guess(), Guess()
    fit(noisy_loss(straight), settings)
    task = noisy_loss(module)
    steps = 0

    def interrupted(batch: TensorBatch, progress: float, generator: Generator) -> Step:
        nonlocal steps
        steps += 1
        if steps == 4:
            os.kill(os.getpid(), signal.SIGINT)
        return task.loss(batch, progress, generator)

    with pytest.raises(TrainingStopped, match=r"step 4 of 10.*resume=True"):
        fit(replace(task, loss=interrupted), settings, tmp_path)
    fit(noisy_loss(again), settings, tmp_path, resume=True)
    assert weights(again) == weights(straight)
    assert signal.getsignal(signal.SIGINT) is before


KILLED_RUN = """
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from policy_run import run
run(Path(sys.argv[1]), told=lambda step: print(step, flush=True))
"""


def test_a_policy_killed_by_sigkill_at_random_moments_ends_with_the_same_weights(tmp_path: Path) -> None:
    from policy_run import STEPS, run

    straight = run(tmp_path / "straight")
    script = KILLED_RUN.format(tests=str(Path(__file__).parents[1]))
    random = torch.Generator().manual_seed(time.time_ns() % 2**31)
    for _ in range(2):
        process = subprocess.Popen(
            [sys.executable, "-c", script, str(tmp_path / "killed")], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        for _ in range(int(torch.randint(3, STEPS // 2 - 2, (), generator=random))):
            assert process.stdout.readline()
        time.sleep(float(torch.rand((), generator=random)) * 0.02)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert process.returncode == -signal.SIGKILL
    resumed = run(tmp_path / "killed")
    assert resumed.keys() == straight.keys()
    assert all(torch.equal(resumed[name], straight[name]) for name in straight)


def test_validation_keeps_the_best_weights_and_patience_stops() -> None:
    module = Guess()
    scores = iter([3.0, 1.0, 2.0, 2.0, 0.5])
    seen: list[bytes] = []

    def validate() -> dict[str, float]:
        seen.append(weights(module))
        return {"score": next(scores)}

    task = replace(noisy_loss(module), validate=validate, score="score")
    history = fit(task, FitSettings(epochs=10, patience=2))
    assert len(seen) == 4  # 3, 1 (best), 2, 2: two in a row without a better one
    assert weights(module) == seen[1]
    assert [f["best"] for f in history if f["event"] == "valid"] == [True, True, False, False]


def test_weights_that_start_useful_are_kept_where_training_only_harms() -> None:
    module = Guess()
    before, scores = weights(module), iter([1.0, 2.0, 3.0])
    task = replace(noisy_loss(module), validate=lambda: {"loss": next(scores)}, starts_useful=True)
    history = fit(task, FitSettings(epochs=2))
    assert [told["step"] for told in history if told["event"] == "valid"] == [0, BATCHES, 2 * BATCHES]
    assert weights(module) == before


def test_a_validation_score_that_is_not_a_number_is_never_the_best() -> None:
    module = Guess()
    task = replace(noisy_loss(module), validate=lambda: {"score": math.nan}, score="score")
    history = fit(task, FitSettings(epochs=2))
    assert not any(f["best"] for f in history if f["event"] == "valid")


def test_a_loss_that_is_not_a_number_stops_and_says_where() -> None:
    module = Guess()
    task = noisy_loss(module)

    def loss(batch: TensorBatch, progress: float, generator: Generator) -> Step:
        step = task.loss(batch, progress, generator)
        return Step(step.loss * math.nan, {}) if progress >= 0.7 else step

    with pytest.raises(
        DivergedError, match=r"guess training: loss is nan at step 7 \(epoch 1, batch 2\).*items\.weight"
    ):
        fit(replace(task, loss=loss), FitSettings(epochs=2))
    assert all(torch.isfinite(p).all() for p in module.parameters())  # the bad step was not taken


def test_clipping_bounds_the_first_step() -> None:
    """AdamW's first step has a fixed size, so look at the gradient that is left behind."""
    module = Guess()
    fit(noisy_loss(module), FitSettings(epochs=1, clip_norm=0.01))
    norm = torch.stack([p.grad.norm() for p in module.parameters() if p.grad is not None]).norm()
    assert norm.item() <= 0.01 * (1 + 1e-4)


def test_a_folder_with_an_earlier_run_is_neither_overwritten_nor_mixed(tmp_path: Path) -> None:
    fit(noisy_loss(Guess()), FitSettings(epochs=1), tmp_path)
    with pytest.raises(ConfigError, match="earlier run"):
        fit(noisy_loss(Guess()), FitSettings(epochs=1), tmp_path)
    with pytest.raises(ConfigError, match=r"learning_rate = 0\.001, now it is 0\.1"):
        fit(noisy_loss(Guess()), FitSettings(epochs=1, learning_rate=0.1), tmp_path, resume=True)


def test_a_cosine_schedule_rises_shortly_and_falls_to_zero() -> None:
    settings = FitSettings(learning_rate=0.2, schedule="cosine")
    rates = [learning_rate(settings, step, 1000) for step in (0, 99, 500, 999)]
    half_way = 0.2 * 0.5
    assert rates[0] == pytest.approx(0.2 / 100)
    assert rates[1] == pytest.approx(0.2 * 0.5 * (1 + math.cos(math.pi * 0.099)))
    assert rates[2] == pytest.approx(half_way)
    assert rates[3] < 1e-5
    assert learning_rate(FitSettings(learning_rate=0.2), 999, 1000) == 0.2


def test_a_training_of_many_steps_learns_at_a_lower_rate() -> None:
    settings = FitSettings(learning_rate=0.2, full_pace=1000)
    assert learning_rate(settings, 5, 1000) == 0.2
    assert learning_rate(settings, 5, 4000) == pytest.approx(0.1)
