"""Pair values of a known catalogue: what depends on an item alone is computed once, when the model is loaded.

Knows the pair value's layers by name, and no search. Of a request, only what the user changes is left to compute: about
a quarter of the work, and no features to carry along.
"""

from __future__ import annotations

import threading
from typing import Any, NamedTuple, no_type_check

import numpy as np
import torch
from jaxtyping import Float32, Float64, Int64
from torch import Tensor

from exactk.engine.arithmetic import product
from exactk.engine.compiled import aligned, plain, rounded
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
from exactk.models.inputs import joined
from exactk.models.pairvalue import PairMember, PairValue
from exactk.problem.compiling import compiled

MOST_BYTES = 512 << 20  # of tables; a larger catalogue goes without
# A member with other layers than these computes something else.
LAYERS = {"map_user", "map_item", "node_linear", "node_item", "node_user", "node_both", "node_out",
          "kinds", "places", "minding", "user_bias"}  # fmt: skip


class TableSizes(NamedTuple):
    """Of one member; the hidden layer is padded to sixteen."""

    members: int
    embedding: int
    hidden: int
    kinds: int
    place: int


class UserPart(NamedTuple):
    """What a request's user decides, and what turns it into values.

    `weights` holds one matrix per member, its columns U x_u, the hidden layer's share, s and bias; its last row is
    added as it is.
    """

    sizes: TableSizes
    weights: Float32[np.ndarray, "M Du+1 E+H+2"]
    both: Float32[np.ndarray, "M E H"]
    out: Float32[np.ndarray, "M*H"]
    closeness: Float32[np.ndarray, M]


class ItemPart(NamedTuple):
    """What an item alone decides, by row of the catalogue, members side by side."""

    mapped: Float32[np.ndarray, "I*M*E"]
    hidden: Float32[np.ndarray, "I*M*H"]
    kinds: Float32[np.ndarray, "I*M*C"]
    tabled: Float32[np.ndarray, "I*M*C"]  # k_i T
    places: Float32[np.ndarray, "I*M*Z"]
    square: Float32[np.ndarray, "I*M"]  # |z_i|^2
    linear: Float32[np.ndarray, I]


@inner
@no_type_check
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
@no_type_check
def add_nodes(x, m, rows, users, of_user, of_item, mixed, node):
    """Adds <U x_u, V x_i> + w ReLU(W [x_i; x_u; U x_u * V x_i]) of one member to every node."""
    M, E, H, N = users.sizes.members, users.sizes.embedding, users.sizes.hidden, len(rows)
    for e in range(E):
        for h in range(H):
            mixed[e * H + h] = users.both[m, e, h] * of_user[e]
    for h in range(H):
        x[h] = of_user[E + h]
    inputs, hidden = H, H + (N + 3) * E
    for n in range(N):
        source, linear = (rows[n] * M + m) * E, np.float32(0.0)
        for e in range(E):
            value = of_item.mapped[source + e]
            x[inputs + n * E + e] = value
            linear += value * of_user[e]
        node[n] += linear
    product(x, inputs, E, N, E, mixed, 0, H, H, x, 0, x, hidden, H)
    zero = spread(np.float32(0.0))
    for n in range(N):
        sums, source = zero, (rows[n] * M + m) * H
        for h in range(0, H, 16):
            value = larger(add(load(x, hidden + n * H + h), load(of_item.hidden, source + h)), zero)
            sums = multiply_add(value, load(users.out, m * H + h), sums)
        node[n] += total(sums)


