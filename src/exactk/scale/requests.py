"""Whole tables of requests as batches: ids looked up column by column, never request by request.

Knows a fitted model's tables and rules, no files. A request that needs the long way (items the catalogue lacks, under
rules that would read them) is set apart for `data.requests`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from jaxtyping import Bool, Float32, Int64

from exactk.data.hashing import keys_of_column
from exactk.data.rules import ItemRules
from exactk.data.table import RowLookup, combine, flatten
from exactk.data.vocabulary import Scaling
from exactk.errors import DataError
from exactk.model_folder import TrainedModel
from exactk.problem.batch import Batch
from exactk.scale.verdicts import PrecomputedRules


class SoundRows(NamedTuple):
    """Requests of a table that can be answered, and why the others cannot."""

    rows: Int64[np.ndarray, "R"]  # of the table, sound ones
    reasons: dict[int, str]  # row of the table: what is wrong with it


@dataclass(frozen=True, eq=False)
class RequestTables:
    """What a batch is made of, by row of the model's catalogue; the last row stands for everything unknown."""

    fitted: TrainedModel
    rules: ItemRules
    precomputed: PrecomputedRules | None
    item_row: RowLookup
    user_row: RowLookup
    item_index: Int64[np.ndarray, "I"]
    user_index: Int64[np.ndarray, "U"]
    item_features: Float32[np.ndarray, "I Fi"] | None
    user_features: Float32[np.ndarray, "U Fu"] | None

    @classmethod
    def of(cls, fitted: TrainedModel, model: Path) -> RequestTables:
        """Tables of a model folder."""
        catalogue, vocabulary = fitted.catalogue, fitted.vocabulary
        items, users = combine(catalogue.items["item_id"]), combine(catalogue.users["user_id"])
        return cls(
            fitted=fitted,
            rules=ItemRules(fitted.constraints, model / "items.parquet"),
            precomputed=None,
            item_row=RowLookup(items, "items.parquet", "item_id"),
            user_row=RowLookup(users, "users.parquet", "user_id"),
            item_index=np.append(vocabulary.index_items(items), 0),
            user_index=np.append(vocabulary.index_users(users), 0),
            item_features=_scaled(catalogue.item_features, vocabulary.item_scaling),
            user_features=_scaled(catalogue.user_features, vocabulary.user_scaling),
        )

    def with_precomputed_rules(self) -> RequestTables:
        """The same tables, all pairs of titles compared beforehand."""
        return replace(self, precomputed=PrecomputedRules.of(self.rules, self.fitted.catalogue))

    def sound(self, table: pa.Table, card_size: Int64[np.ndarray, "R"]) -> SoundRows:
        """Which rows ask for something that can be answered."""
        lists = combine(table["candidates"])
        ids, counts = flatten(lists)
        reasons: dict[int, str] = {}

        def refuse(wrong: Bool[np.ndarray, "R"], reason: str) -> None:
            for row in np.flatnonzero(wrong).tolist():
                reasons.setdefault(row, reason)

        refuse(np.asarray(lists.is_null().to_numpy(zero_copy_only=False)), "there is no list of candidates")
        refuse(counts == 0, "there are no candidates")
        owner = np.repeat(np.arange(len(counts)), counts)
        if ids.null_count:
            missing = np.asarray(ids.is_null().to_numpy(zero_copy_only=False))
            refuse(np.bincount(owner[missing], minlength=len(counts)) > 0, "a candidate has no id")
        code = _codes(ids)
        order = np.lexsort((code, owner))
        twice = (np.diff(owner[order]) == 0) & (np.diff(code[order]) == 0)
        refuse(
            np.bincount(owner[order][1:][twice], minlength=len(counts)) > 0, "a candidate stands there twice"
        )
        refuse(card_size < 1, "k must be at least 1")
        for row in np.flatnonzero(card_size > counts).tolist():
            reasons.setdefault(row, f"a card of {card_size[row]} cannot be made of {counts[row]} candidates")
        kept = np.array([row for row in range(len(counts)) if row not in reasons], np.int64)
        return SoundRows(kept, reasons)

    def places(self, candidates: pa.Array) -> Int64[np.ndarray, "B N"]:
        """The catalogue's row of every candidate, -1 for the unknown, -2 behind the end of a list."""
        ids, counts = flatten(candidates)
        self._refuse_type(ids, self.item_row.ids, "candidates")
        N = max(1, int(counts.max(initial=1)))
        row = np.full((len(counts), N), -2, np.int64)
        row[np.arange(N) < counts[:, None]] = self.item_row(ids)
        return row

    def needs_long_way(self, row: Int64[np.ndarray, "B N"]) -> Bool[np.ndarray, "B"]:
        """Rules would read what the catalogue does not know."""
        return np.asarray((row == -1).any(axis=1) & bool(self.fitted.constraints.fields))

    def batch(
        self,
        users: pa.Array,
        candidates: pa.Array,
        row: Int64[np.ndarray, "B N"],
        card_size: Int64[np.ndarray, "B"],
    ) -> Batch:
        """Requests of known users and items, or of strangers where no rule minds; `row` is their `places`."""
        self._refuse_type(users, self.user_row.ids, "user_id")
        present = row != -2
        known = np.maximum(row, -1)  # what is behind the end of a list reads as unknown
        user = self.user_row(users)
        group, cap = self.rules.caps(row, present)
        return Batch(
            user=self._user_index(users, user),
            item=self._item_index(candidates, known, present),
            present=present,
            graph=self._graph(row, present),
            card_size=card_size,
            pinned=np.zeros(row.shape, bool),
            group=group,
            cap=cap,
            brief=self.rules.brief(row, present, card_size.astype(np.int32)),
            tie_key=self._keys(candidates, present),
            user_features=None if self.user_features is None else self.user_features[user],
            item_features=None if self.item_features is None else self.item_features[known],
        )

    @staticmethod
    def _keys(candidates: pa.Array, present: Bool[np.ndarray, "B N"]) -> Int64[np.ndarray, "B N"]:
        keys = np.zeros(present.shape, np.int64)
        keys[present] = keys_of_column(candidates.flatten())
        return keys

    def _user_index(self, users: pa.Array, row: Int64[np.ndarray, "B"]) -> Int64[np.ndarray, "B"]:
        vocabulary = self.fitted.vocabulary
        return vocabulary.index_users(users) if vocabulary.user_rows else self.user_index[row]

    def _item_index(
        self, candidates: pa.Array, row: Int64[np.ndarray, "B N"], present: Bool[np.ndarray, "B N"]
    ) -> Int64[np.ndarray, "B N"]:
        """Where ids are hashed, strangers have a row of their own like everybody else."""
        vocabulary = self.fitted.vocabulary
        if not vocabulary.item_rows:
            return np.asarray(self.item_index[row])
        index = np.zeros(row.shape, np.int64)
        index[present] = vocabulary.index_items(candidates.flatten())
        return index

    def _graph(
        self, row: Int64[np.ndarray, "B N"], present: Bool[np.ndarray, "B N"]
    ) -> Bool[np.ndarray, "B N N"]:
        if self.precomputed is not None:
            return self.precomputed.graph(row, present)
        if self.fitted.constraints.rules:
            return self.rules.graph(row, present)
        return self.fitted.constraints.graph({}, present)

    def _refuse_type(self, ids: pa.Array, held: pa.Array, column: str) -> None:
        if len(held) and len(ids) and not pa.types.is_null(ids.type) and ids.type != held.type:
            raise DataError(f"column '{column}' holds {ids.type} ids, the model's are {held.type}")


