"""The one training loop: reward, policy, pair value and baselines are tasks that it runs, saves and resumes.

Knows no model and no loss: a `Task` brings both. Validation chooses the weights; the test set is never seen here.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from exactk.errors import ConfigError, ExactKError
from exactk.learning.optimiser import (
    Checkpoint,
    FitSettings,
    Optimiser,
    filed,
    learning_rate,
    read_checkpoint,
    write_checkpoint,
)
from exactk.learning.process import (
    agreed,
    current_ranks,
    deterministic,
    mean_over_ranks,
    private_randomness,
    random_state,
    restore_random_state,
    stop_requests,
)
from exactk.learning.progress import Figures, Listener, Stopwatch
from exactk.learning.recorded import Recorder
from exactk.tensors import Facts, TensorBatch

LOG_EVERY = 20  # steps between two reports of the training figures


class DivergedError(ExactKError):
    """Training met a loss or gradient that is not a number; the message says where."""


class TrainingStopped(KeyboardInterrupt):
    """Training was asked to stop (Ctrl-C, SIGTERM) and saved itself first; the message says how to resume."""


class Step(NamedTuple):
    """What a task makes of one batch: the loss to descend, and scalars worth reporting.

    With `has_gradients`, the gradients are in place already, and the loss is a number without a past.
    """

    loss: Float[Tensor, ""]
    figures: dict[str, Float[Tensor, ""]]
    has_gradients: bool = False


@dataclass(frozen=True)
class Task:
    """A module, where its batches come from, its loss and what decides which of its weights are kept.

    `batches(epoch, start)` must yield the same batches whenever it is asked the same; `loss` may draw randomness
    from the generator it is handed and from nowhere else. Without `validate` the last weights are kept. Where several
    processes train together, `batches` gives each its share, and `weight` of a batch what this share's mean counts.
    """

    name: str
    module: nn.Module
    batches: Callable[[int, int], Iterator[TensorBatch]]
    batches_per_epoch: int
    loss: Callable[[TensorBatch, float, Generator], Step]
    validate: Callable[[], dict[str, float]] | None = None
    score: str = "loss"
    higher_is_better: bool = False
    weight: Callable[[int], float] = lambda _: 1.0
    starts_useful: bool = False  # the weights it starts with are validated, too, and may be the ones kept
    # Of a batch whose loss depends on it alone and reads nothing from the device, what steers the step; else None.
    recordable: Callable[[TensorBatch], Facts | None] | None = None


def fit(
    task: Task,
    settings: FitSettings,
    folder: Path | None = None,
    resume: bool = False,
    listeners: Sequence[Listener] = (),
) -> list[Figures]:
    """Train `task.module` in place, leave its best weights in it, and return the history.

    With a folder, checkpoints go to `folder/<task>.safetensors`; with `resume`, a run that was killed at any
    moment resumes from the last one and ends with the weights it would have had anyway.
    """
    device = torch.device(settings.device)
    with private_randomness(settings.seed, device), deterministic(device), stop_requests() as stop_requested:
        run = _Run(task, settings, folder, listeners)
        run.begin(resume)
        if task.starts_useful and run.step == 0 and task.validate is not None:
            run.validate()
        while run.goes_on():
            for batch in task.batches(run.epoch, run.batch):
                run.learn(batch if device.type == "cpu" else batch.to(device))
                if run.validation_due():
                    run.validate()
                if stop_requested():
                    run.save()
                    raise TrainingStopped(run.how_to_resume())
                run.save_if_due()
                if not run.goes_on():
                    break
        run.keep_best_weights()
    return run.history


class _Run:
    """The state of one training: everything in it that matters is in the checkpoint."""

    def __init__(
        self, task: Task, settings: FitSettings, folder: Path | None, listeners: Sequence[Listener]
    ) -> None:
        self.task, self.settings, self.listeners = task, settings, listeners
        self.device = torch.device(settings.device)
        self.path = None if folder is None else folder / f"{task.name}.safetensors"
        self.optimiser = Optimiser(task.module, settings.learning_rate, settings.weight_decay)
        self.generator = Generator(settings.device).manual_seed(settings.seed)
        self.ranks = current_ranks()
        self.loss: Callable[[TensorBatch, float, Generator], Step] = task.loss
        self.recorder: Recorder | None = None
        sparse = any(getattr(part, "sparse", False) for part in task.module.modules())
        alone_on_gpu = self.device.type == "cuda" and self.ranks.world == 1
        if task.recordable is not None and not sparse and alone_on_gpu:
            self.recorder = Recorder(task.loss, task.recordable, self.optimiser.parameters, self.generator)
        self.epoch = self.batch = self.step = 0
        self.total_steps = settings.epochs * task.batches_per_epoch
        self.best_score: float | None = None
        self.best_weights: dict[str, Tensor] = {}
        self.stale = 0  # validations since the best one
        self.done = self.total_steps == 0
        self.history: list[Figures] = []
        self.sums: dict[str, Tensor] = {}  # of figures since the last report
        self.counted = 0
        self.saved_at = time.monotonic()
        self.stopwatch = Stopwatch()

    def goes_on(self) -> bool:
        """Whether there are steps left to take."""
        return not self.done

    def learn(self, batch: TensorBatch) -> None:
        """One step of gradient descent, and the position moved past its batch."""
        if not self.task.module.training:  # to say so walks through all of its modules
            self.task.module.train()
        # Randomness of this step and rank alone: a checkpoint need not hold every rank's.
        if self.ranks.world > 1:
            torch.manual_seed(self.ranks.seed(self.settings.seed, self.step))
            self.generator.manual_seed(self.ranks.seed(self.settings.seed + 1, self.step))
        step = None if self.recorder is None else self.recorder(batch)
        if step is None:
            step = self.loss(batch, self.step / self.total_steps, self.generator)
        if not step.has_gradients:
            self.optimiser.zero_grad()
            weight = self.task.weight(self.batch)
            (step.loss if weight == 1.0 else step.loss * weight).backward()  # type: ignore[no-untyped-call]
        if self.settings.clip_norm:
            self.optimiser.clip(self.settings.clip_norm)
        # Reading a number from a GPU waits for it: there, a NaN is looked for only when figures are read anyway.
        # Nor may one of several ranks leave alone: the others would wait for it.
        if self.settings.device == "cpu" and self.ranks.world == 1:
            self.refuse_not_a_number(step.loss.detach())
        self.optimiser.step(learning_rate(self.settings, self.step, self.total_steps))
        for name, value in {"loss": step.loss, **step.figures}.items():
            self.sums[name] = self.sums.get(name, 0.0) + value.detach()
        self.counted += 1
        self.step += 1
        self.batch += 1
        self.stopwatch.count(len(batch))
        if self.batch == self.task.batches_per_epoch:
            self.epoch, self.batch = self.epoch + 1, 0
        self.done = self.step >= self.total_steps
        if self.step % LOG_EVERY == 0 or self.done:
            self.report_training()

    def report_training(self) -> None:
        """Mean figures since the last report."""
        totals = mean_over_ranks(torch.stack([value.double() for value in self.sums.values()]))
        means = dict(zip(self.sums, (totals / self.counted).tolist(), strict=True))
        self.sums, self.counted = {}, 0
        self.refuse_not_a_number(torch.tensor(means["loss"]))
        rate = self.stopwatch.read() * self.ranks.world
        self.report({"event": "train", **means, "samples_per_second": round(rate, 1)})

    def validation_due(self) -> bool:
        return self.task.validate is not None and (self.done or self.batch == 0)

    def validate(self) -> None:
        """Measure on the validation data, keep the weights if they are the best so far, stop when none are for long."""
        assert self.task.validate is not None
        self.task.module.eval()
        with torch.no_grad():
            figures = self.task.validate()
        score = agreed(figures[self.task.score])
        sign = 1.0 if self.task.higher_is_better else -1.0
        if not math.isnan(score) and (self.best_score is None or sign * score > sign * self.best_score):
            self.best_score, self.stale = score, 0
            self.best_weights = {name: t.clone() for name, t in self.task.module.state_dict().items()}
        else:
            self.stale += 1
        self.done = self.done or (0 < self.settings.patience <= self.stale)
        self.report({"event": "valid", **figures, "best": self.stale == 0})
        self.stopwatch.read()

    def report(self, figures: Figures) -> None:
        """Into the history, and to whoever listens."""
        place = {"task": self.task.name, "step": self.step, "steps": self.total_steps, "epoch": self.epoch}
        self.history.append({**place, **figures})
        for listener in self.listeners:
            listener.hear(self.history[-1])

    def keep_best_weights(self) -> None:
        """Leave the module with the weights validation chose, ready for use."""
        if self.best_weights:
            self.task.module.load_state_dict(self.best_weights)
        self.task.module.eval()
        self.save()

    def refuse_not_a_number(self, loss: Tensor) -> None:
        if math.isfinite(float(loss)):
            return
        crooked = [
            f"{name} ({what})"
            for name, p in self.task.module.named_parameters()
            for what, t in (("weight", p), ("gradient", p.grad))
            if t is not None and not torch.isfinite(t.coalesce().values() if t.is_sparse else t).all()
        ]
        found = f"not finite: {', '.join(crooked[:3])}" if crooked else "weights and gradients are finite"
        raise DivergedError(
            f"{self.task.name} training: loss is {float(loss)} at step {self.step} (epoch {self.epoch}, batch "
            f"{self.batch}); {found}. A smaller learning rate or training.clip_norm=1 usually helps; "
            "bad feature values do this too"
        )

    # -- checkpoints ---------------------------------------------------------------------------------------------

    def begin(self, resume: bool) -> None:
        """Start at the beginning, or where the last checkpoint stands."""
        if self.path is not None and self.path.exists():
            if not resume:
                raise ConfigError(
                    f"{self.path.parent} holds an earlier run: resume it (resume=True) or choose another folder"
                )
            self.restore(read_checkpoint(self.path))
        for listener in self.listeners:
            listener.begin(self.task.name, self.step)
        if self.ranks.world > 1 and not self.done:
            self.loss = DistributedDataParallel(
                _Loss(self.task), broadcast_buffers=False, find_unused_parameters=True
            )

    def save_if_due(self) -> None:
        if self.ranks.world > 1 and self.step % LOG_EVERY:
            return  # between reports each rank holds figures of its own
        if self.path is not None and time.monotonic() - self.saved_at >= self.settings.checkpoint_seconds:
            self.save()

    def save(self) -> None:
        """Everything needed to resume as if nothing had happened."""
        if self.path is None or not self.ranks.first:
            return
        tensors = {
            **filed("weights", self.task.module.state_dict()),
            **filed("best", self.best_weights),
            **self.optimiser.tensors(),
            **filed("sums", self.sums),
            **filed("global", random_state(self.device)),
            "generator": self.generator.get_state(),
        }
        facts = {name: getattr(self, name) for name in _FACTS}
        write_checkpoint(self.path, tensors, {**facts, "settings": asdict(self.settings)})
        self.saved_at = time.monotonic()

    def restore(self, saved: Checkpoint) -> None:
        """Become the run that was saved; refuse one with other settings, which would train something else."""
        for name, value in saved.facts["settings"].items():
            mine = getattr(self.settings, name, value)  # a setting that is gone decides nothing
            if mine != value and name != "checkpoint_seconds":
                raise ConfigError(
                    f"{self.path} was trained with {name} = {value}, now it is {mine}; restore the setting"
                )
        self.task.module.load_state_dict(saved.part("weights"))
        self.optimiser.restore(saved)
        self.generator.set_state(saved.tensors["generator"])
        restore_random_state(saved.part("global"), self.device)
        self.best_weights = {name: t.to(self.device) for name, t in saved.part("best").items()}
        self.sums = {name: t.to(self.device) for name, t in saved.part("sums").items()}
        for name in _FACTS:
            setattr(self, name, saved.facts[name])

    def how_to_resume(self) -> str:
        where = f"{self.task.name} training stopped at step {self.step} of {self.total_steps}"
        if self.path is None:
            return f"{where}; nothing was saved, as no folder was given"
        return f"{where} and saved in {self.path.parent}; the same call with resume=True resumes it"


class _Loss(nn.Module):
    """A task's loss as the forward pass of a module, which is what torch averages gradients over ranks for."""

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.module, self.loss = task.module, task.loss

    def forward(self, batch: TensorBatch, progress: float, generator: Generator) -> Step:
        return self.loss(batch, progress, generator)


_FACTS = ("epoch", "batch", "step", "best_score", "stale", "done", "history", "counted")
