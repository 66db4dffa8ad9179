"""Small card logs for tests: a folder written from plain Python values."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from exactk.data import Dataset, DatasetWriter, Meta


def write_log(
    path: Path,
    impressions: Sequence[dict[str, Any]],
    items: Sequence[dict[str, Any]] | None = None,
    users: Sequence[dict[str, Any]] | None = None,
    meta: Meta | None = None,
    rows_at_once: int = 1000,
) -> Path:
    """Write impressions; items and users default to every id that occurs, without attributes."""
    if items is None:
        items = [{"item_id": i} for i in sorted({i for row in impressions for i in row["candidates"]})]
    if users is None:
        users = [{"user_id": u} for u in sorted({row["user_id"] for row in impressions})]
    with DatasetWriter(path, meta) as writer:
        writer.write_items(pa.Table.from_pylist(list(items)))
        writer.write_users(pa.Table.from_pylist(list(users)))
        for first in range(0, len(impressions), rows_at_once):
            writer.write_impressions(pa.Table.from_pylist(list(impressions[first : first + rows_at_once])))
    return path


def random_impressions(
    num: int, seed: int = 0, num_users: int = 7, num_items: int = 40, sizes: tuple[int, int] = (3, 9)
) -> list[dict[str, Any]]:
    """Requests of varying N and K, about half of them clicked, timestamps rising."""
    rng = np.random.default_rng(seed)
    rows = []
    for r in range(num):
        candidates = rng.permutation(num_items)[: rng.integers(sizes[0], sizes[1] + 1)]
        card = rng.permutation(candidates)[: rng.integers(1, sizes[0] + 1)]
        clicked = bool(rng.random() < 0.5)
        rows.append(
            {
                "request_id": r,
                "user_id": int(rng.integers(num_users)),
                "candidates": [f"i{c}" for c in candidates],
                "card": [f"i{c}" for c in card],
                "clicked": clicked,
                "clicked_item": f"i{card[0]}" if clicked else None,
                "propensity": float(rng.uniform(0.01, 1)),
                "timestamp": 1000 + 10 * r,
            }
        )
    return rows


def random_log(path: Path, num: int = 50, seed: int = 0, features: int = 0, **meta: Any) -> Dataset:
    """A folder of `random_impressions`, with item and user features where asked for."""
    rng = np.random.default_rng(seed)
    items: list[dict[str, Any]] = [
        {"item_id": f"i{i}", "category": f"c{i % 5}", "title": f"thing number {i}"} for i in range(40)
    ]
    users: list[dict[str, Any]] = [{"user_id": u} for u in range(7)]
    if features:
        items = [item | {"features": rng.normal(3, 2, features).tolist()} for item in items]
        users = [user | {"features": rng.normal(-1, 5, features + 1).tolist()} for user in users]
    return Dataset.open(write_log(path, random_impressions(num, seed), items, users, Meta(**meta)))
