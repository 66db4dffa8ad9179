"""Request: one question at serving time, as it comes from Python or JSON.

Knows no log. Unknown ids are no error: index 0, plus whatever attributes and features came along.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from exactk.errors import InputError

LARGEST = 2**63  # ids that are numbers are kept in 64 bits
REQUEST_FIELDS = {"user_id", "candidates", "k", "include", "exclude", "user_features", "context"}


@dataclass(frozen=True)
class Request:
    """Candidates for one user, of whom exactly `k` make the card.

    `attributes` holds what was sent along for some items, by id: fields that rules read, the log's columns by name,
    and "features". `context` holds what is true of the request: the log's columns of context, and of users, by name.
    Names that a model does not know are left aside; what it knows and was not sent is missing, a value of its own.
    """

    user_id: Any
    candidates: tuple[Any, ...]
    k: int
    include: tuple[Any, ...] = ()
    exclude: tuple[Any, ...] = ()
    attributes: Mapping[Any, Mapping[str, Any]] = field(default_factory=dict)
    user_features: tuple[Any, ...] | None = None
    context: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, written: Mapping[str, Any], k: int | None = None) -> Request:
        """From JSON: candidates are ids, or objects with an `item_id` and anything else known of the item."""
        unknown = set(written) - REQUEST_FIELDS
        if unknown:
            raise InputError(
                f"a request has no field {sorted(unknown)[0]!r}; it has {', '.join(sorted(REQUEST_FIELDS))}"
            )
        candidates = written.get("candidates")
        if isinstance(candidates, str) or not isinstance(candidates, Sequence):
            raise InputError(f"candidates must be a list of items, got {candidates!r}")
        ids, attributes = read_candidates(candidates)
        size = written.get("k", k)
        if isinstance(size, bool) or not isinstance(size, int):
            raise InputError(f"k must be a whole number, got {size!r}")
        for value in (written.get("user_id"), *ids):
            if isinstance(value, int) and not -LARGEST <= value < LARGEST:
                raise InputError(f"an id of {value.bit_length()} bits is beyond 64; send it as text")
        context = written.get("context")
        if context is not None and not isinstance(context, Mapping):
            raise InputError(f"context must be an object of names and values, got {context!r}")
        return cls(
            user_id=written.get("user_id"),
            candidates=ids,
            k=size,
            include=_listed(written, "include") or (),
            exclude=_listed(written, "exclude") or (),
            attributes=attributes,
            user_features=_listed(written, "user_features"),
            context=dict(context or {}),
        )


def _listed(written: Mapping[str, Any], name: str) -> tuple[Any, ...] | None:
    value = written.get(name)
    if value is None:
        return None
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise InputError(f"{name} must be a list, got {value!r:.80}")
    return tuple(value)


def read_candidates(candidates: Iterable[Any]) -> tuple[tuple[Any, ...], dict[Any, dict[str, Any]]]:
    """Ids, or mappings with an `item_id` and anything else known of the item, mixed as one likes."""
    ids: list[Any] = []
    attributes: dict[Any, dict[str, Any]] = {}
    for place, candidate in enumerate(candidates):
        item_id = candidate
        if isinstance(candidate, Mapping):
            if "item_id" not in candidate:
                raise InputError(f"candidate {place} has no item_id")
            item_id = _plain(candidate["item_id"])
            if not isinstance(item_id, str | int):
                raise InputError(
                    f"candidate {place}: item_id must be a number or a text, got {item_id!r:.80}"
                )
            attributes[item_id] = {name: value for name, value in candidate.items() if name != "item_id"}
        ids.append(_plain(item_id))
    return tuple(ids), attributes


def _plain(item_id: Any) -> Any:
    return item_id.item() if isinstance(item_id, np.generic) else item_id
