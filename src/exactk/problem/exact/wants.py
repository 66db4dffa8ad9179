"""Compiled: what a brief still wants of a card begun, and which candidates cannot give it.

Knows no weights of items and does no searching. Candidates are 0..m-1 as in `setup.py`; what is held is counted.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from exactk.problem.exact.bits import compiled_inside, compiled_within
from exactk.problem.exact.places import may_line_up, seat

ENDLESS = np.int64(2**62)


class Wants(NamedTuple):
    """The demands of one request on its candidates, and how far they are met; see `problem/brief.py` for the terms."""

    coefficient: np.ndarray  # M m
    lower: np.ndarray  # M, as of the whole card
    upper: np.ndarray
    row_of: np.ndarray
    code: np.ndarray  # V m: values numbered from 0, -1 none
    least: np.ndarray  # V
    value_of: np.ndarray
    wear: np.ndarray  # V codes: how many chosen have each value
    distinct: np.ndarray  # V
    worth: np.ndarray  # P
    once: np.ndarray
    may: np.ndarray  # m: places each candidate may stand in, as bits
    held_may: np.ndarray
    size: int  # of the card
    places: bool
    follows: np.ndarray  # N N, or 0 0
    low: np.ndarray  # M scratch: the least and the most a row can come to
    high: np.ndarray
    smallest: np.ndarray  # K scratch: a row's smallest and largest entries
    largest: np.ndarray
    fresh: np.ndarray  # V scratch: values that could still be added
    seen: np.ndarray  # V codes scratch
    full: np.ndarray  # scratch: members of a capped group
    owner: np.ndarray  # K scratch of `seat`
    parent: np.ndarray
    queue: np.ndarray
    reach: np.ndarray  # scratch of `may_line_up`


@compiled_within
def local_codes(value, small, code):
    """Number the values of a variety row from 0: of candidates in `code` [m]; returns those of what is held [held]."""
    held, m = len(small.must), len(small.position)
    held_code = np.full(held, -1, np.int64)
    known = np.empty(held + m, np.int64)
    num = 0
    for k in range(held + m):
        here = value[small.must[k]] if k < held else value[small.position[k - held]]
        if here < 0:
            continue
        at = 0
        while at < num and known[at] != here:
            at += 1
        if at == num:
            known[num] = here
            num += 1
        if k < held:
            held_code[k] = at
        else:
            code[k - held] = at
    return held_code


@compiled_within
def wants_of(brief, b, small, left, row_sums):
    """Lay out what request b wants; `row_sums` [M] gets the sums of what is held."""
    held, m = len(small.must), len(small.position)
    size = held + left
    M, V, S = brief.lower.shape[1], brief.least.shape[1], brief.eligible.shape[1]
    near = np.zeros((M, m), np.int64)
    for r in range(M):
        row_sums[r] = 0
        for k in range(held):
            row_sums[r] += brief.coefficient[b, r, small.must[k]]
        for i in range(m):
            near[r, i] = brief.coefficient[b, r, small.position[i]]
    code = np.full((V, m), -1, np.int64)
    wear, seen = np.zeros((V, held + m + 1), np.int64), np.zeros((V, held + m + 1), np.int64)
    distinct = np.zeros(V, np.int64)
    for v in range(V):
        of_held = local_codes(brief.value[b, v], small, code[v])
        for k in range(held):
            if of_held[k] >= 0:
                distinct[v] += wear[v, of_held[k]] == 0
                wear[v, of_held[k]] += 1
    may, held_may = np.zeros(m, np.uint64), np.zeros(held, np.uint64)
    for s in range(min(size, S)):
        for i in range(m):
            may[i] |= np.uint64(brief.eligible[b, s, small.position[i]]) << np.uint64(s)
        for k in range(held):
            held_may[k] |= np.uint64(brief.eligible[b, s, small.must[k]]) << np.uint64(s)
    lines = brief.follows.shape[1] > 0
    beside = brief.follows[b, 0] if lines else np.empty((0, 0), np.bool_)
    reach = np.empty((1 << size if lines else 1, size + 1 if lines else 1), np.uint64)
    K = max(size, 1)
    return Wants(
        near, brief.lower[b], brief.upper[b], brief.row_of[b], code, brief.least[b], brief.value_of[b], wear,
        distinct, brief.worth[b], brief.once[b], may, held_may, size, S > 0, beside, np.empty(M, np.int64),
        np.empty(M, np.int64), np.empty(K, np.int64), np.empty(K, np.int64), np.empty(V, np.int64), seen,
        np.zeros(len(small.room), np.int64), np.zeros(K, np.uint64), np.empty(K, np.int64), np.empty(K, np.int64),
        reach,
    )  # fmt: skip


@compiled_inside
def extremes(row, names, num, need, least, most):
    """(least sum, most sum) of `need` of a row's entries; leaves the smallest and the largest in `least` and `most`."""
    for k in range(need):
        least[k], most[k] = ENDLESS, -ENDLESS
    for x in range(num):
        value = row[names[x]]
        if value < least[need - 1]:
            at = need - 1
            while at > 0 and least[at - 1] > value:
                least[at] = least[at - 1]
                at -= 1
            least[at] = value
        if value > most[need - 1]:
            at = need - 1
            while at > 0 and most[at - 1] < value:
                most[at] = most[at - 1]
                at -= 1
            most[at] = value
    low = high = np.int64(0)
    for k in range(need):
        low += least[k]
        high += most[k]
    return low, high


