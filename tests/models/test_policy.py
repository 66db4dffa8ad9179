"""The policy as a whole: one request or many, padded or not, in any order of candidates, the same cards."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import torch

from exactk.models.policy import Policy
from exactk.search import Feasible, beam, distributions, greedy, log_prob, sample
from exactk.settings.config import InputSizes, PolicyConfig
from exactk.tensors import TensorBatch
from small_batches import batch_of, complete_batch, graph_of, random_graphs, valid_cards

SIZES = InputSizes(num_users=6, num_items=31)
SMALL = PolicyConfig(embedding_size=4, width=8)


def small_policy(seed: int = 0, **changes: object) -> Policy:
    policy = Policy(replace(SMALL, **changes), SIZES, torch.Generator().manual_seed(seed))  # type: ignore[arg-type]
    with torch.no_grad():  # sharper than at the start, so that cards differ clearly
        for parameter in policy.parameters():
            parameter.mul_(2.5)
    return policy


def feasible_batch(size: int | list[int] = 3, num: int = 12) -> TensorBatch:
    graphs = random_graphs(6 * num, 7, 0.75, 3)
    keep = [b for b in range(len(graphs)) if valid_cards(batch_of(graphs[b : b + 1], 3), 0)][:num]
    return batch_of(graphs[keep], size)


def padded(batch: TensorBatch, extra: int) -> TensorBatch:
    """The same requests with absent candidates appended."""
    B, N = batch.item.shape
    graph = torch.ones(B, N + extra, N + extra, dtype=torch.bool)
    graph[:, :N, :N] = batch.graph
    pad = torch.nn.functional.pad
    return replace(
        batch,
        item=pad(batch.item, (0, extra), value=9),
        present=pad(batch.present, (0, extra)),
        pinned=pad(batch.pinned, (0, extra)),
        group=pad(batch.group, (0, extra)),
        graph=graph,
    )


def test_probabilities_of_all_cards_sum_to_one_under_constraints() -> None:
    graph = graph_of(6, [(0, 1), (0, 2), (1, 2), (2, 3), (3, 4), (1, 3), (4, 5)]).unsqueeze(0)
    batch, policy = batch_of(graph, 3), small_policy()
    orders = [order for card in valid_cards(batch, 0) for order in itertools.permutations(card)]
    scored = log_prob(policy.steps(batch), Feasible.of(batch), torch.tensor([orders]))
    assert len(orders) == 12
    assert scored.exp().sum().item() == pytest.approx(1, abs=1e-5)


@torch.no_grad()
def test_a_batch_of_one_equals_the_batch() -> None:
    batch, policy = feasible_batch(), small_policy()
    together = beam(policy.steps(batch), Feasible.of(batch), 3)
    for b in range(len(batch)):
        one = batch.rows(torch.tensor([b]))
        alone = beam(policy.steps(one), Feasible.of(one), 3)
        assert alone.cards[0].equal(together.cards[b])
        assert torch.allclose(alone.log_prob[0], together.log_prob[b], atol=1e-4)


@torch.no_grad()
def test_absent_candidates_change_nothing() -> None:
    batch, policy = feasible_batch(), small_policy()
    wide = padded(batch, 3)
    plain = beam(policy.steps(batch), Feasible.of(batch), 3)
    found = beam(policy.steps(wide), Feasible.of(wide), 3)
    assert found.cards.equal(plain.cards)
    assert torch.allclose(found.log_prob, plain.log_prob, atol=1e-4)


@torch.no_grad()
def test_permuting_the_candidates_permutes_nothing_but_positions() -> None:
    batch, policy = feasible_batch(), small_policy()
    order = torch.randperm(7, generator=torch.Generator().manual_seed(1))
    moved = replace(batch, item=batch.item[:, order], graph=batch.graph[:, order][:, :, order])
    plain = beam(policy.steps(batch), Feasible.of(batch), 3)
    found = beam(policy.steps(moved), Feasible.of(moved), 3)
    assert order[found.cards].where(found.cards >= 0, -1).equal(plain.cards)


@torch.no_grad()
def test_greedy_follows_its_own_distributions() -> None:
    batch, policy = feasible_batch(), small_policy()
    steps, rules = policy.steps(batch), Feasible.of(batch)
    cards = greedy(steps, rules)
    along = distributions(steps, rules, cards.unsqueeze(1)).log_probs.squeeze(1)
    assert along.argmax(-1).equal(cards)


def test_the_gradient_of_a_drawn_card_reaches_every_weight() -> None:
    batch = feasible_batch()
    policy = Policy(PolicyConfig(), SIZES, torch.Generator().manual_seed(0))
    drawn = sample(policy.steps(batch), Feasible.of(batch), 4, generator=torch.Generator().manual_seed(0))
    drawn.log_prob.sum().backward()  # type: ignore[no-untyped-call]
    for name, parameter in policy.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().sum() > 0, name


def test_the_encoder_runs_once_however_many_cards_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    policy, batch = small_policy(), complete_batch(2, 6, 3)
    calls = 0
    encode = policy.encoder.forward

    def counted(*inputs: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += 1
        return encode(*inputs)

    monkeypatch.setattr(policy.encoder, "forward", counted)
    sample(policy.steps(batch), Feasible.of(batch), 16, generator=torch.Generator().manual_seed(0))
    assert calls == 1


def test_the_papers_sizes_give_the_papers_number_of_weights() -> None:
    policy = Policy(PolicyConfig(), InputSizes(818, 1631))
    count = {name: sum(p.numel() for p in part.parameters()) for name, part in policy.named_children()}
    # Ids 16 wide, W_I 32 x 32 and its bias.
    assert count["inputs"] == 16 * (818 + 1631) + 32 * 32 + 32
    # W_E; per layer W_h, W_O, W_F1, W_F2 with biases, two layer norms.
    assert count["encoder"] == 32 * 33 + 2 * (2 * 32 * 32 + 2 * 32 * 33 + 4 * 32)
    # Two LSTM layers with two biases each; W_D1, W_D2, W_D4, W_D3 (twice as wide), v_D1, v_D2.
    assert count["pointer"] == 2 * (4 * 32 * 64 + 8 * 32) + 5 * 32 * 32 + 2 * 32


def test_the_same_seed_makes_the_same_policy_whatever_the_global_generator_does() -> None:
    first = Policy(SMALL, SIZES, torch.Generator().manual_seed(5))
    torch.rand(7)
    second = Policy(SMALL, SIZES, torch.Generator().manual_seed(5))
    for a, b in zip(first.parameters(), second.parameters(), strict=True):
        assert a.equal(b)


@torch.no_grad()
def test_unknown_users_and_items_are_no_error() -> None:
    batch = complete_batch(1, 5, 2, user=torch.tensor([0]), item=torch.zeros(1, 5, dtype=torch.long))
    policy = small_policy()
    assert greedy(policy.steps(batch), Feasible.of(batch)).shape == (1, 2)


@torch.no_grad()
def test_attention_is_shown_for_every_layer_and_head() -> None:
    batch = complete_batch(2, 5, 2)
    assert small_policy().attention(batch).shape == (2, 2, 2, 5, 5)
