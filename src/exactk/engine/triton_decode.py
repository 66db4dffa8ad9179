"""GAttN's decoder and its beam as two Triton kernels: the choice (one request, one program) and the recurrence.

Knows neither modules nor batches; `cuda.py` packs the weights and launches them in turns. The tie rule is that of
`search.beam`.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-incomplete-defs, ignore-errors

from __future__ import annotations

import triton
import triton.language as tl

from exactk.engine.triton_encode import matrix, product, raised, reciprocal, vector


@triton.jit
def _tanh(x, FAST: tl.constexpr):
    return 1 - 2 * reciprocal(1 + tl.exp(2 * x), FAST)


@triton.jit
def _sigmoid(x, FAST: tl.constexpr):
    return reciprocal(1 + tl.exp(-x), FAST)


@triton.jit
def _additive(raised_keys, raised_query, weights, FAST: tl.constexpr):
    """v^T tanh(key + query) less the sum of v, for every node.

    Keys [D, N] and query [D] come as e^2x, so that e^2(key + query) is one product; softmax does not see the missing
    constant.
    """
    both = tl.minimum(raised_keys * raised_query[:, None], 1e8)
    return tl.sum(weights[:, None] * reciprocal(1 + both, FAST), 0) * -2.0


@triton.jit
def _scores(
    encoded, queries, weights, present,
    NP: tl.constexpr, D: tl.constexpr, POINTER: tl.constexpr, FAST: tl.constexpr,
):  # fmt: skip
    """The pointer's score of every node for one row: glimpse (eq. 12), then pointer (eq. 13)."""
    n, d = tl.arange(0, NP), tl.arange(0, D)
    straight, turned = n[:, None] * D + d[None, :], d[:, None] * NP + n[None, :]
    vectors = POINTER + 5 * D * D
    glimpse = _additive(
        tl.load(encoded + 2 * NP * D + turned), tl.load(queries + d), vector(weights, vectors, D), FAST
    )
    glimpse = tl.where(present, glimpse, -3.4e38)
    glimpse = tl.exp(glimpse - tl.max(glimpse, 0))
    # W_D3 [d; c] = W_D3' d + sum_n p_n W_D3'' h_n: the second product was made in the encoder.
    seen = tl.sum(tl.load(encoded + NP * D + straight) * glimpse[:, None], 0) / tl.sum(glimpse, 0)
    query = raised(tl.load(queries + D + d) + seen)
    return _additive(tl.load(encoded + 3 * NP * D + turned), query, vector(weights, vectors + D, D), FAST)


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
    the model's. After the last choice the links are followed back and the card is written.
    """
    b = tl.program_id(0).to(tl.int64)
    n, rows = tl.arange(0, NP), tl.arange(0, 4)
    inside = n < num_candidates
    present = tl.load(present_mask + b * num_candidates + n, mask=inside, other=0) != 0
    bit = tl.full((NP,), 1, tl.int64) << n.to(tl.int64)
    state = (num_requests * step + b) * 4
    before = state - num_requests * 4
    own = encoded + b * (4 * NP * D)

    scores = tl.zeros((4, NP), tl.float32)
    if FIRST:
        score = _scores(own, queries, weights, present, NP, D, POINTER, FAST)
        scores = tl.where(rows[:, None] == 0, score[None, :], scores)
        open_ = tl.zeros((4,), tl.int64) + tl.sum(tl.where(present, bit, 0), 0)
        chosen = tl.zeros((4,), tl.int64)
        total = tl.where(rows == 0, 0.0, float("-inf"))
        margin = float("inf")
    else:
        for w in tl.static_range(W):
            score = _scores(own, queries + (b * W + w) * 2 * D, weights, present, NP, D, POINTER, FAST)
            scores = tl.where(rows[:, None] == w, score[None, :], scores)
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
        best, at = tl.max(tl.reshape(worth, (4 * NP,)), 0, return_indices=True)
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
            other = tl.max(tl.reshape(tl.where(same & (flat != at), worth, float("-inf")), (4 * NP,)), 0)
            margin = tl.minimum(margin, tl.where(other == float("-inf"), float("inf"), best - other))
            margin = tl.where(best == float("-inf"), 0.0, margin)
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
    left = tl.max(tl.reshape(worth, (4 * NP,)), 0)
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
    inputs, hidden, weights, offset,
    gate: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """One of the LSTM's four gates before its nonlinearity."""
    base = offset + gate * D
    value = product(inputs, matrix(weights, base, D, D, 4 * D))
    value += product(hidden, matrix(weights, base + 4 * D * D, D, D, 4 * D))
    return value + vector(weights, base + 8 * D * D, D)[None, :]


@triton.jit
def _cell(
    inputs, hidden, cell, weights, offset,
    D: tl.constexpr, FAST: tl.constexpr,
):  # fmt: skip
    """One LSTM layer: (hidden, cell) after it."""
    i = _sigmoid(_gate(inputs, hidden, weights, offset, 0, D), FAST)
    f = _sigmoid(_gate(inputs, hidden, weights, offset, 1, D), FAST)
    g = _tanh(_gate(inputs, hidden, weights, offset, 2, D), FAST)
    o = _sigmoid(_gate(inputs, hidden, weights, offset, 3, D), FAST)
    cell = f * cell + i * g
    return o * _tanh(cell, FAST), cell


@triton.jit
def advance_kernel(
    encoded, links, weights, states_before, states_after, queries, num_requests, step,
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
        below, cell = _cell(below, hidden, cell, weights, offset, D, FAST)
        tl.store(states_after + plane + here, below, mask=real)
        tl.store(states_after + plane + here + D, cell, mask=real)
    glimpse = product(below, matrix(weights, POINTER, D, D, D))
    tl.store(queries + here, raised(glimpse), mask=real)
    pointer = product(below, matrix(weights, POINTER + 2 * D * D, D, D, D))
    tl.store(queries + here + D, pointer, mask=real)
