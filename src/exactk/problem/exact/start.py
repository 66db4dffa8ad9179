"""A good card to begin a search with, and a better one the longer it lasts: greedy picks, then swaps.

Knows no bounds and promises nothing: dead ends are left to the search. Under a brief swaps mend what is broken, too.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from exactk.problem.exact.bits import compiled_inside, compiled_within, seconds
from exactk.problem.exact.leaves import offer_leaf
from exactk.problem.exact.places import seat
from exactk.problem.exact.wants import wear

STAYS_IN, STAYS_OUT, LONGER = 2, 6, 16  # moves for which a swap is not undone, and by how many more at random
FIRST_MOVES = 2  # for each pick, before the search begins
SHARE = 16  # of the search's work that goes into a better card while it lasts
MOST_SWAPS = 200  # under a brief


@compiled_inside
def join(pairs, small, used, i, gain):
    """Add i's pairs to everyone's gain; -inf for those it rules out, by the graph or by a group now full."""
    for j in range(len(gain)):
        gain[j] += pairs[i, j]
    for c in range(small.label.shape[0]):
        g = small.label[c, i]
        if g >= 0:
            used[g] += 1
            if used[g] >= small.room[g]:
                for j in range(len(gain)):
                    if small.label[c, j] == g:
                        gain[j] = -np.inf


@compiled_inside
def largest(values):
    """Where the largest value stands, the first of equals."""
    at = 0
    for i in range(1, len(values)):
        if values[i] > values[at]:
            at = i
    return at


@compiled_inside
def greedy_start(pairs, small, first_gain, first, picks, gain, used):
    """Fill `picks` greedily from candidate `first`; returns the sum, -inf at a dead end. `gain` and `used`: scratch."""
    for g in range(len(used)):
        used[g] = 0
    for j in range(len(gain)):
        gain[j] = first_gain[j]
    total = 0.0
    i = first
    for depth in range(len(picks)):
        if depth > 0:
            i = largest(gain)
        if gain[i] == -np.inf:
            return -np.inf
        total += gain[i]
        picks[depth] = i
        join(pairs, small, used, i, gain)
    return total


@compiled_inside
def stands(pairs, blocked, small, used, out, j):
    """Whether j may stand in the card in place of `out`: nothing else blocks it, and no group overflows."""
    if blocked[j] > (1 if pairs[out, j] == -np.inf else 0):
        return False
    for c in range(small.label.shape[0]):
        g = small.label[c, j]
        if g >= 0 and used[g] - (1 if small.label[c, out] == g else 0) >= small.room[g]:
            return False
    return True


@compiled_inside
def shift(pairs, small, i, step, gain, blocked, used):
    """Add (step 1) or take away (step -1) what i gives to everyone: its pairs, or a block where there is none."""
    for j in range(len(gain)):
        if pairs[i, j] == -np.inf:
            blocked[j] += step
        else:
            gain[j] += step * pairs[i, j]
    for c in range(small.label.shape[0]):
        if small.label[c, i] >= 0:
            used[small.label[c, i]] += step


@compiled_within
def wander(pairs, small, first_gain, slack, total, picks, moves, seed, deadline):
    """Swap one pick after another, always the best swap though it lose, none undone at once; the best sum met.

    Its card is left in `picks`. Where swaps that only gain end, within a few percent of the best, this goes on: of 200
    candidates, 10 picks, it meets the best card within some hundred moves.
    """
    m, size = len(first_gain), len(picks)
    gain, blocked, used = first_gain.copy(), np.zeros(m, np.int64), np.zeros(len(small.room), np.int64)
    waits, now = np.zeros(m, np.int64), picks.copy()
    for k in range(size):
        shift(pairs, small, now[k], 1, gain, blocked, used)
        waits[now[k]] = -1  # on the card
    free = np.zeros(size, np.int64)
    best, random = total, np.uint64(seed)
    for move in range(1, moves + 1):
        if move % 4 == 0 and seconds() > deadline:
            break
        spot, into, most = -1, -1, -np.inf
        for k in range(size):
            out = now[k]
            if free[k] > move:
                continue
            for j in range(m):
                ahead = (gain[j] if pairs[out, j] == -np.inf else gain[j] - pairs[out, j]) - gain[out]
                if ahead <= most or waits[j] < 0 or (waits[j] > move and total + ahead <= best + slack):
                    continue
                if stands(pairs, blocked, small, used, out, j):
                    spot, into, most = k, j, ahead
        if spot < 0:
            break
        out = now[spot]
        shift(pairs, small, out, -1, gain, blocked, used)
        shift(pairs, small, into, 1, gain, blocked, used)
        random = random * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
        longer = np.int64(random >> np.uint64(33)) % LONGER
        waits[out], waits[into], now[spot] = move + STAYS_OUT + longer, -1, into
        free[spot] = move + STAYS_IN + longer // 4
        total += most
        if total > best + slack:
            best = total
            for k in range(size):
                picks[k] = now[k]
    return best


@compiled_within
def good_card(pairs, small, first_gain, slack, deadline, picks):
    """A greedy card begun with the heaviest candidate, bettered by a few swaps, in `picks`; False at a dead end."""
    first = largest(first_gain)
    used = np.zeros(len(small.room), np.int64)
    total = greedy_start(pairs, small, first_gain, first, picks, first_gain.copy(), used)
    if total == -np.inf:
        return False
    wander(pairs, small, first_gain, slack, total, picks, FIRST_MOVES * len(picks), 1, deadline)
    return True


class StartScratch(NamedTuple):
    """Room for mending a card."""

    totals: np.ndarray  # of the rows
    scale: np.ndarray  # of a row: its largest entry
    gain: np.ndarray  # m: what each would add to the card
    blocked: np.ndarray  # m: how many on the card it may not share it with
    used: np.ndarray  # of each group


@compiled_inside
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
