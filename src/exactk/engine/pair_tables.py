"""Pair values of a known catalogue: what depends on an item alone is computed once, when the model is loaded.

Knows the pair value's layers by name, and no search. Of a request, only what the user changes is left to compute: about
a quarter of the work, and no features to carry along.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, Int64

from exactk.engine import Scratch, Weights, linear, padded_row, part_of, plain, rounded, softmax
from exactk.engine.arithmetic import product
from exactk.engine.lanes import (
    add,
    exponential,
    inner,
    larger,
    load,
    multiply_add,
    smaller,
    spread,
    store,
    subtract,
    total,
)
from exactk.engine.pair_values import CompiledPairValues, PairValues
from exactk.problem.compiling import compiled
from exactk.settings.config import PairValueConfig

MOST_BYTES = 512 << 20  # of tables; a larger catalogue goes without


class TableSizes(NamedTuple):
    """Of one member; the hidden layer is padded to sixteen. `stride` is how far apart two items' rows are."""

    members: int
    embedding: int
    hidden: int
    kinds: int
    place: int
    stride: int


class UserPart(NamedTuple):
    """What a request's user decides, and what turns it into values.

    `weights` holds one matrix per member, its columns U x_u, the hidden layer's share, s and bias; its last row is
    added as it is.
    """

    sizes: TableSizes
    weights: Float32[np.ndarray, "M depth columns"]
    both: Float32[np.ndarray, "M E H"]
    out: Float32[np.ndarray, "n"]
    closeness: Float32[np.ndarray, "M"]


@inner
def read_user(m, user, table, features, b, weights, out):
    """Adds W [x_u; 1] for one member; False where the table has no such user."""
    E = table.shape[1]
    if E > 0 and (user < 0 or user >= table.shape[0]):
        return False
    depth, columns = weights.shape[1] - 1, weights.shape[2]
    for c in range(columns):
        out[c] = weights[m, depth, c]
    for k in range(depth):
        value = table[user, k] if k < E else features[b, k - E]
        for c in range(columns):
            out[c] += value * weights[m, k, c]
    return True


@inner
def gather(x, at, rows, table, stride):
    """The items' rows of the table, one after the other: read once from far away, then near at hand."""
    for n in range(len(rows)):
        source, target = rows[n] * stride, at + n * stride
        for i in range(0, stride, 16):
            store(x, target + i, load(table, source + i))


@inner
def add_nodes(x, item, free, m, N, users, of_user, mixed, node):
    """Adds <U x_u, V x_i> + w ReLU(W [x_i; x_u; U x_u * V x_i]) of one member to every node; items begin at `item`."""
    E, H, stride = users.sizes.embedding, users.sizes.hidden, users.sizes.stride
    for e in range(E):
        for h in range(H):
            mixed[e * H + h] = users.both[m, e, h] * of_user[e]
    for h in range(H):
        x[free + h] = of_user[E + h]
    hidden = free + H
    product(x, item, stride, N, E, mixed, 0, H, H, x, free, x, hidden, H)
    zero = spread(np.float32(0.0))
    for n in range(N):
        at, sums, linear = item + n * stride, zero, np.float32(0.0)
        for e in range(E):
            linear += x[at + e] * of_user[e]
        for h in range(0, H, 16):
            value = larger(add(load(x, hidden + n * H + h), load(x, at + E + h)), zero)
            sums = multiply_add(value, load(users.out, m * H + h), sums)
        node[n] += linear + total(sums)


