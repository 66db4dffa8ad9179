"""Batch: B requests as numpy arrays, what was logged beside them; what every recommender reads.

Knows no files and no network. A batch of one equals the batch; permuting candidates permutes nothing but positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from exactk.problem.brief import Brief
from exactk.problem.graph import Requests

# Where candidates run along an array.
CANDIDATE_AXES = {
    "graph": (1, 2),
    "group": (2,),
    "pair_features": (1, 2),
    **dict.fromkeys(("item", "present", "pinned", "item_features", "candidate_numbers"), (1,)),
    **dict.fromkeys(("candidate_categories", "item_categories", "item_vectors", "score"), (1,)),
    **dict.fromkeys(("position", "clicks", "reward", "tie_key"), (1,)),
}
BRIEF_AXES = {
    "clash": (2, 3),
    "follows": (2, 3),
    **dict.fromkeys(("coefficient", "value", "eligible", "slot_score"), (2,)),
}


@dataclass(frozen=True)
class Batch:
    """Requests padded to one N (`present` says which are real), optionally with the logged card and its outcome.

    `user` and `item` are vocabulary indices (0 = out of vocabulary), `card` and `clicked_position` are positions
    into the candidates (-1 = none, and the padding of a card shorter than the longest in the batch).

    Numbers come as they were sent, NaN where missing, which the model's own input layer settles; codes of categories
    are the vocabulary's, 0 = missing or unknown. `position` is where an item was shown (a column of the log),
    `clicks` how often each candidate was clicked, on the card or elsewhere in the list. Fields are None where the
    vocabulary has no such columns. `tie_key` is a number made of each candidate's external id (`problem/ties.py`):
    what settles ties, also between items that the vocabulary does not know.
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
    tie_key: Int[np.ndarray, "B N"] | None = None
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
            tie_key=self.tie_key,
        )

    def in_order(self, order: Int[np.ndarray, "B N"]) -> Batch:
        """The same requests, candidates in another order: position p holds what was at `order[:, p]`."""
        moved: dict[str, Any] = {
            name: _moved(getattr(self, name), axes, order) for name, axes in CANDIDATE_AXES.items()
        }
        for name in ("card", "clicked_position"):
            positions = getattr(self, name)
            moved[name] = None if positions is None else moved_positions(positions, np.argsort(order, axis=1))
        brief = self.brief
        if brief is not None:
            named: dict[str, Any] = {
                n: _moved(getattr(brief, n), axes, order) for n, axes in BRIEF_AXES.items()
            }
            brief = brief._replace(**named)
        return replace(self, **moved, brief=brief)


def in_tie_order(batch: Batch) -> tuple[Batch, Int[np.ndarray, "B N"]]:
    """The batch with its candidates in the one order that does not depend on how they came, and where each stood."""
    if batch.tie_key is None:
        order = np.broadcast_to(np.arange(batch.item.shape[1]), batch.item.shape)
        return batch, order
    order = np.lexsort((-batch.tie_key, ~batch.present), axis=1)
    if (order[:, 1:] > order[:, :-1]).all():
        return batch, order
    return batch.in_order(order), order


def moved_positions(
    positions: Int[np.ndarray, "B *K"], to: Int[np.ndarray, "B N"]
) -> Int[np.ndarray, "B *K"]:
    """Where positions end up, each p at `to[:, p]`; -1 stays."""
    flat = positions.reshape(len(positions), -1)
    found = np.take_along_axis(to, np.maximum(flat, 0), axis=1)
    return np.asarray(np.where(flat >= 0, found, -1).astype(positions.dtype).reshape(positions.shape))


def _moved(array: np.ndarray | None, axes: Sequence[int], order: Int[np.ndarray, "B N"]) -> np.ndarray | None:
    """An array with its candidates, along these axes, in another order."""
    if array is None or not array.size:
        return array
    row = np.arange(len(order))[:, None]
    if tuple(axes) == (1,):
        return np.asarray(array[row, order])
    if tuple(axes) == (1, 2):
        return np.asarray(array[row[:, :, None], order[:, :, None], order[:, None]])
    for axis in axes:
        along = order.reshape(len(order), *(-1 if a == axis else 1 for a in range(1, array.ndim)))
        array = np.take_along_axis(array, along, axis=axis)
    return array
