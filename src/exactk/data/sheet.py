"""Requests side by side, as columns: who asks for what, which rows of a catalogue that is, what was sent along.

Knows ids and values as callers hold them, no vocabulary. Requests come as objects, each with values of its own, or as
the columns of a table; both read the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from jaxtyping import Bool, Float32, Int64

from exactk.data.catalogue import Catalogue
from exactk.data.requests import Request
from exactk.errors import InputError
from exactk.problem.rules.columns import is_missing

LARGEST = float(np.finfo(np.float32).max)
_PLAIN = {float, int, bool, type(None)}


class _NotSent:
    """Stands where nothing was sent: other than None, which says that nothing is known."""


NOT_SENT = _NotSent()


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
        return numbers_of(
            [sent.get(name) for sent in self._maps],
            lambda at: self.label(name, at),
        )

    def values(self, name: str) -> list[Any]:
        """As they were sent."""
        return [sent.get(name, NOT_SENT) for sent in self._maps]

    def label(self, name: str, at: int) -> str:
        """How messages name a value."""
        b, item_id = self._where[at]
        return f"request {b}: {name} of item {item_id!r}"


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
        if not (
            pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
            or pa.types.is_decimal(kind) or pa.types.is_null(kind)
        ):  # fmt: skip
            raise InputError(f"column '{name}' must hold numbers, it holds {kind}")
        if pa.types.is_boolean(kind):
            column = column.cast(pa.uint8())
        held = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        with np.errstate(over="ignore"):
            numbers = held.astype(np.float32)
        return np.where(np.isinf(numbers), np.float32(np.nan), numbers)

    def values(self, name: str) -> list[Any]:
        """A missing value of a table says nothing."""
        return [NOT_SENT if value is None else value for value in self._columns[name].to_pylist()]

    def label(self, name: str, at: int) -> str:
        """How messages name a value."""
        return f"column '{name}', candidate {at} of these rows,"


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
    listed: Sequence[Sequence[Any]]  # the candidates' ids, request by request
    all_known: bool  # the catalogue has every candidate
    include: Sequence[Sequence[Any]] | None = None
    exclude: Sequence[Sequence[Any]] | None = None
    user_features: Mapping[int, Sequence[Any]] | None = None  # of the requests that sent some

    @cached_property
    def ids(self) -> np.ndarray:
        """Ids of the candidates, None where nobody is."""
        held = np.full(self.present.shape, None, object)
        for b, candidates in enumerate(self.listed):
            held[b, : len(candidates)] = [
                item.item() if isinstance(item, np.generic) else item for item in candidates
            ]
        return held

    def context_values(self, name: str) -> list[Any]:
        """What every request says under this name of itself, None where it does not."""
        return [context.get(name) for context in self.contexts]


def sheet_of(requests: Sequence[Request], known: Catalogue) -> RequestSheet:
    """Requests as they come from Python, JSON or HTTP."""
    if not requests:
        raise InputError("there is no request to answer")
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
        listed=listed,
        all_known=bool(((row >= 0) == present).all()),
        include=_wishes([request.include for request in requests]),
        exclude=_wishes([request.exclude for request in requests]),
        user_features=features,
    )


def _wishes(wishes: list[tuple[Any, ...]]) -> list[tuple[Any, ...]] | None:
    return wishes if any(wishes) else None


def numbers_of(values: Sequence[Any], label: Callable[[int], str]) -> Float32[np.ndarray, "S"]:
    """Values as numbers, NaN where missing; text is none, and what is refused is named."""
    if set(map(type, values)) <= _PLAIN:
        try:
            held = np.array(values, np.float64)  # None becomes NaN
        except OverflowError:
            held = np.full(len(values), np.inf)
        if not (np.abs(held) > LARGEST).any():
            return held.astype(np.float32)
    return np.array([_number(value, label, at) for at, value in enumerate(values)], np.float32)


def _number(value: Any, label: Callable[[int], str], at: int) -> float:
    if value is NOT_SENT or is_missing(value):
        return float("nan")
    try:
        number = float(value) if not isinstance(value, str | bytes | complex) else None
    except (TypeError, ValueError, OverflowError):
        number = None
    if number is None or abs(number) > LARGEST:
        raise InputError(f"{label(at)} must be a number, got {value!r:.80}")
    return number
