"""Reward estimators: the paper's formula, and one that does not care about order."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from exactk.errors import InputError
from exactk.models.pairvalue import PairValue
from exactk.models.reward import PnnReward, Reward, reward_of
from exactk.settings.config import Config, InputSizes, RewardConfig
from small_batches import complete_batch

SIZES = InputSizes(num_users=6, num_items=31)
CARDS = torch.tensor([[[0, 3, 1], [4, 2, 0]], [[2, 4, 0], [1, 3, 0]]])


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def test_the_pnn_is_the_papers_formula() -> None:
    reward = Reward(RewardConfig(embedding_size=4, hidden_size=7), SIZES, 3, generator())
    with torch.no_grad():
        for parameter in reward.parameters():
            parameter.add_(0.1)
    batch = complete_batch(2, 5, 3)
    logits = reward(batch, CARDS)
    w = {n.removeprefix("members.0."): p.detach().numpy().astype(float) for n, p in reward.named_parameters()}
    for b in range(2):
        user = w["vectors.vectors.users.weight"][int(batch.user[b])]
        for s in range(2):
            items = w["vectors.vectors.items.weight"][batch.item[b, CARDS[b, s]].numpy()]
            inputs = np.concatenate([[item @ user for item in items], items.ravel(), user])
            hidden = np.maximum(w["hidden.weight"] @ inputs + w["hidden.bias"], 0)
            expected = float((w["out.weight"] @ hidden + w["out.bias"])[0])
            assert logits[b, s].item() == pytest.approx(expected, abs=1e-5)


def test_the_pnn_by_hand() -> None:
    # K=1, embeddings of size 1: x_a = 3, x_u = 2, inputs (6, 3, 2), W_R1 = (1, -1, 0.5), b = -1: 6 - 3 + 1 - 1 = 3.
    reward = PnnReward(RewardConfig(embedding_size=1, hidden_size=1), SIZES, 1)
    assert reward.vectors.vectors.users is not None
    assert reward.vectors.vectors.items is not None
    with torch.no_grad():
        reward.vectors.vectors.items.weight.fill_(3.0)
        reward.vectors.vectors.users.weight.fill_(2.0)
        reward.hidden.weight.copy_(torch.tensor([[1.0, -1.0, 0.5]]))
        reward.hidden.bias.fill_(-1.0)
        reward.out.weight.fill_(2.0)
        reward.out.bias.fill_(0.25)
    assert reward(complete_batch(1, 3, 1), torch.tensor([[[1]]])).item() == 2 * 3 + 0.25


def test_the_pnn_refuses_cards_of_another_size() -> None:
    reward = Reward(RewardConfig(), SIZES, 3, generator())
    with pytest.raises(InputError, match="exactly 3 items"):
        reward(complete_batch(2, 5, 2), CARDS[:, :, :2])
    with pytest.raises(InputError, match="exactly 3 items"):
        reward(complete_batch(1, 5, 3), torch.tensor([[[0, 1, -1]]]))


@pytest.mark.parametrize("kind", ["set", "pair"])
@torch.no_grad()
def test_the_order_of_a_card_does_not_matter_but_its_items_do(kind: str) -> None:
    config = Config(reward=RewardConfig(kind=kind, layers=2))  # type: ignore[arg-type]
    reward = reward_of(config, SIZES, 3, generator())
    batch = complete_batch(2, 5, 3)
    logits = reward(batch, CARDS)
    assert torch.allclose(reward(batch, CARDS[:, :, [2, 0, 1]]), logits, atol=1e-6)
    other = CARDS.clone()
    other[0, 0, 0] = 4
    assert (reward(batch, other) - logits)[0, 0].abs() > 1e-6


@pytest.mark.parametrize("kind", ["set", "pair"])
@torch.no_grad()
def test_a_shorter_card_may_be_padded(kind: str) -> None:
    reward = reward_of(Config(reward=RewardConfig(kind=kind)), SIZES, 3, generator())  # type: ignore[arg-type]
    batch = complete_batch(2, 5, 2)
    short = CARDS[:, :, :2]
    padded = torch.nn.functional.pad(short, (0, 2), value=-1)
    assert torch.allclose(reward(batch, padded), reward(batch, short), atol=1e-6)


@pytest.mark.parametrize("kind", ["pnn", "set", "pair"])
@torch.no_grad()
def test_judging_many_cards_is_judging_each(kind: str) -> None:
    reward = reward_of(Config(reward=RewardConfig(kind=kind)), SIZES, 3, generator())  # type: ignore[arg-type]
    batch = complete_batch(2, 5, 3)
    many = CARDS.repeat(1, 4, 1)  # 8 cards of 3 among 5 candidates: looked up the other way round
    each = torch.cat([reward(batch, CARDS[:, s : s + 1]) for s in range(2)], 1)
    assert torch.allclose(reward(batch, many), each.repeat(1, 4), atol=1e-5)


@torch.no_grad()
def test_the_size_of_a_card_is_known_to_the_set_reward() -> None:
    reward = Reward(RewardConfig(kind="set", layers=0), SIZES, 3, generator())
    batch = complete_batch(1, 5, 2, item=torch.full((1, 5), 3))
    one, two = reward(batch, torch.tensor([[[0, -1], [0, 1]]]))[0].tolist()
    assert abs(one - two) > 1e-6


@torch.no_grad()
def test_members_are_averaged_and_their_spread_is_doubt() -> None:
    config = RewardConfig(kind="set", members=3)
    reward, batch = Reward(config, SIZES, 3, generator()), complete_batch(2, 5, 3)
    said = reward.member_logits(batch, CARDS)
    assert said.shape == (3, 2, 2)
    assert said.std(0).min() > 1e-6
    assert torch.allclose(reward(batch, CARDS), said.mean(0))


@pytest.mark.parametrize("kind", ["pnn", "set"])
@torch.no_grad()
def test_a_reward_begins_near_the_share_of_clicked_cards(kind: str) -> None:
    reward = Reward(RewardConfig(kind=kind), SIZES, 3, generator())  # type: ignore[arg-type]
    reward.start_at(0.12)
    assert (reward(complete_batch(2, 5, 3), CARDS).sigmoid() - 0.12).abs().max() < 0.05


def test_the_kind_decides_the_network() -> None:
    config = Config()
    assert isinstance(reward_of(config, SIZES, 3), Reward)
    assert isinstance(reward_of(replace(config, reward=RewardConfig(kind="pair")), SIZES, 3), PairValue)


def test_features_of_different_sizes_are_brought_to_one() -> None:
    sizes = InputSizes(6, 31, user_feature_size=2, item_feature_size=3)
    batch = complete_batch(2, 5, 3, user_features=torch.randn(2, 2), item_features=torch.randn(2, 5, 3))
    for kind in ("pnn", "set", "pair"):
        reward = reward_of(Config(reward=RewardConfig(kind=kind)), sizes, 3, generator())
        assert reward(batch, CARDS).shape == (2, 2)
