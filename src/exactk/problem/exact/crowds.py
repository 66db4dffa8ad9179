"""Compiled: what a preference for different values costs at least, and bounds that know it or know a cap.

Knows no search. A crowd is the candidates of one value: the k-th of them on a card costs k - 1 breaks.
"""

from __future__ import annotations

from typing import no_type_check

import numpy as np

from exactk.problem.exact.bits import compiled


@compiled
@no_type_check
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


@compiled
@no_type_check
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


@compiled
@no_type_check
def top_apart(worth, names, start, num, need, code, price, label, room, used, seen, top):
    """The most that `need` of the candidates, sorted by falling worth, can be worth together.

    With a price, each but the first of a crowd costs one more than the one before; else the first cap is kept.
    Both leave what the best of a group are worth falling, so that taking the largest first is right.
    """
    capped = price == 0.0 and label.shape[0] > 0
    for k in range(need):
        top[k] = -np.inf
    end = start
    while end < num and worth[end] > top[need - 1]:
        i = names[end]
        value = worth[end]
        if capped:
            g = label[0, i]
            if g >= 0:
                if used[g] + seen[g] >= room[g]:
                    value = -np.inf
                seen[g] += 1
        elif price > 0.0:
            value -= price * seen[code[i]]
            seen[code[i]] += 1
        if value > top[need - 1]:
            at = need - 1
            while at > 0 and top[at - 1] < value:
                top[at] = top[at - 1]
                at -= 1
            top[at] = value
        end += 1
    for x in range(start, end):
        if capped:
            if label[0, names[x]] >= 0:
                seen[label[0, names[x]]] = 0
        elif price > 0.0:
            seen[code[names[x]]] = 0
    total = 0.0
    for k in range(need):
        total += top[k]
    return total
