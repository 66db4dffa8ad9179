"""Checks on the candidates of a batch: shapes, K against N, duplicates, items included and excluded.

Knows no rule. Every error names the offender and the index of its request.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from exactk.errors import InputError
from exactk.problem.rules.columns import (
    CardSizes,
    Columns,
    Mask,
    RequestError,
    Sizes,
    absent_values,
    codes,
    flat_ids,
    nearest,
    shown,
)

Wishes = Sequence[Sequence[Any] | np.ndarray | None] | None


def check_columns(columns: Columns, fields: Sequence[str]) -> None:
    """Every field asked for is there, and all columns have the [B, N] of `item_id`."""
    for field in ("item_id", *fields):
        if field not in columns:
            raise InputError(f'the items have no field "{field}"{nearest(field, columns)}')
    shape = np.shape(columns["item_id"])
    if len(shape) != 2:
        raise InputError(f'"item_id" must be [B, N], got shape {shape}')
    for field in fields:
        if np.shape(columns[field])[:2] != shape:
            raise InputError(f'"{field}" has shape {np.shape(columns[field])}, "item_id" has {shape}')


def sizes(card_size: Sizes, present: Mask) -> CardSizes:
    """K per request: whole, at least 1, at most the number of candidates."""
    size = np.asarray(card_size)
    if size.dtype.kind not in "iu" or size.ndim > 1:
        raise InputError(f"the card size k must be a whole number (or one per request), got {card_size!r}")
    if size.ndim == 1 and len(size) != len(present):
        raise InputError(f"got {len(size)} card sizes for {len(present)} requests")
    num_candidates = present.sum(1)
    size = size if size.ndim else np.broadcast_to(size, len(present))
    if ((size >= 1) & (size <= num_candidates)).all():  # nearly always
        return size.astype(np.int32)
    if (num_candidates == 0).any():
        raise RequestError(int(np.argmin(num_candidates)), "there are no candidates")
    if (size < 1).any():
        b = int(np.argmax(size < 1))
        raise RequestError(b, f"the card size k must be at least 1, got {size[b]}")
    if (size > num_candidates).any():
        b = int(np.argmax(size > num_candidates))
        raise RequestError(b, f"a card of {size[b]} cannot be made of {num_candidates[b]} candidates")
    return size.astype(np.int32)


def check_candidates(columns: Columns, present: Mask) -> None:
    """No id twice in one request."""
    ids = columns["item_id"]
    if ids.dtype.kind in "iu" and present.all():
        ordered = np.sort(ids, axis=1)
        twice = (ordered[:, 1:] == ordered[:, :-1]).any(1)
    else:
        nameless = absent_values(ids) & present
        if nameless.any():
            b, position = np.argwhere(nameless)[0].tolist()
            raise RequestError(b, f"position {position} has no item_id")
        ordered = np.sort(codes(ids, present, "item_id", "distinct candidates"), axis=1)
        twice = ((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)).any(1)
    if twice.any():
        b = int(np.argmax(twice))
        first: dict[int, int] = {}
        number = codes(ids, present, "item_id", "distinct candidates")
        for position, code in enumerate(number[b].tolist()):
            if code >= 0 and code in first:
                raise RequestError(
                    b,
                    f"candidate {shown(ids[b, position])} is there twice, at {first[code]} and {position}",
                )
            first[code] = position


def wished_positions(columns: Columns, present: Mask, include: Wishes, exclude: Wishes) -> tuple[Mask, Mask]:
    """Where the items are that must, and that must not, be chosen."""
    pinned = _positions(columns, present, include, "include")
    barred = _positions(columns, present, exclude, "exclude")
    if (pinned & barred).any():
        b, position = np.argwhere(pinned & barred)[0].tolist()
        raise RequestError(b, f"item {shown(columns['item_id'][b, position])} is both included and excluded")
    return pinned, barred


def _positions(columns: Columns, present: Mask, wishes: Wishes, word: str) -> Mask:
    found = np.zeros(present.shape, bool)
    if wishes is None:
        return found
    if isinstance(wishes, str) or len(wishes) != len(present):
        raise InputError(
            f"{word} needs a list of item ids for each of {len(present)} requests, got {wishes!r}"
        )
    for b, wished in enumerate(wishes):
        if isinstance(wished, str) or (wished is not None and not np.iterable(wished)):
            raise RequestError(b, f"{word} must be a list of item ids, got {wished!r}")
        if wished is None or len(wished) == 0:
            continue
        place = {item: p for p, item in enumerate(columns["item_id"][b].tolist()) if present[b, p]}
        for item in flat_ids(wished):
            if not isinstance(item, Hashable) or item not in place:
                raise RequestError(b, f"{word}d item {shown(item)} is not among the candidates")
            found[b, place[item]] = True
    return found
