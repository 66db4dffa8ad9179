"""A card log with a planted truth for the rivals: everybody likes the items of their own club."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from card_logs import write_log
from exactk.data import Dataset, Meta
from exactk.rivals.contract import Budget, Logs

CLUBS, ITEMS, USERS = 4, 32, 16
TINY = Budget(trials=1, epochs=2, patience=2, batch_size=64, validation_rows=256, tree_requests=2_000)


def planted_log(
    path: Path,
    num: int = 1200,
    seed: int = 0,
    features: bool = False,
    sizes: tuple[int, int] = (8, 8),
    card: int = 3,
) -> Dataset:
    """Item i and user u belong to clubs i % 4 and u % 4; a card with one of one's own club is clicked, on that item.

    With `features` both carry their club as noisy numbers, enough to learn from without ids.
    """
    rng = np.random.default_rng(seed)
    rows: list[dict[str, Any]] = []
    for r in range(num):
        user = int(rng.integers(USERS))
        candidates = rng.permutation(ITEMS)[: rng.integers(sizes[0], sizes[1] + 1)]
        shown = rng.permutation(candidates)[:card]
        own = [int(i) for i in shown if i % CLUBS == user % CLUBS]
        clicked = bool(own) and rng.random() < 0.9
        rows.append(
            {
                "request_id": r,
                "user_id": f"u{user}",
                "candidates": [f"i{c}" for c in candidates],
                "card": [f"i{c}" for c in shown],
                "clicked": clicked,
                "clicked_item": f"i{own[0]}" if clicked else None,
            }
        )
    club = np.eye(CLUBS)
    items: list[dict[str, Any]] = [{"item_id": f"i{i}", "category": f"c{i % CLUBS}"} for i in range(ITEMS)]
    users: list[dict[str, Any]] = [{"user_id": f"u{u}"} for u in range(USERS)]
    if features:
        for n, item in enumerate(items):
            item["features"] = (club[n % CLUBS] + rng.normal(0, 0.1, CLUBS)).tolist()
        for n, user_row in enumerate(users):
            user_row["features"] = (club[n % CLUBS] + rng.normal(0, 0.1, CLUBS)).tolist()
    return Dataset.open(write_log(path, rows, items, users, Meta()))


def planted_logs(path: Path, **options: Any) -> tuple[Logs, Logs, Logs]:
    """Train, valid and test of `planted_log`, in train's vocabulary."""
    train, valid, test = Logs.of(
        *planted_log(path, **options).split(by="random", seed=1, valid=0.2, test=0.2)
    )
    return train, valid, test
