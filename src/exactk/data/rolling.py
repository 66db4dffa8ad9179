"""Rolling counts: how often an item was shown and clicked so far, in all and by this user, and at which rate.

Knows no folder and no service: a build replays a log through it in time order, a service feeds it what it shows and
hears, and both run the same compiled counting, so that what trained is what serves.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Float32, Int32, Int64

from exactk.data.columns.roles import NO_USER, ROLLING
from exactk.data.rolling_kernel import NO_PAIR, add_pairs, count_events, look_up, rehash, replay_rows
from exactk.errors import DataError, InputError

FILE, PAIR_FILE = "rolling-counts.parquet", "rolling-user-counts.parquet"
_BLOCK = 1 << 15


class Shown(NamedTuple):
    """One event: items shown to a user, or clicked by one, or both. Feedback may come as an event of its own."""

    user_id: Any
    shown: Sequence[Any] = ()
    clicked: Sequence[Any] = ()


class RollingCounts:
    """Counts by item and, where `names` ask for them, by user and item. Ids never met have counts of 0.

    `as_of` is the moment of the last event counted, in microseconds since 1970; None where nobody knows. Threads may
    look up while one updates.
    """

    def __init__(self, names: Sequence[str], as_of: int | None = None) -> None:
        for name in names:
            if name not in ROLLING:
                raise InputError(f"there is no rolling count {name!r}; there are {', '.join(ROLLING)}")
        self.names, self.as_of = tuple(names), as_of
        self._kinds = np.array([ROLLING.index(name) for name in names], np.int64)
        self._items: dict[Any, int] = {}
        self._users: dict[Any, int] = {}
        self._counts = np.zeros((0, 2))  # clicks, showings of each item
        self._totals = np.zeros(2)
        self._keys = (
            np.full(16, NO_PAIR) if any(name.startswith("user_") for name in names) else np.zeros(0, np.int64)
        )
        self._pairs = np.zeros((len(self._keys), 2))
        self._num_pairs = np.zeros(1, np.int64)
        self._lock = threading.Lock()

    @property
    def by_user(self) -> bool:
        """Whether users are told apart."""
        return len(self._keys) > 0

    def update(self, events: Iterable[Shown]) -> None:
        """Count what was shown and clicked."""
        users: list[int] = []
        shown: list[int] = []
        clicked: list[int] = []
        shown_ends: list[int] = []
        clicked_ends: list[int] = []
        with self._lock:
            for event in events:
                somebody = self.by_user and event.user_id not in (None, *NO_USER.values())
                users.append(_row(self._users, event.user_id) if somebody else -1)
                shown += [_row(self._items, item_id) for item_id in event.shown]
                clicked += [_row(self._items, item_id) for item_id in event.clicked]
                shown_ends.append(len(shown))
                clicked_ends.append(len(clicked))
            self._room_for(len(self._items), len(shown) + len(clicked))
            lists = [np.array(each, np.int64) for each in (users, shown, shown_ends, clicked, clicked_ends)]
            count_events(self._counts, self._totals, self._keys, self._pairs, self._num_pairs, *lists)

    def lookup(self, user_id: Any, item_ids: Sequence[Any]) -> Float32[np.ndarray, "N F"]:
        """The counts so far of these candidates for this user, a column for each name."""
        items = np.array([self._items.get(item_id, -1) for item_id in item_ids], np.int64)
        out = np.empty((len(items), len(self.names)), np.float32)
        user = self._users.get(user_id, -1)
        with self._lock:
            look_up(self._counts, self._totals, self._keys, self._pairs, user, items, self._kinds, out)
        return out

    def replay(
        self,
        order: Int64[np.ndarray, "O"],
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
            replay_rows(
                rows, timestamp, user, *shown, *clicked, *candidates, self._counts, self._totals, self._keys,
                self._pairs, self._num_pairs, self._kinds, out,
            )  # fmt: skip
            first = last

    def with_ids(self, item_ids: Sequence[Any], user_ids: Sequence[Any]) -> RollingCounts:
        """After a replay: the same counts under the ids that its rows stand for."""
        self._items = {item_id: row for row, item_id in enumerate(item_ids)}
        self._users = {user_id: row for row, user_id in enumerate(user_ids)} if self.by_user else {}
        return self

    def plus(self, other: RollingCounts) -> RollingCounts:
        """These counts, and those of another stretch of time."""
        counted = other._counts[: len(other._items)]
        rows = np.array([_row(self._items, item_id) for item_id in other._items], np.int64)
        self._room_for(len(self._items), 0)
        np.add.at(self._counts, rows, counted)
        self._totals += other._totals
        if self.by_user and other.by_user:
            user, item, pairs = other._held_pairs()
            own = np.array([_row(self._users, user_id) for user_id in other._users], np.int64)
            self._add_pairs(own[user], rows[item], pairs)
        self.as_of = other.as_of if self.as_of is None else max(self.as_of, other.as_of or self.as_of)
        return self

    def tables(self) -> dict[str, pa.Table]:
        """Files by name: all that is to be kept."""
        counts = self._counts[: len(self._items)]
        table = pa.table({"item_id": _id_array(self._items), "clicks": counts[:, 0], "shown": counts[:, 1]})
        described = {
            b"names": ",".join(self.names).encode(),
            b"totals": self._totals.astype("<f8").tobytes().hex().encode(),
            b"as_of": str("" if self.as_of is None else self.as_of).encode(),
        }
        files = {FILE: table.replace_schema_metadata(described)}
        if self.by_user:
            user, item, pairs = self._held_pairs()
            files[PAIR_FILE] = pa.table({
                "user_id": _id_array(self._users).take(pa.array(user)),
                "item_id": _id_array(self._items).take(pa.array(item)),
                "clicks": pairs[:, 0], "shown": pairs[:, 1],
            })  # fmt: skip
        return files

    def save(self, folder: Path | str) -> None:
        """Write the counts into an existing folder, as Parquet."""
        for name, table in self.tables().items():
            pq.write_table(table, Path(folder) / name, compression="zstd")

    @classmethod
    def load(cls, folder: Path | str) -> RollingCounts:
        """Read what `save` wrote."""
        path = Path(folder) / FILE
        try:
            table = pq.read_table(path)
            described = table.schema.metadata
            as_of = described.get(b"as_of", b"").decode()
            names = [name for name in described[b"names"].decode().split(",") if name]
            counts = cls(names, int(as_of) if as_of else None)
            counts._room_for(len(table), 0)
            counts._items = {item_id: row for row, item_id in enumerate(table["item_id"].to_pylist())}
            counts._counts[: len(table)] = np.column_stack(
                [table["clicks"].to_numpy(), table["shown"].to_numpy()]
            )
            counts._totals = np.frombuffer(bytes.fromhex(described[b"totals"].decode()), "<f8").copy()
            if counts.by_user:
                pairs = pq.read_table(Path(folder) / PAIR_FILE)
                user = [_row(counts._users, user_id) for user_id in pairs["user_id"].to_pylist()]
                item = [counts._items[item_id] for item_id in pairs["item_id"].to_pylist()]
                held = np.column_stack([pairs["clicks"].to_numpy(), pairs["shown"].to_numpy()])
                counts._add_pairs(np.array(user, np.int64), np.array(item, np.int64), held)
        except (OSError, KeyError, ValueError, TypeError, pa.ArrowException) as error:
            raise DataError(f"{path} or the file beside it is missing or damaged: {error}") from error
        return counts

    def _held_pairs(self) -> tuple[Int64[np.ndarray, "P"], Int64[np.ndarray, "P"], np.ndarray]:
        """Rows of users and of items, and what was counted of both together."""
        held = np.flatnonzero(self._keys != NO_PAIR)
        user, item = np.divmod(self._keys[held], np.int64(1) << 32)
        return user, item, self._pairs[held]

    def _add_pairs(
        self, user: Int64[np.ndarray, "P"], item: Int64[np.ndarray, "P"], pairs: np.ndarray
    ) -> None:
        self._room_for(len(self._items), len(user))
        add_pairs(
            self._keys, self._pairs, self._num_pairs, user, item, np.ascontiguousarray(pairs, np.float64)
        )

    def _room_for(self, num_items: int, num_pairs: int) -> None:
        if num_items > len(self._counts):
            grown = np.zeros((max(num_items, 2 * len(self._counts), 16), 2))
            grown[: len(self._counts)] = self._counts
            self._counts = grown
        wanted = 2 * (int(self._num_pairs[0]) + num_pairs)
        if self.by_user and wanted > len(self._keys):
            keys, pairs = self._keys, self._pairs
            self._keys = np.full(1 << int(wanted - 1).bit_length(), NO_PAIR)
            self._pairs = np.zeros((len(self._keys), 2))
            rehash(keys, pairs, self._keys, self._pairs)


def _row(rows: dict[Any, int], external: Any) -> int:
    return rows.setdefault(external, len(rows))


def _id_array(rows: dict[Any, int]) -> pa.Array:
    return pa.array(list(rows)) if rows else pa.array([], pa.string())
