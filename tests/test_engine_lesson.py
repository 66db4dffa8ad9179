"""The whole training step in compiled code: the losses, figures and gradients of `policy_step`, for every setting."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Generator, Tensor

from exactk.bench.made import logged_batch, made_policy
from exactk.config import Config, InputSizes, PolicyConfig
from exactk.engine.lesson import CompiledLesson
from exactk.engine.training import CompiledTraining
from exactk.learning.fit import Step, Task, fit
from exactk.learning.pace import FitSettings
from exactk.learning.rlfd import policy_step
from exactk.models.policy import Policy
from exactk.models.reward import reward_of
from exactk.presets import preset
from exactk.problem.batch import Batch
from exactk.search import Feasible

IDS = InputSizes(num_users=30, num_items=60)
BOTH = InputSizes(num_users=30, num_items=60, user_feature_size=3, item_feature_size=5)

SETTINGS = {
    "the paper's": (),
    "without hill climbing": ("training.hill_climbing=false", "training.samples=1"),
    "samples against one another": ("training.hill_climbing=false", "training.baseline=leave_one_out"),
    "supervised alone": ("training.alpha=1",),
    "reward alone": ("training.alpha=0", "training.temperature=0.7"),
    "demonstrations as paths": ("training.policy_sampling=false", "training.target=set"),
    "the clicked item": ("training.target=clicked", "training.entropy=0.1"),
    "uniform targets": ("training.target=uniform", "training.shuffle_card=false"),
    "not yet from rewards": ("training.warm_start_epochs=1", "training.policy_sampling=false"),
}


def batch_of(size: int, sizes: InputSizes, density: float = 1.0, N: int = 20) -> Batch:
    """Requests with forbidden pairs, absent candidates and a few cards that were not clicked."""
    generator = Generator().manual_seed(5)
    batch = logged_batch(size, generator, sizes, N)
    forbidden = torch.rand(size, N, N, generator=generator) > density
    absent = torch.rand(size, N, generator=generator) < 0.1
    absent.scatter_(1, batch.card, False)  # type: ignore[arg-type]
    clicked = torch.rand(size, generator=generator) < 0.7
    features = {}
    if sizes.user_feature_size:
        features["user_features"] = torch.randn(size, 3, generator=generator)
        features["item_features"] = torch.randn(size, N, 5, generator=generator)
    graph = batch.graph & ~(forbidden | forbidden.transpose(1, 2))
    batch = replace(batch, graph=graph, present=~absent, clicked=clicked, **features)
    return batch.rows(Feasible.of(batch).safe)


def both_ways(
    config: Config, batch: Batch, sizes: InputSizes = IDS, threads: int = 1
) -> list[tuple[Step, dict[str, Tensor]]]:
    """One step from the same weights and numbers: the model's, then the compiled one."""
    reward = reward_of(config, sizes, 4, Generator().manual_seed(3)).eval()
    policy = made_policy(0, config.policy, sizes)
    told = []
    step = policy_step(policy, reward, 0.0, config.training, batch, 0.05, Generator().manual_seed(7))
    step.loss.backward()  # type: ignore[no-untyped-call]
    told.append((step, gradients(policy)))
    lesson = CompiledTraining(policy, threads).lesson(reward, 0.0, config.training)
    assert lesson is not None
    found = lesson(batch, 0.05, Generator().manual_seed(7))
    assert found is not None
    told.append((found, gradients(policy)))
    return told


def gradients(policy: Policy) -> dict[str, Tensor]:
    return {name: p.grad.clone() for name, p in policy.named_parameters() if p.grad is not None}


def assert_equal_up_to_rounding(told: list[tuple[Step, dict[str, Tensor]]]) -> None:
    (model, wanted), (ours, found) = told
    assert ours.back
    assert float(ours.loss) == pytest.approx(float(model.loss.detach()), rel=1e-4, abs=1e-5)
    assert ours.figures.keys() == model.figures.keys()
    for name, value in model.figures.items():
        assert float(ours.figures[name]) == pytest.approx(float(value), rel=1e-4, abs=1e-5), name
    assert found.keys() == wanted.keys()
    for name, gradient in wanted.items():
        assert (found[name] - gradient).norm() < 2e-4 * gradient.norm().clamp(min=1e-4), name


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS.keys())
def test_a_step_is_the_models(settings: tuple[str, ...]) -> None:
    config = preset("paper").with_overrides(settings)
    assert_equal_up_to_rounding(both_ways(config, batch_of(20, IDS, density=0.97)))


def test_other_networks_and_other_numbers_of_candidates_are_the_models_too() -> None:
    network = (
        "policy.embedding_size=32",
        "policy.heads=1",
        "policy.encoder_layers=1",
        "policy.decoder_layers=1",
    )
    config = preset("paper").with_overrides((*network, "policy.feed_forward_size=48"))
    assert_equal_up_to_rounding(both_ways(config, batch_of(3, IDS, N=33)))
    assert_equal_up_to_rounding(both_ways(config, batch_of(19, IDS, N=13)))


