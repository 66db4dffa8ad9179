"""RLfD against exact enumeration on tiny requests: the right gradient, the right targets, the optimum in the end."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import torch
from torch import Generator, Tensor, nn

from exactk.errors import ConfigError
from exactk.learning.fit import Step, Task, fit
from exactk.learning.losses import reward_loss
from exactk.learning.optimiser import FitSettings
from exactk.learning.rlfd import Baseline, policy_step, shuffled
from exactk.learning.tasks import shown_the_best
from exactk.models.pairvalue import Ensemble, PairValue
from exactk.models.policy import Policy
from exactk.search import Feasible, log_prob
from exactk.settings.config import Config, InputSizes, PairValueConfig, PolicyConfig, TrainingConfig
from exactk.settings.presets import ABLATIONS, preset
from exactk.tensors import TensorBatch
from small_batches import batch_of, complete_batch, graph_of, valid_cards

BASELINES: tuple[Baseline, ...] = ("none", "leave_one_out")
SIZES = InputSizes(num_users=6, num_items=31)
TINY = PolicyConfig(
    embedding_size=8, width=16, encoder_layers=1, heads=2, feed_forward_size=16, decoder_layers=1
)


class TrueValue(nn.Module):
    """A member whose logit is known: items have a worth, and worths that differ by 3 go well together."""

    def forward(self, batch: TensorBatch, cards: Tensor) -> Tensor:
        rows = torch.arange(len(cards))[:, None, None]
        worth = (batch.item[rows, cards] % 5).float()  # B S K
        harmony = ((worth[..., :, None] - worth[..., None, :]).abs() == 3).float().sum((-1, -2))
        return 0.4 * worth.sum(-1) + harmony - 6.0


def true_value() -> Ensemble:
    return Ensemble([TrueValue()])


def policy(seed: int = 0) -> Policy:
    return Policy(TINY, SIZES, Generator().manual_seed(seed))


def demonstrated(batch: TensorBatch, card: list[list[int]], clicked: list[int] | None = None) -> TensorBatch:
    cards = torch.tensor(card)
    chosen = cards[:, 0] if clicked is None else torch.tensor(clicked)
    return replace(
        batch, card=cards, clicked=torch.ones(len(cards), dtype=torch.bool), clicked_position=chosen
    )


def square() -> TensorBatch:
    """One request: a 5-cycle of allowed pairs with one chord, cards of two."""
    graph = graph_of(5, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0), (0, 2)])
    return demonstrated(batch_of(graph.unsqueeze(0), 2), [[0, 2]])


def gradient(module: nn.Module) -> Tensor:
    return torch.cat(
        [p.grad.flatten() if p.grad is not None else torch.zeros(p.numel()) for p in module.parameters()]
    )


def exact_gradient(model: Policy, reward: Ensemble, batch: TensorBatch, temperature: float) -> Tensor:
    """d/dtheta of sum over every card in every order of P(A) R(A)."""
    orders = [o for card in valid_cards(batch, 0) for o in itertools.permutations(card)]
    cards = torch.tensor([orders])  # 1 S K
    probability = log_prob(model.steps(batch), Feasible.of(batch), cards, temperature).exp()
    assert probability.sum().item() == pytest.approx(1.0, abs=1e-5)
    rewards = 2 * (reward(batch, cards).sigmoid() - 0.5)
    model.zero_grad()
    torch.autograd.backward((probability * rewards).sum())
    return gradient(model)


@pytest.mark.parametrize("baseline", BASELINES)
@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_the_sampled_reinforce_gradient_is_that_of_the_expected_reward(
    baseline: Baseline, temperature: float
) -> None:
    model, reward, batch = policy(), true_value(), square()
    exact = exact_gradient(model, reward, batch, temperature)
    config = TrainingConfig(
        alpha=0.0,
        hill_climbing=False,
        samples=40_000,
        baseline=baseline,
        temperature=temperature,
    )
    model.zero_grad()
    torch.autograd.backward(policy_step(model, reward, config, batch, 0.0, Generator().manual_seed(5)).loss)
    # Without a baseline 40,000 samples are noisier: all rewards of this request are far below zero.
    assert ((gradient(model) + exact).norm() / exact.norm()).item() < (0.2 if baseline == "none" else 0.05)


def test_supervision_without_policy_sampling_is_the_cards_log_likelihood() -> None:
    model, batch = policy(), demonstrated(complete_batch(2, 6, 3), [[4, 0, 2], [1, 5, 3]])
    config = TrainingConfig(alpha=1.0, policy_sampling=False, shuffle_card=False)
    assert batch.card is not None
    expected = -log_prob(model.steps(batch), Feasible.of(batch), batch.card.unsqueeze(1)).mean()
    loss = policy_step(model, None, config, batch, 0.0, Generator().manual_seed(0)).loss
    torch.testing.assert_close(loss, expected)


def test_under_policy_sampling_targets_already_chosen_or_forbidden_contribute_nothing() -> None:
    """In a triangle with a tail, the tail's end is never allowed; as the only target it can teach nothing."""
    graph = graph_of(4, [(0, 1), (1, 2), (0, 2), (2, 3)])
    batch = demonstrated(batch_of(graph.unsqueeze(0), 3), [[3, 3, 3]])
    model = policy()
    config = TrainingConfig(alpha=1.0, shuffle_card=False)
    step = policy_step(model, None, config, batch, 0.0, Generator().manual_seed(0))
    torch.autograd.backward(step.loss)
    assert step.loss.item() == 0.0
    assert gradient(model).abs().max().item() == 0.0


