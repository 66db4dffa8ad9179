"""What items say to a model: category codes, vectors, words; and what a rule could read of two of them (pair features).

Knows tables of items and values side by side, no impressions and no requests. Pair features are symmetric, finite, and
0 for a candidate with itself or beside padding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from jaxtyping import Bool, Float32, Int32, Int64

from exactk.data.columns import Columns, PairFeature
from exactk.data.columns.codes import category_texts, hashed_rows
from exactk.data.columns.texts import Terms, overlaps, words_of
from exactk.data.columns.vocabulary import FittedColumns
from exactk.data.table import combine, flatten, is_list, is_text
from exactk.errors import DataError
from exactk.problem.graph import pairs_of

MOST_DERIVED = 16
SHORT = 32  # candidates: padding of lists up to here costs less than parting them
MISSING_GAP = 1 / 3  # the mean gap of two values drawn from train
_PRICES = ("price", "cost", "fare", "amount", "fee", "rent")
_HASHES = (1 << 31) - 2


@dataclass(frozen=True, eq=False)
class ItemColumns:
    """By row: codes in the vocabulary, hashes of values (to compare any two; 0 = missing), vectors, levels, words."""

    codes: Int32[np.ndarray, "I C"]
    hashes: dict[str, Int32[np.ndarray, "I"]]
    vectors: Float32[np.ndarray, "I V"]
    levels: dict[str, Float32[np.ndarray, "I"]]
    words: dict[str, Terms]

    @classmethod
    def of(cls, items: pa.Table, fitted: FittedColumns, features: Float32[np.ndarray, "I F"]) -> ItemColumns:
        """Read the columns that the vocabulary knows; `features` are the raw ones of the same rows."""
        categories = fitted.item_categories
        texts = {name: category_texts(_column(items, name)) for name in categories.names}
        codes = [categories.codes(f, texts[name]) for f, name in enumerate(categories.names)]
        spelled = {name: _texts(items, name) for name in fitted.texts}
        overlapping = {pair.column for pair in fitted.pair_features if pair.kind == "overlap"}
        gaps = {pair.column for pair in fitted.pair_features if pair.kind == "gap"}
        if features.shape[1] != len(fitted.item_numbers):  # a table that knows none of them
            features = np.full((len(items), len(fitted.item_numbers)), np.nan, np.float32)
        vectors = np.zeros((len(items), fitted.vector_size), np.float32)
        for name, part in fitted.vector_slices.items():
            known = name in spelled
            vectors[:, part] = fitted.texts[name](spelled[name]) if known else _vectors(items, name, part)
        return cls(
            codes=np.column_stack(codes) if codes else np.empty((len(items), 0), np.int32),
            hashes={name: value_hashes(held) for name, held in texts.items()},
            vectors=vectors,
            levels={
                name: fitted.item_numbers.level(f, features[:, f])
                for f, name in enumerate(fitted.item_numbers.names)
                if name in gaps
            },
            words={name: words_of(held) for name, held in spelled.items() if name in overlapping},
        )

    def taken(self, rows: Int64[np.ndarray, "R"]) -> ItemColumns:
        """Some rows in the order asked for; of row -1 nothing is known."""
        known, at = rows >= 0, np.maximum(rows, 0)

        def of(values: np.ndarray, unknown: float | int) -> np.ndarray:
            if not len(values):
                return np.full((len(rows), *values.shape[1:]), unknown, values.dtype)
            some: np.ndarray = values[at]
            some[~known] = unknown
            return some

        return ItemColumns(
            codes=of(self.codes, 0),
            hashes={name: of(held, 0) for name, held in self.hashes.items()},
            vectors=of(self.vectors, 0),
            levels={name: of(held, np.nan) for name, held in self.levels.items()},
            words={name: held.taken(rows) for name, held in self.words.items()},
        )

    def followed_by(self, other: ItemColumns) -> ItemColumns:
        """The rows of both."""
        return ItemColumns(
            codes=np.concatenate([self.codes, other.codes]),
            hashes={name: np.concatenate([held, other.hashes[name]]) for name, held in self.hashes.items()},
            vectors=np.concatenate([self.vectors, other.vectors]),
            levels={name: np.concatenate([held, other.levels[name]]) for name, held in self.levels.items()},
            words={name: held.followed_by(other.words[name]) for name, held in self.words.items()},
        )


def value_hashes(texts: pa.Array) -> Int32[np.ndarray, "R"]:
    """A number for each text, the same wherever it is met; 0 where there is none."""
    return (hashed_rows(texts, _HASHES) + 1).astype(np.int32)


def vector_matrix(items: pa.Table, name: str) -> Float32[np.ndarray, "I V"]:
    """A column of lists of numbers as a matrix; a missing list is zeros, and all others are of one length."""
    column = combine(items[name])
    if not is_list(column.type):
        raise DataError(f"items: column '{name}' holds {column.type}, not vectors (lists of numbers)")
    values, lengths = flatten(column)
    size = int(lengths.max(initial=0))
    wrong = (lengths != size) & (lengths > 0)
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise DataError(f"items: row {row}, column '{name}': {lengths[row]} numbers, other rows have {size}")
    matrix = np.zeros((len(items), size), np.float32)
    numbers = np.nan_to_num(np.asarray(values, np.float32))
    matrix[lengths > 0] = numbers.reshape(-1, size) if size else 0
    return matrix


def _vectors(items: pa.Table, name: str, part: slice) -> Float32[np.ndarray, "I V"]:
    size, unknown = part.stop - part.start, np.zeros((len(items), part.stop - part.start), np.float32)
    matrix = vector_matrix(items, name) if name in items.column_names else unknown
    if matrix.shape[1] not in (0, size):
        raise DataError(f"items: column '{name}' holds vectors of {matrix.shape[1]}, train had {size}")
    return matrix if matrix.shape[1] else unknown


def _column(items: pa.Table, name: str) -> pa.Array:
    return combine(items[name]) if name in items.column_names else pa.nulls(len(items), pa.string())


def _texts(items: pa.Table, name: str) -> list[str | list[str] | None]:
    column = _column(items, name)
    inner = column.type.value_type if is_list(column.type) else column.type
    if not (is_text(inner) or pa.types.is_null(inner)):
        raise DataError(f"items: column '{name}' holds {column.type}, not texts")
    held: list[str | list[str] | None] = column.to_pylist()
    return held


def derived_pairs(columns: Columns) -> tuple[PairFeature, ...]:
    """What the columns that exist suggest, unless they name pair features themselves."""
    if columns.pair_features is not None:
        return columns.pair_features
    numbers = [name for name in (*columns.candidate.numbers, *columns.item.numbers) if _is_price(name)]
    found = [
        *(PairFeature("same", name) for name in (*columns.item.categories, *columns.candidate.categories)),
        *(PairFeature(kind, name) for name in columns.item.texts for kind in ("cosine", "overlap")),
        *(PairFeature("cosine", name) for name in columns.item.vectors),
        *(PairFeature("gap", name) for name in numbers),
    ]
    return tuple(dict.fromkeys(found))[:MOST_DERIVED]


def _is_price(name: str) -> bool:
    parts = name.lower().replace("-", "_").split("_")
    return any(part in _PRICES for part in parts) and not {"rank", "id"} & set(parts)


class PairInputs(NamedTuple):
    """Values of a batch's candidates by column: codes (0 = missing), vectors, levels (NaN = missing), word lists."""

    codes: Mapping[str, Int32[np.ndarray, "B N"]]
    vectors: Mapping[str, Float32[np.ndarray, "B N V"]]
    levels: Mapping[str, Float32[np.ndarray, "B N"]]
    words: Mapping[str, tuple[Terms, Float32[np.ndarray, "W"]]]  # and the rarity of every word
    text_rows: Int64[np.ndarray, "B N"]  # of the word lists, -1 = none

    def of(self, rows: Int64[np.ndarray, "R"] | slice, size: int) -> PairInputs:
        """Of these requests, the first candidates."""
        codes, vectors, levels = (
            {name: held[rows, :size] for name, held in values.items()}
            for values in (self.codes, self.vectors, self.levels)
        )
        return PairInputs(codes, vectors, levels, self.words, self.text_rows[rows, :size])


