"""Request: one question at serving time, as it comes from Python or JSON; and many, as the columns of a table.

Knows no log and no vocabulary; beside it lies what makes a batch of requests, and the catalogue of what is known of
items. Unknown ids are no error: index 0, plus whatever attributes and features came along.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Bool, Int64

from exactk.data.columns import bare_name, is_of_candidates
from exactk.data.table import codes_of, combine, flatten, owners
from exactk.errors import InputError

LARGEST = 2**63  # ids that are numbers are kept in 64 bits
REQUEST_FIELDS = {"user_id", "candidates", "k", "include", "exclude", "user_features", "context"}
ROLES = ("request_id", "user_id", "candidates", "k", "include", "exclude")
CELLS = 1 << 23  # of graphs that are in memory together


@dataclass(frozen=True)
class Request:
    """The candidates of one request, for one user; exactly `k` of them make the card.

    `attributes` holds columns of the items, by id: those that rules read, those of the log by name, and "features".
    `context` holds columns of the request: those of the log's context and of its users, by name. A model ignores names
    that it does not know. A column that it knows and that was not sent counts as missing.
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
                wanted = "item_id must be a number or a text"
                raise InputError(f"candidate {place}: {wanted}, got {item_id!r:.80}")
            attributes[item_id] = {name: value for name, value in candidate.items() if name != "item_id"}
        ids.append(_plain(item_id))
    return tuple(ids), attributes


def _plain(item_id: Any) -> Any:
    return item_id.item() if isinstance(item_id, np.generic) else item_id


