"""A good card to begin the pair-weight search with: greedy picks, then swaps while they help.

Knows no bounds and promises nothing: dead ends are left to the search.
"""

from __future__ import annotations

from typing import no_type_check

import numpy as np

from exactk.problem.exact.bits import compiled, falling_order, seconds

STARTS = (
    8  # greedy cards to begin with: more rarely found a better one, and proving takes longer than finding
)
MOST_PASSES = 100  # of swaps over a card: few are ever needed, and none may go on for ever
STARTS_WHEN_LONG = 512  # once a search proves long they cost little beside it


@compiled
@no_type_check
def join(pairs, label, room, used, i, gain):
    """Add i's pairs to everyone's gain; -inf for those it rules out, by the graph or by a group now full."""
    for j in range(len(gain)):
        gain[j] += pairs[i, j]
    for c in range(label.shape[0]):
        g = label[c, i]
        if g >= 0:
            used[g] += 1
            if used[g] >= room[g]:
                for j in range(len(gain)):
                    if label[c, j] == g:
                        gain[j] = -np.inf


@compiled
@no_type_check
def largest(values):
    """Where the largest value stands, the first of equals."""
    at = 0
    for i in range(1, len(values)):
        if values[i] > values[at]:
            at = i
    return at


@compiled
@no_type_check
def greedy_start(pairs, label, room, first_gain, first, picks):
    """Fill `picks` greedily from candidate `first`; returns the sum, -inf at a dead end."""
    used = np.zeros(len(room), np.int64)
    gain = first_gain.copy()
    total = 0.0
    i = first
    for depth in range(len(picks)):
        if depth > 0:
            i = largest(gain)
        if gain[i] == -np.inf:
            return -np.inf
        total += gain[i]
        picks[depth] = i
        join(pairs, label, room, used, i, gain)
    return total


@compiled
@no_type_check
def stands(pairs, blocked, label, room, used, out, j):
    """Whether j may stand in the card in place of `out`: nothing else blocks it, and no group overflows."""
    if blocked[j] > (1 if pairs[out, j] == -np.inf else 0):
        return False
    for c in range(label.shape[0]):
        g = label[c, j]
        if g >= 0 and used[g] - (1 if label[c, out] == g else 0) >= room[g]:
            return False
    return True


@compiled
@no_type_check
def shift(pairs, label, i, step, gain, blocked, used):
    """Add (step 1) or take away (step -1) what i gives to everyone: its pairs, or a block where there is none."""
    for j in range(len(gain)):
        if pairs[i, j] == -np.inf:
            blocked[j] += step
        else:
            gain[j] += step * pairs[i, j]
    for c in range(label.shape[0]):
        if label[c, i] >= 0:
            used[label[c, i]] += step


@compiled
@no_type_check
def swap_while_better(pairs, label, room, first_gain, slack, total, picks):
    """Replace single picks by the best other candidate until none helps; returns the sum."""
    m = len(first_gain)
    gain, blocked, used = first_gain.copy(), np.zeros(m, np.int64), np.zeros(len(room), np.int64)
    for k in range(len(picks)):
        shift(pairs, label, picks[k], 1, gain, blocked, used)
    better = True
    for _ in range(MOST_PASSES):
        if not better:
            break
        better = False
        for k in range(len(picks)):
            out = picks[k]
            best, most = out, gain[out] + slack
            for j in range(m):
                worth = gain[j] if pairs[out, j] == -np.inf else gain[j] - pairs[out, j]
                if worth > most and stands(pairs, blocked, label, room, used, out, j):
                    best, most = j, worth
            if best != out:
                total += most - gain[out]
                shift(pairs, label, out, -1, gain, blocked, used)
                shift(pairs, label, best, 1, gain, blocked, used)
                picks[k] = best
                better = True
    return total


@compiled
@no_type_check
def greedy_starts(pairs, label, room, first_gain, slack, first, last, deadline, picks):
    """The best greedy card with swaps among those begun with the first..last-1 heaviest candidates, in `picks`.

    Returns its sum, -inf if all were dead ends.
    """
    m = len(first_gain)
    order = np.empty(m, np.int64)
    for i in range(m):
        order[i] = i
    falling_order(first_gain, order, m)
    trial = np.empty(len(picks), np.int64)
    best = -np.inf
    for s in range(first, min(last, m)):
        if s > 0 and seconds() > deadline:
            break
        total = greedy_start(pairs, label, room, first_gain, order[s], trial)
        if total > -np.inf:
            total = swap_while_better(pairs, label, room, first_gain, slack, total, trial)
        if total > best:
            best = total
            for k in range(len(picks)):
                picks[k] = trial[k]
    return best
