"""The columns of requests as the arrays of a batch: what was sent along, what the catalogue knows, counts so far.

Knows a sheet of requests and a vocabulary's columns, no log; the same values give the same arrays as a logged row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from jaxtyping import Float32, Int32, Int64

from exactk.data.columns import SENT_MEASURES
from exactk.data.columns.codes import category_text
from exactk.data.columns.items import ItemColumns, pair_features_of, value_hashes
from exactk.data.columns.vocabulary import FittedCategories, FittedColumns
from exactk.data.requests.catalogue import Catalogue
from exactk.data.requests.sheet import NOT_SENT, RequestSheet, SaidNumbers, numbers_of
from exactk.data.rolling import RollingCounts
from exactk.errors import InputError

CategoryColumn: TypeAlias = "list[str | None] | pa.Array"  # of candidates; few as a list, many as a column


class RequestColumns:
    """What a vocabulary's columns make of requests; what depends on an item alone is read once from the catalogue."""

    def __init__(self, fitted: FittedColumns, known: Catalogue) -> None:
        self.fitted, self._known = fitted, known
        self._of_items = bool(len(fitted.item_categories) or fitted.vector_size or fitted.pair_features)
        # A name that candidates and items share, as a price now and the usual one, is said of the candidate.
        own = {*fitted.candidate_numbers.names, *fitted.candidate_categories.names}
        item = fitted.columns.item
        self.item_numbers = tuple(name for name in fitted.item_numbers.names if name not in own)
        self._own_names = (*item.categories, *item.texts, *item.vectors)
        self._item_names = tuple(name for name in self._own_names if name not in own)
        self._items: ItemColumns | None = None

    @property
    def candidate_names(self) -> tuple[str, ...]:
        """What may be said of a candidate in a request; of the item itself, see `item_names`."""
        fitted = self.fitted
        measures = [name for name in SENT_MEASURES if name in fitted.measured.names]
        logged = [fitted.columns.roles[name] for name in measures if name in fitted.columns.roles]
        return (*fitted.candidate_numbers.names, *fitted.candidate_categories.names, *measures, *logged)

    def arrays(self, sheet: RequestSheet, counts: RollingCounts | None = None) -> dict[str, np.ndarray]:
        """Fields of a batch by name, only those the vocabulary has columns for."""
        fitted = self.fitted
        if not fitted:
            return {}
        shape = sheet.present.shape
        found: dict[str, np.ndarray] = {}
        if len(fitted.candidate_numbers):
            found["candidate_numbers"] = self._candidate_numbers(sheet, counts)
        for name in (name for name in SENT_MEASURES if name in fitted.measured.names):
            logged = fitted.columns.roles.get(name, name)  # the log may call it otherwise
            spelled = name if name in sheet.sent.names else logged
            found[name] = _sent_numbers(sheet, (spelled,))[..., 0]
        texts = [_sent_texts(sheet, name) for name in fitted.candidate_categories.names]
        if texts:
            found["candidate_categories"] = _coded(fitted.candidate_categories, texts).reshape(*shape, -1)
        if len(fitted.context_numbers):
            held = [_context_numbers(sheet, name) for name in fitted.context_numbers.names]
            found["context_numbers"] = np.stack(held, -1)
        if len(fitted.context_categories):
            sent = [_context_texts(sheet, name) for name in fitted.context_categories.names]
            found["context_categories"] = _coded(fitted.context_categories, sent)
        if len(fitted.user_categories):
            said = [self._user_texts(sheet, name) for name in fitted.user_categories.names]
            found["user_categories"] = _coded(fitted.user_categories, said)
        if self._of_items:
            items, row = self._item_columns(sheet)
            if len(fitted.item_categories):
                found["item_categories"] = items.codes[row]
            if fitted.vector_size:
                found["item_vectors"] = items.vectors[row]
            if fitted.pair_features:
                own = {
                    name: value_hashes(pa.array(column, pa.string())).reshape(shape)
                    for name, column in zip(fitted.candidate_categories.names, texts, strict=True)
                }
                found["pair_features"] = pair_features_of(fitted, items, row, own, found, sheet.present)
        return found

    def _candidate_numbers(
        self, sheet: RequestSheet, counts: RollingCounts | None
    ) -> Float32[np.ndarray, "B N F"]:
        """What was sent; counts so far that were not sent are looked up."""
        names = self.fitted.candidate_numbers.names
        numbers = _sent_numbers(sheet, names)
        rolling = [name for name in self.fitted.rolling if counts is not None and name in counts.names]
        if counts is None or not rolling:
            return numbers
        kept = [counts.names.index(name) for name in rolling]
        places = [names.index(name) for name in rolling]
        for b, candidates in enumerate(sheet.candidates.lists):
            own = numbers[b, : len(candidates)][:, places]
            if np.isnan(own).any():
                rolled = counts.lookup(sheet.users[b], candidates)[:, kept]
                numbers[b, : len(candidates), places] = np.where(np.isnan(own), rolled, own).T
        return numbers

    def _user_texts(self, sheet: RequestSheet, name: str) -> list[str | None]:
        """A user's category: as sent with the context, else as the catalogue knows it."""
        known = self._known
        return [
            category_text(
                context[name] if name in context else known.user_attribute(name, int(sheet.user_row[b])),
                f"request {b}: {name}",
            )
            for b, context in enumerate(sheet.contexts)
        ]

    def _item_columns(self, sheet: RequestSheet) -> tuple[ItemColumns, Int64[np.ndarray, "B N"]]:
        """Of all candidates: a table, and the row of each in it; what was sent goes before what the catalogue knows."""
        if self._items is None:
            read = self._known.item_columns(self.fitted)
            size = len(self._known.items)
            self._items = read.taken(np.append(np.arange(size), -1))  # the last row is the unknown item's
        sent = sheet.sent
        values = {name: sent.values(name) for name in self._item_names if name in sent.names}
        numbers = {name: sent.said_numbers(name) for name in self.item_numbers if name in sent.names}
        said = np.zeros(len(sent.places), bool)
        for held in values.values():
            said |= [value is not NOT_SENT for value in held]
        for one in numbers.values():
            said[one.at] = True
        which, flat = np.flatnonzero(said), sheet.row.reshape(-1)
        if not len(which):
            return self._items, sheet.row
        unknown = len(self._known.items)
        code = sent.alike([*values, *numbers])[which] * (unknown + 1) + flat[sent.places[which]] + 1
        _, first, copies = np.unique(code, return_index=True, return_inverse=True)
        kept = which[first]
        known_row, names = flat[sent.places[kept]], self.fitted.item_numbers.names
        features = raw_features(self._known.item_features, flat[sent.places], len(names))
        set_numbers(features, names, numbers)
        chosen = {name: [held[at] for at in kept.tolist()] for name, held in values.items()}
        own = self._sent_items(chosen, features[kept], known_row)
        row = np.arange(len(flat))
        row[sent.places[which]] = len(flat) + copies
        items = self._items.taken(np.where(flat < 0, unknown, flat))
        return items.followed_by(own), row.reshape(sheet.row.shape)

    def _sent_items(
        self,
        values: Mapping[str, list[Any]],
        features: Float32[np.ndarray, "S F"],
        rows: Int64[np.ndarray, "S"],
    ) -> ItemColumns:
        """Items of which something was sent, as rows of a table of their own."""
        fitted, known = self.fitted, self._known
        columns: dict[str, pa.Array] = {}
        item = fitted.columns.item
        for name in self._own_names:
            merged = known.values(name)[rows].tolist()
            if name in values:
                both = zip(values[name], merged, strict=True)
                merged = [old if sent is NOT_SENT else sent for sent, old in both]
            if name in item.categories:
                columns[name] = pa.array([category_text(value, name) for value in merged], pa.string())
            else:
                columns[name] = _sent_column(name, merged, name in item.vectors)
        table = pa.table(columns) if columns else pa.table({"item_id": pa.nulls(len(rows))})
        return ItemColumns.of(table, fitted, features)


