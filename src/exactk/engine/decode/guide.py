"""A policy's guide for the compiled decoder: its value's numbers and what three items share, packed and scaled.

Knows neither network nor beam.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from exactk.engine.decode.guide_kernel import Gains, shares_each
from exactk.engine.packing import in_groups, plain, rounded
from exactk.engine.pair_value.values import CompiledPairValues
from exactk.models.guide import Guide
from exactk.problem.batch import Batch


class CompiledGuide:
    """The gains of a policy's guide, all of them times its scale, for the decoder's kernel."""

    @torch.no_grad()
    def __init__(self, guide: Guide) -> None:
        self.scale = float(guide.scale)
        self._values = CompiledPairValues(guide.value)
        members: Any = guide.value.members
        sharing = [member.sharing for member in members if member.sharing is not None]
        size = members[0].vectors.item_size
        self._sharing = tuple(
            plain(torch.stack([in_groups(getattr(part, name), 1, rounded(size)) for part in sharing]))
            if sharing
            else np.zeros((0, 0), np.float32)
            for name in ("level", "sharpness")
        )
        worth = [part.worth() / len(members) for part in sharing]
        self._worth = plain(torch.cat(worth)) * np.float32(self.scale) if sharing else np.zeros(0, np.float32)

    def gains(self, batch: Batch) -> Gains:
        """Of every request; a place for each feature that three items may share."""
        (B, N), values = batch.item.shape, self._values
        node, pair = values.values(batch)
        has = np.empty((B, len(self._worth), N), np.float32)
        if len(self._worth):
            shares_each(*self._sharing, values.item_tables, values.features(batch)[1], plain(batch.item), has)
        scale = np.float32(self.scale)
        return Gains(scale * node.astype(np.float32), scale * pair.astype(np.float32), has, self._worth)
