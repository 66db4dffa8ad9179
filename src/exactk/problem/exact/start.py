"""A good card to begin the pair-weight search with, and a better one the longer it lasts: greedy picks, then swaps.

Knows no bounds and promises nothing: dead ends are left to the search.
"""

from __future__ import annotations

from typing import no_type_check

import numpy as np

from exactk.problem.exact.bits import compiled_inside, compiled_within, seconds

STAYS_IN, STAYS_OUT, LONGER = 2, 6, 16  # moves for which a swap is not undone, and by how many more at random
FIRST_MOVES = 2  # for each pick, before the search begins
SHARE = 16  # of the search's work that goes into a better card while it lasts


@compiled_inside
@no_type_check
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
@no_type_check
def largest(values):
    """Where the largest value stands, the first of equals."""
    at = 0
    for i in range(1, len(values)):
        if values[i] > values[at]:
            at = i
    return at


@compiled_inside
@no_type_check
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
@no_type_check
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
@no_type_check
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
@no_type_check
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
@no_type_check
def good_card(pairs, small, first_gain, slack, deadline, picks):
    """A greedy card begun with the heaviest candidate, bettered by a few swaps, in `picks`; False at a dead end."""
    first = largest(first_gain)
    used = np.zeros(len(small.room), np.int64)
    total = greedy_start(pairs, small, first_gain, first, picks, first_gain.copy(), used)
    if total == -np.inf:
        return False
    wander(pairs, small, first_gain, slack, total, picks, FIRST_MOVES * len(picks), 1, deadline)
    return True
