"""Fitting a vocabulary's columns on the rows of train, a block at a time.

Knows a folder and its index; what comes out knows neither.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Int32, Int64

from exactk.data.fitted import RARE, FittedCategories, FittedColumns, FittedNumbers
from exactk.data.folder import Folder
from exactk.data.item_columns import vector_matrix
from exactk.data.pairs import derived_pairs
from exactk.data.table import combine
from exactk.data.texts import TextTransform

SAMPLE = 1 << 18  # rows that numbers are judged by
TEXTS = 1 << 17  # items whose texts say how rare words are, and which go together
_BLOCK = 1 << 16


def fitted_columns(
    folder: Folder,
    rows: Int64[np.ndarray, "R"],
    users: Int64[np.ndarray, "U"],
    items: Int64[np.ndarray, "I"],
    with_texts: bool = True,
) -> FittedColumns:
    """What these rows, and the users and items they meet, hold."""
    columns, index, held = folder.columns, folder.index, folder.candidate_columns
    sampled = _sampled(folder, rows)
    features = len(columns.candidate.numbers)
    candidate = np.concatenate([held.numbers[sampled][:, :features], index.rolling[sampled]], axis=1)
    few = rows[np.linspace(0, len(rows) - 1, min(len(rows), SAMPLE)).astype(np.int64)]
    some = items[np.linspace(0, len(items) - 1, min(len(items), SAMPLE)).astype(np.int64)]
    item_numbers = columns.item.numbers if index.item_features.shape[1] == len(columns.item.numbers) else ()
    read = some[np.linspace(0, len(some) - 1, min(len(some), TEXTS)).astype(np.int64)]
    names = columns.item.texts if with_texts else ()
    texts = {name: TextTransform.fitted(_texts(folder, name, read)) for name in names}
    pairs = derived_pairs(columns)
    values = folder.names.values
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
        context_categories=_categories(
            columns.context.categories, "context", values, index.context_categories, rows
        ),
        item_categories=_categories(columns.item.categories, "item", values, index.item_categories, items),
        user_categories=_categories(columns.user.categories, "user", values, index.user_categories, users),
        texts=texts,
        vectors={name: vector_matrix(folder.items, name).shape[1] for name in columns.item.vectors},
        pair_features=tuple(
            pair for pair in pairs if pair.column in texts or pair.column not in columns.item.texts
        ),
    )


def candidate_places(folder: Folder, rows: Int64[np.ndarray, "R"]) -> Int64[np.ndarray, "C"]:
    """Rows of the candidates' matrices that belong to these impressions."""
    start = folder.index.candidate_start
    counts = start[rows + 1] - start[rows]
    before = np.repeat(np.cumsum(counts) - counts, counts)
    return np.asarray(np.repeat(start[rows], counts) + np.arange(int(counts.sum())) - before, np.int64)


def _sampled(folder: Folder, rows: Int64[np.ndarray, "R"]) -> Int64[np.ndarray, "S"]:
    """Candidates of impressions evenly spaced through train, about `SAMPLE` of them."""
    if not len(rows):
        return np.empty(0, np.int64)
    start = folder.index.candidate_start
    mean = max(1.0, float((start[rows + 1] - start[rows]).mean()))
    count = min(len(rows), max(1, int(SAMPLE / mean)))
    return candidate_places(folder, rows[np.linspace(0, len(rows) - 1, count).astype(np.int64)])


def _texts(folder: Folder, name: str, items: Int64[np.ndarray, "I"]) -> list[str | list[str] | None]:
    held: list[str | list[str] | None] = combine(folder.items[name]).take(pa.array(items)).to_pylist()
    return held


def _candidate_categories(folder: Folder, rows: Int64[np.ndarray, "R"]) -> FittedCategories:
    held = folder.candidate_columns
    counts = [np.zeros(len(held.values[name]) + 1, np.int64) for name in held.category_names]
    for first in range(0, len(rows) if counts else 0, _BLOCK):
        codes = held.categories[candidate_places(folder, rows[first : first + _BLOCK])]
        for f, count in enumerate(counts):
            count += np.bincount(codes[:, f], minlength=len(count))
    return _common(held.category_names, [held.values[name] for name in held.category_names], counts)


def _categories(
    names: tuple[str, ...],
    kind: str,
    values: object,
    codes: Int32[np.ndarray, "R F"],
    rows: Int64[np.ndarray, "S"],
) -> FittedCategories:
    assert isinstance(values, dict)
    lists = [values[f"{kind}.{name}"] for name in names]
    counts = [
        np.bincount(codes[rows, f], minlength=len(held) + 1).astype(np.int64) for f, held in enumerate(lists)
    ]
    return _common(names, lists, counts)


def _common(
    names: tuple[str, ...], lists: list[list[str]], counts: list[Int64[np.ndarray, "_"]]
) -> FittedCategories:
    """Values met often enough to be learned."""
    kept = []
    for values, count in zip(lists, counts, strict=True):
        array = pa.array(values, pa.string())
        kept.append(pc.filter(array, pa.array(count[1:] >= RARE)))
    return FittedCategories(names, tuple(kept))
