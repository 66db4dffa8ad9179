"""A pair value on the CPU: requests in, the numbers of all candidates and pairs out, by one compiled call.

Knows no search, and of the network (`models.pairvalue`) no more than the names of its weights.
"""

from __future__ import annotations

from collections import namedtuple
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64

from exactk.engine import (
    NumpyVectors,
    Scratch,
    Weights,
    laid_out,
    packed,
    padded,
    padded_linear,
    padded_row,
    part_of,
    plain,
    rounded,
    unknown_id,
)
from exactk.engine.arithmetic import product, read_row, rectify, softmax, transposed
from exactk.engine.lanes import exponential, inner, load, multiply_add, smaller, spread, store, subtract
from exactk.problem.batch import Batch
from exactk.problem.compiling import compiled
from exactk.settings.config import InputSizes, PairValueConfig


class PairSizes(NamedTuple):
    """Of one member; all are padded to sixteen, but item and user, which are what the model reads."""

    item_size: int
    user_size: int
    embedding: int
    hidden: int
    kinds: int
    place: int
    members: int


# Where in the scratch array everything lies, for one number of candidates: rows of `inputs` are [x_i; U x_u * V x_i],
# of `tabled` k_i T; `square` is |z_i|^2, `products` z_i z_j; `turned` holds kinds, then places, as columns.
PairPlaces = namedtuple(
    "PairPlaces",
    "zeros user inputs mapped_user mapped row hidden kinds tabled places square turned pair products end",
)


@inner
def weighted(x, at, w, w_at, size):
    """The inner product of a row and weights."""
    value = np.float64(0.0)
    for i in range(size):
        value += x[at + i] * w[w_at + i]
    return value


@inner
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
def kinds_together(s, w, at, x, p, N, span):
    """k_i T k_j of every pair to x at p.pair; returns the place behind in w."""
    size, C = s.item_size, s.kinds
    product(x, p.inputs, size + s.embedding, N, size, w, at, C, C, w, at + size * C, x, p.kinds, C)
    at += size * C + C
    for n in range(N):
        softmax(x, p.kinds + n * C, C, np.float32(1), w, at)  # w holds -inf where padding is
    at += C
    product(x, p.kinds, C, N, C, w, at, C, C, x, p.zeros, x, p.tabled, C)
    transposed(x, p.kinds, C, N, C, x, p.turned, span)
    product(x, p.tabled, C, N, C, x, p.turned, span, span, x, p.zeros, x, p.pair, span)
    return at + C * C


@inner
def add_closeness(s, w, at, x, p, N, span):
    """Adds g exp(-|z_i - z_j|^2) of every pair to x at p.pair; returns the place behind in w."""
    size, Z = s.item_size, s.place
    product(x, p.inputs, size + s.embedding, N, size, w, at, Z, Z, w, at + size * Z, x, p.places, Z)
    at += size * Z + Z
    for n in range(N):
        x[p.square + n] = weighted(x, p.places + n * Z, x, p.places + n * Z, Z)
    transposed(x, p.places, Z, N, Z, x, p.turned, span)
    product(x, p.places, Z, N, Z, x, p.turned, span, span, x, p.zeros, x, p.products, span)
    strength, two, zero = spread(w[at]), spread(np.float32(2)), spread(np.float32(0))
    for i in range(N):
        row = i * span
        nearest = spread(-x[p.square + i])
        for j in range(0, span, 16):
            # -|z_i - z_j|^2, never above 0 whatever rounding says
            apart = multiply_add(two, load(x, p.products + row + j), nearest)
            apart = smaller(subtract(apart, load(x, p.square + j)), zero)
            near = exponential(apart)
            store(x, p.pair + row + j, multiply_add(strength, near, load(x, p.pair + row + j)))
    return at + 1


@inner
def pair_values(s, w, at, x, p, N, span, pair):
    """Adds s(u) (k_i T k_j + g exp(-|z_i - z_j|^2)) / members; returns the place behind in w."""
    at = kinds_together(s, w, at, x, p, N, span)
    at = add_closeness(s, w, at, x, p, N, span)
    minding = weighted(x, p.user, w, at, s.user_size) + w[at + s.user_size]
    # softplus, as log(1 + e^x) that does not overflow
    scale = max(minding, 0.0) + np.log1p(np.exp(-abs(minding)))
    for i in range(N):
        for j in range(i):
            # A product of matrices is symmetric only up to rounding; the search asks for the last bit.
            both = np.float64(x[p.pair + i * span + j]) + np.float64(x[p.pair + j * span + i])
            pair[i, j] += both * scale / (2 * s.members)
            pair[j, i] = pair[i, j]
    return at + s.user_size + 1


