"""GAttN's encoder for training, compiled: forward with everything kept, and back; one request at a time.

Knows neither modules nor batches. Weights lie as torch keeps them ([out, in], one after the other); `turned` holds the
same with every matrix transposed, in the same places.
"""

from __future__ import annotations

from typing import NamedTuple, no_type_check

import numpy as np

from exactk.engine.arithmetic import product, rectify, softmax, transposed
from exactk.engine.gradients import (
    back_through_norm,
    back_through_softmax,
    clear,
    masked_by,
    normalised,
    outer_onto,
    product_onto,
    raised_double,
    rows_onto,
)
from exactk.engine.lanes import inner

NOTHING, ZERO, ONE = np.float32(-np.inf), np.float32(0), np.float32(1)


class TrainSizes(NamedTuple):
    """Of the network; all of them multiples of sixteen but the counts."""

    width: int
    heads: int
    feed_forward_size: int
    layers: int
    decoder_layers: int


class Spots(NamedTuple):
    """Where a matrix or vector begins among the weights; a layer's are counted from its own beginning."""

    embed: int
    layers: int
    layer_size: int
    join: int  # within a layer, as the next six
    first_norm: int
    widen: int
    widen_bias: int
    narrow: int
    narrow_bias: int
    second_norm: int
    keys: int
    glimpse_query: int
    glimpse_vector: int
    pointer_query: int
    pointer_vector: int
    cells: int
    cell_size: int
    end: int


class Tape(NamedTuple):
    """Where everything kept of one encoded request lies, from its first number on."""

    absent: int
    inputs: int
    nodes: int  # before the first layer, then after each
    layers: int
    layer_size: int
    attention: int  # within a layer, as the next six; the projection is first
    mixed: int
    first_hat: int
    first_scale: int
    normed: int
    hidden: int
    second_hat: int
    second_scale: int
    glimpse_keys: int
    pointer_keys: int
    end: int


@inner
@no_type_check
def encode_kept(s, at, p, w, turned, tape, first, x, N, span, n4):
    """One request's inputs, at tape[first + p.inputs], to its nodes and keys; scratch x holds zeros first."""
    D, F = s.width, s.feed_forward_size
    head = D // s.heads
    scale = ONE / np.sqrt(np.float32(head))
    zeros, keys_t = 0, max(span, 4 * D, F)
    joined = keys_t + D * span
    nodes, step = first + p.nodes, n4 * D
    clear(x, keys_t, D * span)
    product(tape, first + p.inputs, D, N, D, turned, at.embed, D, D, w, at.embed + D * D, tape, nodes, D)
    for layer in range(s.layers):
        own, kept = at.layers + layer * at.layer_size, first + p.layers + layer * p.layer_size
        product(tape, nodes, D, N, D, turned, own, D, D, x, zeros, tape, kept, D)
        transposed(tape, kept, D, N, D, x, keys_t, span)
        for h in range(s.heads):
            attention = kept + p.attention + h * n4 * span
            key = keys_t + h * head * span
            product(tape, kept + h * head, D, N, head, x, key, span, span, x, zeros, tape, attention, span)
            for n in range(N):
                softmax(tape, attention + n * span, span, scale, tape, first + p.absent)
            product(
                tape, attention, span, N, N, tape, kept + h * head, D, head, x, zeros,
                tape, kept + p.mixed + h * head, D,
            )  # fmt: skip
        product(tape, kept + p.mixed, D, N, D, turned, own + at.join, D, D, x, zeros, x, joined, D)
        normalised(
            tape, nodes, x, joined, N, D, w, own + at.first_norm,
            tape, kept + p.first_hat, kept + p.first_scale, tape, kept + p.normed,
        )  # fmt: skip
        product(
            tape, kept + p.normed, D, N, D, turned, own + at.widen, F, F, w, own + at.widen_bias,
            tape, kept + p.hidden, F,
        )  # fmt: skip
        rectify(tape, kept + p.hidden, N * F)
        product(
            tape, kept + p.hidden, F, N, F, turned, own + at.narrow, D, D, w, own + at.narrow_bias, x, joined, D,
        )  # fmt: skip
        normalised(
            tape, kept + p.normed, x, joined, N, D, w, own + at.second_norm,
            tape, kept + p.second_hat, kept + p.second_scale, tape, nodes + step,
        )  # fmt: skip
        nodes += step
    transposed(tape, nodes, D, N, D, x, keys_t, span)
    for which in range(2):
        to = first + (p.glimpse_keys if which == 0 else p.pointer_keys)
        product(w, at.keys + which * D * D, D, D, D, x, keys_t, span, span, x, zeros, tape, to, span)
        raised_double(tape, to, D * span)


