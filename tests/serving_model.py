"""Small trained models for the service's tests: a log in which some items are plainly better than others."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from exactk.data.dataset import Dataset
from exactk.data.writer import DatasetWriter
from exactk.recommender import Recommender
from exactk.settings.presets import preset

NUM_ITEMS, NUM_USERS, N, K = 40, 12, 12, 3
ITEMS = [f"i{n}" for n in range(NUM_ITEMS)]


def write_data(folder: Path, seed: int = 0, numbers: bool = False) -> Path:
    """Items i0..i39 (or just 0..39) in six categories; the lower its number, the likelier an item is clicked."""
    ids: list[Any] = list(range(NUM_ITEMS)) if numbers else ITEMS
    users: list[Any] = [n if numbers else f"u{n}" for n in range(NUM_USERS)]
    random = np.random.default_rng(seed)
    rows = []
    for n in range(400):
        offered = random.choice(NUM_ITEMS, N, replace=False)
        card = random.choice(offered, K, replace=False)
        clicked = bool(random.random() < 1 / (1 + np.exp((card.mean() - 18) / 3)))
        rows.append(
            {
                "request_id": f"r{n}",
                "user_id": users[random.integers(NUM_USERS)],
                "candidates": [ids[i] for i in offered],
                "card": [ids[i] for i in card],
                "clicked": clicked,
                "clicked_item": ids[card.min()] if clicked else None,
            }
        )
    items = pa.table(
        {
            "item_id": ids,
            "title": [f"thing number {n}" for n in range(NUM_ITEMS)],
            "category": [f"c{n % 6}" for n in range(NUM_ITEMS)],
            "features": random.normal(size=(NUM_ITEMS, 3)).tolist(),
        }
    )
    with DatasetWriter(
        folder, {"constraint": {"rule": [{"type": "distinct", "field": "category"}]}}
    ) as writer:
        writer.write_items(items)
        writer.write_users(pa.table({"user_id": users}))
        writer.write_impressions(pa.Table.from_pylist(rows))
    return folder


@lru_cache(maxsize=4)
def fitted(data: Path, model: str, seed: int = 0) -> Recommender:
    """A tiny model of one kind, trained for a moment."""
    train, valid, _ = Dataset.open(data).split(seed=seed)
    config = preset("tiny")
    if model == "pair_value":
        config = replace(config, model="pair_value")
    else:
        config = replace(config, reward=replace(config.reward, kind="set"))  # takes cards of any size
    return Recommender(config).fit(train, valid, show=False)
