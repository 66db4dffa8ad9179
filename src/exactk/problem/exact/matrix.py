"""The pair weights of the small problem as one matrix, -inf where two candidates may not share a card.

Knows no search; refuses weights that are not finite or not symmetric, where they would be read.
"""

from __future__ import annotations

from typing import no_type_check

import numpy as np

from exactk.problem.exact.bits import compiled_within

TILE = 32  # rows and columns read together: a tile and its mirror image stay in the nearest cache


@compiled_within
@no_type_check
def is_bad(pair, p, q):
    """Whether a pair weight is not finite or differs from its mirror image."""
    return not np.isfinite(pair[p, q]) or pair[p, q] != pair[q, p]


@compiled_within
@no_type_check
def pair_matrix(graph, pair, position, m, label, room, pairs, fault):
    """Fill `pairs`; returns the largest size of an entry, or NaN at a bad one, which is then named in `fault`."""
    largest = 0.0
    for top in range(0, m, TILE):
        for edge in range(top, m, TILE):
            for i in range(top, min(top + TILE, m)):
                p = position[i]
                for j in range(max(edge, i + 1), min(edge + TILE, m)):
                    q = position[j]
                    weight = -np.inf
                    if graph[p, q]:
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