def canonical_ids(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Ids, or lists of ids, in the two types models know: int64 and string."""
    array = combine(column)
    inner = array.type.value_type if hasattr(array.type, "value_type") else array.type
    if pa.types.is_integer(inner):
        wanted: pa.DataType = pa.int64()
    elif pa.types.is_null(inner):
        wanted = inner
    else:
        wanted = pa.string()
    return array.cast(pa.list_(wanted) if inner is not array.type else wanted)


def _codes(ids: pa.Array) -> Int64[np.ndarray, "C"]:
    """Numbers that are equal where ids are."""
    if pa.types.is_integer(ids.type) and not ids.null_count:
        return np.asarray(ids.to_numpy(), np.int64)
    encoded = ids.dictionary_encode(null_encoding="encode").indices
    return np.asarray(encoded.to_numpy(zero_copy_only=False), np.int64)


def _scaled(raw: np.ndarray, scaling: Scaling | None) -> Float32[np.ndarray, "R F"] | None:
    """Standardised features and, last, what stands for the unknown: the mean, that is 0."""
    if scaling is None:
        return None
    held = raw if raw.shape[1] == len(scaling) else np.full((len(raw), len(scaling)), np.nan, np.float32)
    return np.vstack([scaling(held), np.zeros((1, len(scaling)), np.float32)])
