"""One request from ids and features to encoded nodes, compiled: the input layer and the encoder of GAttN.

Knows neither modules nor batches; `decoder.py` packs the weights in the order read here.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from exactk.engine.arithmetic import normed, product, read_row, rectify, softmax, transposed
from exactk.engine.lanes import inner

ONE = np.float32(1)


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


class Places(NamedTuple):
    """Where in the scratch array everything lies, for one number of candidates."""

    zeros: int
    inputs: int
    user_row: int
    nodes: int
    hidden: int
    joined: int
    projected: int
    mixed: int
    keys_t: int
    attention: int
    nodes_t: int
    glimpse_keys: int
    pointer_keys: int
    absent: int
    decoded: int
    query: int
    scores: int
    masks: int
    allowed: int
    gates: int
    pair: int
    states: int
    end: int


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
def encode(s, w, at, x, p, N, span):
    """Linear map to the width (eq. 5) and L layers (eq. 6 to 8), p.hidden to p.nodes; returns the place behind them."""
    D, F = s.width, s.feed_forward_size
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
