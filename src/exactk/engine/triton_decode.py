"""GAttN's decoder and its beam as two Triton kernels: the choice (one request, one program) and the recurrence.

Knows neither modules nor batches; `cuda.py` packs the weights and launches them in turns. The tie rule is that of
`search.beam`.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-incomplete-defs, ignore-errors
# ruff: noqa: RUF005 (Triton knows no unpacking)

from __future__ import annotations

import triton
import triton.language as tl

from exactk.engine.triton_encode import halves, raised, times, vector


@triton.jit
def _reciprocal(x, FAST: tl.constexpr):
    """1 / x; the processor's own approximation, good to a bit, where FAST (Triton's interpreter knows no assembly)."""
    if FAST:
        result = tl.inline_asm_elementwise(
            "rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        result = 1 / x
    return result


@triton.jit
def _tanh(x, FAST: tl.constexpr):
    return 1 - 2 * _reciprocal(1 + tl.exp(2 * x), FAST)


@triton.jit
def _sigmoid(x, FAST: tl.constexpr):
    return _reciprocal(1 + tl.exp(-x), FAST)


@triton.jit
def _additive(lower, upper, query_lower, query_upper, v_lower, v_upper, FAST: tl.constexpr):
    """v^T tanh(key + query) less the sum of v, for every node.

    Keys [D / 2, N] and queries [D / 2], each the lower and the upper half of the width, come as e^2x, so that
    e^2(key + query) is one product; softmax does not see the missing constant. Two fractions share one division:
    v / a + w / b = (v b + w a) / (a b).
    """
    a = 1 + tl.minimum(lower * query_lower[:, None], 1e8)
    b = 1 + tl.minimum(upper * query_upper[:, None], 1e8)
    return tl.sum((v_lower[:, None] * b + v_upper[:, None] * a) * _reciprocal(a * b, FAST), 0) * -2.0


@triton.jit
def _scores(
    encoded, queries, vectors, present,
    NP: tl.constexpr, D: tl.constexpr, R: tl.constexpr, FAST: tl.constexpr,
):  # fmt: skip
    """The pointer's scores [4, NP] of every node for R rows: glimpse (eq. 12), then pointer (eq. 13).

    All rows are taken through one tile before the next is loaded, so that few numbers are alive at a time.
    """
    HALF: tl.constexpr = D // 2
    n, d, rows = tl.arange(0, NP), tl.arange(0, HALF), tl.arange(0, 4)
    straight, turned = n[:, None] * D + d[None, :], d[:, None] * NP + n[None, :]
    keys = encoded + 2 * NP * D + turned
    lower, upper = tl.load(keys), tl.load(keys + HALF * NP)
    v_lower, v_upper = tl.load(vectors + d), tl.load(vectors + HALF + d)
    glimpses = ()
    for w in tl.static_range(R):
        query = queries + w * 2 * D + d
        glimpse = _additive(lower, upper, tl.load(query), tl.load(query + HALF), v_lower, v_upper, FAST)
        glimpse = tl.where(present, glimpse, -3.4e38)
        glimpses = glimpses + (tl.exp(glimpse - tl.max(glimpse, 0)),)

    # W_D3 [d; c] = W_D3' d + sum_n p_n W_D3'' h_n: the second product was made in the encoder.
    mapped = encoded + NP * D + straight
    lower, upper = tl.load(mapped), tl.load(mapped + HALF)
    lowers, uppers = (), ()
    for w in tl.static_range(R):
        query = queries + w * 2 * D + D + d
        share = 1 / tl.sum(glimpses[w], 0)
        seen_lower = tl.sum(lower * glimpses[w][:, None], 0) * share
        seen_upper = tl.sum(upper * glimpses[w][:, None], 0) * share
        lowers = lowers + (raised(tl.load(query) + seen_lower),)
        uppers = uppers + (raised(tl.load(query + HALF) + seen_upper),)

    keys = encoded + 3 * NP * D + turned
    lower, upper = tl.load(keys), tl.load(keys + HALF * NP)
    v_lower, v_upper = tl.load(vectors + D + d), tl.load(vectors + D + HALF + d)
    scores = tl.zeros((4, NP), tl.float32)
    for w in tl.static_range(R):
        score = _additive(lower, upper, lowers[w], uppers[w], v_lower, v_upper, FAST)
        scores = tl.where(rows[:, None] == w, score[None, :], scores)
    return scores


@triton.jit
def _largest(x):
    """The largest number of a matrix. Not by `reshape` to one axis: before a sum or maximum Triton (3.6) reorders its
    result, and `return_indices` then names the wrong places."""
    return tl.max(tl.max(x, 1), 0)


@triton.jit
def choose_kernel(
    encoded, queries, present_mask, graph, weights, opened, chosen_sets, totals, links, margins, cards,
    num_requests, num_candidates, step,
    NP: tl.constexpr, D: tl.constexpr, K: tl.constexpr, W: tl.constexpr, POINTER: tl.constexpr,
    FIRST: tl.constexpr, LAST: tl.constexpr, FAST: tl.constexpr,
):  # fmt: skip
    """One choice for the W rows of one request: scores, the likeliest expansions as distinct sets, what stays open.

    States [K, B, 4] are kept for every step, links [K, B, 4] name each row's parent and place. `margins` [B] keeps the
    least difference of log-probability that decided anything: below the rounding of the products, another card may be
    the model's. It is -1 where there were fewer sets than rows. After the last choice the links are followed back and
    the card is written.
    """
    b = tl.program_id(0).to(tl.int64)
    n, rows = tl.arange(0, NP), tl.arange(0, 4)
    inside = n < num_candidates
    present = tl.load(present_mask + b * num_candidates + n, mask=inside, other=0) != 0
    bit = tl.full((NP,), 1, tl.int64) << n.to(tl.int64)
    state = (num_requests * step + b) * 4
    before = state - num_requests * 4
    own, vectors = encoded + b * (4 * NP * D), weights + POINTER + 5 * D * D

    if FIRST:
        scores = _scores(own, queries, vectors, present, NP, D, 1, FAST)
        open_ = tl.zeros((4,), tl.int64) + tl.sum(tl.where(present, bit, 0), 0)
        chosen = tl.zeros((4,), tl.int64)
        total = tl.where(rows == 0, 0.0, float("-inf"))
        margin = float("inf")
    else:
        scores = _scores(own, queries + b * (W * 2 * D), vectors, present, NP, D, W, FAST)
        open_ = tl.load(opened + before + rows)
        chosen = tl.load(chosen_sets + before + rows)
        total = tl.load(totals + before + rows)
        margin = tl.load(margins + b)

    allowed = ((open_[:, None] & bit[None, :]) != 0) & (total > float("-inf"))[:, None]
    most = tl.max(tl.where(allowed, scores, -3.4e38), 1)
    sums = tl.sum(tl.where(allowed, tl.exp(scores - most[:, None]), 0.0), 1)
    log_prob = scores - (most + tl.log(sums))[:, None] + total[:, None]
    worth = tl.where(allowed, log_prob, float("-inf"))
    sets = chosen[:, None] | bit[None, :]
    flat = rows[:, None] * NP + n[None, :]

    next_open, next_chosen = open_, chosen
    next_total = tl.full((4,), float("-inf"), tl.float32)
    link = tl.zeros((4,), tl.int32)
    first = tl.zeros((), tl.int32)
    worst = tl.zeros((), tl.float32)
    for r in tl.static_range(1 if LAST else W):
        best = _largest(worth)
        at = tl.min(tl.min(tl.where(worth == best, flat, 4 * NP - 1), 1), 0)  # the lowest on equal terms
        # Fewer sets than rows: name the best one again, at -inf, and let the model decide.
        at = tl.where(best == float("-inf"), first, at)
        if r == 0:
            first = at
        parent, place = at // NP, at % NP
        one = tl.full((), 1, tl.int64) << place.to(tl.int64)
        picked = tl.sum(tl.where(rows == parent, chosen, 0), 0) | one
        same = sets == picked
        if not LAST:
            # Another order of the same set, as likely, leaves another state.
            other = _largest(tl.where(same & (flat != at), worth, float("-inf")))
            margin = tl.minimum(margin, tl.where(other == float("-inf"), float("inf"), best - other))
            margin = tl.where(best == float("-inf"), -1.0, margin)
            here = graph + (b * num_candidates + place) * num_candidates + n
            row = tl.load(here, mask=inside, other=0) != 0
            neighbours = tl.sum(tl.where(row & (n != place), bit, 0), 0)
            still = tl.sum(tl.where(rows == parent, open_, 0), 0) & neighbours
            next_open = tl.where(rows == r, still, next_open)
            next_chosen = tl.where(rows == r, picked, next_chosen)
            next_total = tl.where(rows == r, best, next_total)
        link = tl.where(rows == r, parent * NP + place, link)
        worth = tl.where(same, float("-inf"), worth)
        worst = best
    left = _largest(worth)
    margin = tl.minimum(margin, tl.where(left == float("-inf"), float("inf"), worst - left))
    tl.store(margins + b, margin)

    if LAST:
        tl.store(cards + b * K + K - 1, (first % NP).to(tl.int64))
        row = first // NP
        for back in tl.static_range(K - 1):
            code = tl.load(links + ((K - 2 - back) * num_requests + b) * 4 + row)
            tl.store(cards + b * K + K - 2 - back, (code % NP).to(tl.int64))
            row = code // NP
    else:
        tl.store(opened + state + rows, next_open)
        tl.store(chosen_sets + state + rows, next_chosen)
        tl.store(totals + state + rows, next_total)
        tl.store(links + state + rows, link)


@triton.jit
def _gate(
    inputs, inputs_low, hidden, hidden_low, weights, split, half_size, offset,
    gate: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """One of the LSTM's four gates before its nonlinearity."""
    base = offset + gate * D
    value = times(inputs, inputs_low, split, half_size, base, D, D, 4 * D)
    value += times(hidden, hidden_low, split, half_size, base + 4 * D * D, D, D, 4 * D)
    return value + vector(weights, base + 8 * D * D, D)[None, :]


