"""Rolling counts: how often an item was shown and clicked so far, in all and by this user, and at which rate.

Knows no folder and no service: a build replays a log through it in time order, a service feeds it what it shows and
hears, and both run the same compiled counting, so that what trained is what serves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, no_type_check

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Float32, Int32, Int64
from numba import njit

from exactk.data.roles import ROLLING
from exactk.errors import DataError, InputError

WEIGHT = 10.0  # showings at the overall rate that an item's own rate is mixed with
_FILE, _PAIR_FILE = "rolling-counts.parquet", "rolling-user-counts.parquet"
_NO_PAIR = np.int64(-1)
_BLOCK = 1 << 15


class Shown(NamedTuple):
    """One event: items shown to a user, or clicked by one, or both. Feedback may come as an event of its own."""

    user_id: Any
    shown: Sequence[Any] = ()
    clicked: Sequence[Any] = ()


class RollingCounts:
    """Counts by item and, where `names` ask for them, by user and item. Ids never met have counts of 0."""

    def __init__(self, names: Sequence[str]) -> None:
        for name in names:
            if name not in ROLLING:
                raise InputError(f"there is no rolling count {name!r}; there are {', '.join(ROLLING)}")
        self.names = tuple(names)
        self._kinds = np.array([ROLLING.index(name) for name in names], np.int64)
        self._items: dict[Any, int] = {}
        self._users: dict[Any, int] = {}
        self._counts = np.zeros((0, 2))  # clicks, showings of each item
        self._totals = np.zeros(2)
        self._keys = (
            np.full(16, _NO_PAIR)
            if any(name.startswith("user_") for name in names)
            else np.zeros(0, np.int64)
        )
        self._pairs = np.zeros((len(self._keys), 2))
        self._num_pairs = np.zeros(1, np.int64)

    @property
    def by_user(self) -> bool:
        """Whether users are told apart."""
        return len(self._keys) > 0

    def update(self, events: Iterable[Shown]) -> None:
        """Count what was shown and clicked."""
        for event in events:
            user = self._row(self._users, event.user_id) if self.by_user else 0
            shown = np.array([self._row(self._items, item_id) for item_id in event.shown], np.int64)
            clicked = np.array([self._row(self._items, item_id) for item_id in event.clicked], np.int64)
            self._room_for(len(self._items), len(shown) + len(clicked))
            _count(self._counts, self._totals, self._keys, self._pairs, self._num_pairs, user, shown, 1)
            _count(self._counts, self._totals, self._keys, self._pairs, self._num_pairs, user, clicked, 0)

    def lookup(self, user_id: Any, item_ids: Sequence[Any]) -> Float32[np.ndarray, "N F"]:
        """The counts so far of these candidates for this user, a column for each name."""
        items = np.array([self._items.get(item_id, -1) for item_id in item_ids], np.int64)
        out = np.empty((len(items), len(self.names)), np.float32)
        _look_up(
            self._counts,
            self._totals,
            self._keys,
            self._pairs,
            self._users.get(user_id, -1),
            items,
            self._kinds,
            out,
        )
        return out

    def replay(
        self,
        order: Int64[np.ndarray, "R"],
        timestamp: Int64[np.ndarray, "R"],
        user: Int32[np.ndarray, "R"],
        shown: tuple[Int64[np.ndarray, "E"], Int32[np.ndarray, "S"]],
        clicked: tuple[Int64[np.ndarray, "E"], Int32[np.ndarray, "L"]],
        candidates: tuple[Int64[np.ndarray, "E"], Int32[np.ndarray, "C"]],
        out: Float32[np.ndarray, "T F"],
        num_items: int,
    ) -> None:
        """Look up, then count, all rows of a log in time `order`, moment by moment: a row sees only earlier moments.

        Items and users are rows of the folder; `shown`, `clicked` and `candidates` are lists of item rows, each as
        (start, values); what is looked up goes into `out`, or nowhere where that is empty.
        """
        ends = np.append(np.flatnonzero(np.diff(timestamp[order])) + 1, len(order))
        first = 0
        self._room_for(num_items, 0)
        while first < len(order):
            last = int(ends[min(int(np.searchsorted(ends, first + _BLOCK)), len(ends) - 1)])
            rows = order[first:last]
            lengths = shown[0][rows + 1] - shown[0][rows] + clicked[0][rows + 1] - clicked[0][rows]
            self._room_for(num_items, int(lengths.sum()))
            _replay(
                rows, timestamp, user, *shown, *clicked, *candidates, self._counts, self._totals, self._keys,
                self._pairs, self._num_pairs, self._kinds, out,
            )  # fmt: skip
            first = last

    def with_ids(self, item_ids: Sequence[Any], user_ids: Sequence[Any]) -> RollingCounts:
        """After a replay: the same counts under the ids that its rows stand for."""
        self._items = {item_id: row for row, item_id in enumerate(item_ids)}
        self._users = {user_id: row for row, user_id in enumerate(user_ids)} if self.by_user else {}
        return self

    def save(self, folder: Path | str) -> None:
        """Write the counts into an existing folder, as Parquet."""
        folder = Path(folder)
        counts = self._counts[: len(self._items)]
        table = pa.table({"item_id": _id_array(self._items), "clicks": counts[:, 0], "shown": counts[:, 1]})
        described = {
            b"names": ",".join(self.names).encode(),
            b"totals": self._totals.astype("<f8").tobytes().hex().encode(),
        }
        pq.write_table(table.replace_schema_metadata(described), folder / _FILE, compression="zstd")
        if self.by_user:
            held = np.flatnonzero(self._keys != _NO_PAIR)
            users, items = np.divmod(self._keys[held], np.int64(1) << 32)
            pairs = pa.table({
                "user_id": _id_array(self._users).take(pa.array(users)),
                "item_id": _id_array(self._items).take(pa.array(items)),
                "clicks": self._pairs[held, 0], "shown": self._pairs[held, 1],
            })  # fmt: skip
            pq.write_table(pairs, folder / _PAIR_FILE, compression="zstd")

    @classmethod
    def load(cls, folder: Path | str) -> RollingCounts:
        """Read what `save` wrote."""
        path = Path(folder) / _FILE
        try:
            table = pq.read_table(path)
            described = table.schema.metadata
            counts = cls([name for name in described[b"names"].decode().split(",") if name])
            counts._room_for(len(table), 0)
            counts._items = {item_id: row for row, item_id in enumerate(table["item_id"].to_pylist())}
            counts._counts[: len(table)] = np.column_stack(
                [table["clicks"].to_numpy(), table["shown"].to_numpy()]
            )
            counts._totals = np.frombuffer(bytes.fromhex(described[b"totals"].decode()), "<f8").copy()
            if counts.by_user:
                counts._read_pairs(pq.read_table(Path(folder) / _PAIR_FILE))
        except (OSError, KeyError, ValueError, TypeError, pa.ArrowException) as error:
            raise DataError(f"{path} or the file beside it is missing or damaged: {error}") from error
        return counts

    def _read_pairs(self, table: pa.Table) -> None:
        self._room_for(len(self._items), len(table))
        for row in table.to_pylist():
            user, item = self._row(self._users, row["user_id"]), np.array([self._items[row["item_id"]]])
            slot = _slot_of(self._keys, _key(user, item[0]))
            self._keys[slot] = _key(user, item[0])
            self._pairs[slot] = row["clicks"], row["shown"]
            self._num_pairs[0] += 1

    def _row(self, rows: dict[Any, int], external: Any) -> int:
        return rows.setdefault(external, len(rows))

    def _room_for(self, num_items: int, num_pairs: int) -> None:
        if num_items > len(self._counts):
            grown = np.zeros((max(num_items, 2 * len(self._counts), 16), 2))
            grown[: len(self._counts)] = self._counts
            self._counts = grown
        wanted = 2 * (int(self._num_pairs[0]) + num_pairs)
        if self.by_user and wanted > len(self._keys):
            keys, pairs = self._keys, self._pairs
            self._keys = np.full(1 << int(wanted - 1).bit_length(), _NO_PAIR)
            self._pairs = np.zeros((len(self._keys), 2))
            _rehash(keys, pairs, self._keys, self._pairs)


def _id_array(rows: dict[Any, int]) -> pa.Array:
    return pa.array(list(rows)) if rows else pa.array([], pa.string())


@njit(cache=True, nogil=True)
@no_type_check
def _key(user, item):
    return (np.int64(user) << np.int64(32)) + np.int64(item)


@njit(cache=True, nogil=True)
@no_type_check
def _slot_of(keys, key):
    """Where a pair stands in the open table, or the free place where it would."""
    mask = len(keys) - 1
    mixed = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)
    slot = np.int64(mixed >> np.uint64(20)) & mask
    while keys[slot] != -1 and keys[slot] != key:
        slot = (slot + 1) & mask
    return slot


@njit(cache=True, nogil=True)
@no_type_check
def _rehash(keys, pairs, new_keys, new_pairs):
    for old in range(len(keys)):
        if keys[old] != -1:
            slot = _slot_of(new_keys, keys[old])
            new_keys[slot] = keys[old]
            new_pairs[slot] = pairs[old]


@njit(cache=True, nogil=True)
@no_type_check
def _count(counts, totals, keys, pairs, num_pairs, user, items, column):
    """Column 0 counts clicks, 1 showings."""
    for item in items:
        counts[item, column] += 1.0
        totals[column] += 1.0
        if len(keys):
            key = _key(user, item)
            slot = _slot_of(keys, key)
            if keys[slot] == -1:
                keys[slot] = key
                num_pairs[0] += 1
            pairs[slot, column] += 1.0


@njit(cache=True, nogil=True)
@no_type_check
def _look_up(counts, totals, keys, pairs, user, items, kinds, out):
    overall = totals[0] / totals[1] if totals[1] > 0 else 0.0
    for n in range(len(items)):
        item = items[n]
        clicks = shown = own_clicks = own_shown = 0.0
        if 0 <= item < len(counts):
            clicks, shown = counts[item, 0], counts[item, 1]
            if len(keys) and user >= 0:
                key = _key(user, item)
                slot = _slot_of(keys, key)
                if keys[slot] == key:
                    own_clicks, own_shown = pairs[slot, 0], pairs[slot, 1]
        rate = (clicks + WEIGHT * overall) / (shown + WEIGHT)
        for f in range(len(kinds)):
            kind = kinds[f]
            if kind == 0:
                value = clicks
            elif kind == 1:
                value = shown
            elif kind == 2:
                value = rate
            elif kind == 3:
                value = own_clicks
            elif kind == 4:
                value = own_shown
            else:
                value = (own_clicks + WEIGHT * rate) / (own_shown + WEIGHT)
            out[n, f] = value


@njit(cache=True, nogil=True)
@no_type_check
def _replay(
    rows, timestamp, user, shown_start, shown, click_start, clicks, start, candidates, counts, totals, keys, pairs,
    num_pairs, kinds, out,
):  # fmt: skip
    first = 0
    while first < len(rows):
        last = first
        while last < len(rows) and timestamp[rows[last]] == timestamp[rows[first]]:
            last += 1
        if len(out):
            for place in range(first, last):
                row = rows[place]
                span = slice(start[row], start[row + 1])
                _look_up(counts, totals, keys, pairs, user[row], candidates[span], kinds, out[span])
        for place in range(first, last):
            row = rows[place]
            _count(
                counts,
                totals,
                keys,
                pairs,
                num_pairs,
                user[row],
                shown[shown_start[row] : shown_start[row + 1]],
                1,
            )
            _count(
                counts,
                totals,
                keys,
                pairs,
                num_pairs,
                user[row],
                clicks[click_start[row] : click_start[row + 1]],
                0,
            )
        first = last