def pair_features_of(
    fitted: FittedColumns,
    items: ItemColumns,
    row: Int64[np.ndarray, "B N"],
    codes: Mapping[str, Int32[np.ndarray, "B N"]],
    found: Mapping[str, np.ndarray],
    present: Bool[np.ndarray, "B N"],
) -> Float32[np.ndarray, "B N N P"]:
    """Of candidates at these rows of a table of items (-1: the last); `codes` are of their own categories.

    `found` holds fields of the batch by name, numbers of candidates and vectors of items among them.
    """
    names, numbers = fitted.candidate_numbers.names, found.get("candidate_numbers")
    levels = {name: held[row] for name, held in items.levels.items()}
    for pair in fitted.pair_features:
        if pair.kind == "gap" and pair.column in names and numbers is not None:
            place = names.index(pair.column)
            levels[pair.column] = fitted.candidate_numbers.level(place, numbers[..., place])
    inputs = PairInputs(
        codes={name: held[row] for name, held in items.hashes.items()} | dict(codes),
        vectors={name: found["item_vectors"][..., part] for name, part in fitted.vector_slices.items()},
        levels=levels,
        words={name: (held, fitted.texts[name].idf) for name, held in items.words.items()},
        text_rows=np.where(present, row, -1),
    )
    return pair_values(fitted.pair_features, inputs, present)


