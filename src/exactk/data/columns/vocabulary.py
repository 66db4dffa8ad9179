"""Vocabulary: which ids a model has learned, and how features are standardised; fitted on train, saved with the model.

Knows no impressions. Index 0 is everything unknown.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Float32, Int64

from exactk.data.columns.codes import hashed_rows
from exactk.data.columns.fitted import FittedColumns
from exactk.data.table import RowLookup, combine, read_parquet
from exactk.errors import DataError, InputError

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
        ):  # first single lookup: 3 million ids take a second, then each costs 50 ns
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
                columns=FittedColumns.load(folder, held["columns"])
                if held.get("columns")
                else FittedColumns(),
            )
        except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
            raise DataError(f"{path} or a file beside it is missing or damaged: {error}") from error
        if (loaded.num_users, loaded.num_items) != (held["num_users"], held["num_items"]):
            raise DataError(f"{path}: the id files beside it belong to another vocabulary")
        return loaded


def _scaling_to_dict(scaling: Scaling | None) -> dict[str, list[float]] | None:
    # float32 -> float64 -> shortest decimal -> float32 gives back the same bits
    if scaling is None:
        return None
    return {"mean": scaling.mean.tolist(), "inverse_deviation": scaling.inverse_deviation.tolist()}


def _scaling_from_dict(held: dict[str, list[float]] | None) -> Scaling | None:
    if held is None:
        return None
    return Scaling(np.array(held["mean"], np.float32), np.array(held["inverse_deviation"], np.float32))
