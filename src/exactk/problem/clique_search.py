"""Compiled depth-first search for cards, in order of position.

Knows no rules and no Python objects: arrays in, arrays out.
"""

from __future__ import annotations

from typing import no_type_check

import numpy as np

from exactk.problem.bits import compiled, seconds


@compiled
@no_type_check
def open_positions(graph, present, size, must, group, cap, allowed, open_):
    """Fill the [N, N] `allowed` with caps of one folded in and `open_` with what may join `must`; -1 if none can."""
    N = graph.shape[0]
    held = 0
    for i in range(N):
        if must[i]:
            held += 1
            if not present[i]:
                return -1
            for j in range(N):
                if must[j] and j != i and not graph[i, j]:
                    return -1
    if held > size:
        return -1
    for i in range(N):
        open_[i] = present[i] and not must[i]
        for j in range(N):
            allowed[i, j] = graph[i, j]
            if must[j] and not graph[i, j]:
                open_[i] = False
    for c in range(cap.shape[0]):
        for i in range(N):
            if group[c, i] >= 0:
                taken = 0
                for j in range(N):
                    if must[j] and group[c, j] == group[c, i]:
                        taken += 1
                if must[i] and taken > cap[c]:
                    return -1
                if taken >= cap[c]:
                    open_[i] = False
    return size - held


@compiled
@no_type_check
def search(graph, present, size, must, group, cap, node, pair, use_pairs, n, limit, cards, weights):
    """The n best cards in (descending weight, ascending positions) order; returns (found, count, bound, complete).

    With n = 0 only counts.
    """
    N = graph.shape[0]
    C = cap.shape[0]
    allowed = np.empty((N, N), np.bool_)
    open_ = np.empty(N, np.bool_)
    R = open_positions(graph, present, size, must, group, cap, allowed, open_)
    if R < 0:
        return 0, 0, -np.inf, True
    chosen = must.copy()
    value = 0.0
    gain = np.zeros((R + 1, N))
    if n > 0:
        for i in range(N):
            gain[0, i] = node[i]
            if must[i]:
                value += node[i]
            for j in range(N):
                if use_pairs and must[j] and j != i:
                    gain[0, i] += pair[i, j]
                    if must[i] and j < i:
                        value += pair[i, j]
    best_pair = np.zeros(N)
    if use_pairs and n > 0:
        for i in range(N):
            best_pair[i] = -np.inf
            for j in range(N):
                if allowed[i, j] and open_[j]:
                    best_pair[i] = max(best_pair[i], pair[i, j])
    candidates = np.zeros((R + 1, N), np.bool_)
    candidates[0] = open_
    cursor = np.zeros(R + 1, np.int64)
    values = np.empty(R + 1)
    values[0] = value
    picks = np.empty(R, np.int64)
    top = np.empty(max(R, 1))
    found = 0
    total = 0
    depth = 0
    root_bound = np.inf
    complete = True
    stop = seconds() + limit
    ticks = 0
    while depth >= 0:
        left = R - depth
        if left == 0:
            total += 1
            if n > 0 and (found < n or values[depth] > weights[n - 1]):
                at = min(found, n - 1)
                while at > 0 and weights[at - 1] < values[depth]:
                    weights[at] = weights[at - 1]
                    cards[at] = cards[at - 1]
                    at -= 1
                weights[at] = values[depth]
                k = 0
                for i in range(N):
                    if chosen[i]:
                        cards[at, k] = i
                        k += 1
                found = min(found + 1, n)
            if n < 0:
                return 1, 1, 0.0, True
            depth -= 1
            if depth >= 0:
                chosen[picks[depth]] = False
            continue
        ticks += 1
        if ticks % 256 == 0 and seconds() > stop:
            complete = False
            break
        start = cursor[depth]
        size_left = 0
        for k in range(left):
            top[k] = -np.inf
        for i in range(start, N):
            if candidates[depth, i]:
                size_left += 1
                if n > 0:
                    u = gain[depth, i] + (left - 1) * 0.5 * best_pair[i] if left > 1 else gain[depth, i]
                    if u > top[left - 1]:
                        at = left - 1
                        while at > 0 and top[at - 1] < u:
                            top[at] = top[at - 1]
                            at -= 1
                        top[at] = u
        bound = values[depth]
        for k in range(left):
            bound += top[k]
        if depth == 0 and start == 0:
            root_bound = bound
        if size_left < left or (n > 0 and found == n and bound <= weights[n - 1]):
            depth -= 1
            if depth >= 0:
                chosen[picks[depth]] = False
            continue
        i = start
        while not candidates[depth, i]:
            i += 1
        cursor[depth] = i + 1
        chosen[i] = True
        picks[depth] = i
        for j in range(N):
            candidates[depth + 1, j] = j > i and candidates[depth, j] and allowed[i, j]
            if n > 0:
                gain[depth + 1, j] = gain[depth, j]
                if use_pairs and j > i:
                    gain[depth + 1, j] += pair[i, j]
        for c in range(C):
            g = group[c, i]
            if g >= 0:
                taken = 0
                for j in range(N):
                    if chosen[j] and group[c, j] == g:
                        taken += 1
                if taken >= cap[c]:
                    for j in range(N):
                        if group[c, j] == g:
                            candidates[depth + 1, j] = False
        values[depth + 1] = values[depth] + gain[depth, i]
        depth += 1
        cursor[depth] = i + 1
    if found and n > 0 and complete and found == n:
        root_bound = weights[n - 1]
    return found, total, root_bound, complete


@compiled
@no_type_check
def search_each(
    first, last, graph, present, size, must, group, cap, node, pair, use_pairs, n, limit,
    cards, weights, found, total, bound, complete,
):  # fmt: skip
    """`search` for the requests first..last-1 of a batch."""
    for b in range(first, last):
        p = b if use_pairs else 0
        q = b if n > 0 else 0
        found[b], total[b], bound[b], complete[b] = search(
            graph[b], present[b], size[b], must[b], group[b], cap[b], node[q], pair[p], use_pairs, n, limit,
            cards[b], weights[b],
        )  # fmt: skip
