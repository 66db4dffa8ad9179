"""A sample log in the shape teams have: one row for every candidate shown, with prices, positions, touches and clicks.

Made up, with a known rule behind the clicks, so that reading, learning and judging can be tried with no download.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa

from exactk.errors import InputError

_MAKERS = ("Alder", "Birch", "Cedar", "Dogwood", "Elm", "Fir", "Ginkgo", "Hazel")
_KINDS = ("lamp", "chair", "table", "shelf", "kettle", "clock")
_LOOKS = ("small", "large", "plain", "bright", "folding", "old", "quiet", "round")
_CARD_SIZE, _LONGEST = 4, 12
_START = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp())


@dataclass(frozen=True)
class SampleLog:
    """`rows`: one a shown candidate, rows of a request together, in order of time; `items`: one an item."""

    rows: pa.Table
    items: pa.Table


def sample_log(requests: int = 400, items: int = 600, users: int = 150, seed: int = 0) -> SampleLog:
    """Lists of varying length in an upstream ranker's order; the first four of each were the card.

    A user clicks by what is cheap beside the rest of the list, by what was touched before, and by place; in one
    request of eight twice, and as often below the card as there is cause to. A tenth of the prices is missing.
    """
    if requests < 1 or users < 1 or items < _LONGEST:
        raise InputError(
            f"a sample log needs a request, a user and {_LONGEST} items, got {requests}, {users} and {items}"
        )
    rng = np.random.default_rng(seed)
    sizes = rng.integers(_CARD_SIZE + 1, _LONGEST + 1, requests)
    request = np.repeat(np.arange(requests), sizes)
    place = np.arange(len(request)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    item = np.concatenate([rng.choice(items, size, replace=False) for size in sizes.tolist()])
    usual = np.exp(rng.normal(4, 0.5, items))
    price = (usual[item] * rng.uniform(0.7, 1.3, len(item))).round(2)
    touches = rng.poisson(0.15, len(item))
    mean = (np.bincount(request, np.log(price)) / sizes)[request]
    worth = 2.5 * (mean - np.log(price)) + 1.5 * (touches > 0) - 0.1 * place + rng.gumbel(size=len(item))
    rank = _rank_within(-worth, request, sizes)
    clicks = rank < np.where(rng.random(requests) < 1 / 8, 2, 1)[request]
    user = rng.integers(users, size=requests)
    rows = {
        "request_id": [f"r{r}" for r in request.tolist()],
        "user_id": [f"u{u}" for u in user[request].tolist()],
        "item_id": item,
        "position": place + 1,
        "score": (worth * 0.3 + rng.normal(size=len(item))).astype(np.float32),
        "price": np.where(rng.random(len(item)) < 0.1, np.nan, price),
        "touches": touches,
        "offer": np.array(["none", "sale", "bundle"])[rng.choice(3, len(item), p=[0.7, 0.2, 0.1])],
        "on_card": place < _CARD_SIZE,
        "clicked": clicks,
        "dwell": np.where(clicks, rng.exponential(30, len(item)).round(1), 0.0),
        "timestamp": _START + np.sort(rng.integers(30 * 86_400, size=requests))[request],
        "device": np.array(["phone", "tablet", "desk"])[rng.choice(3, requests, p=[0.6, 0.1, 0.3])][request],
        "nights": rng.integers(1, 8, requests)[request],
    }
    maker, kind, look = (rng.integers(len(words), size=items) for words in (_MAKERS, _KINDS, _LOOKS))
    known = {
        "item_id": np.arange(items),
        "title": [
            f"{_LOOKS[x]} {_KINDS[k]} by {_MAKERS[m]} no {n}"
            for n, (m, k, x) in enumerate(zip(maker, kind, look, strict=True))
        ],
        "maker": np.array(_MAKERS)[maker],
        "usual_price": usual.round(2),
    }
    return SampleLog(pa.table(rows), pa.table(known))


def _rank_within(values: np.ndarray, request: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Rank of each value among those of its request, the least first."""
    order = np.lexsort((values, request))
    rank = np.empty(len(values), np.int64)
    rank[order] = np.arange(len(values)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return rank
