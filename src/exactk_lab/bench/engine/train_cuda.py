"""Training on a GPU: samples a second of the full RLfD step, what large batches learn, whether a stopped run goes on,
and the default model on a million lists.

Imports nothing but torch and numpy besides exactk: it runs where nothing else is installed.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor

from exactk.errors import ConfigError
from exactk.learning.fit import Step, Task, fit
from exactk.learning.losses import reward_loss
from exactk.learning.optimiser import FitSettings
from exactk.learning.recorded import Fused, safe_facts
from exactk.learning.rlfd import policy_step
from exactk.models.policy import Policy
from exactk.models.reward import Reward, reward_of
from exactk.search import Feasible, beam
from exactk.settings.config import Config, InputSizes
from exactk.settings.presets import preset
from exactk.tensors import TensorBatch
from exactk_lab.bench.engine import planted_lists
from exactk_lab.bench.engine.made import MOVIELENS, logged_batch
from exactk_lab.bench.report import Goal, Report

N, K = 20, 4
LARGE, SMALL = 8192, 32
# Name, recorded as a graph, compiled, precision.
WAYS = (
    ("as usual", False, False, "float32"),
    ("recorded", True, False, "float32"),
    ("recorded", True, False, "bfloat16"),
    ("recorded and fused", True, True, "float32"),
    ("recorded and fused", True, True, "bfloat16"),
)
PLANTED = InputSizes(num_users=1001, num_items=501)


def run(quick: bool = False) -> Report:
    """Speeds of every way to take a step, quality on a planted task, and the same weights after a stop."""
    if not torch.cuda.is_available():
        raise ConfigError("bench train --device cuda needs a GPU, and torch sees none")
    notes = [torch.cuda.get_device_name(0)]
    rows: list[dict[str, Any]] = []
    for way in WAYS[:2] if quick else WAYS:
        try:
            rows.append(speed(*way, steps=20 if quick else 100))
        except Exception as error:  # a compiler's failure is a finding, too
            notes.append(f"{way} failed: {str(error).splitlines()[0][:300]}")
    rows += quality(quick)
    rows += [resumed(precision) for precision in ("float32", "bfloat16")]
    rows += planted_lists.run(20_000 if quick else 1_000_000, 1 if quick else None)
    fastest = max(row["samples_per_second"] for row in rows if "samples_per_second" in row) / 1e6
    learned = {row["batch"]: row["precision_at_k"] for row in rows if "precision_at_k" in row}
    nearest = max(r["clicked_on_card"] / r["truth_clicked_on_card"] for r in rows if "clicked_on_card" in r)
    goals = [
        Goal("million samples/s, full RLfD step, m=5, batch 8,192, K=4, N=20", fastest, 1.0, "least"),
        Goal("P@4 of batch 8,192 over that of batch 32", learned[LARGE] / learned[SMALL], 0.99, "least"),
        Goal(
            "runs stopped and resumed that end as if never stopped",
            float(sum(r.get("equal", 0) for r in rows)),
            2.0,
            "least",
        ),
        Goal("million lists: clicks on the default's card over those on the truth's", nearest, 0.98, "least"),
    ]
    return Report("train-cuda", rows, goals, notes, seeds=[0], quick=quick)


def task_of(
    config: Config,
    batches: list[TensorBatch],
    policy: Policy,
    reward: Reward,
    num_batches: int,
    recorded: bool = True,
    fused: bool = False,
) -> Task:
    """The policy's training over batches that lie on the GPU, again and again."""
    context: Callable[[], Any] = Fused(policy) if fused else nullcontext
    halved = config.training.precision == "bfloat16"

    def source(_: int, start: int) -> Iterator[TensorBatch]:
        for number in range(start, num_batches):
            yield batches[number % len(batches)]

    def loss(batch: TensorBatch, progress: float, generator: Generator) -> Step:
        with torch.autocast("cuda", torch.bfloat16, enabled=halved), context():
            return policy_step(policy, reward, config.training, batch, progress, generator)

    return Task("policy", policy, source, num_batches, loss, recordable=safe_facts if recorded else None)


def made_models(config: Config, sizes: InputSizes) -> tuple[Policy, Reward]:
    """Fresh ones, on the GPU."""
    reward = reward_of(config, sizes, K, Generator().manual_seed(0)).eval().cuda()
    assert isinstance(reward, Reward)
    return Policy(config.policy, sizes, Generator().manual_seed(1)).cuda(), reward


def speed(name: str, recorded: bool, fused: bool, precision: str, steps: int) -> dict[str, Any]:
    """Samples a second through `learning.fit`, its first steps apart."""
    config = preset("paper").with_overrides([f"training.precision={precision}"])
    policy, reward = made_models(config, MOVIELENS)
    generator = Generator().manual_seed(0)
    batches = [logged_batch(LARGE, generator).to("cuda") for _ in range(4)]
    began: list[float] = []
    warm = 10

    task = task_of(config, batches, policy, reward, warm + steps, recorded, fused)

    def source(epoch: int, start: int) -> Iterator[TensorBatch]:
        for number, batch in enumerate(task.batches(epoch, start)):
            if number == warm:
                torch.cuda.synchronize()
                began.append(time.perf_counter())
            yield batch

    torch.cuda.reset_peak_memory_stats()
    fit(replace(task, batches=source), FitSettings(epochs=1, device="cuda"))
    torch.cuda.synchronize()
    seconds = time.perf_counter() - began[0]
    return {
        "way": name,
        "precision": precision,
        "batch": LARGE,
        "ms_a_step": 1e3 * seconds / steps,
        "samples_per_second": LARGE * steps / seconds,
        "peak_gigabytes": torch.cuda.max_memory_allocated() / 1e9,
    }


