"""Dataset: logged cards as views over one folder, parted into train, valid and test, turned into batches.

Knows no source and no model; a view adds only row numbers to its folder's memory-mapped index.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from jaxtyping import Bool, Int, Int64

from exactk.data.assemble import mark_met
from exactk.data.columns import NO_USER
from exactk.data.columns.logged import fitted_columns
from exactk.data.columns.vocabulary import FittedColumns, Scaling, Vocabulary
from exactk.data.folder import Folder, ItemRules
from exactk.data.index import Index
from exactk.data.rolling import RollingCounts
from exactk.data.split import Cutoffs, Method, epoch_order, in_batches, split_rows
from exactk.data.table import FILES, Meta, is_text, nobody_among, pack_graphs, replaced
from exactk.data.writer import DatasetWriter
from exactk.errors import DataError, InputError
from exactk.problem.batch import Batch
from exactk.problem.exact import cliques
from exactk.problem.rules.constraints import Constraint, Constraints

_GRAPHS_AT_ONCE = 1 << 13  # impressions


@dataclass(frozen=True)
class Signal:
    """Counts of what a log saw. `names` says what can be learned of it; there may be several kinds, or none."""

    cards: int  # impressions with a card
    clicked_cards: int
    named_clicks: int  # clicked cards of which it is known which item was clicked
    lists: int  # impressions in which an item of the list shown was clicked
    outside_clicks: int  # clicks on items that were not on the card, or where there was none
    rewards: int  # candidates with a reward

    @classmethod
    def of(cls, index: Index, rows: Int64[np.ndarray, "R"], rewards: int) -> Signal:
        """Count the signals of these rows."""
        carded = index.card_start[rows + 1] > index.card_start[rows]
        clicked = carded & index.clicked[rows]
        return cls(
            cards=int(carded.sum()),
            clicked_cards=int(clicked.sum()),
            named_clicks=int((clicked & (index.clicked_position[rows] >= 0)).sum()),
            lists=int((index.click_start[rows + 1] > index.click_start[rows]).sum()),
            outside_clicks=int(index.outside_clicks(rows).sum()),
            rewards=rewards,
        )

    @property
    def whole_lists(self) -> bool:
        """The list was seen, not the card alone: items outside any card were clicked."""
        return self.outside_clicks > 0

    @property
    def positives_only(self) -> bool:
        """Every card was chosen and none refused: there is no negative."""
        return 0 < self.cards == self.clicked_cards and not self.whole_lists and not self.named_clicks

    @property
    def names(self) -> tuple[str, ...]:
        """Of "card clicked", "item of the card", "item of the list", "positives only", "rewards"."""
        held = {
            "card clicked": 0 < self.clicked_cards < self.cards,
            "item of the card": self.named_clicks > 0 and not self.whole_lists,
            "item of the list": self.whole_lists,
            "positives only": self.positives_only,
            "rewards": self.rewards > 0,
        }
        return tuple(name for name, there in held.items() if there)


class SplitRecord(NamedTuple):
    """How a log was parted: which impressions (their checksum) and the arguments of `Dataset.split`."""

    impressions: str
    by: str | None
    seed: int
    valid: float
    test: float
    cutoffs: list[str] | None = None

    @classmethod
    def from_dict(cls, held: Any, source: Path) -> SplitRecord | None:
        """What a model folder says of it; None where it says nothing."""
        if held is None:
            return None
        kinds = {
            "impressions": str, "by": str | None, "seed": int, "valid": float, "test": float, "cutoffs": list | None,
        }  # fmt: skip
        if not isinstance(held, dict) or held.keys() != kinds.keys():
            raise DataError(f"{source} is damaged: split is {held!r:.80}")
        for name, kind in kinds.items():
            if not isinstance(held[name], kind):
                raise DataError(f"{source} is damaged: split.{name} is {held[name]!r:.80}")
        return cls(**held)

    def __str__(self) -> str:
        return f"split {self.by or 'as the folder has it'}, seed {self.seed}"


class Dataset:
    """Impressions of a folder: all of them, or those at `rows` (row numbers of impressions.parquet)."""

    def __init__(
        self,
        folder: Folder,
        rows: Int64[np.ndarray, "R"],
        rules: ItemRules | None = None,
        parted: SplitRecord | None = None,
    ) -> None:
        """`parted` tells how the rows were chosen, where `split` did that."""
        self.folder, self.rows, self.parted = folder, rows, parted
        self._own_rules = rules

    @classmethod
    def open(cls, path: Path | str, verify: bool = False) -> Dataset:
        """Open a folder. The first opening checks every byte and builds the index; `verify` checks them again."""
        folder = Folder(Path(path), verify)
        return cls(folder, np.arange(len(folder.index)))

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return f"Dataset({str(self.path)!r}, {len(self):,} impressions, K={self.meta.K}, N={self.meta.N})"

    @property
    def path(self) -> Path:
        """The folder."""
        return self.folder.path

    @property
    def meta(self) -> Meta:
        """What its meta.json says."""
        return self.folder.meta

    @property
    def items(self) -> pa.Table:
        """All items of the folder, also those no impression of this view names."""
        return self.folder.items

    @property
    def users(self) -> pa.Table:
        """All users of the folder."""
        return self.folder.users

    @property
    def clicked(self) -> Bool[np.ndarray, "R"]:
        """Which impressions were clicked."""
        return np.asarray(self.folder.index.clicked[self.rows])

    @cached_property
    def signal(self) -> Signal:
        """What can be learned from this view, and how much of it there is."""
        return Signal.of(self.folder.index, self.rows, self.folder.num_rewards(self.rows))

    def rolling_counts(self) -> RollingCounts | None:
        """The counts after the last row of this view, where a service continues; None if the log keeps none."""
        folder = self.folder
        if not folder.rolling:
            return None
        before, moment = folder.counts_before, folder.index.timestamp[self.rows]
        known = before is not None and before.as_of is not None and folder.dated
        rows = self.rows[moment > before.as_of] if known and before is not None else self.rows
        counts = RollingCounts.replayed(folder.index, folder.rolling, nobody_among(folder.user_ids), rows)
        counts.with_ids(folder.item_ids.to_pylist(), folder.user_ids.to_pylist())
        counts.as_of = int(moment.max()) if len(moment) and folder.dated else None
        return counts if before is None else counts.plus(before)

    @property
    def rules(self) -> ItemRules | None:
        """What cards of this view obey: the rules given to `constrained`, else the folder's."""
        return self._own_rules or self.folder.rules

    @property
    def constraints(self) -> Constraints | None:
        """The same, apart from any items."""
        return None if self.rules is None else self.rules.constraints

    def impressions(self, places: slice | None = None) -> pa.Table:
        """Impressions in their external form, as written; a slice of places keeps memory bounded."""
        return self.folder.impressions(self.rows if places is None else self.rows[places])

    def extra(self, file: str) -> pa.Table:
        """A further table of the folder, such as `ratings.parquet` of a MovieLens log."""
        if file not in self.meta.checksums:
            raise DataError(f"{self.path} holds no {file}; it has {', '.join(sorted(self.meta.checksums))}")
        return pq.read_table(self.path / file)

    def take(self, places: Int[np.ndarray, "P"] | Bool[np.ndarray, "R"] | slice) -> Dataset:
        """Some impressions of this view, in the order asked for."""
        return Dataset(self.folder, self.rows[places], self._own_rules, self.parted)

    def spread(self, most: int) -> Dataset:
        """So many impressions at the most, evenly spaced."""
        if len(self) <= most:
            return self
        return self.take(np.linspace(0, len(self) - 1, most).astype(np.int64))

    def demonstrations(self) -> Dataset:
        """The clicked cards only."""
        return self.take(self.clicked)

    def constrained(self, constraints: Constraints | Constraint | Sequence[Constraint]) -> Dataset:
        """The same impressions under other rules; graphs recorded in the folder are set aside."""
        rules = ItemRules(Constraints.of(constraints), self.path / FILES["items"])
        return Dataset(self.folder, self.rows, rules, self.parted)

    def record_graphs(self) -> None:
        """Rewrite the folder, all of it, with a `graph` column: rules asked once, so that no epoch pays for them."""
        if self.rules is None:
            raise DataError(f"{self.path} has no constraint to make graphs of")
        file, index = self.path / FILES["impressions"], self.folder.index
        meta = replace(self.meta, checksums={}, constraint=self.rules.constraints.to_dict())
        with DatasetWriter(self.path, meta) as writer, pq.ParquetFile(file, pre_buffer=False) as impressions:
            for name in self.meta.checksums:
                if name != file.name:
                    writer.copy(self.path / name)
            first = 0
            for batch in impressions.iter_batches(_GRAPHS_AT_ONCE):
                rows = np.arange(first, first + len(batch))
                first += len(batch)
                count = index.candidate_start[rows + 1] - index.candidate_start[rows]
                packed = pack_graphs(self.rules.graph(index.candidate_rows(rows)), count)
                writer.write_impressions(replaced(pa.Table.from_batches([batch]), "graph", packed))

    def split(
        self,
        by: Method | None = None,
        seed: int = 0,
        valid: float = 0.1,
        test: float = 0.1,
        cutoffs: Cutoffs | None = None,
    ) -> tuple[Dataset, Dataset, Dataset]:
        """Train, valid, test: as recorded in the folder, else by time if it is known, else at random; or as asked."""
        for moment in cutoffs or ():
            if isinstance(moment, datetime) and not self.folder.dated:
                raise InputError(f"timestamps of this log are numbers: cutoffs must be, too, got {moment}")
        parts = split_rows(self.folder.index, self.rows, by, seed, (valid, test), cutoffs)
        moments = None if cutoffs is None else [str(moment) for moment in cutoffs]
        checksum = str(self.meta.checksums[FILES["impressions"]]["sha256"])
        record = SplitRecord(checksum, by, seed, valid, test, moments)
        train, validation, held_out = (Dataset(self.folder, rows, self._own_rules, record) for rows in parts)
        return train, validation, held_out

    def vocabulary(
        self, user_rows: int = 0, item_rows: int = 0, columns: bool = True, texts: bool = True
    ) -> Vocabulary:
        """The users and candidates this view meets, how to scale features, what columns hold. Call it on train.

        With a number of rows, ids are hashed into so many and none is kept. Without `columns` nothing of them is
        fitted, and batches in this vocabulary hold none; without `texts` nothing of texts, which take longest.
        """
        index = self.folder.index
        users = np.unique(index.user[self.rows]).astype(np.int64)
        met = np.zeros(len(index.item_features), bool)
        mark_met(self.rows, index.candidate_start, index.candidates, met)
        items = np.flatnonzero(met)
        fitted = fitted_columns(self.folder, self.rows, users, items, texts) if columns else FittedColumns()
        return Vocabulary(
            user_ids=_known(self.folder.user_ids.take(pa.array(users[:0] if user_rows else users))),
            item_ids=self.folder.item_ids.take(pa.array(items[:0] if item_rows else items)),
            user_scaling=Scaling.fitted(index.user_features, users) if index.user_features.shape[1] else None,
            item_scaling=Scaling.fitted(index.item_features, items) if index.item_features.shape[1] else None,
            user_rows=user_rows,
            item_rows=item_rows,
            columns=fitted,
        )

    def solvable(self, vocabulary: Vocabulary) -> Dataset:
        """The impressions whose request has a valid card at all; nothing can be learned from the others."""
        if self.constraints is None and not self.folder.has_graphs:
            return self
        kept = [cliques.exists(batch.requests()) for batch in self.batches(vocabulary, 4096)]
        return self.take(np.concatenate(kept)) if kept else self

    def num_batches(self, batch_size: int) -> int:
        """Batches in an epoch, the last perhaps smaller."""
        return -(-len(self) // batch_size)

    def batches(
        self, vocabulary: Vocabulary, batch_size: int, seed: int | None = None, epoch: int = 0, start: int = 0
    ) -> Iterator[Batch]:
        """Batches start, start + 1, ... of an epoch, in an order fixed by (seed, epoch); None keeps the view's."""
        if batch_size < 1 or start < 0:
            raise InputError(
                f"batch_size must be at least 1 and start at least 0, got {batch_size} and {start}"
            )
        windows = epoch_order(len(self), seed, epoch, start * batch_size)
        for places in in_batches(windows, batch_size):
            yield self.batch(vocabulary, places)

    def batch(self, vocabulary: Vocabulary, places: Int[np.ndarray, "P"] | slice | None = None) -> Batch:
        """One batch of the impressions at these places of the view; all of them by default."""
        rows = self.rows if places is None else self.rows[places]
        return self.folder.batch(rows, vocabulary, self._own_rules)


def _known(users: pa.Array) -> pa.Array:
    """Those that are somebody."""
    return users.filter(pc.not_equal(users, NO_USER["string" if is_text(users.type) else "int64"]))


def expect_dataset(given: Any, name: str) -> Dataset:
    """`given` if it is a dataset; a path or a frame is refused, and told how it becomes one."""
    if not isinstance(given, Dataset):
        raise InputError(
            f"{name} must be a Dataset, got {given!r:.80}; Dataset.open(path) opens a folder, "
            "exactk.from_frame(frame) reads a log"
        )
    return given
