"""What may be chosen next: the mask under which everything samples, scores and searches."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from exactk.errors import InfeasibleError
from exactk.search import Feasible, feasible
from exactk.search.feasible import cheap_bounds
from exactk.tensors import TensorBatch
from small_batches import batch_of, complete_batch, graph_of, may_follow, random_graphs, valid_cards

# A triangle 0-1-2 with a tail 2-3-4: from 3 or 4 no card of three can be completed.
TAILED = graph_of(5, [(0, 1), (0, 2), (1, 2), (2, 3), (3, 4)]).unsqueeze(0)
HEXAGON = graph_of(6, [(i, (i + 1) % 6) for i in range(6)]).unsqueeze(0)


def allowed_after(batch: TensorBatch, *prefix: int) -> set[int]:
    rules = Feasible.of(batch)
    begun = rules.start(1)
    for position in prefix:
        begun = rules.extend(begun, torch.tensor([[position]]))
    return set(rules.allowed(begun)[0, 0].nonzero().flatten().tolist())


def test_a_position_that_leads_to_a_dead_end_is_not_allowed() -> None:
    assert allowed_after(batch_of(TAILED, 3)) == {0, 1, 2}
    assert allowed_after(batch_of(TAILED, 3), 2) == {0, 1}
    assert allowed_after(batch_of(TAILED, 2)) == {0, 1, 2, 3, 4}
    assert allowed_after(batch_of(TAILED, 2), 3) == {2, 4}


def test_a_chosen_position_is_not_allowed_again_even_if_the_diagonal_says_so() -> None:
    careless = torch.ones(1, 4, 4, dtype=torch.bool)
    assert allowed_after(batch_of(careless, 3), 1) == {0, 2, 3}


def test_four_on_a_ring_hold_no_three_and_the_error_names_the_request() -> None:
    ring = graph_of(4, [(0, 1), (1, 2), (2, 3), (3, 0)])
    whole = ~torch.eye(4, dtype=torch.bool)
    rules = Feasible.of(batch_of(torch.stack([whole, ring, whole]), 3))
    with pytest.raises(InfeasibleError, match="request 1 .* no 3 of its 4"):
        rules.allowed(rules.start(2))


def test_a_hexagon_holds_cards_of_two_but_not_of_three() -> None:
    assert allowed_after(batch_of(HEXAGON, 2), 0) == {1, 5}
    with pytest.raises(InfeasibleError):
        allowed_after(batch_of(HEXAGON, 3))


def test_a_prism_needs_more_than_counting_neighbours() -> None:
    # Triangles 0-1-2 and 3-4-5 joined by 0-3, 1-4, 2-5: after 0 its neighbour 3 has three neighbours of its own,
    # yet 0 and 3 have none in common.
    prism = graph_of(6, [(0, 1), (1, 2), (0, 2), (3, 4), (4, 5), (3, 5), (0, 3), (1, 4), (2, 5)]).unsqueeze(0)
    assert allowed_after(batch_of(prism, 3), 0) == {1, 2}


def test_absent_positions_are_never_allowed_and_never_counted_on() -> None:
    present = torch.tensor([[True, True, False, True, True]])
    assert allowed_after(batch_of(TAILED, 2, present=present), 3) == {4}
    with pytest.raises(InfeasibleError):
        allowed_after(batch_of(TAILED, 3, present=present))


def test_a_full_group_is_shut() -> None:
    group, cap = torch.tensor([[[0, 0, 0, 1, -1]]]), torch.tensor([[1]])
    batch = complete_batch(1, 5, 3, group=group, cap=cap)
    assert allowed_after(batch) == {0, 1, 2, 3, 4}
    assert allowed_after(batch, 1) == {3, 4}
    assert allowed_after(batch, 4, 3) == {0, 1, 2}


def test_caps_can_leave_too_few_even_where_every_pair_is_allowed() -> None:
    group, cap = torch.tensor([[[0, 0, 0, 1]]]), torch.tensor([[1]])
    assert allowed_after(complete_batch(1, 4, 2, group=group, cap=cap)) == {0, 1, 2, 3}
    with pytest.raises(InfeasibleError):
        allowed_after(complete_batch(1, 4, 3, group=group, cap=cap))


def test_a_cap_of_zero_shuts_its_groups_at_once() -> None:
    batch = complete_batch(1, 4, 2, group=torch.tensor([[[0, -1, -1, 1]]]), cap=torch.tensor([[0]]))
    assert allowed_after(batch) == {1, 2}


def test_pinned_positions_come_first_and_bind_the_rest() -> None:
    pinned = torch.tensor([[False, False, True, False, False]])
    batch = batch_of(TAILED, 2, pinned=pinned)
    assert allowed_after(batch) == {2}
    assert allowed_after(batch, 2) == {0, 1, 3}


@pytest.mark.parametrize("pins", [(0, 4), (0, 1, 2, 3)])
def test_pins_that_cannot_share_a_card_are_infeasible(pins: tuple[int, ...]) -> None:
    pinned = torch.zeros(1, 5, dtype=torch.bool)
    pinned[0, list(pins)] = True
    with pytest.raises(InfeasibleError):
        allowed_after(batch_of(TAILED, 3, pinned=pinned))


def test_more_pins_than_places_are_infeasible() -> None:
    with pytest.raises(InfeasibleError):
        allowed_after(complete_batch(1, 4, 1, pinned=torch.tensor([[True, True, False, False]])))


@st.composite
def small_batches(draw: st.DrawFn) -> TensorBatch:
    N, B = draw(st.integers(3, 6)), draw(st.integers(1, 3))
    graph = random_graphs(B, N, draw(st.sampled_from([0.4, 0.7, 0.9])), draw(st.integers(0, 10_000)))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10_000)))
    num_caps = draw(st.integers(0, 2))
    return batch_of(
        graph,
        draw(st.lists(st.integers(1, 4), min_size=B, max_size=B)),
        present=torch.rand(B, N, generator=generator) < draw(st.sampled_from([0.8, 1.1])),
        pinned=torch.rand(B, N, generator=generator) < draw(st.sampled_from([0.0, 0.0, 0.2])),
        group=torch.randint(-1, 3, (B, num_caps, N), generator=generator),
        cap=torch.randint(0, 3, (B, num_caps), generator=generator),
    )


@settings(max_examples=120, deadline=None)
@given(small_batches())
def test_the_mask_is_exactly_what_can_be_completed_at_every_prefix(batch: TensorBatch) -> None:
    cards = [valid_cards(batch, b) for b in range(len(batch))]
    rules = Feasible.of(batch)
    if not all(cards):
        with pytest.raises(InfeasibleError, match=f"request {[bool(c) for c in cards].index(False)} "):
            rules.allowed(rules.start(1))
        return
    for b in range(len(batch)):
        one = batch.rows(torch.tensor([b]))
        for size in range(int(batch.card_size[b])):
            for prefix in itertools.permutations(range(batch.graph.shape[1]), size):
                reachable = all(prefix[t] in may_follow(one, 0, prefix[:t]) for t in range(size))
                if reachable:
                    assert allowed_after(one, *prefix) == may_follow(one, 0, prefix)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([0.3, 0.6, 0.8, 0.95]), st.integers(0, 4))
def test_the_cheap_bounds_never_claim_what_is_not_so(seed: int, density: float, needed: int) -> None:
    graph = random_graphs(1, 7, density, seed)
    open_ = torch.rand(1, 1, 7, generator=torch.Generator().manual_seed(seed)) < 0.8
    possible, sure = cheap_bounds(open_, graph.float(), torch.tensor([[[needed]]]))
    inside = batch_of(graph, needed + 1, present=open_[0])
    truth = {j for card in valid_cards(inside, 0) for j in card}
    for j in open_[0, 0].nonzero().flatten().tolist():
        assert possible[0, 0, j] or j not in truth
        assert not sure[0, 0, j] or j in truth
        if needed <= 1:
            assert bool(sure[0, 0, j]) == (j in truth)


def forbid_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> Tensor:
        raise AssertionError("the exact engine was asked about an easy graph")

    monkeypatch.setattr(feasible, "ask_engine", refuse)


def test_easy_graphs_never_ask_the_exact_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    forbid_the_engine(monkeypatch)
    category = torch.arange(50) // 5
    distinct = (category.unsqueeze(0) != category.unsqueeze(1)).unsqueeze(0)
    easy = batch_of(distinct, 4)
    assert Feasible.of(easy).facts.all_safe
    capped = complete_batch(1, 50, 4, group=category.view(1, 1, 50), cap=torch.tensor([[2]]))
    assert Feasible.of(capped).facts.all_safe
    # Not safe by the count of the start alone, but the bound settles every step.
    harder = batch_of(random_graphs(1, 50, 0.8, 3), 4)
    assert not Feasible.of(harder).facts.all_safe
    rules = Feasible.of(harder)
    prefix = rules.start(1)
    for _ in range(4):
        position = rules.allowed(prefix).float().argmax(-1)
        prefix = rules.extend(prefix, position)
    pairs = list(itertools.combinations(prefix.cards[0, 0].tolist(), 2))
    assert all(harder.graph[0, i, j] for i, j in pairs)


def test_a_safe_start_means_no_order_of_choosing_ends_early() -> None:
    graph = random_graphs(40, 12, 0.85, 5)
    batch = batch_of(graph, 3)
    rules = Feasible.of(batch)
    assert 0 < int(rules.safe.sum()) < 40
    for b in rules.safe.nonzero().flatten().tolist():
        for i, j in itertools.permutations(range(12), 2):
            if graph[b, i, j]:
                assert bool((graph[b, i] & graph[b, j]).any())


def test_along_is_the_mask_before_each_choice() -> None:
    batch = batch_of(TAILED, 3)
    along = Feasible.of(batch).along(torch.tensor([[[2, 0, 1]]]))
    assert along[0, 0].int().tolist() == [[1, 1, 1, 0, 0], [1, 1, 0, 0, 0], [0, 1, 0, 0, 0]]


def test_requests_of_several_sizes_keep_their_own_end() -> None:
    rules = Feasible.of(complete_batch(2, 4, [1, 3]))
    assert (rules.facts.ragged, rules.facts.longest) == (True, 3)
    assert [rules.live(t).flatten().tolist() for t in range(3)] == [
        [True, True],
        [False, True],
        [False, True],
    ]
    after = rules.extend(rules.start(1), torch.tensor([[-1], [3]]))
    assert after.open[:, 0].int().tolist() == [[1, 1, 1, 1], [1, 1, 1, 0]]
