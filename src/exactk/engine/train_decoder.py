"""GAttN's decoder for training, compiled: cards drawn, scores along given cards with everything kept, and back.

Knows neither modules nor batches; one request at a time. Rows of the recurrence: the first is before any choice and the
same for every path, then those of the paths after one choice, after two, and so on.
"""

from __future__ import annotations

from typing import NamedTuple, no_type_check

import numpy as np

from exactk.engine.arithmetic import additive, product, softmax, transposed
from exactk.engine.gradients import (
    back_through_additive,
    back_through_cell,
    back_through_softmax,
    cell_kept,
    clear,
    outer_onto,
    product_onto,
    raised_double,
    rows_onto,
)
from exactk.engine.lanes import (
    add,
    exponential,
    inner,
    larger,
    largest,
    load,
    multiply,
    spread,
    store,
    subtract,
)

NOTHING, ZERO, ONE, TWO = np.float32(-np.inf), np.float32(0), np.float32(1), np.float32(2)


class Rows(NamedTuple):
    """Where everything kept of one request's decoding lies, from its first number on; of each `size` rows."""

    size: int
    layers: int  # of a layer: inputs, hidden before, cell before, gates, cell, its tanh, hidden
    layer_size: int
    both: int  # [d_t; c_t], 2 D
    glimpse: int  # its query, as e^2x
    attention: int
    query: int  # the pointer's, as e^2x
    end: int


