"""The pair value: nodes plus pairs, and exact search over it."""

from __future__ import annotations

import itertools
from dataclasses import replace
from itertools import product

import pytest
import torch

from exactk.models.pairvalue import PairValue, Sharing
from exactk.search import exact
from exactk.settings.config import InputSizes, PairValueConfig
from small_batches import batch_of, complete_batch, random_graphs, valid_cards

SIZES = InputSizes(num_users=6, num_items=31)
CARDS = torch.tensor([[[0, 3, 1, 2], [4, 2, 0, -1]], [[2, 4, -1, -1], [1, 3, 0, 4]]])


def made(members: int = 1, dropout: float = 0.0) -> PairValue:
    config = PairValueConfig(kinds=5, place_size=3, hidden_size=8, members=members, dropout=dropout)
    value = PairValue(config, SIZES, torch.Generator().manual_seed(0))
    with torch.no_grad():
        for parameter in value.parameters():
            parameter.add_(0.1)
    return value


@pytest.mark.parametrize("num_candidates", [5, 9], ids=["fewer candidates than items on cards", "more"])
@pytest.mark.parametrize("members", [1, 2])
@torch.no_grad()
def test_the_logit_is_bias_plus_nodes_plus_pairs(num_candidates: int, members: int) -> None:
    value, batch = made(members), complete_batch(2, num_candidates, 4)
    logits, parts = value(batch, CARDS), value.values(batch)
    for b, s in itertools.product(range(2), range(2)):
        card = [p for p in CARDS[b, s].tolist() if p >= 0]
        expected = parts.bias[b].item() + sum(parts.node[b, i].item() for i in card)
        expected += sum(parts.pair[b, i, j].item() for i, j in itertools.combinations(card, 2))
        assert logits[b, s].item() == pytest.approx(expected, abs=1e-4)


@torch.no_grad()
def test_pairs_are_symmetric_to_the_last_bit_and_no_item_pairs_with_itself() -> None:
    pair = made().values(complete_batch(20, 50, 4)).pair
    assert pair.equal(pair.transpose(1, 2))
    assert pair.diagonal(dim1=1, dim2=2).eq(0).all()
    assert pair.abs().sum() > 0


@torch.no_grad()
def test_scaling_the_weights_of_pairs_scales_every_pair_and_nothing_else() -> None:
    model, batch = made(members=2), complete_batch(3, 5, 2)
    before = model.values(batch)
    for weights in model.pair_weights():
        weights.mul_(0.25)
    after = model.values(batch)
    torch.testing.assert_close(after.pair, 0.25 * before.pair)
    assert before.pair.abs().max() > 0
    assert torch.equal(after.node, before.node)
    assert torch.equal(after.bias, before.bias)


def test_pairs_depend_on_the_user() -> None:
    batch = complete_batch(2, 5, 4, item=torch.arange(1, 6).repeat(2, 1), user=torch.tensor([1, 2]))
    pair = made().values(batch).pair
    assert (pair[0] - pair[1]).abs().max() > 1e-6


@torch.no_grad()
def test_exact_search_finds_the_card_with_the_highest_logit() -> None:
    graphs = random_graphs(30, 7, 0.8, 2)
    keep = [b for b in range(30) if valid_cards(batch_of(graphs[b : b + 1], 3), 0)]
    batch, value = batch_of(graphs[keep], 3), made(2)
    parts = value.values(batch)
    found = exact(batch, parts.node, parts.pair)
    for b in range(len(keep)):
        one = batch.rows(torch.tensor([b]))
        cards = torch.tensor([valid_cards(batch, b)])
        logits = value(one, cards)[0]
        assert found.value[b].item() + parts.bias[b].item() == pytest.approx(logits.max().item(), abs=1e-4)
        assert found.cards[b].equal(cards[0, logits.argmax()])


@torch.no_grad()
def test_an_untrained_value_is_nearly_the_click_rate_for_every_card() -> None:
    value = PairValue(PairValueConfig(), SIZES, torch.Generator().manual_seed(0))
    value.start_at(0.2)
    batch = complete_batch(4, 20, 4)
    probability = value(batch, torch.arange(20).view(1, 5, 4).expand(4, -1, -1)).sigmoid()
    assert (probability - 0.2).abs().max() < 0.02
    assert value.values(batch).pair.abs().max() > 1e-6


