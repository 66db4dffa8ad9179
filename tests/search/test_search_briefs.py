"""Learned searches under briefs: whatever the scores, every card written is valid, or none can be."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from exactk.errors import InfeasibleError
from exactk.evaluation.metrics import valid_cards
from exactk.learning.phases import compiled_decoder
from exactk.problem.brief import keeps, neutral, with_request
from exactk.problem.graph import is_valid_card
from exactk.rivals.whole_cards import valid_among
from exactk.search import Feasible, beam, greedy, improve, sample
from exactk.search.decoding import greedy_by_weight
from exactk.search.maximise import swaps, valid_swaps
from exactk.settings.config import InputSizes, PolicyConfig
from exactk.tensors import TensorBatch
from exactk_lab.bench.engine.made import made_policy
from random_briefs import KINDS, Shelf, a_shelf
from small_batches import TableSteps, batch_of

mixes = st.lists(st.sampled_from(KINDS), min_size=1, max_size=3).map(tuple)


def batch(shelf: Shelf) -> TensorBatch:
    requests = shelf.requests()
    return batch_of(
        torch.from_numpy(requests.graph),
        shelf.K,
        pinned=torch.from_numpy(requests.pinned),
        group=torch.from_numpy(requests.group).long(),
        cap=torch.from_numpy(requests.cap).long(),
        brief=requests.brief,
    )


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), mixes, st.integers(3, 7), st.integers(2, 4))
def test_every_search_writes_valid_cards_or_says_there_is_none(
    seed: int, kinds: tuple[str, ...], N: int, K: int
) -> None:
    shelf = a_shelf(seed, kinds, N, K, pairs=False)
    asked, steps = batch(shelf), TableSteps(1, N, seed)
    feasible = Feasible.of(asked)
    ranked = shelf.best()
    if not ranked:
        with pytest.raises(InfeasibleError):
            greedy(steps, feasible)
        return
    weights = torch.from_numpy(shelf.node)[None]
    beams = beam(steps, feasible, 3).cards[0]
    written = [greedy(steps, feasible)[0], greedy_by_weight(weights, feasible)[0], *beams]
    written = [card for card in written if (card >= 0).all()]
    for card in written:
        assert shelf.is_valid(tuple(card.tolist()))
        assert valid_cards(asked.requests(), card.numpy()[None])[0]
    drawn = sample(steps, feasible, 4, generator=torch.Generator().manual_seed(seed)).cards[0]
    valid = {card for card, _ in ranked}
    assert all(tuple(sorted(card)) in valid for card in drawn.tolist())


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), mixes, st.integers(3, 6))
def test_swaps_stay_among_the_valid_cards(seed: int, kinds: tuple[str, ...], N: int) -> None:
    shelf = a_shelf(seed, kinds, N, 3, pairs=False)
    ranked = shelf.best()
    if not ranked:
        return
    asked, valid = batch(shelf), {card for card, _ in ranked}
    card = torch.tensor([ranked[0][0]])
    allowed = valid_swaps(asked, card)[0].flatten().tolist()
    for tried, kept in zip(swaps(card, N)[0].tolist(), allowed, strict=True):
        distinct = len(set(tried)) == shelf.K and set(shelf.include) <= set(tried)
        moved = set(tried) != set(card[0].tolist())
        assert kept == (distinct and moved and tuple(sorted(tried)) in valid)
    weights = torch.rand(N, generator=torch.Generator().manual_seed(seed))
    better = improve(asked, card, lambda cards: weights[cards].sum(-1))[0]
    assert shelf.is_valid(tuple(better.tolist()))
    every = torch.combinations(torch.arange(N), shelf.K)
    held = [tuple(one) in valid for one in every.tolist()]
    assert valid_among(asked, every)[0].tolist() == held


def test_one_request_may_be_lightened_beside_others() -> None:
    shelf = a_shelf(11, ("count", "variety", "slots", "prefer"), 6, 3, pairs=False)
    brief = shelf.requests().brief
    assert brief is not None
    both = brief.rows(np.array([0, 0]))
    free = neutral(both, 1)
    assert keeps(free, 1, (0, 1, 2))
    back = with_request(free, 1, brief)
    assert back is not None
    assert all(np.array_equal(a[1], b[0]) for a, b in zip(back, brief, strict=True))
    assert with_request(None, 0, brief) is None


def test_rows_of_a_batch_keep_their_own_briefs() -> None:
    shelves = [a_shelf(seed, ("total",), 5, 2, pairs=False) for seed in (1, 2)]
    one = batch(shelves[0])
    twice = replace(one.rows(torch.tensor([0, 0])))
    assert twice.brief is not None
    assert len(twice.brief.lower) == 2
    first = shelves[0].best()
    if first:
        assert is_valid_card(twice.requests(), 1, np.array(first[0][0]))


POLICY = made_policy(0, PolicyConfig(), InputSizes(num_users=50, num_items=200))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), mixes, st.integers(3, 7), st.integers(2, 4))
def test_the_engine_writes_the_cards_of_a_policys_own_beam(
    seed: int, kinds: tuple[str, ...], N: int, K: int
) -> None:
    shelf = a_shelf(seed, kinds, N, K, pairs=False)
    asked = batch(shelf)
    found = compiled_decoder(POLICY).write(asked.arrays(), kept=3)
    if not shelf.best():
        assert found.num_found.tolist() == [0]
        return
    with torch.no_grad():
        steps, feasible = POLICY.steps(asked), Feasible.of(asked)
        wanted = beam(steps, feasible, POLICY.config.beam)
    assert found.num_found.tolist() == torch.isfinite(wanted.log_prob).sum(1).tolist()
    assert np.array_equal(found.cards, wanted.cards.numpy())
    assert all(shelf.is_valid(tuple(card)) for card in found.cards[0].tolist() if card[0] >= 0)
