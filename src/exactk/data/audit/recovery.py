"""Positives only, judged by the whole card: how often simple scores would have put together the very card people did.

Knows batches and counts of history; no model.
"""

from __future__ import annotations

from math import comb
from typing import Any

import numpy as np
from jaxtyping import Float64

from exactk.data.assemble import padded
from exactk.data.dataset import Dataset
from exactk.problem.batch import Batch
from exactk.problem.exact import cliques

_BLOCK = 256


def card_recovery(history: Dataset, test: Dataset, limit: int, seed: int) -> dict[str, Any] | None:
    """The share of test cards found whole: by chance, by how often items were chosen, by what pairs have in common."""
    index = test.folder.index
    carded = test.take(index.card_start[test.rows + 1] > index.card_start[test.rows])
    if not len(carded) or not len(history):
        return None
    if len(carded) > limit:
        carded = carded.take(np.sort(np.random.default_rng(seed).choice(len(carded), limit, replace=False)))
    vocabulary = history.vocabulary()
    chosen = _times_chosen(history)
    found: dict[str, list[np.ndarray]] = {"chance": [], "popularity in train": []}
    for first in range(0, len(carded), _BLOCK):
        rows = carded.rows[first : first + _BLOCK]
        batch = carded.batch(vocabulary, np.arange(first, first + len(rows)))
        item = padded(rows, index.candidate_start, index.candidates, batch.item.shape[1])
        found["chance"].append(_whole(np.zeros(item.shape), batch))
        found["popularity in train"].append(_whole(chosen[np.maximum(item, 0)], batch))
        if batch.pair_features is not None:
            found.setdefault("what pairs have in common", []).append(_by_pairs(batch, _signs(vocabulary)))
    return {
        "cards": len(carded),
        "whole_card": {name: float(np.concatenate(parts).mean()) for name, parts in found.items()},
    }


def _signs(vocabulary: Any) -> Float64[np.ndarray, "P"]:
    """A gap keeps items apart, everything else brings them together."""
    return np.array([-1.0 if pair.kind == "gap" else 1.0 for pair in vocabulary.columns.pair_features])


def _times_chosen(history: Dataset) -> Float64[np.ndarray, "I"]:
    """How often an item was put on the card of the times it was offered, one offer at the overall share added."""
    index, num_items = history.folder.index, len(history.folder.index.item_features)
    offered, chosen = np.zeros(num_items), np.zeros(num_items)
    for row in history.rows.tolist():
        items = index.candidates[index.candidate_start[row] : index.candidate_start[row + 1]]
        offered[items] += 1
        chosen[items[index.card[index.card_start[row] : index.card_start[row + 1]]]] += 1
    return np.asarray((chosen + chosen.sum() / max(1.0, offered.sum())) / (offered + 1))


def _whole(score: Float64[np.ndarray, "B N"], batch: Batch) -> Float64[np.ndarray, "B"]:
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


def _by_pairs(batch: Batch, signs: Float64[np.ndarray, "P"]) -> Float64[np.ndarray, "B"]:
    """Whether the card of the largest sum of pair features, found exactly, is the card."""
    assert batch.pair_features is not None
    assert batch.card is not None
    pairs = batch.pair_features.astype(np.float64) @ signs
    solved = cliques.best(batch.requests(), np.zeros(batch.present.shape), pairs, time_limit=1.0)
    ours, theirs = (np.sort(card, axis=1) for card in (solved.card, batch.card))
    return np.asarray((ours == theirs).all(axis=1), np.float64)
