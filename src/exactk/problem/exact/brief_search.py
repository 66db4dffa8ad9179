"""Branch and bound for the best cards under a brief: node and pair weights, sums, variety, preferences, places.

Knows the demands as `wants.py` lays them out. The bound is that of `pairs.py`, on weights that prices of sums and
places have moved (`pricing.py`), less what broken preferences will cost at least.
"""

from __future__ import annotations

from typing import NamedTuple, no_type_check

import numpy as np

from exactk.problem.exact.bits import compiled, seconds
from exactk.problem.exact.brief_start import brief_start
from exactk.problem.exact.crowds import crowds_of, least_crowding, top_apart
from exactk.problem.exact.matrix import is_bad
from exactk.problem.exact.pairs import most_beside, overflows
from exactk.problem.exact.partners import scan_partners, sort_falling, tighten, top_sum
from exactk.problem.exact.places import best_order, best_row
from exactk.problem.exact.pricing import at_price, place_prices, row_prices, rows_exclude
from exactk.problem.exact.ranking import LARGEST_SUM, TOO_LARGE, comes_too_late, offer
from exactk.problem.exact.setup import binding_groups, count_in, put_back
from exactk.problem.exact.wants import keeps_wants, owed, still_possible, wants_of, wear

STARTS = 6
STARTS_WHEN_LONG = 64
LONG = 1024  # steps after which a search counts as long


class Shelf(NamedTuple):
    """One request as leaves are weighed: in positions, not candidates."""

    node: np.ndarray
    joint: np.ndarray  # pair weights less what pairs that clash cost each
    clash: np.ndarray
    clash_of: np.ndarray
    eligible: np.ndarray
    slot_weight: np.ndarray
    slot_score: np.ndarray
    follows: np.ndarray
    flat: bool  # every place is worth the same


@compiled
@no_type_check
def joint_weights(graph, present, pair, clash, clash_of, worth, once, joint, fault):
    """Fill `joint` with pair weights, less the price of clashes that cost each; False at a weight that is bad."""
    N = len(present)
    for p in range(N):
        for q in range(p, N):
            weight = 0.0
            if p != q and present[p] and present[q] and graph[p, q]:
                if len(pair):
                    weight = pair[p, q]
                    if is_bad(pair, p, q):
                        fault[0], fault[1] = p, q
                        return False
                for c in range(len(clash_of)):
                    if clash[c, p, q] and not once[clash_of[c]]:
                        weight -= worth[clash_of[c]]
            joint[p, q] = weight
            joint[q, p] = weight
    return True


@compiled
@no_type_check
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


@compiled
@no_type_check
def clashes(shelf, once, taken, num_taken, p, clashing):
    """Count the pairs of position p with what is taken that clash, for preferences that cost once."""
    for c in range(len(shelf.clash_of)):
        if once[shelf.clash_of[c]]:
            for k in range(num_taken):
                clashing[shelf.clash_of[c]] += shelf.clash[c, taken[k], p]


@compiled
@no_type_check
def weigh(shelf, w, row_sums, card, bar, order, clashing, broken):
    """The worth of a card that keeps its rules, summed in its order; -inf where its places do not fit.

    Stops early, with -inf, where even without broken preferences it would stay below `bar`.
    """
    K = len(card)
    total = 0.0
    if w.places:
        total = arranged(shelf, card, order)
        if total == -np.inf:
            return total
    else:
        for k in range(K):
            total += shelf.node[card[k]]
    pairs = 0.0
    for k in range(K):
        for e in range(k):
            pairs += shelf.joint[card[e], card[k]]
    total += pairs
    if len(w.worth) == 0 or total < bar:
        return total
    for p in range(len(w.worth)):
        clashing[p] = 0
    for k in range(1, K):
        clashes(shelf, w.once, card, k, card[k], clashing)
    for r in range(len(w.lower)):
        w.low[r], w.high[r] = row_sums[r], row_sums[r]
    for v in range(len(w.least)):
        w.fresh[v] = 0
    return total - owed(w, 0, clashing, broken)


@compiled
@no_type_check
def offer_leaf(
    shelf, w, row_sums, must, position, picks, card, full, order, slack, cards, weights, found, clashing, broken
):  # fmt: skip
    """Offer a full card (rows counted, values worn) if it keeps everything; returns how many cards are held.

    A card is kept as its picks, ascending, without what must be held.
    """
    if not keeps_wants(w, row_sums):
        return found
    n, left, held = len(weights), len(card), len(full) - len(card)
    low = weights[n - 1] - slack if found == n else -np.inf
    for k in range(left):
        moving, at = picks[k], k
        while at > 0 and card[at - 1] > moving:
            card[at] = card[at - 1]
            at -= 1
        card[at] = moving
    for k in range(left + held):
        full[k] = must[k] if k < held else position[card[k - held]]
    weight = weigh(shelf, w, row_sums, full, low, order, clashing, broken)
    if weight == -np.inf or weight < low:
        return found
    return offer(cards, weights, found, slack, card, weight)


