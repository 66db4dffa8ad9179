"""From one request to the small problem that is searched: who is open, whom each may join, which caps still bind.

Does no searching. Candidates are renumbered 0..m-1; `position[i]` is where candidate i stood. Pair weights become one
matrix, and those that are not finite or not symmetric are refused where they would be read.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from exactk.problem.exact.bits import ONE, compiled, compiled_inside, compiled_within, falling_order

TILE = 32  # rows and columns read together: a tile and its mirror image stay in the nearest cache


class Small(NamedTuple):
    """One request reduced: m candidates, and the groups that can still overflow."""

    must: np.ndarray  # positions the card has to hold
    position: np.ndarray  # m: where candidate i stood
    label: np.ndarray  # C m: the number of its group, -1 none
    room: np.ndarray  # how many more may join each group
    used: np.ndarray  # how many have


@compiled_within
def small_of(group, cap, must, held, position, m, left):
    """The small problem of what `open_candidates` found, for `left` more picks."""
    label, room = binding_groups(group, cap, must, held, position, m, left)
    return Small(must[:held], position[:m], label, room, np.zeros(len(room), np.int64))


@compiled_within
def open_candidates(graph, present, size, pinned, chosen, group, cap, must, position):
    """Fill `must` (positions the card has to hold) and `position` (those that may join all of them).

    Returns (how many must be held, how many are open), or (-1, 0) where what must be held is already no card.
    """
    N = graph.shape[0]
    held = 0
    for p in range(N):
        if pinned[p] or chosen[p]:
            if not present[p] or held >= len(must):
                return -1, 0
            for k in range(held):
                if not graph[must[k], p]:
                    return -1, 0
            must[held] = p
            held += 1
    if held > size:
        return -1, 0
    for c in range(cap.shape[0]):
        for k in range(held):
            if room_left(group[c], cap[c], must, held, must[k]) < 0:
                return -1, 0
    num_open = 0
    for p in range(N):
        fits = present[p] and not (pinned[p] or chosen[p])
        if fits:
            for k in range(held):
                fits = fits and graph[must[k], p]
            for c in range(cap.shape[0]):
                fits = fits and room_left(group[c], cap[c], must, held, p) > 0
        if fits:
            position[num_open] = p
            num_open += 1
    return held, num_open


@compiled_within
def room_left(group, cap, must, held, p):
    """How many more of p's group a cap lets in, given what is held; plenty where it does not count p."""
    if group[p] < 0:
        return np.int64(1 << 30)
    taken = 0
    for k in range(held):
        if group[must[k]] == group[p]:
            taken += 1
    return np.int64(cap) - taken


@compiled_within
def binding_groups(group, cap, must, held, position, m, left):
    """Number the groups that can still overflow: (label [C, m], -1 = none; room [G], how many more may join each).

    A group no larger than its room, or with room for all that is left to choose, cannot overflow and gets no label.
    """
    C = cap.shape[0]
    label = np.full((C, m), -1, np.int64)
    room = np.empty(C * m, np.int64)
    values, order = np.empty(m, np.int64), np.empty(m, np.int64)
    num_labels = 0
    for c in range(C):
        for i in range(m):
            values[i] = group[c, position[i]]
            order[i] = i
        falling_order(values, order, m)
        start = 0
        while start < m:
            end = start
            while end < m and values[order[end]] == values[order[start]]:
                end += 1
            p = position[order[start]]
            free = room_left(group[c], cap[c], must, held, p)
            if values[order[start]] >= 0 and free < left and end - start > free:
                for k in range(start, end):
                    label[c, order[k]] = num_labels
                room[num_labels] = free
                num_labels += 1
            start = end
    return label, room[:num_labels]


@compiled_within
def members(label, num_labels, m, num_words):
    """The candidates of each numbered group as a set of bits [G, words]."""
    bits = np.zeros((num_labels, num_words), np.uint64)
    for c in range(label.shape[0]):
        for i in range(m):
            if label[c, i] >= 0:
                bits[label[c, i], i >> 6] |= ONE << np.uint64(i & 63)
    return bits


