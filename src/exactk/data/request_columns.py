"""The columns of requests as the arrays of a batch: what was sent along, what the catalogue knows, counts so far.

Knows requests and a vocabulary's columns, no log; the same values give the same arrays as a logged row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
from jaxtyping import Bool, Float32, Int32

from exactk.data.catalogue import Catalogue
from exactk.data.categories import category_text
from exactk.data.fitted import FittedCategories, FittedColumns
from exactk.data.item_columns import ItemColumns, value_hashes
from exactk.data.logged_columns import gap_levels
from exactk.data.pairs import PairInputs, pair_values
from exactk.data.rolling import RollingCounts
from exactk.errors import InputError
from exactk.problem.rules.columns import is_missing

SENT_MEASURES = ("score", "position")  # a reward is known only afterwards
_LARGEST = float(np.finfo(np.float32).max)


@runtime_checkable
class RequestLike(Protocol):
    """What is read of a request."""

    @property
    def user_id(self) -> Any: ...
    @property
    def candidates(self) -> tuple[Any, ...]: ...
    @property
    def attributes(self) -> Mapping[Any, Mapping[str, Any]]: ...
    @property
    def context(self) -> Mapping[str, Any]: ...


def request_columns(
    requests: Sequence[RequestLike],
    rows: Sequence[Sequence[int]],
    present: Bool[np.ndarray, "B N"],
    fitted: FittedColumns,
    known: Catalogue,
    counts: RollingCounts | None = None,
) -> dict[str, np.ndarray]:
    """Fields of a batch by name, only those the vocabulary has columns for; `rows` are those of the catalogue."""
    if not fitted:
        return {}
    N = present.shape[1]
    found: dict[str, np.ndarray] = {}
    if len(fitted.candidate_numbers):
        found["candidate_numbers"] = _candidate_numbers(requests, N, fitted, counts)
    for name in (name for name in SENT_MEASURES if name in fitted.measured.names):
        found[name] = _sent_numbers(requests, N, (name,))[..., 0]
    texts = _sent_categories(requests, N, fitted.candidate_categories.names)
    if len(fitted.candidate_categories):
        found["candidate_categories"] = _coded(fitted.candidate_categories, texts).reshape(*present.shape, -1)
    if len(fitted.context_numbers):
        names = fitted.context_numbers.names
        found["context_numbers"] = np.array(
            [
                [_number(request.context.get(name), name, b) for name in names]
                for b, request in enumerate(requests)
            ],
            np.float32,
        )
    if len(fitted.context_categories):
        names = fitted.context_categories.names
        sent = [[category_text(request.context.get(name), name) for request in requests] for name in names]
        found["context_categories"] = _coded(fitted.context_categories, sent)
    if len(fitted.user_categories):
        said = [
            [_of_user(request, name, known) for request in requests] for name in fitted.user_categories.names
        ]
        found["user_categories"] = _coded(fitted.user_categories, said)
    if len(fitted.item_categories) or fitted.vector_size or fitted.pair_features:
        items = _items(requests, rows, N, fitted, known)
        if len(fitted.item_categories):
            found["item_categories"] = items.codes.reshape(*present.shape, -1)
        if fitted.vector_size:
            found["item_vectors"] = items.vectors.reshape(*present.shape, -1)
        if fitted.pair_features:
            found["pair_features"] = _pairs(items, texts, present, fitted, found)
    return found


def _candidate_numbers(
    requests: Sequence[RequestLike], N: int, fitted: FittedColumns, counts: RollingCounts | None
) -> Float32[np.ndarray, "B N F"]:
    """What was sent; counts so far that were not sent are looked up."""
    numbers = _sent_numbers(requests, N, fitted.candidate_numbers.names)
    if counts is None or not fitted.rolling:
        return numbers
    kept = [counts.names.index(name) for name in fitted.rolling if name in counts.names]
    places = [fitted.candidate_numbers.names.index(name) for name in fitted.rolling if name in counts.names]
    for b, request in enumerate(requests):
        size = len(request.candidates)
        own = numbers[b, :size][:, places]
        rolled = counts.lookup(request.user_id, request.candidates)[:, kept]
        numbers[b, :size, places] = np.where(np.isnan(own), rolled, own).T
    return numbers


def _sent_numbers(
    requests: Sequence[RequestLike], N: int, names: Sequence[str]
) -> Float32[np.ndarray, "B N F"]:
    out = np.full((len(requests), N, len(names)), np.nan, np.float32)
    for b, request in enumerate(requests):
        for n, item_id in enumerate(request.candidates):
            sent = request.attributes.get(item_id)
            if sent:
                for f, name in enumerate(names):
                    if name in sent:
                        out[b, n, f] = _number(sent[name], f"{name} of item {item_id!r}", b)
    return out


def _sent_categories(requests: Sequence[RequestLike], N: int, names: Sequence[str]) -> list[list[str | None]]:
    """By column, all candidates of all requests end to end."""
    columns: list[list[str | None]] = [[None] * (len(requests) * N) for _ in names]
    for b, request in enumerate(requests):
        for n, item_id in enumerate(request.candidates):
            sent = request.attributes.get(item_id)
            if sent:
                for column, name in zip(columns, names, strict=True):
                    column[b * N + n] = category_text(
                        sent.get(name), f"request {b}: {name} of item {item_id!r}"
                    )
    return columns


def _number(value: Any, what: str, b: int) -> float:
    if type(value) in (float, int, bool) and -_LARGEST <= value <= _LARGEST:  # nearly always
        return float(value)
    if is_missing(value):
        return float("nan")
    try:
        number = float(value) if not isinstance(value, str | complex) else None
    except (TypeError, ValueError, OverflowError):
        number = None
    if number is None or abs(number) > _LARGEST:
        raise InputError(f"request {b}: {what} must be a number, got {value!r}")
    return number


def _coded(categories: FittedCategories, columns: list[list[str | None]]) -> Int32[np.ndarray, "R C"]:
    codes = [categories.few_codes(f, column) for f, column in enumerate(columns)]
    return np.array(codes, np.int32).T.copy()


def _of_user(request: RequestLike, name: str, known: Catalogue) -> str | None:
    """A user's category: as sent with the context, else as the catalogue knows it."""
    if name in request.context:
        return category_text(request.context[name], name)
    return category_text(known.user_attribute(name, known.user_row(request.user_id)), name)