@compiled
@no_type_check
def offer_pairs(
    shelf, w, pairs, label, room, used, must, position, names, gain, num, total, cost, slack, picks, row_sums,
    first_only, cards, weights, found, card, full, order, clashing, broken, leaf_sums,
):  # fmt: skip
    """Complete what is taken with every allowed pair that may be among the best; returns how many cards are held."""
    n, left = len(weights), len(picks)
    low = (weights[n - 1] - slack if found == n else -np.inf) + cost
    for x in range(num - 1):
        i = names[x]
        wear(w, i, 1)
        picks[left - 2] = i
        for y in range(x + 1, num):
            j = names[y]
            if total + gain[x] + gain[y] + pairs[i, j] <= low or pairs[i, j] == -np.inf:
                continue
            if overflows(label, room, used, i, j):
                continue
            fits = True
            for r in range(len(w.lower)):
                leaf_sums[r] = row_sums[r] + w.coefficient[r, i] + w.coefficient[r, j]
                if w.row_of[r] < 0 and not w.lower[r] <= leaf_sums[r] <= w.upper[r]:
                    fits = False
                    break
            if not fits:
                continue
            wear(w, j, 1)
            picks[left - 1] = j
            found = offer_leaf(
                shelf, w, leaf_sums, must, position, picks, card, full, order, slack, cards, weights, found, clashing,
                broken,
            )  # fmt: skip
            wear(w, j, -1)
            if found == n:
                low = weights[n - 1] - slack + cost
                if first_only:
                    wear(w, i, -1)
                    return found
        wear(w, i, -1)
    return found


