"""What is added to a policy's scores: affinity, the same at every step, and a guide's gains along the card begun.

Knows neither network nor beam. `models.policy` says what is learned; gains come times their scale.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float32

from exactk.engine.arithmetic import read_row
from exactk.engine.lanes import inner, load, multiply, sigmoid, store, subtract
from exactk.engine.network import Weights, linear, padded_row, part_of, plain, rounded
from exactk.engine.pair_values import CompiledPairValues, PairValues
from exactk.engine.shapes import SHARING_PACE
from exactk.problem.batch import Batch
from exactk.problem.compiling import compiled
from exactk.settings.config import InputSizes, PairValueConfig, PolicyConfig


class CompiledAffinity:
    """<p_u, q_i> + b_i + m_ui of every candidate."""

    def __init__(self, weights: Weights, config: PolicyConfig, num_items: int) -> None:
        self._weights, self._config, self._num_items = weights, config, num_items

    def __call__(self, batch: Batch) -> Float32[np.ndarray, "B N"]:
        """Ids beyond the tables get some row's numbers: the kernel refuses their request."""
        config, weights = self._config, self._weights
        q = config.affinity_pace * self._summed("item", batch.item, batch.item_features)  # B N r+1
        scores = q[..., -1]
        if config.affinity:
            p = config.affinity_pace * self._summed("user", batch.user, batch.user_features)  # B r
            scores = (q[..., :-1] @ p[..., None])[..., 0] + scores
        if "pairs" in weights:
            place = (batch.user[:, None] * self._num_items + batch.item) % len(weights["pairs"])
            remembered = -config.memory * weights["pairs"][place]
            scores = scores - np.where(remembered > 0, remembered, np.expm1(np.minimum(remembered, 0)))
        return plain(scores.astype(np.float32, copy=False))

    def _summed(self, kind: str, ids: np.ndarray, features: np.ndarray | None) -> np.ndarray:
        """The row of the table and the linear part of the features, whichever there are."""
        table = self._weights.get(f"{kind}s.weight")
        by_id = None if table is None else table[ids.clip(0, len(table) - 1)]
        if f"from_{kind}.weight" not in self._weights or features is None:
            assert by_id is not None
            return np.asarray(by_id)
        by_features = linear(self._weights, f"from_{kind}", features)
        return np.asarray(by_features if by_id is None else by_id + by_features)


ONE = np.float32(1)


class Gains(NamedTuple):
    """Values of nodes and pairs, what each candidate has that three may share (C is 0 without that), its worth."""

    node: Float32[np.ndarray, "B N"]
    pair: Float32[np.ndarray, "B N N"]
    has: Float32[np.ndarray, "B C N"]
    worth: Float32[np.ndarray, "C"]


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


class CompiledGuide:
    """The gains of a policy's guide, all of them times its scale, for the decoder's kernel."""

    def __init__(self, weights: Weights, config: PairValueConfig, sizes: InputSizes) -> None:
        value = part_of(weights, "value")
        self.scale = np.float32(weights["scale"])
        self.values = CompiledPairValues(value, config, sizes)
        members = [part_of(value, f"members.{m}.sharing") for m in range(config.members)]
        sharing = [member for member in members if member]
        size = rounded(self.values.sizes.item_size)
        self._sharing = tuple(
            plain(np.stack([padded_row(part[name], size) for part in sharing]))
            if sharing
            else np.zeros((0, 0), np.float32)
            for name in ("level", "sharpness")
        )
        worth = [SHARING_PACE * part["weight"] / len(members) for part in sharing]
        self._worth = plain(np.concatenate([np.zeros(0, np.float32), *worth])) * self.scale

    def gains(self, batch: Batch, values: PairValues | None = None) -> Gains:
        """Of every request; `values` spare computing them again."""
        B, N = batch.item.shape
        values = self.values(batch) if values is None else values
        has = np.empty((B, len(self._worth), N), np.float32)
        if len(self._worth):
            vectors = self.values.vectors
            tables = tuple(each.items for each in vectors)
            shares_each(*self._sharing, tables, vectors[0].features(batch).item, plain(batch.item), has)
        node, pair = (self.scale * part.astype(np.float32) for part in (values.node, values.pair))
        return Gains(node, pair, has, self._worth)


def no_gains(batch: Batch) -> Gains:
    """Empty arrays: nothing is added to the scores."""
    B, N = batch.item.shape
    return Gains(*(np.zeros(shape, np.float32) for shape in ((B, 0), (B, 0, 0), (B, 0, N), (0,))))
