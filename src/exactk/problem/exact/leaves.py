"""Full cards: the best found so far and the rule for equals; under a brief put into order, weighed, and offered.

Knows no bounds. Of equal cards the one whose ascending places come first wins; weights within `slack` of each other,
what rounding can do to a sum, are equal. Under a brief cards are weighed in positions, by the weights as they were
given: what prices moved for the search's sake is not in them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from exactk.problem.exact.bits import compiled_inside, compiled_within, seconds
from exactk.problem.exact.levels import ADDS, OPEN, reaches, row_at, who_is
from exactk.problem.exact.places import best_order, best_row
from exactk.problem.exact.setup import ascend, overflows
from exactk.problem.exact.wants import keeps_wants, owed, wear

# Of the sizes of all weights on a card: bounds are sums of several such, and must stay finite.
LARGEST_SUM = 1e300
# In place of a second position, where a fault is reported: no single weight is bad, their sum is.
TOO_LARGE = -2


@compiled_inside
def comes_before(card, other):
    """Whether one ascending card precedes another in dictionary order: [0, 5] before [1, 2]."""
    for k in range(len(card)):
        if card[k] != other[k]:
            return card[k] < other[k]
    return False


class Best(NamedTuple):
    """The best cards found so far, best first."""

    cards: np.ndarray  # n, picks: ascending
    weights: np.ndarray  # n
    num: np.ndarray  # 1: how many there are
    slack: float


@compiled_inside
def bar_of(best):
    """The weight a card must reach to be among the best: -inf until there are as many as asked for."""
    n = len(best.weights)
    return best.weights[n - 1] if best.num[0] == n else -np.inf


@compiled_inside
def offer(best, card, weight):
    """Sort `card` and put it in its place among the best."""
    size = len(card)
    ascend(card, size)
    n, found = len(best.weights), best.num[0]
    at = found
    while at > 0:
        ahead = weight - best.weights[at - 1]
        if not (ahead > best.slack or (ahead >= -best.slack and comes_before(card, best.cards[at - 1]))):
            break
        at -= 1
    if at == n:
        return
    for k in range(min(found, n - 1), at, -1):
        best.weights[k] = best.weights[k - 1]
        for e in range(size):
            best.cards[k, e] = best.cards[k - 1, e]
    best.weights[at] = weight
    for e in range(size):
        best.cards[at, e] = card[e]
    best.num[0] = min(found + 1, n)


@compiled_inside
def comes_too_late(taken, num_taken, others, num_others, left, last, scratch):
    """Whether every card made of all `taken` and `left` of the `others` comes no earlier than the card `last`.

    The earliest conceivable such card, `taken` with the `left` lowest others, is compared; whether it is valid
    does not matter, since any other of them is at least as late.
    """
    size = num_taken
    for k in range(size):
        at = k
        while at > 0 and scratch[at - 1] > taken[k]:
            scratch[at] = scratch[at - 1]
            at -= 1
        scratch[at] = taken[k]
    # The lowest others, kept sorted behind the taken ones; then both runs are merged while comparing.
    lowest = 0
    for k in range(num_others):
        value = others[k]
        if lowest == left and (left == 0 or value >= scratch[size + lowest - 1]):
            continue
        if lowest < left:
            lowest += 1
        at = size + lowest - 1
        while at > size and scratch[at - 1] > value:
            scratch[at] = scratch[at - 1]
            at -= 1
        scratch[at] = value
    a, b = 0, size
    for k in range(size + left):
        if b == size + lowest or (a < size and scratch[a] < scratch[b]):
            value = scratch[a]
            a += 1
        else:
            value = scratch[b]
            b += 1
        if value != last[k]:
            return value > last[k]
    return True


class Shelf(NamedTuple):
    """What the cards of one request are weighed by, in positions."""

    node: np.ndarray
    joint: np.ndarray  # pair weights less what pairs that clash cost each; 0 0 where nothing weighs
    clash: np.ndarray
    clash_of: np.ndarray
    eligible: np.ndarray
    slot_weight: np.ndarray
    slot_score: np.ndarray
    follows: np.ndarray
    flat: bool  # every place is worth the same


class Leaf(NamedTuple):
    """Scratch of weighing a card."""

    card: np.ndarray  # its picks, ascending
    full: np.ndarray  # positions, what must be held first
    order: np.ndarray  # positions by place
    sums: np.ndarray  # of rows
    clashing: np.ndarray  # of preferences
    broken: np.ndarray


@compiled_within
def leaf_of(w, left):
    """Room for cards of `left` picks."""
    M, P = len(w.lower), len(w.worth)
    return Leaf(
        np.empty(left, np.int64), np.empty(w.size, np.int64), np.empty(w.size, np.int64), np.zeros(M, np.int64),
        np.zeros(P, np.int64), np.zeros(P, np.int64),
    )  # fmt: skip


@compiled_within
def joint_weights(pair, clash, clash_of, worth, once, joint):
    """Pair weights (0 0: none) less the price of clashes that cost each: `pair` itself where there are none."""
    priced = False
    for c in range(len(clash_of)):
        priced = priced or not once[clash_of[c]]
    if not priced:
        return pair
    N = len(joint)
    for p in range(N):
        for q in range(N):
            joint[p, q] = pair[p, q] if len(pair) else 0.0
        for c in range(len(clash_of)):
            price = 0.0 if once[clash_of[c]] else worth[clash_of[c]]
            for q in range(N):
                joint[p, q] -= price if clash[c, p, q] else 0.0
    return joint


@compiled_within
def arranged(shelf, card, order):
    """Put a card into its best order (`order`: positions by place); returns its worth by nodes, -inf if none fits."""
    K = len(card)
    worth, may = np.empty((K, K)), np.zeros(K, np.uint64)
    for i in range(K):
        for s in range(K):
            worth[s, i] = shelf.node[card[i]] * shelf.slot_weight[s] + shelf.slot_score[s, card[i]]
            may[i] |= np.uint64(shelf.eligible[s, card[i]]) << np.uint64(s)
    places = np.empty(K, np.int64)
    total = best_order(worth, may, places)
    if total > -np.inf and len(shelf.follows):
        beside = np.empty((K, K), np.bool_)
        for i in range(K):
            for j in range(K):
                beside[i, j] = shelf.follows[0, card[i], card[j]]
        total = best_row(worth, may, beside, places)
    if total > -np.inf:
        for s in range(K):
            order[s] = card[places[s]]
    return total


@compiled_inside
def count_clashes(shelf, once, taken, num_taken, p, clashing):
    """Count the pairs of position p with what is taken that clash, for preferences that cost once."""
    for c in range(len(shelf.clash_of)):
        if once[shelf.clash_of[c]]:
            for k in range(num_taken):
                clashing[shelf.clash_of[c]] += shelf.clash[c, taken[k], p]


@compiled_inside
def weigh_card(shelf, w, row_sums, leaf, bar):
    """The worth of the card `leaf.full` that keeps its rules, summed in its order; -inf where its places do not fit.

    Stops early, below `bar`, where even without broken preferences it would stay there.
    """
    K = len(leaf.full)
    total = 0.0
    if w.places:
        total = arranged(shelf, leaf.full, leaf.order)
        if total == -np.inf:
            return total
    else:
        for k in range(K):
            total += shelf.node[leaf.full[k]]
    pairs = 0.0
    for k in range(K if len(shelf.joint) else 0):
        for e in range(k):
            pairs += shelf.joint[leaf.full[e], leaf.full[k]]
    total += pairs
    if len(w.worth) == 0 or total < bar:
        return total
    for p in range(len(w.worth)):
        leaf.clashing[p] = 0
    for k in range(1, K):
        count_clashes(shelf, w.once, leaf.full, k, leaf.full[k], leaf.clashing)
    for r in range(len(w.lower)):
        w.low[r], w.high[r] = row_sums[r], row_sums[r]
    for v in range(len(w.least)):
        w.fresh[v] = 0
    return total - owed(w, 0, leaf.clashing, leaf.broken)


@compiled_inside
def offer_leaf(shelf, w, small, leaf, picks, row_sums, best):
    """Offer a full card (rows counted, values worn) if it keeps everything.

    A card is kept as its picks, ascending, without what must be held.
    """
    if not keeps_wants(w, row_sums):
        return
    held, left = len(small.must), len(leaf.card)
    for k in range(left):
        leaf.card[k] = picks[k]
    ascend(leaf.card, left)
    for k in range(held + left):
        leaf.full[k] = small.must[k] if k < held else small.position[leaf.card[k - held]]
    low = bar_of(best) - best.slack
    weight = weigh_card(shelf, w, row_sums, leaf, low)
    if weight > -np.inf and weight >= low:
        offer(best, leaf.card, weight)


@compiled_inside
def offer_with(shelf, w, small, leaf, picks, last, row_sums, best):
    """Offer the card of `picks` whose last `last` have not been counted yet."""
    left = len(picks)
    for r in range(len(w.lower)):
        leaf.sums[r] = row_sums[r]
        for k in range(left - last, left):
            leaf.sums[r] += w.coefficient[r, picks[k]]
        if w.row_of[r] < 0 and not w.lower[r] <= leaf.sums[r] <= w.upper[r]:
            return
    for k in range(left - last, left):
        wear(w, picks[k], 1)
    offer_leaf(shelf, w, small, leaf, picks, leaf.sums, best)
    for k in range(left - last, left):
        wear(w, picks[k], -1)


@compiled_inside
def offer_pairs(
    shelf, w, small, leaf, levels, d, num, total, cost, picks, row_sums, first_only, deadline, best
):  # fmt: skip
    """Complete the picks with every allowed pair of what is open at depth d that may be among the best.

    Returns whether all were tried, or enough: where neighbours matter, each takes long.
    """
    left = len(picks)
    heap, values, names = levels.heap, levels.values, levels.names
    low = bar_of(best) - best.slack + cost
    pace, tried = 1 if len(shelf.follows) else 64, 0
    for x in range(num - 1):
        if x % 64 == 63 and seconds() > deadline:
            return False
        a = names[OPEN, d, x]
        at, base = row_at(levels, d, a), total + values[ADDS, d, a]
        if not reaches(levels, d, a, low - base):
            continue
        picks[left - 2] = who_is(levels, d, a)
        for y in range(x + 1, num):
            b = names[OPEN, d, y]
            if not base + values[ADDS, d, b] + heap[at + b] > low:
                continue
            picks[left - 1] = who_is(levels, d, b)
            if overflows(small, picks[left - 2], picks[left - 1]):
                continue
            tried += 1
            if tried % pace == 0 and seconds() > deadline:
                return False
            offer_with(shelf, w, small, leaf, picks, 2, row_sums, best)
            low = bar_of(best) - best.slack + cost
            if first_only and best.num[0] == len(best.weights):
                return True
    return True
