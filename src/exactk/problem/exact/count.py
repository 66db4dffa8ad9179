"""Compiled counting of valid cards.

Knows no weights. Enumerates, so that a count in the billions takes as long; what all agree is counted by formula.
"""

from __future__ import annotations

from typing import no_type_check

import numpy as np

from exactk.problem.exact.bits import (
    ONE,
    compiled,
    compiled_within,
    first_bits,
    first_of,
    lowest_bit,
    popcount,
    size_of,
    without,
)
from exactk.problem.exact.setup import (
    all_rows,
    binding_groups,
    members,
    open_candidates,
    put_back,
    take,
)

MOST = np.int64(2**63 - 1)


@compiled_within
@no_type_check
def binomial(n, k):
    """How many ways to choose k of n; the largest int64 where it is more."""
    k = min(k, n - k)
    ways = np.int64(1)
    for i in range(1, k + 1):
        # C(n-k+i, i) = ways * (n-k+i) / i; what i shares with ways is divided out first, the rest divides n-k+i.
        shared, other = ways, i
        while other:
            shared, other = other, shared % other
        ways //= shared
        factor = (n - k + i) // (i // shared)
        if ways > MOST // factor:
            return MOST
        ways *= factor
    return ways


@compiled_within
@no_type_check
def is_clique(rows, bits):
    """Whether every two of a set may share a card."""
    num = size_of(bits)
    for w in range(len(bits)):
        word = bits[w]
        while word:
            i = w * 64 + np.int64(lowest_bit(word))
            word &= word - ONE
            beside = 0
            for k in range(len(bits)):
                beside += np.int64(popcount(bits[k] & rows[i, k]))
            if beside != num - 1:
                return False
    return True


@compiled_within
@no_type_check
def count_cliques(rows, m, left, label, room, group_bits):
    """The number of cliques of `left` candidates: enumerated, or by formula where all of a set may share a card."""
    num_words = rows.shape[1]
    if left == 0:
        return np.int64(1)
    rest = np.empty((left, num_words), np.uint64)
    picks = np.empty(left, np.int64)
    used = np.zeros(len(room), np.int64)
    first_bits(m, rest[0])
    depth = 0
    total = np.int64(0)
    entering = True
    while depth >= 0:
        need = left - depth
        num = size_of(rest[depth])
        ways = np.int64(-1)
        if num < need:
            ways = 0
        elif need == 1:
            ways = num
        elif entering and len(room) == 0 and is_clique(rows, rest[depth]):
            ways = binomial(num, need)
        if ways >= 0:
            if ways > MOST - total:
                return MOST
            total += ways
            depth -= 1
            if depth >= 0:
                put_back(picks[depth], label, used)
            entering = False
            continue
        i = first_of(rest[depth])
        without(rest[depth], i)
        picks[depth] = i
        for w in range(num_words):
            rest[depth + 1, w] = rest[depth, w] & rows[i, w]
        take(i, label, room, used, group_bits, rest[depth + 1])
        depth += 1
        entering = True
    return total


@compiled
@no_type_check
def count_each(first, last, graph, present, size, pinned, group, cap, answer):
    """How many valid cards the requests first..last-1 have."""
    N = graph.shape[1]
    must = np.empty(N, np.int64)
    position = np.empty(N, np.int64)
    for b in range(first, last):
        held, m = open_candidates(
            graph[b], present[b], size[b], pinned[b], pinned[b], group[b], cap[b], must, position
        )
        answer[b] = 0
        left = size[b] - held
        if held >= 0 and m >= left:
            label, room = binding_groups(group[b], cap[b], must, held, position, m, left)
            group_bits = members(label, len(room), m, (m + 63) >> 6)
            rows = all_rows(graph[b], position, m, label, room, group_bits)
            answer[b] = count_cliques(rows, m, left, label, room, group_bits)
    return 0