@triton.jit
def _cell(
    inputs, hidden, cell, weights, split, half_size, offset,
    D: tl.constexpr, FAST: tl.constexpr,
):  # fmt: skip
    """One LSTM layer: (hidden, cell) after it."""
    x, x_low = halves(inputs)
    h, h_low = halves(hidden)
    i = _sigmoid(_gate(x, x_low, h, h_low, weights, split, half_size, offset, 0, D), FAST)
    g = _tanh(_gate(x, x_low, h, h_low, weights, split, half_size, offset, 2, D), FAST)
    added = i * g
    f = _sigmoid(_gate(x, x_low, h, h_low, weights, split, half_size, offset, 1, D), FAST)
    cell = f * cell + added
    o = _sigmoid(_gate(x, x_low, h, h_low, weights, split, half_size, offset, 3, D), FAST)
    return o * _tanh(cell, FAST), cell


@triton.jit
def advance_kernel(
    encoded, links, weights, split, half_size, states_before, states_after, queries, num_requests, step,
    NP: tl.constexpr, D: tl.constexpr, LD: tl.constexpr, W: tl.constexpr, T: tl.constexpr,
    POINTER: tl.constexpr, START: tl.constexpr, LSTM: tl.constexpr, FIRST: tl.constexpr,
    FAST: tl.constexpr,
):  # fmt: skip
    """d_t = g(d_t-1, a_t-1) (eq. 11) for T rows of any requests: enough rows to fill the tensor cores.

    States are [LD, B * W, 2, D]: hidden, then cell. Writes the queries [B * W, 2, D] of the next choice: the
    glimpse's as e^2x, and the pointer's without the glimpse.
    """
    r, d = tl.program_id(0) * T + tl.arange(0, T), tl.arange(0, D)
    num_rows = num_requests * W
    real = (r < num_rows)[:, None]
    b = tl.minimum(r // W, num_requests - 1).to(tl.int64)
    link = tl.load(links + (num_requests * step + b) * 4 + r % W)
    parent, place = b * W + link // NP, link % NP
    below = tl.load(encoded + b[:, None] * (4 * NP * D) + place[:, None] * D + d[None, :])
    here = r.to(tl.int64)[:, None] * (2 * D) + d[None, :]
    for layer in tl.static_range(LD):
        plane = num_rows * (2 * D * layer)
        if FIRST:
            hidden = tl.zeros((T, D), tl.float32) + vector(weights, START + layer * 2 * D, D)[None, :]
            cell = tl.zeros((T, D), tl.float32) + vector(weights, START + layer * 2 * D + D, D)[None, :]
        else:
            there = states_before + plane + parent[:, None] * (2 * D) + d[None, :]
            hidden, cell = tl.load(there), tl.load(there + D)
        offset = LSTM + layer * (8 * D * D + 4 * D)
        below, cell = _cell(below, hidden, cell, weights, split, half_size, offset, D, FAST)
        tl.store(states_after + plane + here, below, mask=real)
        tl.store(states_after + plane + here + D, cell, mask=real)
    high, low = halves(below)
    tl.store(queries + here, raised(times(high, low, split, half_size, POINTER, D, D, D)), mask=real)
    pointer = times(high, low, split, half_size, POINTER + 2 * D * D, D, D, D)
    tl.store(queries + here + D, pointer, mask=real)
