"""Compiled search for any valid card: is there one, and which candidates are in one.

Knows no weights. Works on the small problem of `setup.py`; sets of candidates are bits in uint64 words.
"""

from __future__ import annotations

import numpy as np

from exactk.problem.exact.bits import (
    ONE,
    compiled,
    compiled_within,
    falling_order,
    first_bits,
    first_of,
    lowest_bit,
    seconds,
    size_of,
    without,
)
from exactk.problem.exact.setup import (
    all_rows,
    ascend,
    binding_groups,
    join_row,
    members,
    open_candidates,
    put_back,
    take,
)

NONE, FOUND, OUT_OF_TIME = 0, 1, 2
QUICK_TRIES = 64  # plain steps, beyond one a pick, before colouring begins: dense graphs end within them


@compiled_within
def branching_order(rows, bits, left, order, uncoloured, colour):
    """Colour the set greedily and list the candidates of colour `left` and above, lowest colour first.

    Non-neighbours share a colour, so a clique has at most one candidate per colour: what is not listed cannot hold a
    clique of `left` candidates by itself.
    """
    num_words = len(bits)
    for w in range(num_words):
        uncoloured[w] = bits[w]
    listed = 0
    number = 0
    start = 0
    while True:
        while start < num_words and uncoloured[start] == 0:
            start += 1
        if start == num_words:
            return listed
        number += 1
        for w in range(start, num_words):
            colour[w] = uncoloured[w]
        for w in range(start, num_words):
            while colour[w]:
                bit = lowest_bit(colour[w])
                i = w * 64 + np.int64(bit)
                uncoloured[w] &= ~(ONE << bit)
                colour[w] &= ~(ONE << bit)
                for later in range(w, num_words):
                    colour[later] &= ~rows[i, later]
                if number >= left:
                    order[listed] = i
                    listed += 1


@compiled_within
def find(rows, start, left, label, room, used, group_bits, deadline, clique):
    """Look for a clique of `left` candidates within `start`; fills `clique`. Returns NONE, FOUND or OUT_OF_TIME."""
    m, num_words = rows.shape
    if left == 0:
        return FOUND
    rest = np.empty((left, num_words), np.uint64)
    order = np.empty((left, m), np.int64)
    listed = np.empty(left, np.int64)
    uncoloured, colour = np.empty(num_words, np.uint64), np.empty(num_words, np.uint64)
    for w in range(num_words):
        rest[0, w] = start[w]
    listed[0] = branching_order(rows, rest[0], left, order[0], uncoloured, colour)
    depth = 0
    ticks = 0
    while depth >= 0:
        if listed[depth] == 0:
            depth -= 1
            if depth >= 0:
                put_back(clique[depth], label, used)
            continue
        listed[depth] -= 1
        i = order[depth, listed[depth]]
        without(rest[depth], i)
        clique[depth] = i
        need = left - depth - 1
        if need == 0:
            for k in range(depth):
                put_back(clique[k], label, used)
            return FOUND
        ticks += 1
        if ticks % 32 == 0 and seconds() > deadline:
            for k in range(depth):
                put_back(clique[k], label, used)
            return OUT_OF_TIME
        for w in range(num_words):
            rest[depth + 1, w] = rest[depth, w] & rows[i, w]
        take(i, label, room, used, group_bits, rest[depth + 1])
        if size_of(rest[depth + 1]) < need:
            put_back(i, label, used)
            continue
        depth += 1
        listed[depth] = branching_order(rows, rest[depth], need, order[depth], uncoloured, colour)
    return NONE


@compiled_within
def find_quickly(graph, position, m, left, label, room, used, group_bits, clique):
    """A few plain descents in order of position, building only the rows they touch; True if one reached a card."""
    num_words = (m + 63) >> 6
    rest = np.empty((left, num_words), np.uint64)
    row = np.empty(num_words, np.uint64)
    first_bits(m, rest[0])
    depth = 0
    found = False
    for _ in range(QUICK_TRIES + left):
        i = -1
        if size_of(rest[depth]) >= left - depth:
            i = first_of(rest[depth])
        if i < 0:
            if depth == 0:
                break
            depth -= 1
            put_back(clique[depth], label, used)
            continue
        without(rest[depth], i)
        clique[depth] = i
        if depth + 1 == left:
            found = True
            break
        join_row(graph, position, m, label, room, group_bits, i, row)
        for w in range(num_words):
            rest[depth + 1, w] = rest[depth, w] & row[w]
        take(i, label, room, used, group_bits, rest[depth + 1])
        depth += 1
    for k in range(depth):
        put_back(clique[k], label, used)
    return found


