"""Branch and bound for the cards with the largest sum of node weights and pair weights.

Knows the small problem of `clique_setup.py` as one matrix: `pairs[i, j]`, -inf where i and j may not share a card.
`docs/decisions/0002-exact-engine.md` says what else was tried.
"""

from __future__ import annotations

from typing import no_type_check

import numpy as np

from exactk.problem.exact.bits import compiled, seconds
from exactk.problem.exact.exists import FOUND, NONE, find_any
from exactk.problem.exact.matrix import is_bad, pair_matrix
from exactk.problem.exact.partners import sort_falling, tighten, top_sum
from exactk.problem.exact.ranking import LARGEST_SUM, TOO_LARGE, comes_too_late, offer
from exactk.problem.exact.setup import binding_groups, count_in, members, put_back
from exactk.problem.exact.start import STARTS, STARTS_WHEN_LONG, greedy_starts

LONG = 2048  # steps after which a search counts as long


@compiled
@no_type_check
def overflows(label, room, used, i, j):
    """Whether i and j together are one too many for a group."""
    for c in range(label.shape[0]):
        g = label[c, i]
        if g >= 0 and g == label[c, j] and used[g] + 2 > room[g]:
            return True
    return False


@compiled
@no_type_check
def offer_last_two(
    pairs, label, room, used, names, gain, num, total, slack, taken, cards, weights, found, card
):  # fmt: skip
    """Complete what is taken with every allowed pair that may be among the best; returns how many cards are held."""
    n = len(weights)
    size = len(card)
    low = weights[n - 1] - slack if found == n else -np.inf
    for x in range(num - 1):
        row = pairs[names[x]]
        base = total + gain[x]
        for y in range(x + 1, num):
            weight = base + gain[y] + row[names[y]]
            if weight > low and not overflows(label, room, used, names[x], names[y]):
                for k in range(size - 2):
                    card[k] = taken[k]
                card[size - 2] = names[x]
                card[size - 1] = names[y]
                found = offer(cards, weights, found, slack, card, weight)
                low = weights[n - 1] - slack if found == n else -np.inf
    return found


@compiled
@no_type_check
def offer_picks(picks, weight, slack, cards, weights, found, card):
    """Offer a copy of the picks, which are left as they are; returns how many cards are held."""
    for k in range(len(picks)):
        card[k] = picks[k]
    return offer(cards, weights, found, slack, card, weight)


@compiled
@no_type_check
def most_beside(pairs, names, gain, spare, start, num, need, hopes, top):
    """The most that `need` picks can add, the first of them names[start] or later, the others after the first."""
    most = -np.inf
    for x in range(start, num):
        for y in range(x + 1, num):
            hopes[y - x - 1] = gain[y] + pairs[names[x], names[y]] + spare[y]
        most = max(most, gain[x] + top_sum(hopes, num - x - 1, need - 1, top))
    return most


@compiled
@no_type_check
def branch(pairs, label, room, first_gain, total, slack, deadline, left, cards, weights, found):
    """Search all cards of three picks or more; returns (how many are held, bound on the unsearched, whether all was).

    At each level the candidates are sorted by falling worth and picked in turn, each beside those after it.
    """
    m = len(first_gain)
    n = len(weights)
    names = np.empty((left, m), np.int64)
    gain, worth, spare = np.empty((left, m)), np.empty((left, m)), np.empty((left, m))
    num, cursor = np.zeros(left, np.int64), np.zeros(left, np.int64)
    sums, rests = np.empty(left), np.empty(left)
    partner, strength = np.empty((m, m), np.int32), np.empty((m, m))
    degree, scans = np.full(m, -1, np.int64), np.zeros(m, np.int64)
    inside, hopes, new_gain = np.zeros(m), np.empty(m), np.empty(m)
    order, scratch, merged = np.empty(m, np.int64), np.empty(m), np.empty(left + 1, np.int64)
    used, picks, trial = np.zeros(len(room), np.int64), np.empty(left, np.int64), np.empty(left, np.int64)
    card, top = np.empty(left, np.int64), np.empty(left + 1)
    for i in range(m):
        names[0, i] = i
        gain[0, i] = first_gain[i]
    num[0], sums[0], rests[0] = m, total, np.inf
    depth = 0
    entering = True
    steps = 0
    while depth >= 0:
        need = left - depth
        total = sums[depth]
        bar = weights[n - 1] if found == n else -np.inf
        low, high = bar - slack, bar + slack
        if entering:
            entering = False
            cursor[depth] = 0
            num[depth], most = tighten(
                pairs, partner, strength, degree, scans, inside, names[depth], gain[depth], worth[depth],
                spare[depth], num[depth], need, total, rests[depth], low, top,
            )  # fmt: skip
            sort_falling(names[depth], gain[depth], worth[depth], spare[depth], num[depth], order, scratch)
        start = cursor[depth]
        bound = total
        for k in range(start, start + need):
            bound += worth[depth, k] if k < num[depth] else -np.inf
        # "Not above" and not "at most": a sum that is no number ends the branch, too.
        if not bound > low or (
            bound <= high
            and comes_too_late(
                picks, depth, names[depth, start:], num[depth] - start, need, cards[n - 1], merged
            )
        ):
            depth -= 1
            if depth >= 0:
                put_back(picks[depth], label, used)
            continue
        steps += 1
        if steps == LONG and n == 1:
            start_sum = greedy_starts(
                pairs, label, room, first_gain, slack, STARTS, STARTS_WHEN_LONG, deadline, trial
            )
            if start_sum > -np.inf:
                found = offer_picks(trial, sums[0] + start_sum, slack, cards, weights, found, card)
            continue
        if steps % 64 == 0 and seconds() > deadline:
            bound = bar
            for d in range(depth + 1):
                over = most_beside(
                    pairs, names[d], gain[d], spare[d], cursor[d], num[d], left - d, hopes, top
                )
                bound = max(bound, sums[d] + over)
            return found, bound, False
        cursor[depth] = start + 1
        i = names[depth, start]
        picks[depth] = i
        beside = num[depth] - start - 1
        total += gain[depth, start]
        for y in range(beside):
            j = names[depth, start + 1 + y]
            new_gain[y] = gain[depth, start + 1 + y] + pairs[i, j]
            hopes[y] = new_gain[y] + spare[depth, start + 1 + y]
        for c in range(label.shape[0]):
            g = label[c, i]
            if g >= 0 and used[g] + 1 >= room[g]:
                for y in range(beside):
                    if label[c, names[depth, start + 1 + y]] == g:
                        hopes[y] = -np.inf
        most = top_sum(hopes, beside, need - 1, top)
        if not total + most > low or (
            total + most <= high
            and comes_too_late(
                picks, depth + 1, names[depth, start + 1 :], beside, need - 1, cards[n - 1], merged
            )
        ):
            continue
        rest = most - top[need - 2]
        stay = 0
        for y in range(beside):
            if total + hopes[y] + rest > low:
                names[depth + 1, stay] = names[depth, start + 1 + y]
                gain[depth + 1, stay] = new_gain[y]
                stay += 1
        if stay < need - 1:
            continue
        count_in(i, label, used)
        if need == 3:
            found = offer_last_two(
                pairs, label, room, used, names[depth + 1], gain[depth + 1], stay, total, slack, picks,
                cards, weights, found, card,
            )  # fmt: skip
            put_back(i, label, used)
            continue
        depth += 1
        num[depth], sums[depth], rests[depth] = stay, total, rest
        entering = True
    return found, weights[n - 1] if found == n else -np.inf, True


