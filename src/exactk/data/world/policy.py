"""The logging policy of a world: valid cards drawn item by item, and the exact probability of each card as a set.

Knows scores and graphs, no users and no items.
"""

from typing import NamedTuple, no_type_check

import numpy as np
from jaxtyping import Bool, Float64, Int64

from exactk.problem.exact.bits import compiled


class Drawn(NamedTuple):
    """Cards as positions in the order they were drawn, and the probability of each as a set."""

    card: Int64[np.ndarray, "B K"]
    propensity: Float64[np.ndarray, "B"]


def show(
    rng: np.random.Generator, scores: Float64[np.ndarray, "B N"], graph: Bool[np.ndarray, "B N N"], k: int
) -> Drawn:
    """Draw a valid card for each request, item by item in proportion to exp(score).

    An item may be drawn when it is allowed beside all those drawn before it and a valid card can still be completed.
    The propensity of a card is summed over all orders in which it could have been drawn, so over all valid cards of a
    request it sums to one. A request without any valid card gets propensity 0.
    """
    B = len(scores)
    weight = np.exp(scores - scores.max(axis=1, keepdims=True))
    card, propensity = np.zeros((B, k), np.int64), np.empty(B)
    _show(rng.random((B, k)), weight, graph, card, propensity)
    return Drawn(card, propensity)


def set_propensity(
    scores: Float64[np.ndarray, "B N"], graph: Bool[np.ndarray, "B N N"], card: Int64[np.ndarray, "B K"]
) -> Float64[np.ndarray, "B"]:
    """The probability that the logging policy shows exactly these items, in whatever order."""
    weight = np.exp(scores - scores.max(axis=1, keepdims=True))
    propensity = np.empty(len(scores))
    _propensities(weight, graph, card, propensity)
    return propensity


@compiled
@no_type_check
def _has_clique(graph, among, size):
    """Whether `size` positions of `among` are pairwise allowed: depth first, smallest position first."""
    if size <= 0:
        return True
    N = len(among)
    inside = np.empty((size + 1, N), np.bool_)
    inside[0] = among
    at = np.zeros(size + 1, np.int64)
    depth = 0
    while depth >= 0:
        if at[depth] >= N:
            depth -= 1
            continue
        p = at[depth]
        at[depth] += 1
        if not inside[depth, p]:
            continue
        if depth + 1 == size:
            return True
        for q in range(N):
            inside[depth + 1, q] = q > p and inside[depth, q] and graph[p, q]
        at[depth + 1] = p + 1
        depth += 1
    return False


@compiled
@no_type_check
def _drawable(graph, allowed, crowding, need, drawable):
    """Which allowed positions may be drawn so that `need` of them (this one included) can be.

    Each position rules out at most `crowding` others, so from more than (need - 1)(crowding + 1) allowed positions
    any start can be completed; only a tighter request is searched.
    """
    N = len(allowed)
    count = 0
    for p in range(N):
        count += allowed[p]
    if count > (need - 1) * (crowding + 1):
        drawable[:] = allowed
        return
    for p in range(N):
        drawable[p] = allowed[p] and _has_clique(graph, allowed & graph[p], need - 1)


@compiled
@no_type_check
def _crowding(graph):
    """The most positions that any one position rules out."""
    N = len(graph)
    most = 0
    for p in range(N):
        ruled_out = -1  # itself
        for q in range(N):
            ruled_out += not graph[p, q]
        most = max(most, ruled_out)
    return most


@compiled
@no_type_check
def _set_propensity(weight, graph, crowding, card, mass, allowed, drawable):
    """mass[S], S a set of card members as bits: the probability that the first |S| draws are exactly S."""
    k = len(card)
    mass[:] = 0.0
    mass[0] = 1.0
    for prefix in range((1 << k) - 1):
        if mass[prefix] == 0.0:
            continue
        drawn = 0
        allowed[:] = True
        for a in range(k):
            if prefix >> a & 1:
                drawn += 1
                allowed &= graph[card[a]]
        _drawable(graph, allowed, crowding, k - drawn, drawable)
        total = 0.0
        for p in range(len(weight)):
            if drawable[p]:
                total += weight[p]
        for a in range(k):
            if not prefix >> a & 1 and drawable[card[a]]:
                mass[prefix | 1 << a] += mass[prefix] * weight[card[a]] / total
    return mass[(1 << k) - 1]


@compiled
@no_type_check
def _show(uniform, weight, graph, card, propensity):
    B, N = weight.shape
    k = card.shape[1]
    allowed, drawable = np.empty(N, np.bool_), np.empty(N, np.bool_)
    mass = np.empty(1 << k)
    for b in range(B):
        crowding = _crowding(graph[b])
        allowed[:] = True
        feasible = True
        for step in range(k):
            _drawable(graph[b], allowed, crowding, k - step, drawable)
            total = 0.0
            for p in range(N):
                if drawable[p]:
                    total += weight[b, p]
            feasible = total > 0.0
            if not feasible:
                break
            threshold = uniform[b, step] * total
            pick = -1
            reached = 0.0
            for p in range(N):
                if drawable[p]:
                    pick = p
                    reached += weight[b, p]
                    if reached > threshold:
                        break
            card[b, step] = pick
            allowed &= graph[b, pick]
        propensity[b] = (
            _set_propensity(weight[b], graph[b], crowding, card[b], mass, allowed, drawable)
            if feasible
            else 0.0
        )


@compiled
@no_type_check
def _propensities(weight, graph, card, propensity):
    B, N = weight.shape
    allowed, drawable = np.empty(N, np.bool_), np.empty(N, np.bool_)
    mass = np.empty(1 << card.shape[1])
    for b in range(B):
        propensity[b] = _set_propensity(
            weight[b], graph[b], _crowding(graph[b]), card[b], mass, allowed, drawable
        )