def test_cards_that_were_not_clicked_are_no_demonstrations() -> None:
    model = policy()
    both = demonstrated(complete_batch(2, 6, 3), [[4, 0, 2], [1, 5, 3]])
    config = TrainingConfig(alpha=1.0, policy_sampling=False, shuffle_card=False)
    half = replace(both, clicked=torch.tensor([True, False]))
    alone = both.rows(torch.tensor([0]))
    losses = [policy_step(model, None, config, b, 0.0, Generator()).loss for b in (half, alone)]
    torch.testing.assert_close(losses[0], losses[1])


def test_hill_climbing_learns_from_the_best_sample_only() -> None:
    model, reward, batch = policy(), true_value(), square()
    config = TrainingConfig(alpha=0.0, samples=64, shuffle_card=False)
    loss = policy_step(model, reward, config, batch, 0.0, Generator().manual_seed(1)).loss
    best = max(valid_cards(batch, 0), key=lambda card: reward(batch, torch.tensor([[card]])).item())
    value = 2 * (reward(batch, torch.tensor([[best]])).sigmoid().item() - 0.5)
    orders = torch.tensor([[best, best[::-1]]])
    possible = (-value * log_prob(model.steps(batch), Feasible.of(batch), orders)).flatten().tolist()
    assert any(loss.item() == pytest.approx(p, rel=1e-4) for p in possible)


def test_the_encoder_runs_once_per_batch_however_many_samples() -> None:
    model = policy()
    calls: list[int] = []
    model.encoder.register_forward_hook(lambda *_: calls.append(1))
    batch = demonstrated(complete_batch(3, 6, 3), [[4, 0, 2], [1, 5, 3], [0, 1, 2]])
    for baseline in BASELINES:
        config = TrainingConfig(samples=7, baseline=baseline)
        policy_step(model, true_value(), config, batch, 0.0, Generator().manual_seed(0))
    assert len(calls) == len(BASELINES)


def test_a_warm_start_leaves_the_reward_alone() -> None:
    class Untouched(nn.Module):
        def forward(self, batch: TensorBatch, cards: Tensor) -> Tensor:
            raise AssertionError("asked for a reward during the warm start")

    batch = demonstrated(complete_batch(2, 6, 3), [[4, 0, 2], [1, 5, 3]])
    config = TrainingConfig(epochs=10, warm_start_epochs=2)
    for progress in (0.0, 0.19):
        step = policy_step(
            policy(), Ensemble([Untouched()]), config, batch, progress, Generator().manual_seed(0)
        )
        assert "reward" not in step.figures
    with pytest.raises(AssertionError, match="warm start"):
        policy_step(policy(), Ensemble([Untouched()]), config, batch, 0.2, Generator().manual_seed(0))


