"""What callers bring: items of any kind (frames, columns, rows) as arrays, and requests in columns, checked.

Knows no rule. At run time everything is read, and refused in words that name the offender and the index of its request.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from exactk.errors import InputError
from exactk.problem.rules.columns import (
    CardSizes,
    Columns,
    Mask,
    RequestError,
    RuleColumn,
    Sizes,
    absent_values,
    flat_ids,
    nearest,
    shown,
)

IDS = ("item_id", "request_id")
Wishes = Sequence[Sequence[Any] | np.ndarray | None] | None


def table_of(items: Any, fields: Sequence[str] | None, score_column: str | None) -> dict[str, np.ndarray]:
    """The columns wanted, as arrays, from a mapping, a list of rows or any frame narwhals knows."""
    if (
        isinstance(items, Sequence)
        and not isinstance(items, str)
        and all(isinstance(row, Mapping) for row in items)
    ):
        items = columns_of_rows(items)
    if isinstance(items, Mapping):
        names, column = list(items), items.__getitem__
    else:
        # Imported here: most calls bring arrays.
        import narwhals as nw

        try:
            frame = nw.from_native(items, eager_only=True)
        except nw.exceptions.DuplicateError as error:
            twice = str(error).rpartition("- ")[2]
            raise InputError(f"items have a column more than once: {twice}; rename or drop one") from None
        except TypeError:
            raise InputError(
                f"items must be a frame, columns by name or a list of rows, got {type(items).__name__}"
            ) from None
        names, column = frame.columns, lambda field: _series(frame[field])
    wanted = [*(names if fields is None else fields), *([] if score_column is None else [score_column])]
    for field in wanted:
        if field not in names:
            raise InputError(f'the items have no field "{field}"{nearest(field, names)}')
    also = [field for field in IDS if field in names]
    return {
        field: ids_of(column(field)) if field in IDS else array_of(column(field))
        for field in dict.fromkeys([*also, *wanted])
    }


def columns_of_rows(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """What any row names, None in those that do not."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


def _series(series: Any) -> Any:
    """Numbers without gaps stay arrays; anything else becomes plain Python values, with None for gaps."""
    plain = series.dtype.is_numeric() and series.null_count() == 0
    return series.to_numpy() if plain else series.to_list()


def ids_of(values: Any) -> np.ndarray:
    """Ids as an array; of whole numbers beside fractions each stays what it is."""
    read = array_of(values)
    mixed = (
        read.dtype.kind == "f"
        and isinstance(values, Sequence)
        and any(isinstance(one, int) for one in values)
    )
    return _objects(values) if mixed else read


def array_of(values: Any) -> np.ndarray:
    """An array of numbers where they are that, else of Python objects, never one type for a mixture."""
    if isinstance(values, np.ndarray) and values.ndim and not isinstance(values, np.ma.MaskedArray):
        return values
    if hasattr(values, "to_numpy") and len(getattr(values, "shape", ())) == 2:  # a frame as a matrix
        return np.asarray(values.to_numpy())
    if hasattr(
        values, "tolist"
    ):  # what is masked as None; elements of tensors and Arrow arrays are no plain values
        values = values.tolist()
    if not isinstance(values, Iterable) or isinstance(values, str | bytes | Mapping | set | frozenset):
        raise InputError(f"a column, or a matrix, must be a sequence of values, got {values!r:.80}")
    try:
        listed = list(values)
    except TypeError as error:
        raise InputError(f"a column, or a matrix, must be a sequence of values: {error}") from None
    if listed and all(isinstance(value, int | float) and not isinstance(value, bool) for value in listed):
        numbers = np.array(listed)
        whole = all(isinstance(value, int | np.integer) for value in listed)
        if numbers.dtype.kind == "f" and whole:  # beyond 64 bits; as fractions they would lose digits
            return _objects(listed)
        return numbers
    nested = bool(listed) and all(isinstance(value, list | tuple | np.ndarray) for value in listed)
    if nested:  # [B, N] lists, or vectors; ragged ones stay objects, for the rule to refuse
        try:
            return np.array(listed)
        except ValueError:
            pass
    return _objects(listed)


def _objects(values: Sequence[Any]) -> np.ndarray:
    objects = np.empty(len(values), object)
    for place, value in enumerate(values):
        objects[place] = value
    return objects


class GivenRequests(NamedTuple):
    """B requests before any rule is read: the columns of their candidates, how many make a card, who must be in or out.

    Columns are [B, N]; `present` (everywhere, if not given) says which candidates are real. Ties are settled by the
    `item_id`, unless these are mere positions.
    """

    columns: Columns
    card_size: Sizes
    present: Mask | None = None
    include: Wishes = None
    exclude: Wishes = None
    ties_by_id: bool = True

    def everywhere(self) -> Mask:
        """`present`, or all."""
        return np.ones(self.columns["item_id"].shape, bool) if self.present is None else self.present

    def one(self, b: int) -> GivenRequests:
        """The b-th request alone, still with a batch axis."""
        here = slice(b, b + 1)
        return self._replace(
            columns={name: values[here] for name, values in self.columns.items()},
            card_size=np.broadcast_to(self.card_size, len(self.columns["item_id"]))[here],
            present=None if self.present is None else self.present[here],
            include=None if self.include is None else self.include[here],
            exclude=None if self.exclude is None else self.exclude[here],
        )


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
        number = RuleColumn.of(columns, "item_id", "distinct candidates").codes(present)
        ordered = np.sort(number, axis=1)
        twice = ((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)).any(1)
    if twice.any():
        b = int(np.argmax(twice))
        first: dict[Any, int] = {}
        for position, item in enumerate(ids[b].tolist()):
            if present[b, position] and first.setdefault(item, position) != position:
                raise RequestError(
                    b, f"candidate {shown(item)} appears twice, at {first[item]} and {position}"
                )


def wished_positions(asked: GivenRequests) -> tuple[Mask, Mask]:
    """Where the items are that must, and that must not, be chosen."""
    columns, present = asked.columns, asked.everywhere()
    pinned = _positions(columns, present, asked.include, "include")
    barred = _positions(columns, present, asked.exclude, "exclude")
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
