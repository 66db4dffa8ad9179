"""Drawing cards and scoring them: one distribution, whichever way it is asked."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from exactk.search import Feasible, beam, distributions, greedy, log_prob, log_probabilities, sample
from exactk.search.decoding import draw, greedy_by_weight, likeliest, seen_before, set_keys
from exactk.tensors import TensorBatch
from small_batches import (
    TableSteps,
    batch_of,
    complete_batch,
    graph_of,
    may_follow,
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


def test_each_choice_is_the_likeliest_allowed_one() -> None:
    graphs = random_graphs(30, 6, 0.8, 2)
    keep = [b for b in range(30) if valid_cards(batch_of(graphs[b : b + 1], 3), 0)]
    batch, steps = batch_of(graphs[keep], 3), TableSteps(len(keep), 6)
    cards = greedy(steps, Feasible.of(batch))
    for b, card in enumerate(cards.tolist()):
        scores = steps.first[b]
        for t, chosen in enumerate(card):
            best = max(may_follow(batch, b, tuple(card[:t])), key=lambda j: float(scores[j]))
            assert chosen == best
            scores = scores / 2 + steps.shift[b, chosen]


def test_equal_scores_go_to_the_lower_position() -> None:
    steps = TableSteps(1, 5)
    steps.first, steps.shift = torch.zeros(1, 5), torch.zeros(1, 5, 5)
    assert greedy(steps, Feasible.of(complete_batch(1, 5, 3))).tolist() == [[0, 1, 2]]


def test_sizes_may_differ_within_a_batch() -> None:
    steps = TableSteps(2, 4)
    steps.first, steps.shift = torch.tensor([[4.0, 3, 2, 1], [1, 2, 3, 4]]), torch.zeros(2, 4, 4)
    assert greedy(steps, Feasible.of(complete_batch(2, 4, [1, 2]))).tolist() == [[0, -1], [3, 2]]


def test_algorithm_1_takes_the_heaviest_node_and_removes_what_it_excludes() -> None:
    # 3 is the heaviest but sits on no triangle: plain Algorithm 1 would end with two items, the safe one goes on.
    graph = graph_of(4, [(0, 1), (0, 2), (1, 2), (2, 3)]).unsqueeze(0)
    weights = torch.tensor([[0.1, 0.3, 0.2, 0.9]])
    assert greedy_by_weight(weights, Feasible.of(batch_of(graph, 3))).tolist() == [[1, 2, 0]]
    assert greedy_by_weight(weights, Feasible.of(batch_of(graph, 2))).tolist() == [[3, 2]]
    unlimited = torch.tensor([[-math.inf, 0.3, 0.2, 0.9]])  # a weight of -inf is a weight, not a ban
    assert greedy_by_weight(unlimited, Feasible.of(batch_of(graph, 3))).tolist() == [[1, 2, 0]]


def best_orders(batch: object, b: int, steps: TableSteps) -> list[tuple[tuple[int, ...], float]]:
    """Every set with the log-probability of its likeliest order, likeliest set first, by enumeration."""
    best: dict[tuple[int, ...], float] = {}
    for card, log in ordered_cards(batch, b, steps).items():  # type: ignore[arg-type]
        key = tuple(sorted(card))
        best[key] = max(log, best.get(key, -math.inf))
    return sorted(best.items(), key=lambda entry: -entry[1])


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([0.5, 0.8, 1.1]), st.integers(1, 4))
def test_a_beam_wide_enough_is_brute_force(seed: int, density: float, size: int) -> None:
    batch, steps = batch_of(random_graphs(1, 6, density, seed), size), TableSteps(1, 6, seed)
    if not valid_cards(batch, 0):
        return
    truth = best_orders(batch, 0, steps)
    found = beam(steps, Feasible.of(batch), 100)
    num = len(truth)
    assert [tuple(sorted(card)) for card in found.cards[0, :num].tolist()] == [card for card, _ in truth]
    assert found.log_prob[0, :num].tolist() == pytest.approx([log for _, log in truth], abs=1e-4)
    assert found.cards[0, num:].eq(-1).all()
    assert found.log_prob[0, num:].eq(-torch.inf).all()


def test_a_beam_of_width_one_is_greedy() -> None:
    graphs = random_graphs(300, 8, 0.7, 4)
    keep = [b for b in range(300) if valid_cards(batch_of(graphs[b : b + 1], 3), 0)][:100]
    batch, steps = batch_of(graphs[keep], 3), TableSteps(len(keep), 8)
    rules = Feasible.of(batch)
    assert beam(steps, rules, 1).cards[:, 0].equal(greedy(steps, rules))


def test_a_beam_holds_distinct_sets_likeliest_first() -> None:
    batch, steps = complete_batch(20, 7, 4), TableSteps(20, 7)
    found = beam(steps, Feasible.of(batch), 6)
    assert (found.log_prob.diff(dim=1) <= 0).all()
    for cards in found.cards.sort(-1).values.tolist():
        assert len({tuple(card) for card in cards}) == 6


def test_a_set_reached_in_two_orders_takes_one_place_with_its_better_order() -> None:
    # Two choices of three, all scores equal: six orders of probability 1/6, three sets.
    steps = TableSteps(1, 3)
    steps.first, steps.shift = torch.zeros(1, 3), torch.zeros(1, 3, 3)
    found = beam(steps, Feasible.of(complete_batch(1, 3, 2)), 4)
    assert found.cards[0].tolist() == [[0, 1], [0, 2], [1, 2], [-1, -1]]
    assert found.log_prob[0, :3].exp().tolist() == pytest.approx([1 / 6] * 3)
    assert found.log_prob[0, 3].item() == -math.inf


def test_a_second_order_of_a_set_waits_behind_other_sets() -> None:
    log_prob, sets = torch.tensor([[-1.0, -1.1, -3.0, -torch.inf]]), torch.tensor([[3, 3, 5, 6]])
    assert seen_before(sets).tolist() == [[False, True, False, False]]
    assert likeliest(log_prob, sets, 2, distinct=False)[1].tolist() == [[0, 2]]
    assert likeliest(log_prob, sets, 3, distinct=False)[1].tolist() == [[0, 2, 1]]
    kept, chosen = likeliest(log_prob, sets, 3, distinct=True)
    assert kept.tolist() == [[-1.0, -3.0, -math.inf]]
    assert chosen.tolist() == [[0, 2, 0]]


def test_a_beam_can_do_better_than_greedy() -> None:
    # Greedy takes 0 (p 0.6) and then has to split evenly; 1 is followed by 2 almost surely.
    steps = TableSteps(1, 4)
    steps.first = torch.tensor([[0.6, 0.4, 1e-9, 1e-9]]).log()
    steps.shift = torch.zeros(1, 4, 4) - steps.first / 2
    steps.shift[0, 1, 2] += 10
    rules = Feasible.of(complete_batch(1, 4, 2))
    assert greedy(steps, rules)[0, 0].item() == 0
    assert beam(steps, rules, 3).cards[0, 0].tolist() == [1, 2]


def test_a_batch_of_one_equals_the_batch_with_sizes_and_candidates_that_differ() -> None:
    graph = random_graphs(6, 7, 0.9, 8)
    present = torch.ones(6, 7, dtype=torch.bool)
    present[::2, 5:] = False
    batch, steps = batch_of(graph, [1, 2, 3, 2, 3, 1], present=present), TableSteps(6, 7)
    together = beam(steps, Feasible.of(batch), 3)
    for b in range(6):
        table = TableSteps(1, 7)
        table.first, table.shift = steps.first[b : b + 1], steps.shift[b : b + 1]
        alone = beam(table, Feasible.of(batch.rows(torch.tensor([b]))), 3)
        size = alone.cards.shape[2]
        assert together.cards[b, :, :size].equal(alone.cards[0])
        assert together.cards[b, :, size:].eq(-1).all()
        assert torch.allclose(together.log_prob[b], alone.log_prob[0])


def test_a_beam_never_leaves_the_valid_cards() -> None:
    # Triangles 0-1-2 and 3-4-5 hang on a path, whose nodes score highest and lead nowhere.
    edges = [(0, 1), (1, 2), (0, 2), (3, 4), (4, 5), (3, 5), (2, 6), (6, 7), (7, 3)]
    batch, steps = batch_of(graph_of(8, edges).unsqueeze(0), 3), TableSteps(1, 8)
    steps.first[0, 6:] = 50.0
    found = beam(steps, Feasible.of(batch), 5)
    assert {tuple(sorted(card)) for card in found.cards[0, :2].tolist()} == {(0, 1, 2), (3, 4, 5)}
    assert found.cards[0, 2:].eq(-1).all()


def test_sets_are_told_apart_beyond_62_positions() -> None:
    assert len(set(set_keys(200, torch.device("cpu")).tolist())) == 200
    batch, steps = complete_batch(2, 80, 3), TableSteps(2, 80)
    found = beam(steps, Feasible.of(batch), 40)
    for cards in found.cards.sort(-1).values.tolist():
        assert len({tuple(card) for card in cards}) == 40
