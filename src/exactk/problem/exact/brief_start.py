"""A good card under a brief to begin the search with: greedy picks, then swaps that mend what is broken, and gain.

Knows no bounds and promises nothing: what it cannot mend is left to the search.
"""

from __future__ import annotations

from typing import NamedTuple, no_type_check

import numpy as np

from exactk.problem.exact.bits import compiled_inside, compiled_within, seconds
from exactk.problem.exact.leaves import offer_leaf
from exactk.problem.exact.places import seat
from exactk.problem.exact.start import greedy_start, largest, shift, stands
from exactk.problem.exact.wants import wear

MOST_SWAPS = 200


class StartScratch(NamedTuple):
    """Room for mending a card."""

    totals: np.ndarray  # of the rows
    scale: np.ndarray  # of a row: its largest entry
    gain: np.ndarray  # m: what each would add to the card
    blocked: np.ndarray  # m: how many on the card it may not share it with
    used: np.ndarray  # of each group


@compiled_inside
@no_type_check
def row_fault(w, r, total, scale, heavy):
    """What a row's sum costs: its price where it is a preference, a heavy one where it is a rule."""
    over = max(w.lower[r] - total, total - w.upper[r], np.int64(0))
    if over == 0:
        return 0.0
    p = w.row_of[r]
    if p < 0:
        return heavy * (1.0 + over / scale[r])
    return w.worth[p] * (1.0 if w.once[p] else np.float64(over))


@compiled_inside
@no_type_check
def variety_fault(w, v, distinct, heavy):
    """The same for a variety row."""
    short = max(w.least[v] - distinct, np.int64(0))
    if short == 0:
        return 0.0
    p = w.value_of[v]
    if p < 0:
        return heavy * (1.0 + short)
    return w.worth[p] * (1.0 if w.once[p] else np.float64(short))


@compiled_inside
@no_type_check
def faults(w, totals, out, into, scale, heavy):
    """What is broken after a swap (`out` and `into` -1: as it is)."""
    cost = 0.0
    for r in range(len(w.lower)):
        total = totals[r]
        if out >= 0:
            total += w.coefficient[r, into] - w.coefficient[r, out]
        cost += row_fault(w, r, total, scale, heavy)
    for v in range(len(w.least)):
        distinct = w.distinct[v]
        if out >= 0 and w.code[v, out] != w.code[v, into]:
            gone, come = w.code[v, out], w.code[v, into]
            distinct -= gone >= 0 and w.wear[v, gone] == 1
            distinct += come >= 0 and w.wear[v, come] == 0
        cost += variety_fault(w, v, distinct, heavy)
    return cost


@compiled_inside
@no_type_check
def unseated(w, picks, out, into):
    """How many of a card, `into` in place of `out` (-1: as it is), find no place."""
    if not w.places:
        return 0
    for s in range(w.size):
        w.owner[s] = 0
    lost = 0
    for k in range(len(w.held_may) + len(picks)):
        if k < len(w.held_may):
            mask = w.held_may[k]
        else:
            i = picks[k - len(w.held_may)]
            mask = w.may[into if i == out else i]
        lost += mask == 0 or not seat(mask, w.owner, w.parent, w.queue)
    return lost


@compiled_inside
@no_type_check
def mend(w, small, root, row_sums, slack, deadline, picks, scratch):
    """Swap single picks while that mends what is broken, or gains; True where rules are kept at last.

    Rules are rows, varieties and seats; not neighbours. `scratch.totals` gets the sums of the rows.
    """
    m, M, pairs, heavy = len(root.adds), len(w.lower), root.pairs, 8.0 * root.scale
    totals, scale, gain, blocked, used = scratch
    for r in range(M):
        totals[r] = row_sums[r]
    for g in range(len(used)):
        used[g] = 0
    for j in range(m):
        gain[j], blocked[j] = root.adds[j], 0
    for k in range(len(picks)):
        shift(pairs, small, picks[k], 1, gain, blocked, used)
        wear(w, picks[k], 1)
        for r in range(M):
            totals[r] += w.coefficient[r, picks[k]]
    bad = faults(w, totals, -1, -1, scale, heavy) + heavy * unseated(w, picks, -1, -1)
    swaps, better = 0, True
    while better and swaps < MOST_SWAPS:
        better = False
        for k in range(len(picks)):
            out = picks[k]
            best, most, worst = out, gain[out] - bad + slack, bad
            if seconds() > deadline:
                break
            for j in range(m):
                worth = gain[j] if pairs[out, j] == -np.inf else gain[j] - pairs[out, j]
                if worth <= most or not stands(pairs, blocked, small, used, out, j):
                    continue
                cost = faults(w, totals, out, j, scale, heavy)
                if worth - cost > most:
                    cost += heavy * unseated(w, picks, out, j)
                    if worth - cost > most:
                        best, most, worst = j, worth - cost, cost
            if best != out:
                shift(pairs, small, out, -1, gain, blocked, used)
                shift(pairs, small, best, 1, gain, blocked, used)
                wear(w, out, -1)
                wear(w, best, 1)
                for r in range(M):
                    totals[r] += w.coefficient[r, best] - w.coefficient[r, out]
                picks[k], bad = best, worst
                better = True
                swaps += 1
    for k in range(len(picks)):
        wear(w, picks[k], -1)
    return bad < heavy


@compiled_within
@no_type_check
def start_with(shelf, w, small, leaf, root, row_sums, first, last, deadline, best):
    """Offer cards by greedy picks and swaps, begun with those candidates that promise most, from rank first to last."""
    m, M, left = len(root.adds), len(w.lower), len(leaf.card)
    promise, picks = root.guided.copy(), np.empty(left, np.int64)
    scratch = StartScratch(
        np.empty(M, np.int64),
        np.ones(M),
        np.empty(m),
        np.empty(m, np.int64),
        np.empty(len(small.room), np.int64),
    )
    for r in range(M):
        for j in range(m):
            scratch.scale[r] = max(scratch.scale[r], abs(np.float64(w.coefficient[r, j])))
    for s in range(min(last, m)):
        at = largest(promise)
        promise[at] = -np.inf
        if s < first:
            continue
        if s > 0 and seconds() > deadline:
            break
        if greedy_start(
            root.pairs, small, root.guided, at, picks, scratch.gain, scratch.used
        ) > -np.inf and mend(w, small, root, row_sums, best.slack, deadline, picks, scratch):
            for k in range(left):
                wear(w, picks[k], 1)
            offer_leaf(shelf, w, small, leaf, picks, scratch.totals, best)
            for k in range(left):
                wear(w, picks[k], -1)
