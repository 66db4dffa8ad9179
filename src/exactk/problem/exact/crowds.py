"""Compiled: what a preference for different values costs at least, and bounds that know it or know a cap.

Knows no search. A crowd is the candidates of one value: the k-th of them on a card costs k - 1 breaks.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from exactk.problem.exact.bits import compiled_inside, compiled_within
from exactk.problem.exact.levels import OPEN, ORDER, SCRATCH, WORTH, who_is


class Crowd(NamedTuple):
    """A preference for different values: the value of each candidate, and what each break costs (0: there is none)."""

    code: np.ndarray
    price: float


@compiled_within
def crowds_of(clash, position, m, code):
    """Number the crowds, if the pairs that clash are exactly those within crowds; False where they are not."""
    num = 0
    for i in range(m):
        code[i] = num
        for j in range(i):
            if clash[position[i], position[j]]:
                code[i] = code[j]
                break
        num += code[i] == num
    for i in range(m):
        for j in range(i):
            if clash[position[i], position[j]] != (code[i] == code[j]):
                return False
    return True


@compiled_inside
def least_crowding(code, names, num, need, seen):
    """The fewest clashes among `need` of the candidates: spread as evenly as there are any."""
    groups = 0
    for x in range(num):
        seen[code[names[x]]] += 1
        groups += seen[code[names[x]]] == 1
    clashes, level = 0, 0
    while need > 0 and groups > 0:
        clashes += level * min(need, groups)
        need -= groups
        level += 1
        groups = 0
        for x in range(num):
            c = code[names[x]]
            if seen[c] > level:
                groups += 1
                seen[c] = -seen[c]  # counted at this level
        for x in range(num):
            seen[code[names[x]]] = abs(seen[code[names[x]]])
    for x in range(num):
        seen[code[names[x]]] = 0
    return clashes


@compiled_inside
def top_apart(levels, d, num, need, crowd, small, seen):
    """The most that `need` of what is open can be worth together.

    With a price, each but the first of a crowd costs one more than the one before; else the first cap is kept.
    Both leave what the best of a group are worth falling, so that taking the largest first is right.
    """
    values, names = levels.values, levels.names
    for x in range(num):
        i = who_is(levels, d, names[OPEN, d, x])
        names[ORDER, 0, x] = crowd.code[i] if crowd.price > 0.0 else small.label[0, i] + 1
        values[SCRATCH, 0, x] = values[WORTH, d, x]
    total = 0.0
    for _ in range(need):
        at, most = -1, -np.inf
        for x in range(num):
            group = names[ORDER, 0, x]
            value = values[SCRATCH, 0, x] - crowd.price * seen[group]
            if (
                crowd.price == 0.0
                and group > 0
                and small.used[group - 1] + seen[group] >= small.room[group - 1]
            ):
                value = -np.inf
            if value > most:
                at, most = x, value
        if at < 0:
            total = -np.inf
            break
        total += most
        values[SCRATCH, 0, at] = -np.inf
        seen[names[ORDER, 0, at]] += 1
    for x in range(num):
        seen[names[ORDER, 0, x]] = 0
    return total
