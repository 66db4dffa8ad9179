"""The best cards found so far, and the rule for equals: the card whose ascending places come first wins.

Knows neither graph nor search, nor in which order candidates were placed.
Weights within `slack` of each other, what rounding can do to a sum, count as equal.
"""

from __future__ import annotations

from typing import no_type_check

from exactk.problem.exact.bits import compiled

LARGEST_SUM = (
    1e300  # of the sizes of all weights on a card: bounds are sums of several such, and must stay finite
)
TOO_LARGE = (
    -2
)  # in place of a second position, where a fault is reported: no single weight is bad, their sum is


@compiled
@no_type_check
def comes_before(card, other):
    """Whether one ascending card precedes another in dictionary order: [0, 5] before [1, 2]."""
    for k in range(len(card)):
        if card[k] != other[k]:
            return card[k] < other[k]
    return False


@compiled
@no_type_check
def offer(cards, weights, found, slack, card, weight):
    """Sort `card` and put it in its place among the best; returns how many are held now."""
    size = len(card)
    for k in range(1, size):
        moving = card[k]
        at = k
        while at > 0 and card[at - 1] > moving:
            card[at] = card[at - 1]
            at -= 1
        card[at] = moving
    n = len(weights)
    at = found
    while at > 0:
        ahead = weight - weights[at - 1]
        if not (ahead > slack or (ahead >= -slack and comes_before(card, cards[at - 1]))):
            break
        at -= 1
    if at == n:
        return found
    for k in range(min(found, n - 1), at, -1):
        weights[k] = weights[k - 1]
        for e in range(size):
            cards[k, e] = cards[k - 1, e]
    weights[at] = weight
    for e in range(size):
        cards[at, e] = card[e]
    return min(found + 1, n)


@compiled
@no_type_check
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
