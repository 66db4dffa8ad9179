"""What a model learned of its log: ids, how features are standardised, and what the columns of train held.

Fitted on train and saved with the model, so that a request is read as train was; knows no folder and no impressions.
Index 0 is everything unknown.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Float32, Int32, Int64
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from exactk.data.columns import Columns, PairFeature
from exactk.data.columns.codes import categories_table, category_lists, hashed_rows
from exactk.data.columns.texts import TextTransform
from exactk.data.table import RowLookup, combine, read_parquet
from exactk.errors import DataError, InputError

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


NO_NUMBERS = FittedNumbers.fitted((), np.empty((0, 0), np.float32))
NO_CATEGORIES = FittedCategories((), ())
_PARTS = ("mean", "deviation", "missing", "quantiles")
_TEXT_PARTS = ("idf", "terms", "weights", "directions")
_NUMBERS = ("candidate_numbers", "context_numbers", "item_numbers", "measured")
_CATEGORIES = ("candidate_categories", "context_categories", "item_categories", "user_categories")


@dataclass(frozen=True, eq=False)
class FittedColumns:
    """What all columns held. `candidate_numbers` ends with the rolling counts; `measured`: score, position, reward."""

    columns: Columns = field(default_factory=Columns)
    rolling: tuple[str, ...] = ()
    candidate_numbers: FittedNumbers = NO_NUMBERS
    context_numbers: FittedNumbers = NO_NUMBERS
    item_numbers: FittedNumbers = NO_NUMBERS  # the columns joined into item features
    measured: FittedNumbers = NO_NUMBERS
    candidate_categories: FittedCategories = NO_CATEGORIES
    context_categories: FittedCategories = NO_CATEGORIES
    item_categories: FittedCategories = NO_CATEGORIES
    user_categories: FittedCategories = NO_CATEGORIES
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
        ends = np.cumsum([*sizes.values()]).tolist()
        return {name: slice(end - size, end) for (name, size), end in zip(sizes.items(), ends, strict=True)}

    @property
    def vector_size(self) -> int:
        """Numbers of `item_vectors`, 0 where there are none."""
        return max((part.stop for part in self.vector_slices.values()), default=0)

    def save(self, folder: Path) -> dict[str, Any]:
        """Write the arrays and values; what vocabulary.json says of them."""
        numbers = {name: getattr(self, name) for name in _NUMBERS}
        arrays = {f"{name}.{part}": getattr(held, part) for name, held in numbers.items() for part in _PARTS}
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


_FORMAT = 2
_READABLE = (1, 2)  # 1 knew no columns, and is still written where there are none


@dataclass(frozen=True)
class Scaling:
    """Feature f is read as (x - mean[f]) * inverse_deviation[f]; one that never varies is only centred."""

    mean: Float32[np.ndarray, "F"]
    inverse_deviation: Float32[np.ndarray, "F"]

    @classmethod
    def fitted(cls, features: Float32[np.ndarray, "R F"], rows: Int64[np.ndarray, "S"]) -> Scaling:
        """Mean and deviation over the rows of train, NaN left out; streamed, so that features may exceed memory."""
        F = features.shape[1]
        count, total, square = np.zeros(F), np.zeros(F), np.zeros(F)
        first_row = features[rows[:1]].astype(np.float64).sum(axis=0)
        shift = np.where(np.isfinite(first_row), first_row, 0.0)  # keeps the squares small
        for first in range(0, len(rows), 1 << 16):
            block = features[rows[first : first + (1 << 16)]].astype(np.float64) - shift
            known = np.isfinite(block)
            block = np.where(known, block, 0.0)
            count += known.sum(axis=0)
            total += block.sum(axis=0)
            square += (block**2).sum(axis=0)
        count = np.maximum(count, 1)
        mean = total / count
        variance = np.maximum(square / count - mean**2, 0.0)
        deviation = np.where(variance > 1e-12 * (1 + mean**2), np.sqrt(variance), 1.0)
        return cls((mean + shift).astype(np.float32), (1 / deviation).astype(np.float32))

    def __call__(self, raw: Float32[np.ndarray, "... F"]) -> Float32[np.ndarray, "... F"]:
        """Standardised values; NaN, that is unknown, becomes 0, the mean."""
        scaled = (raw - self.mean) * self.inverse_deviation
        return np.asarray(np.nan_to_num(scaled, posinf=0.0, neginf=0.0))

    def __len__(self) -> int:
        return len(self.mean)


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """Ids in their external form; the id at place i has index i + 1. Scalings are None where train had no features.
    `columns` is what the log's own columns held.

    With `user_rows` or `item_rows`, those ids are hashed into so many rows instead: none is kept, all are known, and
    two may share a row.
    """

    user_ids: pa.Array
    item_ids: pa.Array
    user_scaling: Scaling | None = None
    item_scaling: Scaling | None = None
    user_rows: int = 0
    item_rows: int = 0
    columns: FittedColumns = field(default_factory=FittedColumns)
    _tables: dict[str, dict[Hashable, int]] = field(default_factory=dict, repr=False)

    @property
    def num_users(self) -> int:
        """Rows of a user embedding: the users of train and one for everyone else."""
        return (self.user_rows or len(self.user_ids)) + 1

    @property
    def num_items(self) -> int:
        """Rows of an item embedding: the items of train and one for everything else."""
        return (self.item_rows or len(self.item_ids)) + 1

    @property
    def user_feature_size(self) -> int:
        """0 where train had no user features."""
        return 0 if self.user_scaling is None else len(self.user_scaling)

    @property
    def item_feature_size(self) -> int:
        """0 where train had no item features."""
        return 0 if self.item_scaling is None else len(self.item_scaling)

    def index_users(self, ids: pa.Array) -> Int64[np.ndarray, "R"]:
        """Indices of a whole column of user ids."""
        return (hashed_rows(ids, self.user_rows) if self.user_rows else RowLookup(self.user_ids)(ids)) + 1

    def index_items(self, ids: pa.Array) -> Int64[np.ndarray, "R"]:
        """Indices of a whole column of item ids."""
        return (hashed_rows(ids, self.item_rows) if self.item_rows else RowLookup(self.item_ids)(ids)) + 1

    @property
    def item_type(self) -> type | None:
        """What item ids are; None where any will do, since none is known."""
        return self._type("item")

    def user_index(self, user_id: Any) -> int:
        """Index of one user, 0 if unknown; an id of the wrong type is a mistake, not a stranger."""
        return self._index("user", user_id)

    def item_index(self, item_ids: Sequence[Any]) -> list[int]:
        """Indices of a request's candidates."""
        return [self._index("item", item_id) for item_id in item_ids]

    def _index(self, kind: str, wanted: Any) -> int:
        ids, rows = self._known(kind)
        expected = self._type(kind)
        if isinstance(wanted, np.generic):
            wanted = wanted.item()
        if wanted is not None and expected is not None and type(wanted) is not expected:
            words = "whole numbers" if expected is int else "text"
            raise InputError(f"{kind} ids of this model are {words}, got {wanted!r}")
        if rows:
            return int(hashed_rows(pa.array([wanted], ids.type), rows)[0]) + 1
        if (
            kind not in self._tables
        ):  # the first alone costs: 3 million ids take a second, each later one 50 ns
            self._tables[kind] = {known: i + 1 for i, known in enumerate(ids.to_pylist())}
        return self._tables[kind].get(wanted, 0)

    def _type(self, kind: str) -> type | None:
        ids, rows = self._known(kind)
        if not (len(ids) or rows):
            return None
        return int if pa.types.is_integer(ids.type) else str

    def _known(self, kind: str) -> tuple[pa.Array, int]:
        return (self.user_ids, self.user_rows) if kind == "user" else (self.item_ids, self.item_rows)

    def save(self, folder: Path | str) -> None:
        """Write vocabulary.json and one Parquet file of ids each for users and items into an existing folder."""
        folder = Path(folder)
        for kind, ids in (("users", self.user_ids), ("items", self.item_ids)):
            pq.write_table(pa.table({"id": ids}), folder / f"vocabulary-{kind}.parquet", compression="zstd")
        described = {
            "format": _FORMAT if self.columns else 1,
            "num_users": self.num_users,
            "num_items": self.num_items,
            "user_rows": self.user_rows,
            "item_rows": self.item_rows,
            "user_scaling": _scaling_to_dict(self.user_scaling),
            "item_scaling": _scaling_to_dict(self.item_scaling),
        }
        if self.columns:
            described["columns"] = self.columns.save(folder)
        text = json.dumps(described, indent=1, ensure_ascii=False)
        (folder / "vocabulary.json").write_text(text + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: Path | str) -> Vocabulary:
        """Read what `save` wrote."""
        folder = Path(folder)
        path = folder / "vocabulary.json"
        try:
            held = json.loads(path.read_text(encoding="utf-8"))
            if held["format"] not in _READABLE:
                raise DataError(f"{path}: format {held['format']} is not one this version reads ({_FORMAT})")
            loaded = cls(
                user_ids=combine(read_parquet(folder / "vocabulary-users.parquet")["id"]),
                item_ids=combine(read_parquet(folder / "vocabulary-items.parquet")["id"]),
                user_scaling=_scaling_from_dict(held["user_scaling"]),
                item_scaling=_scaling_from_dict(held["item_scaling"]),
                user_rows=held.get("user_rows", 0),
                item_rows=held.get("item_rows", 0),
                columns=FittedColumns.load(folder, of) if (of := held.get("columns")) else FittedColumns(),
            )
        except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
            raise DataError(f"{path} or a file beside it is missing or damaged: {error}") from error
        if (loaded.num_users, loaded.num_items) != (held["num_users"], held["num_items"]):
            raise DataError(f"{path}: the id files beside it belong to another vocabulary")
        return loaded


def _scaling_to_dict(scaling: Scaling | None) -> dict[str, list[float]] | None:
    # float32 -> float64 -> shortest decimal -> float32 gives back the same bits
    return None if scaling is None else {name: held.tolist() for name, held in vars(scaling).items()}


def _scaling_from_dict(held: dict[str, list[float]] | None) -> Scaling | None:
    if held is None:
        return None
    return Scaling(**{name: np.array(each, np.float32) for name, each in held.items()})
