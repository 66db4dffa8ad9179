"""The compiled searches over the requests of a batch: reduce each, search it, weigh what was found.

Knows which search suits, and no rules and no threads; `cliques.py` is the door. Under briefs the same search also says
whether there is any card, and what can be completed.
"""

from __future__ import annotations

import numpy as np

from exactk.problem.exact.bits import compiled, compiled_within, falling_order, seconds
from exactk.problem.exact.brief_search import search_brief
from exactk.problem.exact.exists import FOUND, NONE, OUT_OF_TIME
from exactk.problem.exact.leaves import Shelf, arranged, joint_weights
from exactk.problem.exact.nodes import search_nodes
from exactk.problem.exact.pairs import search_pairs
from exactk.problem.exact.setup import ascend, open_candidates


@compiled_within
def node_weight(card, size, node):
    """The node weights of a card, added up in its order."""
    total = 0.0
    for k in range(size):
        total += node[card[k]]
    return total


@compiled_within
def pair_weight(card, size, pair):
    """The pair weights of a card, added up in its order."""
    total = 0.0
    for k in range(size):
        for other in range(k):
            total += pair[card[other], card[k]]
    return total


@compiled_within
def settled(bound, weights, found, complete):
    """The bound on all cards not listed, told in the weights as they are returned: sums may have rounded otherwise."""
    if found < len(weights):
        return bound
    return weights[-1] if complete else max(bound, weights[-1])


@compiled_within
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
def stand_again(must, held, position, size, card):
    """Turn the places of a card's picks into the card's positions, what must be held first."""
    for k in range(size - 1, -1, -1):
        card[k] = must[k] if k < held else position[card[k - held]]


@compiled
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


@compiled_within
def shelf_of(b, brief, size, node, joint):
    """How leaves of request b are weighed."""
    flat = True
    for s in range(min(size, brief.eligible.shape[1])):
        flat = flat and brief.slot_weight[b, s] == 1.0
        for p in range(len(node)):
            flat = flat and brief.slot_score[b, s, p] == 0.0
    return Shelf(
        node, joint, brief.clash[b], brief.clash_of[b], brief.eligible[b], brief.slot_weight[b],
        brief.slot_score[b], brief.follows[b], flat,
    )  # fmt: skip


@compiled
def best_briefs_each(
    first, last, graph, present, size, pinned, group, cap, brief, tie_key, node, pair, limit,
    cards, weights, found, bound, complete, fault,
):  # fmt: skip
    """The n best cards of the requests first..last-1, by place where they have places; returns how many were bad.

    `pair` [0, 0, 0]: no pair weights.
    """
    N = graph.shape[1]
    must, position, none = np.empty(N, np.int64), np.empty(N, np.int64), np.empty((0, 0))
    room = np.empty((N, N)) if brief.clash.shape[1] else none
    faults = 0
    for b in range(first, last):
        deadline = seconds() + limit
        found[b], bound[b], complete[b] = 0, -np.inf, True
        held, m = begin(
            b, graph, present, size, pinned, group, cap, tie_key, node, must, position, cards, weights, fault
        )
        if held < 0:
            faults += fault[b, 0] >= 0
            continue
        K, order = size[b], np.empty(size[b], np.int64)
        joint = joint_weights(
            pair[b] if len(pair) else none,
            brief.clash[b],
            brief.clash_of[b],
            brief.worth[b],
            brief.once[b],
            room,
        )
        shelf = shelf_of(b, brief, K, node[b], joint)
        found[b], over, complete[b] = search_brief(
            shelf, graph[b], brief, b, must, held, position, m, K - held, group[b], cap[b], deadline, False,
            cards[b, :, : K - held], weights[b], fault[b],
        )  # fmt: skip
        for k in range(found[b]):
            stand_again(must, held, position, K, cards[b, k])
            if brief.eligible.shape[1]:
                arranged(shelf, cards[b, k, :K], order)
                for e in range(K):
                    cards[b, k, e] = order[e]
            else:
                ascend(cards[b, k], K)
        bound[b] = settled(over, weights[b], found[b], complete[b])
        faults += fault[b, 0] >= 0
    return faults


