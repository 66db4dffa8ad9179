"""Branch and bound for the cards with the largest sum of node weights and pair weights.

Knows who is open at each level and what they can be worth from `levels.py`, and no rules but pairs and caps.
`docs/decisions/0002-exact-engine.md` and `0019-briefs.md` say what else was tried.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from exactk.problem.exact.bits import compiled_inside, compiled_within, seconds
from exactk.problem.exact.exists import FOUND, NONE, find_any
from exactk.problem.exact.leaves import LARGEST_SUM, TOO_LARGE, Best, bar_of, comes_too_late, offer
from exactk.problem.exact.levels import (
    ADDS,
    HOPE,
    OPEN,
    ORDER,
    PAD,
    ROWS,
    WORK,
    beside,
    descend,
    first_matrix,
    keep_open,
    levels_of,
    reaches,
    row_at,
    take_worthiest,
    tighten,
    top_worths,
    who_is,
)
from exactk.problem.exact.setup import (
    count_in,
    has_bad,
    is_full,
    members,
    overflows,
    pair_matrix,
    put_back,
    small_of,
)
from exactk.problem.exact.start import SHARE, good_card, wander

LOOK_EVERY = 50_000  # numbers looked at between looks at the clock: some ten microseconds
# Numbers looked at before a better card is sought, and again when they are four times as many.
BETTER_FROM = 500_000


class Path(NamedTuple):
    """Where a search stands, by depth."""

    num: np.ndarray  # how many are open
    sums: np.ndarray  # what the card begun weighs
    costs: np.ndarray  # what broken preferences will cost it at least
    picks: np.ndarray
    card: np.ndarray  # scratch
    scratch: np.ndarray


@compiled_within
def path_of(left):
    """Before the first of `left` picks."""
    return Path(
        np.zeros(left, np.int64), np.zeros(left), np.zeros(left), np.empty(left, np.int64), np.empty(left, np.int64),
        np.empty(left + 1, np.int64),
    )  # fmt: skip


@compiled_inside
def offer_last_two(levels, d, num, small, total, picks, best, card):
    """Complete the picks with every allowed pair of what is open at depth d that may be among the best."""
    size = len(card)
    low = bar_of(best) - best.slack
    heap, values, names = levels.heap, levels.values, levels.names
    for x in range(num - 1):
        a = names[OPEN, d, x]
        at = row_at(levels, d, a)
        base = total + values[ADDS, d, a]
        if not reaches(levels, d, a, low - base):
            continue
        for y in range(x + 1, num):
            b = names[OPEN, d, y]
            weight = base + values[ADDS, d, b] + heap[at + b]
            if weight > low:
                i, j = who_is(levels, d, a), who_is(levels, d, b)
                if not overflows(small, i, j):
                    for k in range(size - 2):
                        card[k] = picks[k]
                    card[size - 2] = i
                    card[size - 1] = j
                    offer(best, card, weight)
                    low = bar_of(best) - best.slack


@compiled_inside
def come_too_late(levels, d, num, picks, num_picks, left, last, scratch):
    """Whether no card of the picks and `left` of what is open at depth d comes before the card `last`."""
    for x in range(num):
        levels.names[ORDER, 0, x] = who_is(levels, d, levels.names[OPEN, d, x])
    return comes_too_late(picks, num_picks, levels.names[ORDER, 0], num, left, last, scratch)


@compiled_inside
def bound_of_rest(levels, depth, path):
    """The most that any card in the open branches of all levels may weigh, each with its own best first pick."""
    bound, left = -np.inf, len(path.picks)
    for d in range(depth + 1):
        num, need, sums = path.num[d], left - d, path.sums[d] - path.costs[d]
        while num >= need and sums + top_worths(levels, d, num, need) > bound:
            c = take_worthiest(levels, d, num)
            num -= 1
            most, _ = beside(levels, d, c, need - 1, HOPE, d)
            bound = max(bound, sums + levels.values[ADDS, d, c] + most)
    return bound


@compiled_inside
def drop_full(levels, d, num, small):
    """Close who is of a group that is full now; returns how many stay."""
    stay = 0
    for x in range(num):
        y = levels.names[OPEN, d, x]
        if not is_full(small, who_is(levels, d, y)):
            levels.names[OPEN, d, stay] = y
            stay += 1
    keep_open(levels, d, stay)
    return stay


@compiled_inside
def branch(levels, pairs, first_adds, small, total, deadline, best, path):
    """Search all cards of three picks or more; returns (a bound on what was not searched, whether all was).

    At each level the candidates are picked by falling worth, each beside those left.
    """
    left, values, shape = levels.shape.shape[1], levels.values, levels.shape
    num, sums, picks = path.num, path.sums, path.picks
    card, scratch, last = path.card, path.scratch, best.cards[len(best.cards) - 1]
    look_at, better_at = LOOK_EVERY, BETTER_FROM
    num[0], sums[0] = shape[ROWS, 0], total
    depth = 0
    entering = True
    while depth >= 0:
        need = left - depth
        total = sums[depth]
        low, high = bar_of(best) - best.slack, bar_of(best) + best.slack
        if entering:
            entering = False
            num[depth] = tighten(levels, depth, num[depth], need, low - total)
        most = total + top_worths(levels, depth, num[depth], need) if num[depth] >= need else -np.inf
        # "Not above" and not "at most": a sum that is no number ends the branch, too.
        if not most > low or (
            most <= high and come_too_late(levels, depth, num[depth], picks, depth, need, last, scratch)
        ):
            depth -= 1
            if depth >= 0:
                put_back(picks[depth], small.label, small.used)
            continue
        shape[WORK, 0] += PAD
        if shape[WORK, 0] > look_at:
            look_at = shape[WORK, 0] + LOOK_EVERY
            if seconds() > deadline:
                return max(bar_of(best), bound_of_rest(levels, depth, path)), False
        if shape[WORK, 0] > better_at and len(best.weights) == 1 and best.num[0] == 1:
            better_at *= 4
            offer_better(levels, pairs, first_adds, small, sums[0], deadline, best)
            continue
        c = take_worthiest(levels, depth, num[depth])
        num[depth] -= 1
        picks[depth] = who_is(levels, depth, c)
        total += values[ADDS, depth, c]
        most, least = beside(levels, depth, c, need - 1, HOPE, depth)
        if not total + most > low or (
            total + most <= high
            and come_too_late(levels, depth, num[depth], picks, depth + 1, need - 1, last, scratch)
        ):
            continue
        stay = descend(levels, depth, c, num[depth], low - total - (most - least), HOPE, depth)
        if stay < need - 1:
            continue
        count_in(picks[depth], small.label, small.used)
        if small.label.shape[0] > 0:
            stay = drop_full(levels, depth + 1, stay, small)
        if need == 3:
            offer_last_two(levels, depth + 1, stay, small, total, picks, best, card)
        if need == 3 or stay < need - 1:
            put_back(picks[depth], small.label, small.used)
            continue
        depth += 1
        num[depth], sums[depth] = stay, total
        entering = True
    return bar_of(best), True


@compiled_within
def offer_better(levels, pairs, first_adds, small, total, deadline, best):
    """Spend a share of the work so far on a card better than the best one."""
    left = levels.shape.shape[1]  # cards have room for what must be held, too
    picks, card = best.cards[0, :left].copy(), np.empty(left, np.int64)
    moves = levels.shape[WORK, 0] // (SHARE * len(picks) * len(pairs)) + len(picks)
    start = sum_of(pairs, first_adds, picks)
    wander(pairs, small, first_adds, best.slack, start, picks, moves, moves, deadline)
    offer_picks(picks, total + sum_of(pairs, first_adds, picks), best, card)


@compiled_within
def offer_picks(picks, weight, best, card):
    """Offer a copy of the picks, which are left as they are."""
    for k in range(len(picks)):
        card[k] = picks[k]
    offer(best, card, weight)


@compiled_within
def sum_of(pairs, first_adds, picks):
    """What these candidates add to a card."""
    total = 0.0
    for k in range(len(picks)):
        total += first_adds[picks[k]]
        for other in range(k):
            total += pairs[picks[k], picks[other]]
    return total


@compiled_within
def add_up(node, pair, must, held, position, m, first_adds):
    """(sum of what must be held, its size), and what every candidate adds to it."""
    total, scale = 0.0, 0.0
    for k in range(held):
        adds = node[must[k]]
        for e in range(k):
            adds += pair[must[k], must[e]]
        total += adds
        scale += abs(adds)
    for i in range(m):
        first_adds[i] = node[position[i]]
        for k in range(held):
            first_adds[i] += pair[position[i], must[k]]
    return total, scale


@compiled_within
def search_pairs(
    graph, node, pair, must, held, position, m, left, group, cap, deadline, cards, weights, fault
):
    """Fill the best cards; returns (how many were found, a bound on what was not searched, whether all was).

    A card is written as the places of its picks in `position`, without what must be held. A pair weight that is not
    finite or not symmetric is named in `fault`, and so is the largest where sums could overflow: nothing is searched.
    """
    num = np.zeros(1, np.int64)
    card, first_adds = np.empty(left, np.int64), np.empty(m)
    if has_bad(pair, must, held, position, m, fault):
        return 0, 0.0, False
    total, scale = add_up(node, pair, must, held, position, m, first_adds)
    heap, pairs = first_matrix(m if left > 0 else 0)
    small = small_of(group, cap, must, held, position, m, left)
    largest, largest_add = 0.0, 0.0
    if left > 0:
        largest = pair_matrix(graph, pair, position, m, small.label, small.room, pairs, fault)
        if np.isnan(largest):
            return 0, 0.0, False
    for i in range(m if left > 0 else 0):
        largest_add = max(largest_add, abs(first_adds[i]))
    scale += left * largest_add + left * (left - 1) / 2 * largest
    if not scale <= LARGEST_SUM:
        fault[0], fault[1] = 0, TOO_LARGE
        return 0, 0.0, False
    size = held + left
    best = Best(cards, weights, num, scale * (size * size + 8) * 2.3e-16)  # the rounding of as many additions
    if left < 3:
        offer_few(heap, first_adds, small, largest, total, best, card)
        return num[0], bar_of(best) if left > 0 else -np.inf, True
    status = FOUND
    if len(weights) > 1 or not good_card(pairs, small, first_adds, best.slack, deadline, card):
        group_bits = members(small.label, len(small.room), m, (m + 63) >> 6)
        status = find_any(graph, position, m, left, small.label, small.room, group_bits, deadline, card)
        if status == NONE:
            return 0, -np.inf, True
    if status == FOUND and len(weights) == 1:
        offer_picks(card, total + sum_of(pairs, first_adds, card), best, np.empty(left, np.int64))
    levels = levels_of(heap, first_adds, largest, False, left)
    bound, complete = branch(levels, pairs, first_adds, small, total, deadline, best, path_of(left))
    return num[0], bound, complete


@compiled_within
def offer_few(heap, first_adds, small, largest, total, best, card):
    """Offer all cards of two picks, one, or none."""
    left = len(card)
    if left == 0:
        offer(best, card, total)
    if left == 1:
        for i in range(len(first_adds)):
            card[0] = i
            offer(best, card, total + first_adds[i])
    if left == 2:
        levels = levels_of(heap, first_adds, largest, False, left)
        offer_last_two(levels, 0, len(first_adds), small, total, np.empty(0, np.int64), best, card)
