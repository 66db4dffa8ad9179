"""One request from ids and features to its cards: GAttN, compiled, all its numbers in one scratch array.

Knows neither modules nor batches; `exactk.engine.decode` packs the weights in the order read here.
"""

from __future__ import annotations

from collections import namedtuple
from typing import NamedTuple

import numpy as np
from jaxtyping import Float32

from exactk.engine.arithmetic import (
    ONE,
    ZERO,
    additive,
    additive_of_sums,
    lstm_cell,
    normed,
    product,
    raised,
    read_row,
    rectify,
    softmax,
    transposed,
)
from exactk.engine.decode.beam import (
    NOTHING,
    CardsBegun,
    choose,
    extend,
    log_probabilities,
    look_ahead,
    most_strangers,
)
from exactk.engine.lanes import inner, load, multiply, sigmoid, store, subtract, take_next
from exactk.problem.compiling import compiled

DONE, NO_CARD, BEYOND_RANGE, UNKNOWN_ID = 0, 1, 2, 3


class Sizes(NamedTuple):
    """Of the network; all but those called true are padded to sixteen."""

    width: int
    true_width: int
    heads: int
    head_size: int
    true_head_size: int
    parts: int  # 1: query, key and value are one projection; 3: three
    feed_forward_size: int
    layers: int
    item_size: int
    user_size: int
    decoder_layers: int
    rows: int  # the beam, padded to four
    beam: int


class Gains(NamedTuple):
    """Values of nodes and pairs, what each candidate has that three may share (C is 0 without that), its worth."""

    node: Float32[np.ndarray, "B N"]
    pair: Float32[np.ndarray, "B N N"]
    has: Float32[np.ndarray, "B C N"]
    worth: Float32[np.ndarray, "C"]


# Where in the scratch array everything lies, for one number of candidates.
Places = namedtuple(
    "Places",
    "zeros inputs user_row nodes hidden joined projected mixed keys_t attention nodes_t glimpse_keys pointer_keys "
    "absent decoded query scores masks allowed gates pair states end",
)


@inner
def attend(s, w, at, x, p, N, span):
    """Multi-head self-attention of the nodes (eq. 6, 7) into p.joined; returns the place in w behind its weights."""
    D, head = s.width, s.head_size
    H = s.heads * head
    P = s.parts * H
    product(x, p.nodes, D, N, D, w, at, P, P, x, p.zeros, x, p.projected, P)
    keys, values = p.projected, p.projected
    if s.parts == 3:
        keys, values = keys + H, values + 2 * H
    transposed(x, keys, P, N, H, x, p.keys_t, span)
    scale = ONE / np.sqrt(np.float32(s.true_head_size))
    for h in range(s.heads):
        query, key = p.projected + h * head, p.keys_t + h * head * span
        product(x, query, P, N, head, x, key, span, span, x, p.zeros, x, p.attention, span)
        for n in range(N):
            softmax(x, p.attention + n * span, span, scale, x, p.absent)
        product(
            x, p.attention, span, N, N, x, values + h * head, P, head, x, p.zeros, x, p.mixed + h * head, H
        )
    at += D * P
    product(x, p.mixed, H, N, H, w, at, D, D, x, p.zeros, x, p.joined, D)
    return at + H * D


@inner
def embed(s, w, at, x, p, tables, features, ids, b, N):
    """x_i = ReLU(W_I [x_s; x_u] + b_I) (eq. 4) into p.hidden; returns the place behind in w, or -1: an unknown id."""
    D = s.width
    users, items = tables
    user_features, item_features = features
    user, item = ids
    if not read_row(x, p.inputs, s.user_size, users, user_features, user[b], b, np.int64(0)):
        return -1
    for_user = at + s.item_size * D
    bias = for_user + s.user_size * D
    product(x, p.inputs, s.user_size, np.int64(1), s.user_size, w, for_user, D, D, w, bias, x, p.user_row, D)
    for n in range(N):
        if not read_row(x, p.inputs + n * s.item_size, s.item_size, items, item_features, item[b, n], b, n):
            return -1
    product(x, p.inputs, s.item_size, N, s.item_size, w, at, D, D, x, p.user_row, x, p.hidden, D)
    rectify(x, p.hidden, N * D)
    return bias + D