@inner
@no_type_check
def add_pairs(x, place, m, rows, span, scale, users, items):
    """Adds scale (k_i T k_j + g exp(-|z_i - z_j|^2)) of one member to x, where i is not before j (in fours)."""
    M, C = users.sizes.members, users.sizes.kinds
    Z, N = users.sizes.place, len(rows)
    tabled, places = place + (N + 3) * span, place + (N + 3) * (span + C)
    kinds_t = places + (N + 3) * Z
    places_t = kinds_t + C * span
    square = places_t + Z * span
    zeros, four = square + span, square + 2 * span
    for n in range(N):
        item = rows[n] * M + m
        x[square + n] = items.square[item]
        for c in range(C):
            x[tabled + n * C + c] = items.tabled[item * C + c]
            x[kinds_t + c * span + n] = items.kinds[item * C + c]
        for z in range(Z):
            x[places + n * Z + z] = 2 * items.places[item * Z + z]
            x[places_t + z * span + n] = items.places[item * Z + z]
    for c in range(span):
        x[zeros + c] = 0.0
    weight, closeness, none = spread(scale), spread(scale * users.closeness[m]), spread(np.float32(0))
    for n in range(0, N, 4):
        columns = min((n + 4 + 15) // 16 * 16, span)  # right of the diagonal nothing is read
        product(x, tabled + n * C, C, 4, C, x, kinds_t, span, columns, x, zeros, x, four, span)
        product(x, places + n * Z, Z, 4, Z, x, places_t, span, columns, x, zeros, x, four + 4 * span, span)
        for row in range(4):
            nearest = spread(-x[square + n + row])
            for j in range(0, columns, 16):
                at, out = four + row * span + j, place + (n + row) * span + j
                # -|z_i - z_j|^2, never above 0 whatever rounding says
                apart = subtract(add(load(x, at + 4 * span), nearest), load(x, square + j))
                near = exponential(smaller(apart, none))
                value = multiply_add(weight, load(x, at), multiply_add(closeness, near, load(x, out)))
                store(x, out, value)


@compiled
@no_type_check
def table_values_each(x, users, items, user_tables, features, user, rows, bias, node, pair):
    """Mean values of every request; returns the first request with an unknown user, or -1."""
    M, E, H = users.sizes.members, users.sizes.embedding, users.sizes.hidden
    N = rows.shape[1]
    span = (N + 15) // 16 * 16
    of_user = np.empty(E + H + 2, np.float32)
    mixed = np.empty(E * H, np.float32)
    sums = (N + 3) * (E + H) + H  # where the pairs' sums begin: behind what the nodes need
    for b in range(len(rows)):
        node[b, :] = 0.0
        bias[b] = 0.0
        for c in range((N + 3) * span):
            x[sums + c] = 0.0
        for m in range(M):
            if not read_user(m, user[b], user_tables[m], features, b, users.weights, of_user):
                return b
            add_nodes(x, m, rows[b], users, of_user, items, mixed, node[b])
            minding = np.float64(of_user[E + H])
            # softplus, as log(1 + e^x) that does not overflow
            scale = np.float32((max(minding, 0.0) + np.log1p(np.exp(-abs(minding)))) / M)
            add_pairs(x, sums, m, rows[b], span, scale, users, items)
            bias[b] += of_user[E + H + 1] / M
        for n in range(N):
            node[b, n] = node[b, n] / M + items.linear[rows[b, n]]
            pair[b, n, n] = 0.0
            for j in range(n):
                pair[b, n, j] = pair[b, j, n] = x[sums + n * span + j]
    return -1


class PairTables:
    """The values of `PairValue.values` for items named by their row in a catalogue."""

    def __init__(self, model: PairValue, item: Tensor, features: Tensor | None) -> None:
        """`item` are vocabulary indices, `features` the scaled features, by row of the catalogue."""
        members: Any = model.members
        self._user_tables = tuple(_users(member) for member in members)
        self._users, self._items = _user_part(members), _item_part(members, item, features)
        self._own = threading.local()

    @classmethod
    def of(cls, model: PairValue, item: Tensor, features: Tensor | None) -> PairTables | None:
        """None where the model is built otherwise than this file knows, or the tables would be too large."""
        members: Any = model.members
        if any(
            {name for name, _ in member.named_children()} - {"vectors", "dropout"} != LAYERS
            for member in members
        ):
            return None
        first = members[0]
        numbers = sum(
            layer.out_features
            for layer in (first.map_item, first.node_item, first.kinds, first.kinds, first.places)
        )
        if 4 * len(members) * numbers * len(item) > MOST_BYTES:
            return None
        return cls(model, item, features)

    def values(
        self,
        user: Int64[np.ndarray, B],
        features: Float32[np.ndarray, "B Fu"] | None,
        rows: Int64[np.ndarray, "B N"],
    ) -> tuple[Float64[np.ndarray, B], Float64[np.ndarray, "B N"], Float64[np.ndarray, "B N N"]]:
        """Bias, node and pair values; where nothing stands in `rows`, any row will do."""
        B, N = rows.shape
        bias, node, pair = np.empty(B), np.empty((B, N)), np.empty((B, N, N))
        if features is None:
            features = np.zeros((B, 0), np.float32)
        unknown = table_values_each(
            self._scratch(N),
            self._users,
            self._items,
            self._user_tables,
            features,
            user,
            rows,
            bias,
            node,
            pair,
        )
        if unknown >= 0:
            raise IndexError(f"user index {user[unknown]} is beyond the model's table")
        return bias, node, pair

    def _scratch(self, N: int) -> Float32[np.ndarray, n]:
        """This thread's working memory; all that is read is written before, for any N."""
        _, E, H, C, Z = self._users.sizes
        span = rounded(N)
        needed = (N + 3) * (E + H + span + C + Z) + H + (C + Z + 10) * span + 16
        held: np.ndarray | None = getattr(self._own, "scratch", None)
        if held is None or len(held) < needed:
            held = self._own.scratch = aligned(needed)
        return held


def _users(member: PairMember) -> Float32[np.ndarray, "U E"]:
    table = member.vectors.users
    return np.zeros((0, 0), np.float32) if table is None else plain(table.weight)


def _with_bias(weight: Tensor, bias: Tensor | None) -> Tensor:
    """The transposed matrix with its bias as the last row."""
    below = torch.zeros(weight.shape[0]) if bias is None else bias
    return torch.cat([weight.T, below[None]])


@torch.no_grad()
def _user_part(members: Any) -> UserPart:
    first = members[0]
    H = rounded(first.node_item.out_features)

    def padded(t: Tensor) -> Tensor:
        return torch.nn.functional.pad(t, (0, H - t.shape[-1]))

    layers = [
        torch.cat([
            _with_bias(m.map_user.weight, m.map_user.bias), padded(_with_bias(m.node_user.weight, None)),
            _with_bias(m.minding.weight, m.minding.bias), _with_bias(m.user_bias.weight, m.user_bias.bias),
        ], 1) for m in members
    ]  # fmt: skip
    return UserPart(
        sizes=TableSizes(
            len(members), first.map_item.out_features, H, first.kinds.out_features, first.places.out_features
        ),
        weights=plain(torch.stack(layers)),
        both=plain(torch.stack([padded(m.node_both.weight.T) for m in members])),
        out=plain(torch.stack([padded(m.node_out.weight[0]) for m in members]).flatten()),
        closeness=plain(torch.stack([m.closeness for m in members])),
    )


@torch.no_grad()
def _item_part(members: Any, item: Tensor, features: Tensor | None) -> ItemPart:
    columns: dict[str, list[Tensor]] = {}
    linear = []
    for m in members:
        x = joined(m.vectors.items, item, features, m.vectors.item_feature_size, "item")
        before, kinds, places = m.node_item(x), m.kinds(x).softmax(-1), m.places(x)
        columns.setdefault("mapped", []).append(m.map_item(x))
        columns.setdefault("hidden", []).append(
            torch.nn.functional.pad(before, (0, rounded(before.shape[1]) - before.shape[1]))
        )
        columns.setdefault("kinds", []).append(kinds)
        columns.setdefault("tabled", []).append(kinds @ (m.table + m.table.T) / 2)
        columns.setdefault("places", []).append(places)
        columns.setdefault("square", []).append(places.square().sum(-1))
        linear.append(m.node_linear(x).squeeze(-1))
    tables = {name: plain(torch.stack(parts, 1).flatten()) for name, parts in columns.items()}
    return ItemPart(**tables, linear=plain(torch.stack(linear).mean(0)))
