"""Probes: how often counts of history, simple orders and what pairs have in common find what people clicked or chose.

Know batches and counts of history, no model and no verdict. Lists are judged by the clicked item, positives only by the
whole card.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import comb
from typing import Any

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64

from exactk.data.assemble import entries
from exactk.data.columns.vocabulary import Vocabulary
from exactk.data.dataset import Dataset
from exactk.data.rolling import rates_so_far
from exactk.problem.batch import Batch
from exactk.problem.exact import cliques

Rows = Int64[np.ndarray, "B"]  # of the folder's impressions
ItemRows = Int64[np.ndarray, "B N"]  # of its items; -1 where nobody is
PerCandidate = Float64[np.ndarray, "B N"]
PerRequest = Float64[np.ndarray, "B"]

COUNTED, RANKED, SOLVED = 1 << 15, 1024, 256  # requests at a time: counted, put in orders, solved exactly


def at_most(view: Dataset, limit: int, seed: int) -> Dataset:
    """The view, or so many of its rows at random."""
    if len(view) <= limit:
        return view
    return view.take(np.sort(np.random.default_rng(seed).choice(len(view), limit, replace=False)))


def candidates_of(view: Dataset, block: int) -> Iterator[tuple[Rows, ItemRows]]:
    """Rows of the folder and their candidates, a block at a time."""
    index = view.folder.index
    for first in range(0, len(view), block):
        rows = view.rows[first : first + block]
        yield rows, index.candidate_rows(rows)


def batches_of(view: Dataset, vocabulary: Vocabulary, block: int) -> Iterator[tuple[Rows, ItemRows, Batch]]:
    """The same beside the batch of each block."""
    index, done = view.folder.index, 0
    for batch in view.batches(vocabulary, block):
        rows = view.rows[done : done + len(batch)]
        done += len(batch)
        yield rows, index.candidate_rows(rows, batch.item.shape[1]), batch


def smoothed(hits: np.ndarray, times: np.ndarray) -> Float64[np.ndarray, "I"]:
    """Hits per time, one time at the overall rate added, so that what is rare stays near it."""
    return np.asarray((hits + hits.sum() / max(1.0, times.sum())) / (times + 1))


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
        for rows, item in candidates_of(requests, COUNTED):
            present = item >= 0
            shown += np.bincount(item[present], minlength=num_items)
            user = np.broadcast_to(index.user[rows].astype(np.int64)[:, None], item.shape)
            chosen = present & kept[user]
            pairs, times = _added(pairs, times, user[chosen] * num_items + item[chosen])
        at = clicks.take(index.clicked_position[clicks.rows] >= 0).rows
        clicked = index.candidates[index.candidate_start[at] + index.clicked_position[at]]
        return cls(shown, np.bincount(clicked, minlength=num_items), pairs, times)

    def positive_rate(self, item: ItemRows) -> PerCandidate:
        """Clicks per showing of each item."""
        return np.asarray(smoothed(self.clicked, self.shown)[np.maximum(item, 0)])

    def times_seen(self, user: Rows, item: ItemRows) -> Int64[np.ndarray, "B N"]:
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
    score: PerCandidate,
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


def list_probes(history: Dataset, test: Dataset, limit: int, seed: int) -> dict[str, Any] | None:
    """Of test lists with a click, the share of their clicks that each order finds; None without such lists.

    Where nothing was ever clicked, of what they earned: rewards that are not negative.
    """
    index = test.folder.index
    by_clicks = history.signal.lists > 0
    clicked = test
    if by_clicks:
        clicked = test.take(index.click_start[test.rows + 1] > index.click_start[test.rows])
    if not len(clicked) or not len(history):
        return None
    clicked = at_most(clicked, limit, seed)
    hits: dict[str, list[np.ndarray]] = {}
    places: list[np.ndarray] = []
    for batch, orders in _blocks(history, clicked, by_clicks):
        worth = _worth(batch, by_clicks)
        earned = worth.sum(axis=1) > 0
        for name, score in orders.items():
            hits.setdefault(name, []).append(_share(score, worth, batch)[earned])
        if batch.card is not None and (batch.card >= 0).any():
            hits.setdefault("the logged card", []).append(_on_card(worth, batch)[earned])
        if batch.position is not None and by_clicks:
            places.append(_levels(batch)[worth > 0])
    found = {name: np.concatenate(parts) for name, parts in hits.items()}
    if not len(found["chance"]):
        return None
    return {
        "lists": len(found["chance"]),
        "judged_by": "clicks" if by_clicks else "rewards",
        "orders": {
            name: {"precision": float(each.mean()), "error": float(each.std() / np.sqrt(len(each)))}
            for name, each in found.items()
            if not name.startswith("column ")
        },
        "columns": {
            name.removeprefix("column "): float(each.mean())
            for name, each in found.items()
            if name.startswith("column ")
        },
        "mean_place_of_click": float(np.concatenate(places).mean()) if places else None,
    }


def _blocks(
    history: Dataset, clicked: Dataset, by_clicks: bool
) -> Iterator[tuple[Batch, dict[str, PerCandidate]]]:
    """Batches, and scores of their candidates by each order: the more, the earlier."""
    vocabulary = history.vocabulary(texts=False)
    index = clicked.folder.index
    rate = _rate_in(history, index.click_start, index.click) if by_clicks else None
    so_far = rates_so_far(index) if by_clicks else None
    for rows, item, batch in batches_of(clicked, vocabulary, RANKED):
        orders = {"chance": np.zeros(item.shape)}
        if rate is not None:
            orders["popularity in train"] = rate[np.maximum(item, 0)]
        if so_far is not None:
            start = index.candidate_start[rows][:, None] + np.arange(item.shape[1])
            orders["popularity so far"] = so_far[np.minimum(start, len(so_far) - 1)].astype(np.float64)
        if batch.score is not None:
            orders["the score upstream"] = _known(batch.score)
        if batch.position is not None:
            orders["the order shown"] = _known(-batch.position)
        if batch.candidate_numbers is not None:
            for f, name in enumerate(vocabulary.columns.candidate_numbers.names):
                values = batch.candidate_numbers[..., f]
                orders |= {f"column {name}": _known(values), f"column -{name}": _known(-values)}
        yield batch, orders


def _rate_in(history: Dataset, start: np.ndarray, positions: np.ndarray) -> Float64[np.ndarray, "I"]:
    """How often each item is named by lists of positions (clicks, or the card) of the times it was a candidate."""
    num_items = len(history.folder.index.item_features)
    offered, named = np.zeros(num_items), np.zeros(num_items)
    for rows, item in candidates_of(history, COUNTED):
        offered += np.bincount(item[item >= 0], minlength=num_items)
        owner, at = entries(start, rows)
        named += np.bincount(item[owner, positions[at]], minlength=num_items)
    return smoothed(named, offered)


def _known(values: Float32[np.ndarray, "B N"]) -> PerCandidate:
    """A missing value comes last."""
    return np.where(np.isfinite(values), values, -np.inf).astype(np.float64)


def _worth(batch: Batch, by_clicks: bool) -> PerCandidate:
    """What there is to find: clicks, or what was earned."""
    if by_clicks:
        assert batch.clicks is not None
        return batch.clicks.astype(np.float64)
    assert batch.reward is not None
    return np.maximum(np.nan_to_num(batch.reward.astype(np.float64)), 0.0)


def _share(score: PerCandidate, worth: PerCandidate, batch: Batch) -> PerRequest:
    """Of what each list was worth, the share that the K of highest score would hold; ties count by chance."""
    most = max(1, int((worth > 0).sum(axis=1).max()))
    wanted = np.argsort(-worth, axis=1, kind="stable")[:, :most]  # B W
    weight = np.take_along_axis(worth, wanted, axis=1)
    finite = np.where(np.isfinite(score), score, -1e300)
    sought = np.where(weight > 0, wanted, -1)
    held = expected_hits(finite, batch.present, sought, batch.card_size.astype(np.int64))
    return np.asarray((held * weight).sum(axis=1) / np.maximum(weight.sum(axis=1), 1e-300))


def _on_card(worth: PerCandidate, batch: Batch) -> PerRequest:
    """The share of it that the logged card holds."""
    assert batch.card is not None
    on = np.zeros((len(batch), batch.present.shape[1] + 1), bool)
    np.put_along_axis(on, batch.card, True, axis=1)  # -1 lands in the spare column
    return np.asarray((worth * on[:, :-1]).sum(axis=1) / np.maximum(worth.sum(axis=1), 1e-300))


def _levels(batch: Batch) -> PerCandidate:
    """Where in its list each item was shown: 0 first, 1 last; missing ones in the middle."""
    assert batch.position is not None
    place = np.where(batch.present, batch.position, np.nan).astype(np.float64)
    rank: Int64[np.ndarray, "B N"] = (place[:, :, None] > place[:, None, :]).sum(axis=2)
    level = rank / np.maximum(batch.present.sum(axis=1) - 1, 1)[:, None]
    return np.where(np.isnan(place), 0.5, level)


def card_recovery(history: Dataset, test: Dataset, limit: int, seed: int) -> dict[str, Any] | None:
    """The share of test cards found whole: by chance, by how often items were chosen, by what pairs have in common."""
    index = test.folder.index
    carded = test.take(index.card_start[test.rows + 1] > index.card_start[test.rows])
    if not len(carded) or not len(history):
        return None
    carded = at_most(carded, limit, seed)
    vocabulary = history.vocabulary()
    chosen = _rate_in(history, index.card_start, index.card)
    # A gap keeps items apart, everything else brings them together.
    signs = np.array([-1.0 if pair.kind == "gap" else 1.0 for pair in vocabulary.columns.pair_features])
    found: dict[str, list[np.ndarray]] = {"chance": [], "popularity in train": []}
    for _, item, batch in batches_of(carded, vocabulary, SOLVED):
        found["chance"].append(_whole(np.zeros(item.shape), batch))
        found["popularity in train"].append(_whole(chosen[np.maximum(item, 0)], batch))
        if batch.pair_features is not None:
            found.setdefault("what pairs have in common", []).append(_by_pairs(batch, signs))
    return {
        "cards": len(carded),
        "whole_card": {name: float(np.concatenate(parts).mean()) for name, parts in found.items()},
    }


def _whole(score: PerCandidate, batch: Batch) -> PerRequest:
    """The chance that the K of highest score are the card, ties drawn at random.

    With 2 of its items among 4 tied for the last 2 places, the card comes out once in 6.
    """
    assert batch.card is not None
    chances = np.zeros(len(batch))
    for b, card in enumerate(batch.card):
        held = card[card >= 0]
        present = np.flatnonzero(batch.present[b])
        others = np.setdiff1d(present, held)
        least = score[b, held].min()
        if len(others) and score[b, others].max() > least:
            continue
        tied_in, tied_out = int((score[b, held] == least).sum()), int((score[b, others] == least).sum())
        chances[b] = 1 / comb(tied_in + tied_out, tied_in)
    return chances


def _by_pairs(batch: Batch, signs: Float64[np.ndarray, "P"]) -> PerRequest:
    """Whether the card of the largest sum of pair features, found exactly, is the card."""
    assert batch.pair_features is not None
    assert batch.card is not None
    pairs = batch.pair_features.astype(np.float64) @ signs
    solved = cliques.best(batch.requests(), np.zeros(batch.present.shape), pairs, time_limit=1.0)
    ours, theirs = (np.sort(card, axis=1) for card in (solved.card, batch.card))
    return np.asarray((ours == theirs).all(axis=1), np.float64)
