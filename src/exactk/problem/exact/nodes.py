"""Branch and bound for the cards with the largest sum of node weights.

Knows no pair weights. Candidates are renumbered heaviest first, so that the first bits of a set are its heaviest.
"""

from __future__ import annotations

import numpy as np

from exactk.problem.exact.bits import (
    ONE,
    compiled,
    compiled_within,
    falling_order,
    first_bits,
    first_of,
    lowest_bit,
    seconds,
    without,
)
from exactk.problem.exact.leaves import LARGEST_SUM, TOO_LARGE, Best, bar_of, comes_too_late, offer
from exactk.problem.exact.setup import binding_groups, join_row, members, put_back, take

# Steps before colouring is tried, with a card in hand and without: most searches end within them, and a step with
# colouring costs several times as much.
PLAIN_STEPS, PLAIN_STEPS_WITHOUT_CARD = 2000, 32


@compiled
def heaviest(bits, value, left):
    """The sum of the `left` heaviest of a set; -inf where it has fewer."""
    total = 0.0
    for w in range(len(bits)):
        word = bits[w]
        while word:
            total += value[w * 64 + np.int64(lowest_bit(word))]
            left -= 1
            if left == 0:
                return total
            word &= word - ONE
    return -np.inf


@compiled
def heaviest_by_colour(rows, bits, value, left, uncoloured, colour):
    """A tighter sum: the heaviest of each of the first `left` colours. Non-neighbours share a colour.

    A clique takes at most one candidate of each colour, and colours are opened by falling weight.
    """
    num_words = len(bits)
    for w in range(num_words):
        uncoloured[w] = bits[w]
    total = 0.0
    while True:
        i = first_of(uncoloured)
        if i < 0:
            return -np.inf
        total += value[i]
        left -= 1
        if left == 0:
            return total
        start = i >> 6
        for w in range(start, num_words):
            colour[w] = uncoloured[w]
        for w in range(start, num_words):
            while colour[w]:
                bit = lowest_bit(colour[w])
                uncoloured[w] &= ~(ONE << bit)
                colour[w] &= ~(ONE << bit)
                for later in range(w, num_words):
                    colour[later] &= ~rows[w * 64 + np.int64(bit), later]


@compiled_within
def among_equals(bits, value, index, need, least, slack, taken, num_taken, others):
    """Part a set, whose `need` heaviest hardly reach `least`: what no card that reaches it does without, and the rest.

    The former is put behind the `num_taken` taken, those of the rest that such a card may hold in `others`. Returns
    (how many others, how many needed): of 5 5 3 3 3 1 with need 3 and least 13, both 5 are needed, the others 3 3 3.
    """
    most = 0.0
    # The values of the lightest that is among the heaviest, and of the next.
    last, following = -np.inf, -np.inf
    count = 0
    for w in range(len(bits)):
        word = bits[w]
        while word and count <= need:
            i = w * 64 + np.int64(lowest_bit(word))
            word &= word - ONE
            if count < need:
                most += value[i]
                last = value[i]
            else:
                following = value[i]
            count += 1
    num = needed = count = 0
    for w in range(len(bits)):
        word = bits[w]
        while word:
            i = w * 64 + np.int64(lowest_bit(word))
            word &= word - ONE
            if count < need and most - value[i] + following < least - slack:
                taken[num_taken + needed] = index[i]
                needed += 1
            elif count < need or most - last + value[i] >= least - slack:
                others[num] = index[i]
                num += 1
            else:
                return num, needed
            count += 1
    return num, needed


