"""One request, one program: encoder, decoder and beam of GAttN fused into a single Triton kernel.

Knows neither modules nor batches; `cuda.py` packs the weights and launches it. The tie rule is `search.beam`'s.
"""

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
def _product(a, b, HALF: tl.constexpr, PRECISION: tl.constexpr):
    """a @ b in float32 (by tensor cores where PRECISION allows), or with bfloat16 operands."""
    if HALF:
        return tl.dot(a.to(tl.bfloat16), b.to(tl.bfloat16))
    return tl.dot(a, b, input_precision=PRECISION)


@triton.jit
def _tanh(x, FAST: tl.constexpr):
    """tanh; FAST asks the special-function unit for it (about eleven bits)."""
    if FAST:
        return tl.inline_asm_elementwise(
            "tanh.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
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
    D: tl.constexpr, H: tl.constexpr, HALF: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Multi-head self-attention with one shared projection per head, joined (eq. 6, 7)."""
    DH: tl.constexpr = D // H
    joined = tl.zeros_like(nodes)
    for h in tl.static_range(H):
        head = _product(nodes, _matrix(weights, offset + h * DH, D, DH, D), HALF, PRECISION)  # N d
        scores = _product(head, tl.trans(head), HALF, PRECISION) * (1.0 / DH**0.5)  # N N
        scores = tl.where(present[None, :], scores, -3.4e38)
        scores = tl.exp(scores - tl.max(scores, 1)[:, None])
        mixed = _product(scores, head, HALF, PRECISION) / tl.sum(scores, 1)[:, None]
        join = _matrix(weights, offset + D * D + h * DH * D, DH, D, D)
        joined += _product(mixed, join, HALF, PRECISION)
    return joined


@triton.jit
def _encoded(
    nodes, weights, offset, present,
    D: tl.constexpr, H: tl.constexpr, FF: tl.constexpr, L: tl.constexpr,
    HALF: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The linear map to the width (eq. 5) and L encoder layers (eq. 6 to 8)."""
    embed = _matrix(weights, offset, D, D, D)
    nodes = _product(nodes, embed, HALF, PRECISION) + _vector(weights, offset + D * D, D)[None, :]
    offset += D * D + D
    for _ in tl.static_range(L):
        joined = _attended(nodes, weights, offset, present, D, H, HALF, PRECISION)
        offset += 2 * D * D
        nodes = _normed(nodes + joined, weights, offset, D)
        offset += 2 * D
        hidden = _product(nodes, _matrix(weights, offset, D, FF, FF), HALF, PRECISION)
        hidden = tl.maximum(hidden + _vector(weights, offset + D * FF, FF)[None, :], 0.0)
        offset += D * FF + FF
        narrow = _product(hidden, _matrix(weights, offset, FF, D, D), HALF, PRECISION)
        narrow += _vector(weights, offset + FF * D, D)[None, :]
        offset += FF * D + D
        nodes = _normed(nodes + narrow, weights, offset, D)
        offset += 2 * D
    return nodes


@triton.jit
def _gate(inputs, hidden, weights, offset, gate: tl.constexpr, D: tl.constexpr, PRECISION: tl.constexpr):
    """One of the LSTM's four gates before its nonlinearity: always float32, it feeds the state."""
    base = offset + gate * D
    value = tl.dot(inputs, _matrix(weights, base, D, D, 4 * D), input_precision=PRECISION)
    value += tl.dot(hidden, _matrix(weights, base + 4 * D * D, D, D, 4 * D), input_precision=PRECISION)
    return value + _vector(weights, base + 8 * D * D, D)[None, :]


@triton.jit
def decode_kernel(
    item_table, item_index, user_table, user_index, present_mask, graph, weights, cards, num_candidates,
    NP: tl.constexpr, D: tl.constexpr, H: tl.constexpr, FF: tl.constexpr, L: tl.constexpr,
    LD: tl.constexpr, K: tl.constexpr, W: tl.constexpr,
    ENCODER: tl.constexpr, POINTER: tl.constexpr, START: tl.constexpr, LOWER: tl.constexpr, UPPER: tl.constexpr,
    HALF: tl.constexpr, FAST: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The likeliest card of one request by beam search of width W; writes K positions."""
    WP: tl.constexpr = 16  # beams padded to what a matrix product takes
    b = tl.program_id(0).to(tl.int64)
    n, d, w16 = tl.arange(0, NP), tl.arange(0, D), tl.arange(0, WP)
    inside = n < num_candidates
    present = tl.load(present_mask + b * num_candidates + n, mask=inside, other=0) != 0

    # x_i = ReLU(W_S x_s + W_U x_u + b): both halves were projected once for the whole catalogue (eq. 4).
    item = tl.load(item_index + b * num_candidates + n, mask=inside, other=0).to(tl.int64)
    user = tl.load(user_index + b).to(tl.int64)
    nodes = tl.load(item_table + item[:, None] * D + d[None, :])
    nodes = tl.maximum(nodes + tl.load(user_table + user * D + d)[None, :], 0.0)
    nodes = _encoded(nodes, weights, ENCODER, present, D, H, FF, L, HALF, PRECISION)
    glimpse_keys = _product(nodes, _matrix(weights, POINTER + D * D, D, D, D), HALF, PRECISION)
    pointer_keys = _product(nodes, _matrix(weights, POINTER + 4 * D * D, D, D, D), HALF, PRECISION)
    glimpse_vector = _vector(weights, POINTER + 5 * D * D, D)
    pointer_vector = _vector(weights, POINTER + 5 * D * D + D, D)

    # d_1 = g(0, 0) is the same for every request.
    hidden_0 = tl.zeros((WP, D), tl.float32) + _vector(weights, START, D)[None, :]
    cell_0 = tl.zeros((WP, D), tl.float32) + _vector(weights, START + D, D)[None, :]
    hidden_1, cell_1 = hidden_0, cell_0
    if LD == 2:
        hidden_1 = tl.zeros((WP, D), tl.float32) + _vector(weights, START + 2 * D, D)[None, :]
        cell_1 = tl.zeros((WP, D), tl.float32) + _vector(weights, START + 3 * D, D)[None, :]

    bit = tl.full((NP,), 1, tl.int64) << n.to(tl.int64)
    everything = tl.sum(tl.where(present, bit, 0), 0)
    open_ = tl.zeros((WP,), tl.int64) + everything
    chosen = tl.zeros((WP,), tl.int64)  # the card so far as a set of bits
    total = tl.where(w16 == 0, 0.0, float("-inf"))
    path = tl.zeros((WP, 16), tl.int32)  # positions in order of choice
    step16 = tl.arange(0, 16)
    slot4 = tl.arange(0, 4)

    # A real loop, not unrolled: the kernel compiles in seconds, and the last advance is wasted instead.
    for t in tl.range(0, K):
        decoded = hidden_1 if LD == 2 else hidden_0  # W D
        glimpse_query = tl.dot(decoded, _matrix(weights, POINTER, D, D, D), input_precision=PRECISION)
        context = tl.zeros((WP, D), tl.float32)
        for w in tl.static_range(W):
            query = _row(glimpse_query, w, WP)
            score = tl.sum(_tanh(glimpse_keys + query[None, :], FAST) * glimpse_vector[None, :], 1)
            score = tl.where(present, score, -3.4e38)
            score = tl.exp(score - tl.max(score, 0))
            seen = tl.sum(nodes * score[:, None], 0) / tl.sum(score, 0)
            context = tl.where(w16[:, None] == w, seen[None, :], context)
        pointer_query = tl.dot(
            decoded, _matrix(weights, POINTER + 2 * D * D, D, D, D), input_precision=PRECISION
        )
        pointer_query += tl.dot(
            context, _matrix(weights, POINTER + 3 * D * D, D, D, D), input_precision=PRECISION
        )

        worth = tl.full((4, NP), float("-inf"), tl.float32)
        sets = tl.zeros((4, NP), tl.int64)
        for w in tl.static_range(W):
            query = _row(pointer_query, w, WP)
            score = tl.sum(_tanh(pointer_keys + query[None, :], FAST) * pointer_vector[None, :], 1)
            mine = tl.sum(tl.where(w16 == w, open_, 0), 0)
            allowed = (mine & bit) != 0
            score = tl.where(allowed, score, float("-inf"))
            most = tl.max(score, 0)
            log_total = most + tl.log(tl.sum(tl.exp(score - most), 0))
            so_far = tl.sum(tl.where(w16 == w, total, 0.0), 0)
            log_prob = tl.where(allowed, score - log_total + so_far, float("-inf"))
            held = tl.sum(tl.where(w16 == w, chosen, 0), 0)
            worth = tl.where(slot4[:, None] == w, log_prob[None, :], worth)
            sets = tl.where(slot4[:, None] == w, (held | bit)[None, :], sets)

        flat = slot4[:, None] * NP + n[None, :]
        next_open, next_chosen = open_, chosen
        next_total = tl.full((WP,), float("-inf"), tl.float32)
        parents = tl.zeros((WP,), tl.int32)
        places = tl.zeros((WP,), tl.int32)
        for r in tl.static_range(W):
            best = tl.max(tl.max(worth, 1), 0)
            at = tl.min(tl.min(tl.where(worth == best, flat, 4 * NP), 1), 0)
            # Fewer sets than beams: name the best one again, at -inf.
            first = tl.sum(tl.where(w16 == 0, parents * NP + places, 0), 0)
            at = tl.where(best == float("-inf"), first, at)
            picked = tl.sum(tl.sum(tl.where(flat == at, sets, 0), 1), 0)
            parent, place = at // NP, at % NP
            row = (
                tl.load(graph + (b * num_candidates + place) * num_candidates + n, mask=inside, other=0) != 0
            )
            neighbours = tl.sum(tl.where(row & (n != place), bit, 0), 0)
            still = tl.sum(tl.where(w16 == parent, open_, 0), 0) & neighbours
            next_open = tl.where(w16 == r, still, next_open)
            next_chosen = tl.where(w16 == r, picked, next_chosen)
            next_total = tl.where(w16 == r, best, next_total)
            parents = tl.where(w16 == r, parent, parents)
            places = tl.where(w16 == r, place, places)
            worth = tl.where(sets == picked, float("-inf"), worth)

        # Re-parent: row r continues row parents[r]. A permutation by product is exact: one 1.0 per row.
        continues = (parents[:, None] == w16[None, :]).to(tl.float32)  # W W
        path = tl.dot(continues, path.to(tl.float32), input_precision="tf32").to(tl.int32)
        path = tl.where(step16[None, :] == t, places[:, None], path)
        open_, chosen, total = next_open, next_chosen, next_total

        hidden_0 = tl.dot(continues, hidden_0, input_precision="ieee")
        cell_0 = tl.dot(continues, cell_0, input_precision="ieee")
        inputs = tl.zeros((WP, D), tl.float32)
        for r in tl.static_range(W):
            place = tl.sum(tl.where(w16 == r, places, 0), 0)
            inputs = tl.where(w16[:, None] == r, _row(nodes, place, NP)[None, :], inputs)
        i = _sigmoid(_gate(inputs, hidden_0, weights, LOWER, 0, D, PRECISION))
        f = _sigmoid(_gate(inputs, hidden_0, weights, LOWER, 1, D, PRECISION))
        g = _tanh(_gate(inputs, hidden_0, weights, LOWER, 2, D, PRECISION), FAST)
        o = _sigmoid(_gate(inputs, hidden_0, weights, LOWER, 3, D, PRECISION))
        cell_0 = f * cell_0 + i * g
        hidden_0 = o * _tanh(cell_0, FAST)
        if LD == 2:
            hidden_1 = tl.dot(continues, hidden_1, input_precision="ieee")
            cell_1 = tl.dot(continues, cell_1, input_precision="ieee")
            i = _sigmoid(_gate(hidden_0, hidden_1, weights, UPPER, 0, D, PRECISION))
            f = _sigmoid(_gate(hidden_0, hidden_1, weights, UPPER, 1, D, PRECISION))
            g = _tanh(_gate(hidden_0, hidden_1, weights, UPPER, 2, D, PRECISION), FAST)
            o = _sigmoid(_gate(hidden_0, hidden_1, weights, UPPER, 3, D, PRECISION))
            cell_1 = f * cell_1 + i * g
            hidden_1 = o * _tanh(cell_1, FAST)

    best_path = tl.sum(tl.where(w16[:, None] == 0, path, 0), 0)
    tl.store(cards + b * K + step16, best_path.to(tl.int64), mask=step16 < K)
