"""The columns of logged impressions: fitted on the rows of train; as the arrays of a batch, in a vocabulary's codes.

Knows a folder and a vocabulary's columns; what depends on both alone is computed once and kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from jaxtyping import Bool, Float32, Int32, Int64

from exactk.data.assemble import entries
from exactk.data.columns import SENT_MEASURES
from exactk.data.columns.items import ItemColumns, derived_pairs, pair_features_of, vector_matrix
from exactk.data.columns.texts import TextTransform
from exactk.data.columns.vocabulary import RARE, FittedCategories, FittedColumns, FittedNumbers
from exactk.data.index import Index
from exactk.data.table import combine
from exactk.errors import DataError

if TYPE_CHECKING:
    from exactk.data.folder import Folder

Rows = Int64[np.ndarray, "R"]
Recode = tuple[
    int, Int32[np.ndarray, "_"]
]  # a column's place in the folder, and a new code for each of its codes

SAMPLE = 1 << 18  # rows that numbers are judged by
TEXTS = 1 << 17  # items whose texts say how rare words are, and which go together
_BLOCK = 1 << 16


class LoggedColumns:
    """One folder seen through one vocabulary."""

    def __init__(self, fitted: FittedColumns, folder: Folder) -> None:
        columns, names, candidates = folder.columns, folder.names, folder.candidate_columns
        self.fitted, self.index, self.candidates, self._items = fitted, folder.index, candidates, folder.items
        self._measured = columns.measured
        self._number_places = _places(
            fitted.candidate_numbers.names, (*candidates.number_names, *names.rolling), "candidate number"
        )
        values = {f"candidate.{name}": held for name, held in candidates.values.items()} | dict(names.values)
        self._recodes = _recoded(fitted.candidate_categories, "candidate", candidates.category_names, values)
        context = fitted.context_numbers.names
        self._context_places = _places(context, columns.context.numbers, "context number")
        self._context = _recoded(fitted.context_categories, "context", columns.context.categories, values)
        self._users = _recoded(fitted.user_categories, "user", columns.user.categories, values)

    @cached_property
    def items(self) -> ItemColumns:
        """What the folder's items say; read on first use."""
        return ItemColumns.of(self._items, self.fitted, self.index.item_features)

    def arrays(self, rows: Int64[np.ndarray, "B"], item: Int64[np.ndarray, "B N"]) -> dict[str, np.ndarray]:
        """Fields of a batch by name, only those for which there are columns; of `item` -1 is nobody."""
        present = item >= 0
        index, fitted, held = self.index, self.fitted, self.candidates
        of_candidates = entries(index.candidate_start, rows)[1]
        found: dict[str, np.ndarray] = {"clicks": _clicks(index, rows, item.shape[1])}
        numbers = np.concatenate([held.numbers[of_candidates], index.rolling[of_candidates]], axis=1)
        if fitted.candidate_numbers.names:
            found["candidate_numbers"] = _padded(numbers[:, self._number_places], present, np.nan)
        for name in self._measured:
            found[name] = _padded(numbers[:, held.number_names.index(name)], present, np.nan)
        for name in set(SENT_MEASURES) & {*fitted.measured.names} - {*self._measured}:
            found[name] = np.full(item.shape, np.nan, np.float32)  # this log does not keep it
        codes = _padded(held.categories[of_candidates], present, 0.0)
        if self._recodes:
            found["candidate_categories"] = _looked_up(codes, self._recodes)
        if fitted.context_numbers.names:
            found["context_numbers"] = index.context_numbers[rows][:, self._context_places]
        if fitted.context_categories.names:
            found["context_categories"] = _looked_up(index.context_categories[rows], self._context)
        if fitted.user_categories.names:
            found["user_categories"] = _looked_up(index.user_categories[index.user[rows]], self._users)
        at = np.maximum(item, 0)
        if fitted.item_categories.names:
            found["item_categories"] = np.where(present[..., None], self.items.codes[at], 0).astype(np.int32)
        if fitted.vector_size:
            found["item_vectors"] = np.where(present[..., None], self.items.vectors[at], 0).astype(np.float32)
        if fitted.pair_features:
            own = {name: codes[..., f] for f, name in enumerate(held.category_names)}
            found["pair_features"] = pair_features_of(fitted, self.items, item, own, found, present)
        return found


def _held(name: str, names: tuple[str, ...], what: str) -> bool:
    if name not in names:
        raise DataError(
            f"the vocabulary was fitted with the {what} {name!r}, which this log lacks; it has {list(names)}"
        )
    return True


def _places(wanted: tuple[str, ...], held: tuple[str, ...], what: str) -> Int64[np.ndarray, "F"]:
    return np.array([held.index(name) for name in wanted if _held(name, held, what)], np.int64)


def _recoded(
    fitted: FittedCategories, kind: str, held: tuple[str, ...], values: Mapping[str, list[str]]
) -> list[Recode]:
    """For each column of the vocabulary its codes for those of the folder."""
    return [
        (held.index(name), fitted.recoded(f, values[f"{kind}.{name}"]))
        for f, name in enumerate(fitted.names)
        if _held(name, held, f"{kind} category")
    ]


