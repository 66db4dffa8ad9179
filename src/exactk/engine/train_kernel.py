"""A training step's compiled calls: encode a batch, draw cards, score given cards, and the gradients of all weights.

Knows neither modules nor losses; `training.py` hands weights and batches in. Each call takes the requests
first..last-1, so that threads can share a batch; every thread has its own scratch and its own sum of gradients.
"""

from __future__ import annotations

from typing import no_type_check

import numpy as np

from exactk.engine.arithmetic import lstm_cell, product
from exactk.engine.gradients import clear
from exactk.engine.lanes import inner
from exactk.engine.train_decoder import (
    copied,
    draw_position,
    point_back,
    point_rows,
    recur_back,
    replay_kept,
    row_of,
)
from exactk.engine.train_encoder import encode_back, encode_kept
from exactk.problem.compiling import compiled

NOTHING, ZERO = np.float32(-np.inf), np.float32(0)


@compiled
@no_type_check
def turn(s, at, matrices, w, turned, vectors):
    """All matrices transposed, the cells' two biases summed, -2 v of glimpse and pointer."""
    D = s.width
    for m in range(len(matrices)):
        begin, rows, columns = matrices[m, 0], matrices[m, 1], matrices[m, 2]
        for r in range(rows):
            for c in range(columns):
                turned[begin + c * rows + r] = w[begin + r * columns + c]
    for layer in range(s.decoder_layers):
        bias = at.cells + layer * at.cell_size + 8 * D * D
        for i in range(4 * D):
            turned[bias + i] = w[bias + i] + w[bias + 4 * D + i]
    for d in range(D):
        vectors[d] = np.float32(-2) * w[at.glimpse_vector + d]
        vectors[D + d] = np.float32(-2) * w[at.pointer_vector + d]
    return 0


@compiled
@no_type_check
def encode_each(first, last, s, at, p, w, turned, inputs, present, tape, x):
    """Nodes and keys of requests, everything kept on the tape."""
    N, D = inputs.shape[1], s.width
    span, n4 = (N + 15) // 16 * 16, (N + 3) // 4 * 4
    for b in range(first, last):
        begin = b * p.end
        for n in range(span):
            tape[begin + p.absent + n] = ZERO if n < N and present[b, n] else NOTHING
        for n in range(N):
            for d in range(D):
                tape[begin + p.inputs + n * D + d] = inputs[b, n, d]
        encode_kept(s, at, p, w, turned, tape, begin, x, N, span, n4)
    return 0


@inner
@no_type_check
def advance_rows(s, at, turned, x, pair, gates, states, both, num, rows):
    """One step of the recurrence for `num` rows: inputs stand in the left halves of `pair`; d_t goes to `both`."""
    D = s.width
    for layer in range(s.decoder_layers):
        own = at.cells + layer * at.cell_size
        hidden, cell = states + 2 * layer * rows * D, states + (2 * layer + 1) * rows * D
        for r in range(num):
            if layer > 0:
                copied(x, hidden - 2 * rows * D + r * D, x, pair + r * 2 * D, D)
            copied(x, hidden + r * D, x, pair + r * 2 * D + D, D)
        product(
            x, pair, 2 * D, num, 2 * D, turned, own, 4 * D, 4 * D, turned, own + 8 * D * D, x, gates, 4 * D
        )
        for r in range(num):
            lstm_cell(x, gates + r * 4 * D, D, cell + r * D, cell + r * D, hidden + r * D)
    for r in range(num):
        copied(x, states + 2 * (s.decoder_layers - 1) * rows * D + r * D, x, both + r * 2 * D, D)


