"""Rolling counts: how often an item was shown and clicked so far, in all and by this user, and at which rate.

Knows an index and no service: a build replays a log through it in time order, a service feeds it what it shows and
hears, and both run the same compiled counting, so that what trained is what serves. A card of a log that tells of cards
alone shows its items; a list shown whole shows all.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Float32, Int64

from exactk.data.columns import NO_USER, ROLLING, USUAL_ROLLING, Columns
from exactk.data.logs.coding import NO_TIMESTAMP
from exactk.data.table import read_parquet
from exactk.errors import DataError, InputError
from exactk.problem.compiling import compiled

if TYPE_CHECKING:
    from exactk.data.index import Index

FILE, PAIR_FILE = "rolling-counts.parquet", "rolling-user-counts.parquet"
_BLOCK = 1 << 15
WEIGHT = 10.0  # showings at the overall rate that an item's own rate is mixed with
NO_PAIR = np.int64(-1)


class Counted(NamedTuple):
    """What was counted so far; `keys` and `pairs` are the table of users and items, empty where users do not count."""

    items: np.ndarray  # I 2
    totals: np.ndarray  # 2
    keys: np.ndarray
    pairs: np.ndarray
    num_pairs: np.ndarray  # one number


class Events(NamedTuple):
    """A log to be replayed: when, by whom, and lists of items as (start, values)."""

    timestamp: np.ndarray
    user: np.ndarray
    shown_start: np.ndarray
    shown: np.ndarray
    clicked_start: np.ndarray
    clicked: np.ndarray
    start: np.ndarray
    candidates: np.ndarray


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
        keys = np.full(16 if any(name.startswith("user_") for name in names) else 0, NO_PAIR)
        pairs, none = np.zeros((len(keys), 2)), np.zeros(1, np.int64)
        self._counted = Counted(np.zeros((0, 2)), np.zeros(2), keys, pairs, none)
        self._lock = threading.Lock()

    @property
    def by_user(self) -> bool:
        """Whether users are told apart."""
        return len(self._counted.keys) > 0

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
            _count_events(self._counted, *lists)

    def lookup(self, user_id: Any, item_ids: Sequence[Any]) -> Float32[np.ndarray, "N F"]:
        """The counts so far of these candidates for this user, a column for each name."""
        items = np.array([self._items.get(item_id, -1) for item_id in item_ids], np.int64)
        out = np.empty((len(items), len(self.names)), np.float32)
        user = self._users.get(user_id, -1)
        with self._lock:
            _look_up(self._counted, user, items, self._kinds, out)
        return out

    @classmethod
    def replayed(
        cls,
        index: Index,
        names: Sequence[str],
        nobody: int = -1,
        rows: Int64[np.ndarray, "R"] | None = None,
        out: Float32[np.ndarray, "T F"] | None = None,
    ) -> RollingCounts:
        """The counts after these rows of a log (all of them if not given), by row of the folder's items and users.

        Rows are looked up, then counted, in time order and moment by moment: a row sees only earlier moments. What
        every candidate had goes into `out`, where that is given. `nobody` is the row of users that stands for none.
        """
        every = np.arange(len(index)) if rows is None else np.sort(rows)
        order = every[np.argsort(index.timestamp[every], kind="stable")]
        whole = bool(index.outside_clicks(np.arange(len(index))).any())
        candidates = (index.candidate_start, index.candidates)
        shown = candidates if whole else (index.card_start, index.items_at(index.card_start, index.card))
        clicked = (index.click_start, index.items_at(index.click_start, index.click))
        user = np.where(index.user == nobody, np.int32(-1), index.user)
        events = Events(index.timestamp, user, *shown, *clicked, *candidates)
        counts, num_items = cls(names), len(index.item_features)
        found = np.empty((0, len(names)), np.float32) if out is None else out
        counts._room_for(num_items, 0)
        ends = np.append(np.flatnonzero(np.diff(index.timestamp[order])) + 1, len(order))
        first = 0
        while first < len(order):
            last = int(ends[min(int(np.searchsorted(ends, first + _BLOCK)), len(ends) - 1)])
            some = order[first:last]
            starts = (events.shown_start, events.clicked_start)
            counts._room_for(num_items, sum(int((start[some + 1] - start[some]).sum()) for start in starts))
            _replay_rows(some, events, counts._counted, counts._kinds, found)
            first = last
        return counts

    def with_ids(self, item_ids: Sequence[Any], user_ids: Sequence[Any]) -> RollingCounts:
        """After a replay: the same counts under the ids that its rows stand for."""
        self._items = {item_id: row for row, item_id in enumerate(item_ids)}
        self._users = {user_id: row for row, user_id in enumerate(user_ids)} if self.by_user else {}
        return self

    def plus(self, other: RollingCounts) -> RollingCounts:
        """These counts, and those of another stretch of time."""
        counted = other._counted.items[: len(other._items)]
        rows = np.array([_row(self._items, item_id) for item_id in other._items], np.int64)
        self._room_for(len(self._items), 0)
        np.add.at(self._counted.items, rows, counted)
        self._counted.totals[:] += other._counted.totals
        if self.by_user and other.by_user:
            user, item, pairs = other._held_pairs()
            own = np.array([_row(self._users, user_id) for user_id in other._users], np.int64)
            self._add_pairs(own[user], rows[item], pairs)
        self.as_of = other.as_of if self.as_of is None else max(self.as_of, other.as_of or self.as_of)
        return self

    def tables(self) -> dict[str, pa.Table]:
        """Files by name: all that is to be kept."""
        counts = self._counted.items[: len(self._items)]
        table = pa.table({"item_id": _id_array(self._items), "clicks": counts[:, 0], "shown": counts[:, 1]})
        described = {
            b"names": ",".join(self.names).encode(),
            b"totals": self._counted.totals.astype("<f8").tobytes().hex().encode(),
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
            table = read_parquet(path)
            described = table.schema.metadata or {}
            as_of = described.get(b"as_of", b"").decode()
            names = [name for name in described[b"names"].decode().split(",") if name]
            counts = cls(names, int(as_of) if as_of else None)
            counts._room_for(len(table), 0)
            counts._items = {item_id: row for row, item_id in enumerate(table["item_id"].to_pylist())}
            counts._counted.items[: len(table)] = _clicks_and_showings(table)
            counts._counted.totals[:] = np.frombuffer(bytes.fromhex(described[b"totals"].decode()), "<f8")
            if counts.by_user:
                pairs = read_parquet(Path(folder) / PAIR_FILE)
                user = [_row(counts._users, user_id) for user_id in pairs["user_id"].to_pylist()]
                item = [counts._items[item_id] for item_id in pairs["item_id"].to_pylist()]
                held = _clicks_and_showings(pairs)
                counts._add_pairs(np.array(user, np.int64), np.array(item, np.int64), held)
        except (OSError, KeyError, ValueError, TypeError, pa.ArrowException) as error:
            raise DataError(f"{path} or the file beside it is missing or damaged: {error}") from error
        return counts

    def _held_pairs(self) -> tuple[Int64[np.ndarray, "P"], Int64[np.ndarray, "P"], np.ndarray]:
        """Rows of users and of items, and what was counted of both together."""
        keys = self._counted.keys
        held = np.flatnonzero(keys != NO_PAIR)
        user, item = np.divmod(keys[held], np.int64(1) << 32)
        return user, item, self._counted.pairs[held]

    def _add_pairs(self, user: np.ndarray, item: np.ndarray, pairs: np.ndarray) -> None:
        self._room_for(len(self._items), len(user))
        _add_pairs_each(self._counted, user, item, np.ascontiguousarray(pairs, np.float64))

    def _room_for(self, num_items: int, num_pairs: int) -> None:
        held = self._counted
        if num_items > len(held.items):
            grown = np.zeros((max(num_items, 2 * len(held.items), 16), 2))
            grown[: len(held.items)] = held.items
            self._counted = held = held._replace(items=grown)
        wanted = 2 * (int(held.num_pairs[0]) + num_pairs)
        if self.by_user and wanted > len(held.keys):
            keys = np.full(1 << int(wanted - 1).bit_length(), NO_PAIR)
            pairs = np.zeros((len(keys), 2))
            _rehash(held.keys, held.pairs, keys, pairs)
            self._counted = held._replace(keys=keys, pairs=pairs)


def rolling_names(index: Index, columns: Columns) -> tuple[str, ...]:
    """The counts to keep: those asked for, else the usual ones where the log has moments and clicks to count.

    Columns of the log's own under these names stay; theirs is the word.
    """
    dated = len(index) > 0 and bool((index.timestamp != NO_TIMESTAMP).all())
    if columns.rolling and not dated:
        raise DataError("rolling counts need a timestamp in every row; leave them out with rolling = []")
    moments = dated and index.timestamp.min() < index.timestamp.max()
    usual = USUAL_ROLLING if moments and len(index.click) else ()
    wanted = usual if columns.rolling is None else columns.rolling
    return tuple(name for name in wanted if name not in columns.candidate.numbers)


def write_rolling(index: Index, columns: Columns, path: Path, nobody: int = -1) -> tuple[str, ...]:
    """Compute the counts of every candidate into a flat file; their names. `nobody` is no user, whose row it is."""
    names = rolling_names(index, columns)
    if names:
        out = np.memmap(path, np.float32, "w+", shape=(len(index.candidates), len(names)))
        RollingCounts.replayed(index, names, nobody, out=np.asarray(out))
        out.flush()
    return names


def rates_so_far(index: Index) -> Float32[np.ndarray, "C"] | None:
    """The rate of every candidate's item before its moment, whatever the log keeps; None where moments are missing."""
    if "rate_so_far" not in rolling_names(index, Columns()):
        return None
    out = np.empty((len(index.candidates), 1), np.float32)
    RollingCounts.replayed(index, ("rate_so_far",), out=out)
    return out[:, 0]


