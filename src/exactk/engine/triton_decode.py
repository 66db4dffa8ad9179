"""One request, one program: GAttN as two Triton kernels, the encoder, and the decoder with its beam.

Knows neither modules nor batches; `cuda.py` packs the weights and launches it. The tie rule is `search.beam`'s.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-incomplete-defs, ignore-errors

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _matrix(weights, offset, rows: tl.constexpr, columns: tl.constexpr, stride: tl.constexpr):
    """A [rows, columns] tile of a row-major matrix whose rows are `stride` apart."""
    r, c = tl.arange(0, rows), tl.arange(0, columns)
    return tl.load(weights + offset + r[:, None] * stride + c[None, :])


@triton.jit
def _vector(weights, offset, size: tl.constexpr):
    return tl.load(weights + offset + tl.arange(0, size))


@triton.jit
def _thin(rows, matrix):
    """rows [4, K] @ matrix [K, J] in plain float32: too few rows for tensor cores, which would pad them to sixteen."""
    return tl.sum(rows[:, :, None] * matrix[None, :, :], 1)


@triton.jit
def _taken(tile, parents):
    """tile[parents[r]] in row r, exactly: one of four rows is kept, the others are zero."""
    r = tl.arange(0, 4)
    continues = parents[:, None, None] == r[None, :, None]
    return tl.sum(tl.where(continues, tile[None, :, :], 0), 1)


@triton.jit
def _tanh(x):
    return 1 - 2 / (1 + tl.exp(2 * x))


@triton.jit
def _sigmoid(x):
    return 1 / (1 + tl.exp(-x))


@triton.jit
def _normed(x, weights, offset, D: tl.constexpr):
    """Layer norm over the last axis."""
    mean = tl.sum(x, 1) / D
    centred = x - mean[:, None]
    variance = tl.sum(centred * centred, 1) / D
    scale = _vector(weights, offset, D)
    shift = _vector(weights, offset + D, D)
    return centred / tl.sqrt(variance + 1e-5)[:, None] * scale[None, :] + shift[None, :]


@triton.jit
def _row(tile, at, rows: tl.constexpr):
    """Row `at` of a tile held in registers."""
    r = tl.arange(0, rows)
    return tl.sum(tl.where(r[:, None] == at, tile, 0.0), 0)


@triton.jit
def _attended(
    nodes, weights, offset, present,
    D: tl.constexpr, H: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Multi-head self-attention with one shared projection per head, joined (eq. 6, 7)."""
    DH: tl.constexpr = D // H
    joined = tl.zeros_like(nodes)
    for h in tl.static_range(H):
        head = tl.dot(nodes, _matrix(weights, offset + h * DH, D, DH, D), input_precision=PRECISION)  # N d
        scores = tl.dot(head, tl.trans(head), input_precision=PRECISION) * (1.0 / DH**0.5)  # N N
        scores = tl.where(present[None, :], scores, -3.4e38)
        scores = tl.exp(scores - tl.max(scores, 1)[:, None])
        mixed = tl.dot(scores, head, input_precision=PRECISION) / tl.sum(scores, 1)[:, None]
        join = _matrix(weights, offset + D * D + h * DH * D, DH, D, D)
        joined += tl.dot(mixed, join, input_precision=PRECISION)
    return joined


