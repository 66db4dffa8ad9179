"""The affinity of users and items inside a policy's scores."""

from __future__ import annotations

import math

import pytest
import torch

from exactk.engine.shapes import MOST_PAIRS
from exactk.errors import ConfigError
from exactk.learning.onnx import CardGraph
from exactk.learning.phases import compiled_decoder
from exactk.models.gattn import PointerSteps
from exactk.models.policy import Affinity
from exactk.search.decoding import beam
from exactk.search.feasible import Feasible
from exactk.settings.config import InputSizes, PolicyConfig
from exactk_lab.bench.engine.made import made_batch, made_policy
from small_batches import cards_by

SIZES = InputSizes(num_users=3, num_items=4)
BIG = InputSizes(num_users=50, num_items=1_000)


@torch.no_grad()
def test_affinity_is_the_inner_product_plus_the_items_bias() -> None:
    affinity = Affinity(PolicyConfig(inputs="ids", affinity=2), SIZES)
    assert affinity.users is not None
    assert affinity.items is not None
    affinity.users.weight[1] = torch.tensor([2.0, -1.0])
    affinity.items.weight[3] = torch.tensor([0.5, 3.0, 10.0])
    affinity.items.weight[2] = torch.tensor([1.0, 1.0, -4.0])
    scores = affinity.score(torch.tensor([1]), torch.tensor([[3, 2]]), None, None)
    assert scores.tolist() == [[2 * 0.5 - 1 * 3 + 10, 2 - 1 - 4]]


@torch.no_grad()
def test_pace_multiplies_both_tables_and_starts_alike() -> None:
    affinity = Affinity(PolicyConfig(inputs="ids", affinity=1, affinity_pace=10.0), SIZES)
    assert affinity.users is not None
    assert affinity.items is not None
    affinity.users.weight[1], affinity.items.weight[2] = 0.3, torch.tensor([0.2, 0.1])
    scores = affinity.score(torch.tensor([1]), torch.tensor([[2]]), None, None)
    assert scores.item() == pytest.approx(3.0 * 2.0 + 1.0)
    affinity.start_small()
    assert affinity.users.weight[1].item() == pytest.approx(0.3 * 0.5 / 10)
    assert affinity.items.weight[2].tolist() == pytest.approx([0.2 * 0.5 / 10, 0.0])


@torch.no_grad()
def test_features_add_a_linear_part() -> None:
    affinity = Affinity(
        PolicyConfig(inputs="features", affinity=1),
        InputSizes(3, 4, user_feature_size=1, item_feature_size=1),
    )
    assert affinity.users is None
    assert affinity.from_user is not None
    assert affinity.from_item is not None
    affinity.from_user.weight[:], affinity.from_user.bias[:] = 2.0, 1.0
    affinity.from_item.weight[:], affinity.from_item.bias[:] = (
        torch.tensor([[3.0], [5.0]]),
        torch.tensor([0.0, 7.0]),
    )
    scores = affinity.score(
        torch.tensor([0]), torch.tensor([[0]]), torch.tensor([[4.0]]), torch.tensor([[[10.0]]])
    )
    assert scores.item() == pytest.approx((2 * 4 + 1) * (3 * 10) + 5 * 10 + 7)


@torch.no_grad()
def test_a_memory_adds_what_it_holds_of_a_pair_and_at_most_one() -> None:
    affinity = Affinity(PolicyConfig(inputs="ids", affinity=0, memory=10.0), SIZES)
    assert affinity.pairs is not None
    assert affinity.pairs.shape == (3 * 4,)
    affinity.pairs[1 * 4 + 2], affinity.pairs[1 * 4 + 3], affinity.pairs[2 * 4 + 3] = -0.3, 0.2, 9.0
    assert affinity.items is not None
    affinity.items.weight[:] = 0.0
    affinity.items.weight[3, -1] = 5.0
    scores = affinity.score(torch.tensor([1, 2]), torch.tensor([[1, 2, 3], [1, 2, 3]]), None, None)
    assert scores[0].tolist() == pytest.approx([0.0, -3.0, 5.0 + 1.0 - math.exp(-2.0)])
    assert scores[1].tolist() == pytest.approx([0.0, 0.0, 5.0 + 1.0])


