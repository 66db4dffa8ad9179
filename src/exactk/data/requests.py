"""Request: one question at serving time, as it comes from Python or JSON.

Knows no log. Unknown ids are no error: index 0, plus whatever attributes and features came along.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from exactk.errors import InputError

_FIELDS = {"user_id", "candidates", "k", "include", "exclude", "user_features", "context"}


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
        unknown = set(written) - _FIELDS
        if unknown:
            raise InputError(
                f"a request has no field {sorted(unknown)[0]!r}; it has {', '.join(sorted(_FIELDS))}"
            )
        candidates = written.get("candidates")
        if isinstance(candidates, str) or not isinstance(candidates, Sequence):
            raise InputError(f"candidates must be a list of items, got {candidates!r}")
        ids, attributes = [], {}
        for place, candidate in enumerate(candidates):
            if isinstance(candidate, Mapping):
                if "item_id" not in candidate:
                    raise InputError(f"candidate {place} has no item_id")
                ids.append(candidate["item_id"])
                if not isinstance(ids[-1], str | int):
                    raise InputError(
                        f"candidate {place}: item_id must be a number or a text, got {ids[-1]!r:.80}"
                    )
                attributes[ids[-1]] = {name: value for name, value in candidate.items() if name != "item_id"}
            else:
                ids.append(candidate)
        size = written.get("k", k)
        if isinstance(size, bool) or not isinstance(size, int):
            raise InputError(f"k must be a whole number, got {size!r}")
        features, context = written.get("user_features"), written.get("context")
        if context is not None and not isinstance(context, Mapping):
            raise InputError(f"context must be an object of names and values, got {context!r}")
        return cls(
            user_id=written.get("user_id"),
            candidates=tuple(ids),
            k=size,
            include=tuple(written.get("include") or ()),
            exclude=tuple(written.get("exclude") or ()),
            attributes=attributes,
            user_features=None if features is None else tuple(features),
            context=dict(context or {}),
        )