@inner
def encode(s, w, x, p, tables, features, ids, present, b, span):
    """Inputs, a linear map to the width (eq. 5) and L layers (eq. 6 to 8) into p.nodes.

    Returns the place behind their weights, or -1: an unknown id.
    """
    D, F, N = s.width, s.feed_forward_size, present.shape[1]
    at = embed(s, w, D, x, p, tables, features, ids, b, N)
    if at < 0:
        return at
    for n in range(span):
        x[p.absent + n] = ZERO if n < N and present[b, n] else NOTHING
    product(x, p.hidden, D, N, D, w, at, D, D, w, at + D * D, x, p.nodes, D)
    at += D * D + D
    for _ in range(s.layers):
        at = attend(s, w, at, x, p, N, span)
        normed(x, p.nodes, p.joined, N, D, s.true_width, w, 0, at, at + D)
        at += 2 * D
        product(x, p.nodes, D, N, D, w, at, F, F, w, at + D * F, x, p.hidden, F)
        rectify(x, p.hidden, N * F)
        at += D * F + F
        product(x, p.hidden, F, N, F, w, at, D, D, w, at + F * D, x, p.joined, D)
        at += F * D + D
        normed(x, p.nodes, p.joined, N, D, s.true_width, w, 0, at, at + D)
        at += 2 * D
    return at


@compiled
def shares_each(level, sharpness, tables, features, item, has):
    """sigmoid(a (x_i - b)) of every candidate's vector, member after member, into `has`; ids must be in the tables."""
    members, step = level.shape
    size = has.shape[1] // members
    row, of_level, of_sharpness = np.zeros(step, np.float32), level.reshape(-1), sharpness.reshape(-1)
    for b in range(len(item)):
        for m in range(members):
            for n in range(item.shape[1]):
                read_row(row, 0, size, tables[m], features, item[b, n], b, n)
                for i in range(0, step, 16):
                    apart = subtract(load(row, i), load(of_level, m * step + i))
                    store(row, i, sigmoid(multiply(load(of_sharpness, m * step + i), apart)))
                for i in range(size):
                    has[b, m * size + i, n] = row[i]


@inner
def add_gains(x, at, N, gain, counts, gains, b):
    """Adds to the scores of one row: what it has gained so far, and where two have what a third may share, that."""
    _, _, has, worth = gains
    for n in range(len(gain)):
        x[at + n] += gain[n]
    for c in range(len(worth)):
        chance = counts[2, c] * worth[c]
        if chance != 0:
            for n in range(N):
                x[at + n] += chance * has[b, c, n]


@inner
def follow(gain, counts, gains, b, place, new_gain, new_counts):
    """Gains and counts of a row once `place` is chosen: its pairs are gained, counts stay or move up by one."""
    _, pair, has, worth = gains
    for n in range(len(gain)):
        new_gain[n] = gain[n] + pair[b, place, n]
    for c in range(len(worth)):
        held = has[b, c, place]
        for i in range(2, 0, -1):
            new_counts[i, c] = counts[i, c] * (ONE - held) + counts[i - 1, c] * held
        new_counts[0, c] = counts[0, c] * (ONE - held)


@inner
def make_keys(s, w, at, x, p, N, span, wide):
    """e^(2 W_D2 h_j) and e^(2 W_D4 h_j), a column per node; False where a number is too large for that.

    `wide`: numbers are large, and kept as they are.
    """
    D = s.width
    transposed(x, p.nodes, D, N, D, x, p.nodes_t, span)
    product(w, at, D, D, D, x, p.nodes_t, span, span, x, p.zeros, x, p.glimpse_keys, span)
    product(w, at + D * D, D, D, D, x, p.nodes_t, span, span, x, p.zeros, x, p.pointer_keys, span)
    if wide:
        return True
    inside = raised(x, p.glimpse_keys, D * span)
    return raised(x, p.pointer_keys, D * span) and inside


@inner
def attend_to(s, w, vector, x, p, keys, num, span, wide):
    """v^T tanh(key + query) of every row of p.query and every node into p.scores; False: a number is out of range."""
    D = s.width
    if wide:
        for r in range(num):
            additive_of_sums(x, keys, span, x, p.query + r * D, w, vector, D, x, p.scores + r * span)
        return True
    if not raised(x, p.query, num * D):
        return False
    for r in range(num):
        additive(x, keys, span, x, p.query + r * D, w, vector, D, x, p.scores + r * span)
    return True


