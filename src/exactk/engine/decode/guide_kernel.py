"""A guide's gains along a beam, compiled: what each candidate would add to the card begun, by nodes, pairs and triples.

Knows neither network nor search; gains come scaled.
"""

from __future__ import annotations

from typing import NamedTuple, no_type_check

import numpy as np
from jaxtyping import Float32

from exactk.engine.lanes import inner, load, multiply, sigmoid, store, subtract
from exactk.problem.compiling import compiled

ONE = np.float32(1)


class Gains(NamedTuple):
    """Values of nodes and pairs, what each candidate has that three may share (C is 0 without that), its worth."""

    node: Float32[np.ndarray, "B N"]
    pair: Float32[np.ndarray, "B N N"]
    has: Float32[np.ndarray, "B C N"]
    worth: Float32[np.ndarray, "C"]


@compiled
@no_type_check
def shares_each(level, sharpness, tables, features, item, has):
    """sigmoid(a (x_i - b)) of every candidate's vector, member after member, into `has`; ids must be in the tables."""
    members, step = level.shape
    size = has.shape[1] // members
    row, of_level, of_sharpness = np.zeros(step, np.float32), level.reshape(-1), sharpness.reshape(-1)
    for b in range(len(item)):
        for m in range(members):
            table = tables[m]
            E = table.shape[1]
            for n in range(item.shape[1]):
                for i in range(E):
                    row[i] = table[item[b, n], i]
                for i in range(size - E):
                    row[E + i] = features[b, n, i]
                for i in range(0, step, 16):
                    apart = subtract(load(row, i), load(of_level, m * step + i))
                    store(row, i, sigmoid(multiply(load(of_sharpness, m * step + i), apart)))
                for i in range(size):
                    has[b, m * size + i, n] = row[i]


@inner
@no_type_check
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
@no_type_check
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
