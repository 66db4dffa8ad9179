"""The pair value of every candidate and pair, compiled: what `models.pairvalue` computes, without torch's overhead.

Knows no search; weights come packed by `pair_search.py` in the order read here.
"""

from __future__ import annotations

from typing import NamedTuple, no_type_check

import numpy as np

from exactk.engine.arithmetic import product, rectify
from exactk.engine.lanes import inner
from exactk.problem.compiling import compiled


class PairSizes(NamedTuple):
    """Of one member; embedding, hidden layer and rank are padded to sixteen, item and user are what the model reads."""

    item_size: int
    user_size: int
    embedding: int
    hidden: int
    rank: int
    members: int


class PairPlaces(NamedTuple):
    """Where in the scratch array everything lies, for one number of candidates."""

    zeros: int
    user: int
    inputs: int  # rows [x_i; U x_u * V x_i]
    mapped_user: int
    mapped: int
    row: int
    hidden: int
    factors: int
    weighed: int
    factors_t: int
    pair: int
    end: int


@inner
@no_type_check
def read(x, at, size, table, features, row, b, n):
    """One row of inputs: the id's embedding, then the features. False: the table has no such row."""
    E = table.shape[1]
    if E > 0 and (row < 0 or row >= table.shape[0]):
        return False
    for e in range(E):
        x[at + e] = table[row, e]
    for f in range(size - E):
        x[at + E + f] = features[b, n, f]
    return True


@inner
@no_type_check
def weighted(x, at, w, w_at, size):
    """The inner product of a row and weights."""
    value = np.float64(0.0)
    for i in range(size):
        value += x[at + i] * w[w_at + i]
    return value


@inner
@no_type_check
def node_values(s, w, at, x, p, N, node):
    """Adds <U x_u, V x_i> + a x_i + w ReLU(W [x_i; x_u; U x_u * V x_i]) / members; returns the place behind in w."""
    size, E, H = s.item_size, s.embedding, s.hidden
    step = size + E
    one = np.int64(1)
    product(
        x, p.user, s.user_size, one, s.user_size, w, at, E, E, w, at + s.user_size * E, x, p.mapped_user, E
    )
    at += s.user_size * E + E
    product(x, p.inputs, step, N, size, w, at, E, E, w, at + size * E, x, p.mapped, E)
    at += size * E + E
    for n in range(N):
        for e in range(E):
            x[p.inputs + n * step + size + e] = x[p.mapped + n * E + e] * x[p.mapped_user + e]
    product(x, p.user, s.user_size, one, s.user_size, w, at, H, H, w, at + s.user_size * H, x, p.row, H)
    at += s.user_size * H + H
    product(x, p.inputs, step, N, step, w, at, H, H, x, p.row, x, p.hidden, H)
    rectify(x, p.hidden, N * H)
    at += step * H
    for n in range(N):
        # The weights of x_i and of the products (ones) lie side by side, as the inputs do.
        value = weighted(x, p.hidden + n * H, w, at, H) + weighted(x, p.inputs + n * step, w, at + H, step)
        node[n] += value / s.members
    return at + H + step


@inner
@no_type_check
def pair_values(s, w, at, x, p, N, span, pair):
    """Adds s(u) sum_r d_r p_r(i) p_r(j) / members; returns the place behind in w."""
    size, H, R = s.item_size, s.hidden, s.rank
    product(x, p.inputs, size + s.embedding, N, size, w, at, H, H, w, at + size * H, x, p.hidden, H)
    rectify(x, p.hidden, N * H)
    at += size * H + H
    product(x, p.hidden, H, N, H, w, at, R, R, w, at + H * R, x, p.factors, R)
    at += H * R + R
    minding = weighted(x, p.user, w, at, s.user_size) + w[at + s.user_size]
    at += s.user_size + 1
    # softplus, as log(1 + e^x) that does not overflow
    scale = np.float32(max(minding, 0.0) + np.log1p(np.exp(-abs(minding))))
    for n in range(N):
        for r in range(R):
            value = x[p.factors + n * R + r]
            x[p.weighed + n * R + r] = value * (w[at + r] * scale)
            x[p.factors_t + r * span + n] = value
    product(x, p.weighed, R, N, R, x, p.factors_t, span, span, x, p.zeros, x, p.pair, span)
    for i in range(N):
        for j in range(i):
            # A product of matrices is symmetric only up to rounding; the search asks for the last bit.
            both = np.float64(x[p.pair + i * span + j]) + np.float64(x[p.pair + j * span + i])
            pair[i, j] += both / (2 * s.members)
            pair[j, i] = pair[i, j]
    return at + R


@compiled
@no_type_check
def values_each(s, p, x, w, tables, features, ids, node, pair):
    """Mean node and pair values of every request; returns the first request with an unknown id, or -1."""
    user_tables, item_tables = tables
    user_features, item_features = features
    user, item = ids
    B, N = item.shape
    span = (N + 15) // 16 * 16
    for b in range(B):
        node[b, :] = 0.0
        pair[b, :, :] = 0.0
        at = np.int64(0)
        for m in range(s.members):
            if not read(x, p.user, s.user_size, user_tables[m], user_features, user[b], b, np.int64(0)):
                return b
            for n in range(N):
                row = p.inputs + n * (s.item_size + s.embedding)
                if not read(x, row, s.item_size, item_tables[m], item_features, item[b, n], b, n):
                    return b
            at = node_values(s, w, at, x, p, N, node[b])
            at = pair_values(s, w, at, x, p, N, span, pair[b])
    return -1