def pair_values(
    pairs: tuple[PairFeature, ...], inputs: PairInputs, present: Bool[np.ndarray, "B N"]
) -> Float32[np.ndarray, "B N N P"]:
    """Every pair feature of every two candidates."""
    B, N = present.shape
    out = np.zeros((B, N, N, len(pairs)), np.float32)
    for rows, size in alike_in_length(present):
        some, both = inputs.of(rows, size), pairs_of(present[rows, :size])
        for place, pair in enumerate(pairs):
            out[rows, :size, :size, place] = _one(pair, some) * both
    return out


def alike_in_length(present: Bool[np.ndarray, "B N"]) -> Iterator[tuple[Int64[np.ndarray, "R"] | slice, int]]:
    """Requests whose lists are alike in length, and the longest of these: what is padding is not computed.

    Lists of 5, 20, 90 and 100 candidates: (5, 20) up to 20, (90, 100) up to 100. Short ones are not worth parting.
    """
    B, N = present.shape
    if B == 1 or N <= SHORT:
        yield slice(None), N
        return
    lengths = (present * np.arange(1, N + 1)).max(axis=1)
    octave = np.ceil(np.log2(np.maximum(lengths, SHORT)))
    for each in np.unique(octave):
        rows = np.flatnonzero(octave == each)
        yield rows, int(lengths[rows].max())


def _one(pair: PairFeature, inputs: PairInputs) -> Float32[np.ndarray, "B N N"]:
    if pair.kind == "same":
        code = inputs.codes[pair.column]
        same = (code[:, :, None] == code[:, None, :]) & (code[:, :, None] > 0)
        return np.asarray(same, np.float32)
    if pair.kind == "cosine":
        vector = inputs.vectors[pair.column]
        length = np.linalg.norm(vector, axis=2, keepdims=True)
        unit = np.where(length > 1e-9, vector / np.maximum(length, 1e-9), 0)
        return np.asarray(np.clip(unit @ unit.transpose(0, 2, 1), -1, 1), np.float32)
    if pair.kind == "overlap":
        terms, rarity = inputs.words[pair.column]
        return overlaps(terms.start, terms.terms, rarity, inputs.text_rows)
    level = inputs.levels[pair.column]
    gap = np.abs(level[:, :, None] - level[:, None, :])
    return np.asarray(np.where(np.isnan(gap), MISSING_GAP, gap), np.float32)
