"""Compiled: can a set of items fill the places of a card, and in which order is it worth most.

Knows no search. Sets of places are bits of one uint64; places and items of a card are numbered from 0.
"""

from __future__ import annotations

import numpy as np

from exactk.problem.exact.bits import ONE, compiled_inside, compiled_within, lowest_bit

NOBODY = np.uint64(0)


@compiled_inside
def seat(mask, owner, parent, queue):
    """Find a place for one more item that may stand in `mask`, moving others along; False where there is none.

    `owner[s]` is the mask of the item in place s, 0 where it is free. What fails once fails for good.
    """
    reached = np.uint64(0)
    head = tail = 0
    fresh = mask
    while fresh:
        s = np.int64(lowest_bit(fresh))
        fresh &= fresh - ONE
        parent[s] = -1
        queue[tail] = s
        tail += 1
    reached |= mask
    while head < tail:
        s = queue[head]
        head += 1
        if owner[s] == NOBODY:
            while s >= 0:
                back = parent[s]
                owner[s] = mask if back < 0 else owner[back]
                s = back
            return True
        fresh = owner[s] & ~reached
        reached |= fresh
        while fresh:
            t = np.int64(lowest_bit(fresh))
            fresh &= fresh - ONE
            parent[t] = s
            queue[tail] = t
            tail += 1
    return False


@compiled_within
def cheapest_assignment(cost, price, partner):
    """Rows each to a column of their own at the least total cost; fills `price` (of rows) and `partner` (of columns).

    The shortest augmenting paths of Jonker and Volgenant; price[r] + (that of c) <= cost[r, c], equal where r takes c.
    """
    R, C = cost.shape
    of_column = np.zeros(C)
    least, came, done = np.empty(C), np.empty(C, np.int64), np.empty(C, np.bool_)
    for r in range(R):
        price[r] = 0.0
    for c in range(C):
        partner[c] = -1
    for start in range(R):
        for c in range(C):
            least[c], done[c], came[c] = np.inf, False, -1
        row, column, walked = start, -1, 0.0
        while True:
            delta, following = np.inf, -1
            for c in range(C):
                if not done[c]:
                    reduced = cost[row, c] - price[row] - of_column[c]
                    if walked + reduced < least[c]:
                        least[c] = walked + reduced
                        came[c] = column
                    if least[c] < delta:
                        delta, following = least[c], c
            walked = delta
            column = following
            done[column] = True
            if partner[column] < 0:
                break
            row = partner[column]
        for c in range(C):
            if done[c]:
                if partner[c] >= 0:
                    price[partner[c]] += walked - least[c]
                of_column[c] -= walked - least[c]
        price[start] += walked
        while column >= 0:
            back = came[column]
            partner[column] = start if back < 0 else partner[back]
            column = back


@compiled_within
def best_order(worth, may, order):
    """Items into places by falling total worth, whoever stands beside whom; -inf where they do not fit.

    `worth[s, i]` of item i in place s, `may[i]` the places it may stand in; fills `order` with the item of each place.
    """
    K = len(may)
    size = 1.0
    for s in range(K):
        for i in range(K):
            size = max(size, abs(worth[s, i]))
    barred = 4.0 * size * (K + 1)
    cost = np.empty((K, K))
    for s in range(K):
        for i in range(K):
            free = may[i] >> np.uint64(s) & ONE
            cost[s, i] = -worth[s, i] if free else barred
    price, partner = np.empty(K), np.empty(K, np.int64)
    cheapest_assignment(cost, price, partner)
    total = 0.0
    for i in range(K):
        s = partner[i]
        order[s] = i
        if cost[s, i] == barred:
            return -np.inf
    for s in range(K):
        total += worth[s, order[s]]
    return total


@compiled_within
def best_row(worth, may, follows, order):
    """The same where neighbours matter: item j may stand right after i only with `follows[i, j]`."""
    K = len(may)
    full = (1 << K) - 1
    best = np.full((full + 1, K), -np.inf)
    for i in range(K):
        if may[i] & ONE:
            best[1 << i, i] = worth[0, i]
    for chosen in range(1, full):
        s = 0
        for i in range(K):
            s += chosen >> i & 1
        for last in range(K):
            so_far = best[chosen, last]
            if so_far == -np.inf:
                continue
            for i in range(K):
                if chosen >> i & 1 == 0 and follows[last, i] and may[i] >> np.uint64(s) & ONE:
                    more = chosen | 1 << i
                    best[more, i] = max(best[more, i], so_far + worth[s, i])
    last = 0
    for i in range(1, K):
        if best[full, i] > best[full, last]:
            last = i
    total = best[full, last]
    if total == -np.inf:
        return total
    chosen = full
    for s in range(K - 1, -1, -1):
        order[s] = last
        before = chosen & ~(1 << last)
        for i in range(K):
            fits = s > 0 and before >> i & 1 and follows[i, last]
            if fits and best[before, i] + worth[s, last] == best[chosen, last]:
                chosen, last = before, i
                break
    return total


@compiled_within
def may_line_up(may, follows, num, size, reach):
    """Whether these items may stand in some of `size` places, everyone between them unknown: a necessary condition.

    `reach[chosen, gaps]` holds, as bits, who may stand last after these and so many unknown ones; bit `num`: unknown.
    """
    gaps = size - num
    sets = 1 << num
    unknown = ONE << np.uint64(num)
    for chosen in range(sets):
        for gap in range(gaps + 1):
            reach[chosen, gap] = 0
    reach[0, 0] = unknown  # nobody stands before the first
    for chosen in range(sets):
        held = 0
        for i in range(num):
            held += chosen >> i & 1
        for gap in range(gaps + 1):
            last = reach[chosen, gap]
            if last == 0:
                continue
            if gap < gaps:
                reach[chosen, gap + 1] |= unknown
            s = np.uint64(held + gap)
            for i in range(num):
                if chosen >> i & 1 == 0 and may[i] >> s & ONE:
                    beside = last & unknown != 0
                    for j in range(num):
                        if beside:
                            break
                        beside = last >> np.uint64(j) & ONE != 0 and follows[j, i]
                    if beside:
                        reach[chosen | 1 << i, gap] |= ONE << np.uint64(i)
    return reach[sets - 1, gaps] != 0
