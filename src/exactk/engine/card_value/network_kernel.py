"""The network of a card value, compiled: an encoder over the candidates, a score of each and of every two.

Knows no search. What it computes is `models.card_value`; weights come packed by `values.py` in the order read here.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from exactk.engine.arithmetic import add_product, add_rows, copied_rows, filled, rectify
from exactk.engine.card_value.columns import pair_at, read_columns, read_context
from exactk.engine.lanes import (
    add,
    divide,
    inner,
    larger,
    load,
    mirror_shrinking_block,
    multiply,
    multiply_add,
    power_of_two,
    spread,
    store,
    subtract,
    take_next,
    total,
    turn_block,
    turn_shrinking_block,
)
from exactk.problem.compiling import compiled

STRETCH = 128  # pairs at a time: what a hidden layer makes of them then stays near the processor
ZERO, ONE = np.float32(0), np.float32(1)


class NetworkSizes(NamedTuple):
    """Of one member; width and inner width are padded to sixteen, what lies in rows to four."""

    members: int
    width: int
    true_width: int
    inner_width: int
    heads: int
    head_size: int
    layers: int
    attends: int
    steered: int  # width of the network that steers attention by pairs; 0: none
    paired: int  # width of the network that scores pairs; 0: none
    low_rank: int
    shares: int  # nodes are shares of a click, pairs have no value


class NetworkPlaces(NamedTuple):
    """Where in the scratch array everything lies, for one number of candidates."""

    start: int  # the row that the context gives every candidate
    nodes: int
    normed: int
    wide: int  # query, key and value; or the inner layer
    query: int  # as columns
    square: int  # scores of attention, by the candidate attended to, then the one that attends
    mixed: int  # as columns
    hidden: int
    steering: int  # of all layers and heads, a row for each
    scores: int  # of pairs
    node: int


@inner
def read_codes(x, at, tables, start, shape, codes):
    """Embeddings of one row of codes, side by side; False where a table has no such row."""
    offsets, widths, counts = shape
    for c in range(len(offsets)):
        code = np.int64(codes[c])
        if code < 0 or code >= counts[c]:
            return False
        source = start + offsets[c] + code * widths[c]
        for e in range(widths[c]):
            x[at + e] = tables[source + e]
        at += widths[c]
    return True


@inner
def add_pieces(x, out, width, w, at, bins, count, piece, piece_step, part):
    """Adds what the pieces of `count` numbers weigh: rows of sums over the first pieces, the next one in part.

    After the last piece the part is 0, so that what lies behind it weighs nothing. A width that ends with sixteen has
    these twice, alike.
    """
    stride = (bins + 1) * width
    for i in range(0, width, 32):
        far = min(i + 16, width - 16)
        a, c, b, d = load(x, out + i), load(x, out + far), spread(ZERO), spread(ZERO)
        for f in range(count):
            row = at + f * stride + np.int64(x[piece + f * piece_step]) * width
            share = x[part + f * piece_step]
            first, second = spread(ONE - share), spread(share)
            a = multiply_add(load(w, row + i), first, a)
            b = multiply_add(load(w, row + width + i), second, b)
            c = multiply_add(load(w, row + far), first, c)
            d = multiply_add(load(w, row + width + far), second, d)
        store(x, out + i, add(a, b))
        store(x, out + far, add(c, d))


@inner
def embed(s, k, p, q, x, w, at, N):
    """Nodes from rows, pieces and context; returns the place behind in w."""
    D, stride = s.width, (k.bins + 1) * s.width
    filled(x, q.start, 4 * D, ZERO)
    copied_rows(x, q.start, 1, D, w, at)
    at += D
    add_pieces(x, q.start, D, w, at, k.bins, k.context_numbers, p.context_piece, 2, p.context_piece + 1)
    at += k.context_numbers * stride
    C = k.context_depth
    add_product(x, p.context, C, 1, 1, C, w, at, D, D, x, q.start, D)
    at += C * D
    copied_rows(x, q.nodes, N, D, x, q.start)
    for n in range(N):
        add_pieces(x, q.nodes + n * D, D, w, at, k.bins, k.numbers, p.piece + n, p.span, p.part + n)
    at += k.numbers * stride
    add_product(x, p.rows, k.depth, 1, N, k.depth, w, at, D, D, x, q.nodes, D)
    return at + k.depth * D


@inner
def of_pairs(k, p, q, x, w, at, hidden, outs, out_at, N):
    """b + W ReLU(a + V pair) of every pair, a row for each out; returns the place behind in w."""
    P = k.pair_depth
    shift, out = at + hidden * P, at + hidden * P + hidden
    last = (N * (N - 1) // 2 + 15) // 16 * 16
    for c in range(0, last, STRETCH):
        columns = min(STRETCH, last - c)
        for h in range(hidden):
            filled(x, q.hidden + h * STRETCH, columns, w[shift + h])
        add_product(w, at, P, 1, hidden, P, x, p.pair_rows + c, p.pair_span, columns, x, q.hidden, STRETCH)
        for h in range(hidden):
            rectify(x, q.hidden + h * STRETCH, columns)
        for r in range(outs):
            filled(x, out_at + r * p.pair_span + c, columns, w[out + outs * hidden + r])
        add_product(
            w, out, hidden, 1, outs, hidden, x, q.hidden, STRETCH, columns, x, out_at + c, p.pair_span
        )
    return out + outs * hidden + outs


@inner
def squared(x, at, row, span, N):
    """Values of the pairs i < j as a symmetric matrix, 0 on its diagonal; sixteen by sixteen at a time."""
    for i in range(0, N, 16):
        source = row + pair_at(i, N) - i - 1
        mirror_shrinking_block(x, source + i, N - i - 2, at + i * span + i, span)
        for j in range(i + 16, N, 16):
            turn_shrinking_block(x, source + j, N - i - 2, at + j * span + i, span)
            line = source + j
            for r in range(i, i + 16):
                store(x, at + r * span + j, load(x, line))
                line += N - r - 2


@inner
def normed_rows(x, at, num_rows, width, true_width, w, gain_at, out_at):
    """Layer norm of every row; w begins with ones, and zeros where rows are padding."""
    inverse = ONE / np.float32(true_width)
    for r in range(num_rows):
        row, out = at + r * width, out_at + r * width
        sums = spread(ZERO)
        for i in range(0, width, 16):
            sums = add(sums, load(x, row + i))
        mean = spread(total(sums) * inverse)
        sums = spread(ZERO)
        for i in range(0, width, 16):
            value = multiply(subtract(load(x, row + i), mean), load(w, i))
            store(x, out + i, value)
            sums = multiply_add(value, value, sums)
        scale = spread(ONE / np.sqrt(total(sums) * inverse + np.float32(1e-5)))
        for i in range(0, width, 16):
            value = multiply(load(x, out + i), scale)
            store(x, out + i, multiply_add(value, load(w, gain_at + i), load(w, gain_at + width + i)))


@inner
def attended(p, x, square, N):
    """Softmax over those attended to, for sixteen who attend at a time, not yet divided; the sums go to p.known.

    Scores are logarithms of base two.
    """
    span = p.span
    for c in range(0, span, 16):
        at = square + c
        most, sums = spread(np.float32(-np.inf)), spread(ZERO)
        for j in range(N):
            if x[p.present + j] > ZERO:
                most = larger(most, load(x, at + j * span))
        for j in range(N):
            if x[p.present + j] > ZERO:
                value = power_of_two(subtract(load(x, at + j * span), most))
                sums = add(sums, value)
                store(x, at + j * span, value)
            else:
                store(x, at + j * span, spread(ZERO))
        store(x, p.known + c, sums)


@inner
def attention(s, p, q, x, w, at, layer, N):
    """Adds to every node what it attends to; returns the place behind in w."""
    D, d, span = s.width, s.head_size, p.span
    normed_rows(x, q.nodes, N, D, s.true_width, w, at, q.normed)
    at += 2 * D
    copied_rows(x, q.wide, N, 3 * D, w, at + D * 3 * D)
    add_product(x, q.normed, D, 1, N, D, w, at, 3 * D, 3 * D, x, q.wide, 3 * D)
    at += 3 * D * D + 3 * D
    for n in range(0, N, 16):
        for c in range(0, D, 16):
            turn_block(x, q.wide + n * 3 * D + c, 3 * D, q.query + c * span + n, span)
    for h in range(s.heads):
        part = q.wide + h * d
        if s.steered:
            squared(x, q.square, q.steering + (layer * s.heads + h) * p.pair_span, span, N)
        else:
            filled(x, q.square, N * span, ZERO)
        add_product(x, part + D, 3 * D, 1, N, d, x, q.query + h * d * span, span, span, x, q.square, span)
        attended(p, x, q.square, N)
        row = q.mixed + h * d * span
        filled(x, row, (d + 3) // 4 * 4 * span, ZERO)  # rows beyond are the next head's, not yet written
        add_product(x, part + 2 * D, 1, 3 * D, d, N, x, q.square, span, span, x, row, span)
        for c in range(0, span, 16):
            share = divide(spread(ONE), load(x, p.known + c))
            for e in range(d):
                store(x, row + e * span + c, multiply(load(x, row + e * span + c), share))
    add_rows(x, q.nodes, N, D, w, at + s.true_width * D)
    add_product(x, q.mixed, 1, span, N, s.true_width, w, at, D, D, x, q.nodes, D)
    return at + s.true_width * D + D


@inner
def fed_forward(s, q, x, w, at, N):
    """Adds to every node two linear maps around a ReLU; returns the place behind in w."""
    D, F = s.width, s.inner_width
    normed_rows(x, q.nodes, N, D, s.true_width, w, at, q.normed)
    at += 2 * D
    copied_rows(x, q.wide, N, F, w, at + D * F)
    add_product(x, q.normed, D, 1, N, D, w, at, F, F, x, q.wide, F)
    rectify(x, q.wide, N * F)
    at += D * F + F
    add_rows(x, q.nodes, N, D, w, at + F * D)
    add_product(x, q.wide, F, 1, N, F, w, at, D, D, x, q.nodes, D)
    return at + F * D + D


@inner
def weighted(x, at, w, w_at, size):
    """The inner product of a row and weights, both of whole registers."""
    sums = spread(ZERO)
    for i in range(0, size, 16):
        sums = multiply_add(load(x, at + i), load(w, w_at + i), sums)
    return total(sums)


@inner
def score_nodes(s, q, x, w, at, score, base, N):
    """A score of every candidate, its upstream score and its base in it; returns the place behind in w."""
    D = s.width
    normed_rows(x, q.nodes, N, D, s.true_width, w, at, q.normed)
    at += 2 * D
    copied_rows(x, q.wide, N, D, w, at + D * D)
    add_product(x, q.normed, D, 1, N, D, w, at, D, D, x, q.wide, D)
    rectify(x, q.wide, N * D)
    at += D * D + D
    for n in range(N):
        value = weighted(x, q.wide + n * D, w, at, D) + weighted(x, q.normed + n * D, w, at + D, D)
        x[q.node + n] = value + w[at + 2 * D] * score[n] + base[n]
    return at + 2 * D + 1


@inner
def score_pairs(s, k, p, q, x, w, at, N, pair):
    """Adds to the pairs below the diagonal what their columns and their nodes say; returns the place behind in w."""
    P, D, R = k.pair_depth, s.width, s.low_rank
    if s.paired:
        linear = at
        at = of_pairs(k, p, q, x, w, at + 4 * P, s.paired, 4, q.scores, N)
        last = (N * (N - 1) // 2 + 15) // 16 * 16
        add_product(w, linear, P, 1, 1, P, x, p.pair_rows, p.pair_span, last, x, q.scores, p.pair_span)
        for i in range(N):
            for j in range(i + 1, N):
                pair[j, i] += x[q.scores + pair_at(i, N) + j - i - 1]
    if R:
        filled(x, q.wide, N * R, ZERO)
        add_product(x, q.normed, D, 1, N, D, w, at, R, R, x, q.wide, R)
        for i in range(N):
            for r in range(0, R, 16):
                value = multiply(load(x, q.wide + i * R + r), load(w, at + D * R + r))
                store(x, q.start + r, value)
            for j in range(i):
                sums = spread(ZERO)
                for r in range(0, R, 16):
                    sums = multiply_add(load(x, q.start + r), load(x, q.wide + j * R + r), sums)
                pair[i, j] += total(sums)
        at += D * R + R
    return at


@inner
def add_shares(p, x, at, N, node):
    """Adds the softmax over all who are there."""
    most, sums = -np.inf, 0.0
    for n in range(N):
        if x[p.present + n] > ZERO:
            most = max(most, np.float64(x[at + n]))
    for n in range(N):
        if x[p.present + n] > ZERO:
            sums += np.exp(x[at + n] - most)
    for n in range(N):
        if x[p.present + n] > ZERO:
            node[n] += np.exp(x[at + n] - most) / sums


@inner
def read_own(m, k, p, x, tables, shapes, given, b, N):
    """What one member reads of every candidate and of the context; False where a code has no row in its table."""
    own, _, _, _, _, _, codes, context_codes, _ = given
    size, item_size = len(tables) // own.shape[0], shapes[2]
    for n in range(N):
        at = p.rows + n * k.depth + k.depth - k.own
        if k.categories and not read_codes(x, at, tables, m * size, shapes[0], codes[b, n]):
            return False
        for e in range(own.shape[3]):
            x[p.rows + (n + 1) * k.depth - own.shape[3] + e] = own[m, b, n, e]
    at = p.context + k.context_numbers + k.user_features
    return read_codes(x, at, tables, m * size + item_size, shapes[1], context_codes[b])


@compiled
def card_values_each(counter, unknown, s, k, p, q, x, w, tables, shapes, scales, given, score, base, values):
    """Mean values of the requests that nobody has taken yet, their bases' sums being in place.

    `unknown` becomes the place of a request with a code that no table has.
    """
    bias, node, pair = values
    present = given[8]
    B, N = present.shape
    while True:
        b = take_next(counter, 0)
        if b >= B:
            return
        read_columns(k, p, x, scales, given, b)
        read_context(k, p, x, scales, given, b)
        at = np.int64(s.width)
        for m in range(s.members):
            if not read_own(m, k, p, x, tables, shapes, given, b, N):
                unknown[0] = b
                return
            at = embed(s, k, p, q, x, w, at, N)
            if s.steered:
                at = of_pairs(k, p, q, x, w, at, s.steered, (s.heads * s.layers + 3) // 4 * 4, q.steering, N)
            for layer in range(s.layers):
                if s.attends:
                    at = attention(s, p, q, x, w, at, layer, N)
                at = fed_forward(s, q, x, w, at, N)
            at = score_nodes(s, q, x, w, at, score[b], base[m, b], N)
            at = score_pairs(s, k, p, q, x, w, at, N, pair[b])
            if s.shares:
                add_shares(p, x, q.node, N, node[b])
            else:
                bias[b] += w[at]
                for n in range(N):
                    if present[b, n]:
                        node[b, n] += x[q.node + n]
            at += 1
        bias[b] /= s.members
        for i in range(N):
            node[b, i] /= s.members
            pair[b, i, i] = 0.0
            for j in range(i):
                two = present[b, i] and present[b, j]
                pair[b, i, j] = pair[b, i, j] / s.members if two else 0.0
                pair[b, j, i] = pair[b, i, j]
