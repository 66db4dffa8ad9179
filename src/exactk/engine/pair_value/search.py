"""Pair value and exact search on the CPU with torch left out: requests in, proven best cards out.

Knows no network: `pair_values` computes what is searched.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Int

from exactk.engine.pair_value.values import CompiledPairValues
from exactk.errors import InfeasibleError
from exactk.models.pairvalue import PairValue
from exactk.problem.batch import Batch
from exactk.problem.exact import cliques


class CompiledPairSearch(CompiledPairValues):
    """The cards of `PairValueSearch`, its values computed by one compiled call. After training on, call `refresh`."""

    def __init__(self, model: PairValue, time_limit: float | None = None) -> None:
        super().__init__(model)
        self.time_limit = time_limit

    def recommend(self, batch: Batch) -> Int[np.ndarray, "B K"]:
        """The best card of each request under the learned value, ascending positions, -1 beyond a card's size."""
        node, pair = self.values(batch)
        found = cliques.best(batch.requests(), node, pair, time_limit=self.time_limit)
        if not found.found.all():
            b = int(np.flatnonzero(~found.found)[0])
            raise InfeasibleError(
                f"request {b} of the batch has no valid card of {int(batch.card_size[b])} items"
                + ("" if found.optimal[b] else f" found within {self.time_limit} s")
            )
        return found.card
