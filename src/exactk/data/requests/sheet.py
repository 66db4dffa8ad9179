"""Requests side by side: who asks for what, which rows of a catalogue that is, what was said of candidates.

Knows ids and values as callers hold them, no vocabulary's codes. Requests come as objects, each with values of its own,
or as the columns of a table; both read the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from jaxtyping import Bool, Float32, Int64

from exactk.data.columns.codes import category_text, category_texts, keys_of_column
from exactk.data.columns.vocabulary import Vocabulary
from exactk.data.requests import Request, RequestTable
from exactk.data.requests.catalogue import Catalogue
from exactk.data.table import codes_of, is_number
from exactk.errors import InputError
from exactk.problem.rules.columns import is_missing
from exactk.problem.ties import tie_keys

LARGEST = float(np.finfo(np.float32).max)
_PLAIN = {float, int, bool, type(None)}


class _NotSent:
    """Stands where nothing was sent: other than None, which says that nothing is known."""


NOT_SENT = _NotSent()


class SaidNumbers(NamedTuple):
    """Which entries say a number (or that none is known) under a name, and the numbers, NaN where none is known."""

    at: Int64[np.ndarray, "S"]
    numbers: Float32[np.ndarray, "S"]


class SentMappings:
    """What requests say of their candidates, an object each."""

    def __init__(self, requests: Sequence[Request], N: int) -> None:
        self._maps: list[Mapping[str, Any]] = []
        self._where: list[tuple[int, Any]] = []
        places: list[int] = []
        for b, request in enumerate(requests):
            if not request.attributes:
                continue
            for n, item_id in enumerate(request.candidates):
                if sent := request.attributes.get(item_id):
                    self._maps.append(sent)
                    self._where.append((b, item_id))
                    places.append(b * N + n)
        self.places = np.array(places, np.int64)
        self.names = frozenset().union(*self._maps)

    def numbers(self, name: str) -> Float32[np.ndarray, "S"]:
        """NaN where missing or not sent."""
        return numbers_of([sent.get(name) for sent in self._maps], lambda at: self.label(name, at))

    def said_numbers(self, name: str) -> SaidNumbers:
        """Of those entries alone that have the name."""
        at = [place for place, sent in enumerate(self._maps) if name in sent]
        numbers = numbers_of([self._maps[place][name] for place in at], lambda n: self.label(name, at[n]))
        return SaidNumbers(np.array(at, np.int64), numbers)

    def texts(self, name: str) -> list[str | None]:
        """Category texts, None where missing or not sent."""
        return [self._text(sent.get(name), name, at) for at, sent in enumerate(self._maps)]

    def values(self, name: str) -> list[Any]:
        """As they were sent."""
        return [sent.get(name, NOT_SENT) for sent in self._maps]

    def alike(self, names: Sequence[str]) -> Int64[np.ndarray, "S"]:  # noqa: ARG002 - each is taken for its own
        """Equal numbers where all of these are: few entries, not worth comparing."""
        return np.arange(len(self._maps))

    def label(self, name: str, at: int) -> str:
        """How messages name a value."""
        b, item_id = self._where[at]
        return f"request {b}: {name} of item {item_id!r}"

    def _text(self, value: Any, name: str, at: int) -> str | None:
        if type(value) is str and value:
            return value
        try:
            return category_text(value, name)
        except InputError:
            label = self.label(name, at)
            raise InputError(f"{label} must be text, a whole number or a flag, got {value!r:.80}") from None


class SentColumns:
    """The columns of a table of requests: of every candidate in turn."""

    def __init__(self, columns: Mapping[str, pa.Array], present: Bool[np.ndarray, "B N"]) -> None:
        self._columns = columns
        self.names = frozenset(columns)
        self.places = np.flatnonzero(present)

    def numbers(self, name: str) -> Float32[np.ndarray, "S"]:
        """NaN where missing."""
        column = self._columns[name]
        kind = column.type
        if pa.types.is_boolean(kind):
            column = column.cast(pa.uint8())
        elif not (is_number(kind) or pa.types.is_decimal(kind) or pa.types.is_null(kind)):
            raise InputError(f"column '{name}' must hold numbers, it holds {kind}")
        with np.errstate(over="ignore"):
            numbers = np.asarray(column.cast(pa.float64(), safe=False)).astype(np.float32)
        return np.where(np.isinf(numbers), np.float32(np.nan), numbers)

    def said_numbers(self, name: str) -> SaidNumbers:
        """A missing value of a table says nothing."""
        numbers = self.numbers(name)
        at = np.flatnonzero(~np.isnan(numbers))
        return SaidNumbers(at, numbers[at])

    def texts(self, name: str) -> pa.Array:
        """Category texts, null where missing."""
        return category_texts(self._columns[name], f"column '{name}'")

    def values(self, name: str) -> list[Any]:
        """A missing value of a table says nothing."""
        return [NOT_SENT if value is None else value for value in self._columns[name].to_pylist()]

    def alike(self, names: Sequence[str]) -> Int64[np.ndarray, "S"]:
        """Equal numbers where all of these are: the same item stands in request after request."""
        code = np.zeros(len(self.places), np.int64)
        for name in names:
            own = codes_of(self._columns[name])
            code = np.unique(code * (int(own.max(initial=0)) + 1) + own, return_inverse=True)[1]
        return code

    def label(self, name: str, at: int) -> str:
        """How messages name a value."""
        return f"column '{name}', candidate {at} of these rows,"


class IdLists:
    """The candidates' ids, a list for each request."""

    def __init__(self, lists: Sequence[Sequence[Any]]) -> None:
        self.lists = lists

    def fit(self, expected: type) -> bool:
        """Whether all are of this type."""
        return all({*map(type, ids)} <= {expected} for ids in self.lists)

    def indices(self, vocabulary: Vocabulary) -> list[int]:
        """Of all candidates end to end; an id of the wrong type is refused."""
        return [index for ids in self.lists for index in vocabulary.item_index(ids)]

    def tie_keys(self) -> Int64[np.ndarray, "C"]:
        """What settles ties, end to end."""
        return tie_keys(objects([item for ids in self.lists for item in ids]))