@inner
@no_type_check
def back_through_attention(s, p, tape, kept, x, down, mixed, projected, N, span, n4):
    """Gradients [N, D] at `mixed` of the scratch to those of the projection, at `projected`, which begins at zero."""
    D = s.width
    head = D // s.heads
    scale = ONE / np.sqrt(np.float32(head))
    keys_t = down
    scores = keys_t + D * span
    clear(x, keys_t, D * span)
    transposed(tape, kept, D, N, D, x, keys_t, span)
    for h in range(s.heads):
        attention, own = kept + p.attention + h * n4 * span, h * head
        product(x, mixed + own, D, N, head, x, keys_t + own * span, span, span, x, 0, x, scores, span)
        outer_onto(tape, attention, span, N, x, mixed + own, D, head, N, x, projected + own, D)
        for n in range(N):
            back_through_softmax(x, scores + n * span, tape, attention + n * span, span, scale)
        product_onto(x, scores, span, N, N, tape, kept + own, D, head, x, projected + own, D)
        outer_onto(x, scores, span, N, tape, kept + own, D, head, N, x, projected + own, D)


@inner
@no_type_check
def encode_back(s, at, p, w, tape, first, x, nodes, down, g, N, span, n4):
    """Gradients [N, D] at the encoder's nodes, in scratch x at `nodes`, to those of weights (onto g) and inputs.

    The latter are returned as a place in x. `down` is where the scratch is free.
    """
    D, F = s.width, s.feed_forward_size
    other, hidden = down, down + n4 * D
    mixed = hidden + n4 * max(F, D)
    projected = mixed + n4 * D
    free = projected + n4 * D
    for back in range(s.layers):
        layer = s.layers - 1 - back
        own, kept = at.layers + layer * at.layer_size, first + p.layers + layer * p.layer_size
        below = first + p.nodes + layer * n4 * D
        back_through_norm(
            x, nodes, N, D, w, own + at.second_norm, tape, kept + p.second_hat, kept + p.second_scale, g
        )
        outer_onto(x, nodes, D, D, tape, kept + p.hidden, F, F, N, g, own + at.narrow, F)
        rows_onto(x, nodes, D, N, D, g, own + at.narrow_bias)
        product(x, nodes, D, N, D, w, own + at.narrow, F, F, x, 0, x, hidden, F)
        masked_by(x, hidden, tape, kept + p.hidden, N * F)
        outer_onto(x, hidden, F, F, tape, kept + p.normed, D, D, N, g, own + at.widen, D)
        rows_onto(x, hidden, F, N, F, g, own + at.widen_bias)
        product_onto(x, hidden, F, N, F, w, own + at.widen, D, D, x, nodes, D)
        back_through_norm(
            x, nodes, N, D, w, own + at.first_norm, tape, kept + p.first_hat, kept + p.first_scale, g
        )
        outer_onto(x, nodes, D, D, tape, kept + p.mixed, D, D, N, g, own + at.join, D)
        product(x, nodes, D, N, D, w, own + at.join, D, D, x, 0, x, mixed, D)
        clear(x, projected, n4 * D)
        back_through_attention(s, p, tape, kept, x, free, mixed, projected, N, span, n4)
        outer_onto(x, projected, D, D, tape, below, D, D, N, g, own, D)
        product_onto(x, projected, D, N, D, w, own, D, D, x, nodes, D)
    outer_onto(x, nodes, D, D, tape, first + p.inputs, D, D, N, g, at.embed, D)
    rows_onto(x, nodes, D, N, D, g, at.embed + D * D)
    product(x, nodes, D, N, D, w, at.embed, D, D, x, 0, x, other, D)
    return other
