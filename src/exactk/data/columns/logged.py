"""The columns of logged impressions: fitted on the rows of train; as the arrays of a batch, in a vocabulary's codes.

Knows a folder and a vocabulary's columns; what depends on both alone is computed once and kept.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, no_type_check

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Bool, Float32, Int32, Int64
from numba import njit

from exactk.data.columns.candidates import CandidateColumns
from exactk.data.columns.fitted import RARE, FittedCategories, FittedColumns, FittedNumbers
from exactk.data.columns.items import ItemColumns, PairInputs, derived_pairs, pair_values, vector_matrix
from exactk.data.columns.roles import SENT_MEASURES, Columns, PairFeature
from exactk.data.columns.texts import TextTransform
from exactk.data.index import Index, IndexNames
from exactk.data.table import combine
from exactk.errors import DataError

if TYPE_CHECKING:
    from exactk.data.folder import Folder

SAMPLE = 1 << 18  # rows that numbers are judged by
TEXTS = 1 << 17  # items whose texts say how rare words are, and which go together
_BLOCK = 1 << 16


class LoggedColumns:
    """One folder seen through one vocabulary."""

    def __init__(
        self,
        fitted: FittedColumns,
        columns: Columns,
        index: Index,
        names: IndexNames,
        candidates: CandidateColumns,
        items: pa.Table,
    ) -> None:
        self.fitted, self.index, self.candidates, self._items = fitted, index, candidates, items
        self._measured = columns.measured
        self._number_places = _places(
            fitted.candidate_numbers.names, (*candidates.number_names, *names.rolling), "candidate number"
        )
        self._recodes = [
            fitted.candidate_categories.codes(f, pa.array([None, *candidates.values[name]], pa.string()))
            for f, name in enumerate(fitted.candidate_categories.names)
            if _held(name, candidates.category_names, "candidate category")
        ]
        self._context_places = _places(
            fitted.context_numbers.names, columns.context.numbers, "context number"
        )
        self._context = _recoded(fitted.context_categories, "context", columns.context.categories, names)
        self._users = _recoded(fitted.user_categories, "user", columns.user.categories, names)

    @cached_property
    def items(self) -> ItemColumns:
        """What the folder's items say; read on first use."""
        return ItemColumns.of(self._items, self.fitted, self.index.item_features)

    def arrays(
        self, rows: Int64[np.ndarray, "B"], item: Int64[np.ndarray, "B N"], present: Bool[np.ndarray, "B N"]
    ) -> dict[str, np.ndarray]:
        """Fields of a batch by name, only those for which there are columns."""
        index, fitted, N = self.index, self.fitted, item.shape[1]
        start = index.candidate_start[rows]
        counts = index.candidate_start[rows + 1] - start
        found: dict[str, np.ndarray] = {"clicks": _clicks(index, rows, N)}
        if fitted.candidate_numbers.names:
            found["candidate_numbers"] = _gathered(
                start, counts, N, self.candidates.numbers, index.rolling, self._number_places
            )
        for name in self._measured:
            place = np.array([self.candidates.number_names.index(name)])
            found[name] = _gathered(start, counts, N, self.candidates.numbers, index.rolling, place)[..., 0]
        for name in set(SENT_MEASURES) & {*fitted.measured.names} - {*self._measured}:
            found[name] = np.full((len(rows), N), np.nan, np.float32)  # this log does not keep it
        codes = _gathered_codes(start, counts, N, self.candidates.categories)
        if self._recodes:
            held = [
                codes[..., self.candidates.category_names.index(name)]
                for name in fitted.candidate_categories.names
            ]
            found["candidate_categories"] = np.stack(
                [table[code] for table, code in zip(self._recodes, held, strict=True)], -1
            )
        if fitted.context_numbers.names:
            found["context_numbers"] = np.asarray(
                index.context_numbers[rows][:, self._context_places], np.float32
            )
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
            found["pair_features"] = self._pairs(item, present, codes, found)
        return found

    def _pairs(
        self,
        item: Int64[np.ndarray, "B N"],
        present: Bool[np.ndarray, "B N"],
        codes: Int32[np.ndarray, "B N C"],
        found: dict[str, np.ndarray],
    ) -> Float32[np.ndarray, "B N N P"]:
        at = np.maximum(item, 0)
        names = self.candidates.category_names
        inputs = PairInputs(
            codes={name: held[at] for name, held in self.items.hashes.items()}
            | {name: codes[..., f] for f, name in enumerate(names)},
            vectors={
                name: found["item_vectors"][..., part] for name, part in self.fitted.vector_slices.items()
            },
            levels={name: held[at] for name, held in self.items.levels.items()}
            | gap_levels(self.fitted, self.fitted.pair_features, found),
            words={name: (held, self.fitted.texts[name].idf) for name, held in self.items.words.items()},
            text_rows=item,
        )
        return pair_values(self.fitted.pair_features, inputs, present)


