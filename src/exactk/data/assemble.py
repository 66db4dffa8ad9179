"""The compiled loops between flat arrays and padded ones: gathering lists, features and graphs row by row.

Knows no files. Where shapes want saying, a thin annotated door stands before a loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float32, Int8, Int32, Int64, UInt8

from exactk.problem.compiling import compiled

FAULTS = {
    1: ("candidates", "the item {item!r} appears twice"),
    2: ("card", "the item {item!r} is not among the candidates"),
    3: ("card", "the item {item!r} appears twice"),
    4: ("clicked_item", "the clicked item {item!r} is not on the card"),
    5: ("candidates", "an item is missing"),
    6: ("card", "an item is missing"),
}


Rows = Int64[np.ndarray, "B"]
Starts = Int64[np.ndarray, "E"]  # where the list of every row begins, and where the last one ends
Items = Int32[np.ndarray, "C"]  # of all lists end to end


class ItemLists(NamedTuple):
    """Lists of items end to end, and the length of each."""

    items: Int64[np.ndarray, "L"]
    sizes: Int64[np.ndarray, "R"]


class Placed(NamedTuple):
    """Cards as positions; per row a fault (0: none, else a key of FAULTS) and the flat place of its culprit."""

    card: Int32[np.ndarray, "P"]
    clicked: Int32[np.ndarray, "R"]
    fault: Int8[np.ndarray, "R"]
    culprit: Int64[np.ndarray, "R"]

    def faults(self, ids: Mapping[str, Any]) -> Iterator[tuple[int, str, str, Any]]:
        """Row, column, text and id of every fault, of the ids of each column end to end."""
        for row in np.flatnonzero(self.fault).tolist():
            column, text = FAULTS[int(self.fault[row])]
            yield row, column, text, ids[column][int(self.culprit[row])].as_py()


def card_positions(
    candidates: ItemLists,
    card: ItemLists,
    clicked_item: Int64[np.ndarray, "R"],
    scratch: Int64[np.ndarray, "I 2"],
    first_row: int,
) -> Placed:
    """Where in its candidates each card item, and each clicked item (-1 = none), stands.

    Items are numbers from 0, -1 a missing one. `scratch` has a row for each, filled with -1 before the first call
    and kept between calls whose rows have different numbers.
    """
    R = len(candidates.sizes)
    placed = Placed(
        np.full(len(card.items), -1, np.int32),
        np.full(R, -1, np.int32),
        np.zeros(R, np.int8),
        np.zeros(R, np.int64),
    )
    _card_positions(candidates, card, clicked_item, scratch, first_row, placed)
    return placed


@compiled
def _card_positions(offered, shown, clicked_item, scratch, first_row, placed):
    candidates, num_candidates = offered
    card, card_sizes = shown
    positions, clicks, fault, culprit = placed
    c = p = 0
    for row in range(len(num_candidates)):
        # scratch[item]: an odd mark (a candidate of this row), the next even one (also on its card); its position.
        mark = 2 * (first_row + row) + 1
        for n in range(num_candidates[row]):
            item = candidates[c + n]
            if item < 0 or scratch[item, 0] == mark:
                fault[row], culprit[row] = 5 if item < 0 else 1, c + n
                break
            scratch[item, 0] = mark
            scratch[item, 1] = n
        if fault[row] == 0:
            for k in range(card_sizes[row]):
                item = card[p + k]
                if item < 0 or scratch[item, 0] != mark:
                    repeated = item >= 0 and scratch[item, 0] == mark + 1
                    fault[row], culprit[row] = 6 if item < 0 else 3 if repeated else 2, p + k
                    break
                scratch[item, 0] = mark + 1
                positions[p + k] = scratch[item, 1]
        click = clicked_item[row]
        if fault[row] == 0 and click >= 0:
            # Without a card, any candidate may have been clicked.
            if scratch[click, 0] == mark + 1 or (card_sizes[row] == 0 and scratch[click, 0] == mark):
                clicks[row] = scratch[click, 1]
            else:
                fault[row], culprit[row] = 4, row
        c += num_candidates[row]
        p += card_sizes[row]


def entries(start: Starts, rows: Rows) -> tuple[Int64[np.ndarray, "L"], Int64[np.ndarray, "L"]]:
    """The lists of the rows asked for, end to end: the place in `rows` that each value is of, and where it lies."""
    counts = start[rows + 1] - start[rows]
    owner = np.repeat(np.arange(len(rows)), counts)
    before = np.cumsum(counts) - counts
    return owner, np.asarray((start[rows] - before)[owner] + np.arange(len(owner)), np.int64)


def list_positions(candidates: ItemLists, wanted: ItemLists) -> Int32[np.ndarray, "P"]:
    """Where each row's items stand among its candidates, -1 where they do not."""
    positions = np.full(len(wanted.items), -1, np.int32)
    _list_positions(*candidates, *wanted, positions)
    return positions


