"""A log in the shape of a hotel site's: lists of up to 25, the first four the card, clicks anywhere by touch."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pyarrow as pa

START = int(datetime(2026, 5, 1, tzinfo=UTC).timestamp())
CITIES = ("Lyon, France", "Porto, Portugal", "Graz, Austria", "Bergen, Norway")


def hotel_rows(requests: int = 300, seed: int = 0) -> pa.Table:
    """One row per hotel shown, in display order; nearly half of the hotels of the last days were never seen before.

    A click falls by what was touched before in the session, then by place and by price among the list.
    """
    rng = np.random.default_rng(seed)
    sizes = np.where(rng.random(requests) < 0.8, 25, rng.integers(5, 25, requests))
    request = np.repeat(np.arange(requests), sizes)
    place = np.arange(len(request)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    first = (np.arange(requests) * 2)[request]
    order = np.concatenate([rng.permutation(60)[:size] for size in sizes.tolist()])
    hotel = 10_000 + 13 * (first + order)
    price = np.exp(rng.normal(4.3, 0.6, len(hotel))).round().astype(int)
    price_rank = _ranked(price, request, sizes)
    touches = rng.poisson(0.12, len(hotel)) * rng.integers(1, 4, len(hotel))
    worth = 3.0 * (touches > 0) - 0.12 * place - 0.05 * price_rank + rng.gumbel(size=len(hotel))
    clicked = _ranked(-worth, request, sizes) == 0
    last = _ranked(-(touches + 1e-3 * rng.random(len(hotel))), request, sizes) == 0
    clicks, shown = _counted(hotel, clicked, request)
    moment = START + np.sort(rng.integers(2 * 86_400, size=requests))
    part = np.array(["train", "valid", "test"])[
        np.searchsorted([0.6, 0.7], np.arange(requests) / requests, "right")
    ]
    return pa.table({
        "request_id": [f"{r:x}-{r % 3}" for r in request.tolist()],
        "user_id": [f"U{u:05d}" for u in rng.integers(requests // 2, size=requests)[request].tolist()],
        "item_id": hotel, "position": place + 1, "price": price, "price_rank": price_rank,
        "touched_before": touches > 0, "last_touched": last & (touches > 0), "touches": touches,
        "clicks_so_far": clicks, "shown_so_far": shown, "shown": np.ones(len(hotel), bool), "on_card": place < 4,
        "clicked": clicked, "timestamp": moment[request],
        "device": np.array(["mobile", "desktop", "tablet"])[rng.integers(3, size=requests)][request],
        "platform": np.array(["FR", "AT", "NO", "PT", "DE"])[rng.integers(5, size=requests)][request],
        "city": np.array(CITIES)[rng.integers(4, size=requests)][request],
        "split": part[request],
    })  # fmt: skip


def _ranked(values: np.ndarray, request: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    order = np.lexsort((values, request))
    rank = np.empty(len(values), np.int64)
    rank[order] = np.arange(len(values)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return rank


def _counted(hotel: np.ndarray, clicked: np.ndarray, request: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Clicks and showings of the hotel in earlier lists."""
    clicks, shown = np.zeros(len(hotel), np.int64), np.zeros(len(hotel), np.int64)
    held: dict[int, list[int]] = {}
    first = 0
    for last in (*np.flatnonzero(np.diff(request)) + 1, len(request)):
        for row in range(first, last):
            clicks[row], shown[row] = held.get(int(hotel[row]), (0, 0))
        for row in range(first, last):
            known = held.setdefault(int(hotel[row]), [0, 0])
            known[0] += int(clicked[row])
            known[1] += 1
        first = last
    return clicks, shown
