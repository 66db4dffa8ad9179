"""Rules applied to the items of a folder: from rows of `items.parquet` to who may share a card with whom.

Knows the rules only through `problem.constraints`, and reads only the columns they ask for.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Bool, Int32, Int64

from exactk.data.table import combine, flatten
from exactk.errors import DataError
from exactk.problem.brief import Brief
from exactk.problem.rules.constraints import Constraints


class ItemRules:
    """`constraints`, and the columns of an items file they read, loaded on first use."""

    def __init__(self, constraints: Constraints, items_file: Path) -> None:
        self.constraints, self.items_file = constraints, items_file

    @classmethod
    def of(cls, described: Mapping[str, Any], items_file: Path) -> ItemRules:
        """From the plain form kept in meta.json."""
        return cls(Constraints.from_dict(described), items_file)

    @cached_property
    def _columns(self) -> dict[str, np.ndarray]:
        wanted = sorted({"item_id", *self.constraints.fields})
        held = pq.read_schema(self.items_file).names
        for name in wanted:
            if name not in held:
                raise DataError(
                    f"{self.items_file}: the constraint reads column '{name}', which is not there"
                )
        table = pq.read_table(self.items_file, columns=wanted)
        return {name: plain_values(table[name]) for name in wanted}

    def columns(self, item: Int64[np.ndarray, "B N"]) -> dict[str, np.ndarray]:
        """The attribute values of candidates given as item rows; absent ones (-1) get some value, to be ignored."""
        return {name: values[np.maximum(item, 0)] for name, values in self._columns.items()}

    def graph(
        self, item: Int64[np.ndarray, "B N"], present: Bool[np.ndarray, "B N"]
    ) -> Bool[np.ndarray, "B N N"]:
        """Which candidates, given as item rows, may share a card."""
        return self.constraints.graph(self.columns(item), present)

    def caps(
        self, item: Int64[np.ndarray, "B N"], present: Bool[np.ndarray, "B N"]
    ) -> tuple[Int32[np.ndarray, "B C N"], Int32[np.ndarray, "B C"]]:
        """Groups and caps; reads no column, and costs nothing, where no rule caps."""
        if not any(rule.cap is not None for rule in self.constraints.rules):
            B, N = item.shape
            return np.empty((B, 0, N), np.int32), np.empty((B, 0), np.int32)
        return self.constraints.caps(self.columns(item), present)

    def brief(
        self,
        item: Int64[np.ndarray, "B N"],
        present: Bool[np.ndarray, "B N"],
        card_size: Int32[np.ndarray, "B"],
    ) -> Brief | None:
        """What the rules demand of whole cards; reads no column where they demand nothing."""
        self.constraints.refuse_functions_of_cards()
        if not self.constraints.speak_of_cards:
            return None
        return self.constraints.brief(self.columns(item), present, card_size)


def plain_values(column: pa.ChunkedArray | pa.Array) -> np.ndarray:
    """A column as rules read it: numbers, text, or, for lists of numbers, a matrix."""
    array = combine(column)
    if (
        pa.types.is_list(array.type)
        or pa.types.is_fixed_size_list(array.type)
        or pa.types.is_large_list(array.type)
    ):
        values, lengths = flatten(array)
        if len(lengths) and (lengths == lengths[0]).all():
            return np.asarray(values.to_numpy(zero_copy_only=False)).reshape(len(lengths), -1)
    return np.asarray(array.to_numpy(zero_copy_only=False))