@compiled_inside
def keep_by_row(w, r, total, names, open_, num, need):
    """Drop the candidates with which no choice keeps row r within its bounds; returns how many stay, -1 if too few."""
    row = w.coefficient[r]
    least, most = w.smallest, w.largest
    low, high = extremes(row, names, num, need, least, most)
    w.low[r], w.high[r] = total + low, total + high
    if w.row_of[r] >= 0 or (total + low >= w.lower[r] and total + high <= w.upper[r]):
        return num
    if total + high < w.lower[r] or total + low > w.upper[r]:
        return -1
    others_most, others_least = total + high - most[need - 1], total + low - least[need - 1]
    stay = 0
    for x in range(num):
        value = row[names[x]]
        if value + others_most >= w.lower[r] and value + others_least <= w.upper[r]:
            names[stay] = names[x]
            open_[stay] = open_[x]
            stay += 1
    return stay if stay >= need else -1


@compiled_inside
def keep_by_variety(w, v, names, open_, num, need):
    """The same for a variety row: where every pick must bring a value not yet seen, only such picks stay."""
    code = w.code[v]
    fresh = 0
    for x in range(num):
        c = code[names[x]]
        if c >= 0 and w.wear[v, c] == 0 and w.seen[v, c] == 0:
            w.seen[v, c] = 1
            fresh += 1
    for x in range(num):
        if code[names[x]] >= 0:
            w.seen[v, code[names[x]]] = 0
    w.fresh[v] = fresh
    if w.value_of[v] >= 0:
        return num
    if w.distinct[v] + min(need, fresh) < w.least[v]:
        return -1
    if w.distinct[v] + need > w.least[v]:
        return num
    stay = 0
    for x in range(num):
        c = code[names[x]]
        if c >= 0 and w.wear[v, c] == 0:
            names[stay] = names[x]
            open_[stay] = open_[x]
            stay += 1
    return stay


@compiled_inside
def groups_suffice(w, small, names, num, need):
    """Whether the caps let in `need` of the candidates: each group as many as it has room for."""
    for c in range(small.label.shape[0]):
        free = 0
        for x in range(num):
            g = small.label[c, names[x]]
            if g < 0:
                free += 1
            else:
                w.full[g] += 1
                free += w.full[g] <= small.room[g] - small.used[g]
        for x in range(num):
            if small.label[c, names[x]] >= 0:
                w.full[small.label[c, names[x]]] = 0
        if free < need:
            return False
    return True