@compiled
def _list_positions(candidates, num_candidates, items, counts, positions):
    c = p = 0
    for row in range(len(num_candidates)):
        for k in range(counts[row]):
            for n in range(num_candidates[row]):
                if candidates[c + n] == items[p + k]:
                    positions[p + k] = n
                    break
        c += num_candidates[row]
        p += counts[row]


def padded(rows: Rows, start: Starts, values: Items, width: int = 0) -> Int64[np.ndarray, "B W"]:
    """Lists of the rows asked for, side by side, -1 behind the end of each; as wide as the longest, or `width`."""
    longest = int((start[rows + 1] - start[rows]).max(initial=1))
    out = np.empty((len(rows), width or longest), np.int64)
    _padded(rows, start, values, out)
    return out


@compiled
def _padded(rows, start, values, out):
    for b in range(len(rows)):
        first = start[rows[b]]
        count = start[rows[b] + 1] - first
        for n in range(count):
            out[b, n] = values[first + n]
        for n in range(count, out.shape[1]):
            out[b, n] = -1


@compiled
def mark_met(rows, start, values, met):
    """Set `met` for every value in the lists of the rows."""
    for row in rows:
        for c in range(start[row], start[row + 1]):
            met[values[c]] = True


def gathered_features(
    rows: Int64[np.ndarray, "B N"],
    features: Float32[np.ndarray, "I F"],
    mean: Float32[np.ndarray, "F"],
    inverse_deviation: Float32[np.ndarray, "F"],
) -> Float32[np.ndarray, "B N F"]:
    """Standardised features of the rows asked for; row -1 and NaN give 0, which is the mean."""
    out = np.empty((*rows.shape, features.shape[1]), np.float32)
    _gathered_features(rows, features, mean, inverse_deviation, out)
    return out


@compiled
def _gathered_features(rows, features, mean, inverse_deviation, out):
    B, N, F = out.shape
    for b in range(B):
        for n in range(N):
            row = rows[b, n]
            if row < 0:
                for f in range(F):
                    out[b, n, f] = 0.0
            else:
                for f in range(F):
                    value = (features[row, f] - mean[f]) * inverse_deviation[f]
                    out[b, n, f] = value if value == value else 0.0


def unpacked_graphs(
    rows: Rows, start: Starts, packed: UInt8[np.ndarray, "G"], num_candidates: Rows, width: int
) -> Bool[np.ndarray, "B N N"]:
    """Graphs from their packed bits; a row without bits gets the complete graph of its candidates."""
    out = np.zeros((len(rows), width, width), np.bool_)
    _unpacked_graphs(rows, start, packed, num_candidates, out)
    return out


@compiled
def _unpacked_graphs(rows, start, packed, num_candidates, out):
    for b in range(len(rows)):
        first = start[rows[b]]
        complete = start[rows[b] + 1] == first
        bit = 0
        for i in range(num_candidates[b]):
            for j in range(i + 1, num_candidates[b]):
                allowed = complete or (packed[first + (bit >> 3)] >> (7 - (bit & 7))) & 1 == 1
                out[b, i, j] = allowed
                out[b, j, i] = allowed
                bit += 1


def linked_blocks(
    rows: Rows,
    user: Int32[np.ndarray, "R"],
    request: Int64[np.ndarray, "R"],
    start: Starts,
    candidates: Items,
) -> Rows:
    """Connected components of rows (given user by user): an edge where two rows of a user share a candidate,
    or are of one request. Each component is named by one of its places in `rows`.
    """
    num_items = int(candidates.max(initial=0)) + 1
    owner = np.full(num_items, -1, np.int64)
    return np.asarray(_linked_blocks(rows, user, request, start, candidates, owner))


@compiled
def _linked_blocks(rows, user, request, start, candidates, owner):
    parent = np.arange(len(rows))
    for b in range(len(rows)):
        row = rows[b]
        if b and request[rows[b - 1]] == request[row]:
            _join(parent, b - 1, b)
        for c in range(start[row], start[row + 1]):
            # The last place that held this item; of this user only, as rows come user by user.
            last = owner[candidates[c]]
            if last >= 0 and user[rows[last]] == user[row]:
                _join(parent, last, b)
            owner[candidates[c]] = b
    for b in range(len(rows)):
        parent[b] = _root(parent, b)
    return parent


@compiled
def _root(parent, b):
    while parent[b] != b:
        parent[b] = parent[parent[b]]
        b = parent[b]
    return b


@compiled
def _join(parent, a, b):
    first, second = _root(parent, a), _root(parent, b)
    parent[max(first, second)] = min(first, second)