def test_a_memory_learns_what_was_passed_over_and_not_the_click_by_heart() -> None:
    affinity = Affinity(PolicyConfig(inputs="ids", affinity=0, memory=10.0), SIZES)
    affinity.requires_grad_(requires_grad=False)
    assert affinity.items is not None
    assert affinity.pairs is not None
    affinity.items.weight.zero_()
    affinity.pairs.requires_grad_()
    optimiser = torch.optim.SGD([affinity.pairs], lr=1.0)
    for _ in range(50):
        optimiser.zero_grad()
        scores = affinity.score(torch.tensor([1]), torch.tensor([[1, 2, 3]]), None, None)
        torch.autograd.backward(-scores.log_softmax(1)[0, 0])
        optimiser.step()
    clicked, *passed = scores[0].tolist()
    assert 0.9 < clicked <= 1.0
    assert max(passed) < -3.0
    unseen = affinity.score(torch.tensor([2]), torch.tensor([[1, 2, 3]]), None, None)
    assert unseen.tolist() == [[0.0, 0.0, 0.0]]


def test_a_memory_needs_ids() -> None:
    with pytest.raises(ConfigError, match="by their ids"):
        Affinity(PolicyConfig(inputs="features", affinity=0, memory=1.0), InputSizes(3, 4, 1, 1))


@torch.no_grad()
def test_pairs_beyond_the_largest_memory_share_numbers() -> None:
    affinity = Affinity(PolicyConfig(inputs="ids", affinity=0, memory=1.0), InputSizes(10_000, 10_000))
    assert affinity.pairs is not None
    assert len(affinity.pairs) == MOST_PAIRS
    affinity.pairs[9_999 * 10_000 % MOST_PAIRS + 7] = -2.0
    assert affinity.items is not None
    affinity.items.weight.zero_()
    scores = affinity.score(torch.tensor([9_999, 9_998]), torch.tensor([[7, 8], [7, 8]]), None, None)
    assert scores.tolist() == [[-2.0, 0.0], [0.0, 0.0]]


@torch.no_grad()
@pytest.mark.parametrize("config", [PolicyConfig(memory=2.0), PolicyConfig(memory=2.0, affinity=3)])
def test_the_compiled_decoder_and_the_onnx_graph_remember_too(config: PolicyConfig) -> None:
    batch = made_batch(40, 12, 4, 0.9, 0, BIG)
    policy = made_policy(0, config, BIG)
    assert policy.affinity is not None
    assert policy.affinity.pairs is not None
    plain = cards_by(compiled_decoder(policy), batch)
    policy.affinity.pairs.normal_(0.0, 2.0, generator=torch.Generator().manual_seed(1))
    cards = cards_by(compiled_decoder(policy), batch)
    assert torch.equal(cards, beam(policy.steps(batch), Feasible.of(batch), config.beam).cards[:, 0])
    assert not torch.equal(cards, plain)
    written, _, found = CardGraph(policy, 4)(*(getattr(batch, name) for name in CardGraph(policy, 4).names))
    assert torch.equal(written[found], cards[found])


@torch.no_grad()
def test_a_policy_adds_its_affinity_to_the_scores_of_every_step() -> None:
    batch = made_batch(5, 6, 3, 1.0, 0, BIG)
    policy = made_policy(0, PolicyConfig(affinity=4), BIG)
    assert policy.affinity is not None
    cards = torch.tensor([[[0, 3, 5]]]).expand(5, 1, 3)
    with_it = PointerSteps(policy.pointer, policy.encode(batch)).replay(cards)
    without = PointerSteps(policy.pointer, policy.encode(batch)._replace(affinity=None)).replay(cards)
    added = policy.affinity(batch)[:, None, None].expand_as(without)
    torch.testing.assert_close(with_it - without, added, atol=1e-5, rtol=0)
    assert added.abs().max() > 0


def test_without_the_setting_a_policy_has_no_such_tables() -> None:
    assert not [
        name for name, _ in made_policy(0, PolicyConfig(), BIG).named_parameters() if "affinity" in name
    ]