@inner
@no_type_check
def draw_one(
    b, begin, s, at, p, turned, vectors, tape, x, places, graph, open_, added, uniform, temperature,
    cards, log_prob, allowed,
):  # fmt: skip
    """One request's cards; False where there is nothing to draw."""
    _, S, K = cards.shape
    N, D = graph.shape[1], s.width
    span, rows = (N + 15) // 16 * 16, (S + 3) // 4 * 4
    both, glimpse, attention, query, scores, masks, pair, gates, states, more = places
    nodes = p.nodes + s.layers * ((N + 3) // 4 * 4) * D
    clear(x, states, 2 * s.decoder_layers * rows * D)
    clear(x, pair, 2 * D)
    advance_rows(s, at, turned, x, pair, gates, states, both, 1, rows)
    for i in range(S):
        log_prob[b, i] = ZERO
        for n in range(span):
            x[masks + i * span + n] = ZERO if n < N and open_[b, n] else NOTHING
    for n in range(N):
        x[more + n] = added[b, n]
    for t in range(K):
        num = S if t > 0 else 1
        point_rows(
            s, at, p, turned, vectors, tape, begin, x,
            both, glimpse, attention, query, num, N, span, scores,
        )  # fmt: skip
        if t == 0:
            for i in range(1, S):
                copied(x, scores, x, scores + i * span, N)
        for i in range(S):
            row, mask = scores + i * span, masks + i * span
            for n in range(N):
                allowed[b, i, t, n] = x[mask + n] == ZERO
            position, likely = draw_position(x, row, mask, more, temperature, span, N, uniform[t, b, i])
            if position < 0:
                return False
            cards[b, i, t] = position
            log_prob[b, i] += likely
            for n in range(N):
                if not graph[b, position, n]:
                    x[mask + n] = NOTHING
            x[mask + position] = NOTHING
        if t + 1 == K:
            break
        if t == 0:
            for layer in range(2 * s.decoder_layers):
                for i in range(1, S):
                    copied(x, states + layer * rows * D, x, states + (layer * rows + i) * D, D)
        for i in range(S):
            copied(tape, begin + nodes + cards[b, i, t] * D, x, pair + i * 2 * D, D)
        advance_rows(s, at, turned, x, pair, gates, states, both, S, rows)
    return True


@compiled
@no_type_check
def draw_each(
    first, last, s, at, p, turned, vectors, tape, x, places, graph, open_, added, uniform, temperature,
    cards, log_prob, allowed,
):  # fmt: skip
    """Cards drawn from the policy, their log-probabilities, and what was allowed before each choice.

    `added` [B, N] comes on top of the scores; `uniform` [K, B, S] holds the numbers that decide.
    """
    for b in range(first, last):
        if not draw_one(
            b, b * p.end, s, at, p, turned, vectors, tape, x, places, graph, open_, added, uniform, temperature,
            cards, log_prob, allowed,
        ):  # fmt: skip
            return b + 1
    return 0


@compiled
@no_type_check
def replay_each(first, last, s, at, p, q, w, turned, vectors, tape, k, room, cards, scores):
    """The scores before each choice of cards [B, P, K], everything kept in k from `room` on."""
    _, P, K, N = scores.shape
    span = (N + 15) // 16 * 16
    constant = ZERO
    for d in range(s.width):
        constant += w[at.pointer_vector + d]
    for b in range(first, last):
        rows = replay_kept(
            s, at, p, q, turned, vectors, tape, b * p.end, k, room + b * q.end, cards[b], N, span
        )
        for i in range(P):
            for t in range(K):
                row = rows + row_of(i, t, P) * span
                for n in range(N):
                    scores[b, i, t, n] = k[row + n] + constant
    return 0


@inner
@no_type_check
def back_one(begin, kept, s, at, p, q, w, tape, k, x, places, g, cards, N):
    """Gradients at the rows of scores, which stand in scratch x, to those of all weights (onto g) and of the inputs.

    Returns where in x the latter are.
    """
    D, span, n4, (P, K) = s.width, (N + 15) // 16 * 16, (N + 3) // 4 * 4, cards.shape
    nodes, glimpse_keys, pointer_keys, both, query, glimpse, scores, nodes_t, states, few, free = places
    clear(x, nodes, n4 * D)
    clear(x, glimpse_keys, 2 * D * span)
    clear(x, states, s.decoder_layers * 6 * q.size * D)
    of = (nodes, glimpse_keys, pointer_keys, both, query, glimpse, scores, nodes_t)
    point_back(s, at, p, q, w, tape, begin, k, kept, x, of, g, 1 + (K - 1) * P, N, span)
    recur_back(s, at, q, w, k, kept, x, (nodes, both, states, few), g, cards)
    return encode_back(s, at, p, w, tape, begin, x, nodes, free, g, N, span, n4)


@compiled
@no_type_check
def back_each(first, last, each, s, at, p, q, w, tape, k, room, x, places, sums, cards, wanted, inputs_g):
    """Gradients `wanted` at the scores to those of the encoder's inputs and of all weights.

    The latter go onto `sums`, a row for every `each` requests.
    """
    _, P, K, N = wanted.shape
    D, span, scores = s.width, (N + 15) // 16 * 16, places[6]
    for b in range(first, last):
        clear(x, scores, (1 + (K - 1) * P) * span)
        for i in range(P):
            for t in range(K):
                row = scores + row_of(i, t, P) * span
                for n in range(N):
                    x[row + n] += wanted[b, i, t, n]
        to = back_one(
            b * p.end, room + b * q.end, s, at, p, q, w, tape, k, x, places, sums[b // each], cards[b], N
        )
        for n in range(N):
            for d in range(D):
                inputs_g[b, n, d] = x[to + n * D + d]
    return 0
