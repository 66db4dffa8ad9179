"""What a recommender's cards would have earned, from a log that says how likely each shown card was.

Knows batches and any function that writes cards for one; no file and no model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np
from jaxtyping import Int

from exactk.evaluation import offpolicy
from exactk.problem.batch import Batch


def logged_estimates(
    recommend: Callable[[Batch], Int[np.ndarray, "B K"]], batches: Iterable[Batch], seed: int = 0
) -> Mapping[str, offpolicy.Estimate]:
    """Off-policy estimates by name; none where the log holds no propensities at all."""
    target, logged, clicked, propensity, user = [], [], [], [], []
    for batch in batches:
        if batch.propensity is None or batch.card is None or batch.clicked is None:
            return {}
        target.append(recommend(batch))
        logged.append(batch.card)
        clicked.append(batch.clicked)
        propensity.append(batch.propensity.astype(np.float64))
        user.append(batch.user)
    if not propensity or np.isnan(np.concatenate(propensity)).all():
        return {}
    return offpolicy.estimate_value(
        _stacked(target),
        _stacked(logged),
        np.concatenate(clicked),
        np.concatenate(propensity),
        np.random.default_rng(seed),
        groups=np.concatenate(user),
    )


def _stacked(cards: list[Int[np.ndarray, "_ _"]]) -> Int[np.ndarray, "R K"]:
    """Cards of all batches, padded (-1) to the longest."""
    longest = max(part.shape[1] for part in cards)
    return np.concatenate(
        [np.pad(part, ((0, 0), (0, longest - part.shape[1])), constant_values=-1) for part in cards]
    )