@compiled
def exists_briefs_each(
    first, last, graph, present, size, pinned, group, cap, brief, chosen, limit, ends, cards, answer
):  # fmt: skip
    """Whether a valid card holds `chosen`, for the requests first..last-1: NONE, FOUND or OUT_OF_TIME each.

    Each is given `limit` seconds, all together end at `ends`. Where `cards` has columns, the one found is put there.
    """
    N = graph.shape[1]
    must, position = np.empty(N, np.int64), np.empty(N, np.int64)
    node, joint, fault = np.zeros(N), np.empty((0, 0)), np.empty(2, np.int64)
    for b in range(first, last):
        K = size[b]
        answer[b] = NONE
        for k in range(cards.shape[1]):
            cards[b, k] = -1
        held, m = open_candidates(
            graph[b], present[b], K, pinned[b], chosen[b], group[b], cap[b], must, position
        )
        if held < 0 or m < K - held:
            continue
        deadline = ends
        if limit < np.inf:
            deadline = min(ends, seconds() + limit)
        card, weights, order = np.empty((1, K), np.int64), np.empty(1), np.empty(K, np.int64)
        shelf = shelf_of(b, brief, K, node, joint)
        found, _, complete = search_brief(
            shelf, graph[b], brief, b, must, held, position, m, K - held, group[b], cap[b], deadline, True,
            card[:, : K - held], weights, fault,
        )  # fmt: skip
        if found == 0 and not complete:
            answer[b] = OUT_OF_TIME
        if found:
            answer[b] = FOUND
            if cards.shape[1] > 0:
                stand_again(must, held, position, K, card[0])
                ascend(card[0], K)
                if brief.eligible.shape[1]:
                    arranged(shelf, card[0], order)
                for k in range(K):
                    cards[b, k] = order[k] if brief.eligible.shape[1] else card[0, k]
    return 0


@compiled
def completable_briefs_each(first, last, graph, present, size, pinned, group, cap, brief, chosen, answer):
    """Which positions outside `chosen` are in a valid card together with it, for the requests first..last-1."""
    N = graph.shape[1]
    must, position, asked = np.empty(N, np.int64), np.empty(N, np.int64), np.empty(N, np.bool_)
    node, joint, fault = np.zeros(N), np.empty((0, 0)), np.empty(2, np.int64)
    for b in range(first, last):
        K = size[b]
        for p in range(N):
            answer[b, p] = False
        shelf = shelf_of(b, brief, K, node, joint)
        cards, weights = np.empty((1, K), np.int64), np.empty(1)
        for p in range(N):
            if answer[b, p] or chosen[b, p] or not present[b, p]:
                continue
            for q in range(N):
                asked[q] = chosen[b, q]
            asked[p] = True
            held, m = open_candidates(
                graph[b], present[b], K, pinned[b], asked, group[b], cap[b], must, position
            )
            if held < 0 or m < K - held:
                continue
            found, _, _ = search_brief(
                shelf, graph[b], brief, b, must, held, position, m, K - held, group[b], cap[b], np.inf, True,
                cards[:, : K - held], weights, fault,
            )  # fmt: skip
            if found:
                stand_again(must, held, position, K, cards[0])
                for k in range(K):
                    if not chosen[b, cards[0, k]]:
                        answer[b, cards[0, k]] = True
    return 0


@compiled
def arrange_each(first, last, size, brief, node, cards):
    """Put cards (sets of positions, -1 beyond their size) into their best order of place, in place."""
    N = node.shape[1]
    joint = np.empty((0, 0))
    for b in range(first, last):
        K = size[b]
        order = np.empty(K, np.int64)
        shelf = shelf_of(b, brief, K, node[b], joint)
        if K > 0 and cards[b, 0] >= 0 and arranged(shelf, np.sort(cards[b, :K]), order) > -np.inf:
            for k in range(K):
                cards[b, k] = order[k]
    return N * 0
