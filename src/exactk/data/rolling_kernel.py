"""Counting and looking up counts of items, and of users and items in an open hash table, compiled.

Knows rows of items and users as numbers. Of a pair of counts the first is clicks, the second showings.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from exactk.problem.compiling import compiled

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
def rehash(keys, pairs, new_keys, new_pairs):
    """Move all pairs into a larger table."""
    for old in range(len(keys)):
        if keys[old] != -1:
            slot = _slot_of(new_keys, keys[old])
            new_keys[slot] = keys[old]
            new_pairs[slot] = pairs[old]


@compiled
def add_pairs(counted, user, item, more):
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
def look_up(counted, user, items, kinds, out):
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


@compiled
def replay_rows(rows, events, counted, kinds, out):
    """Look up, then count, moment by moment."""
    start, user = events.start, events.user
    first = 0
    while first < len(rows):
        last = first
        while last < len(rows) and events.timestamp[rows[last]] == events.timestamp[rows[first]]:
            last += 1
        for row in rows[first:last] if len(out) else rows[:0]:
            span = slice(start[row], start[row + 1])
            look_up(counted, user[row], events.candidates[span], kinds, out[span])
        for row in rows[first:last]:
            shown = events.shown[events.shown_start[row] : events.shown_start[row + 1]]
            clicked = events.clicked[events.clicked_start[row] : events.clicked_start[row + 1]]
            _count(counted, user[row], shown, 1)
            _count(counted, user[row], clicked, 0)
        first = last


@compiled
def count_events(counted, users, shown, shown_ends, clicked, clicked_ends):
    """Count events one after the other; the lists of event e end at shown_ends[e] and clicked_ends[e]."""
    first_shown = first_clicked = 0
    for e in range(len(users)):
        _count(counted, users[e], shown[first_shown : shown_ends[e]], 1)
        _count(counted, users[e], clicked[first_clicked : clicked_ends[e]], 0)
        first_shown, first_clicked = shown_ends[e], clicked_ends[e]
