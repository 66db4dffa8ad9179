"""What was shown and what was clicked, kept on the disk. Its way into a dataset folder: `collecting.py`.

Knows journals, not routes. What came along with a request is parted: the model's columns of candidates, and numbers and
flags under names it does not know, are kept with the impression, as they may differ from request to request; everything
else, and what rules read, is kept with the item, once for each content. What is kept is with the operating system when
the call returns, or once the futures that it returned are done: cards wait for these, so that a worker that is killed
loses none. A full disk loses some (and they are counted). Acknowledged feedback is on the disk.

A request id says of itself that it was made here, when, for which arm, and which items were on its card, so that
feedback is matched without any memory, in every worker and after any restart. Its prints are hashes of 16 bits: a
wrong item passes once in 65,536 times; what is joined later is joined exactly.

>>> name = new_request_id("champion", ["a", "b"])
>>> is_ours(name), is_on_card(name, "a"), is_on_card(name, "c"), is_ours("made up")
(True, True, False, False)
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pydantic_core import to_json

from exactk.data.columns import SENT_MEASURES, Columns
from exactk.model_folder import TrainedModel
from exactk.serving.log.journal import Journal
from exactk.serving.settings import CHALLENGER, CHAMPION

Id = int | str

# Ids are kept as text; `integer_users` and `integer_items` say that they were whole numbers. Logs of before 0.2 have
# `integer_ids` instead: both were.
_TEXTS = pa.list_(pa.string())
IMPRESSIONS = pa.schema({
    "request_id": pa.string(), "user_id": pa.string(), "candidates": _TEXTS, "card": _TEXTS, "propensity": pa.float64(),
    "timestamp": pa.int64(), "arm": pa.string(), "model": pa.string(), "value": pa.float64(),
    "integer_ids": pa.bool_(), "integer_users": pa.bool_(), "integer_items": pa.bool_(),
    # What came along, as JSON: {"price": [a value for each candidate]}, its names by kind, {"device": "phone"}.
    "columns": pa.string(), "numbers": _TEXTS, "categories": _TEXTS, "context": pa.string(),
})  # fmt: skip
FEEDBACK = pa.schema({
    "request_id": pa.string(), "clicked": pa.bool_(), "clicked_item": pa.string(), "timestamp": pa.int64(),
    "reward": pa.float64(),
})  # fmt: skip
# `attributes`: all the rest, as JSON; also a title or category that is no text.
ITEMS = pa.schema({
    "item_id": pa.string(), "title": pa.string(), "category": pa.string(), "features": pa.list_(pa.float64()),
    "attributes": pa.string(), "timestamp": pa.int64(),
})  # fmt: skip
KNOWN_ITEMS = 200_000  # how many inline items are remembered as already written
KNOWN_CLICKS = 100_000


class Impression(NamedTuple):
    """A card as it was shown: out of what, how likely, by which model, and what had come along with the request."""

    request_id: str
    user_id: Id | None
    candidates: Sequence[Id]
    card: Sequence[Id]
    propensity: float | None
    value: float | None
    arm: str
    model: str
    columns: Mapping[str, Sequence[Any]] = {}
    context: Mapping[str, Any] = {}


OF_ITEMS = frozenset(("item_id", "features", "title", "category"))


@dataclass(frozen=True)
class SentNames:
    """Which names are of candidates in a request, and which of items."""

    columns: Columns
    rolling: tuple[str, ...] = ()
    ruled: frozenset[str] = frozenset()

    @classmethod
    def of(cls, fitted: TrainedModel) -> SentNames:
        """Of a model that serves."""
        known = fitted.vocabulary.columns
        return cls(known.columns, known.rolling, frozenset(fitted.constraints.fields))

    @cached_property
    def of_candidates(self) -> dict[str, str]:
        """Names as they may be sent, and as they are kept: score and position under our own."""
        columns = self.columns
        held = dict.fromkeys((*columns.candidate.names, *self.rolling, *SENT_MEASURES))
        logged = {columns.roles[name]: name for name in SENT_MEASURES if name in columns.roles}
        return {name: name for name in held} | logged

    @cached_property
    def of_items(self) -> frozenset[str]:
        """Names that are never of a request alone."""
        return OF_ITEMS.union(self.columns.item.names).difference(self.of_candidates)

    def parted(
        self, inline: Sequence[Mapping[str, Any]], rules: Sequence[str] = ()
    ) -> tuple[dict[str, list[Any]], list[dict[str, Any]]]:
        """Name -> a value for each candidate, None where nothing was sent; and what is said of items.

        `rules` are the names that rules of the request read.
        """
        columns: dict[str, list[Any]] = {}
        items: list[dict[str, Any]] = []
        ruled = self.ruled.union(rules)
        for n, sent in enumerate(inline):
            item: dict[str, Any] = {}
            for name, value in sent.items():
                known = self.of_candidates.get(name)
                free = name not in self.of_items and isinstance(value, int | float)
                if known is not None or free:
                    columns.setdefault(known or name, [None] * len(inline))[n] = value
                if name == "item_id" or not (known is not None or free) or name in ruled:
                    item[name] = value
            if len(item) > 1:
                items.append(item)
        return columns, items


class ImpressionLog:
    """Three journals in one folder: impressions, feedback, and the items that came inline."""

    def __init__(
        self, folder: Path, rotate_bytes: int, rotate_seconds: float, on_loss: Callable[[int], None]
    ) -> None:
        def journal(name: str, schema: pa.Schema) -> Journal:
            return Journal(folder, name, schema, rotate_bytes, rotate_seconds, on_loss)

        self._impressions = journal("impressions", IMPRESSIONS)
        self._feedback = journal("feedback", FEEDBACK)
        self._items = journal("items", ITEMS)
        self._written: dict[Id, int] = {}
        self._clicked: dict[str, None] = {}

    def shown(self, shown: Impression) -> Future[None] | None:
        kinds = set(map(type, shown.candidates))
        texts = kinds == {str}  # the usual case: nothing to rewrite
        moment = moment_of(shown.request_id)
        row = {
            "request_id": shown.request_id,
            "user_id": None if shown.user_id is None else str(shown.user_id),
            "candidates": shown.candidates if texts else [str(each) for each in shown.candidates],
            "card": shown.card if texts else [str(each) for each in shown.card],
            "propensity": shown.propensity,
            "timestamp": time.time_ns() // 1000 if moment is None else moment,
            "arm": shown.arm,
            "model": shown.model,
            "value": shown.value,
            "integer_users": None if shown.user_id is None else isinstance(shown.user_id, int),
            "integer_items": kinds == {int},
        }
        if shown.columns:
            categories = {name for name, values in shown.columns.items() if str in map(type, values)}
            row["columns"] = to_json(shown.columns, inf_nan_mode="null").decode()
            row["numbers"] = [name for name in shown.columns if name not in categories]
            row["categories"] = sorted(categories)
        if shown.context:
            row["context"] = to_json(shown.context, inf_nan_mode="null").decode()
        return self._impressions.append(row)

    def described(self, items: Sequence[Mapping[str, Any]]) -> Future[None] | None:
        """Keep what came inline about items, once per content; the future is of the last of them."""
        late: Future[None] | None = None
        for item in items:
            content = json.dumps(item, sort_keys=True)
            known = hash(content)
            if self._written.get(item["item_id"]) == known:
                continue
            if len(self._written) >= KNOWN_ITEMS:
                self._written.clear()
            self._written[item["item_id"]] = known
            texts = {name: item[name] for name in ("title", "category") if isinstance(item.get(name), str)}
            kept = ("item_id", "features", *texts)
            rest = {name: value for name, value in item.items() if name not in kept}
            row = {"item_id": str(item["item_id"]), **texts, "features": item.get("features")}
            row |= {"attributes": json.dumps(rest, sort_keys=True), "timestamp": time.time_ns() // 1000}
            late = self._items.append(row)
        return late

    def answered(
        self, request_id: str, clicked: bool, clicked_item: Id | None, reward: float | None = None
    ) -> Future[None]:
        """Keep feedback; done when it is on the disk."""
        if clicked:
            self._clicked[request_id] = None
            if len(self._clicked) > KNOWN_CLICKS:
                del self._clicked[next(iter(self._clicked))]
        named = None if clicked_item is None else str(clicked_item)
        moment = time.time_ns() // 1000
        return self._feedback.append_durably({
            "request_id": request_id, "clicked": clicked, "clicked_item": named, "timestamp": moment, "reward": reward,
        })  # fmt: skip

    def has_click(self, request_id: str) -> bool:
        """Whether this process was told of a click on the same request lately."""
        return request_id in self._clicked

    def close(self) -> None:
        """Flush and rotate everything."""
        for journal in (self._impressions, self._feedback, self._items):
            journal.close()


_MARKS = {CHAMPION: "a", CHALLENGER: "b"}
HEAD = 26  # time, chance and arm
PRINT = 4  # hex digits of one item
CHECK = 6  # hex digits over all that stands before them

_drawn: list[str] = []
os.register_at_fork(after_in_child=_drawn.clear)  # parent and child must not use the same


def _draw() -> str:
    """48 random bits as hex; the system is asked for many at once."""
    if not _drawn:
        drawn = os.urandom(6 * 512).hex()
        _drawn.extend(drawn[start : start + 12] for start in range(0, len(drawn), 12))
    return _drawn.pop()


def new_request_id(arm: str, card: Sequence[int | str]) -> str:
    """Sorts by time; 48 random bits keep processes apart."""
    head = f"{time.time_ns() // 1000:013x}{_draw()}{_MARKS[arm]}"
    body = head + "".join([_hash(head, str(item), PRINT) for item in card])
    return body + _hash("", body, CHECK)


def is_ours(request_id: str) -> bool:
    """Whether the id was made by this kind of service and came back whole."""
    prints = len(request_id) - HEAD - CHECK
    whole = prints > 0 and prints % PRINT == 0
    return whole and request_id[-CHECK:] == _hash("", request_id[:-CHECK], CHECK)


def is_on_card(request_id: str, item: int | str) -> bool:
    """Whether an item was on the card of one of our ids."""
    head, prints = request_id[:HEAD], request_id[HEAD:-CHECK]
    wanted = _hash(head, str(item), PRINT)
    return any(prints[at : at + PRINT] == wanted for at in range(0, len(prints), PRINT))


def moment_of(request_id: str) -> int | None:
    """When one of our ids was made, in microseconds since 1970; None of any other."""
    return int(request_id[:13], 16) if is_ours(request_id) else None


def arm_in(request_id: str) -> str:
    """The arm a request id speaks of; an id that is not ours counts as unknown."""
    if is_ours(request_id):
        for arm, mark in _MARKS.items():
            if request_id[HEAD - 1] == mark:
                return arm
    return "unknown"


def _hash(salt: str, text: str, digits: int) -> str:
    return blake2b(f"{salt}\0{text}".encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()[:digits]
