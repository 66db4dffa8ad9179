"""Batch: B requests as numpy arrays, what was logged beside them; what every recommender reads.

Knows no files and no network. A batch of one equals the batch; permuting candidates permutes nothing but positions.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from exactk.problem.brief import Brief
from exactk.problem.graph import Requests


@dataclass(frozen=True)
class Batch:
    """Requests padded to one N (`present` says which are real), optionally with the logged card and its outcome.

    `user` and `item` are vocabulary indices (0 = out of vocabulary), `card` and `clicked_position` are positions
    into the candidates (-1 = none, and the padding of a card shorter than the longest in the batch).

    Numbers come as they were sent, NaN where missing, which the model's own input layer settles; codes of categories
    are the vocabulary's, 0 = missing or unknown. `position` is where an item was shown (a column of the log),
    `clicks` how often each candidate was clicked, on the card or elsewhere in the list. Fields are None where the
    vocabulary has no such columns.
    """

    user: Int[np.ndarray, "B"]
    item: Int[np.ndarray, "B N"]
    present: Bool[np.ndarray, "B N"]
    graph: Bool[np.ndarray, "B N N"]
    card_size: Int[np.ndarray, "B"]
    pinned: Bool[np.ndarray, "B N"]
    group: Int[np.ndarray, "B C N"]
    cap: Int[np.ndarray, "B C"]
    user_features: Float[np.ndarray, "B Fu"] | None = None
    item_features: Float[np.ndarray, "B N Fi"] | None = None
    card: Int[np.ndarray, "B K"] | None = None
    clicked: Bool[np.ndarray, "B"] | None = None
    clicked_position: Int[np.ndarray, "B"] | None = None
    propensity: Float[np.ndarray, "B"] | None = None
    candidate_numbers: Float[np.ndarray, "B N Fc"] | None = None
    candidate_categories: Int[np.ndarray, "B N Cc"] | None = None
    context_numbers: Float[np.ndarray, "B Fx"] | None = None
    context_categories: Int[np.ndarray, "B Cx"] | None = None
    item_categories: Int[np.ndarray, "B N Ci"] | None = None
    user_categories: Int[np.ndarray, "B Cu"] | None = None
    item_vectors: Float[np.ndarray, "B N V"] | None = None
    pair_features: Float[np.ndarray, "B N N P"] | None = None
    score: Float[np.ndarray, "B N"] | None = None
    position: Float[np.ndarray, "B N"] | None = None
    clicks: Float[np.ndarray, "B N"] | None = None
    reward: Float[np.ndarray, "B N"] | None = None
    brief: Brief | None = None

    def __len__(self) -> int:
        return len(self.user)

    def rows(self, index: Int[np.ndarray, "R"] | Bool[np.ndarray, "B"] | slice) -> Batch:
        """Some of the requests, in the order asked for."""
        held = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "brief"}
        some: dict[str, Any] = {name: array[index] for name, array in held.items() if array is not None}
        return replace(self, **some, brief=None if self.brief is None else self.brief.rows(index))

    def requests(self) -> Requests:
        """What decides validity, as the exact engine reads it."""
        return Requests(
            graph=self.graph,
            present=self.present,
            card_size=self.card_size.astype(np.int32, copy=False),
            pinned=self.pinned,
            group=self.group.astype(np.int32, copy=False),
            cap=self.cap.astype(np.int32, copy=False),
            brief=self.brief,
        )
