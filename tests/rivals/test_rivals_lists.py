"""Whole-card rivals: the GFlowNet's distribution, the set value's search, against enumeration."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from test_rivals_selection import plain_batch

from card_logs import write_log
from exactk.data import Dataset
from exactk.evaluation.metrics import valid_cards
from exactk.models.reward import Reward
from exactk.problem.batch import Batch
from exactk.problem.graph import is_valid_card
from exactk.rivals.contract import Budget, Logs
from exactk.rivals.counting import FOLDS, ItemCounts, rates
from exactk.rivals.item_networks import fit_deeprank
from exactk.rivals.whole_cards import (
    Exhaustive,
    SlateFlow,
    SwapSearch,
    backward_log_prob,
    fit_gflownet,
    fit_value_search,
    valid_among,
)
from exactk.search.decoding import log_prob, replay_by_steps, sample
from exactk.search.feasible import Feasible
from exactk.settings.config import InputSizes, RewardConfig
from exactk.tensors import TensorBatch


def sizes(num_items: int) -> InputSizes:
    return InputSizes(num_users=1, num_items=num_items)


def set_probabilities(
    network: SlateFlow, batch: TensorBatch, cards: Sequence[tuple[int, ...]]
) -> torch.Tensor:
    """P(set) as the sum over its orders of the product of step probabilities."""
    orders = torch.tensor([[list(p) for p in itertools.permutations(card)] for card in cards])  # C K! K
    flat = orders.flatten(0, 1).unsqueeze(0)
    with torch.no_grad():
        each = log_prob(network.steps(batch), Feasible.of(batch), flat)[0].exp()
    return each.view(orders.shape[:2]).sum(1)


def test_the_gflownet_draws_cards_in_proportion_to_their_reward() -> None:
    batch = plain_batch(1, 6, 2)
    batch.graph[0, 0, 1] = batch.graph[0, 1, 0] = False  # one pair is forbidden: it must get no mass
    cards = [c for c in itertools.combinations(range(6), 2) if c != (0, 1)]
    generator = torch.Generator().manual_seed(0)
    reward = torch.rand(6, 6, generator=generator) * 3 + 0.2
    reward = reward + reward.T
    network = SlateFlow("ids", sizes(6), generator)
    optimiser = torch.optim.Adam(network.parameters(), lr=0.02)
    feasible = Feasible.of(batch)
    for _ in range(400):
        drawn = sample(network.steps(batch), feasible, 16, 1.5, generator).cards
        log_reward = reward[drawn[..., 0], drawn[..., 1]].log()
        loss = network.balance_loss(batch, drawn, log_reward, feasible)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    wanted = torch.tensor([reward[c].item() for c in cards])
    found = set_probabilities(network, batch, cards)
    assert found.sum().item() == pytest.approx(1.0, abs=1e-5)
    assert (found - wanted / wanted.sum()).abs().sum().item() / 2 < 0.03  # total variation
    with torch.no_grad():
        assert network.log_flow(network.inputs(batch), batch).item() == pytest.approx(
            wanted.sum().log().item(), abs=0.05
        )


def test_a_flow_is_blind_to_the_order_of_what_it_chose_and_replays_as_it_steps() -> None:
    batch = plain_batch(2, 5, 3)
    steps = SlateFlow("ids", sizes(5), torch.Generator().manual_seed(1)).steps(batch)
    cards = torch.tensor([[[0, 3, 1], [3, 0, 1]], [[4, 2, 0], [2, 4, 0]]])
    scores = steps.replay(cards)
    torch.testing.assert_close(scores, replay_by_steps(steps, cards))
    torch.testing.assert_close(scores[:, 0, 2], scores[:, 1, 2])


def test_pinned_items_leave_fewer_orders_to_write_a_card_in() -> None:
    batch = plain_batch(2, 6, 4)
    batch.pinned[1, [0, 3]] = True
    assert (-backward_log_prob(batch)).exp().tolist() == pytest.approx([24, 4])


def pair_log(path: Path, num: int, seed: int = 0) -> Dataset:
    """Cards of two out of eight; clicked, nearly surely, when both are of one kind (i % 4), whoever looks."""
    rng = np.random.default_rng(seed)
    rows: list[dict[str, Any]] = []
    for r in range(num):
        offered = rng.permutation(16)[:8]
        card = offered[:2]
        clicked = bool(rng.random() < (0.95 if card[0] % 4 == card[1] % 4 else 0.05))
        rows.append(
            {
                "request_id": r, "user_id": "u", "candidates": [f"i{c}" for c in offered],
                "card": [f"i{c}" for c in card], "clicked": clicked,
                "clicked_item": f"i{card[0]}" if clicked else None,
            }
        )  # fmt: skip
    return Dataset.open(write_log(path, rows))


def share_of_pairs(cards: np.ndarray, batch: Batch, logs: Logs) -> float:
    """How many cards hold two of a kind."""
    ids = logs.vocabulary.item_ids.to_pylist()
    kinds = [[int(ids[batch.item[b, p] - 1][1:]) % 4 for p in card] for b, card in enumerate(cards.tolist())]
    return float(np.mean([a == b for a, b in kinds]))


def test_only_whole_card_rivals_find_a_value_that_lies_in_pairs(tmp_path: Path) -> None:
    train, valid, test = Logs.of(*pair_log(tmp_path / "log", 3000).split(by="random"))
    budget = Budget(trials=1, epochs=25, patience=10, batch_size=64, validation_rows=300)
    batch = next(iter(test.batches(200)))
    found = {
        name: share_of_pairs(way.recommend(batch), batch, test)
        for fit in (fit_value_search, fit_gflownet, fit_deeprank)
        for name, way in fit(train, valid, budget).ways.items()
    }
    # Of eight candidates of four kinds nearly always two are of one kind; a random pair is in 1 of 5 cases.
    assert found["set value + exact"] > 0.9, found
    assert found["set value + swaps"] > 0.9, found
    assert found["GFlowNet"] > 0.7, found
    assert found["DeepRank greedy"] < 0.5, found


def constrained_batch() -> TensorBatch:
    batch = plain_batch(3, 7, 3)
    rng = np.random.default_rng(2)
    half = np.triu(rng.random((3, 7, 7)) < 0.75, 1)
    present = torch.ones(3, 7, dtype=torch.bool)
    present[1, 6] = False
    pinned = torch.zeros(3, 7, dtype=torch.bool)
    pinned[2, 0] = True
    half[2, 0] = True
    half[2, 0, 0] = False
    group = torch.from_numpy(rng.integers(-1, 3, (3, 1, 7)))
    return replace(
        batch,
        graph=torch.from_numpy(half | half.transpose(0, 2, 1)),
        present=present,
        pinned=pinned,
        group=group,
        cap=torch.full((3, 1), 2),
        card_size=torch.tensor([3, 2, 3]),
    )


def test_enumeration_knows_every_rule() -> None:
    batch = constrained_batch()
    for size in (2, 3):
        every = torch.tensor(list(itertools.combinations(range(7), size)))
        valid = valid_among(batch, every)
        for b in range(3):
            alike = replace(batch, card_size=torch.full((3,), size)).requests()
            assert valid[b].tolist() == [is_valid_card(alike, b, card) for card in every.numpy()]


def test_exhaustive_search_is_brute_force_and_swaps_never_beat_it() -> None:
    batch = constrained_batch()
    network = Reward(RewardConfig(kind="set"), sizes(7), 3, torch.Generator().manual_seed(4))
    network.eval()
    exact, swapped = (way.recommend(batch.arrays()) for way in (Exhaustive(network), SwapSearch(network)))
    assert valid_cards(batch.requests(), exact).all()
    assert valid_cards(batch.requests(), swapped).all()
    requests = batch.requests()
    with torch.no_grad():
        for b in range(3):
            one, size = batch.rows(slice(b, b + 1)), int(batch.card_size[b])
            cards = [
                c for c in itertools.combinations(range(7), size) if is_valid_card(requests, b, np.array(c))
            ]
            value = network(one, torch.tensor([cards]))[0]
            assert tuple(exact[b, :size].tolist()) == cards[int(value.argmax())]
            mine = network(one, torch.from_numpy(swapped[b, :size]).view(1, 1, -1)).item()
            assert mine <= value.max().item() + 1e-6


def test_counts_of_a_training_row_leave_its_own_fold_out(tmp_path: Path) -> None:
    rows = [
        {
            "request_id": r, "user_id": "u", "candidates": ["a", "b", "c"], "card": ["a", "b"],
            "clicked": r == 0, "clicked_item": "a" if r == 0 else None,
        }
        for r in range(10)
    ]  # fmt: skip
    (logs,) = Logs.of(Dataset.open(write_log(tmp_path / "log", rows)))
    counts = ItemCounts.of(logs, FOLDS)
    a = np.array([logs.vocabulary.item_index(["a"])] * 2)
    rate, times = rates(counts, a, np.array([0, 1]))
    mean = 1 / 20  # one click in twenty showings
    # Fold 0 holds the only click: outside it, a was shown 8 times and never clicked; outside fold 1, clicked once.
    assert times[:, 0].tolist() == [8, 8]
    assert rate[:, 0].tolist() == pytest.approx([(0 + 10 * mean) / 18, (1 + 10 * mean) / 18])
    assert rates(counts, a, None)[1][0, 0] == 10
    assert counts.shown.shape == (FOLDS, 4)