@inner
@no_type_check
def point_rows(
    s, at, p, turned, vectors, tape, first, k, both, glimpse, attention, query, num, N, span, scores
):
    """Raw scores (eq. 12, 13) of `num` rows whose d_t stands in `both`, all in array k; scores go there, too.

    `vectors` is -2 v of glimpse and pointer; scores lack the sum of the pointer's v.
    """
    D = s.width
    nodes = first + p.nodes + s.layers * ((N + 3) // 4 * 4) * D
    product(k, both, 2 * D, num, D, turned, at.glimpse_query, D, D, k, 0, k, glimpse, D)
    raised_double(k, glimpse, num * D)
    for r in range(num):
        row = attention + r * span
        additive(tape, first + p.glimpse_keys, span, k, glimpse + r * D, vectors, 0, D, k, row)
        softmax(k, row, span, ONE, tape, first + p.absent)
    product(k, attention, span, num, N, tape, nodes, D, D, k, 0, k, both + D, 2 * D)
    product(k, both, 2 * D, num, 2 * D, turned, at.pointer_query, D, D, k, 0, k, query, D)
    raised_double(k, query, num * D)
    for r in range(num):
        additive(tape, first + p.pointer_keys, span, k, query + r * D, vectors, D, D, k, scores + r * span)


@inner
@no_type_check
def recur_kept(s, at, q, turned, k, begin, row, num, layer):
    """One LSTM layer for `num` rows from `row` on, whose inputs and states before stand in place."""
    D, R = s.width, q.size
    own, part = at.cells + layer * at.cell_size, begin + q.layers + layer * q.layer_size
    inputs, before, cell_before = part, part + R * D, part + 2 * R * D
    gates, cell = part + 3 * R * D, part + 7 * R * D
    bias = own + 8 * D * D  # both biases, summed, stand here in `turned`
    product(
        k, inputs + row * D, D, num, D, turned, own, 4 * D, 4 * D, turned, bias, k, gates + row * 4 * D, 4 * D
    )
    product_onto(
        k, before + row * D, D, num, D, turned, own + 4 * D * D, 4 * D, 4 * D, k, gates + row * 4 * D, 4 * D
    )
    for r in range(row, row + num):
        cell_kept(
            k, gates + r * 4 * D, D, cell_before + r * D,
            cell + r * D, cell + R * D + r * D, cell + 2 * R * D + r * D,
        )  # fmt: skip


@inner
@no_type_check
def copied(x, at, k, to, size):
    """k[to : to + size] = x[at : at + size]."""
    for i in range(size):
        k[to + i] = x[at + i]


@inner
@no_type_check
def replay_kept(s, at, p, q, turned, vectors, tape, first, k, begin, cards, N, span):
    """Decode along cards [P, K] of one request; k begins with zeros.

    Returns where in k the rows of scores lie, `span` apart; they lack the sum of the pointer's v.
    """
    D, R, (P, K) = s.width, q.size, cards.shape
    nodes = first + p.nodes + s.layers * ((N + 3) // 4 * 4) * D
    for t in range(K):
        row, num = (0, 1) if t == 0 else (1 + (t - 1) * P, P)
        for layer in range(s.decoder_layers):
            part = begin + q.layers + layer * q.layer_size
            under = part - q.layer_size
            for i in range(num):
                r = row + i
                previous = 0 if t == 1 else r - P
                if layer > 0:
                    copied(k, under + 9 * R * D + r * D, k, part + r * D, D)
                elif t > 0:
                    copied(tape, nodes + max(cards[i, t - 1], 0) * D, k, part + r * D, D)
                else:
                    clear(k, part, D)
                if t > 0:
                    copied(k, part + 9 * R * D + previous * D, k, part + R * D + r * D, D)
                    copied(k, part + 7 * R * D + previous * D, k, part + 2 * R * D + r * D, D)
                else:
                    clear(k, part + R * D, D)
                    clear(k, part + 2 * R * D, D)
            recur_kept(s, at, q, turned, k, begin, row, num, layer)
    top = begin + q.layers + (s.decoder_layers - 1) * q.layer_size + 9 * R * D
    num = 1 + (K - 1) * P
    for r in range(num):
        copied(k, top + r * D, k, begin + q.both + r * 2 * D, D)
    # The scratch behind the kept rows takes the scores, padded.
    padded = begin + q.end - R * span
    point_rows(
        s, at, p, turned, vectors, tape, first, k,
        begin + q.both, begin + q.glimpse, begin + q.attention, begin + q.query, num, N, span, padded,
    )  # fmt: skip
    return padded


@inner
@no_type_check
def row_of(path, t, num_paths):
    """The row of the recurrence before choice t of a path."""
    return 0 if t == 0 else 1 + (t - 1) * num_paths + path


@inner
@no_type_check
def point_back(s, at, p, q, w, tape, first, k, begin, x, of, g, num, N, span):
    """Gradients at `num` rows of scores, in scratch x, to those of d_t [rows, 2 D], nodes, keys and weights.

    `of` names the places in x: nodes, the two sets of keys (all begun at zero), rows [d; c], two queries, scores.
    """
    D = s.width
    nodes, glimpse_keys, pointer_keys, both, query, glimpse, scores, nodes_t = of
    kept = first + p.nodes + s.layers * ((N + 3) // 4 * 4) * D
    for r in range(num):
        back_through_additive(
            x, scores + r * span, tape, first + p.pointer_keys, span, k, begin + q.query + r * D,
            w, at.pointer_vector, D, x, pointer_keys, x, query + r * D, g,
        )  # fmt: skip
    outer_onto(x, query, D, D, k, begin + q.both, 2 * D, 2 * D, num, g, at.pointer_query, 2 * D)
    product(x, query, D, num, D, w, at.pointer_query, 2 * D, 2 * D, x, 0, x, both, 2 * D)
    clear(x, nodes_t, D * span)
    transposed(tape, kept, D, N, D, x, nodes_t, span)
    product(x, both + D, 2 * D, num, D, x, nodes_t, span, span, x, 0, x, scores, span)
    outer_onto(k, begin + q.attention, span, N, x, both + D, 2 * D, D, num, x, nodes, D)
    for r in range(num):
        back_through_softmax(x, scores + r * span, k, begin + q.attention + r * span, span, ONE)
        back_through_additive(
            x, scores + r * span, tape, first + p.glimpse_keys, span, k, begin + q.glimpse + r * D,
            w, at.glimpse_vector, D, x, glimpse_keys, x, glimpse + r * D, g,
        )  # fmt: skip
    outer_onto(x, glimpse, D, D, k, begin + q.both, 2 * D, D, num, g, at.glimpse_query, D)
    product_onto(x, glimpse, D, num, D, w, at.glimpse_query, D, D, x, both, 2 * D)
    # Keys are W h_j: as rows of D by nodes they multiply and are multiplied as they lie.
    for which in range(2):
        keys, own = (glimpse_keys, at.keys) if which == 0 else (pointer_keys, at.keys + D * D)
        product_onto(x, keys, span, D, N, tape, kept, D, D, g, own, D)
        outer_onto(x, keys, span, N, w, own, D, D, D, x, nodes, D)


@inner
@no_type_check
def recur_back(s, at, q, w, k, begin, x, of, g, cards):
    """Gradients at d_t, rows [num, 2 D] of scratch x, back through time; nodes chosen and weights get theirs.

    `of`: nodes, rows, then per layer the gradients of hidden vectors, cells and gates (begun at zero), and a few rows.
    """
    D, R, (P, K) = s.width, q.size, cards.shape
    nodes, both, states, few = of
    num, each = 1 + (K - 1) * P, 6 * R * D
    top = states + (s.decoder_layers - 1) * each
    for r in range(num):
        copied(x, both + r * 2 * D, x, top + r * D, D)
    for back in range(K):
        t = K - 1 - back
        row, count = (0, 1) if t == 0 else (1 + (t - 1) * P, P)
        for down in range(s.decoder_layers):
            layer = s.decoder_layers - 1 - down
            own, part = at.cells + layer * at.cell_size, begin + q.layers + layer * q.layer_size
            hidden, cell, gates = (
                states + layer * each,
                states + layer * each + R * D,
                states + layer * each + 2 * R * D,
            )
            for r in range(row, row + count):
                back_through_cell(
                    k, part + 3 * R * D + r * 4 * D, D, part + 2 * R * D + r * D, part + 8 * R * D + r * D,
                    x, hidden + r * D, cell + r * D, gates + r * 4 * D,
                )  # fmt: skip
            if layer > 0 or t > 0:
                product(x, gates + row * 4 * D, 4 * D, count, 4 * D, w, own, D, D, x, 0, x, few, D)
                for i in range(count):
                    to = nodes + max(cards[i, t - 1], 0) * D if layer == 0 else hidden - each + (row + i) * D
                    for d in range(D):
                        x[to + d] += x[few + i * D + d]
            if t > 0:
                product(
                    x, gates + row * 4 * D, 4 * D, count, 4 * D, w, own + 4 * D * D, D, D, x, 0, x, few, D
                )
                for i in range(count):
                    r = row + i
                    previous = 0 if t == 1 else r - P
                    for d in range(D):
                        x[hidden + previous * D + d] += x[few + i * D + d]
                        x[cell + previous * D + d] += x[cell + r * D + d]
    for layer in range(s.decoder_layers):
        own, part = at.cells + layer * at.cell_size, begin + q.layers + layer * q.layer_size
        gates = states + layer * each + 2 * R * D
        outer_onto(x, gates, 4 * D, 4 * D, k, part, D, D, num, g, own, D)
        outer_onto(x, gates, 4 * D, 4 * D, k, part + R * D, D, D, num, g, own + 4 * D * D, D)
        rows_onto(x, gates, 4 * D, num, 4 * D, g, own + 8 * D * D)


@inner
@no_type_check
def draw_position(x, scores, mask, added, temperature, span, N, uniform):
    """One open position, drawn: the first at which the running sum of probabilities passes the number; -1 if none is.

    Scores (lost), what is added to them, masks and padding take `span` numbers each. Returns its log-probability, too.
    """
    share = spread(ONE / temperature)
    most = spread(NOTHING)
    for i in range(0, span, 16):
        value = multiply(add(load(x, scores + i), load(x, added + i)), share)
        value = add(value, load(x, mask + i))
        store(x, scores + i, value)
        most = larger(most, value)
    top = largest(most)
    if not top > NOTHING:
        return -1, ZERO
    for i in range(0, span, 16):
        store(x, scores + i, exponential(subtract(load(x, scores + i), spread(top))))
    sums = ZERO
    for n in range(N):
        if x[mask + n] < ZERO:
            x[scores + n] = ZERO  # e^x ends at e^-80, and what is forbidden must add nothing
        sums += x[scores + n]
    level, running = uniform * np.float32(1 - 2**-22) * sums, ZERO
    for n in range(N):
        running += x[scores + n]
        if running > level:
            return n, np.log(x[scores + n] / sums)
    return -1, ZERO