@compiled
def values_each(s, p, x, w, tables, features, ids, bias, node, pair):
    """Mean bias, node and pair values of every request; returns the first request with an unknown id, or -1."""
    user_tables, item_tables = tables
    user_features, item_features = features
    user, item = ids
    B, N = item.shape
    span = (N + 15) // 16 * 16
    for b in range(B):
        bias[b] = 0.0
        node[b, :] = 0.0
        pair[b, :, :] = 0.0
        at = np.int64(0)
        for m in range(s.members):
            if not read_row(x, p.user, s.user_size, user_tables[m], user_features, user[b], b, np.int64(0)):
                return b
            for n in range(N):
                row = p.inputs + n * (s.item_size + s.embedding)
                if not read_row(x, row, s.item_size, item_tables[m], item_features, item[b, n], b, n):
                    return b
            at = node_values(s, w, at, x, p, N, node[b])
            at = pair_values(s, w, at, x, p, N, span, pair[b])
            bias[b] += (weighted(x, p.user, w, at, s.user_size) + w[at + s.user_size]) / s.members
            at += s.user_size + 1
    return -1


class PairValues(NamedTuple):
    """logit(A) = bias + sum of node over A + sum of pair over the pairs of A; pair symmetric, diagonal 0."""

    bias: Float64[np.ndarray, "B"]
    node: Float64[np.ndarray, "B N"]
    pair: Float64[np.ndarray, "B N N"]


class CompiledPairValues:
    """The values of a learned pair value."""

    def __init__(self, weights: Weights, config: PairValueConfig, sizes: InputSizes) -> None:
        members = [part_of(weights, f"members.{m}") for m in range(config.members)]
        self.vectors = [NumpyVectors.of(part_of(m, "vectors"), config.inputs, sizes) for m in members]
        self.sizes = sizes_of(config, self.vectors[0])
        self._tables = (tuple(v.users for v in self.vectors), tuple(v.items for v in self.vectors))
        self._weights = packed([part for member in members for part in _weights(member, self.sizes)])
        self._scratch = Scratch()

    def __call__(self, batch: Batch) -> PairValues:
        """Of every candidate and pair."""
        B, N = batch.item.shape
        values = PairValues(np.empty(B), np.empty((B, N)), np.empty((B, N, N)))
        places = places_of(self.sizes, N)
        features = self.vectors[0].features(batch)
        unknown = values_each(
            self.sizes, places, self._scratch.of(places, places.end), self._weights, self._tables,
            (features.user[:, None], features.item), (plain(batch.user), plain(batch.item)), *values,
        )  # fmt: skip
        if unknown >= 0:
            raise unknown_id(unknown, self.vectors[0])
        return values


def sizes_of(config: PairValueConfig, vectors: NumpyVectors) -> PairSizes:
    """The network's sizes, padded to what a register holds."""
    return PairSizes(
        item_size=vectors.item_size,
        user_size=vectors.user_size,
        embedding=rounded(config.embedding_size),
        hidden=rounded(config.hidden_size),
        kinds=rounded(config.kinds),
        place=rounded(config.place_size),
        members=config.members,
    )


@lru_cache(maxsize=64)
def places_of(sizes: PairSizes, num_candidates: int) -> PairPlaces:
    """Room for everything the kernel keeps; rows come in fours."""
    span, n = rounded(num_candidates), rounded(num_candidates, 4)
    E, H, C, Z = sizes.embedding, sizes.hidden, sizes.kinds, sizes.place
    needed = {
        "zeros": max(span, H, C),
        "user": 4 * sizes.user_size,
        "inputs": n * (sizes.item_size + E),
        "mapped_user": 4 * E,
        "mapped": n * E,
        "row": 4 * H,
        "hidden": n * H,
        "kinds": n * C,
        "tabled": n * C,
        "places": n * Z,
        "square": span,
        "turned": max(C, Z) * span,
        "pair": n * span,
        "products": n * span,
    }
    places, end = laid_out(needed)
    return PairPlaces(**places, end=end)


def _weights(member: Weights, sizes: PairSizes) -> list[np.ndarray]:
    """One member's weights in the order in which the kernel reads them."""
    E, H, item, user = sizes.embedding, sizes.hidden, sizes.item_size, sizes.user_size
    C, Z, table = sizes.kinds, sizes.place, member["table"]
    barred = np.zeros(C, np.float32)
    barred[len(table) :] = -np.inf
    return [
        *padded_linear(member, "map_user", user, E),
        *padded_linear(member, "map_item", item, E),
        padded(member["node_user.weight"], user, H),
        padded_row(member["node_item.bias"], H),
        padded(member["node_item.weight"], item, H),
        padded(member["node_both.weight"], E, H),
        padded_row(member["node_out.weight"], H),
        member["node_linear.weight"],
        padded_row(np.ones_like(member["map_item.bias"]), E),
        *padded_linear(member, "kinds", item, C),
        barred,
        padded((table + table.T) / 2, C, C),
        *padded_linear(member, "places", item, Z),
        member["closeness"],
        member["minding.weight"],
        member["minding.bias"],
        member["user_bias.weight"],
        member["user_bias.bias"],
    ]
