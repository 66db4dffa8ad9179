"""The exact engine: does a valid card exist, can this prefix become one, which card has the most weight.

Knows no rules (`constraints.py` makes the requests) and no network.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int64

from exactk.problem.clique_search import search_each
from exactk.problem.graph import Requests


class Solutions(NamedTuple):
    """The best card of each request; `weight` is its value, `bound` a proven upper bound on any valid card's value.

    `optimal` where the search was finished: then `weight == bound`. Nothing `found`: card all -1, weight -inf; with
    `optimal` that proves that no valid card exists. Among cards of equal weight the one whose ascending
    positions come first is returned: [0, 5] before [1, 2].
    """

    card: Int64[np.ndarray, "B K"]
    weight: Float64[np.ndarray, "B"]
    bound: Float64[np.ndarray, "B"]
    optimal: Bool[np.ndarray, "B"]
    found: Bool[np.ndarray, "B"]


class Ranking(NamedTuple):
    """The n best cards of each request, best first, equal ones by ascending positions; `num_found` may be less than n.

    `bound` is a proven upper bound on the value of every valid card that is not listed.
    """

    card: Int64[np.ndarray, "B n K"]
    weight: Float64[np.ndarray, "B n"]
    num_found: Int64[np.ndarray, "B"]
    bound: Float64[np.ndarray, "B"]
    optimal: Bool[np.ndarray, "B"]


def exists(requests: Requests) -> Bool[np.ndarray, "B"]:
    """Whether each request has any valid card."""
    return can_complete(requests, np.zeros_like(requests.pinned))


def can_complete(requests: Requests, chosen: Bool[np.ndarray, "B N"]) -> Bool[np.ndarray, "B"]:
    """Whether some valid card holds all of `chosen` (and all pinned positions)."""
    found, *_ = _search(requests, requests.pinned | chosen, None, None, -1, None)
    return found > 0


def completable(requests: Requests, chosen: Bool[np.ndarray, "B N"]) -> Bool[np.ndarray, "B N"]:
    """The positions outside `chosen` that may be chosen next so that a valid card can still be completed."""
    answer = np.zeros_like(chosen)
    for i in range(chosen.shape[1]):
        more = chosen.copy()
        more[:, i] = True
        answer[:, i] = can_complete(requests, more) & ~chosen[:, i]
    return answer


def count(requests: Requests) -> Int64[np.ndarray, "B"]:
    """How many valid cards each request has."""
    return _search(requests, requests.pinned, None, None, 0, None)[1]


def best(
    requests: Requests,
    node_weights: Float64[np.ndarray, "B N"],
    pair_weights: Float64[np.ndarray, "B N N"] | None = None,
    time_limit: float | None = None,
) -> Solutions:
    """The valid card with the largest sum of node weights plus pair weights over its unordered pairs."""
    ranking = best_n(requests, node_weights, pair_weights, n=1, time_limit=time_limit)
    found = ranking.num_found > 0
    weight = ranking.weight[:, 0]
    bound = np.where(ranking.optimal, weight, np.maximum(weight, ranking.bound))
    return Solutions(ranking.card[:, 0], weight, bound, ranking.optimal, found)


def best_n(
    requests: Requests,
    node_weights: Float64[np.ndarray, "B N"],
    pair_weights: Float64[np.ndarray, "B N N"] | None = None,
    n: int = 1,
    time_limit: float | None = None,
) -> Ranking:
    """The n valid cards of the largest weight, best first."""
    found, _, bound, complete, cards, weights = _search(
        requests, requests.pinned, node_weights, pair_weights, n, time_limit
    )
    return Ranking(cards, weights, found, bound, complete)


def _search(
    requests: Requests,
    must: Bool[np.ndarray, "B N"],
    node_weights: Float64[np.ndarray, "B N"] | None,
    pair_weights: Float64[np.ndarray, "B N N"] | None,
    n: int,
    time_limit: float | None,
) -> tuple[np.ndarray, ...]:
    B, N = must.shape
    longest = int(requests.card_size.max(initial=0))
    cards = np.full((B, max(n, 0), longest), -1, np.int64)
    weights = np.full((B, max(n, 0)), -np.inf)
    found, total = np.zeros(B, np.int64), np.zeros(B, np.int64)
    bound, complete = np.empty(B), np.empty(B, bool)
    search_each(
        0, B,
        requests.graph, requests.present, requests.card_size, must, requests.group, requests.cap,
        np.empty((1, N)) if node_weights is None else node_weights,
        np.empty((1, 1, 1)) if pair_weights is None else pair_weights,
        pair_weights is not None, n, np.inf if time_limit is None else time_limit,
        cards, weights, found, total, bound, complete,
    )  # fmt: skip
    return found, total, bound, complete, cards, weights
