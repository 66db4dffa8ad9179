"""Counting and looking up counts of items, and of users and items in an open hash table, compiled.

Knows rows of items and users as numbers. Of a pair of counts the first is clicks, the second showings.
"""

from __future__ import annotations

from typing import no_type_check

import numpy as np
from numba import njit

WEIGHT = 10.0  # showings at the overall rate that an item's own rate is mixed with
NO_PAIR = np.int64(-1)


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
def rehash(keys, pairs, new_keys, new_pairs):
    """Move all pairs into a larger table."""
    for old in range(len(keys)):
        if keys[old] != -1:
            slot = _slot_of(new_keys, keys[old])
            new_keys[slot] = keys[old]
            new_pairs[slot] = pairs[old]


@njit(cache=True, nogil=True)
@no_type_check
def add_pairs(keys, pairs, num_pairs, user, item, more):
    """Add counts of pairs of user and item."""
    for p in range(len(user)):
        key = _key(user[p], item[p])
        slot = _slot_of(keys, key)
        if keys[slot] == -1:
            keys[slot] = key
            num_pairs[0] += 1
        pairs[slot, 0] += more[p, 0]
        pairs[slot, 1] += more[p, 1]


@njit(cache=True, nogil=True)
@no_type_check
def _count(counts, totals, keys, pairs, num_pairs, user, items, column):
    """Column 0 counts clicks, 1 showings."""
    for item in items:
        counts[item, column] += 1.0
        totals[column] += 1.0
        if len(keys) and user >= 0:
            key = _key(user, item)
            slot = _slot_of(keys, key)
            if keys[slot] == -1:
                keys[slot] = key
                num_pairs[0] += 1
            pairs[slot, column] += 1.0


@njit(cache=True, nogil=True)
@no_type_check
def look_up(counts, totals, keys, pairs, user, items, kinds, out):
    """The counts of candidates, a column for each kind."""
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
def replay_rows(
    rows, timestamp, user, shown_start, shown, click_start, clicks, start, candidates, counts, totals, keys, pairs,
    num_pairs, kinds, out,
):  # fmt: skip
    """Look up, then count, moment by moment."""
    first = 0
    while first < len(rows):
        last = first
        while last < len(rows) and timestamp[rows[last]] == timestamp[rows[first]]:
            last += 1
        if len(out):
            for place in range(first, last):
                row = rows[place]
                span = slice(start[row], start[row + 1])
                look_up(counts, totals, keys, pairs, user[row], candidates[span], kinds, out[span])
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


@njit(cache=True, nogil=True)
@no_type_check
def count_events(counts, totals, keys, pairs, num_pairs, users, shown, shown_ends, clicked, clicked_ends):
    """Count events one after the other; the lists of event e end at shown_ends[e] and clicked_ends[e]."""
    first_shown = first_clicked = 0
    for e in range(len(users)):
        _count(counts, totals, keys, pairs, num_pairs, users[e], shown[first_shown : shown_ends[e]], 1)
        _count(counts, totals, keys, pairs, num_pairs, users[e], clicked[first_clicked : clicked_ends[e]], 0)
        first_shown, first_clicked = shown_ends[e], clicked_ends[e]
