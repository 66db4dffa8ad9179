"""Greedy cards: Algorithm 1 of the paper, which may run into a dead end, and the same made safe.

Knows no pair weights and no network.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64, Int64

from exactk.problem.exact.cliques import completable
from exactk.problem.graph import Requests


def naive_node_weight(
    requests: Requests, node_weights: Float64[np.ndarray, "B N"]
) -> Int64[np.ndarray, "B K"]:
    """Algorithm 1: take the heaviest node, drop its non-neighbours, again; in order of choice, -1 where it got stuck.

    Equal weights: the larger tie key first (the lower position where there are none). It knows only the graph, as in
    the paper: caps and pins are ignored.
    """
    return _greedy(requests, node_weights, safe=False)


def safe_node_weight(
    requests: Requests, node_weights: Float64[np.ndarray, "B N"]
) -> Int64[np.ndarray, "B K"]:
    """Algorithm 1 that only takes nodes from which a valid card can be completed; all -1 where none exists.

    Honours caps; pinned positions come first, in ascending order.
    """
    return _greedy(requests, node_weights, safe=True)


def _greedy(
    requests: Requests, node_weights: Float64[np.ndarray, "B N"], safe: bool
) -> Int64[np.ndarray, "B K"]:
    B, N = requests.present.shape
    rows = np.arange(B)
    card = np.full((B, int(requests.card_size.max(initial=0))), -1, np.int64)
    chosen = np.zeros((B, N), bool)
    open_ = requests.present.copy()
    for step in range(card.shape[1]):
        if safe:
            open_ = completable(requests, chosen)
            waiting = open_ & requests.pinned
            open_ = np.where(waiting.any(1, keepdims=True), waiting & (waiting.cumsum(1) == 1), open_)
        heaviest = np.where(open_, node_weights, -np.inf)
        pick = heaviest.argmax(1)
        if requests.tie_key is not None:
            equal = open_ & (heaviest == heaviest.max(1, keepdims=True))
            pick = np.where(equal, requests.tie_key, np.iinfo(np.int64).min).argmax(1)
        goes_on = open_.any(1) & (step < requests.card_size)
        card[goes_on, step] = pick[goes_on]
        chosen[rows[goes_on], pick[goes_on]] = True
        open_ = open_ & requests.graph[rows, pick] & ~chosen & goes_on[:, None]
    return card