class RequestTable(Sequence[Request]):
    """B requests; `card_size` is that of those that name none.

    Beside the columns in `ROLES` stand "candidate.price", "item.brand", score and position, as lists as long as the
    candidates', and "context.device", "user.age", one value a request. A missing value says nothing.
    """

    def __init__(self, table: pa.Table, card_size: int) -> None:
        self.table, self._card_size = table, card_size

    def __len__(self) -> int:
        return len(self.table)

    @overload
    def __getitem__(self, place: int) -> Request: ...

    @overload
    def __getitem__(self, place: slice) -> RequestTable: ...

    def __getitem__(self, place: int | slice) -> Request | RequestTable:
        if isinstance(place, slice):
            first, last, _ = place.indices(len(self))
            return RequestTable(self.table.slice(first, max(0, last - first)), self._card_size)
        if not -len(self) <= place < len(self):
            raise IndexError(place)
        return self._request({name: self.table[name][place].as_py() for name in self.table.column_names})

    def __iter__(self) -> Iterator[Request]:
        return map(self._request, self.table.to_pylist())

    def take(self, places: Sequence[int] | Int64[np.ndarray, "P"]) -> RequestTable:
        """Some of them, in the order asked for."""
        return RequestTable(self.table.take(pa.array(places, pa.int64())), self._card_size)

    def parts(self, most: int) -> Iterator[RequestTable]:
        """All of them, a bounded number at a time: fewer where lists are long, whose pairs fill the memory."""
        first = 0
        while first < len(self):
            longest = np.maximum.accumulate(self.counts[first : first + most])
            cells = longest.astype(np.int64) ** 2 * np.arange(1, len(longest) + 1)
            last = first + max(1, int((cells <= CELLS).sum()))
            yield self[first:last]
            first = last

    @property
    def request_ids(self) -> list[Any]:
        """What the requests are called; by their place in the table where they have no names."""
        named = "request_id" in self.table.column_names
        return list(self.table["request_id"].to_pylist() if named else range(len(self)))

    @property
    def users(self) -> list[Any]:
        """Who asks, None where nobody says."""
        named = "user_id" in self.table.column_names
        return list(self.table["user_id"].to_pylist() if named else [None] * len(self))

    @cached_property
    def counts(self) -> Int64[np.ndarray, "B"]:
        """Candidates of each request."""
        return flatten(self.table["candidates"])[1]

    @cached_property
    def item_ids(self) -> pa.Array:
        """Candidates end to end."""
        return flatten(self.table["candidates"])[0]

    @cached_property
    def card_size(self) -> Int64[np.ndarray, "B"]:
        """K of each request."""
        if "k" not in self.table.column_names:
            return np.full(len(self), self._card_size, np.int64)
        return np.asarray(self.table["k"].cast(pa.int64()).fill_null(self._card_size), np.int64)

    def wishes(self, name: str) -> list[Any] | None:
        """`include` or `exclude` of each request; None where no request has any."""
        if name not in self.table.column_names:
            return None
        return [wished or () for wished in self.table[name].to_pylist()]

    @cached_property
    def sent(self) -> dict[str, pa.Array]:
        """What is said of the candidates, end to end, by name; what an item shares with a candidate is the latter's."""
        held: dict[str, pa.Array] = {}
        for name in self._of_candidates:
            values = flatten(self.table[name])[0]
            if name.startswith("item.") and pa.types.is_floating(values.type):
                values = pc.if_else(pc.is_nan(values), None, values)
            held.setdefault(bare_name(name), values)
        return held

    @cached_property
    def contexts(self) -> list[dict[str, Any]]:
        """What each request says of itself and of its user."""
        columns = {bare_name(name): self.table[name].to_pylist() for name in self._of_requests}
        rows = range(len(self))
        return [{name: held[b] for name, held in columns.items() if _is_known(held[b])} for b in rows]

    def faults(self) -> dict[int, str]:
        """Places of requests that cannot be answered, and why; no rule and no model is asked."""
        lists = combine(self.table["candidates"])
        reasons: dict[int, str] = {}

        def refuse(wrong: Bool[np.ndarray, "B"], reason: str) -> None:
            for place in np.flatnonzero(wrong).tolist():
                reasons.setdefault(place, reason)

        refuse(np.asarray(lists.is_null()), "there is no list of candidates")
        refuse(self.counts == 0, "there are no candidates")
        for name in self._of_candidates:
            wrong = flatten(self.table[name])[1] != self.counts
            refuse(wrong, f"{bare_name(name)}: its list is not as long as the candidates'")
        owner, missing = owners(self.counts), np.asarray(self.item_ids.is_null())
        refuse(np.bincount(owner[missing], minlength=len(self)) > 0, "a candidate has no id")
        code = codes_of(self.item_ids)
        order = np.lexsort((code, owner))
        twice = (np.diff(owner[order]) == 0) & (np.diff(code[order]) == 0)
        again = np.bincount(owner[order][1:][twice], minlength=len(self)) > 0
        refuse(again, "a candidate appears twice")
        refuse(self.card_size < 1, "k must be at least 1")
        for place in np.flatnonzero(self.card_size > self.counts).tolist():
            size, count = self.card_size[place], self.counts[place]
            reasons.setdefault(place, f"a card of {size} cannot be made of {count} candidates")
        return dict(sorted(reasons.items()))

    @cached_property
    def _of_candidates(self) -> list[str]:
        """Columns of candidates, those of their items last."""
        names = self.table.column_names
        return sorted(filter(is_of_candidates, names), key=lambda name: name.startswith("item."))

    @cached_property
    def _of_requests(self) -> list[str]:
        return [name for name in self.table.column_names if name.startswith(("context.", "user."))]

    def _request(self, row: dict[str, Any]) -> Request:
        """One row as anybody would send it."""
        ids = tuple(row["candidates"] or ())
        attributes: dict[Any, dict[str, Any]] = {}
        for name in self._of_candidates:
            for item_id, value in zip(ids, row[name] or (), strict=False):
                if _is_known(value):
                    attributes.setdefault(item_id, {}).setdefault(bare_name(name), value)
        return Request(
            row.get("user_id"),
            ids,
            self._card_size if row.get("k") is None else row["k"],
            tuple(row.get("include") or ()),
            tuple(row.get("exclude") or ()),
            attributes,
            context={bare_name(name): row[name] for name in self._of_requests if _is_known(row[name])},
        )


def _is_known(value: Any) -> bool:
    return value is not None and not (isinstance(value, float) and value != value)
