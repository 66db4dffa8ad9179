"""Probes: counts of what history showed whom, and how often picking by such counts would find the click.

Knows rows and positions, no ids and no verdicts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Int64

from exactk.data.assemble import padded
from exactk.data.dataset import Dataset

_BLOCK = 1 << 15


@dataclass(frozen=True)
class HistoryCounts:
    """How often history showed each item, saw it clicked, and showed it to each of the users of interest."""

    shown: Int64[np.ndarray, "I"]
    clicked: Int64[np.ndarray, "I"]
    pairs: Int64[np.ndarray, "P"]  # user row * I + item row, ascending
    times: Int64[np.ndarray, "P"]

    @classmethod
    def of(cls, requests: Dataset, clicks: Dataset, users: Int64[np.ndarray, "U"]) -> HistoryCounts:
        """Count candidates of `requests` and clicked items of `clicks`; pairs only for `users`, to bound memory."""
        index = requests.folder.index
        num_items = len(index.item_features)
        shown = np.zeros(num_items, np.int64)
        kept = np.zeros(int(index.user.max(initial=0)) + 1, bool)
        kept[users] = True
        pairs, times = np.empty(0, np.int64), np.empty(0, np.int64)
        for first in range(0, len(requests), _BLOCK):
            rows = requests.rows[first : first + _BLOCK]
            widest = int((index.candidate_start[rows + 1] - index.candidate_start[rows]).max())
            item = padded(rows, index.candidate_start, index.candidates, max(1, widest))
            present = item >= 0
            shown += np.bincount(item[present], minlength=num_items)
            user = np.broadcast_to(index.user[rows].astype(np.int64)[:, None], item.shape)
            chosen = present & kept[user]
            pairs, times = _added(pairs, times, user[chosen] * num_items + item[chosen])
        at = clicks.take(index.clicked_position[clicks.rows] >= 0).rows
        clicked = index.candidates[index.candidate_start[at] + index.clicked_position[at]]
        return cls(shown, np.bincount(clicked, minlength=num_items), pairs, times)

    def positive_rate(self, item: Int64[np.ndarray, "B N"]) -> Float64[np.ndarray, "B N"]:
        """Clicks per showing of each item, one showing at the overall rate added so that rare items stay near it."""
        overall = self.clicked.sum() / max(1, self.shown.sum())
        rate = (self.clicked + overall) / (self.shown + 1)
        return np.asarray(rate[np.maximum(item, 0)])

    def times_seen(
        self, user: Int64[np.ndarray, "B"], item: Int64[np.ndarray, "B N"]
    ) -> Int64[np.ndarray, "B N"]:
        """How many requests of history showed the item to the user."""
        if not len(self.pairs):
            return np.zeros(item.shape, np.int64)
        wanted = user[:, None] * len(self.shown) + np.maximum(item, 0)
        place = np.minimum(np.searchsorted(self.pairs, wanted), len(self.pairs) - 1)
        return np.where(self.pairs[place] == wanted, self.times[place], 0)


def _added(
    pairs: Int64[np.ndarray, "P"], times: Int64[np.ndarray, "P"], more: Int64[np.ndarray, "M"]
) -> tuple[Int64[np.ndarray, "Q"], Int64[np.ndarray, "Q"]]:
    """Counts with more pairs counted in."""
    values, place = np.unique(np.concatenate([pairs, more]), return_inverse=True)
    weight = np.concatenate([times, np.ones(len(more), np.int64)])
    return values, np.bincount(place, weights=weight, minlength=len(values)).astype(np.int64)


def expected_hits(
    score: Float64[np.ndarray, "B N"],
    present: Bool[np.ndarray, "B N"],
    wanted: Int64[np.ndarray, "B W"],
    card_size: Int64[np.ndarray, "B"],
) -> Float64[np.ndarray, "B W"]:
    """Chance that each wanted position (-1: none) is among the `card_size` of highest score, ties drawn at random.

    With 2 places left for 5 candidates of one score, each of them is in with 2/5.
    """
    score = np.where(present, score, -np.inf)
    own = np.take_along_axis(score, np.maximum(wanted, 0), axis=1)  # B W
    better = (score[:, None, :] > own[:, :, None]).sum(axis=2)
    tied = (score[:, None, :] == own[:, :, None]).sum(axis=2)
    chance = np.clip((card_size[:, None] - better) / tied, 0.0, 1.0)
    return np.asarray(np.where(wanted >= 0, chance, 0.0))
