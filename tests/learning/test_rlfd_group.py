"""Group-relative targets: the equations by hand, and a policy that finds the best card by them."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Generator

from exactk.errors import ConfigError
from exactk.learning.fit import Step, Task, fit
from exactk.learning.optimiser import FitSettings
from exactk.learning.rlfd import best_cards_of, first_of_each, group_loss, group_targets, policy_step
from exactk.models.pairvalue import PairValue
from exactk.models.policy import Policy
from exactk.settings.config import Config, InputSizes, PairValueConfig, PolicyConfig, TrainingConfig
from exactk.tensors import TensorBatch
from small_batches import batch_of, complete_batch, graph_of, valid_cards

SIZES = InputSizes(num_users=6, num_items=31)


def test_targets_are_the_softmax_of_standardised_values() -> None:
    """1, 2, 3 have deviation sqrt(2/3): e^-1.2247, 1, e^1.2247 over their sum."""
    target = group_targets(torch.tensor([[1.0, 2.0, 3.0, 99.0]]), torch.tensor([[True, True, True, False]]))
    z = math.sqrt(1.5)
    total = math.exp(-z) + 1 + math.exp(z)
    expected = [math.exp(-z) / total, 1 / total, math.exp(z) / total, 0.0]
    assert target[0].tolist() == pytest.approx(expected, abs=1e-5)
    assert target[0].tolist() == pytest.approx([0.0626, 0.2129, 0.7245, 0.0], abs=1e-4)


def test_scale_and_level_of_the_values_do_not_matter_and_equal_cards_share_alike() -> None:
    values, counted = torch.tensor([[1.0, 2.0, 3.0]]), torch.ones(1, 3, dtype=torch.bool)
    torch.testing.assert_close(group_targets(values, counted), group_targets(70 * values - 5, counted))
    same = group_targets(torch.full((1, 4), 0.3), torch.ones(1, 4, dtype=torch.bool))
    assert same[0].tolist() == pytest.approx([0.25] * 4)


def test_the_loss_is_the_cross_entropy_within_the_group() -> None:
    """Probabilities 0.1 and 0.3 of two cards are 1/4 and 3/4 of the group: -(log 1/4 + log 3/4) / 2."""
    log_prob = torch.tensor([[0.1, 0.3, 0.6]]).log()
    loss = group_loss(log_prob, torch.tensor([[0.5, 0.5, 0.0]]))
    assert loss.item() == pytest.approx(-(math.log(1 / 4) + math.log(3 / 4)) / 2, rel=1e-6)


def test_a_card_counts_once_whatever_its_order() -> None:
    cards = torch.tensor([[[0, 1, 2], [2, 1, 0], [0, 1, 3], [1, 0, 3], [4, 5, -1]]])
    assert first_of_each(cards).tolist() == [[True, False, True, False, True]]


def value() -> PairValue:
    return PairValue(
        PairValueConfig(embedding_size=8, hidden_size=16, kinds=8), SIZES, Generator().manual_seed(4)
    )


def test_the_best_cards_are_those_of_enumeration_and_fewer_ones_repeat_the_best() -> None:
    graph = graph_of(5, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0), (0, 2)])
    batch, model = batch_of(graph.unsqueeze(0), 2), value()
    every = valid_cards(batch, 0)
    worth = model(batch, torch.tensor([every])).flatten().tolist()
    ranked = [set(card) for _, card in sorted(zip(worth, every, strict=True), reverse=True)]
    found = best_cards_of(model, batch, 8, Generator().manual_seed(0))[0].tolist()
    assert [set(card) for card in found[:6]] == ranked
    assert [set(card) for card in found[6:]] == [ranked[0]] * 2


def test_a_policy_taught_by_groups_finds_the_best_cards_of_the_value() -> None:
    batch, model, teacher = complete_batch(4, 7, 3), policy(), value()
    config = TrainingConfig(alpha=0.0, samples=8, group=8, hill_climbing=False)

    def loss(b: TensorBatch, progress: float, generator: Generator) -> Step:
        return policy_step(model, teacher, config, b, progress, generator)

    task = Task("group", model, lambda _, start: iter([batch][start:]), 1, loss)
    fit(task, FitSettings(epochs=150, learning_rate=0.01, clip_norm=1.0))
    cards = model.cards(batch)
    with torch.no_grad():
        reached = teacher(batch, cards.unsqueeze(1)).flatten()
        best = teacher(batch, best_cards_of(teacher, batch, 1, Generator())).flatten()
    torch.testing.assert_close(reached, best)


TINY = PolicyConfig(
    embedding_size=8, width=16, encoder_layers=1, heads=2, feed_forward_size=16, decoder_layers=1
)


def policy() -> Policy:
    return Policy(TINY, SIZES, Generator().manual_seed(1))


def test_groups_need_a_value_whose_best_cards_can_be_found() -> None:
    with pytest.raises(ConfigError, match=r"training\.group needs a pair value"):
        Config.from_dict({"training": {"group": 8}})