def gap_levels(
    fitted: FittedColumns, pairs: tuple[PairFeature, ...], found: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Levels of those candidate numbers whose gap is a pair feature."""
    names = fitted.candidate_numbers.names
    return {
        pair.column: fitted.candidate_numbers.level(
            place := names.index(pair.column), found["candidate_numbers"][..., place]
        )
        for pair in pairs
        if pair.kind == "gap" and pair.column in names
    }


def _held(name: str, names: tuple[str, ...], what: str) -> bool:
    if name not in names:
        raise DataError(
            f"the vocabulary was fitted with the {what} {name!r}, which this log has not: {list(names)}"
        )
    return True


def _places(wanted: tuple[str, ...], held: tuple[str, ...], what: str) -> Int64[np.ndarray, "F"]:
    return np.array([held.index(name) for name in wanted if _held(name, held, what)], np.int64)


def _recoded(
    fitted: FittedCategories, kind: str, held: tuple[str, ...], names: IndexNames
) -> list[tuple[int, Int32[np.ndarray, "_"]]]:
    """For each column of the vocabulary its place in the folder, and the vocabulary's code of each of its codes."""
    return [
        (held.index(name), fitted.codes(f, pa.array([None, *names.values[f"{kind}.{name}"]], pa.string())))
        for f, name in enumerate(fitted.names)
        if _held(name, held, f"{kind} category")
    ]


def _looked_up(
    codes: Int32[np.ndarray, "B C"], tables: list[tuple[int, Int32[np.ndarray, "_"]]]
) -> Int32[np.ndarray, "B G"]:
    return np.stack([table[codes[:, place]] for place, table in tables], -1).astype(np.int32)


def _clicks(index: Index, rows: Int64[np.ndarray, "B"], N: int) -> Float32[np.ndarray, "B N"]:
    """How often each candidate was clicked."""
    out = np.zeros((len(rows), N), np.float32)
    counts = index.click_start[rows + 1] - index.click_start[rows]
    owner = np.repeat(np.arange(len(rows)), counts)
    place = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
    np.add.at(out, (owner, index.click[index.click_start[rows][owner] + place]), 1.0)
    return out


def _gathered(
    start: Int64[np.ndarray, "B"],
    counts: Int64[np.ndarray, "B"],
    N: int,
    numbers: Float32[np.ndarray, "C F"],
    rolling: Float32[np.ndarray, "C R"],
    places: Int64[np.ndarray, "G"],
) -> Float32[np.ndarray, "B N G"]:
    """Columns `places` of the numbers followed by the rolling counts; NaN beyond a request's candidates."""
    out = np.full((len(start), N, len(places)), np.nan, np.float32)
    _gather_numbers(start, counts, numbers, rolling, places, out)
    return out


@njit(cache=True, nogil=True)
@no_type_check
def _gather_numbers(start, counts, numbers, rolling, places, out):
    width = numbers.shape[1]
    for b in range(len(start)):
        for n in range(counts[b]):
            for g in range(len(places)):
                f = places[g]
                out[b, n, g] = numbers[start[b] + n, f] if f < width else rolling[start[b] + n, f - width]


def _gathered_codes(
    start: Int64[np.ndarray, "B"], counts: Int64[np.ndarray, "B"], N: int, codes: Int32[np.ndarray, "C G"]
) -> Int32[np.ndarray, "B N G"]:
    out = np.zeros((len(start), N, codes.shape[1]), np.int32)
    if codes.shape[1]:
        _gather_codes(start, counts, codes, out)
    return out


@njit(cache=True, nogil=True)
@no_type_check
def _gather_codes(start, counts, codes, out):
    for b in range(len(start)):
        for n in range(counts[b]):
            for g in range(codes.shape[1]):
                out[b, n, g] = codes[start[b] + n, g]


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