@inner
def add_pairs(x, item, out, free, N, span, scale, closeness, sizes):
    """Adds scale (k_i T k_j + g exp(-|z_i - z_j|^2)) of one member to x at `out`, below the diagonal."""
    C, Z, stride = sizes.kinds, sizes.place, sizes.stride
    tabled = item + C
    places, square = tabled + C, tabled + C + Z
    kinds_t, places_t, squares = free, free + C * span, free + (C + Z) * span
    zeros, four = squares + span, squares + 2 * span
    for n in range(N):
        x[squares + n] = x[square + n * stride]
        for c in range(C):
            x[kinds_t + c * span + n] = x[item + n * stride + c]
        for z in range(Z):
            x[places_t + z * span + n] = x[places + n * stride + z]
    for c in range(span):
        x[zeros + c] = 0.0
    weight, near_weight = spread(scale), spread(scale * closeness)
    none, two = spread(np.float32(0)), spread(np.float32(2))
    for n in range(0, N, 4):
        columns = min((n + 4 + 15) // 16 * 16, span)  # right of the diagonal nothing is read
        kinds_n, places_n, products = tabled + n * stride, places + n * stride, four + 4 * span
        product(x, kinds_n, stride, 4, C, x, kinds_t, span, columns, x, zeros, x, four, span)
        product(x, places_n, stride, 4, Z, x, places_t, span, columns, x, zeros, x, products, span)
        for row in range(4):
            nearest = spread(-x[squares + n + row])
            for j in range(0, columns, 16):
                at, to = four + row * span + j, out + (n + row) * span + j
                # -|z_i - z_j|^2, never above 0 whatever rounding says
                apart = subtract(multiply_add(two, load(x, at + 4 * span), nearest), load(x, squares + j))
                near = exponential(smaller(apart, none))
                store(x, to, multiply_add(weight, load(x, at), multiply_add(near_weight, near, load(x, to))))


@compiled
def table_values_each(x, users, table, user_tables, features, user, rows, bias, node, pair):
    """Mean values of every request; returns the first request with an unknown user, or -1."""
    M, E, H = users.sizes.members, users.sizes.embedding, users.sizes.hidden
    C, Z, stride = users.sizes.kinds, users.sizes.place, users.sizes.stride
    step, N = E + H + 2 * C + Z + 1, rows.shape[1]
    span = (N + 15) // 16 * 16
    of_user = np.empty(E + H + 2, np.float32)
    mixed = np.empty(E * H, np.float32)
    sums = (N + 3) * stride
    free = sums + (N + 3) * span
    for b in range(len(rows)):
        gather(x, 0, rows[b], table, stride)
        for n in range(N):
            node[b, n] = x[n * stride + M * step]
        for c in range(sums, free):
            x[c] = 0.0
        bias[b] = 0.0
        for m in range(M):
            if not read_user(m, user[b], user_tables[m], features, b, users.weights, of_user):
                return b
            add_nodes(x, m * step, free, m, N, users, of_user, mixed, node[b])
            minding = np.float64(of_user[E + H])
            # softplus, as log(1 + e^x) that does not overflow
            scale = np.float32(max(minding, 0.0) + np.log1p(np.exp(-abs(minding))))
            add_pairs(x, m * step + E + H, sums, free, N, span, scale, users.closeness[m], users.sizes)
            bias[b] += of_user[E + H + 1] / M
        for n in range(N):
            node[b, n] /= M
            pair[b, n, n] = 0.0
            for j in range(n):
                pair[b, n, j] = pair[b, j, n] = x[sums + n * span + j] / M
    return -1


@dataclass(frozen=True, eq=False)
class PairTables:
    """The values of a pair value for items named by their row in a catalogue."""

    users: UserPart
    user_tables: tuple[np.ndarray, ...]
    items: Float32[np.ndarray, "n"]
    scratch: Scratch

    @classmethod
    def of(
        cls,
        weights: Weights,
        config: PairValueConfig,
        values: CompiledPairValues,
        item: Int64[np.ndarray, "I"],
        features: Float32[np.ndarray, "I F"] | None,
    ) -> PairTables | None:
        """`item` are vocabulary indices, `features` the scaled features, by row of the catalogue.

        None where the tables would be too large.
        """
        size = config.embedding_size + config.hidden_size + 2 * config.kinds + config.place_size
        if 4 * config.members * size * len(item) > MOST_BYTES:
            return None
        members = [part_of(weights, f"members.{m}") for m in range(config.members)]
        users = _user_part(members)
        items = _item_table(members, values, item, features, users.sizes.stride)
        return cls(users, tuple(vectors.users for vectors in values.vectors), items, Scratch())

    def values(
        self,
        user: Int64[np.ndarray, "B"],
        features: Float32[np.ndarray, "B Fu"] | None,
        rows: Int64[np.ndarray, "B N"],
    ) -> PairValues:
        """Bias, node and pair values; where nothing stands in `rows`, any row will do."""
        B, N = rows.shape
        values = PairValues(np.empty(B), np.empty((B, N)), np.empty((B, N, N)))
        if features is None:
            features = np.zeros((B, 0), np.float32)
        unknown = table_values_each(
            self._room(N), self.users, self.items, self.user_tables, features, user, rows, *values
        )
        if unknown >= 0:
            raise IndexError(f"user index {user[unknown]} is beyond the model's table")
        return values

    def _room(self, N: int) -> Float32[np.ndarray, "n"]:
        """Working memory; all that is read is written before, for any N."""
        _, _, H, C, Z, stride = self.users.sizes
        span = rounded(N)
        needed = (N + 3) * (stride + span) + max(H + (N + 3) * H, (C + Z + 10) * span) + 16
        size = 1 << needed.bit_length()  # one for many N
        return self.scratch.of(size, size)


def _with_bias(member: Weights, name: str) -> np.ndarray:
    """The transposed matrix with its bias, or zeros, as the last row."""
    weight = member[f"{name}.weight"]
    return np.vstack([weight.T, member.get(f"{name}.bias", np.zeros(len(weight), np.float32))])


def _user_part(members: list[dict[str, np.ndarray]]) -> UserPart:
    first = members[0]
    H = rounded(len(first["node_item.weight"]))
    layers = [
        np.hstack([
            _with_bias(m, "map_user"), padded_row(_with_bias(m, "node_user"), H),
            _with_bias(m, "minding"), _with_bias(m, "user_bias"),
        ]) for m in members
    ]  # fmt: skip
    E, C, Z = (len(first[f"{name}.weight"]) for name in ("map_item", "kinds", "places"))
    stride = rounded(len(members) * (E + H + 2 * C + Z + 1) + 1)
    return UserPart(
        sizes=TableSizes(len(members), E, H, C, Z, stride),
        weights=plain(np.stack(layers)),
        both=plain(np.stack([padded_row(m["node_both.weight"].T, H) for m in members])),
        out=plain(np.concatenate([padded_row(m["node_out.weight"][0], H) for m in members])),
        closeness=plain(np.stack([m["closeness"] for m in members])),
    )


def _item_table(
    members: list[dict[str, np.ndarray]],
    values: CompiledPairValues,
    item: Int64[np.ndarray, "I"],
    features: Float32[np.ndarray, "I F"] | None,
    stride: int,
) -> Float32[np.ndarray, "n"]:
    """What an item alone decides, a row for each: per member V x_i, its share of the hidden layer, k, k T, z, |z|^2.

    At the end the linear terms, for all members together.
    """
    parts, linears = [], np.zeros((len(item), 1), np.float32)
    for m, vectors in zip(members, values.vectors, strict=True):
        x = vectors.item_rows(item, features)
        hidden, kinds = linear(m, "node_item", x), softmax(linear(m, "kinds", x))
        places = linear(m, "places", x)
        tabled = kinds @ (m["table"] + m["table"].T) / 2
        square = np.square(places).sum(-1, keepdims=True)
        hidden = padded_row(hidden, rounded(hidden.shape[1]))
        parts += [linear(m, "map_item", x), hidden, kinds, tabled, places, square]
        linears += linear(m, "node_linear", x)
    width = sum(part.shape[1] for part in parts) + 1
    padding = np.zeros((len(item), stride - width), np.float32)
    return plain(np.concatenate([*parts, linears, padding], 1).reshape(-1))
