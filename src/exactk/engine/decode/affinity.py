"""Affinity on the CPU: what a policy adds to the scores of every step for each user and item alone.

Knows no step; `models.affinity` is what is learned.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float32

from exactk.engine.network import linear
from exactk.engine.packing import Weights, plain
from exactk.problem.batch import Batch
from exactk.settings.config import PolicyConfig


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
