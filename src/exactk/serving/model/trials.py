"""Requests to try a model with before it serves: for items it knows, and for strangers.

Knows ids and their types, no model from inside.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from exactk.data.requests.request import Request
from exactk.model_folder import TrainedModel


def stranger_request(fitted: TrainedModel) -> Request:
    """A request in which the model knows nobody."""
    vocabulary, k = fitted.vocabulary, fitted.card_size
    return Request(_strangers(vocabulary.user_ids, 1)[0], tuple(_strangers(vocabulary.item_ids, k + 2)), k)


def trial_requests(fitted: TrainedModel, count: int = 4, most: int = 20) -> list[Request]:
    """Requests of different lengths for items the model knows; none where it knows none."""
    items = fitted.catalogue.items["item_id"].to_pylist()
    known = fitted.catalogue.users["user_id"].to_pylist()[: count - 1]
    users = [*known, *_strangers(fitted.vocabulary.user_ids, 1)]
    random = np.random.default_rng(0)
    requests: list[Request] = []
    for turn in range(count if items else 0):
        size = min(len(items), max(fitted.card_size, most - turn))
        picked = [items[n] for n in random.choice(len(items), size, replace=False)]
        requests.append(Request(users[turn % len(users)], tuple(picked), min(fitted.card_size, size)))
    return requests


def _strangers(ids: pa.Array, count: int) -> list[Any]:
    """Ids of the right type that nobody has."""
    if not pa.types.is_integer(ids.type):
        return [f"?{n}" for n in range(count)]
    held = set(ids.to_pylist())
    lowest = min(held, default=0)
    return [min(lowest, 0) - 1 - n for n in range(count)]