def test_the_gradient_reaches_every_weight_from_the_start() -> None:
    value = PairValue(PairValueConfig(), SIZES, torch.Generator().manual_seed(0))
    value(complete_batch(2, 5, 4), CARDS).sum().backward()
    for name, parameter in value.named_parameters():
        if name.endswith("choice_scale"):  # read by the loss of which item was clicked only
            continue
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


@torch.no_grad()
def test_appeals_share_a_card_out_among_its_items() -> None:
    value, batch = made(), complete_batch(2, 5, 4)
    parts, member = value.values(batch), value.members[0]
    appeals = member.appeals(batch, CARDS)  # type: ignore[operator]
    for b, s in itertools.product(range(2), range(2)):
        card = [p for p in CARDS[b, s].tolist() if p >= 0]
        for k, i in enumerate(card):
            pairs = sum(parts.pair[b, i, j].item() for j in card if j != i)
            assert appeals[b, s, k].item() == pytest.approx(parts.node[b, i].item() + pairs / 2, abs=1e-4)
        assert appeals[b, s, len(card) :].eq(0).all()


def test_dropout_acts_in_training_only() -> None:
    value, batch = made(dropout=0.5), complete_batch(2, 5, 4)
    value.train()
    assert not value(batch, CARDS).equal(value(batch, CARDS))
    value.eval()
    assert value(batch, CARDS).equal(value(batch, CARDS))


def test_a_planted_complement_is_learned() -> None:
    # Items are of two kinds, odd and even; a pair of different kinds is worth +1, of one kind -1, items nothing.
    value = PairValue(
        PairValueConfig(kinds=4, hidden_size=16), replace(SIZES), torch.Generator().manual_seed(0)
    )
    optimiser = torch.optim.Adam(value.parameters(), lr=0.02)
    generator = torch.Generator().manual_seed(1)
    for _ in range(150):
        item = torch.randint(1, 31, (64, 6), generator=generator)
        batch = complete_batch(64, 6, 2, item=item)
        cards = torch.tensor([[0, 1], [2, 3], [4, 5]]).expand(64, -1, -1)
        kinds = (item % 2).view(64, 3, 2)
        target = torch.where(kinds[..., 0] == kinds[..., 1], -1.0, 1.0)
        loss = (value(batch, cards) - target).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert loss.item() < 0.05
    with torch.no_grad():
        pair = value.values(complete_batch(1, 4, 2, item=torch.tensor([[1, 2, 3, 4]]))).pair[0]
    assert pair[0, 1] - pair[0, 2] > 1.2


def chance_of_three(has: list[float]) -> float:
    """By enumeration of who has it."""
    total = 0.0
    for outcome in product((0, 1), repeat=len(has)):
        chance = 1.0
        for h, o in zip(has, outcome, strict=True):
            chance *= h if o else 1 - h
        total += chance * (sum(outcome) >= 3)
    return total


@torch.no_grad()
def test_a_card_gains_the_chance_that_at_least_three_items_have_it() -> None:
    sharing = Sharing(2)
    sharing.start()
    sharing.weight[:] = torch.tensor([0.2, -0.4])  # worth 1 and -2
    has = [[0.9, 0.1], [0.5, 0.2], [0.7, 0.3], [0.2, 0.4]]
    wanted = chance_of_three([h[0] for h in has]) - 2 * chance_of_three([h[1] for h in has])
    torch.testing.assert_close(sharing(torch.tensor([[has]])), torch.tensor([[wanted]]))
    turned = torch.tensor([[has[::-1]]])
    torch.testing.assert_close(sharing(turned), torch.tensor([[wanted]]))


@torch.no_grad()
def test_two_items_or_absent_ones_share_nothing() -> None:
    sharing = Sharing(1)
    sharing.start()
    sharing.weight[:] = 0.2  # worth 1
    assert sharing(torch.ones(1, 1, 2, 1)).tolist() == [[0.0]]
    assert sharing(torch.tensor([[[[1.0], [1.0], [0.0], [0.0]]]])).tolist() == [[0.0]]
    assert sharing(torch.tensor([[[[1.0], [1.0], [0.0], [1.0]]]])).tolist() == [[1.0]]


@torch.no_grad()
def test_an_item_has_a_feature_where_it_stands_out_and_nothing_is_gained_at_the_start() -> None:
    sharing = Sharing(1)
    sharing.start()
    assert sharing.has(torch.tensor([[1.0], [4.0], [-2.0]])).flatten().round(decimals=2).tolist() == [
        0.5,
        1.0,
        0.0,
    ]
    assert sharing(torch.ones(1, 1, 4, 1)).tolist() == [[0.0]]
