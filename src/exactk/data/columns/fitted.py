"""What the columns of train held: how numbers spread, which values categories took, how texts become vectors.

Knows no folder and no model; kept with a model, so that a request is read as train was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Float32, Int32
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from exactk.data.columns import Columns, PairFeature
from exactk.data.columns.codes import categories_table, category_lists
from exactk.data.columns.texts import TextTransform
from exactk.data.table import RowLookup, read_parquet
from exactk.errors import DataError

LEVELS = 65  # quantiles kept of every number: 0, 1/64, ..., 1
RARE = 2  # values of a category seen less often in train count as unknown, so that unknown is a value learned, too
_FILE, _VALUES = "vocabulary-columns.safetensors", "vocabulary-categories.parquet"


@dataclass(frozen=True, eq=False)
class FittedNumbers:
    """How F columns of numbers spread in train. Batches hold them as they came, NaN = missing."""

    names: tuple[str, ...]
    mean: Float32[np.ndarray, "F"]
    deviation: Float32[np.ndarray, "F"]  # 1 where a column never varies
    missing: Float32[np.ndarray, "F"]  # share
    quantiles: Float32[np.ndarray, "F Q"]  # of the values known, ascending; 0 throughout where none is

    @classmethod
    def fitted(cls, names: Sequence[str], values: Float32[np.ndarray, "R F"]) -> FittedNumbers:
        """From rows of train."""
        F = len(names)
        found = cls(
            tuple(names), np.zeros(F, np.float32), np.ones(F, np.float32), np.ones(F, np.float32),
            np.zeros((F, LEVELS), np.float32),
        )  # fmt: skip
        for f in range(F):
            column = values[:, f].astype(np.float64)
            known = column[np.isfinite(column)]
            if not len(known):
                continue
            spread = known.std()
            found.mean[f] = known.mean()
            found.deviation[f] = spread if spread > 1e-6 * (1 + abs(known.mean())) else 1.0
            found.missing[f] = 1 - len(known) / len(column)
            found.quantiles[f] = np.quantile(known, np.linspace(0, 1, LEVELS))
        return found

    def __len__(self) -> int:
        return len(self.names)

    def level(self, f: int, values: np.ndarray) -> np.ndarray:
        """Where values of column f stand among those of train, 0 to 1; NaN stays NaN.

        Of the quantiles 1, 1, 1, 2 at 0, 1/3, 2/3, 1 the value 1 stands at 1/3, the middle of where it is.
        """
        knots, levels = self._knots[f]
        return np.asarray(np.where(np.isnan(values), np.nan, np.interp(values, knots, levels)), np.float32)

    @cached_property
    def _knots(self) -> list[tuple[np.ndarray, np.ndarray]]:
        found = []
        for column in self.quantiles:
            knots, first, counts = np.unique(column, return_index=True, return_counts=True)
            found.append((knots, (first + (counts - 1) / 2) / (LEVELS - 1)))
        return found


@dataclass(frozen=True, eq=False)
class FittedCategories:
    """Values of each column that train met; the value at place i has code i + 1, 0 is missing or unknown."""

    names: tuple[str, ...]
    values: tuple[pa.Array, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Rows of an embedding of each column, the unknown one included."""
        return tuple(len(values) + 1 for values in self.values)

    def codes(self, f: int, texts: pa.Array) -> Int32[np.ndarray, "R"]:
        """Codes of category texts of column f."""
        return (self._lookups[f](texts) + 1).astype(np.int32)

    def recoded(self, f: int, values: Sequence[str]) -> Int32[np.ndarray, "_"]:
        """The code of each of another table's codes: these values from 1 on, 0 what is missing."""
        return self.codes(f, pa.array([None, *values], pa.string()))

    def few_codes(self, f: int, texts: Sequence[str | None]) -> list[int]:
        """The same for the few values of a request."""
        table = self._tables[f]
        return [table.get(text, 0) for text in texts]

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def _tables(self) -> list[dict[str | None, int]]:
        return [{text: place + 1 for place, text in enumerate(held.to_pylist())} for held in self.values]

    @cached_property
    def _lookups(self) -> list[RowLookup]:
        return [RowLookup(values) for values in self.values]


def no_numbers() -> FittedNumbers:
    """Of a log without any."""
    return FittedNumbers.fitted((), np.empty((0, 0), np.float32))


def no_categories() -> FittedCategories:
    """Of a log without any."""
    return FittedCategories((), ())


_PARTS = ("mean", "deviation", "missing", "quantiles")
_TEXT_PARTS = ("idf", "terms", "weights", "directions")
_NUMBERS = ("candidate_numbers", "context_numbers", "item_numbers", "measured")
_CATEGORIES = ("candidate_categories", "context_categories", "item_categories", "user_categories")