@compiled
@no_type_check
def branch(
    shelf, w, pairs, crowd, crowd_price, label, room, position, first_gain, total, slack, deadline, first_only, must,
    taken, held, base_sums, base_clashing, cards, weights, found,
):  # fmt: skip
    """Search all cards of three picks or more; returns (how many are held, bound on the rest, whether all was)."""
    m, size = len(first_gain), len(taken)
    left, n = size - held, len(weights)
    M, P = len(w.lower), len(w.worth)
    names = np.empty((left, m), np.int64)
    gain, worth, spare = np.empty((left, m)), np.empty((left, m)), np.empty((left, m))
    num, cursor = np.zeros(left, np.int64), np.zeros(left, np.int64)
    sums, rests, costs, crowding = np.empty(left), np.empty(left), np.zeros(left), np.zeros(left)
    row_sums, clashing = np.zeros((left + 1, M), np.int64), np.zeros((left + 1, P), np.int64)
    leaf_sums, leaf_clashing, broken = np.zeros(M, np.int64), np.zeros(P, np.int64), np.zeros(P, np.int64)
    partner, strength = np.empty((m, m), np.int32), np.empty((m, m))
    degree, scans = np.full(m, -1, np.int64), np.zeros(m, np.int64)
    inside, hopes, new_gain = np.zeros(m), np.empty(m), np.empty(m)
    order, scratch, top = np.empty(m, np.int64), np.empty(m), np.empty(left + 1)
    merged, card, full = np.empty(left + 1, np.int64), np.empty(left, np.int64), np.empty(size, np.int64)
    least, most_of = np.empty(left + 1, np.int64), np.empty(left + 1, np.int64)
    used, picks, places = np.zeros(len(room), np.int64), np.empty(left, np.int64), np.empty(size, np.int64)
    seen = np.zeros(m + len(room) + 1, np.int64)
    apart = crowd_price > 0.0 or label.shape[0] > 0
    for i in range(m):
        names[0, i] = i
        gain[0, i] = first_gain[i]
    for r in range(M):
        row_sums[0, r] = base_sums[r]
    for p in range(P):
        clashing[0, p] = base_clashing[p]
    num[0] = still_possible(
        w, row_sums[0], label, room, used, must, held, position, picks, 0, names[0], gain[0], m, left, least, most_of
    )  # fmt: skip
    if num[0] < left:
        return found, -np.inf, True
    costs[0] = owed(w, left, clashing[0], broken)
    if crowd_price > 0.0:
        crowding[0] = crowd_price * least_crowding(crowd, names[0], num[0], left, seen)
        costs[0] += crowding[0]
    sums[0], rests[0] = total, np.inf
    depth = 0
    entering = True
    steps = 0
    while depth >= 0:
        need = left - depth
        total = sums[depth]
        bar = weights[n - 1] if found == n else -np.inf
        low, high = bar - slack + costs[depth], bar + slack + costs[depth]
        if entering:
            entering = False
            cursor[depth] = 0
            num[depth], _ = tighten(
                pairs, partner, strength, degree, scans, inside, names[depth], gain[depth], worth[depth],
                spare[depth], num[depth], need, total, rests[depth], low, top,
            )  # fmt: skip
            sort_falling(names[depth], gain[depth], worth[depth], spare[depth], num[depth], order, scratch)
        start = cursor[depth]
        bound = total
        for k in range(start, start + need):
            bound += worth[depth, k] if k < num[depth] else -np.inf
        if apart and bound > low:
            closer = total + top_apart(
                worth[depth],
                names[depth],
                start,
                num[depth],
                need,
                crowd,
                crowd_price,
                label,
                room,
                used,
                seen,
                top,
            )
            # What crowds cost is in `closer` to the full, in `costs` at least: it must not count twice.
            bound = min(bound, closer + crowding[depth])
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
                wear(w, picks[depth], -1)
            continue
        steps += 1
        if steps % 16 == 0 and seconds() > deadline:
            bound = bar
            for d in range(depth + 1):
                over = most_beside(
                    pairs, names[d], gain[d], spare[d], cursor[d], num[d], left - d, hopes, top
                )
                bound = max(bound, sums[d] + over - costs[d])
            for d in range(depth):
                put_back(picks[d], label, used)
                wear(w, picks[d], -1)
            return found, bound, False
        cursor[depth] = start + 1
        i = names[depth, start]
        picks[depth] = i
        taken[held + depth] = position[i]
        beside = num[depth] - start - 1
        total += gain[depth, start]
        for y in range(beside):
            j = names[depth, start + 1 + y]
            new_gain[y] = gain[depth, start + 1 + y] + pairs[i, j]
            if crowd_price > 0.0 and crowd[i] == crowd[j]:
                new_gain[y] -= crowd_price
            hopes[y] = new_gain[y] + spare[depth, start + 1 + y]
        for c in range(label.shape[0]):
            g = label[c, i]
            if g >= 0 and used[g] + 1 >= room[g]:
                for y in range(beside):
                    if label[c, names[depth, start + 1 + y]] == g:
                        hopes[y] = -np.inf
        most = top_sum(hopes, beside, need - 1, top)
        # What the pick clashes with is in the gains now, and was in the crowding of its level.
        low, high = low - crowding[depth], high - crowding[depth]
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
            if hopes[y] > -np.inf and total + hopes[y] + rest > low:
                names[depth + 1, stay] = names[depth, start + 1 + y]
                gain[depth + 1, stay] = new_gain[y]
                stay += 1
        if stay < need - 1:
            continue
        count_in(i, label, used)
        wear(w, i, 1)
        for r in range(M):
            row_sums[depth + 1, r] = row_sums[depth, r] + w.coefficient[r, i]
        for p in range(P):
            clashing[depth + 1, p] = clashing[depth, p]
        if P:
            clashes(shelf, w.once, taken, held + depth, position[i], clashing[depth + 1])
        stay = still_possible(
            w, row_sums[depth + 1], label, room, used, must, held, position, picks, depth + 1,
            names[depth + 1], gain[depth + 1], stay, need - 1, least, most_of,
        )  # fmt: skip
        cost = 0.0
        crowded = 0.0
        if stay >= need - 1 and P:
            cost = owed(w, need - 1, clashing[depth + 1], broken)
            if crowd_price > 0.0:
                crowded = crowd_price * least_crowding(crowd, names[depth + 1], stay, need - 1, seen)
                cost += crowded
        if stay < need - 1 or total + most <= bar - slack + cost:
            put_back(i, label, used)
            wear(w, i, -1)
            continue
        if need == 3:
            found = offer_pairs(
                shelf, w, pairs, label, room, used, must, position, names[depth + 1], gain[depth + 1], stay, total,
                cost, slack, picks, row_sums[depth + 1], first_only, cards, weights, found, card, full, places,
                leaf_clashing, broken, leaf_sums,
            )  # fmt: skip
            put_back(i, label, used)
            wear(w, i, -1)
            if first_only and found == n:
                for d in range(depth):
                    put_back(picks[d], label, used)
                    wear(w, picks[d], -1)
                return found, np.inf, False
            continue
        depth += 1
        num[depth], sums[depth], rests[depth], costs[depth] = stay, total, rest, cost
        crowding[depth] = crowded
        entering = True
    return found, weights[n - 1] if found == n else -np.inf, True