def test_shuffling_permutes_cards_and_keeps_padding_last() -> None:
    card = torch.tensor([[3, 1, 2, -1, -1]]).repeat(200, 1)
    mixed = shuffled(card, Generator().manual_seed(0))
    assert (mixed[:, 3:] == -1).all()
    assert {tuple(row) for row in mixed[:, :3].tolist()} == set(itertools.permutations((1, 2, 3)))


@pytest.mark.parametrize("row", ABLATIONS)
def test_every_row_of_the_ablation_table_is_a_configuration(row: str) -> None:
    config = preset("paper").with_overrides(ABLATIONS[row]).training
    batch = demonstrated(complete_batch(3, 6, 3), [[4, 0, 2], [1, 5, 3], [0, 1, 2]])
    model = policy()
    step = policy_step(model, true_value(), config, batch, 0.3, Generator().manual_seed(0))
    torch.autograd.backward(step.loss)
    assert ("reward" in step.figures) == ("RL" in row)
    assert ("supervised_loss" in step.figures) == ("SL" in row)
    assert gradient(model).norm().item() > 0


# -- learning to the optimum -----------------------------------------------------------------------------------------


REQUESTS = 6


def planted() -> TensorBatch:
    """Six requests with seven candidates, cards of three, some pairs forbidden."""
    generator = torch.Generator().manual_seed(2)
    graph = ~torch.eye(7, dtype=torch.bool).repeat(REQUESTS, 1, 1)
    for b in range(REQUESTS):
        i, j = torch.randperm(7, generator=generator)[:2].tolist()
        graph[b, i, j] = graph[b, j, i] = False
    item = (
        torch.rand(REQUESTS, 30, generator=generator).argsort(dim=1)[:, :7] + 1
    )  # distinct within a request
    return batch_of(graph, 3, item=item)


def optimum(batch: TensorBatch, b: int) -> float:
    one = batch.rows(torch.tensor([b]))
    return float(true_value()(one, torch.tensor([valid_cards(batch, b)])).max())


def achieved(batch: TensorBatch, cards: Tensor) -> list[float]:
    values: list[float] = true_value()(batch, cards.unsqueeze(1)).flatten().tolist()
    return values


def train(module: nn.Module, loss: object, epochs: int) -> None:
    batch = planted()
    assert callable(loss)
    task = Task("planted", module, lambda _, start: iter([batch][start:]), 1, loss)
    fit(task, FitSettings(epochs=epochs, learning_rate=0.01, clip_norm=1.0))


@pytest.mark.parametrize(
    "config",
    [
        TrainingConfig(alpha=0.0, samples=24, hill_climbing=False, baseline="leave_one_out"),
        TrainingConfig(alpha=0.0, samples=24, baseline="leave_one_out"),
    ],
    ids=["every sample", "best of many"],
)
def test_a_policy_finds_the_best_card_of_every_planted_request(config: TrainingConfig) -> None:
    model, batch = policy(1), planted()
    reward = true_value()

    def loss(b: TensorBatch, progress: float, generator: Generator) -> Step:
        return policy_step(model, reward, config, b, progress, generator)

    train(model, loss, 200)
    cards = model.cards(batch)
    assert achieved(batch, cards) == pytest.approx([optimum(batch, b) for b in range(REQUESTS)])


@pytest.mark.parametrize("target", ["card", "set", "uniform"])
@pytest.mark.parametrize("policy_sampling", [True, False])
def test_a_policy_memorises_demonstrations(target: str, policy_sampling: bool) -> None:
    shown = [valid_cards(planted(), b)[b % 5] for b in range(REQUESTS)]
    batch = demonstrated(planted(), [list(card) for card in shown])
    config = TrainingConfig(alpha=1.0, target=target, policy_sampling=policy_sampling)  # type: ignore[arg-type]
    model = policy(1)

    def loss(_: TensorBatch, progress: float, generator: Generator) -> Step:
        return policy_step(model, None, config, batch, progress, generator)

    train(model, loss, 120)
    cards = model.cards(batch, 8)
    assert [set(card) for card in cards.tolist()] == [set(card) for card in shown]


