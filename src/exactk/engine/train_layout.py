"""Where weights, tapes and scratch of the compiled training step lie: one array each, places counted once per shape.

Knows the sizes of a network and of a batch, no arithmetic.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from torch import Tensor

from exactk.engine.packing import rounded
from exactk.engine.train_decoder import Rows
from exactk.engine.train_encoder import Spots, Tape, TrainSizes
from exactk.engine.train_inputs import InputSpots
from exactk.models.policy import Policy


def weights_of(policy: Policy) -> list[Tensor]:
    """The parameters the kernels know, in the order of `Spots`."""
    encoder, pointer = policy.encoder, policy.pointer
    parts: list[Tensor] = [encoder.embed.weight, encoder.embed.bias]
    layers: Any = encoder.layers
    for layer in layers:
        parts += [layer.attention.project.weight, layer.attention.join.weight]
        parts += [layer.attention_norm.weight, layer.attention_norm.bias]
        parts += [layer.widen.weight, layer.widen.bias, layer.narrow.weight, layer.narrow.bias]
        parts += [layer.feed_forward_norm.weight, layer.feed_forward_norm.bias]
    parts += [pointer.keys.weight, pointer.glimpse_query.weight, pointer.glimpse_vector.weight]
    parts += [pointer.pointer_query.weight, pointer.pointer_vector.weight]
    for cell in pointer.recurrent.all_weights:
        parts += cell
    return parts


@lru_cache(maxsize=16)
def spots_of(s: TrainSizes) -> Spots:
    """Where each weight begins in the joined ones."""
    D, F = s.width, s.feed_forward_size
    join, first_norm = D * D, 2 * D * D
    widen = first_norm + 2 * D
    widen_bias = widen + F * D
    narrow = widen_bias + F
    narrow_bias = narrow + D * F
    second_norm = narrow_bias + D
    layer_size = second_norm + 2 * D
    layers = D * D + D
    keys = layers + s.layers * layer_size
    glimpse_query = keys + 2 * D * D
    glimpse_vector = glimpse_query + D * D
    pointer_query = glimpse_vector + D
    pointer_vector = pointer_query + 2 * D * D
    cells = pointer_vector + D
    cell_size = 8 * D * D + 8 * D
    return Spots(
        0, layers, layer_size, join, first_norm, widen, widen_bias, narrow, narrow_bias, second_norm,
        keys, glimpse_query, glimpse_vector, pointer_query, pointer_vector, cells, cell_size,
        cells + s.decoder_layers * cell_size,
    )  # fmt: skip


@lru_cache(maxsize=16)
def matrices_of(s: TrainSizes, into: InputSpots | None = None) -> np.ndarray:
    """Begin, rows and columns of each matrix the forward pass multiplies by; the input layer's where it is known."""
    at, D, F = spots_of(s), s.width, s.feed_forward_size
    found = [(at.embed, D, D), (at.glimpse_query, D, D), (at.pointer_query, D, 2 * D)]
    for layer in range(s.layers):
        own = at.layers + layer * at.layer_size
        found += [
            (own, D, D),
            (own + at.join, D, D),
            (own + at.widen, F, D),
            (own + at.narrow, D, F),
        ]
    for layer in range(s.decoder_layers):
        own = at.cells + layer * at.cell_size
        found += [(own, 4 * D, D), (own + 4 * D * D, 4 * D, D)]
    if into is not None and into.size:
        found += [(into.item, D, into.size), (into.user, D, into.size)]
    return np.array(found, np.int64)


class _Room:
    """Places in an array, one after the other, each beginning on a cache line."""

    def __init__(self) -> None:
        self.end = 0

    def take(self, size: int) -> int:
        """The place of `size` numbers more."""
        place, self.end = self.end, self.end + rounded(size)
        return place


@lru_cache(maxsize=64)
def tape_of(s: TrainSizes, N: int) -> Tape:
    """What is kept of one encoded request of N candidates; products take four rows at a time."""
    D, F, n4, span = s.width, s.feed_forward_size, rounded(N, 4), rounded(N)
    own, layer = _Room(), _Room()
    layer.take(n4 * D)  # the projection
    within = [layer.take(n) for n in (s.heads * n4 * span, n4 * D, n4 * D, n4, n4 * D, n4 * F, n4 * D, n4)]
    absent, inputs, nodes = own.take(span), own.take(n4 * D), own.take((s.layers + 1) * n4 * D)
    layers = own.take(s.layers * layer.end)
    glimpse_keys, pointer_keys = own.take(D * span), own.take(D * span)
    return Tape._make(
        (absent, inputs, nodes, layers, layer.end, *within, glimpse_keys, pointer_keys, own.end)
    )


def encode_room(s: TrainSizes, N: int) -> int:
    """Scratch of `encode_kept`."""
    return max(rounded(N), 4 * s.width, s.feed_forward_size) + s.width * rounded(N) + rounded(N, 4) * s.width


@lru_cache(maxsize=64)
def rows_of(s: TrainSizes, N: int, P: int, K: int) -> Rows:
    """What is kept of one request's decoding along P paths of K choices, and scores behind it."""
    D, span, R = s.width, rounded(N), rounded(1 + (K - 1) * P + 4, 4)
    room = _Room()
    layers = room.take(s.decoder_layers * 10 * R * D)
    both, glimpse, attention, query = (room.take(R * n) for n in (2 * D, D, span, D))
    room.take(R * span)
    return Rows(R, layers, 10 * R * D, both, glimpse, attention, query, room.end)


@lru_cache(maxsize=64)
def draw_places(s: TrainSizes, N: int, S: int) -> tuple[tuple[int, ...], int]:
    """Scratch of `draw_each`: both, glimpse, attention, query, scores, masks, pair, gates, states,
    what is added to scores; and its size."""
    D, span, rows, room = s.width, rounded(N), rounded(S, 4), _Room()
    room.take(max(span, 4 * D, s.feed_forward_size))  # zeros
    sizes = (2 * D, D, span, D, span, span, 2 * D, 4 * D, 2 * s.decoder_layers * D)
    places = [room.take(rows * n) for n in sizes]
    return (*places, room.take(span)), room.end


@lru_cache(maxsize=64)
def back_places(s: TrainSizes, N: int, P: int, K: int) -> tuple[tuple[int, ...], int]:
    """Scratch of `back_each`, in the order it names them; and its size."""
    D, F, n4, span, room = s.width, s.feed_forward_size, rounded(N, 4), rounded(N), _Room()
    R = rows_of(s, N, P, K).size
    room.take(max(span, 4 * D, F))  # zeros
    nodes, glimpse_keys, pointer_keys = room.take(n4 * D), room.take(D * span), room.take(D * span)
    both, query, glimpse, scores = (room.take(R * n) for n in (2 * D, D, D, span))
    nodes_t, states = room.take(D * span), room.take(s.decoder_layers * 6 * R * D)
    few, free = room.take(rounded(P, 4) * D), room.end
    room.take(n4 * (3 * D + max(F, D)) + D * span + n4 * span)
    return (
        nodes,
        glimpse_keys,
        pointer_keys,
        both,
        query,
        glimpse,
        scores,
        nodes_t,
        states,
        few,
        free,
    ), room.end
