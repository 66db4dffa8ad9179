"""Drawing cards and scoring them: one distribution, whichever way it is asked."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from exactk.search import Feasible, distributions, log_prob, log_probabilities, sample
from exactk.search.sample import draw
from exactk.tensors import TensorBatch
from small_batches import (
    TableSteps,
    batch_of,
    complete_batch,
    graph_of,
    ordered_cards,
    random_graphs,
    valid_cards,
)

TAILED = graph_of(5, [(0, 1), (0, 2), (1, 2), (2, 3), (3, 4), (1, 3)]).unsqueeze(0)  # triangles 012 and 123


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


REQUESTS = {
    "no rules": complete_batch(1, 5, 3),
    "dead ends": batch_of(TAILED, 3),
    "caps": complete_batch(1, 5, 3, group=torch.tensor([[[0, 0, 1, 1, -1]]]), cap=torch.tensor([[1]])),
    "pins": batch_of(TAILED, 3, pinned=torch.tensor([[False, False, True, False, False]])),
    "absent": complete_batch(1, 5, 3, present=torch.tensor([[True, True, False, True, True]])),
}


@pytest.mark.parametrize("rules", REQUESTS)
@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_probabilities_of_all_cards_sum_to_one_and_are_those_of_plain_enumeration(
    rules: str, temperature: float
) -> None:
    batch, steps = REQUESTS[rules], TableSteps(1, 5)
    truth = ordered_cards(batch, 0, steps, temperature)
    cards = torch.tensor([list(truth)])  # 1 S K
    scored = log_prob(steps, Feasible.of(batch), cards, temperature)
    assert scored.exp().sum().item() == pytest.approx(1, abs=1e-5)
    assert scored[0].tolist() == pytest.approx(list(truth.values()), abs=1e-5)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([0.5, 0.7, 0.9]), st.integers(1, 4))
def test_probabilities_sum_to_one_on_any_feasible_graph(seed: int, density: float, size: int) -> None:
    batch, steps = batch_of(random_graphs(1, 6, density, seed), size), TableSteps(1, 6, seed)
    if valid_cards(batch, 0):
        cards = torch.tensor([list(ordered_cards(batch, 0, steps))])
        scored = log_prob(steps, Feasible.of(batch), cards)
        assert scored.exp().sum().item() == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("rules", REQUESTS)
def test_sampling_frequencies_match_the_probabilities(rules: str) -> None:
    batch, steps = REQUESTS[rules], TableSteps(1, 5)
    truth = ordered_cards(batch, 0, steps)
    num = 20_000
    drawn = sample(steps, Feasible.of(batch), num, generator=generator())
    counts: dict[tuple[int, ...], int] = {}
    for card in drawn.cards[0].tolist():
        counts[tuple(card)] = counts.get(tuple(card), 0) + 1
    assert set(counts) <= set(truth)
    for card, log in truth.items():
        p = math.exp(log)
        assert abs(counts.get(card, 0) - num * p) < 5 * math.sqrt(num * p * (1 - p)) + 1


def test_the_log_prob_of_drawn_cards_is_that_of_scored_cards() -> None:
    batch, steps = batch_of(random_graphs(8, 6, 0.8, 11), [3, 2, 3, 1, 2, 3, 2, 2]), TableSteps(8, 6)
    rules = Feasible.of(batch)
    drawn = sample(steps, rules, 7, temperature=0.7, generator=generator())
    assert torch.allclose(drawn.log_prob, log_prob(steps, rules, drawn.cards, 0.7), atol=1e-5)
    assert drawn.allowed.equal(rules.along(drawn.cards))
    with torch.no_grad():  # without gradients no replay is needed; the numbers are the same
        again = sample(steps, rules, 7, temperature=0.7, generator=generator())
    assert again.cards.equal(drawn.cards)
    assert torch.allclose(again.log_prob, drawn.log_prob, atol=1e-5)


def test_the_gradient_of_a_drawn_card_is_that_of_its_log_probability() -> None:
    batch, steps = complete_batch(1, 4, 2), TableSteps(1, 4)
    steps.first.requires_grad_(True)
    rules = Feasible.of(batch)
    drawn = sample(steps, rules, 1, generator=generator())
    (got,) = torch.autograd.grad(drawn.log_prob.sum(), steps.first)
    card = drawn.cards[0, 0].tolist()
    # By hand: the first choice gives onehot - p, the second half of (onehot - p) of what is left.
    p = steps.first[0].softmax(-1)
    second = (steps.first[0] / 2 + steps.shift[0, card[0]]).clone()
    second[card[0]] = -torch.inf
    q = second.softmax(-1)
    expected = (-p - q / 2).detach()
    expected[card[0]] += 1
    expected[card[1]] += 0.5
    assert torch.allclose(got[0], expected, atol=1e-5)


def test_the_same_seed_draws_the_same_cards_and_the_global_generator_is_left_alone() -> None:
    batch, steps = complete_batch(2, 6, 3), TableSteps(2, 6)
    state = torch.get_rng_state()
    first = sample(steps, Feasible.of(batch), 5, generator=generator(3))
    second = sample(steps, Feasible.of(batch), 5, generator=generator(3))
    assert first.cards.equal(second.cards)
    assert torch.get_rng_state().equal(state)


def test_a_forbidden_card_has_probability_zero_and_no_nan() -> None:
    batch, steps = batch_of(TAILED, 3), TableSteps(1, 5)
    steps.first.requires_grad_(True)
    along = distributions(steps, Feasible.of(batch), torch.tensor([[[4, 3, 2], [0, 0, 1]]]))
    assert not along.log_probs.isnan().any()
    scored = log_prob(steps, Feasible.of(batch), torch.tensor([[[4, 3, 2], [0, 0, 1], [0, 1, 2]]]))
    assert scored[0, :2].tolist() == [-math.inf, -math.inf]
    scored[0, 2].backward()  # type: ignore[no-untyped-call]
    assert steps.first.grad is not None
    assert steps.first.grad.isfinite().all()


def test_cards_of_several_sizes_end_where_they_should() -> None:
    batch, steps = complete_batch(3, 5, [1, 3, 2]), TableSteps(3, 5)
    drawn = sample(steps, Feasible.of(batch), 6, generator=generator())
    assert (drawn.cards >= 0).sum(-1).tolist() == [[1] * 6, [3] * 6, [2] * 6]
    for b in range(3):
        alone = batch.rows(torch.tensor([b]))
        table = TableSteps(1, 5)
        table.first, table.shift = steps.first[b : b + 1], steps.shift[b : b + 1]
        size = int(batch.card_size[b])
        short = drawn.cards[b : b + 1, :, :size]
        assert torch.allclose(drawn.log_prob[b], log_prob(table, Feasible.of(alone), short)[0], atol=1e-5)


def test_a_draw_at_either_end_of_the_interval_is_allowed() -> None:
    scores = torch.zeros(1, 2, 6)
    allowed = torch.tensor([False, True, False, True, True, False]).expand(1, 2, 6)
    ends = torch.tensor([[0.0, 1 - 2**-24]])
    assert draw(log_probabilities(scores, allowed), ends).tolist() == [[1, 4]]


def test_masked_probabilities_by_hand() -> None:
    # exp(0) : exp(log 3) = 1 : 3 with the middle one forbidden.
    logs = log_probabilities(torch.tensor([0.0, 9.0, math.log(3)]), torch.tensor([True, False, True]))
    assert logs.exp().tolist() == pytest.approx([0.25, 0.0, 0.75])
    assert logs[1].item() == -math.inf
    nothing = log_probabilities(torch.zeros(2), torch.zeros(2, dtype=torch.bool))
    assert nothing.tolist() == [-math.inf, -math.inf]


def test_one_allowed_position_is_certain_however_low_its_score() -> None:
    logs = log_probabilities(torch.tensor([-1e30, 0.0]), torch.tensor([True, False]))
    assert logs[0].item() == 0.0


def check_valid(batch: TensorBatch, cards: torch.Tensor) -> None:
    for b, rows in enumerate(cards.tolist()):
        possible = set(valid_cards(batch, b))
        assert {tuple(sorted(p for p in card if p >= 0)) for card in rows} <= possible


def test_every_drawn_card_is_valid_on_hard_graphs() -> None:
    graphs = random_graphs(200, 7, 0.55, 1)
    keep = [b for b in range(200) if valid_cards(batch_of(graphs[b : b + 1], 3), 0)][:40]
    batch = batch_of(graphs[keep], 3)
    check_valid(batch, sample(TableSteps(40, 7), Feasible.of(batch), 9, generator=generator()).cards)