@dataclass(frozen=True, eq=False)
class FittedColumns:
    """All of it. `candidate_numbers` ends with the rolling counts; `measured` are score, position and reward."""

    columns: Columns = field(default_factory=Columns)
    rolling: tuple[str, ...] = ()
    candidate_numbers: FittedNumbers = field(default_factory=no_numbers)
    context_numbers: FittedNumbers = field(default_factory=no_numbers)
    item_numbers: FittedNumbers = field(default_factory=no_numbers)  # the columns joined into item features
    measured: FittedNumbers = field(default_factory=no_numbers)
    candidate_categories: FittedCategories = field(default_factory=no_categories)
    context_categories: FittedCategories = field(default_factory=no_categories)
    item_categories: FittedCategories = field(default_factory=no_categories)
    user_categories: FittedCategories = field(default_factory=no_categories)
    texts: Mapping[str, TextTransform] = field(default_factory=dict)
    vectors: Mapping[str, int] = field(default_factory=dict)  # name -> length of vectors the log brings
    pair_features: tuple[PairFeature, ...] = ()

    def __bool__(self) -> bool:
        """Whether there is any column."""
        held = (getattr(self, name) for name in (*_NUMBERS, *_CATEGORIES))
        return any(map(len, held)) or bool(self.texts or self.vectors)

    @cached_property
    def vector_slices(self) -> dict[str, slice]:
        """Which numbers of `item_vectors` are of which column: texts first, then vectors brought."""
        sizes = {name: held.directions.shape[1] for name, held in self.texts.items()} | dict(self.vectors)
        ends = np.cumsum([0, *sizes.values()]).tolist()
        return {
            name: slice(first, last) for name, first, last in zip(sizes, ends[:-1], ends[1:], strict=True)
        }

    @property
    def vector_size(self) -> int:
        """Numbers of `item_vectors`, 0 where there are none."""
        return max((part.stop for part in self.vector_slices.values()), default=0)

    def save(self, folder: Path) -> dict[str, Any]:
        """Write the arrays and values; what vocabulary.json says of them."""
        arrays = {
            f"{name}.{part}": getattr(getattr(self, name), part) for name in _NUMBERS for part in _PARTS
        }
        for place, transform in enumerate(self.texts.values()):
            arrays |= {f"texts.{place}.{part}": getattr(transform, part) for part in _TEXT_PARTS}
        save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, folder / _FILE)
        lists = {
            f"{kind}.{name}": values.to_pylist()
            for kind in _CATEGORIES
            for name, values in zip(getattr(self, kind).names, getattr(self, kind).values, strict=True)
        }
        pq.write_table(categories_table(lists), folder / _VALUES, compression="zstd")
        return {
            "columns": self.columns.to_dict(),
            "rolling": list(self.rolling),
            "numbers": {name: list(getattr(self, name).names) for name in _NUMBERS},
            "categories": {name: list(getattr(self, name).names) for name in _CATEGORIES},
            "texts": list(self.texts),
            "vectors": dict(self.vectors),
            "pair_features": [str(pair) for pair in self.pair_features],
        }

    @classmethod
    def load(cls, folder: Path, described: Mapping[str, Any]) -> FittedColumns:
        """Read what `save` wrote."""
        try:
            arrays = load_file(folder / _FILE)
            names = [f"{kind}.{name}" for kind, held in described["categories"].items() for name in held]
            lists = category_lists(read_parquet(folder / _VALUES), names)
            numbers: dict[str, Any] = {
                kind: FittedNumbers(tuple(held), *(arrays[f"{kind}.{part}"] for part in _PARTS))
                for kind, held in described["numbers"].items()
            }
            categories: dict[str, Any] = {
                kind: FittedCategories(
                    tuple(held), tuple(pa.array(lists[f"{kind}.{name}"], pa.string()) for name in held)
                )
                for kind, held in described["categories"].items()
            }
            texts = {
                name: TextTransform(*(arrays[f"texts.{place}.{part}"] for part in _TEXT_PARTS))
                for place, name in enumerate(described["texts"])
            }
            pairs = tuple(PairFeature(*text.split(":", 1)) for text in described["pair_features"])
            return cls(
                columns=Columns.from_dict(described["columns"]), rolling=tuple(described["rolling"]), texts=texts,
                vectors=described["vectors"], pair_features=pairs, **numbers, **categories,
            )  # fmt: skip
        except (OSError, KeyError, TypeError, ValueError, SafetensorError, pa.ArrowException) as error:
            raise DataError(f"{folder / _FILE} or a file beside it is missing or damaged: {error}") from error