@compiled_within
def search_nodes(graph, node, must, held, position, m, left, group, cap, deadline, cards, weights, fault):
    """Fill the best cards; returns (how many were found, a bound on what was not searched, whether all was).

    A card is written as the places of its picks in `position`, without what must be held. Weights whose sums could
    overflow are reported in `fault`, and nothing is searched.
    """
    size = held + left
    taken, card = np.empty(left, np.int64), np.empty(left, np.int64)
    total = 0.0
    scale = 0.0
    for k in range(held):
        total += node[must[k]]
        scale += abs(node[must[k]])
    if left > 0:
        largest = 0.0
        for i in range(m):
            largest = max(largest, abs(node[position[i]]))
        scale += left * largest
    if not scale <= LARGEST_SUM:
        fault[0], fault[1] = 0, TOO_LARGE
        return 0, 0.0, False
    slack = scale * (size + 8) * 2.3e-16  # the rounding of as many additions
    best = Best(cards, weights, np.zeros(1, np.int64), slack)
    if left == 0:
        offer(best, taken, total)
        return best.num[0], -np.inf, True
    own, index = np.empty(m), np.empty(m, np.int64)  # index: heaviest first, then as they come
    for i in range(m):
        own[i] = node[position[i]]
        index[i] = i
    falling_order(own, index, m)
    place, value = np.empty(m, np.int64), np.empty(m)
    for i in range(m):
        place[i] = position[index[i]]
        value[i] = own[index[i]]
    num_words = (m + 63) >> 6
    label, room = binding_groups(group, cap, must, held, place, m, left)
    group_bits = members(label, len(room), m, num_words)
    used = np.zeros(len(room), np.int64)
    rows = np.empty((m, num_words), np.uint64)
    built = np.zeros(m, np.bool_)
    all_built = False
    rest = np.empty((left, num_words), np.uint64)
    first_bits(m, rest[0])
    sums = np.empty(left)
    sums[0] = total
    picks = np.empty(left, np.int64)
    uncoloured, colour = np.empty(num_words, np.uint64), np.empty(num_words, np.uint64)
    others, scratch = np.empty(m, np.int64), np.empty(left + 1, np.int64)
    steps = 0
    depth = 0
    while depth >= 0:
        need = left - depth
        total = sums[depth]
        bar = bar_of(best)
        bound = total + heaviest(rest[depth], value, need)
        plain_steps = PLAIN_STEPS if best.num[0] > 0 else PLAIN_STEPS_WITHOUT_CARD
        if bound > bar - slack and need > 2 and steps > plain_steps:
            if not all_built:
                for i in range(m):
                    if not built[i]:
                        join_row(graph, place, m, label, room, group_bits, i, rows[i])
                        built[i] = True
                all_built = True
            bound = total + heaviest_by_colour(rows, rest[depth], value, need, uncoloured, colour)
        hopeless = not bound > bar - slack  # so put, a sum that is no number ends the branch, too
        if not hopeless and bound <= bar + slack:
            num, needed = among_equals(
                rest[depth], value, index, need, bar - slack - total, slack, taken, depth, others
            )
            hopeless = comes_too_late(taken, depth + needed, others, num, need - needed, cards[-1], scratch)
        if hopeless or bound == -np.inf:
            depth -= 1
            if depth >= 0:
                put_back(picks[depth], label, used)
            continue
        i = first_of(rest[depth])
        without(rest[depth], i)
        taken[depth] = index[i]
        if need == 1:
            for k in range(left):
                card[k] = taken[k]
            offer(best, card, total + value[i])
            continue
        steps += 1
        if steps % 256 == 0 and seconds() > deadline:
            bound = bar
            for d in range(depth + 1):
                if d == depth:
                    rest[d, i >> 6] |= ONE << np.uint64(i & 63)
                bound = max(bound, sums[d] + heaviest(rest[d], value, left - d))
            return best.num[0], bound, False
        if not built[i]:
            join_row(graph, place, m, label, room, group_bits, i, rows[i])
            built[i] = True
        for w in range(num_words):
            rest[depth + 1, w] = rest[depth, w] & rows[i, w]
        take(i, label, room, used, group_bits, rest[depth + 1])
        picks[depth] = i
        depth += 1
        sums[depth] = total + value[i]
    return best.num[0], bar_of(best), True
