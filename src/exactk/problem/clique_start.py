"""A good card to begin the pair-weight search with: greedy picks, then swaps while they help.

Knows no bounds and promises nothing: dead ends are left to the search.
"""

from __future__ import annotations

from typing import no_type_check

import numpy as np

from exactk.problem.bits import compiled, falling_order

STARTS = 8  # more found no better card often enough to pay: proving takes most of the time, not finding


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
def swap_while_better(pairs, label, room, first_gain, slack, total, picks):
    """Replace single picks by the best other candidate until none helps; returns the sum."""
    gain = np.empty(len(first_gain))
    used = np.empty(len(room), np.int64)
    better = True
    while better:
        better = False
        for k in range(len(picks)):
            for g in range(len(used)):
                used[g] = 0
            for j in range(len(gain)):
                gain[j] = first_gain[j]
            for other in range(len(picks)):
                if other != k:
                    join(pairs, label, room, used, picks[other], gain)
            i = largest(gain)
            if gain[i] > gain[picks[k]] + slack:
                total += gain[i] - gain[picks[k]]
                picks[k] = i
                better = True
    return total


@compiled
@no_type_check
def greedy_starts(pairs, label, room, first_gain, slack, picks):
    """The best of a few greedy cards with swaps, in `picks`; returns its sum, -inf if all were dead ends."""
    m = len(first_gain)
    order = np.empty(m, np.int64)
    for i in range(m):
        order[i] = i
    falling_order(first_gain, order, m)
    trial = np.empty(len(picks), np.int64)
    best = -np.inf
    for s in range(min(STARTS, m)):
        total = greedy_start(pairs, label, room, first_gain, order[s], trial)
        if total > -np.inf:
            total = swap_while_better(pairs, label, room, first_gain, slack, total, trial)
        if total > best:
            best = total
            for k in range(len(picks)):
                picks[k] = trial[k]
    return best
