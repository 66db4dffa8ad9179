"""A dataset folder, open: its meta, its index, its tables of items and users; and batches of its rows.

Knows no views: which rows, and in which order, is `dataset.py`'s business. Rules it knows only through `Constraints`,
and of items it reads only the columns they ask for.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Bool, Float32, Int32, Int64

from exactk.data.assemble import entries, gathered_features, padded, unpacked_graphs
from exactk.data.columns import Columns
from exactk.data.columns.codes import category_lists, keys_of_column
from exactk.data.columns.items import derived_pairs
from exactk.data.columns.logged import LoggedColumns
from exactk.data.columns.vocabulary import Scaling, Vocabulary
from exactk.data.index import check_files, open_index
from exactk.data.rolling import FILE as COUNTS
from exactk.data.rolling import RollingCounts
from exactk.data.table import FILES, Meta, combine, flatten, is_list, lists_of, read_parquet
from exactk.data.writer import CATEGORIES, NUMBERS, VALUES, number_names
from exactk.errors import DataError
from exactk.problem.batch import Batch
from exactk.problem.brief import Brief
from exactk.problem.rules.columns import as_written
from exactk.problem.rules.constraints import Constraints

ItemRows = Int64[np.ndarray, "B N"]  # candidates as rows of items, -1 where nobody is
Graph = Bool[np.ndarray, "B N N"]
Groups = Int32[np.ndarray, "B C N"]
Caps = Int32[np.ndarray, "B C"]


class ItemRules:
    """`constraints`, and the columns of an items file they read, loaded on first use."""

    def __init__(self, constraints: Constraints, items_file: Path) -> None:
        self.constraints, self.items_file = constraints, items_file

    @cached_property
    def _columns(self) -> dict[str, np.ndarray]:
        wanted = sorted({"item_id", *self.constraints.fields})
        held = pq.read_schema(self.items_file).names
        if missing := [name for name in wanted if name not in held]:
            column = f"column '{missing[0]}', which is not there"
            raise DataError(f"{self.items_file}: the constraint reads {column}")
        table = pq.read_table(self.items_file, columns=wanted)
        return {name: _as_rules_read(table[name]) for name in wanted}

    def columns(self, item: ItemRows) -> dict[str, np.ndarray]:
        """The attribute values of candidates; absent ones get some value, to be ignored."""
        return {name: values[np.maximum(item, 0)] for name, values in self._columns.items()}

    def graph(self, item: ItemRows) -> Graph:
        """Which candidates may share a card."""
        return self.constraints.graph(self.columns(item), item >= 0)

    def caps(self, item: ItemRows) -> tuple[Groups, Caps]:
        """Groups and caps; reads no column, and costs nothing, where no rule caps."""
        if not any(rule.cap is not None for rule in self.constraints.rules):
            B, N = item.shape
            return np.empty((B, 0, N), np.int32), np.empty((B, 0), np.int32)
        return self.constraints.caps(self.columns(item), item >= 0)

    def brief(self, item: ItemRows, card_size: Int32[np.ndarray, "B"]) -> Brief | None:
        """What the rules demand of whole cards; reads no column where they demand nothing."""
        self.constraints.refuse_functions_of_cards()
        if not self.constraints.speak_of_cards:
            return None
        return self.constraints.brief(self.columns(item), item >= 0, card_size)


def _as_rules_read(column: pa.ChunkedArray) -> np.ndarray:
    """Numbers, text, or, for lists of numbers, a matrix."""
    if is_list(column.type):
        values, lengths = flatten(column)
        if len(lengths) and (lengths == lengths[0]).all():
            return np.asarray(values).reshape(len(lengths), -1)
    return np.asarray(combine(column))


_SMALL = 1 << 12  # bytes


@dataclass(frozen=True)
class CandidateColumns:
    """The matrices of a folder, mapped; row c is the c-th candidate of all impressions end to end."""

    number_names: tuple[str, ...]
    numbers: Float32[np.ndarray, "C F"]
    category_names: tuple[str, ...]
    categories: Int32[np.ndarray, "C G"]
    values: dict[str, list[str]]  # of each category, in the order of their codes from 1

    @classmethod
    def of(cls, folder: Path, columns: Columns, num_candidates: int) -> CandidateColumns:
        """Map what `CandidateWriter` wrote."""
        numbers, categories = number_names(columns), columns.candidate.categories
        return cls(
            number_names=numbers,
            numbers=mapped_matrix(folder / NUMBERS, np.float32, num_candidates, len(numbers)),
            category_names=categories,
            categories=mapped_matrix(folder / CATEGORIES, np.int32, num_candidates, len(categories)),
            values=category_lists(read_parquet(folder / VALUES), categories) if categories else {},
        )

    def said(self, first: int, last: int) -> list[dict[str, Any]]:
        """What the log says of candidates first to last - 1, by name, as it was written; nothing where missing.

        No reward: no request can know one.
        """
        rows: list[dict[str, Any]] = [{} for _ in range(first, last)]
        for place, name in enumerate(self.number_names):
            for row, value in zip(rows, as_written(self.numbers[first:last, place]).tolist(), strict=True):
                if value == value and name != "reward":  # NaN is missing
                    row[name] = int(value) if value.is_integer() else value
        for place, name in enumerate(self.category_names):
            values = self.values[name]
            for row, code in zip(rows, self.categories[first:last, place].tolist(), strict=True):
                if code:
                    row[name] = values[code - 1]
        return rows


def mapped_matrix(path: Path, dtype: type[np.generic], rows: int, width: int) -> np.ndarray:
    """The rows as they lie on disk, read as they are asked for; no file is there for no columns."""
    if not width:
        return np.empty((rows, 0), dtype)
    try:
        # An empty matrix cannot be mapped; np.asarray drops memmap's subclass, which compiled loops do not know.
        mode: Literal["r"] | None = "r" if path.stat().st_size > _SMALL else None
        matrix = np.asarray(np.load(path, mmap_mode=mode, allow_pickle=False))
    except (OSError, ValueError) as error:
        raise DataError(f"{path} is missing or damaged: {error}") from error
    if matrix.ndim != 2 or matrix.shape[1] != width:
        raise DataError(f"{path} is damaged: its shape is {matrix.shape}, {width} columns were written")
    if len(matrix) != rows:
        raise DataError(f"{path} has {len(matrix)} rows, the impressions {rows} candidates")
    return matrix


class Folder:
    """What all views of one folder share. Tables are read when first asked for; impressions stay on disk."""

    def __init__(self, path: Path, verify: bool = False) -> None:
        self.path = path
        self.meta = Meta.load(path)
        check_files(path, self.meta)
        self.index, self.names = open_index(path, self.meta, verify)
        self.columns = Columns.from_dict(self.meta.columns or {}, f"{path / 'meta.json'}: columns")
        self.has_graphs = len(self.index.graph) > 0
        self.has_propensity = bool(np.isfinite(self.index.propensity).any())
        self._seen: _SeenFolder | None = None

    @property
    def rolling(self) -> tuple[str, ...]:
        """The counts so far among the candidates' numbers: those computed here, and those the log had with it."""
        named = self.columns.rolling or ()
        logged = (name for name in named if name in self.columns.candidate.numbers)
        return (*self.names.rolling, *logged)

    @property
    def made(self) -> dict[str, list[str]]:
        """What is made of the columns for models to read."""
        found = {
            "counts so far": self.names.rolling,
            "features of pairs": map(str, derived_pairs(self.columns)),
        }
        return {what: held for what, names in found.items() if (held := list(names))}

    @cached_property
    def counts_before(self) -> RollingCounts | None:
        """What had been counted before the log began; None where it is all there is."""
        return RollingCounts.load(self.path) if COUNTS in self.meta.checksums else None

    @cached_property
    def dated(self) -> bool:
        """Whether timestamps are dates and times, so that one can tell which moment they are."""
        schema = pq.read_schema(self.path / FILES["impressions"])
        return "timestamp" in schema.names and pa.types.is_timestamp(schema.field("timestamp").type)

    @cached_property
    def candidate_columns(self) -> CandidateColumns:
        """What the log says of every candidate of every impression."""
        return CandidateColumns.of(self.path, self.columns, len(self.index.candidates))

    def num_rewards(self, rows: Int64[np.ndarray, "R"]) -> int:
        """Candidates of these rows whose reward is known and not 0."""
        if "reward" not in self.columns.measured:
            return 0
        column = self.candidate_columns.numbers[:, self.candidate_columns.number_names.index("reward")]
        count = 0
        for first in range(0, len(rows), 1 << 16):
            _, at = entries(self.index.candidate_start, rows[first : first + (1 << 16)])
            count += int((np.nan_to_num(column[at]) != 0).sum())
        return count

    @cached_property
    def items(self) -> pa.Table:
        """Every column of items.parquet."""
        return pq.read_table(self.path / FILES["items"], memory_map=True)

    @cached_property
    def users(self) -> pa.Table:
        """Every column of users.parquet."""
        return pq.read_table(self.path / FILES["users"], memory_map=True)

    @cached_property
    def item_ids(self) -> pa.Array:
        """External id of every item row, without reading the other columns."""
        return combine(pq.read_table(self.path / FILES["items"], columns=["item_id"])["item_id"])

    @cached_property
    def item_keys(self) -> Int64[np.ndarray, "I"]:
        """What settles ties between items, row by row."""
        return keys_of_column(self.item_ids)

    @cached_property
    def user_ids(self) -> pa.Array:
        """External id of every user row."""
        return combine(pq.read_table(self.path / FILES["users"], columns=["user_id"])["user_id"])

    @cached_property
    def rules(self) -> ItemRules | None:
        """What the folder's own constraint asks of candidates."""
        if not self.meta.constraint:
            return None
        return ItemRules(Constraints.from_dict(self.meta.constraint), self.path / FILES["items"])

    def impressions(self, rows: Int64[np.ndarray, "B"]) -> pa.Table:
        """Rows of impressions.parquet as they were written, in the order asked for."""
        taken: list[pa.Table] = []
        ascending = np.sort(rows)
        with pq.ParquetFile(self.path / FILES["impressions"], memory_map=True) as file:
            first = 0
            for group in range(file.num_row_groups):
                last = first + file.metadata.row_group(group).num_rows
                low, high = np.searchsorted(ascending, [first, last])
                if high > low:
                    taken.append(file.read_row_group(group).take(pa.array(ascending[low:high] - first)))
                first = last
            table = pa.concat_tables(taken) if taken else file.schema_arrow.empty_table()
        back = np.argsort(np.argsort(rows, kind="stable"))
        return table if (np.diff(rows) >= 0).all() else table.take(pa.array(back))

    def with_columns(self, impressions: pa.Table, first_row: int) -> pa.Table:
        """Impressions from this row on with what is known of their candidates beside them, as a log of lists has it."""
        index, held = self.index, self.candidate_columns
        start = index.candidate_start[first_row : first_row + len(impressions) + 1]
        sizes = np.diff(start)
        own = slice(int(start[0]), int(start[-1]))
        columns = dict(zip(held.number_names, held.numbers[own].T, strict=True))
        columns |= dict(zip(self.names.rolling, index.rolling[own].T, strict=True))
        for f, name in enumerate(held.category_names):
            known = pa.array([None, *held.values[name]], pa.string())
            columns[name] = known.take(pa.array(held.categories[own, f]))
        for name, values in columns.items():
            flat = values if isinstance(values, pa.Array) else pa.array(np.ascontiguousarray(values))
            impressions = impressions.append_column(name, lists_of(sizes, flat))
        return impressions

    def candidates_said(self, row: int) -> list[dict[str, Any]]:
        """What the log says of each candidate of a row, counts so far included, as a request would say it."""
        first, last = (int(at) for at in self.index.candidate_start[row : row + 2])
        said = self.candidate_columns.said(first, last)
        counts = self.index.rolling[first:last].tolist() if self.names.rolling else [[]] * len(said)
        names = self.names.rolling
        return [one | dict(zip(names, each, strict=True)) for one, each in zip(said, counts, strict=True)]

    def card_sizes(self, rows: Int64[np.ndarray, "B"]) -> Int32[np.ndarray, "B"]:
        """Of the card of each row; one without a card asks for one of K, or of all it has where they are fewer."""
        starts = (self.index.card_start, self.index.candidate_start)
        cards, lists = (start[rows + 1] - start[rows] for start in starts)
        return np.asarray(np.where(cards > 0, cards, np.minimum(self.meta.K or 0, lists)), np.int32)

    def batch(
        self, rows: Int64[np.ndarray, "B"], vocabulary: Vocabulary, own_rules: ItemRules | None = None
    ) -> Batch:
        """These rows as arrays. `own_rules` replace the folder's constraint and its recorded graphs."""
        index = self.index
        seen = self._seen_through(vocabulary)
        item = index.candidate_rows(rows)  # B N
        present = item >= 0
        card = padded(rows, index.card_start, index.card)  # B K
        size = self.card_sizes(rows)
        rules = own_rules or self.rules
        graph, group, cap = self._validity(rows, item, own_rules)
        user = index.user[rows].astype(np.int64)
        return Batch(
            user=seen.users[user],
            item=np.where(present, seen.items[np.maximum(item, 0)], 0),
            present=present,
            graph=graph,
            card_size=size.astype(np.int64),
            pinned=np.zeros(item.shape, bool),
            group=group,
            cap=cap,
            tie_key=np.where(present, self.item_keys[np.maximum(item, 0)], 0),
            brief=None if rules is None else rules.brief(item, size),
            user_features=_features(user[:, None], index.user_features, vocabulary.user_scaling, "user"),
            item_features=_features(item, index.item_features, vocabulary.item_scaling, "item"),
            card=card,
            clicked=index.clicked[rows],
            clicked_position=index.clicked_position[rows].astype(np.int64),
            propensity=index.propensity[rows].astype(np.float32) if self.has_propensity else None,
            **seen.columns.arrays(rows, item),
        )

    def _validity(
        self, rows: Int64[np.ndarray, "B"], item: ItemRows, own_rules: ItemRules | None
    ) -> tuple[Graph, Groups, Caps]:
        """Graph, groups, caps: by rules given, else as recorded, else by the folder's rules, else all may mix."""
        rules = own_rules or self.rules
        B, N = item.shape
        if rules is not None and (own_rules or not self.has_graphs):
            graph = rules.graph(item)
        else:
            count = (item >= 0).sum(axis=1)
            graph = unpacked_graphs(rows, self.index.graph_start, self.index.graph, count, N)
        if rules is None:
            return graph, np.empty((B, 0, N), np.int32), np.empty((B, 0), np.int32)
        return graph, *rules.caps(item)

    def _seen_through(self, vocabulary: Vocabulary) -> _SeenFolder:
        """Kept for the last vocabulary asked for."""
        if self._seen is None or self._seen.vocabulary is not vocabulary:
            users, items = vocabulary.index_users(self.user_ids), vocabulary.index_items(self.item_ids)
            self._seen = _SeenFolder(vocabulary, users, items, LoggedColumns(vocabulary.columns, self))
        return self._seen


class _SeenFolder(NamedTuple):
    """A folder through a vocabulary: the index of every user row and item row, and the log's columns."""

    vocabulary: Vocabulary
    users: Int64[np.ndarray, "U"]
    items: Int64[np.ndarray, "I"]
    columns: LoggedColumns


def _features(
    rows: Int64[np.ndarray, "B W"], features: Float32[np.ndarray, "R F"], scaling: Scaling | None, kind: str
) -> Any:
    """Standardised features of padded rows [B, F] for users; None where the vocabulary has none."""
    if scaling is None:
        return None
    if len(scaling) != features.shape[1]:
        raise DataError(
            f"the vocabulary was fitted on {len(scaling)} {kind} features, this folder has {features.shape[1]}"
        )
    gathered = gathered_features(rows, features, scaling.mean, scaling.inverse_deviation)
    return gathered[:, 0] if kind == "user" else gathered