def _row(rows: dict[Any, int], external: Any) -> int:
    return rows.setdefault(external, len(rows))


def _id_array(rows: dict[Any, int]) -> pa.Array:
    return pa.array(list(rows)) if rows else pa.array([], pa.string())


def _clicks_and_showings(table: pa.Table) -> np.ndarray:
    return np.column_stack([table["clicks"].to_numpy(), table["shown"].to_numpy()])


@compiled
def _key(user, item):
    return (np.int64(user) << np.int64(32)) + np.int64(item)


@compiled
def _slot_of(keys, key):
    """Where a pair stands in the open table, or the free place where it would."""
    mask = len(keys) - 1
    mixed = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)
    slot = np.int64(mixed >> np.uint64(20)) & mask
    while keys[slot] != -1 and keys[slot] != key:
        slot = (slot + 1) & mask
    return slot


@compiled
def _rehash(keys, pairs, new_keys, new_pairs):
    """Move all pairs into a larger table."""
    for old in range(len(keys)):
        if keys[old] != -1:
            slot = _slot_of(new_keys, keys[old])
            new_keys[slot] = keys[old]
            new_pairs[slot] = pairs[old]


@compiled
def _add_pairs_each(counted, user, item, more):
    """Add counts of pairs of user and item."""
    for p in range(len(user)):
        slot = _own_slot(counted, user[p], item[p])
        counted.pairs[slot, 0] += more[p, 0]
        counted.pairs[slot, 1] += more[p, 1]


