"""The optimistic worth of each candidate, and the candidates it rules out: the bound of the pair-weight search.

Knows no stack and no clock. For `left` more picks out of a set, candidate i is worth at most its gain plus half of its
`left` - 1 best pairs within the set: summed over a card, each pair is counted by halves from both its ends.
"""

from __future__ import annotations

from typing import no_type_check

import numpy as np

from exactk.problem.exact.bits import compiled, falling_order

SCANS_BEFORE_SORTING = 8  # a sorted row costs about as much as that many scans of it


@compiled
@no_type_check
def top_sum(values, num, left, top):
    """The sum of the `left` largest; leaves them, falling, in `top`. -inf where there are fewer."""
    if num < left:
        return -np.inf
    for k in range(left):
        top[k] = -np.inf
    lowest = -np.inf
    for i in range(num):
        value = values[i]
        if value > lowest:
            at = left - 1
            while at > 0 and top[at - 1] < value:
                top[at] = top[at - 1]
                at -= 1
            top[at] = value
            lowest = top[left - 1]
    total = 0.0
    for k in range(left):
        total += top[k]
    return total


@compiled
@no_type_check
def sort_row(pairs, i, partner, strength, degree):
    """List whom i may join, best pair first."""
    num = 0
    for j in range(len(pairs)):
        if pairs[i, j] > -np.inf:
            partner[i, num] = j
            num += 1
    falling_order(pairs[i], partner[i], num)
    for k in range(num):
        strength[i, k] = pairs[i, partner[i, k]]
    degree[i] = num


@compiled
@no_type_check
def walk_partners(partner, strength, num, inside, left):
    """(sum, last) of the first `left` partners inside the set, in a row sorted best first."""
    total = 0.0
    k = 0
    while left > 0 and k < num:
        weight = inside[
            partner[k]
        ]  # 1.0 inside, 0.0 outside: a branch here would be mispredicted half the time
        total += weight * strength[k]
        left -= np.int64(weight)
        k += 1
    if left > 0:
        return -np.inf, -np.inf
    return total, strength[k - 1]


@compiled
@no_type_check
def scan_partners(row, names, start, skip, resume, num, left, top):
    """(sum, last) of the `left` best partners among names[start:skip] and names[resume:num], by looking at each."""
    for k in range(left):
        top[k] = -np.inf
    lowest = -np.inf
    for part in range(2):
        for y in range(start if part == 0 else resume, skip if part == 0 else num):
            value = row[names[y]]
            if value > lowest:
                at = left - 1
                while at > 0 and top[at - 1] < value:
                    top[at] = top[at - 1]
                    at -= 1
                top[at] = value
                lowest = top[left - 1]
    total = 0.0
    for k in range(left):
        total += top[k]
    return total, lowest


@compiled
@no_type_check
def sweep(
    pairs, partner, strength, degree, scans, inside, names, gain, worth, spare, num, left, total, rest, low, top
):  # fmt: skip
    """One pass from the last candidate to the first: its worth within those still in, or out it goes.

    Candidate i stays only if `total` + its worth + `rest`, the most the other picks can be worth, is above `low`.
    `spare` gets half of its left - 2 best pairs: what a pick made beside it leaves it to hope for.
    Returns how many stay, moved to the front; 0 where too few do.
    """
    for x in range(num):
        inside[names[x]] = 1.0
    live = num
    kept = num  # those that stay are packed at names[kept:num] while names[:x] still wait
    for x in range(num - 1, -1, -1):
        i = names[x]
        if degree[i] < 0:
            scans[i] += 1
            if scans[i] > SCANS_BEFORE_SORTING:
                sort_row(pairs, i, partner, strength, degree)
        if degree[i] >= 0:
            best, last = walk_partners(partner[i], strength[i], degree[i], inside, left - 1)
        else:
            best, last = scan_partners(pairs[i], names, 0, x, kept, num, left - 1, top)
        hope = gain[x] + 0.5 * best
        if best == -np.inf or total + hope + rest <= low:
            inside[i] = 0.0
            live -= 1
            if live < left:
                for y in range(x):
                    inside[names[y]] = 0.0
                break
        else:
            kept -= 1
            names[kept] = i
            gain[kept] = gain[x]
            worth[kept] = hope
            spare[kept] = 0.5 * (best - last)
    for y in range(kept, num):
        inside[names[y]] = 0.0
    if live < left:
        return 0
    if kept > 0:
        for y in range(kept, num):
            names[y - kept] = names[y]
            gain[y - kept] = gain[y]
            worth[y - kept] = worth[y]
            spare[y - kept] = spare[y]
    return num - kept


@compiled
@no_type_check
def tighten(
    pairs, partner, strength, degree, scans, inside, names, gain, worth, spare, num, left, total, rest, low, top
):  # fmt: skip
    """Sweep until little falls out; returns (how many stay, the most `left` of them can be worth)."""
    while True:
        before = num
        num = sweep(
            pairs, partner, strength, degree, scans, inside, names, gain, worth, spare, num, left, total, rest, low, top
        )  # fmt: skip
        if num == 0:
            return 0, -np.inf
        most = top_sum(worth, num, left, top)
        rest = most - top[left - 1]
        if (before - num) * 6 < num:
            break
    stay = 0
    for x in range(num):
        if total + worth[x] + rest > low:
            names[stay] = names[x]
            gain[stay] = gain[x]
            worth[stay] = worth[x]
            spare[stay] = spare[x]
            stay += 1
    return (stay, most) if stay >= left else (0, -np.inf)


@compiled
@no_type_check
def sort_falling(names, gain, worth, spare, num, order, scratch):
    """Put candidates in order of falling worth."""
    for x in range(num):
        order[x] = x
    falling_order(worth, order, num)
    for column in (gain, worth, spare):
        for x in range(num):
            scratch[x] = column[order[x]]
        for x in range(num):
            column[x] = scratch[x]
    for x in range(num):
        order[x] = names[order[x]]
    for x in range(num):
        names[x] = order[x]
