"""What production did in a world: retrieval of candidates, the logging policy and its propensities, clicks.

Knows the truth only as far as production does: through a noisy score of each item. Clicks follow the truth.
"""

from __future__ import annotations

from typing import NamedTuple, no_type_check

import numpy as np
from jaxtyping import Bool, Float64, Int64

from exactk.data.world_catalogue import Shelves
from exactk.problem.bits import compiled

RETRIEVAL_FOCUS = 1.0  # a category is drawn in proportion to exp(FOCUS <taste, centre>)
RETRIEVAL_ROUNDS = 3  # of this many random products of the category, the one nearest the taste is taken
SHOWN_LISTINGS = 4  # at most so many listings of one product
PRODUCTION_NOISE = 0.5  # of the production score, in log-odds
SHARPNESS = 1.5  # of the logging policy: choice in proportion to exp(SHARPNESS * score)


def retrieve(
    rng: np.random.Generator,
    taste: Float64[np.ndarray, "B D"],
    centre: Float64[np.ndarray, "C D"],
    style: np.ndarray,
    shelf: Shelves,
    n: int,
) -> Int64[np.ndarray, "B N"]:
    """N distinct items for each user: categories by taste, then products near the taste, with their near-duplicates."""
    affinity = np.exp(RETRIEVAL_FOCUS * taste @ centre.T) * (np.diff(shelf.category_start) > 0)
    ladder = np.cumsum(affinity / affinity.sum(axis=1, keepdims=True), axis=1)  # B C
    found = np.empty((len(taste), n), np.int64)
    _retrieve(rng, taste, ladder, style, shelf.category_start, shelf.families, shelf.family_start, found)
    return found


class Shown(NamedTuple):
    """Cards as positions in the order they were drawn, and the probability of each as a set."""

    card: Int64[np.ndarray, "B K"]
    propensity: Float64[np.ndarray, "B"]


def show(
    rng: np.random.Generator, scores: Float64[np.ndarray, "B N"], graph: Bool[np.ndarray, "B N N"], k: int
) -> Shown:
    """Draw a valid card for each request, item by item in proportion to exp(score).

    An item may be drawn when it is allowed beside all those drawn before it and a valid card can still be completed.
    The propensity of a card is summed over all orders in which it could have been drawn, so over all valid cards of a
    request it sums to one. A request without any valid card gets propensity 0.
    """
    B = len(scores)
    weight = np.exp(scores - scores.max(axis=1, keepdims=True))
    card, propensity = np.zeros((B, k), np.int64), np.empty(B)
    _show(rng.random((B, k)), weight, graph, card, propensity)
    return Shown(card, propensity)


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
def _retrieve(rng, taste, ladder, style, category_start, families, family_start, found):
    B, n = found.shape
    num_items = len(style)
    for b in range(B):
        filled = 0
        misses = 0
        while filled < n:
            category = min(np.searchsorted(ladder[b], rng.random()), len(category_start) - 2)
            low, high = category_start[category], category_start[category + 1]
            best, best_score = -1, -np.inf
            for _ in range(RETRIEVAL_ROUNDS if high > low else 0):
                family = families[low + int(rng.random() * (high - low))]
                score = 0.0
                for d in range(taste.shape[1]):
                    score += taste[b, d] * style[family_start[family], d]
                if score > best_score:
                    best, best_score = family, score
            if best >= 0 and misses < 4 * n:
                first = family_start[best]
                listings = min(family_start[best + 1] - first, SHOWN_LISTINGS)
            else:  # a small shop whose best shelves are empty by now: fill up with anything
                first = int(rng.random() * num_items)
                listings = 1
            before = filled
            for item in range(first, first + listings):
                if filled < n and not np.any(found[b, :filled] == item):
                    found[b, filled] = item
                    filled += 1
            if filled == before:
                misses += 1
        for a in range(n - 1, 0, -1):  # so that neighbours in the catalogue are none among the candidates
            c = int(rng.random() * (a + 1))
            found[b, a], found[b, c] = found[b, c], found[b, a]


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
