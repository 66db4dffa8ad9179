"""The root of a search under a brief: prices of places, sums and crowds, and what each candidate adds after them.

Knows no search. Prices move what candidates add so that the bound sees places and sums; cards are not weighed by them.
Whatever the prices, the bound they give is proven; good ones make it tight. A row's price p is added to its candidates
p times their entry, and p times the row's bound is taken off the card: at most nothing lost for any card within bounds.
A place's price is taken off whoever stands in it, and added to the card. A crowd is the candidates of one value, where
different values are preferred: the k-th of them on a card costs k - 1 breaks.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from exactk.problem.exact.bits import ONE, compiled_inside, compiled_within
from exactk.problem.exact.levels import OPEN, ORDER, SCRATCH, WORTH, best_sum, top_sum, who_is
from exactk.problem.exact.places import cheapest_assignment
from exactk.problem.exact.setup import pair_matrix

# To find the best mark, from that of the last: a bound a little loose here only prices a little worse.
TRIES = 5
ROUNDS = 60
# Rounds without a better bound before steps are halved, and the smallest step, as a share.
PATIENCE, FINEST = 4, 1e-3
# The same where candidates times picks are few: there looser prices cost less than they save.
FEW, PATIENCE_OF_FEW, FINEST_OF_FEW = 400, 2, 2e-2


class Root(NamedTuple):
    """Where a search under a brief begins."""

    total: float  # of what must be held, and of all prices
    scale: float  # of all that is ever added up
    largest: float  # the largest size of a pair weight
    adds: np.ndarray  # m: of each candidate, by the weights as given, in its best place
    guided: np.ndarray  # m: the same, moved by the prices of sums
    pairs: np.ndarray  # m, columns: -inf where two may not share a card
    hope: np.ndarray  # held + m: what each may add, half its best pairs with it


@compiled_inside
def at_price(worth, may, price):
    """The most an item is worth in any place it may stand in, less what the place costs."""
    most = -np.inf
    for s in range(len(price)):
        if may >> np.uint64(s) & ONE:
            most = max(most, worth[s] - price[s])
    return most


@compiled_within
def place_prices(worth, may, held_may, hope, price):
    """Prices of places by the best assignment of candidates, each with `hope` for what its place does not decide.

    `worth[s, c]`: what is held first, then the candidates. Without prices everyone would be worth what the best place
    makes of it.
    """
    S, C = worth.shape
    held = len(held_may)
    size = 1.0
    for s in range(S):
        for c in range(C):
            size = max(size, abs(worth[s, c]) + abs(hope[c]))
    barred = 4.0 * size * (S + 1)
    cost = np.empty((S, C))
    for s in range(S):
        for c in range(C):
            allowed = (held_may[c] if c < held else may[c - held]) >> np.uint64(s) & ONE
            cost[s, c] = -(worth[s, c] + hope[c]) if allowed else barred
            if c < held:
                cost[s, c] -= 2.0 * barred  # what is held has a place before all others
    partner = np.empty(C, np.int64)
    cheapest_assignment(cost, price, partner)
    for s in range(S):
        price[s] = -price[s]
    shift = 0.0  # all prices may move together: the same bound, smaller numbers
    for s in range(S):
        shift += price[s] / S
    for s in range(S):
        price[s] -= shift


@compiled_within
def row_prices(w, row_sums, hope, left, price):
    """Prices of rows by subgradient steps on the bound of the root; nothing is searched."""
    coefficient, lower, upper, row_of = w.coefficient, w.lower, w.upper, w.row_of
    M, m = coefficient.shape
    for r in range(M):
        price[r] = 0.0
    scale, step = np.empty(M), np.zeros(M)
    for r in range(M):
        scale[r] = 1.0
        for i in range(m):
            scale[r] = max(scale[r], abs(np.float64(coefficient[r, i])))
    tried, value = np.zeros(M), np.empty(m)
    top = np.empty(left + 1)
    few = m * left < FEW
    patience, finest = PATIENCE_OF_FEW if few else PATIENCE, FINEST_OF_FEW if few else FINEST
    least, stale, pace = np.inf, 0, 1.0
    for _ in range(ROUNDS):
        for i in range(m):
            value[i] = hope[i]
            for r in range(M):
                if tried[r] != 0.0:
                    value[i] += tried[r] * coefficient[r, i]
        bound = top_sum(value, m, left, top)
        last, ties = top[left - 1], 0
        for k in range(left):
            ties += top[k] == last
        for r in range(M):
            if tried[r] != 0.0:
                bound += tried[r] * (row_sums[r] - (lower[r] if tried[r] > 0 else upper[r]))
        if bound < least - 1e-9 * abs(bound):
            least, stale = bound, 0
            for r in range(M):
                price[r] = tried[r]
        else:
            stale += 1
            if stale >= patience:
                stale, pace = 0, 0.5 * pace
        length = 0.0
        for r in range(M):
            step[r] = 0.0
            if row_of[r] >= 0:
                continue
            total, waiting = row_sums[r], ties
            for i in range(m):
                if value[i] > last:
                    total += coefficient[r, i]
                elif value[i] == last and waiting > 0:
                    total += coefficient[r, i]
                    waiting -= 1
            if total < lower[r] or tried[r] > 0:
                step[r] = np.float64(lower[r] - total) / scale[r]
            elif total > upper[r] or tried[r] < 0:
                step[r] = np.float64(upper[r] - total) / scale[r]
            length += step[r] * step[r]
        if length == 0.0 or pace < finest:
            break
        gap = 0.1 * abs(bound) + 1e-3
        for r in range(M):
            moved = tried[r] + pace * gap / length * step[r] / scale[r]
            # A row bounded on both sides has two prices, one below zero: they meet at zero.
            if (tried[r] > 0 and moved < 0) or (tried[r] < 0 and moved > 0):
                moved = 0.0
            tried[r] = moved
    return least


@compiled_within
def rows_exclude(w, row_sums, left):
    """Whether prices prove that no `left` candidates keep all rows: items worth nothing would come to less."""
    M, m = w.coefficient.shape
    price = np.empty(M)
    least = row_prices(w, row_sums, np.zeros(m), left, price)
    size = 0.0
    for r in range(M):
        largest = 0.0
        for i in range(m):
            largest = max(largest, abs(np.float64(w.coefficient[r, i])))
        if price[r] != 0.0:
            bound = w.lower[r] if price[r] > 0 else w.upper[r]
            size += abs(price[r]) * (left * largest + abs(np.float64(bound)) + abs(np.float64(row_sums[r])))
    return least < -1e-9 * size


@compiled_within
def priced_by_place(shelf, w, small, hope, total, adds):
    """Fill `adds` (held + m) with nodes in their best place, less its price; returns (total, scale) with the prices."""
    held, m = len(small.must), len(small.position)
    priced = w.places and not shelf.flat
    price, by_place = np.zeros(w.size), np.empty((w.size if priced else 0, held + m))
    if priced:
        for c in range(held + m):
            p = small.must[c] if c < held else small.position[c - held]
            for s in range(w.size):
                by_place[s, c] = shelf.node[p] * shelf.slot_weight[s] + shelf.slot_score[s, p]
        place_prices(by_place, w.may, w.held_may, hope, price)
    scale = 1.0
    for s in range(w.size):
        total += price[s]
        scale += abs(price[s])
    for c in range(held + m):
        p = small.must[c] if c < held else small.position[c - held]
        adds[c] = shelf.node[p]
        if priced:
            adds[c] = at_price(by_place[:, c], w.held_may[c] if c < held else w.may[c - held], price)
    return total, scale


@compiled_within
def root_of(shelf, w, small, graph, row_sums, left, weighs, pairs, fault):
    """Fill `pairs` and settle all prices; with `weighs` False nothing adds anything."""
    held, m = len(small.must), len(small.position)
    largest = pair_matrix(graph, shelf.joint, small.position, m, small.label, small.room, pairs, fault)
    hope, adds = np.zeros(held + m), np.zeros(held + m)
    if not weighs or np.isnan(largest):
        return Root(0.0, 0.0, largest, adds[held:], adds[held:].copy(), pairs, hope)
    zeros, flat, mark = np.zeros((1, 1, pairs.shape[1])), pairs.reshape(-1), 0.0
    for i in range(m):
        for k in range(held if len(shelf.joint) else 0):
            hope[held + i] += shelf.joint[small.position[i], small.must[k]]
        if left > 1 and largest > 0.0 and (len(w.lower) or w.places):  # only prices ask for it
            best, mark = best_sum(
                flat, np.uint64(i * pairs.shape[1]), zeros, 0, 0, m, left - 1, mark, largest / m,
                -1.01 * largest - 1.0, TRIES,
            )  # fmt: skip
            hope[held + i] += 0.5 * best if best > -np.inf else -1.0
    total, scale = priced_by_place(shelf, w, small, hope, 0.0, adds)
    largest_add = 0.0
    for k in range(held):
        total += adds[k]
        scale += abs(adds[k])
        for e in range(k if len(shelf.joint) else 0):
            total += shelf.joint[small.must[k], small.must[e]]
            scale += abs(shelf.joint[small.must[k], small.must[e]])
    for i in range(m):
        hope[held + i] += adds[held + i]
        for k in range(held if len(shelf.joint) else 0):
            adds[held + i] += shelf.joint[small.position[i], small.must[k]]
        if adds[held + i] > -np.inf:
            largest_add = max(largest_add, abs(adds[held + i]))
    scale += left * largest_add + left * (left - 1) / 2 * largest
    for p in range(len(w.worth)):
        scale += w.worth[p]
    guided = adds[held:].copy()
    if len(w.lower) and total > -np.inf:
        total, scale = guide(w, row_sums, hope[held:], left, total, scale, guided)
    return Root(total, scale, largest, adds[held:], guided, pairs, hope)


@compiled_within
def guide(w, row_sums, hope, left, total, scale, guided):
    """Move what candidates add by the prices of sums; returns (total, scale) with them."""
    price = np.zeros(len(w.lower))
    row_prices(w, row_sums, hope, left, price)
    for r in range(len(price)):
        if price[r] != 0.0:
            bound = w.lower[r] if price[r] > 0 else w.upper[r]
            total += price[r] * (row_sums[r] - bound)
            scale += abs(price[r]) * (abs(np.float64(row_sums[r])) + abs(np.float64(bound)))
            for i in range(len(guided)):
                guided[i] += price[r] * w.coefficient[r, i]
    return total, scale


@compiled_within
def dearest_crowd(shelf, w, small):
    """The dearest preference whose clashes are crowds; a price of 0 if there is none."""
    price, m = 0.0, len(small.position)
    code, tried = np.zeros(m, np.int64), np.empty(m, np.int64)
    for c in range(len(shelf.clash_of)):
        worth = w.worth[shelf.clash_of[c]]
        if (
            not w.once[shelf.clash_of[c]]
            and worth > price
            and crowds_of(shelf.clash[c], small.position, m, tried)
        ):
            price = worth
            code, tried = tried, code
    return Crowd(code, price)


@compiled_within
def without_crowd(pairs, largest, crowd):
    """Take the price of crowds out of the pair weights; returns (their largest size, whether all are allowed and 0)."""
    m = len(crowd.code)
    if crowd.price > 0.0:
        largest = 0.0
        for i in range(m):
            for j in range(m):
                if crowd.code[i] == crowd.code[j]:
                    pairs[i, j] += crowd.price
                if pairs[i, j] > -np.inf:
                    largest = max(largest, abs(pairs[i, j]))
    for i in range(m if largest == 0.0 else 0):
        for j in range(i):
            if pairs[i, j] == -np.inf:
                return largest, False
    return largest, largest == 0.0


class Crowd(NamedTuple):
    """A preference for different values: the value of each candidate, and what each break costs (0: there is none)."""

    code: np.ndarray
    price: float


@compiled_within
def crowds_of(clash, position, m, code):
    """Number the crowds, if the pairs that clash are exactly those within crowds; False where they are not."""
    num = 0
    for i in range(m):
        code[i] = num
        for j in range(i):
            if clash[position[i], position[j]]:
                code[i] = code[j]
                break
        num += code[i] == num
    for i in range(m):
        for j in range(i):
            if clash[position[i], position[j]] != (code[i] == code[j]):
                return False
    return True


@compiled_inside
def least_crowding(code, names, num, need, seen):
    """The fewest clashes among `need` of the candidates: spread as evenly as there are any."""
    groups = 0
    for x in range(num):
        seen[code[names[x]]] += 1
        groups += seen[code[names[x]]] == 1
    clashes, level = 0, 0
    while need > 0 and groups > 0:
        clashes += level * min(need, groups)
        need -= groups
        level += 1
        groups = 0
        for x in range(num):
            c = code[names[x]]
            if seen[c] > level:
                groups += 1
                seen[c] = -seen[c]  # counted at this level
        for x in range(num):
            seen[code[names[x]]] = abs(seen[code[names[x]]])
    for x in range(num):
        seen[code[names[x]]] = 0
    return clashes


@compiled_inside
def top_apart(levels, d, num, need, crowd, small, seen):
    """The most that `need` of what is open can be worth together.

    With a price, each but the first of a crowd costs one more than the one before; else the first cap is kept.
    Both leave what the best of a group are worth falling, so that taking the largest first is right.
    """
    values, names = levels.values, levels.names
    for x in range(num):
        i = who_is(levels, d, names[OPEN, d, x])
        names[ORDER, 0, x] = crowd.code[i] if crowd.price > 0.0 else small.label[0, i] + 1
        values[SCRATCH, 0, x] = values[WORTH, d, x]
    total = 0.0
    for _ in range(need):
        at, most = -1, -np.inf
        for x in range(num):
            group = names[ORDER, 0, x]
            value = values[SCRATCH, 0, x] - crowd.price * seen[group]
            if (
                crowd.price == 0.0
                and group > 0
                and small.used[group - 1] + seen[group] >= small.room[group - 1]
            ):
                value = -np.inf
            if value > most:
                at, most = x, value
        if at < 0:
            total = -np.inf
            break
        total += most
        values[SCRATCH, 0, at] = -np.inf
        seen[names[ORDER, 0, at]] += 1
    for x in range(num):
        seen[names[ORDER, 0, x]] = 0
    return total