@inner
def point(s, w, at, x, p, num, N, span, wide):
    """Raw scores of every node for `num` rows (eq. 12, 13) into p.scores; False where a number is out of range.

    A row of p.decoded is [d_t; c_t], so that the glimpse c_t is written where the pointer reads it.
    """
    D = s.width
    vector = at + 3 * D * D
    product(x, p.decoded, 2 * D, num, D, w, at, D, D, x, p.zeros, x, p.query, D)
    if not attend_to(s, w, vector, x, p, p.glimpse_keys, num, span, wide):
        return False
    for r in range(num):
        softmax(x, p.scores + r * span, span, ONE, x, p.absent)
    product(x, p.scores, span, num, N, x, p.nodes, D, D, x, p.zeros, x, p.decoded + D, 2 * D)
    product(x, p.decoded, 2 * D, num, 2 * D, w, at + D * D, D, D, x, p.zeros, x, p.query, D)
    return attend_to(s, w, vector + D, x, p, p.pointer_keys, num, span, wide)


@inner
def start(s, w, at, x, p):
    """d_1 = g(0, 0): the same for every request, so it comes with the weights. Returns the place behind it in w."""
    D = s.width
    for layer in range(s.decoder_layers):
        to = p.states + 2 * layer * s.rows * D
        for d in range(D):
            x[to + d] = w[at + d]
            x[to + s.rows * D + d] = w[at + D + d]
            x[p.decoded + d] = w[at + d]
        at += 2 * D
    return at


@inner
def advance(s, w, at, x, p, num, parent, place, old):
    """d_t = g(d_t-1, a_t-1) (eq. 11) for every new beam; `old` (0 or 1) says which half of the states is left behind.

    A half holds, for each layer, the rows' hidden vectors and then their cells.
    """
    D, block = s.width, s.rows * s.width
    half = 2 * s.decoder_layers * block
    for layer in range(s.decoder_layers):
        before = p.states + old * half + 2 * layer * block
        after = p.states + (1 - old) * half + 2 * layer * block
        for r in range(num):
            below = p.nodes + place[r] * D if layer == 0 else after - 2 * block + r * D
            for d in range(D):
                x[p.pair + r * 2 * D + d] = x[below + d]
                x[p.pair + r * 2 * D + D + d] = x[before + parent[r] * D + d]
        product(x, p.pair, 2 * D, num, 2 * D, w, at, 4 * D, 4 * D, w, at + 8 * D * D, x, p.gates, 4 * D)
        for r in range(num):
            cell = before + block + parent[r] * D
            lstm_cell(x, p.gates + r * 4 * D, D, cell, after + block + r * D, after + r * D)
            for d in range(D):
                x[p.decoded + r * 2 * D + d] = x[after + r * D + d]
        at += 8 * D * D + 4 * D


@inner
def open_at_first(x, p, b, N, span, rows, rules):
    """The first row's mask: present positions that no cap of 0 shuts and every pin may stand with; padding is shut."""
    graph, present, _, pinned, group, cap = rules
    for n in range(span):
        x[p.absent + n] = ZERO if n < N and present[b, n] else NOTHING
        x[p.masks + n] = x[p.absent + n]
    for r in range(2 * rows):
        for n in range(N, span):
            x[p.masks + r * span + n] = NOTHING
            x[p.allowed + (r % rows) * span + n] = NOTHING
    for c in range(cap.shape[1]):
        for n in range(N):
            if cap[b, c] <= 0 and group[b, c, n] >= 0:
                x[p.masks + n] = NOTHING
    pins = 0
    for i in range(N):
        if pinned[b, i]:
            pins += 1
            for n in range(N):
                if n != i and not graph[b, i, n]:
                    x[p.masks + n] = NOTHING
    return pins


