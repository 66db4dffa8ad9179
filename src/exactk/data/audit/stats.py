"""The size and shape of a dataset, beside the paper's table where the data is the paper's.

Knows no split and no judgement; `audit.py` judges.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from exactk.data.dataset import Dataset
from exactk.data.logs.coding import NO_TIMESTAMP
from exactk.data.roles import FeatureColumns
from exactk.data.table import SPLITS

_BLOCK = 1 << 16


def stats(dataset: Dataset) -> dict[str, Any]:
    """Counts of the view, as plain values: what `exactk data stats` prints.

    `users` and `items` are those that occur in impressions, `cards` distinct (user, card) pairs, `samples`
    impressions: the columns of the paper's dataset table.
    """
    index, rows = dataset.folder.index, dataset.rows
    candidates = np.diff(index.candidate_start)[rows]
    sizes = np.diff(index.card_start)[rows]
    moments = index.timestamp[rows]
    dated = moments != NO_TIMESTAMP
    vocabulary = dataset.vocabulary(columns=False)
    described: dict[str, Any] = {
        "path": str(dataset.path),
        "source": dataset.meta.provenance.get("source"),
        "samples": len(dataset),
        "requests": len(np.unique(index.request[rows])),
        "users": vocabulary.num_users - 1,
        "items": vocabulary.num_items - 1,
        "cards": _distinct_cards(dataset),
        "catalogue": {"users": len(index.user_features), "items": len(index.item_features)},
        "K": _spread(sizes),
        "N": _spread(candidates),
        "clicked": int(dataset.clicked.sum()),
        "click_rate": float(dataset.clicked.mean()) if len(dataset) else None,
        "user_features": index.user_features.shape[1],
        "item_features": index.item_features.shape[1],
        "columns": {
            f"{carrier} {kind}": len(names)
            for carrier, held in (
                *dataset.folder.columns.carriers(),
                ("rolling", FeatureColumns(dataset.folder.names.rolling)),
            )
            for kind in ("numbers", "categories", "texts", "vectors")
            if (names := getattr(held, kind))
        },
        "signal": list(dataset.signal.names),
        "with_propensity": int(np.isfinite(index.propensity[rows]).sum()),
        "with_timestamp": int(dated.sum()),
        "recorded_split": {name: int((index.split[rows] == s).sum()) for s, name in enumerate(SPLITS)},
        "constraint": list(dataset.constraints.names) if dataset.constraints else [],
        "recorded_graphs": dataset.folder.has_graphs,
    }
    paper = dataset.meta.provenance.get("paper")
    if paper:
        described["paper"] = {
            name: {"paper": said, "here": described[name], "equal": described[name] == said}
            for name, said in paper.items()
        }
    return described


def _spread(counts: np.ndarray) -> dict[str, Any]:
    if not len(counts):
        return {"least": None, "mean": None, "most": None}
    return {"least": int(counts.min()), "mean": float(counts.mean()), "most": int(counts.max())}


def _distinct_cards(dataset: Dataset) -> int:
    """Distinct (user, set of shown items), by a 64-bit fingerprint each: one collision is expected at 6 billion."""
    return len(np.unique(card_fingerprints(dataset)))


def card_fingerprints(dataset: Dataset) -> np.ndarray:
    """A number for each impression's (user, card), the same for the same set of items in any order."""
    index, prints = dataset.folder.index, []
    for first in range(0, len(dataset), _BLOCK):
        rows = dataset.rows[first : first + _BLOCK]
        sizes = index.card_start[rows + 1] - index.card_start[rows]
        owner = np.repeat(np.arange(len(rows)), sizes)
        place = np.arange(len(owner)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        position = index.card[index.card_start[rows][owner] + place]
        item = index.candidates[index.candidate_start[rows][owner] + position]
        total = np.zeros(len(rows), np.uint64)
        np.add.at(total, owner, _mixed(item.astype(np.uint64)))  # a sum: the order of a card carries nothing
        prints.append(_mixed(total ^ _mixed(index.user[rows].astype(np.uint64) + np.uint64(1 << 40))))
    return np.concatenate(prints) if prints else np.empty(0, np.uint64)


def _mixed(value: np.ndarray) -> np.ndarray:
    """splitmix64's finaliser: every input bit reaches every output bit."""
    value = value + np.uint64(0x9E3779B97F4A7C15)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(value ^ (value >> np.uint64(31)))