class IdColumn:
    """The same, end to end in one column."""

    def __init__(self, column: pa.Array, counts: Int64[np.ndarray, "B"]) -> None:
        self._column, self._counts = column, counts

    @cached_property
    def lists(self) -> Sequence[Sequence[Any]]:
        """A list for each request."""
        listed, ends = self._column.to_pylist(), np.cumsum(self._counts).tolist()
        return [listed[first:last] for first, last in zip([0, *ends], ends, strict=False)]

    def fit(self, expected: type) -> bool:
        """Whether all are of this type."""
        return (int if pa.types.is_integer(self._column.type) else str) is expected

    def indices(self, vocabulary: Vocabulary) -> Int64[np.ndarray, "C"]:
        """Of all candidates; a column of the wrong type is refused by its first id."""
        expected = vocabulary.item_type
        if expected is not None and not self.fit(expected):
            vocabulary.item_index(self._column.slice(0, 1).to_pylist())
        return vocabulary.index_items(self._column)

    def tie_keys(self) -> Int64[np.ndarray, "C"]:
        """What settles ties."""
        return keys_of_column(self._column)


def objects(values: Sequence[Any]) -> np.ndarray:
    """An array of Python's own values."""
    held = np.empty(len(values), object)
    held[:] = [value.item() if isinstance(value, np.generic) else value for value in values]
    return held


def numbers_of(values: Sequence[Any], label: Callable[[int], str]) -> Float32[np.ndarray, "S"]:
    """Values as numbers, NaN where missing; text is none, and what is refused is named."""
    if set(map(type, values)) <= _PLAIN:
        try:
            held = np.array(values, np.float64)  # None becomes NaN
        except OverflowError:
            held = np.full(len(values), np.inf)
        if not (np.abs(held) > LARGEST).any():
            return held.astype(np.float32)
    return np.array([number_of(value, label(at)) for at, value in enumerate(values)], np.float32)


