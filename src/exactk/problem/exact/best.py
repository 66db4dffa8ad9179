"""The best cards of each request of a batch: reduce it, search it, weigh what was found.

Knows which search suits; the searches are next door (`clique_nodes.py`, `clique_pairs.py`).
"""

from __future__ import annotations

from typing import no_type_check

import numpy as np

from exactk.problem.exact.bits import compiled, compiled_within, falling_order, seconds
from exactk.problem.exact.nodes import search_nodes
from exactk.problem.exact.pairs import search_pairs
from exactk.problem.exact.setup import ascend, open_candidates


@compiled_within
@no_type_check
def node_weight(card, size, node):
    """The node weights of a card, added up in its order."""
    total = 0.0
    for k in range(size):
        total += node[card[k]]
    return total


@compiled_within
@no_type_check
def pair_weight(card, size, pair):
    """The pair weights of a card, added up in its order."""
    total = 0.0
    for k in range(size):
        for other in range(k):
            total += pair[card[other], card[k]]
    return total


@compiled_within
@no_type_check
def settled(bound, weights, found, complete):
    """The bound on all cards not listed, told in the weights as they are returned: sums may have rounded otherwise."""
    if found < len(weights):
        return bound
    return weights[-1] if complete else max(bound, weights[-1])


@compiled_within
@no_type_check
def begin(b, graph, present, size, pinned, group, cap, tie_key, node, must, position, cards, weights, fault):
    """Blank the answer of request b and reduce it; returns (held, open), held -1 where there is nothing to search.

    What must be held and what is open come in the order in which ties are settled: by falling key, where there are
    keys, then by position.
    """
    fault[b, 0], fault[b, 1] = -1, -1
    for k in range(weights.shape[1]):
        weights[b, k] = -np.inf
        for e in range(cards.shape[2]):
            cards[b, k, e] = -1
    held, m = open_candidates(
        graph[b], present[b], size[b], pinned[b], pinned[b], group[b], cap[b], must, position
    )
    if held < 0 or m < size[b] - held:
        return -1, 0
    for k in range(held + m):
        p = must[k] if k < held else position[k - held]
        if not np.isfinite(node[b, p]):
            fault[b, 0] = p
            return -1, 0
    if tie_key.shape[1] > 0:
        falling_order(tie_key[b], must, held)
        falling_order(tie_key[b], position, m)
    return held, m


@compiled_within
@no_type_check
def stand_again(must, held, position, size, card):
    """Turn the places of a card's picks into the card's positions, what must be held first."""
    for k in range(size - 1, -1, -1):
        card[k] = must[k] if k < held else position[card[k - held]]


@compiled
@no_type_check
def best_nodes_each(
    first, last, graph, present, size, pinned, group, cap, tie_key, node, limit,
    cards, weights, found, bound, complete, fault,
):  # fmt: skip
    """The n best cards by node weights of the requests first..last-1; returns how many had a bad weight."""
    must, position = np.empty(graph.shape[1], np.int64), np.empty(graph.shape[1], np.int64)
    faults = 0
    for b in range(first, last):
        deadline = seconds() + limit
        found[b], bound[b], complete[b] = 0, -np.inf, True
        held, m = begin(
            b, graph, present, size, pinned, group, cap, tie_key, node, must, position, cards, weights, fault
        )
        if held >= 0:
            found[b], bound[b], complete[b] = search_nodes(
                graph[b], node[b], must, held, position, m, size[b] - held, group[b], cap[b], deadline,
                cards[b], weights[b], fault[b],
            )  # fmt: skip
        for k in range(found[b]):
            stand_again(must, held, position, size[b], cards[b, k])
            weights[b, k] = node_weight(cards[b, k], size[b], node[b])
            ascend(cards[b, k], size[b])
        bound[b] = settled(bound[b], weights[b], found[b], complete[b])
        faults += fault[b, 0] >= 0
    return faults


@compiled
@no_type_check
def best_pairs_each(
    first, last, graph, present, size, pinned, group, cap, tie_key, node, pair, limit,
    cards, weights, found, bound, complete, fault,
):  # fmt: skip
    """The n best cards by node and pair weights of the requests first..last-1; returns how many had a bad weight."""
    must, position = np.empty(graph.shape[1], np.int64), np.empty(graph.shape[1], np.int64)
    faults = 0
    for b in range(first, last):
        deadline = seconds() + limit
        found[b], bound[b], complete[b] = 0, -np.inf, True
        held, m = begin(
            b, graph, present, size, pinned, group, cap, tie_key, node, must, position, cards, weights, fault
        )
        if held >= 0:
            found[b], bound[b], complete[b] = search_pairs(
                graph[b], node[b], pair[b], must, held, position, m, size[b] - held, group[b], cap[b], deadline,
                cards[b], weights[b], fault[b],
            )  # fmt: skip
        for k in range(found[b]):
            stand_again(must, held, position, size[b], cards[b, k])
            weights[b, k] = node_weight(cards[b, k], size[b], node[b])
            weights[b, k] += pair_weight(cards[b, k], size[b], pair[b])
            ascend(cards[b, k], size[b])
        bound[b] = settled(bound[b], weights[b], found[b], complete[b])
        faults += fault[b, 0] >= 0
    return faults
