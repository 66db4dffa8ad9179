"""Lists judged by the clicked item: how often simple orders, and each column alone, put it on a card of K.

Knows batches and counts of history; no model. What the log itself showed stands among the orders.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64

from exactk.data.assemble import padded
from exactk.data.audit.probes import expected_hits
from exactk.data.dataset import Dataset
from exactk.data.replay import rates_so_far
from exactk.problem.batch import Batch

_BLOCK = 1024


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
    if len(clicked) > limit:
        clicked = clicked.take(
            np.sort(np.random.default_rng(seed).choice(len(clicked), limit, replace=False))
        )
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
) -> Iterator[tuple[Batch, dict[str, Float64[np.ndarray, "B N"]]]]:
    """Batches, and scores of their candidates by each order: the more, the earlier."""
    vocabulary = history.vocabulary(texts=False)
    rate = _rate_of_history(history) if by_clicks else None
    index = clicked.folder.index
    so_far = rates_so_far(index) if by_clicks else None
    for first in range(0, len(clicked), _BLOCK):
        rows = clicked.rows[first : first + _BLOCK]
        batch = clicked.batch(vocabulary, np.arange(first, first + len(rows)))
        item = padded(rows, index.candidate_start, index.candidates, batch.item.shape[1])
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


def _rate_of_history(history: Dataset) -> Float64[np.ndarray, "I"]:
    """Clicks per showing of every item in the lists of history, one showing at the overall rate added."""
    index, num_items = history.folder.index, len(history.folder.index.item_features)
    shown, clicked = np.zeros(num_items), np.zeros(num_items)
    for first in range(0, len(history), 1 << 15):
        rows = history.rows[first : first + (1 << 15)]
        widest = int((index.candidate_start[rows + 1] - index.candidate_start[rows]).max())
        item = padded(rows, index.candidate_start, index.candidates, max(1, widest))
        shown += np.bincount(item[item >= 0], minlength=num_items)
        counts = index.click_start[rows + 1] - index.click_start[rows]
        owner = np.repeat(np.arange(len(rows)), counts)
        place = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
        clicks = item[owner, index.click[index.click_start[rows][owner] + place]]
        clicked += np.bincount(clicks, minlength=num_items)
    return np.asarray((clicked + clicked.sum() / max(1.0, shown.sum())) / (shown + 1))


def _known(values: Float32[np.ndarray, "B N"]) -> Float64[np.ndarray, "B N"]:
    """A missing value comes last."""
    return np.where(np.isfinite(values), values, -np.inf).astype(np.float64)


def _worth(batch: Batch, by_clicks: bool) -> Float64[np.ndarray, "B N"]:
    """What there is to find: clicks, or what was earned."""
    if by_clicks:
        assert batch.clicks is not None
        return batch.clicks.astype(np.float64)
    assert batch.reward is not None
    return np.maximum(np.nan_to_num(batch.reward.astype(np.float64)), 0.0)


def _share(
    score: Float64[np.ndarray, "B N"], worth: Float64[np.ndarray, "B N"], batch: Batch
) -> Float64[np.ndarray, "B"]:
    """Of what each list was worth, the share that the K of highest score would hold; ties count by chance."""
    most = max(1, int((worth > 0).sum(axis=1).max()))
    wanted = np.argsort(-worth, axis=1, kind="stable")[:, :most]  # B W
    weight = np.take_along_axis(worth, wanted, axis=1)
    finite = np.where(np.isfinite(score), score, -1e300)
    held = expected_hits(
        finite, batch.present, np.where(weight > 0, wanted, -1), batch.card_size.astype(np.int64)
    )
    return np.asarray((held * weight).sum(axis=1) / np.maximum(weight.sum(axis=1), 1e-300))


def _on_card(worth: Float64[np.ndarray, "B N"], batch: Batch) -> Float64[np.ndarray, "B"]:
    """The share of it that the logged card holds."""
    return np.asarray((worth * _carded(batch)).sum(axis=1) / np.maximum(worth.sum(axis=1), 1e-300))


def _carded(batch: Batch) -> Bool[np.ndarray, "B N"]:
    assert batch.card is not None
    on = np.zeros((len(batch), batch.present.shape[1] + 1), bool)
    np.put_along_axis(on, batch.card, True, axis=1)  # -1 lands in the spare column
    return on[:, :-1]


def _levels(batch: Batch) -> Float64[np.ndarray, "B N"]:
    """Where in its list each item was shown: 0 first, 1 last; missing ones in the middle."""
    assert batch.position is not None
    place = np.where(batch.present, batch.position, np.nan).astype(np.float64)
    rank: Int64[np.ndarray, "B N"] = (place[:, :, None] > place[:, None, :]).sum(axis=2)
    level = rank / np.maximum(batch.present.sum(axis=1) - 1, 1)[:, None]
    return np.where(np.isnan(place), 0.5, level)