def _looked_up(codes: Int32[np.ndarray, "*S C"], tables: list[Recode]) -> Int32[np.ndarray, "*S G"]:
    return np.stack([table[codes[..., place]] for place, table in tables], -1).astype(np.int32)


def _clicks(index: Index, rows: Int64[np.ndarray, "B"], N: int) -> Float32[np.ndarray, "B N"]:
    """How often each candidate was clicked."""
    out = np.zeros((len(rows), N), np.float32)
    owner, clicks = entries(index.click_start, rows)
    np.add.at(out, (owner, index.click[clicks]), 1.0)
    return out


def _padded(values: np.ndarray, present: Bool[np.ndarray, "B N"], missing: float) -> np.ndarray:
    """What candidates hold, given end to end; `missing` beyond a request's candidates."""
    out = np.full((*present.shape, *values.shape[1:]), missing, values.dtype)
    out[present] = values
    return out


def fitted_columns(
    folder: Folder, rows: Rows, users: Int64[np.ndarray, "U"], items: Int64[np.ndarray, "I"], with_texts: bool
) -> FittedColumns:
    """What these rows, and the users and items they meet, hold."""
    columns, index, held = folder.columns, folder.index, folder.candidate_columns
    sampled, few, some = _sampled(index, rows), _spread(rows, SAMPLE), _spread(items, SAMPLE)
    features = len(columns.candidate.numbers)
    candidate = np.concatenate([held.numbers[sampled][:, :features], index.rolling[sampled]], axis=1)
    item_numbers = columns.item.numbers if index.item_features.shape[1] == len(columns.item.numbers) else ()
    read = pa.array(_spread(some, TEXTS))
    texts = {
        name: TextTransform.fitted(combine(folder.items[name]).take(read).to_pylist())
        for name in (columns.item.texts if with_texts else ())
    }
    unread = {*columns.item.texts} - {*texts}
    return FittedColumns(
        columns=columns,
        rolling=folder.rolling,
        candidate_numbers=FittedNumbers.fitted(
            (*columns.candidate.numbers, *folder.names.rolling), candidate
        ),
        context_numbers=FittedNumbers.fitted(columns.context.numbers, index.context_numbers[few]),
        item_numbers=FittedNumbers.fitted(item_numbers, index.item_features[some][:, : len(item_numbers)]),
        measured=FittedNumbers.fitted(columns.measured, held.numbers[sampled][:, features:]),
        candidate_categories=_candidate_categories(folder, rows),
        context_categories=_categories(folder, "context", index.context_categories, rows),
        item_categories=_categories(folder, "item", index.item_categories, items),
        user_categories=_categories(folder, "user", index.user_categories, users),
        texts=texts,
        vectors={name: vector_matrix(folder.items, name).shape[1] for name in columns.item.vectors},
        pair_features=tuple(pair for pair in derived_pairs(columns) if pair.column not in unread),
    )


def _spread(rows: Rows, most: int) -> Int64[np.ndarray, "S"]:
    """So many of them at the most, evenly spaced."""
    return rows[np.linspace(0, len(rows) - 1, min(len(rows), most)).astype(np.int64)]


def _sampled(index: Index, rows: Rows) -> Int64[np.ndarray, "S"]:
    """Candidates of impressions evenly spaced through train, about `SAMPLE` of them."""
    if not len(rows):
        return np.empty(0, np.int64)
    mean = max(1.0, float((index.candidate_start[rows + 1] - index.candidate_start[rows]).mean()))
    return entries(index.candidate_start, _spread(rows, max(1, int(SAMPLE / mean))))[1]


def _candidate_categories(folder: Folder, rows: Rows) -> FittedCategories:
    held = folder.candidate_columns
    counts = [np.zeros(len(held.values[name]) + 1, np.int64) for name in held.category_names]
    for first in range(0, len(rows) if counts else 0, _BLOCK):
        codes = held.categories[entries(folder.index.candidate_start, rows[first : first + _BLOCK])[1]]
        for f, count in enumerate(counts):
            count += np.bincount(codes[:, f], minlength=len(count))
    return _common(held.category_names, [held.values[name] for name in held.category_names], counts)


def _categories(folder: Folder, kind: str, codes: Int32[np.ndarray, "E F"], rows: Rows) -> FittedCategories:
    names: tuple[str, ...] = getattr(folder.columns, kind).categories
    lists = [folder.names.values[f"{kind}.{name}"] for name in names]
    counts = [np.bincount(codes[rows, f], minlength=len(held) + 1) for f, held in enumerate(lists)]
    return _common(names, lists, counts)


def _common(names: tuple[str, ...], lists: list[list[str]], counts: list[np.ndarray]) -> FittedCategories:
    """Values met often enough to be learned."""
    kept = (
        pa.array(values, pa.string()).filter(pa.array(count[1:] >= RARE))
        for values, count in zip(lists, counts, strict=True)
    )
    return FittedCategories(names, tuple(kept))