@compiled
@no_type_check
def start_with(
    shelf, w, pairs, label, room, must, position, gain, guided, row_sums, heavy, slack, first, last, deadline, left,
    cards, weights, found, clashing, broken,
):  # fmt: skip
    """Offer cards by greedy picks and swaps, begun with the first..last-1 of the candidates that promise most."""
    m, size = len(gain), w.size
    promise = guided.copy()
    picks, totals = np.empty(left, np.int64), np.empty(len(w.lower), np.int64)
    card, full, order = np.empty(left, np.int64), np.empty(size, np.int64), np.empty(size, np.int64)
    for s in range(min(last, m)):
        at = 0
        for i in range(1, m):
            if promise[i] > promise[at]:
                at = i
        promise[at] = -np.inf
        if s < first:
            continue
        if s > 0 and seconds() > deadline:
            break
        if brief_start(w, row_sums, pairs, label, room, gain, guided, at, heavy, slack, picks, totals):
            for k in range(left):
                wear(w, picks[k], 1)
            found = offer_leaf(
                shelf, w, totals, must, position, picks, card, full, order, slack, cards, weights, found, clashing,
                broken,
            )  # fmt: skip
            for k in range(left):
                wear(w, picks[k], -1)
    return found


@compiled
@no_type_check
def dearest_crowd(shelf, w, position, m, crowd):
    """The price of the dearest preference whose clashes are crowds, which `crowd` then numbers; 0 if there is none."""
    price = 0.0
    tried = np.empty(m, np.int64)
    for c in range(len(shelf.clash_of)):
        worth = w.worth[shelf.clash_of[c]]
        if not w.once[shelf.clash_of[c]] and worth > price and crowds_of(shelf.clash[c], position, m, tried):
            price = worth
            for i in range(m):
                crowd[i] = tried[i]
    return price


