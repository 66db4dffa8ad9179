"""What was shown and what was clicked: the log of the service. Its way into a dataset folder: `collecting.py`.

Knows journals, not routes. An impression is with the operating system before its card leaves: a worker that is killed
loses none, a full disk loses some (and they are counted). Acknowledged feedback is on the disk.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pyarrow as pa

from exactk.serving.log.journal import Journal

Id = int | str

# Ids are kept as text; `integer_users` and `integer_items` say that they were whole numbers. Logs of before 0.2 have
# `integer_ids` instead: both were.
IMPRESSIONS = pa.schema(
    {
        "request_id": pa.string(),
        "user_id": pa.string(),
        "candidates": pa.list_(pa.string()),
        "card": pa.list_(pa.string()),
        "propensity": pa.float64(),
        "timestamp": pa.int64(),
        "arm": pa.string(),
        "model": pa.string(),
        "value": pa.float64(),
        "integer_ids": pa.bool_(),
        "integer_users": pa.bool_(),
        "integer_items": pa.bool_(),
    }
)
FEEDBACK = pa.schema(
    {"request_id": pa.string(), "clicked": pa.bool_(), "clicked_item": pa.string(), "timestamp": pa.int64()}
)
ITEMS = pa.schema(
    {
        "item_id": pa.string(),
        "title": pa.string(),
        "category": pa.string(),
        "features": pa.list_(pa.float64()),
        "attributes": pa.string(),  # all the rest, as JSON; also a title or category that is no text
        "timestamp": pa.int64(),
    }
)
KNOWN_ITEMS = 200_000  # how many inline items are remembered as already written
KNOWN_CLICKS = 100_000


class ImpressionLog:
    """Three journals in one folder: impressions, feedback, and the items that came inline."""

    def __init__(
        self,
        folder: Path,
        rotate_bytes: int,
        rotate_seconds: float,
        on_loss: Callable[[int], None],
        on_late: Callable[[int], None] = lambda _: None,
    ) -> None:
        def journal(name: str, schema: pa.Schema) -> Journal:
            return Journal(folder, name, schema, rotate_bytes, rotate_seconds, on_loss, on_late)

        self._impressions = journal("impressions", IMPRESSIONS)
        self._feedback = journal("feedback", FEEDBACK)
        self._items = journal("items", ITEMS)
        self._written: dict[Id, int] = {}
        self._clicked: dict[str, None] = {}

    def shown(
        self,
        request_id: str,
        user_id: Id,
        candidates: Sequence[Id],
        card: Sequence[Id],
        propensity: float | None,
        value: float | None,
        arm: str,
        model: str,
    ) -> None:
        """Keep one impression."""
        kinds = set(map(type, candidates))
        texts = kinds == {str}  # the usual case: nothing to rewrite
        self._impressions.append(
            {
                "request_id": request_id,
                "user_id": str(user_id),
                "candidates": candidates if texts else [str(each) for each in candidates],
                "card": card if texts else [str(each) for each in card],
                "propensity": propensity,
                "timestamp": time.time_ns() // 1000,
                "arm": arm,
                "model": model,
                "value": value,
                "integer_users": isinstance(user_id, int),
                "integer_items": kinds == {int},
            }
        )

    def described(self, items: Sequence[Mapping[str, Any]]) -> None:
        """Keep what came inline about items, once per content."""
        for item in items:
            content = json.dumps(item, sort_keys=True)
            known = hash(content)
            if self._written.get(item["item_id"]) == known:
                continue
            if len(self._written) >= KNOWN_ITEMS:
                self._written.clear()
            self._written[item["item_id"]] = known
            texts = {name: item[name] for name in ("title", "category") if isinstance(item.get(name), str)}
            rest = {
                key: value
                for key, value in item.items()
                if key not in texts and key not in ("item_id", "features")
            }
            self._items.append(
                {
                    "item_id": str(item["item_id"]),
                    "title": texts.get("title"),
                    "category": texts.get("category"),
                    "features": item.get("features"),
                    "attributes": json.dumps(rest, sort_keys=True),
                    "timestamp": time.time_ns() // 1000,
                }
            )

    def answered(self, request_id: str, clicked: bool, clicked_item: Id | None) -> Future[None]:
        """Keep feedback; done when it is on the disk."""
        if clicked:
            self._clicked[request_id] = None
            if len(self._clicked) > KNOWN_CLICKS:
                del self._clicked[next(iter(self._clicked))]
        return self._feedback.append_durably(
            {
                "request_id": request_id,
                "clicked": clicked,
                "clicked_item": None if clicked_item is None else str(clicked_item),
                "timestamp": time.time_ns() // 1000,
            }
        )

    def has_click(self, request_id: str) -> bool:
        """Whether this process was told of a click on the same request lately."""
        return request_id in self._clicked

    def close(self) -> None:
        """Flush and rotate everything."""
        for journal in (self._impressions, self._feedback, self._items):
            journal.close()