def number_of(value: Any, label: str) -> float:
    """One value as a number, NaN where missing."""
    if value is NOT_SENT or is_missing(value):
        return float("nan")
    try:
        number = float(value) if not isinstance(value, str | bytes | complex) else None
    except (TypeError, ValueError, OverflowError):
        number = None
    if number is None or abs(number) > LARGEST:
        raise InputError(f"{label} must be a number, got {value!r:.80}")
    return number


@dataclass(frozen=True, eq=False)
class RequestSheet:
    """B requests of at most N candidates. `row` is that of the catalogue, -1 where it knows none or nobody is."""

    users: Sequence[Any]
    user_row: Int64[np.ndarray, "B"]
    row: Int64[np.ndarray, "B N"]
    present: Bool[np.ndarray, "B N"]
    card_size: Int64[np.ndarray, "B"]
    contexts: Sequence[Mapping[str, Any]]
    sent: SentMappings | SentColumns  # `places` are the cells b * N + n of which something is said
    candidates: IdLists | IdColumn
    all_known: bool  # the catalogue has every candidate
    include: Sequence[Sequence[Any]] | None = None
    exclude: Sequence[Sequence[Any]] | None = None
    user_features: Mapping[int, Sequence[Any]] | None = None  # of the requests that sent some

    @cached_property
    def ids(self) -> np.ndarray:
        """Ids of the candidates, None where nobody is."""
        held = np.full(self.present.shape, None, object)
        for b, candidates in enumerate(self.candidates.lists):
            held[b, : len(candidates)] = objects(candidates)
        return held

    def context_values(self, name: str) -> list[Any]:
        """What every request says under this name of itself, None where it does not."""
        return [context.get(name) for context in self.contexts]


def sheet_of(requests: Sequence[Request], known: Catalogue) -> RequestSheet:
    """Requests as they come from Python, JSON or HTTP, or from the columns of a table."""
    if not len(requests):
        raise InputError("there is no request to answer")
    if isinstance(requests, RequestTable):
        return _sheet_of_table(requests, known)
    listed = [request.candidates for request in requests]
    counts = np.array([*map(len, listed)])
    row = np.full((len(requests), max(1, int(counts.max()))), -1, np.int64)
    for b, candidates in enumerate(listed):
        row[b, : len(candidates)] = known.item_rows(candidates)
    N = row.shape[1]
    present = np.arange(N) < counts[:, None]
    features = {b: r.user_features for b, r in enumerate(requests) if r.user_features is not None}
    return RequestSheet(
        users=[request.user_id for request in requests],
        user_row=np.array([known.user_row(request.user_id) for request in requests], np.int64),
        row=row,
        present=present,
        card_size=np.array([request.k for request in requests]),
        contexts=[request.context for request in requests],
        sent=SentMappings(requests, N),
        candidates=IdLists(listed),
        all_known=bool(((row >= 0) == present).all()),
        include=_wishes([request.include for request in requests]),
        exclude=_wishes([request.exclude for request in requests]),
        user_features=features,
    )


def _sheet_of_table(requests: RequestTable, known: Catalogue) -> RequestSheet:
    counts, users = requests.counts, requests.users
    present = np.arange(max(1, int(counts.max()))) < counts[:, None]
    row = np.full(present.shape, -1, np.int64)
    row[present] = known.rows_of(requests.item_ids)
    return RequestSheet(
        users=users,
        user_row=np.array([*map(known.user_row, users)], np.int64),
        row=row,
        present=present,
        card_size=requests.card_size,
        contexts=requests.contexts,
        sent=SentColumns(requests.sent, present),
        candidates=IdColumn(requests.item_ids, counts),
        all_known=bool(((row >= 0) == present).all()),
        include=requests.wishes("include"),
        exclude=requests.wishes("exclude"),
    )


def _wishes(wishes: list[tuple[Any, ...]]) -> list[tuple[Any, ...]] | None:
    return wishes if any(wishes) else None