@compiled_within
def find_any(graph, position, m, left, label, room, group_bits, deadline, clique):
    """Look for `left` candidates that complete the card: quickly, then, where that fails, with proof."""
    if left == 0:
        return FOUND
    if m < left:
        return NONE
    used = np.zeros(len(room), np.int64)
    if find_quickly(graph, position, m, left, label, room, used, group_bits, clique):
        return FOUND
    order = by_falling_degree(graph, position, m)
    moved = np.empty(m, np.int64)
    moved_label = np.empty((label.shape[0], m), np.int64)
    for i in range(m):
        moved[i] = position[order[i]]
        for c in range(label.shape[0]):
            moved_label[c, i] = label[c, order[i]]
    num_words = (m + 63) >> 6
    moved_bits = members(moved_label, len(room), m, num_words)
    rows = all_rows(graph, moved, m, moved_label, room, moved_bits)
    everyone = np.empty(num_words, np.uint64)
    first_bits(m, everyone)
    status = find(rows, everyone, left, moved_label, room, used, moved_bits, deadline, clique)
    if status == FOUND:
        for k in range(left):
            clique[k] = order[clique[k]]
    return status


@compiled_within
def by_falling_degree(graph, position, m):
    """The candidates, those that may join most others first: greedy colouring then needs fewest colours."""
    degree, order = np.zeros(m, np.int64), np.empty(m, np.int64)
    for i in range(m):
        order[i] = i
        for j in range(m):
            degree[i] += np.int64(graph[position[i], position[j]])
    falling_order(degree, order, m)
    return order


@compiled
def exists_each(first, last, graph, present, size, pinned, chosen, group, cap, limit, ends, cards, answer):
    """Whether a valid card holds `chosen`, for the requests first..last-1: NONE, FOUND or OUT_OF_TIME each.

    Each is given `limit` seconds, all together end at `ends`. Where `cards` has columns, the one found is put there.
    """
    N = graph.shape[1]
    must = np.empty(N, np.int64)
    position = np.empty(N, np.int64)
    clique = np.empty(N + 1, np.int64)
    for b in range(first, last):
        held, m = open_candidates(
            graph[b], present[b], size[b], pinned[b], chosen[b], group[b], cap[b], must, position
        )
        left = size[b] - held
        answer[b] = NONE
        for k in range(cards.shape[1]):
            cards[b, k] = -1
        if held >= 0:
            label, room = binding_groups(group[b], cap[b], must, held, position, m, left)
            group_bits = members(label, len(room), m, (m + 63) >> 6)
            deadline = ends
            if limit < np.inf:
                deadline = min(ends, seconds() + limit)
            answer[b] = find_any(graph[b], position, m, left, label, room, group_bits, deadline, clique)
            if answer[b] == FOUND and cards.shape[1] > 0:
                for k in range(size[b]):
                    cards[b, k] = must[k] if k < held else position[clique[k - held]]
                ascend(cards[b], size[b])
    return 0


@compiled
def completable_each(first, last, graph, present, size, pinned, chosen, group, cap, answer):
    """Which positions outside `chosen` are in a valid card together with it, for the requests first..last-1."""
    N = graph.shape[1]
    must = np.empty(N, np.int64)
    position = np.empty(N, np.int64)
    clique = np.empty(N + 1, np.int64)
    for b in range(first, last):
        for p in range(N):
            answer[b, p] = False
        held, m = open_candidates(
            graph[b], present[b], size[b], pinned[b], chosen[b], group[b], cap[b], must, position
        )
        left = size[b] - held
        if held < 0 or m < left:
            continue
        label, room = binding_groups(group[b], cap[b], must, held, position, m, left)
        num_words = (m + 63) >> 6
        group_bits = members(label, len(room), m, num_words)
        used = np.zeros(len(room), np.int64)
        rows = all_rows(graph[b], position, m, label, room, group_bits)
        rest, beside = np.empty(num_words, np.uint64), np.empty(num_words, np.uint64)
        first_bits(m, rest)
        some = left == 0
        for i in range(m if left > 0 else 0):
            if answer[b, position[i]]:
                continue
            for w in range(num_words):
                beside[w] = rest[w] & rows[i, w]
            take(i, label, room, used, group_bits, beside)
            status = NONE
            if size_of(beside) >= left - 1:
                status = find(rows, beside, left - 1, label, room, used, group_bits, np.inf, clique)
            put_back(i, label, used)
            if status == FOUND:
                # All of the clique is proven at once, so that few candidates need a search of their own.
                some = True
                answer[b, position[i]] = True
                for k in range(left - 1):
                    answer[b, position[clique[k]]] = True
            else:
                without(rest, i)
        if some:
            for k in range(held):
                answer[b, must[k]] = not chosen[b, must[k]]
    return 0
