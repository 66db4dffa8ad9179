"""What the rows of a log say of items and users along the way: the first value met of each, and which ids there are.

Knows pieces of impressions as the reader hands them on; memory grows with the items and users, not with the rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Bool, Int64

from exactk.data.columns.codes import hashed_rows
from exactk.data.table import combine, flatten

_HASHES = (1 << 63) - 1


class DistinctIds:
    """Ids met so far. New ones wait until they are as many as the known, so that a long log costs n log n, not n^2."""

    def __init__(self) -> None:
        self._known: pa.Array | None = None
        self._waiting: list[pa.Array] = []
        self._count = 0

    def add(self, ids: Any) -> None:
        """Some more, in any number of repetitions."""
        values = combine(ids)
        fresh = pc.unique(values.flatten() if pa.types.is_list(values.type) else values)
        self._waiting.append(fresh)
        self._count += len(fresh)
        if self._count > max(1 << 16, 0 if self._known is None else len(self._known)):
            self._settle()

    def array(self) -> pa.Array:
        """All of them in the order they were met."""
        self._settle()
        return pa.array([]) if self._known is None else self._known

    def _settle(self) -> None:
        held = [] if self._known is None else [self._known]
        parts = [*held, *self._waiting]
        kind = next((part.type for part in parts if not pa.types.is_null(part.type)), None)
        if parts and kind is not None:
            self._known = pc.unique(pa.concat_arrays([part.cast(kind) for part in parts]))
        self._waiting, self._count = [], 0


class MetBefore:
    """Whether ids were met before, by 63-bit hashes: 8 bytes an id, and one slip in 10 million logs of a million."""

    def __init__(self) -> None:
        self._runs: list[Int64[np.ndarray, "_"]] = []  # sorted, each at least twice as long as the next

    def __call__(self, ids: pa.Array) -> Bool[np.ndarray, "R"]:
        """Which of the ids were added."""
        wanted = hashed_rows(ids, _HASHES)
        found = np.zeros(len(wanted), bool)
        for run in self._runs:
            place = np.minimum(np.searchsorted(run, wanted), len(run) - 1)
            found |= run[place] == wanted
        return found

    def add(self, ids: pa.Array) -> None:
        """More of them."""
        run = np.sort(hashed_rows(ids, _HASHES))
        while self._runs and len(self._runs[-1]) < 2 * len(run):
            run = np.sort(np.concatenate([self._runs.pop(), run]))
        if len(run):
            self._runs.append(run)


class Collected:
    """Columns of items (lists beside the candidates) or of users that came with the log; the first of each id stays."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._parts: list[pa.Table] = []
        self._count = 0

    def take_from(self, impressions: pa.Table) -> pa.Table:
        """Keep what is said of items or users; the impressions without it."""
        names = [name for name in impressions.column_names if name.startswith(f"{self.kind}.")]
        if not names:
            return impressions
        columns: dict[str, Any] = {}
        if self.kind == "item":
            columns["item_id"] = flatten(impressions["candidates"])[0]
            columns |= {name.partition(".")[2]: flatten(impressions[name])[0] for name in names}
        else:
            columns["user_id"] = combine(impressions["user_id"])
            columns |= {name.partition(".")[2]: combine(impressions[name]) for name in names}
        self._parts.append(self._firsts(pa.table(columns)))
        self._count += len(self._parts[-1])
        if self._count > max(1 << 16, 2 * len(self._parts[0])):
            self._settle()
        return impressions.drop_columns(names)

    def table(self) -> pa.Table | None:
        """One row for each id met; None where the log says nothing of them."""
        self._settle()
        return self._parts[0] if self._parts else None

    def _settle(self) -> None:
        if len(self._parts) > 1:
            self._parts = [self._firsts(pa.concat_tables(self._parts, promote_options="permissive"))]
        self._count = 0

    def _firsts(self, table: pa.Table) -> pa.Table:
        codes = combine(table[f"{self.kind}_id"]).dictionary_encode().indices.to_numpy(zero_copy_only=False)
        _, places = np.unique(codes, return_index=True)
        return table.take(pa.array(np.sort(places)))