@inner
def write_cards(s, w, at, x, p, b, N, span, affinity, gains, rules, asked, answer, wide, cards):
    """Beam search over one encoded request; the best cards' positions, in order of choice, into `cards` [W, K]."""
    graph, present, card_size, _, _, cap = rules
    beam, K = s.beam, np.int64(card_size[b])
    lstm = start(s, w, at + 3 * s.width * s.width + 2 * s.width, x, p)
    beams = CardsBegun(
        path=np.zeros((2, beam, K), np.int64),
        chosen=np.zeros((2, beam, N), np.bool_),
        parent=np.zeros(beam, np.int64),
        place=np.zeros(beam, np.int64),
        so_far=np.zeros(beam, np.float32),
        tops=np.zeros(beam, np.float32),
        again=np.zeros((beam * beam, 2), np.int64),
        again_worth=np.zeros(beam * beam, np.float32),
    )
    path, chosen, parent, place = beams.path, beams.chosen, beams.parent, beams.place
    gain = np.zeros((2, beam, gains.node.shape[1]), np.float32)
    counts = np.zeros((2, beam, 3, len(gains.worth)), np.float32)
    gain[0, 0] = gains.node[b]
    counts[0, 0, 0] = ONE
    pins = open_at_first(x, p, b, N, span, s.rows, rules)
    strangers = most_strangers(graph[b], present[b], N)
    num_open = 0
    for n in range(N):
        num_open += np.int64(x[p.masks + n] == ZERO)
    safe = pins == 0 and cap.shape[1] == 0 and num_open > (K - 1) * (strangers + 1)
    num, old = np.int64(1), np.int64(0)
    for t in range(K):
        masks = p.masks + old * s.rows * span
        if not point(s, w, at, x, p, num, N, span, wide):
            return BEYOND_RANGE
        for r in range(num):
            for n in range(affinity.shape[1]):
                x[p.scores + r * span + n] += affinity[b, n]
            add_gains(x, p.scores + r * span, N, gain[old, r], counts[old, r], gains, b)
            mask = masks + r * span
            if not safe:
                mask = p.allowed + r * span
                asking = chosen[old, r]
                look_ahead(b, t, strangers, x, masks + r * span, N, rules, asking, asked, answer, x, mask)
            beams.tops[r] = log_probabilities(x, p.scores + r * span, span, x, mask, beams.so_far[r])
        final = t + 1 == K
        wanted = min(beam, len(cards)) if final else beam
        num = choose(x, p.scores, span, num, t, wanted, final, old, beams)
        if num == 0:
            return NO_CARD
        new = 1 - old
        for r in range(num):
            row, last = parent[r], place[r]
            for k in range(t):
                path[new, r, k] = path[old, row, k]
            path[new, r, t] = last
            for n in range(N):
                chosen[new, r, n] = chosen[old, row, n]
            chosen[new, r, last] = True
            if not final:
                follow(gain[old, row], counts[old, row], gains, b, last, gain[new, r], counts[new, r])
                mask = p.masks + (new * s.rows + r) * span
                extend(x, masks + row * span, mask, N, b, rules, last, chosen[new, r])
        if not final:
            advance(s, w, lstm, x, p, num, parent, place, old)
        old = new
    for r in range(num):
        for k in range(K):
            cards[r, k] = path[old, r, k]
    return DONE


@compiled
def decode_each(
    counter, s, p, x, w, tables, features, ids, affinity, gains, rules, asked, answer, cards, status
):
    """The likeliest cards of requests into `cards` [B, W, K], what became of each request into `status`.

    Threads that share a counter share the requests: each takes the next one until there is none.
    """
    B, N = rules[1].shape
    span = (N + 15) // 16 * 16
    b = take_next(counter, 0)
    while b < B:
        at = encode(s, w, x, p, tables, features, ids, rules[1], b, span)
        status[b] = UNKNOWN_ID
        if at >= 0:
            for wide in (False, True):
                status[b] = BEYOND_RANGE
                if make_keys(s, w, at, x, p, N, span, wide):
                    behind = at + 2 * s.width * s.width
                    status[b] = write_cards(
                        s, w, behind, x, p, b, N, span, affinity, gains, rules, asked, answer, wide, cards[b]
                    )
                if status[b] != BEYOND_RANGE:
                    break
        b = take_next(counter, 0)
    return 0


@compiled
def scores_each(s, p, x, w, tables, features, ids, affinity, gains, present, begun, scores):
    """The scores of every candidate as the choice after the positions `begun` [B, t] into `scores` [B, N].

    Returns the first request with an unknown id, or -1.
    """
    B, N = present.shape
    span = (N + 15) // 16 * 16
    parent, place = np.zeros(1, np.int64), np.zeros(1, np.int64)
    gain = np.zeros((2, gains.node.shape[1]), np.float32)
    counts = np.zeros((2, 3, len(gains.worth)), np.float32)
    one = np.int64(1)
    for b in range(B):
        at = encode(s, w, x, p, tables, features, ids, present, b, span)
        if at < 0:
            return b
        make_keys(s, w, at, x, p, N, span, True)
        at += 2 * s.width * s.width
        lstm = start(s, w, at + 3 * s.width * s.width + 2 * s.width, x, p)
        gain[0] = gains.node[b]
        counts[:] = ZERO
        counts[0, 0] = ONE
        old = np.int64(0)
        for t in range(begun.shape[1]):
            place[0] = begun[b, t]
            follow(gain[old], counts[old], gains, b, place[0], gain[1 - old], counts[1 - old])
            advance(s, w, lstm, x, p, one, parent, place, old)
            old = 1 - old
        point(s, w, at, x, p, one, N, span, True)
        for n in range(affinity.shape[1]):
            x[p.scores + n] += affinity[b, n]
        add_gains(x, p.scores, N, gain[old], counts[old], gains, b)
        for n in range(N):
            scores[b, n] = x[p.scores + n]
    return -1