@compiled
@no_type_check
def search_pairs(
    graph, node, pair, must, held, position, m, left, group, cap, deadline, cards, weights, fault
):
    """Fill the best cards; returns (how many were found, a bound on what was not searched, whether all was).

    A card is written as the places of its picks in `position`, without what must be held. A pair weight that is not
    finite or not symmetric is named in `fault`, and so is the largest where sums could overflow: nothing is searched.
    """
    size = held + left
    found = np.int64(0)
    slack = 0.0
    card = np.empty(left, np.int64)
    total, scale, largest_gain = 0.0, 0.0, 0.0
    first_gain = np.empty(m)
    for k in range(held):
        gain = node[must[k]]
        for e in range(k):
            gain += pair[must[k], must[e]]
            if is_bad(pair, must[k], must[e]):
                fault[0], fault[1] = must[k], must[e]
                return 0, 0.0, False
        total += gain
        scale += abs(gain)
    for i in range(m):
        first_gain[i] = node[position[i]]
        for k in range(held):
            first_gain[i] += pair[position[i], must[k]]
            if is_bad(pair, position[i], must[k]):
                fault[0], fault[1] = position[i], must[k]
                return 0, 0.0, False
    if left == 0:
        if not scale <= LARGEST_SUM:
            fault[0], fault[1] = 0, TOO_LARGE
            return 0, 0.0, False
        return offer(cards, weights, found, slack, card, total), -np.inf, True
    label, room = binding_groups(group, cap, must, held, position, m, left)
    pairs = np.empty((m, m))
    largest = pair_matrix(graph, pair, position, m, label, room, pairs, fault)
    if np.isnan(largest):
        return 0, 0.0, False
    for i in range(m):
        largest_gain = max(largest_gain, abs(first_gain[i]))
    scale += left * largest_gain + left * (left - 1) / 2 * largest
    if not scale <= LARGEST_SUM:
        fault[0], fault[1] = 0, TOO_LARGE
        return 0, 0.0, False
    slack = scale * (size * size + 8) * 2.3e-16  # the rounding of as many additions
    if left == 1:
        for i in range(m):
            card[0] = i
            found = offer(cards, weights, found, slack, card, total + first_gain[i])
        return found, weights[-1] if found == len(weights) else -np.inf, True
    if left == 2:
        used, names = np.zeros(len(room), np.int64), np.empty(m, np.int64)
        for i in range(m):
            names[i] = i
        found = offer_last_two(
            pairs, label, room, used, names, first_gain, m, total, slack, card, cards, weights, found,
            card,
        )  # fmt: skip
        return found, weights[-1] if found == len(weights) else -np.inf, True
    picks = np.empty(left, np.int64)
    start = -np.inf
    if len(weights) == 1:
        start = greedy_starts(pairs, label, room, first_gain, slack, 0, STARTS, deadline, picks)
    if start == -np.inf:
        group_bits = members(label, len(room), m, (m + 63) >> 6)
        status = find_any(graph, position, m, left, label, room, group_bits, deadline, picks)
        if status == NONE:
            return 0, -np.inf, True
        if status == FOUND:
            start = sum_of(pairs, first_gain, picks)
    if start > -np.inf and len(weights) == 1:
        found = offer_picks(picks, total + start, slack, cards, weights, found, card)
    return branch(pairs, label, room, first_gain, total, slack, deadline, left, cards, weights, found)


@compiled
@no_type_check
def sum_of(pairs, first_gain, picks):
    """What these candidates add to a card."""
    total = 0.0
    for k in range(len(picks)):
        total += first_gain[picks[k]]
        for other in range(k):
            total += pairs[picks[k], picks[other]]
    return total