@compiled_inside
def places_suffice(w, picks, num_picks, names, num):
    """Whether all that is chosen has a place, and the candidates can fill the others."""
    size = w.size
    for s in range(size):
        w.owner[s] = 0
    for k in range(len(w.held_may) + num_picks):
        mask = w.held_may[k] if k < len(w.held_may) else w.may[picks[k - len(w.held_may)]]
        if mask == 0 or not seat(mask, w.owner, w.parent, w.queue):
            return False
    empty = size - len(w.held_may) - num_picks
    failed = np.uint64(0)  # candidates come in few kinds; one that failed fails for good
    for x in range(num):
        if empty == 0:
            return True
        mask = w.may[names[x]]
        if mask == 0 or mask == failed:
            continue
        if seat(mask, w.owner, w.parent, w.queue):
            empty -= 1
        else:
            failed = mask
    return empty == 0


@compiled_within
def line_up(w, small, picks, num_picks):
    """Whether what is chosen may stand in a row with unknown others between."""
    held = len(small.must)
    num = held + num_picks
    may = np.empty(num, np.uint64)
    place = np.empty(num, np.int64)
    for k in range(num):
        place[k] = small.must[k] if k < held else small.position[picks[k - held]]
        may[k] = w.held_may[k] if k < held else w.may[picks[k - held]]
    follows = np.empty((num, num), np.bool_)
    for k in range(num):
        for e in range(num):
            follows[k, e] = w.follows[place[k], place[e]]
    return may_line_up(may, follows, num, w.size, w.reach)


@compiled_inside
def still_possible(w, small, row_sums, picks, num_picks, names, open_, num, need):
    """Drop candidates that no valid card takes beside the picks; returns how many stay, -1 if none can be completed.

    `open_` is kept in step with `names`.
    """
    for r in range(len(w.lower)):
        num = keep_by_row(w, r, row_sums[r], names, open_, num, need)
        if num < need:
            return -1
    for v in range(len(w.least)):
        num = keep_by_variety(w, v, names, open_, num, need)
        if num < need:
            return -1
    if not groups_suffice(w, small, names, num, need):
        return -1
    if w.places:
        if not places_suffice(w, picks, num_picks, names, num):
            return -1
        if len(w.follows) and len(small.must) + num_picks > 1 and not line_up(w, small, picks, num_picks):
            return -1
    return num


@compiled_inside
def owed(w, need, clashing, broken):
    """What broken preferences will cost at least, by the reach last worked out; `clashing` [P] pairs clash already."""
    for p in range(len(w.worth)):
        broken[p] = clashing[p]
    for r in range(len(w.lower)):
        if w.row_of[r] >= 0:
            broken[w.row_of[r]] += max(w.lower[r] - w.high[r], w.low[r] - w.upper[r], np.int64(0))
    for v in range(len(w.least)):
        if w.value_of[v] >= 0:
            short = w.least[v] - w.distinct[v] - min(need, w.fresh[v])
            broken[w.value_of[v]] += max(short, np.int64(0))
    cost = 0.0
    for p in range(len(w.worth)):
        cost += w.worth[p] * (min(broken[p], np.int64(1)) if w.once[p] else broken[p])
    return cost


@compiled_inside
def wear(w, i, step):
    """Put candidate i's values on (step 1) or take them off (step -1)."""
    for v in range(len(w.least)):
        c = w.code[v, i]
        if c >= 0:
            w.wear[v, c] += step
            if step > 0:
                w.distinct[v] += w.wear[v, c] == 1
            else:
                w.distinct[v] -= w.wear[v, c] == 0


@compiled_inside
def keeps_wants(w, row_sums):
    """Whether a full card, its picks worn and counted, keeps rows and varieties; places are looked at elsewhere."""
    for r in range(len(w.lower)):
        if w.row_of[r] < 0 and not w.lower[r] <= row_sums[r] <= w.upper[r]:
            return False
    for v in range(len(w.least)):  # noqa: SIM110 - compiled
        if w.value_of[v] < 0 and w.distinct[v] < w.least[v]:
            return False
    return True