@compiled
def _own_slot(counted, user, item):
    """The place of a pair, taken where it had none."""
    key = _key(user, item)
    slot = _slot_of(counted.keys, key)
    if counted.keys[slot] == -1:
        counted.keys[slot] = key
        counted.num_pairs[0] += 1
    return slot


@compiled
def _count(counted, user, items, column):
    """Column 0 counts clicks, 1 showings."""
    for item in items:
        counted.items[item, column] += 1.0
        counted.totals[column] += 1.0
        if len(counted.keys) and user >= 0:
            counted.pairs[_own_slot(counted, user, item), column] += 1.0


@compiled
def _look_up(counted, user, items, kinds, out):
    """The counts of candidates, a column for each kind."""
    totals, keys = counted.totals, counted.keys
    overall = totals[0] / totals[1] if totals[1] > 0 else 0.0
    for n in range(len(items)):
        item = items[n]
        clicks = shown = own_clicks = own_shown = 0.0
        if 0 <= item < len(counted.items):
            clicks, shown = counted.items[item, 0], counted.items[item, 1]
            if len(keys) and user >= 0:
                key = _key(user, item)
                slot = _slot_of(keys, key)
                if keys[slot] == key:
                    own_clicks, own_shown = counted.pairs[slot, 0], counted.pairs[slot, 1]
        rate = (clicks + WEIGHT * overall) / (shown + WEIGHT)
        own_rate = (own_clicks + WEIGHT * rate) / (own_shown + WEIGHT)
        counts = (clicks, shown, rate, own_clicks, own_shown, own_rate)  # as ROLLING has them
        for f in range(len(kinds)):
            out[n, f] = counts[kinds[f]]


@compiled
def _replay_rows(rows, events, counted, kinds, out):
    """Look up, then count, moment by moment."""
    start, user = events.start, events.user
    first = 0
    while first < len(rows):
        last = first
        while last < len(rows) and events.timestamp[rows[last]] == events.timestamp[rows[first]]:
            last += 1
        for row in rows[first:last] if len(out) else rows[:0]:
            span = slice(start[row], start[row + 1])
            _look_up(counted, user[row], events.candidates[span], kinds, out[span])
        for row in rows[first:last]:
            shown = events.shown[events.shown_start[row] : events.shown_start[row + 1]]
            clicked = events.clicked[events.clicked_start[row] : events.clicked_start[row + 1]]
            _count(counted, user[row], shown, 1)
            _count(counted, user[row], clicked, 0)
        first = last


@compiled
def _count_events(counted, users, shown, shown_ends, clicked, clicked_ends):
    """Count events one after the other; the lists of event e end at shown_ends[e] and clicked_ends[e]."""
    first_shown = first_clicked = 0
    for e in range(len(users)):
        _count(counted, users[e], shown[first_shown : shown_ends[e]], 1)
        _count(counted, users[e], clicked[first_clicked : clicked_ends[e]], 0)
        first_shown, first_clicked = shown_ends[e], clicked_ends[e]
