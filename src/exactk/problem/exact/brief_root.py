"""The root of a search under a brief: what each candidate adds, once prices of places and sums are settled.

Knows no search. Prices move what candidates add so that the bound sees places and sums; cards are not weighed by them.
"""

from __future__ import annotations

from typing import NamedTuple, no_type_check

import numpy as np

from exactk.problem.exact.bits import compiled_within
from exactk.problem.exact.crowds import Crowd, crowds_of
from exactk.problem.exact.matrix import pair_matrix
from exactk.problem.exact.partners import best_sum
from exactk.problem.exact.pricing import at_price, place_prices, row_prices

TRIES = (
    5  # to find the best mark, from that of the last: a bound a little loose here only prices a little worse
)


class Root(NamedTuple):
    """Where a search under a brief begins."""

    total: float  # of what must be held, and of all prices
    scale: float  # of all that is ever added up
    largest: float  # the largest size of a pair weight
    adds: np.ndarray  # m: of each candidate, by the weights as given, in its best place
    guided: np.ndarray  # m: the same, moved by the prices of sums
    pairs: np.ndarray  # m, columns: -inf where two may not share a card
    hope: np.ndarray  # held + m: what each may add, half its best pairs with it


@compiled_within
@no_type_check
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
@no_type_check
def root_of(shelf, w, small, graph, row_sums, left, weighs, pairs, fault):
    """Fill `pairs` and settle all prices; with `weighs` False nothing adds anything."""
    held, m = len(small.must), len(small.position)
    largest = pair_matrix(graph, shelf.joint, small.position, m, small.label, small.room, pairs, fault)
    hope, adds = np.zeros(held + m), np.zeros(held + m)
    if not weighs:
        return Root(0.0, 0.0, largest, adds[held:], adds[held:].copy(), pairs, hope)
    zeros, flat, mark = np.zeros((1, 1, pairs.shape[1])), pairs.reshape(-1), 0.0
    for i in range(m):
        for k in range(held):
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
        for e in range(k):
            total += shelf.joint[small.must[k], small.must[e]]
            scale += abs(shelf.joint[small.must[k], small.must[e]])
    for i in range(m):
        hope[held + i] += adds[held + i]
        for k in range(held):
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
@no_type_check
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
@no_type_check
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
@no_type_check
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