def raw_features(held: np.ndarray, rows: Int64[np.ndarray, "R"], size: int) -> Float32[np.ndarray, "R F"]:
    """Features as the catalogue has them; NaN where it has none."""
    raw = np.full((len(rows), size), np.nan, np.float32)
    if held.shape[1] == size:
        raw[rows >= 0] = held[rows[rows >= 0]]
    return raw


def set_numbers(
    raw: Float32[np.ndarray, "S F"], names: Sequence[str], numbers: Mapping[str, SaidNumbers]
) -> None:
    """Set those numbers that were sent by name, entry by entry."""
    for f, name in enumerate(names):
        if name in numbers:
            raw[numbers[name].at, f] = numbers[name].numbers


def _sent_numbers(sheet: RequestSheet, names: Sequence[str]) -> Float32[np.ndarray, "B N F"]:
    out = np.full((sheet.present.size, len(names)), np.nan, np.float32)
    for f, name in enumerate(names):
        if name in sheet.sent.names:
            out[sheet.sent.places, f] = sheet.sent.numbers(name)
    return out.reshape(*sheet.present.shape, len(names))


def _sent_texts(sheet: RequestSheet, name: str) -> CategoryColumn:
    """A category of all candidates of all requests end to end."""
    if name not in sheet.sent.names:
        return pa.nulls(sheet.present.size, pa.string())
    texts = sheet.sent.texts(name)
    if isinstance(texts, pa.Array):
        at = np.full(sheet.present.size, -1)
        at[sheet.sent.places] = np.arange(len(texts))
        return texts.take(pa.array(at, mask=at < 0))
    column: list[str | None] = [None] * sheet.present.size
    for place, text in zip(sheet.sent.places.tolist(), texts, strict=True):
        column[place] = text
    return column


def _context_numbers(sheet: RequestSheet, name: str) -> Float32[np.ndarray, "B"]:
    return numbers_of(sheet.context_values(name), lambda b: f"request {b}: {name}")


def _context_texts(sheet: RequestSheet, name: str) -> list[str | None]:
    values = enumerate(sheet.context_values(name))
    return [category_text(value, f"request {b}: {name}") for b, value in values]


def _coded(categories: FittedCategories, columns: Sequence[CategoryColumn]) -> Int32[np.ndarray, "R C"]:
    codes = [
        categories.codes(f, column) if isinstance(column, pa.Array) else categories.few_codes(f, column)
        for f, column in enumerate(columns)
    ]
    return np.array(codes, np.int32).T.copy()


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
