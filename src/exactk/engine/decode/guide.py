"""A policy's guide for the compiled decoder: its value's numbers and what three items share, packed and scaled.

Knows neither network nor beam.
"""

from __future__ import annotations

import numpy as np

from exactk.engine.decode.guide_kernel import Gains, shares_each
from exactk.engine.packing import Weights, in_groups, part_of, plain, rounded
from exactk.engine.pair_value.values import CompiledPairValues, PairValues
from exactk.engine.shapes import SHARING_PACE
from exactk.problem.batch import Batch
from exactk.settings.config import InputSizes, PairValueConfig


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
            plain(np.stack([in_groups(part[name], 1, size) for part in sharing]))
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