@triton.jit
def _encoded(
    nodes, weights, offset, present,
    D: tl.constexpr, H: tl.constexpr, FF: tl.constexpr, L: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """The linear map to the width (eq. 5) and L encoder layers (eq. 6 to 8)."""
    embed = _matrix(weights, offset, D, D, D)
    nodes = tl.dot(nodes, embed, input_precision=PRECISION) + _vector(weights, offset + D * D, D)[None, :]
    offset += D * D + D
    for _ in tl.static_range(L):
        joined = _attended(nodes, weights, offset, present, D, H, PRECISION)
        offset += 2 * D * D
        nodes = _normed(nodes + joined, weights, offset, D)
        offset += 2 * D
        hidden = tl.dot(nodes, _matrix(weights, offset, D, FF, FF), input_precision=PRECISION)
        hidden = tl.maximum(hidden + _vector(weights, offset + D * FF, FF)[None, :], 0.0)
        offset += D * FF + FF
        narrow = tl.dot(hidden, _matrix(weights, offset, FF, D, D), input_precision=PRECISION)
        narrow += _vector(weights, offset + FF * D, D)[None, :]
        offset += FF * D + D
        nodes = _normed(nodes + narrow, weights, offset, D)
        offset += 2 * D
    return nodes


@triton.jit
def _gate(inputs, hidden, weights, offset, gate: tl.constexpr, D: tl.constexpr):
    """One of the LSTM's four gates before its nonlinearity."""
    base = offset + gate * D
    value = _thin(inputs, _matrix(weights, base, D, D, 4 * D))
    value += _thin(hidden, _matrix(weights, base + 4 * D * D, D, D, 4 * D))
    return value + _vector(weights, base + 8 * D * D, D)[None, :]


@triton.jit
def _cell(inputs, hidden, cell, weights, offset, D: tl.constexpr):
    """One LSTM layer for four rows: (hidden, cell) after it."""
    i = _sigmoid(_gate(inputs, hidden, weights, offset, 0, D))
    f = _sigmoid(_gate(inputs, hidden, weights, offset, 1, D))
    g = _tanh(_gate(inputs, hidden, weights, offset, 2, D))
    o = _sigmoid(_gate(inputs, hidden, weights, offset, 3, D))
    cell = f * cell + i * g
    return o * _tanh(cell), cell


@triton.jit
def _additive(raised_keys, raised_query, vector):
    """v^T tanh(key + query) less the sum of v, for every node.

    Keys and query come as e^2x, so that e^2(key + query) is one product; softmax does not see the missing constant.
    """
    raised = tl.minimum(raised_keys * raised_query[None, :], 1e8)
    return tl.sum(vector[None, :] / (1 + raised), 1) * -2.0


@triton.jit
def _raised(x):
    """e^2x, for |x| up to 40: 1 - 2 / (1 + e^2x) is 1 in float32 long before."""
    return tl.exp(2 * tl.minimum(tl.maximum(x, -40.0), 40.0))


@triton.jit
def encode_kernel(
    item_table, item_index, user_table, user_index, present_mask, weights, encoded, num_candidates,
    NP: tl.constexpr, D: tl.constexpr, H: tl.constexpr, FF: tl.constexpr, L: tl.constexpr,
    POINTER: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Node embeddings and the raised keys of one request into encoded [B, 3, NP, D].

    A kernel of its own because it needs every register there is: fused, it would keep the decoder's occupancy down.
    """
    b = tl.program_id(0).to(tl.int64)
    n, d = tl.arange(0, NP), tl.arange(0, D)
    inside = n < num_candidates
    present = tl.load(present_mask + b * num_candidates + n, mask=inside, other=0) != 0

    # x_i = ReLU(W_S x_s + W_U x_u + b): both halves were projected once for the whole catalogue (eq. 4).
    item = tl.load(item_index + b * num_candidates + n, mask=inside, other=0).to(tl.int64)
    user = tl.load(user_index + b).to(tl.int64)
    nodes = tl.load(item_table + item[:, None] * D + d[None, :])
    nodes = tl.maximum(nodes + tl.load(user_table + user * D + d)[None, :], 0.0)
    nodes = _encoded(nodes, weights, 0, present, D, H, FF, L, PRECISION)
    out = encoded + b * (3 * NP * D) + n[:, None] * D + d[None, :]
    tl.store(out, nodes)
    keys = tl.dot(nodes, _matrix(weights, POINTER + D * D, D, D, D), input_precision=PRECISION)
    tl.store(out + NP * D, _raised(keys))
    keys = tl.dot(nodes, _matrix(weights, POINTER + 4 * D * D, D, D, D), input_precision=PRECISION)
    tl.store(out + 2 * NP * D, _raised(keys))


@triton.jit
def decode_kernel(
    encoded, present_mask, graph, weights, cards, num_candidates,
    NP: tl.constexpr, D: tl.constexpr, LD: tl.constexpr, K: tl.constexpr, W: tl.constexpr,
    POINTER: tl.constexpr, START: tl.constexpr, LOWER: tl.constexpr, UPPER: tl.constexpr,
):  # fmt: skip
    """The likeliest card of one encoded request by beam search of width W, at most 4; writes K positions."""
    b = tl.program_id(0).to(tl.int64)
    n, d, rows = tl.arange(0, NP), tl.arange(0, D), tl.arange(0, 4)
    inside = n < num_candidates
    present = tl.load(present_mask + b * num_candidates + n, mask=inside, other=0) != 0
    at_node = encoded + b * (3 * NP * D) + n[:, None] * D + d[None, :]
    nodes, glimpse_keys = tl.load(at_node), tl.load(at_node + NP * D)
    pointer_keys = tl.load(at_node + 2 * NP * D)
    glimpse_vector = _vector(weights, POINTER + 5 * D * D, D)
    pointer_vector = _vector(weights, POINTER + 5 * D * D + D, D)

    # d_1 = g(0, 0) is the same for every request.
    hidden_0 = tl.zeros((4, D), tl.float32) + _vector(weights, START, D)[None, :]
    cell_0 = tl.zeros((4, D), tl.float32) + _vector(weights, START + D, D)[None, :]
    hidden_1, cell_1 = hidden_0, cell_0
    if LD == 2:
        hidden_1 = tl.zeros((4, D), tl.float32) + _vector(weights, START + 2 * D, D)[None, :]
        cell_1 = tl.zeros((4, D), tl.float32) + _vector(weights, START + 3 * D, D)[None, :]

    bit = tl.full((NP,), 1, tl.int64) << n.to(tl.int64)
    open_ = tl.zeros((4,), tl.int64) + tl.sum(tl.where(present, bit, 0), 0)
    chosen = tl.zeros((4,), tl.int64)  # the card so far as a set of bits
    total = tl.where(rows == 0, 0.0, float("-inf"))
    step16 = tl.arange(0, 16)
    path = tl.zeros((4, 16), tl.int32)  # positions in order of choice
    flat = rows[:, None] * NP + n[None, :]

    # A real loop, not unrolled: the kernel compiles in seconds, and the last advance is wasted instead.
    for t in tl.range(0, K):
        # Zero, but not known to be: else all weights would be read before the loop, and spill.
        fresh = weights + (t >> 20) * 16
        decoded = hidden_1 if LD == 2 else hidden_0  # 4 D
        query_tile = _raised(_thin(decoded, _matrix(fresh, POINTER, D, D, D)))
        context = tl.zeros((4, D), tl.float32)
        for w in tl.static_range(W):
            score = _additive(glimpse_keys, _row(query_tile, w, 4), glimpse_vector)
            score = tl.where(present, score, -3.4e38)
            score = tl.exp(score - tl.max(score, 0))
            seen = tl.sum(nodes * score[:, None], 0) / tl.sum(score, 0)
            context = tl.where(rows[:, None] == w, seen[None, :], context)
        query_tile = _thin(decoded, _matrix(fresh, POINTER + 2 * D * D, D, D, D))
        query_tile = _raised(query_tile + _thin(context, _matrix(fresh, POINTER + 3 * D * D, D, D, D)))

        scores = tl.zeros((4, NP), tl.float32)
        for w in tl.static_range(W):
            score = _additive(pointer_keys, _row(query_tile, w, 4), pointer_vector)
            scores = tl.where(rows[:, None] == w, score[None, :], scores)
        allowed = ((open_[:, None] & bit[None, :]) != 0) & (total > float("-inf"))[:, None]
        most = tl.max(tl.where(allowed, scores, -3.4e38), 1)
        sums = tl.sum(tl.where(allowed, tl.exp(scores - most[:, None]), 0.0), 1)
        log_prob = scores - (most + tl.log(sums))[:, None] + total[:, None]
        worth = tl.where(allowed, log_prob, float("-inf"))
        sets = chosen[:, None] | bit[None, :]

        next_open, next_chosen = open_, chosen
        next_total = tl.full((4,), float("-inf"), tl.float32)
        parents, places = tl.zeros((4,), tl.int32), tl.zeros((4,), tl.int32)
        first = tl.zeros((), tl.int32)
        for r in tl.static_range(W):
            best = tl.max(tl.max(worth, 1), 0)
            at = tl.min(tl.min(tl.where(worth == best, flat, 4 * NP), 1), 0)
            # Fewer sets than beams: name the best one again, at -inf.
            at = tl.where(best == float("-inf"), first, at)
            if r == 0:
                first = at
            picked = tl.sum(tl.sum(tl.where(flat == at, sets, 0), 1), 0)
            parent, place = at // NP, at % NP
            row = (
                tl.load(graph + (b * num_candidates + place) * num_candidates + n, mask=inside, other=0) != 0
            )
            neighbours = tl.sum(tl.where(row & (n != place), bit, 0), 0)
            still = tl.sum(tl.where(rows == parent, open_, 0), 0) & neighbours
            next_open = tl.where(rows == r, still, next_open)
            next_chosen = tl.where(rows == r, picked, next_chosen)
            next_total = tl.where(rows == r, best, next_total)
            parents = tl.where(rows == r, parent, parents)
            places = tl.where(rows == r, place, places)
            worth = tl.where(sets == picked, float("-inf"), worth)

        path = tl.where(step16[None, :] == t, places[:, None], _taken(path, parents))
        open_, chosen, total = next_open, next_chosen, next_total
        inputs = tl.zeros((4, D), tl.float32)
        for r in tl.static_range(W):
            place = tl.sum(tl.where(rows == r, places, 0), 0)
            node = tl.load(encoded + b * (3 * NP * D) + place * D + d)
            inputs = tl.where(rows[:, None] == r, node[None, :], inputs)
        hidden_0, cell_0 = _cell(inputs, _taken(hidden_0, parents), _taken(cell_0, parents), fresh, LOWER, D)
        if LD == 2:
            hidden_1, cell_1 = _cell(
                hidden_0, _taken(hidden_1, parents), _taken(cell_1, parents), fresh, UPPER, D
            )

    best_path = tl.sum(tl.where(rows[:, None] == 0, path, 0), 0)
    tl.store(cards + b * K + step16, best_path.to(tl.int64), mask=step16 < K)