@compiled_within
def join_row(graph, position, m, label, room, group_bits, i, row):
    """Fill `row` with the candidates that may share a card with i; a group with room for one is a set of rivals."""
    p = position[i]
    for w in range(len(row)):
        word = np.uint64(0)
        for b in range(min(64, m - 64 * w)):
            word |= np.uint64(graph[p, position[64 * w + b]]) << np.uint64(b)
        row[w] = word
    for c in range(label.shape[0]):
        g = label[c, i]
        if g >= 0 and room[g] == 1:
            for w in range(len(row)):
                row[w] &= ~group_bits[g, w]
    row[i >> 6] &= ~(ONE << np.uint64(i & 63))


@compiled
def all_rows(graph, position, m, label, room, group_bits):
    """Whom each candidate may join, as bits [m, words]."""
    rows = np.empty((m, (m + 63) >> 6), np.uint64)
    for i in range(m):
        join_row(graph, position, m, label, room, group_bits, i, rows[i])
    return rows


@compiled_inside
def take(i, label, room, used, group_bits, rest):
    """Count i in its groups and strike those that are now full from `rest`."""
    for c in range(label.shape[0]):
        g = label[c, i]
        if g >= 0:
            used[g] += 1
            if used[g] >= room[g]:
                for w in range(len(rest)):
                    rest[w] &= ~group_bits[g, w]


@compiled_inside
def count_in(i, label, used):
    """Count i in its groups."""
    for c in range(label.shape[0]):
        if label[c, i] >= 0:
            used[label[c, i]] += 1


@compiled_inside
def put_back(i, label, used):
    """Undo `take` or `count_in`."""
    for c in range(label.shape[0]):
        if label[c, i] >= 0:
            used[label[c, i]] -= 1


@compiled_inside
def is_full(small, i):
    """Whether one of i's groups has no room left."""
    for c in range(small.label.shape[0]):
        g = small.label[c, i]
        if g >= 0 and small.used[g] >= small.room[g]:
            return True
    return False


@compiled_inside
def overflows(small, i, j):
    """Whether i and j together are one too many for a group."""
    for c in range(small.label.shape[0]):
        g = small.label[c, i]
        if g >= 0 and g == small.label[c, j] and small.used[g] + 2 > small.room[g]:
            return True
    return False


@compiled_inside
def ascend(card, size):
    """Sort a card's positions."""
    for k in range(1, size):
        moving = card[k]
        at = k
        while at > 0 and card[at - 1] > moving:
            card[at] = card[at - 1]
            at -= 1
        card[at] = moving


@compiled_within
def is_bad(pair, p, q):
    """Whether a pair weight is not finite or differs from its mirror image."""
    return not np.isfinite(pair[p, q]) or pair[p, q] != pair[q, p]


@compiled_within
def has_bad(pair, must, held, position, m, fault):
    """Whether a pair weight of what must be held, with each other or a candidate, is bad; it is named in `fault`."""
    for k in range(held):
        for x in range(k + m):
            p = must[x] if x < k else position[x - k]
            if is_bad(pair, p, must[k]):
                fault[0], fault[1] = p, must[k]
                return True
    return False


@compiled_within
def pair_matrix(graph, pair, position, m, label, room, pairs, fault):
    """Fill `pairs` (`pair` 0 0: nothing weighs); returns the largest size of an entry, NaN at a bad one.

    A bad one is named in `fault`.
    """
    largest, weighs = 0.0, len(pair) > 0
    for top in range(0, m, TILE):
        for edge in range(top, m, TILE):
            for i in range(top, min(top + TILE, m)):
                p = position[i]
                for j in range(max(edge, i + 1), min(edge + TILE, m)):
                    q = position[j]
                    weight = -np.inf
                    if graph[p, q]:
                        weight = 0.0
                        if weighs:
                            weight = pair[p, q]
                            if is_bad(pair, p, q):
                                fault[0], fault[1] = p, q
                                return np.nan
                            largest = max(largest, abs(weight))
                    pairs[i, j] = weight
                    pairs[j, i] = weight
    for i in range(m):
        pairs[i, i] = -np.inf
        for c in range(label.shape[0]):
            if label[c, i] >= 0 and room[label[c, i]] == 1:
                for j in range(m):
                    if label[c, j] == label[c, i]:
                        pairs[i, j] = -np.inf
    return largest