def test_the_clicked_item_as_target_is_chosen_first() -> None:
    clicked = [3, 0, 6, 2, 1, 5]
    batch = planted()
    cards = [next(card for card in valid_cards(batch, b) if clicked[b] in card) for b in range(REQUESTS)]
    batch = demonstrated(batch, [list(card) for card in cards], clicked)
    model = policy(1)

    def loss(_: TensorBatch, progress: float, generator: Generator) -> Step:
        return policy_step(
            model, None, TrainingConfig(alpha=1.0, target="clicked"), batch, progress, generator
        )

    train(model, loss, 120)
    assert model.cards(batch, 1)[:, 0].tolist() == clicked


def test_a_pair_value_learned_from_all_cards_is_maximised_exactly() -> None:
    batch = planted()
    shown = [(b, card) for b in range(REQUESTS) for card in valid_cards(batch, b)]
    logged = batch.rows(torch.tensor([b for b, _ in shown]))
    cards = torch.tensor([card for _, card in shown])
    clicked = true_value()(logged, cards.unsqueeze(1)).squeeze(1).sigmoid()
    config = PairValueConfig(embedding_size=8, hidden_size=16, kinds=8)
    model = PairValue(config, SIZES, Generator().manual_seed(0))

    def loss(_: TensorBatch, __: float, ___: Generator) -> Step:
        logits = model(logged, cards.unsqueeze(1)).squeeze(1)
        # The expected log loss under the true click rate: what endlessly many clicks would teach.
        yes = torch.ones(len(logits), dtype=torch.bool)
        return Step(
            (clicked * reward_loss(logits, yes) + (1 - clicked) * reward_loss(logits, ~yes)).mean(), {}
        )

    train(model, loss, 300)
    found = model.best(batch)
    assert achieved(batch, found.cards) == pytest.approx([optimum(batch, b) for b in range(REQUESTS)])
    torch.testing.assert_close(found.value, found.bound)
    torch.testing.assert_close(
        found.value.float(), model(batch, found.cards.unsqueeze(1)).squeeze(1).detach(), atol=1e-4, rtol=1e-4
    )


def test_alpha_mixes_the_supervised_loss_and_the_one_of_rewards() -> None:
    batch = demonstrated(square(), [[0, 1]])

    def told(alpha: float) -> tuple[float, float]:
        config = TrainingConfig(alpha=alpha, samples=6, hill_climbing=False, baseline="leave_one_out")
        step = policy_step(policy(), true_value(), config, batch, 0.5, Generator().manual_seed(4))
        return float(step.loss.detach()), float(step.figures["supervised_loss"])

    (quarter, supervised), (most, again) = told(0.25), told(0.75)
    assert supervised == again  # the same samples
    reinforced = (quarter - 0.25 * supervised) / 0.75
    assert abs(reinforced) > 1e-3
    assert most == pytest.approx(0.75 * supervised + 0.25 * reinforced, abs=1e-5)


def test_exact_demonstrations_are_the_best_valid_cards_under_the_value_whatever_was_logged() -> None:
    batch = demonstrated(planted(), [list(valid_cards(planted(), b)[0]) for b in range(REQUESTS)])
    batch = replace(batch, clicked=torch.zeros(REQUESTS, dtype=torch.bool))
    value = PairValue(PairValueConfig(embedding_size=8, kinds=4), SIZES, Generator().manual_seed(3)).eval()
    with torch.no_grad():
        for parameter in value.parameters():
            parameter.mul_(3.0)
        shown = shown_the_best(value, batch)
        assert shown.card is not None
        assert shown.clicked is not None
        assert shown.clicked.all()
        for b in range(REQUESTS):
            cards = torch.tensor([valid_cards(batch, b)])
            logits = value(batch.rows(torch.tensor([b])), cards)[0]
            assert sorted(shown.card[b].tolist()) == sorted(cards[0, logits.argmax()].tolist())


def test_exact_demonstrations_need_a_pair_value_and_a_target_they_have() -> None:
    with pytest.raises(ConfigError, match=r"reward\.kind=pair"):
        Config(training=TrainingConfig(demonstrations="exact"))
    with pytest.raises(ConfigError, match="no clicked item"):
        TrainingConfig(demonstrations="exact", target="clicked")


def test_unknown_settings_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"unknown setting training\.alfa; did you mean training\.alpha"):
        Config().with_overrides(["training.alfa=1"])
