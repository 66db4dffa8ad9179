"""Columns of candidates as rules read them: what is missing, which values are equal, numbers, vectors.

Knows no rule. A column is an array [B, N], or [B, N, F] for vectors; None, NaN and empty text are missing.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Bool, Float64, Int32

from exactk.errors import InputError

Columns = Mapping[str, np.ndarray]
Mask = Bool[np.ndarray, "B N"]  # of candidates
PairMask = Bool[np.ndarray, "B N N"]  # of every two of them
CardSizes = Int32[np.ndarray, "B"]
TITLE_METRICS = ("ned", "levenshtein")
VECTOR_METRICS = ("euclidean", "cosine")
MISSING_CHOICES = ("error", "allow", "forbid")

# The types of a rule's settings. At run time rules check these themselves and answer in words for people.
if TYPE_CHECKING:
    Missing = Literal["error", "allow", "forbid"]
    TitleMetric = Literal["ned", "levenshtein"]
    VectorMetric = Literal["euclidean", "cosine"]
    Number = int | float
    Whole = int
    Sizes = int | Sequence[int] | np.ndarray
    PairFunction = Callable[[Mapping[str, Any], Mapping[str, Any]], Any]
else:
    Missing = TitleMetric = VectorMetric = Number = Whole = Sizes = PairFunction = Any


class RequestError(InputError):
    """Something wrong with one request of a batch: `request` is its index, `reason` the message after it."""

    def __init__(self, request: int, reason: str) -> None:
        super().__init__(f"request {request}: {reason}")
        self.request = int(request)
        self.reason = reason


def nearest(word: Any, known: Iterable[str]) -> str:
    """' (did you mean "title"?)', or the list of what is known where nothing comes near."""
    choices = sorted(str(name) for name in known)
    close = difflib.get_close_matches(str(word), choices, n=1)
    if close:
        return f' (did you mean "{close[0]}"?)'
    return f" (known: {', '.join(choices) or 'none'})"


def column_of(columns: Columns, field: str, rule: str) -> np.ndarray:
    """The column a rule needs, or an error that names both."""
    if field not in columns:
        raise InputError(
            f'rule "{rule}" needs the field "{field}", which the items lack{nearest(field, columns)}'
        )
    return columns[field]


def label(columns: Columns, b: int, position: int) -> str:
    """How messages name one candidate."""
    return f"item {shown(columns['item_id'][b, position])}"


def shown(value: Any) -> str:
    """A value as Python writes it: 3, not np.int64(3)."""
    return repr(value.item() if isinstance(value, np.generic) else value)


def is_finite_number(value: Any) -> bool:
    """Whether it is a plain number that float64 can hold; true and false are none, nor is 10 ** 400."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def is_missing(value: Any) -> bool:
    """None, NaN, NaT, pandas' NA and the empty text."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    if isinstance(value, str):
        return not value
    return isinstance(value, float | np.floating | np.datetime64) and bool(value != value)


def absent_values(values: np.ndarray) -> Mask:
    """True where a column holds no value."""
    kind = values.dtype.kind
    if kind in "iub":
        return np.zeros(values.shape, bool)
    if kind in "fM":
        return np.asarray(values != values, bool)
    if kind == "U":
        return np.asarray(values == "", bool)
    flat = values.reshape(-1).tolist()
    kinds = set(map(type, flat))
    if kinds <= {bool, int}:
        return np.zeros(values.shape, bool)
    if kinds <= {bool, int, str}:
        return np.array([value == "" for value in flat], bool).reshape(values.shape)
    return np.array(list(map(is_missing, flat)), bool).reshape(values.shape)


def settle_missing(allowed: PairMask, lacking: Mask, missing: str) -> PairMask:
    """Pairs with a missing value take the verdict the rule declares for them."""
    if not lacking.any():
        return allowed
    either = lacking[:, :, None] | lacking[:, None, :]  # B N N
    return np.asarray(np.where(either, missing == "allow", allowed), bool)


def codes(values: np.ndarray, counted: Mask, field: str, rule: str) -> Int32[np.ndarray, "B N"]:
    """Equal values, equal numbers from 0 up; -1 where not counted."""
    if values.dtype.kind in "iufMb":
        _, inverse = np.unique(values, return_inverse=True)
        return np.where(counted, inverse.reshape(values.shape), -1).astype(np.int32)
    number: dict[Any, int] = {}
    found = np.full(values.shape, -1, np.int32)
    flat = found.reshape(-1)
    try:
        for place, (value, counts) in enumerate(
            zip(values.reshape(-1).tolist(), counted.reshape(-1).tolist(), strict=True)
        ):
            if counts:
                flat[place] = number.setdefault(value, len(number))
    except TypeError:
        b, position = divmod(place, values.shape[1])
        raise RequestError(
            b,
            f'rule "{rule}" compares values of "{field}", but {values[b, position]!r} (position {position}) '
            f"is a {type(values[b, position]).__name__}; plain text or numbers are needed",
        ) from None
    return found


def texts(values: np.ndarray, counted: Mask, field: str, rule: str) -> list[list[str]]:
    """A column of text as lists; "" where not counted."""
    rows = [
        [value if counts else "" for value, counts in zip(row, flags, strict=True)]
        for row, flags in zip(values.tolist(), counted.tolist(), strict=True)
    ]
    for b, row in enumerate(rows):
        for position, value in enumerate(row):
            if not isinstance(value, str):
                raise RequestError(
                    b, f'rule "{rule}" needs text in "{field}", but position {position} has {value!r}'
                )
    return rows


def numbers(values: np.ndarray, present: Mask, field: str, rule: str, columns: Columns) -> np.ndarray:
    """A column of numbers: whole ones stay whole, all others become float64 (missing: NaN)."""
    if values.ndim != 2 or values.dtype.kind not in "iufO":
        raise InputError(
            f'rule "{rule}" needs a number per item in "{field}", got {values.dtype} of shape {values.shape}'
        )
    if values.dtype.kind in "iu":
        return values
    if values.dtype.kind == "f":
        plain = values.astype(np.float64)
    else:
        plain = np.full(values.shape, np.nan)
        for b, position in np.argwhere(present).tolist():
            value = values[b, position]
            if is_missing(value):
                continue
            try:
                plain[b, position] = np.inf if isinstance(value, bool | str) else float(value)
            except (TypeError, ValueError, OverflowError):
                plain[b, position] = np.inf
    endless = np.isinf(plain) & present
    if endless.any():
        b, position = np.argwhere(endless)[0].tolist()
        raise _not_a_number(values[b, position], field, rule, columns, b, position)
    return plain


def _not_a_number(value: Any, field: str, rule: str, columns: Columns, b: int, position: int) -> RequestError:
    where = label(columns, b, position)
    return RequestError(b, f'rule "{rule}" needs finite numbers in "{field}", but {where} has {shown(value)}')


def vectors(
    values: np.ndarray, present: Mask, field: str, rule: str, columns: Columns
) -> Float64[np.ndarray, "B N F"]:
    """A column of vectors as float64, NaN throughout where one is missing; a column of lists is stacked."""
    if values.ndim == 3 and values.dtype.kind in "fiu":
        dense = values.astype(np.float64)
    elif values.ndim == 2 and values.dtype.kind == "O":
        dense = _stacked(values, present, field, rule, columns)
    else:
        raise InputError(
            f'rule "{rule}" needs a vector per item in "{field}" ([B, N, F] or lists of numbers), '
            f"got {values.dtype} of shape {values.shape}"
        )
    endless = np.isinf(dense).any(2) & present
    if endless.any():
        b, position = np.argwhere(endless)[0].tolist()
        raise _not_a_number(np.inf, field, rule, columns, b, position)
    return dense


def _stacked(
    values: np.ndarray, present: Mask, field: str, rule: str, columns: Columns
) -> Float64[np.ndarray, "B N F"]:
    held: dict[tuple[int, int], np.ndarray] = {}
    size = -1
    for b, position in np.argwhere(present).tolist():
        value = values[b, position]
        if is_missing(value):
            continue
        try:
            vector = np.asarray(value, np.float64)
        except (TypeError, ValueError, OverflowError):
            raise _not_a_number(value, field, rule, columns, b, position) from None
        if vector.size == 0:
            raise RequestError(b, f'rule "{rule}": {label(columns, b, position)} has an empty "{field}"')
        size = vector.size if size < 0 else size
        if vector.ndim != 1 or vector.size != size:
            raise RequestError(
                b,
                f'rule "{rule}": {label(columns, b, position)} has a "{field}" of shape {vector.shape}, '
                f"others have ({size},)",
            )
        held[b, position] = vector
    dense = np.full((*values.shape, max(size, 1)), np.nan)
    for (b, position), vector in held.items():
        dense[b, position] = vector
    return dense


def flat_ids(ids: Any) -> list[Any]:
    """Ids as plain Python values, so that numpy's 3 and Python's 3 are one id."""
    if hasattr(ids, "tolist"):  # arrays, tensors, columns of frames
        return list(ids.tolist())
    return [v.item() if isinstance(v, np.generic) else v for v in ids]
