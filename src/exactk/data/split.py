"""Which impressions are train, valid and test, and in which order an epoch visits them.

Knows only the index and how many rows there are. An order follows from (seed, epoch) alone, so that any batch can be
found again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Literal

import numpy as np
from jaxtyping import Int64

from exactk.data.assemble import linked_blocks
from exactk.data.index import Index
from exactk.data.logs.coding import NO_TIMESTAMP
from exactk.data.table import SPLITS
from exactk.errors import DataError, InputError

Rows = Int64[np.ndarray, "R"]
Parts = tuple[Int64[np.ndarray, "R0"], Int64[np.ndarray, "R1"], Int64[np.ndarray, "R2"]]
Places = Int64[np.ndarray, "W"]
Method = Literal["recorded", "random", "user", "time", "pair"]
Cutoffs = tuple[int | datetime, int | datetime]


def split_rows(
    index: Index,
    rows: Rows,
    by: Method | None = None,
    seed: int = 0,
    shares: tuple[float, float] = (0.1, 0.1),
    cutoffs: Cutoffs | None = None,
) -> Parts:
    """Part `rows`; None takes the recorded split where there is one, else time where it is known, else chance.

    Rows of one request never part. `shares` of the rows are valid and test; a recorded split without a valid
    part takes it, as that share, out of train. `cutoffs` are the first moments of valid and of test.
    """
    valid, test = shares
    if not (0 < valid < 1 and 0 < test < 1 and valid + test < 1):
        raise InputError(f"valid={valid} and test={test} must be above 0 and leave something to train on")
    if by is None:
        by = default_method(index, rows)
    if cutoffs is not None and by != "time":
        raise InputError(f"cutoffs are for a split by time, not by {by}")
    if by == "recorded":
        return _recorded(index, rows, seed, valid)
    if by == "time":
        return _by_time(index, rows, valid, test, cutoffs)
    if by == "random":
        blocks = index.request[rows]
    elif by == "user":
        blocks = index.user[rows].astype(np.int64)
    elif by == "pair":
        blocks = _shared_item_blocks(index, rows)
    else:
        raise InputError(f"unknown split {by!r}: choose recorded, random, user, time or pair")
    return _by_blocks(rows, blocks, np.random.default_rng(seed), valid, test)


def default_method(index: Index, rows: Rows) -> Method:
    """As recorded; else by time where every row has a moment and they differ enough for three parts; else at random."""
    if (index.split[rows] >= 0).any():
        return "recorded"
    moments = index.timestamp[rows]
    if len(rows) and (moments != NO_TIMESTAMP).all() and len(np.unique(moments)) >= 3:
        return "time"
    return "random"


def _by_blocks(rows: Rows, blocks: Rows, rng: np.random.Generator, valid: float, test: float) -> Parts:
    """Deal whole blocks, in random order, to test, then valid, then train, until each has its share of rows."""
    _, block, sizes = np.unique(blocks, return_inverse=True, return_counts=True)
    order = rng.permutation(len(sizes))
    # A block goes where its middle row falls: blocks of one row give exact shares.
    middle = (np.cumsum(sizes[order]) - sizes[order] / 2) / max(1, len(rows))
    part = np.empty(len(sizes), np.int8)
    part[order] = np.where(middle < test, 2, np.where(middle < test + valid, 1, 0))
    of_row = part[block]
    return rows[of_row == 0], rows[of_row == 1], rows[of_row == 2]


def _recorded(index: Index, rows: Rows, seed: int, valid: float) -> Parts:
    recorded = index.split[rows]
    if (recorded < 0).any():
        row = int(rows[np.flatnonzero(recorded < 0)[0]])
        raise DataError(f"impressions.parquet: row {row}, column 'split': nothing recorded for this row")
    train, validation, test = (rows[recorded == place] for place in range(len(SPLITS)))
    if not len(validation):
        # test=0 deals nothing to the third part
        rng = np.random.default_rng(seed)
        train, validation, _ = _by_blocks(train, index.request[train], rng, valid, 0.0)
    return train, validation, test


def _by_time(index: Index, rows: Rows, valid: float, test: float, cutoffs: Cutoffs | None) -> Parts:
    """One global clock: all of train is before all of valid, all of valid before all of test."""
    moments = index.timestamp[rows]
    if (moments == NO_TIMESTAMP).any():
        row = int(rows[np.flatnonzero(moments == NO_TIMESTAMP)[0]])
        raise DataError(
            f"impressions.parquet: row {row}, column 'timestamp': a split by time needs one in every row"
        )
    if cutoffs is None:
        shares = [1 - valid - test, 1 - test]
        first_valid, first_test = np.quantile(moments, shares, method="higher") if len(moments) else (0, 0)
    else:
        given: Sequence[object] = cutoffs
        if len(given) != 2 or not all(isinstance(moment, int | np.integer | datetime) for moment in given):
            raise InputError(f"cutoffs must be two whole numbers or datetimes, got {cutoffs!r:.80}")
        first_valid, first_test = _moment(cutoffs[0]), _moment(cutoffs[1])
        if first_valid > first_test:
            raise InputError(f"cutoffs must rise: {cutoffs[0]} is after {cutoffs[1]}")
    before, after = moments < first_valid, moments >= first_test
    return rows[before], rows[~before & ~after], rows[after]


def _moment(cutoff: int | datetime) -> int:
    """A cutoff in the units of the index: as is, or microseconds since 1970 for a datetime (UTC, unless it says)."""
    if isinstance(cutoff, datetime):
        in_utc = cutoff if cutoff.tzinfo is None else cutoff.astimezone(UTC)
        return int(np.datetime64(in_utc.replace(tzinfo=None), "us").astype(np.int64))
    return cutoff


def _shared_item_blocks(index: Index, rows: Rows) -> Int64[np.ndarray, "R"]:
    """Number the rows so that two rows of one user that share a candidate, directly or through others, agree.

    Parting such blocks keeps every (user, item) pair on one side without touching a single candidate list; where
    a user's requests all hang together this is the split by user.
    """
    order = np.lexsort((rows, index.user[rows]))
    numbered = np.empty(len(rows), np.int64)
    candidates = (index.candidate_start, index.candidates)
    numbered[order] = linked_blocks(rows[order], index.user, index.request, *candidates)
    return numbered


WINDOW = 1 << 22
BLOCK = 1 << 12


def epoch_order(
    num_rows: int, seed: int | None, epoch: int = 0, start: int = 0, window: int = WINDOW, block: int = BLOCK
) -> Iterator[Places]:
    """Places 0..num_rows-1 from place `start` of the epoch on, a window at a time; seed None keeps the file's order.

    Up to `window` rows the shuffle is perfect. A longer log deals whole blocks of neighbouring rows into windows and
    shuffles within each, so that a log larger than memory is read in long runs, not row by row from all over the disk.
    """
    if seed is None:
        for first in range(start, num_rows, window):
            yield np.arange(first, min(first + window, num_rows))
        return
    if num_rows <= window:
        yield np.random.default_rng([seed, epoch]).permutation(num_rows)[start:]
        return
    blocks = np.random.default_rng([seed, epoch]).permutation((num_rows + block - 1) // block)
    per_window = max(1, window // block)
    passed = 0
    for number, first in enumerate(range(0, len(blocks), per_window)):
        chosen = blocks[first : first + per_window]
        size = sum(min(block, num_rows - int(b) * block) for b in chosen)
        if passed + size > start:
            places = np.concatenate([np.arange(b * block, min((b + 1) * block, num_rows)) for b in chosen])
            shuffled = np.random.default_rng([seed, epoch, number]).permutation(places)
            yield shuffled[max(0, start - passed) :]
        passed += size


def in_batches(windows: Iterator[Places], batch_size: int) -> Iterator[Int64[np.ndarray, "B"]]:
    """Runs of `batch_size` places across window ends; only the last may be shorter."""
    rest = np.empty(0, np.int64)
    for window in windows:
        rest = np.concatenate([rest, window]) if len(rest) else window
        whole = len(rest) - len(rest) % batch_size
        for first in range(0, whole, batch_size):
            yield rest[first : first + batch_size]
        rest = rest[whole:]
    if len(rest):
        yield rest
