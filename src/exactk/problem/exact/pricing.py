"""Compiled: prices of sums and places that tighten the bound of a search under a brief, found once at its root.

Knows no search. Whatever the prices, the bound they give is proven; good ones make it tight.
A row's price p is added to its candidates p times their entry, and p times the row's bound is taken off the card: at
most nothing lost for any card within bounds. A place's price is taken off whoever stands in it, and added to the card.
"""

from __future__ import annotations

from typing import no_type_check

import numpy as np

from exactk.problem.exact.bits import ONE, compiled_inside, compiled_within
from exactk.problem.exact.partners import top_sum
from exactk.problem.exact.places import cheapest_assignment

ROUNDS = 60
PATIENCE, FINEST = (
    4,
    1e-3,
)  # rounds without a better bound before steps are halved, and the smallest step, as a share
# The same where candidates times picks are few: there looser prices cost less than they save.
FEW, PATIENCE_OF_FEW, FINEST_OF_FEW = 400, 2, 2e-2


@compiled_inside
@no_type_check
def at_price(worth, may, price):
    """The most an item is worth in any place it may stand in, less what the place costs."""
    most = -np.inf
    for s in range(len(price)):
        if may >> np.uint64(s) & ONE:
            most = max(most, worth[s] - price[s])
    return most


@compiled_within
@no_type_check
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
@no_type_check
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
@no_type_check
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
