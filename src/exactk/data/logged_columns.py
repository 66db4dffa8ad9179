"""The columns of logged impressions as the arrays of a batch: padded, coded in the vocabulary's codes.

Knows a folder and a vocabulary's columns; what depends on both alone is computed once and kept.
"""

from __future__ import annotations

from functools import cached_property
from typing import no_type_check

import numpy as np
import pyarrow as pa
from jaxtyping import Bool, Float32, Int32, Int64
from numba import njit

from exactk.data.candidates import CandidateColumns
from exactk.data.fitted import FittedCategories, FittedColumns
from exactk.data.index import Index, IndexNames
from exactk.data.item_columns import ItemColumns
from exactk.data.pairs import PairInputs, pair_values
from exactk.data.roles import SENT_MEASURES, Columns, PairFeature
from exactk.errors import DataError


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
