"""The best cards found so far, and the rule for equals: the card whose ascending places come first wins.

Knows neither graph nor search, nor in which order candidates were placed.
Weights within `slack` of each other, what rounding can do to a sum, count as equal.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from exactk.problem.exact.bits import compiled_inside

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
    for k in range(1, size):
        moving = card[k]
        at = k
        while at > 0 and card[at - 1] > moving:
            card[at] = card[at - 1]
            at -= 1
        card[at] = moving
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