@compiled
@no_type_check
def search_brief(
    shelf, graph, coefficient, lower, upper, row_of, value, least, value_of, worth, once,
    must, held, position, m, left, group, cap, deadline, first_only, cards, weights, fault,
):  # fmt: skip
    """Fill the best cards; returns (how many were found, a bound on what was not searched, whether all was).

    A card is written as the places of its picks in `position`, ascending, without what must be held.

    With `first_only` any card will do, and the weights are not looked at.
    """
    size, n = held + left, len(weights)
    M, P = len(lower), len(worth)
    taken, full, order = np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size, np.int64)
    card, picks = np.empty(left, np.int64), np.empty(left, np.int64)
    base_sums, clashing, broken = np.zeros(M, np.int64), np.zeros(P, np.int64), np.zeros(P, np.int64)
    leaf_clashing = np.zeros(P, np.int64)
    found = np.int64(0)
    label, room = binding_groups(group, cap, must, held, position, m, left)
    w = wants_of(
        coefficient, lower, upper, row_of, value, least, value_of, worth, once, shelf.eligible, shelf.follows,
        must, held, position, m, left, len(room), base_sums,
    )  # fmt: skip
    for k in range(held):
        taken[k] = must[k]
        clashes(shelf, once, taken, k, must[k], clashing)
    if left == 0:
        found = offer_leaf(
            shelf, w, base_sums, must, position, picks, card, full, order, 0.0, cards, weights, found, leaf_clashing,
            broken,
        )  # fmt: skip
        return found, -np.inf, True

    # Node weights: as they are, or the best that a place can make of them, less its price.
    first_gain, scale, total = np.zeros(m), 1.0, 0.0
    pairs = np.empty((m, m))
    hope, top = np.zeros(held + m), np.empty(left + 1)
    names = np.empty(m, np.int64)
    largest = 0.0
    for i in range(m):
        names[i] = i
        for j in range(m):
            allowed = i != j and graph[position[i], position[j]]
            pairs[i, j] = shelf.joint[position[i], position[j]] if allowed else -np.inf
            if allowed:
                largest = max(largest, abs(pairs[i, j]))
    for c in range(label.shape[0]):
        for i in range(m):
            g = label[c, i]
            if g >= 0 and room[g] == 1:
                for j in range(m):
                    if label[c, j] == g:
                        pairs[i, j] = -np.inf
    if not first_only:
        for i in range(m):
            for k in range(held):
                hope[held + i] += shelf.joint[position[i], must[k]]
            if left > 1:
                best, _ = scan_partners(pairs[i], names, 0, m, m, m, left - 1, top)
                hope[held + i] += 0.5 * best if best > -np.inf else -scale
        priced = w.places and not shelf.flat
        price, by_place = np.zeros(size), np.empty((size, held + m))
        if priced:
            for c in range(held + m):
                p = must[c] if c < held else position[c - held]
                for s in range(size):
                    by_place[s, c] = shelf.node[p] * shelf.slot_weight[s] + shelf.slot_score[s, p]
            place_prices(by_place, w.may, w.held_may, hope, price)
        for s in range(size):
            total += price[s]
            scale += abs(price[s])
        largest_gain = 0.0
        for c in range(held + m):
            p = must[c] if c < held else position[c - held]
            own = shelf.node[p]
            if priced:
                own = at_price(by_place[:, c], w.held_may[c] if c < held else w.may[c - held], price)
            if c < held:
                total += own
                scale += abs(own)
                for k in range(c):
                    total += shelf.joint[must[c], must[k]]
                    scale += abs(shelf.joint[must[c], must[k]])
                continue
            gain = own
            for k in range(held):
                gain += shelf.joint[p, must[k]]
            first_gain[c - held] = gain
            hope[c] += own
            if gain > -np.inf:
                largest_gain = max(largest_gain, abs(gain))
        if total == -np.inf:  # something held has no place
            return found, -np.inf, True
        scale += left * largest_gain + left * (left - 1) / 2 * largest
        for p in range(P):
            scale += worth[p]
    if not scale <= LARGEST_SUM:
        fault[0], fault[1] = 0, TOO_LARGE
        return 0, 0.0, False
    heavy = 8.0 * scale
    slack = 0.0 if first_only else scale * (size * size + 8) * 2.3e-16
    guided = first_gain.copy()
    starts = first_only or n == 1
    if not first_only and M:
        row_price = np.zeros(M)
        row_prices(w, base_sums, hope[held:], left, -np.inf, row_price)
        for r in range(M):
            if row_price[r] != 0.0:
                bound = w.lower[r] if row_price[r] > 0 else w.upper[r]
                shift = row_price[r] * (base_sums[r] - bound)
                total += shift
                scale += abs(row_price[r]) * (abs(np.float64(base_sums[r])) + abs(np.float64(bound)))
                for i in range(m):
                    guided[i] += row_price[r] * w.coefficient[r, i]
        slack = scale * (size * size + 8) * 2.3e-16
    if starts and m >= left:
        found = start_with(
            shelf, w, pairs, label, room, must, position, first_gain, guided, base_sums, heavy, slack, 0,
            1 if first_only else STARTS, deadline, left, cards, weights, found, leaf_clashing, broken,
        )  # fmt: skip
        if first_only and found:
            return found, np.inf, False
    if left <= 2:
        used, leaf_sums = np.zeros(len(room), np.int64), np.zeros(M, np.int64)
        if left == 1:
            for i in range(m):
                picks[0] = i
                wear(w, i, 1)
                for r in range(M):
                    leaf_sums[r] = base_sums[r] + w.coefficient[r, i]
                found = offer_leaf(
                    shelf, w, leaf_sums, must, position, picks, card, full, order, slack, cards, weights, found,
                    leaf_clashing, broken,
                )  # fmt: skip
                wear(w, i, -1)
        else:
            found = offer_pairs(
                shelf, w, pairs, label, room, used, must, position, names, guided, m, total, 0.0, slack, picks,
                base_sums, first_only, cards, weights, found, card, full, order, leaf_clashing, broken, leaf_sums,
            )  # fmt: skip
        return found, weights[n - 1] if found == n else -np.inf, True
    if m < left or (found == 0 and M > 0 and rows_exclude(w, base_sums, left)):
        return found, -np.inf, True
    crowd, crowd_price = np.zeros(m, np.int64), 0.0
    if not first_only:
        crowd_price = dearest_crowd(shelf, w, position, m, crowd)
        for i in range(m):
            for j in range(m):
                if crowd_price > 0.0 and crowd[i] == crowd[j] and i != j:
                    pairs[i, j] += crowd_price
    return branch(
        shelf, w, pairs, crowd, crowd_price, label, room, position, guided, total, slack, deadline, first_only, must,
        taken, held, base_sums, clashing, cards, weights, found,
    )  # fmt: skip
