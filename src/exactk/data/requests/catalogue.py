"""Catalogue: what is known of items and users apart from any log; attributes for rules, features for models.

Knows no model. Kept beside one so that a request need only name its items. Rules on titles, which alone are dear to
ask, may be decided once for all pairs of its items.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Bool, Float32, Int64

from exactk.data.columns.items import ItemColumns
from exactk.data.columns.vocabulary import FittedColumns
from exactk.data.dataset import Dataset
from exactk.data.table import RowLookup, canonical, combine, flatten, is_list, read_parquet
from exactk.errors import DataError
from exactk.problem.rules.constraints import TitleDistance


@dataclass(frozen=True, eq=False)
class Catalogue:
    """Tables with the columns of items.parquet and users.parquet. Unknown ids have row -1."""

    items: pa.Table
    users: pa.Table
    _columns: dict[str, np.ndarray] = field(default_factory=dict, repr=False)
    _read: dict[str, tuple[FittedColumns, ItemColumns]] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, dataset: Dataset) -> Catalogue:
        """Everything the dataset's folder says about items and users."""
        return cls(dataset.items, dataset.users)

    @cached_property
    def item_ids(self) -> pa.Array:
        """External id of every row of items."""
        return combine(self.items["item_id"])

    def item_rows(self, item_ids: Sequence[Any]) -> list[int]:
        """The row of each id."""
        rows = self._item_row
        try:
            return list(map(rows.__getitem__, item_ids))  # nearly always all are known
        except (KeyError, TypeError):
            return [rows.get(item_id, -1) if _is_id(item_id) else -1 for item_id in item_ids]

    @cached_property
    def rows_of(self) -> RowLookup:
        """From a column of ids to the row of each."""
        return RowLookup(self.item_ids)

    def user_row(self, user_id: Any) -> int:
        """The row of one user."""
        return self._user_row.get(user_id, -1) if _is_id(user_id) else -1

    def values(self, name: str) -> np.ndarray:
        """An item attribute by row, and None at the end, which row -1 finds; None throughout where it is unknown."""
        if name not in self._columns:
            held = np.full(len(self.items) + 1, None, object)
            if name in self.items.column_names:
                for row, value in enumerate(self.items[name].to_pylist()):  # lists stay lists
                    held[row] = value
            self._columns[name] = held
        return self._columns[name]

    def item_columns(self, fitted: FittedColumns) -> ItemColumns:
        """What the items say in a vocabulary's terms; kept for the last vocabulary asked for."""
        held = self._read.get("items")
        if held is None or held[0] is not fitted:
            held = self._read["items"] = (fitted, ItemColumns.of(self.items, fitted, self.item_features))
        return held[1]

    def user_attribute(self, name: str, row: int) -> Any:
        """An attribute of one user; None where the user, or the attribute, is unknown."""
        return self.users[name][row].as_py() if row >= 0 and name in self.users.column_names else None

    @cached_property
    def item_features(self) -> Float32[np.ndarray, "I Fi"]:
        """Raw features by row, none where the table has none."""
        return _features(self.items)

    @cached_property
    def user_features(self) -> Float32[np.ndarray, "U Fu"]:
        """Raw features by row."""
        return _features(self.users)

    @cached_property
    def _item_row(self) -> dict[Any, int]:
        return {item_id: row for row, item_id in enumerate(self.items["item_id"].to_pylist())}

    @cached_property
    def _user_row(self) -> dict[Any, int]:
        return {user_id: row for row, user_id in enumerate(self.users["user_id"].to_pylist())}

    def save(self, folder: Path | str) -> None:
        """Write items.parquet and users.parquet into an existing folder; what was read from there is written alike."""
        for name, table in (("items", self.items), ("users", self.users)):
            pq.write_table(_bare(table), Path(folder) / f"{name}.parquet", compression="zstd")

    @classmethod
    def load(cls, folder: Path | str) -> Catalogue:
        """Read what `save` wrote, or the two files of a dataset folder."""
        try:
            paths = (Path(folder) / f"{name}.parquet" for name in ("items", "users"))
            items, users = (read_parquet(path, memory_map=True) for path in paths)
        except (OSError, UnicodeDecodeError, pa.ArrowException) as error:
            raise DataError(f"{folder} holds no catalogue: {error}") from error
        return cls(canonical(items, "items"), canonical(users, "users"))


def _bare(table: pa.Table) -> pa.Table:
    """The same columns without what a file told of them: numbers of fields, names of the members of lists."""
    kinds = [pa.list_(kind.value_type) if is_list(kind) else kind for kind in table.schema.types]
    return table.cast(pa.schema(list(zip(table.column_names, kinds, strict=True))))


def _is_id(value: Any) -> bool:
    return isinstance(value, str | int | np.generic)


def _features(table: pa.Table) -> Float32[np.ndarray, "R F"]:
    if "features" not in table.column_names:
        return np.empty((len(table), 0), np.float32)
    values, lengths = flatten(combine(table["features"]))
    if len(lengths) and (lengths != lengths[0]).any():
        raise DataError("column 'features': rows have different numbers of features")
    return np.asarray(values, np.float32).reshape(len(lengths), int(lengths.max(initial=0)))


@dataclass(frozen=True, eq=False)
class TitleVerdicts:
    """For one rule: the number of every catalogue row's title, and of which two numbers the titles are too near."""

    number: Int64[np.ndarray, "I"]
    near: Bool[np.ndarray, "T T"]

    @classmethod
    def of(cls, rule: TitleDistance, catalogue: Catalogue) -> TitleVerdicts | None:
        """None where the catalogue is too large, or lacks a title: then the rule is asked."""
        if rule.field not in catalogue.items.column_names or catalogue.items[rule.field].null_count:
            return None
        # Imported here so that rules without titles need no rapidfuzz.
        from exactk.problem.rules.titles import NEAR, title_pairs

        titles = catalogue.items[rule.field].to_pylist()
        pairs = title_pairs(float(rule.minimum), rule.metric)
        if not all(isinstance(title, str) and title for title in titles) or not pairs.remember(titles):
            return None
        return cls(np.array([pairs.number[title] for title in titles], np.int64), pairs.verdict == NEAR)

    def part_near(self, row: Int64[np.ndarray, "B N"], graph: Bool[np.ndarray, "B N N"]) -> None:
        """Take the pairs whose titles are too near out of the graph; all items are of the catalogue."""
        number = self.number[np.maximum(row, 0)]
        graph &= ~self.near[number[:, :, None], number[:, None, :]]
