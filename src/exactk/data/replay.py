"""A log replayed in time order through rolling counts: the counts every candidate had, and those at the end.

Knows the index's arrays. A card of a log that tells of cards alone shows its items; a list shown whole shows all.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from jaxtyping import Float32, Int32, Int64

from exactk.data.columns.roles import USUAL_ROLLING, Columns
from exactk.data.index import Index
from exactk.data.logs.coding import NO_TIMESTAMP
from exactk.data.rolling import RollingCounts
from exactk.data.signal import outside_clicks
from exactk.errors import DataError

Lists = tuple[Int64[np.ndarray, "E"], Int32[np.ndarray, "L"]]


def rolling_names(index: Index, columns: Columns) -> tuple[str, ...]:
    """The counts to keep: those asked for, else the usual ones where the log has moments and clicks to count.

    Columns of the log's own under these names stay; theirs is the word.
    """
    dated = len(index) > 0 and bool((index.timestamp != NO_TIMESTAMP).all())
    if columns.rolling is not None:
        if columns.rolling and not dated:
            raise DataError("rolling counts need a timestamp in every row; leave them out with rolling = []")
        wanted = columns.rolling
    else:
        moments = dated and index.timestamp.min() < index.timestamp.max()
        wanted = USUAL_ROLLING if moments and len(index.click) else ()
    return tuple(name for name in wanted if name not in columns.candidate.numbers)


def write_rolling(index: Index, columns: Columns, path: Path, nobody: int = -1) -> tuple[str, ...]:
    """Compute the counts of every candidate into a flat file; their names. `nobody` is no user, whose row it is."""
    names = rolling_names(index, columns)
    if names:
        out = np.memmap(path, np.float32, "w+", shape=(len(index.candidates), len(names)))
        _replayed(index, names, np.asarray(out), nobody)
        out.flush()
    return names


def rates_so_far(index: Index) -> Float32[np.ndarray, "C"] | None:
    """The rate of every candidate's item before its moment, whatever the log keeps; None where moments are missing."""
    dated = len(index) > 0 and bool((index.timestamp != NO_TIMESTAMP).all()) and len(index.click) > 0
    if not dated or index.timestamp.min() == index.timestamp.max():
        return None
    out = np.empty((len(index.candidates), 1), np.float32)
    _replayed(index, ("rate_so_far",), out, -1)
    return out[:, 0]


def counts_at_end(
    index: Index, names: tuple[str, ...], rows: Int64[np.ndarray, "R"], nobody: int
) -> RollingCounts:
    """The counts after these rows: where a service goes on from; by row of the folder's items and users."""
    return _replayed(index, names, np.empty((0, len(names)), np.float32), nobody, rows)


def _replayed(
    index: Index,
    names: tuple[str, ...],
    out: Float32[np.ndarray, "T F"],
    nobody: int,
    rows: Int64[np.ndarray, "R"] | None = None,
) -> RollingCounts:
    every = np.arange(len(index)) if rows is None else np.sort(rows)
    order = every[np.argsort(index.timestamp[every], kind="stable")]
    candidates: Lists = (np.asarray(index.candidate_start), np.asarray(index.candidates))
    clicks = _items(index, index.click_start, index.click)
    whole = bool(outside_clicks(index, np.arange(len(index))).any())
    shown = candidates if whole else _items(index, index.card_start, index.card)
    counts = RollingCounts(names)
    user = np.where(index.user == nobody, np.int32(-1), index.user)
    counts.replay(order, index.timestamp, user, shown, clicks, candidates, out, len(index.item_features))
    return counts


def _items(index: Index, start: Int64[np.ndarray, "E"], positions: Int32[np.ndarray, "L"]) -> Lists:
    """Lists of positions as lists of items."""
    first = np.repeat(np.asarray(index.candidate_start[:-1]), np.diff(start))
    return np.asarray(start), np.asarray(index.candidates[first + positions], np.int32)
