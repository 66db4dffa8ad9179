"""A learned value inside a policy: its gains in the scores of every step."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from exactk.engine.decode import CompiledGuide
from exactk.engine.decode.kernel import Gains
from exactk.errors import ConfigError
from exactk.learning.onnx import export_onnx
from exactk.learning.phases import compiled_decoder
from exactk.models.pairvalue import PairValue
from exactk.models.policy import START, GainTensors, GuidedSteps, Policy
from exactk.search import Feasible, beam, greedy
from exactk.search.decoding import replay_by_steps
from exactk.settings.config import Config, InputSizes, PairValueConfig, PolicyConfig
from exactk.tensors import TensorBatch, arrays_of
from small_batches import batch_of, cards_by, random_graphs

SIZES = InputSizes(num_users=10, num_items=40)


class Nothing(NamedTuple):
    hidden: Tensor
    cell: Tensor


class Silent:
    """A policy that prefers nothing."""

    def start(self, num_rows: int) -> Nothing:
        return Nothing(torch.zeros(1, num_rows, 1, 1), torch.zeros(1, num_rows, 1, 1))

    def step(self, state: Nothing) -> Tensor:
        return torch.zeros(1, state.hidden.shape[1], 3)

    def advance(self, state: Nothing, position: Tensor) -> Nothing:
        return state

    def replay(self, cards: Tensor) -> Tensor:
        return torch.zeros(*cards.shape, 3)


def guided(
    seed: int = 0,
    triples: bool = False,
    sizes: InputSizes = SIZES,
    inputs: str = "ids",
    **changes: object,
) -> Policy:
    """An untrained policy under a value whose numbers are large enough to matter."""
    own = PairValueConfig(inputs=inputs, members=2, triples=triples)  # type: ignore[arg-type]
    value = PairValue(own, sizes, torch.Generator().manual_seed(seed)).eval()
    with torch.no_grad():
        for name, parameter in value.named_parameters():
            parameter.mul_(4.0)
            if name.endswith("sharing.weight"):
                parameter.normal_(generator=torch.Generator().manual_seed(seed))
    config = PolicyConfig(inputs=inputs, guided=True, **changes)  # type: ignore[arg-type]
    return Policy(config, sizes, torch.Generator().manual_seed(seed), value).eval()


def test_gains_are_nodes_and_then_the_pairs_with_what_was_chosen() -> None:
    pair = torch.tensor([[[0.0, 10.0, 20.0], [10.0, 0.0, 40.0], [20.0, 40.0, 0.0]]])
    gains = GainTensors(torch.tensor([[1.0, 2.0, 3.0]]), pair, torch.zeros(1, 3, 0), torch.zeros(0))
    steps = GuidedSteps(Silent(), gains, torch.tensor(2.0))
    card = torch.tensor([[[1, 0, 2]]])
    wanted = [
        [2.0, 4.0, 6.0],
        [22.0, 4.0, 86.0],
        [22.0, 24.0, 126.0],
    ]  # twice the node, +10 0 40, then +0 10 20
    assert steps.replay(card).squeeze().tolist() == wanted
    assert replay_by_steps(steps, card).squeeze().tolist() == wanted


def test_a_third_item_gains_by_what_exactly_two_of_the_chosen_have() -> None:
    has = torch.tensor([[[1.0], [0.5], [0.8]]])
    gains = GainTensors(torch.zeros(1, 3), torch.zeros(1, 3, 3), has, torch.tensor([10.0]))
    steps = GuidedSteps(Silent(), gains, torch.tensor(1.0))
    card = torch.tensor([[[0, 1, 2]]])
    wanted = torch.tensor(
        [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0], [5.0, 2.5, 4.0]]
    )  # half a chance of two, times has
    torch.testing.assert_close(steps.replay(card).squeeze(), wanted)
    torch.testing.assert_close(replay_by_steps(steps, card).squeeze(), wanted)


@torch.no_grad()
@pytest.mark.parametrize("triples", [False, True])
def test_gains_are_differences_of_the_values_logits(triples: bool) -> None:
    batch, policy = batch_of(random_graphs(3, 9, 0.9, 5), 4), guided(triples=triples)
    assert policy.guide is not None
    cards = torch.tensor([[[0, 4, 7, 2]]]).expand(3, 1, 4)
    along = policy.steps(batch).replay(cards)[:, 0] / START  # B K N, the network is silent
    value = policy.guide.value
    for t in range(1, 4):
        before, after = cards.clone(), cards.clone()
        before[:, :, t:], after[:, :, t + 1 :] = -1, -1
        added = (value(batch, after) - value(batch, before)).squeeze(1)
        torch.testing.assert_close(along[:, t, cards[0, 0, t]], added, atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_an_untrained_guided_policy_is_greedy_on_the_value() -> None:
    batch = batch_of(random_graphs(8, 12, 0.8, 1), 3)
    policy = guided()
    assert policy.guide is not None
    gains = policy.guide.gains(batch)
    written = greedy(policy.steps(batch), Feasible.of(batch))
    for b in range(8):
        card: list[int] = []
        for _ in range(3):
            gain = gains.node[b] + gains.pair[b][:, card].sum(1)
            open_ = [n for n in range(12) if n not in card and all(bool(batch.graph[b, n, c]) for c in card)]
            card.append(max(open_, key=lambda n: float(gain[n])))
        assert written[b].tolist() == card


@torch.no_grad()
def test_replay_scores_cards_as_the_steps_do_once_the_network_speaks() -> None:
    batch = batch_of(random_graphs(4, 9, 0.9, 2), 3)
    policy = guided(triples=True)
    policy.pointer.pointer_vector.weight.normal_()
    cards = torch.tensor([[[0, 4, 7], [8, 1, 2]]]).expand(4, 2, 3)
    steps = policy.steps(batch)
    torch.testing.assert_close(steps.replay(cards), replay_by_steps(steps, cards), atol=1e-4, rtol=1e-4)


def test_only_the_scale_and_the_network_learn_and_nothing_is_dropped() -> None:
    policy = guided()
    assert policy.guide is not None
    policy.guide.freeze()
    policy.train()
    assert not any(module.training for module in policy.guide.value.modules())
    cards = torch.tensor([[[0, 4, 7]]]).expand(4, 1, 3)
    policy.steps(batch_of(random_graphs(4, 9, 0.9, 2), 3)).replay(cards).square().sum().backward()  # type: ignore[no-untyped-call]
    assert all(parameter.grad is None for parameter in policy.guide.value.parameters())
    assert policy.guide.scale.item() == START
    assert policy.guide.scale.grad is not None
    assert policy.guide.scale.grad.abs() > 0


def test_a_guide_must_be_a_pair_value() -> None:
    with pytest.raises(ConfigError, match="reward.kind=pair"):
        Config().with_overrides(["policy.guided=true"])
    with pytest.raises(ConfigError, match="reward.kind=pair"):
        Policy(PolicyConfig(inputs="ids", guided=True), SIZES)


FEATURES = InputSizes(num_users=10, num_items=40, user_feature_size=3, item_feature_size=5)


def with_features(batch: TensorBatch, seed: int) -> TensorBatch:
    generator = torch.Generator().manual_seed(seed)
    users, items = torch.randn(len(batch), 3, generator=generator), torch.randn(40, 5, generator=generator)
    return replace(batch, user_features=users, item_features=items[batch.item])


@torch.no_grad()
@pytest.mark.parametrize("triples", [False, True])
@pytest.mark.parametrize("inputs", ["ids", "features", "both"])
def test_the_compiled_decoder_writes_the_guided_models_cards(inputs: str, triples: bool) -> None:
    policy = guided(3, triples, FEATURES, inputs, width=16, feed_forward_size=16)
    policy.pointer.pointer_vector.weight.normal_(generator=torch.Generator().manual_seed(1))
    decoder = compiled_decoder(policy)
    for num_candidates, card_size in ((10, 3), (17, 4), (33, 6)):
        batch = with_features(batch_of(random_graphs(40, num_candidates, 0.9, card_size), card_size), 5)
        wanted = beam(policy.steps(batch), Feasible.of(batch), policy.config.beam).cards[:, 0]
        assert torch.equal(cards_by(decoder, batch), wanted)


def compiled_gains(policy: Policy, batch: TensorBatch) -> Gains:
    assert policy.guide is not None
    weights = arrays_of(policy.guide)
    return CompiledGuide(weights, policy.guide.value.config, policy.sizes).gains(batch.arrays())


@torch.no_grad()
def test_the_compiled_gains_are_the_guides() -> None:
    policy = guided(2, True, FEATURES, "both")
    assert policy.guide is not None
    batch = with_features(batch_of(random_graphs(6, 19, 0.9, 3), 3), 2)
    wanted, found = policy.guide.gains(batch), compiled_gains(policy, batch)
    assert wanted.worth.numel() == 2 * (16 + 5)
    scale = float(policy.guide.scale)
    torch.testing.assert_close(torch.from_numpy(found.node), scale * wanted.node, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(torch.from_numpy(found.pair), scale * wanted.pair, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(torch.from_numpy(found.has).transpose(1, 2), wanted.has, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(torch.from_numpy(found.worth), scale * wanted.worth)


def test_what_cannot_take_a_guide_says_so() -> None:
    policy = guided(width=16, feed_forward_size=16)
    with pytest.raises(ConfigError, match="policy.guided"):
        export_onnx(policy, "never.onnx", 3)
