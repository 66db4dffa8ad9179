"""Small requests made by hand, a step model that is a table, and plain enumeration to hold search against."""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from exactk.problem.graph import is_valid_card
from exactk.search.decoding import replay_by_steps
from exactk.tensors import TensorBatch


def graph_of(num_nodes: int, edges: list[tuple[int, int]]) -> Tensor:
    """An undirected graph from its edges."""
    graph = torch.zeros(num_nodes, num_nodes, dtype=torch.bool)
    for i, j in edges:
        graph[i, j] = graph[j, i] = True
    return graph


def random_graphs(num: int, num_nodes: int, density: float, seed: int) -> Tensor:
    """Symmetric graphs with an empty diagonal."""
    upper = torch.rand(num, num_nodes, num_nodes, generator=torch.Generator().manual_seed(seed)) < density
    upper = upper.triu(1)
    return upper | upper.transpose(1, 2)


def batch_of(graph: Tensor, card_size: int | list[int], **given: Any) -> TensorBatch:
    """A batch around graphs [B, N, N]; whatever is not given is plain: all present, no pins, no caps, ids 1, 2, ..."""
    B, N, _ = graph.shape
    parts: dict[str, Any] = {
        "user": torch.arange(B) % 5 + 1,
        "item": (torch.arange(B * N).view(B, N) * 7) % 30 + 1,
        "present": torch.ones(B, N, dtype=torch.bool),
        "pinned": torch.zeros(B, N, dtype=torch.bool),
        "group": torch.zeros(B, 0, N, dtype=torch.long),
        "cap": torch.zeros(B, 0, dtype=torch.long),
    }
    sizes = torch.full((B,), card_size) if isinstance(card_size, int) else torch.tensor(card_size)
    return TensorBatch(graph=graph, card_size=sizes, **(parts | given))


def complete_batch(num: int, num_nodes: int, card_size: int | list[int], **given: Any) -> TensorBatch:
    """Requests in which every pair is allowed."""
    graph = ~torch.eye(num_nodes, dtype=torch.bool)
    return batch_of(graph.repeat(num, 1, 1), card_size, **given)


class TableState(NamedTuple):
    """Scores of the next choice, as far as the choices so far have moved them."""

    scores: Tensor


class TableSteps:
    """A step model without weights: scores start at a random table and are halved and shifted by every choice."""

    def __init__(self, num: int, num_nodes: int, seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.first = torch.randn(num, num_nodes, generator=generator)
        self.shift = torch.randn(num, num_nodes, num_nodes, generator=generator)

    def start(self, num_rows: int) -> TableState:
        return TableState(self.first.unsqueeze(1).expand(-1, num_rows, -1))

    def step(self, state: TableState) -> Tensor:
        return state.scores

    def advance(self, state: TableState, position: Tensor) -> TableState:
        request = torch.arange(len(position)).unsqueeze(1)
        return TableState(state.scores / 2 + self.shift[request, position])

    def replay(self, cards: Tensor) -> Tensor:
        return replay_by_steps(self, cards)


def valid_cards(batch: TensorBatch, b: int) -> list[tuple[int, ...]]:
    """Every valid card of request b as ascending positions, by trying all."""
    requests = batch.requests()
    subsets = itertools.combinations(range(batch.graph.shape[1]), int(batch.card_size[b]))
    return [card for card in subsets if is_valid_card(requests, b, np.array(card))]


def may_follow(batch: TensorBatch, b: int, prefix: tuple[int, ...]) -> set[int]:
    """Positions that may be chosen after `prefix`: on some valid card that holds it, and pinned ones first."""
    return _following(valid_cards(batch, b), batch.pinned[b].nonzero().flatten().tolist(), prefix)


def _following(cards: list[tuple[int, ...]], pins: list[int], prefix: tuple[int, ...]) -> set[int]:
    free = {p for card in cards if set(prefix) <= set(card) for p in card} - set(prefix)
    waiting = set(pins) - set(prefix)
    return free & waiting if waiting else free


def ordered_cards(
    batch: TensorBatch, b: int, steps: TableSteps, temperature: float = 1.0
) -> dict[tuple[int, ...], float]:
    """log P of every card of request b in every order in which it can be chosen, step by step in plain Python."""
    found: dict[tuple[int, ...], float] = {}
    cards, pins = valid_cards(batch, b), batch.pinned[b].nonzero().flatten().tolist()
    first, shift = steps.first[b].tolist(), steps.shift[b].tolist()

    def grow(prefix: tuple[int, ...], scores: list[float], log_prob: float) -> None:
        if len(prefix) == int(batch.card_size[b]):
            found[prefix] = log_prob
            return
        allowed = _following(cards, pins, prefix)
        whole = sum(math.exp(scores[j] / temperature) for j in allowed)
        for j in allowed:
            chosen = log_prob + scores[j] / temperature - math.log(whole)
            grow((*prefix, j), [s / 2 + d for s, d in zip(scores, shift[j], strict=True)], chosen)

    grow((), first, 0.0)
    return found


def cards_by(way: Any, batch: TensorBatch) -> Tensor:
    """What a recommender answers to a batch, as a tensor."""
    return torch.from_numpy(way.recommend(batch.arrays()))