@pytest.mark.parametrize("kind", ["set", "pair"])
def test_rewards_of_other_kinds_are_asked_of_torch(kind: str) -> None:
    config = preset("paper").with_overrides((f"reward.kind={kind}", "policy.inputs=both"))
    assert_equal_up_to_rounding(both_ways(config, batch_of(9, BOTH), BOTH))


def test_threads_learn_the_same_to_the_last_bit() -> None:
    config, batch = preset("paper"), batch_of(21, IDS)
    (_, (one, alone)), (_, (three, threaded)) = (both_ways(config, batch, threads=n) for n in (1, 3))
    assert torch.equal(one.loss, three.loss)
    for name, gradient in alone.items():
        assert torch.equal(gradient, threaded[name]), name


def lesson_of(config: Config, policy_config: PolicyConfig | None = None) -> CompiledLesson | None:
    policy = made_policy(0, policy_config or config.policy, IDS)
    reward = reward_of(config, IDS, 4, Generator().manual_seed(3)).eval()
    return CompiledTraining(policy, 1).lesson(reward, 0.0, config.training)


def test_what_needs_look_ahead_caps_or_pins_is_learned_as_usual_and_draws_no_numbers() -> None:
    lesson, batch = lesson_of(preset("paper")), batch_of(6, IDS)
    assert lesson is not None
    lost = replace(batch, graph=torch.zeros_like(batch.graph))
    pinned = torch.zeros_like(batch.present)
    pinned[2, 3] = True
    ragged = batch.card_size.clone()
    ragged[1] = 3
    capped = {
        "cap": torch.ones(6, 1, dtype=torch.long),
        "group": torch.zeros(6, 1, 20, dtype=torch.long),
    }
    others = (lost, replace(batch, pinned=pinned), replace(batch, card_size=ragged), replace(batch, **capped))
    for other in others:
        generator = Generator().manual_seed(1)
        before = generator.get_state()
        assert lesson(other, 0.0, generator) is None
        assert torch.equal(generator.get_state(), before)


def test_ids_without_a_row_are_left_to_the_model_to_refuse() -> None:
    lesson, batch = lesson_of(preset("paper")), batch_of(6, IDS)
    assert lesson is not None
    user = batch.user.clone()
    user[4] = IDS.num_users
    assert lesson(replace(batch, user=user), 0.0, Generator()) is None


def test_networks_and_baselines_the_kernels_do_not_know_have_no_lesson() -> None:
    paper = preset("paper")
    assert lesson_of(paper.with_overrides(("training.baseline=greedy",))) is None
    assert lesson_of(paper.with_overrides(("training.smoothing=0.1",))) is None
    assert lesson_of(paper, PolicyConfig(cell="gru")) is None
    assert lesson_of(paper, PolicyConfig(affinity=4)) is None


def trained(folder: Path, threads: int = 2, cut_after: int = 8) -> dict[str, Tensor]:
    """A policy's weights after eight steps, or fewer; every third batch has to be learned from as usual."""
    config = preset("paper")
    reward = reward_of(config, IDS, 4, Generator().manual_seed(3)).eval()
    policy = Policy(config.policy, IDS, Generator().manual_seed(4))
    lesson = CompiledTraining(policy, threads).lesson(reward, 0.0, config.training)
    assert lesson is not None
    usual = []

    def batches(_: int, start: int) -> Iterator[Batch]:
        for number in range(start, 8):
            if number == cut_after:
                raise RuntimeError("cut")
            batch = batch_of(10 + number, IDS)
            pinned = torch.zeros_like(batch.present)
            pinned[0, int(batch.present[0].nonzero()[0])] = number % 3 == 1
            yield replace(batch, pinned=pinned)

    def loss(batch: Batch, progress: float, generator: Generator) -> Step:
        step = lesson(batch, progress, generator)
        usual.append(step is None)
        return step or policy_step(policy, reward, 0.0, config.training, batch, progress, generator)

    task = Task("policy", policy, batches, 8, loss, flat=lesson.flat)
    with suppress(RuntimeError):
        fit(task, FitSettings(epochs=1, checkpoint_seconds=0.0), folder, resume=True)
    assert cut_after < 8 or any(usual)
    return {name: t.clone() for name, t in policy.state_dict().items()}


def test_a_run_cut_short_and_resumed_ends_with_the_same_weights_on_any_number_of_threads(
    tmp_path: Path,
) -> None:
    straight = trained(tmp_path / "straight")
    trained(tmp_path / "cut", threads=1, cut_after=4)
    resumed = trained(tmp_path / "cut")
    for name, weights in straight.items():
        assert torch.equal(weights, resumed[name]), name