def planted(num_requests: int, seed: int) -> TensorBatch:
    """Requests whose best item is known, the one whose hidden vector agrees most with the user's; it is on the card."""
    hidden = Generator().manual_seed(99)
    users = torch.randn(PLANTED.num_users, 4, generator=hidden)
    items = torch.randn(PLANTED.num_items, 4, generator=hidden)
    batch = logged_batch(num_requests, Generator().manual_seed(seed), PLANTED, N, K)
    agree = (items[batch.item] @ users[batch.user].unsqueeze(-1)).squeeze(-1)  # B N
    best = agree.argmax(1)
    assert batch.card is not None
    card = batch.card
    card[:, 0] = torch.where((card[:, 1:] == best[:, None]).any(1), card[:, 0], best)
    return replace(batch, card=card, clicked_position=best)


def quality(quick: bool) -> list[dict[str, Any]]:
    """P@4 on fresh requests of a planted task, after training in small batches and in large ones."""
    num = 16_384 if quick else 65_536
    train, test = planted(num, 1).to("cuda"), planted(4096, 2).to("cuda")
    config = preset("paper").with_overrides(["training.target=clicked"])
    reward = taught_reward(config, train, 100 if quick else 600)
    rows = []
    for size, epochs, rate in ((SMALL, 3, 0.001), (LARGE, 120, 0.004)):
        policy, _ = made_models(config, PLANTED)
        batches = [train.rows(slice(first, first + size)) for first in range(0, num, size)]
        task = task_of(config, batches, policy, reward, len(batches))
        began = time.perf_counter()
        fit(
            task,
            FitSettings(epochs=1 if quick else epochs, learning_rate=rate, schedule="cosine", device="cuda"),
        )
        torch.cuda.synchronize()
        rows.append(
            {
                "batch": size,
                "epochs": 1 if quick else epochs,
                "learning_rate": rate,
                "seconds": time.perf_counter() - began,
                "precision_at_k": found(policy, test),
            }
        )
    return rows


def taught_reward(config: Config, train: TensorBatch, steps: int) -> Reward:
    """A reward that has learned which cards hold the best item: half of those it sees do."""
    _, reward = made_models(config, PLANTED)
    optimiser = torch.optim.Adam(reward.parameters(), 0.003)
    generator = Generator("cuda").manual_seed(0)
    reward.train()
    for _ in range(steps):
        batch = train.rows(torch.randint(len(train), (LARGE,), generator=generator, device="cuda"))
        assert batch.card is not None
        assert batch.clicked_position is not None
        other = torch.rand(LARGE, N, generator=generator, device="cuda").argsort(1)[:, :K]
        cards = torch.cat([batch.card.unsqueeze(1), other.unsqueeze(1)], 1)  # B 2 K
        holds = (cards == batch.clicked_position[:, None, None]).any(-1)
        loss = reward_loss(reward(batch, cards).flatten(), holds.flatten()).mean()
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return reward.eval()


@torch.no_grad()
def found(policy: Policy, test: TensorBatch) -> float:
    """The share of requests whose card holds the best item."""
    cards = beam(policy.steps(test), Feasible.of(test), policy.config.beam).cards[:, 0]
    assert test.clicked_position is not None
    return float((cards == test.clicked_position[:, None]).any(1).double().mean())


def resumed(precision: str) -> dict[str, Any]:
    """Twenty steps at once, and as ten and ten with a checkpoint between: the same weights to the last bit?"""
    config = preset("paper").with_overrides([f"training.precision={precision}"])
    generator = Generator().manual_seed(0)
    batches = [logged_batch(512, generator).to("cuda") for _ in range(4)]
    settings = FitSettings(epochs=2, device="cuda")

    class Stop(Exception):  # noqa: N818 (a stop is no error)
        pass

    def weights(halfway: bool) -> Tensor:
        policy, reward = made_models(config, MOVIELENS)
        task = task_of(config, batches, policy, reward, 10)

        def cut(epoch: int, start: int) -> Iterator[TensorBatch]:
            if epoch == 1:
                raise Stop
            yield from task.batches(epoch, start)

        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder)
            if halfway:
                try:
                    fit(replace(task, batches=cut), replace(settings, checkpoint_seconds=0.0), place)
                except Stop:
                    policy, reward = made_models(config, MOVIELENS)
                    task = task_of(config, batches, policy, reward, 10)
            fit(task, replace(settings, checkpoint_seconds=0.0), place, resume=halfway)
        return torch.cat([p.detach().flatten() for p in policy.parameters()])

    whole, parts = weights(False), weights(True)
    return {
        "way": "stopped after ten steps and resumed",
        "precision": precision,
        "largest_difference": float((whole - parts).abs().max()),
        "equal": float(torch.equal(whole, parts)),
    }