def _items(
    requests: Sequence[RequestLike],
    rows: Sequence[Sequence[int]],
    N: int,
    fitted: FittedColumns,
    known: Catalogue,
) -> ItemColumns:
    """Of all candidates of all requests end to end: the catalogue's, and over it what was sent."""
    flat = np.full(len(requests) * N, -1, np.int64)
    sent: dict[int, dict[str, Any]] = {}
    names = {*fitted.columns.item.names}
    for b, request in enumerate(requests):
        flat[b * N : b * N + len(rows[b])] = rows[b]
        for n, item_id in enumerate(request.candidates):
            given = request.attributes.get(item_id)
            if given and not names.isdisjoint(given):
                sent[b * N + n] = {name: given[name] for name in names & given.keys()}
    items = known.item_columns(fitted).taken(flat)
    if not sent:
        return items
    places = np.array(list(sent))
    own = _sent_items(sent, flat, fitted, known)
    index = np.arange(len(flat))
    index[places] = len(flat) + np.arange(len(places))
    return items.followed_by(own).taken(index)


def _sent_items(
    sent: Mapping[int, Mapping[str, Any]], flat: np.ndarray, fitted: FittedColumns, known: Catalogue
) -> ItemColumns:
    """Items of which something was sent, as rows of a table of their own."""
    columns: dict[str, pa.Array] = {}
    item = fitted.columns.item
    for name in (*item.categories, *item.texts, *item.vectors):
        held = known.attribute(name, [int(flat[place]) for place in sent])
        values = [given.get(name, old) for given, old in zip(sent.values(), held, strict=True)]
        if name in item.categories:
            columns[name] = pa.array([category_text(value, name) for value in values], pa.string())
        else:
            columns[name] = _sent_column(name, values, name in item.vectors)
    features = np.full((len(sent), len(fitted.item_numbers)), np.nan, np.float32)
    for at, (place, given) in enumerate(sent.items()):
        row = int(flat[place])
        if row >= 0 and known.item_features.shape[1] == features.shape[1]:
            features[at] = known.item_features[row]
        for f, name in enumerate(fitted.item_numbers.names):
            if name in given:
                features[at, f] = _number(given[name], name, 0)
    table = pa.table(columns) if columns else pa.table({"item_id": pa.nulls(len(sent))})
    return ItemColumns.of(table, fitted, features)


def _sent_column(name: str, values: list[Any], vectors: bool) -> pa.Array:
    try:
        if vectors:
            return pa.array(values, pa.list_(pa.float32()))
        lists = any(isinstance(value, list | tuple) for value in values)
        return pa.array([[value] if lists and isinstance(value, str) else value for value in values],
                        pa.list_(pa.string()) if lists else pa.string())  # fmt: skip
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        kind = "vectors (lists of numbers)" if vectors else "texts"
        raise InputError(f"{name} must hold {kind}: {error}") from error


def _pairs(
    items: ItemColumns,
    texts: list[list[str | None]],
    present: Bool[np.ndarray, "B N"],
    fitted: FittedColumns,
    found: dict[str, np.ndarray],
) -> Float32[np.ndarray, "B N N P"]:
    shape = present.shape
    names = fitted.candidate_categories.names
    inputs = PairInputs(
        codes={name: held.reshape(shape) for name, held in items.hashes.items()}
        | {name: value_hashes(pa.array(column, pa.string())).reshape(shape)
           for name, column in zip(names, texts, strict=True)},
        vectors={name: found["item_vectors"][..., part] for name, part in fitted.vector_slices.items()},
        levels={name: held.reshape(shape) for name, held in items.levels.items()}
        | gap_levels(fitted, fitted.pair_features, found),
        words={name: (held, fitted.texts[name].idf) for name, held in items.words.items()},
        text_rows=np.where(present, np.arange(present.size).reshape(shape), -1),
    )  # fmt: skip
    return pair_values(fitted.pair_features, inputs, present)


def named_numbers(
    sent: Mapping[str, Any], names: Sequence[str], raw: Float32[np.ndarray, "F"], b: int
) -> None:
    """Set those numbers of an item, or of a user, that were sent by name."""
    for f, name in enumerate(names):
        if name in sent:
            raw[f] = _number(sent[name], name, b)
