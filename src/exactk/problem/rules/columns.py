"""Columns of candidates as rules read them: what is missing, which values are equal, numbers, vectors.

Knows no rule. A column is an array [B, N], or [B, N, F] for vectors; None, NaN and empty text are missing. Numbers are
added up as they are written, 0.1 and 0.2 to 0.3, by way of whole numbers.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int32, Int64

from exactk.errors import InputError

Columns = Mapping[str, np.ndarray]
Mask = Bool[np.ndarray, "B N"]  # of candidates
PairMask = Bool[np.ndarray, "B N N"]  # of every two of them
CardSizes = Int32[np.ndarray, "B"]
TITLE_METRICS = ("ned", "levenshtein")
VECTOR_METRICS = ("euclidean", "cosine")
MISSING_CHOICES = ("error", "allow", "forbid")
DIGITS = 17  # of the largest sum that is kept exact: what float64 can tell apart
# Below this every whole number times a power of ten up to 10^22 reads back as it was written.
WHOLE = 10.0**15
LARGEST_COORDINATE = 1e150  # of a vector: float64 still holds its square
FEW_PLACES = 5  # behind the point

# What people call a setting that has another name here; the nearest spelling would often say something else.
OTHER_SETTINGS = {
    "min": ("at_least", "minimum"),
    "max": ("at_most", "m"),
    "at_most": ("m",),
    "n": ("m",),
    "and": ("all",),
    "or": ("any",),
    "in": ("one_of",),
    "values": ("one_of",),
    "is": ("equals",),
    "value": ("equals",),
    "field": ("where",),
    "column": ("field", "where"),
    "if": ("where",),
    "cost": ("worth",),
    "penalty": ("worth",),
    "weight": ("worth", "weights"),
    "position": ("where",),
    "neighbours": ("apart",),
}

# The types of a rule's settings. At run time rules check these themselves and answer in words for people.
if TYPE_CHECKING:
    Missing = Literal["error", "allow", "forbid"]
    TitleMetric = Literal["ned", "levenshtein"]
    VectorMetric = Literal["euclidean", "cosine"]
    Number = int | float
    Whole = int
    Sizes = int | Sequence[int] | np.ndarray
    RuleFunction = (
        Callable[[Mapping[str, Any], Mapping[str, Any]], Any] | Callable[[Sequence[Mapping[str, Any]]], Any]
    )
else:
    Missing = TitleMetric = VectorMetric = Number = Whole = Sizes = RuleFunction = Any


class RequestError(InputError):
    """Something wrong with one request of a batch: `request` is its index, `reason` the message after it."""

    def __init__(self, request: int, reason: str) -> None:
        super().__init__(f"request {request}: {reason}")
        self.request = int(request)
        self.reason = reason


def nearest(word: Any, known: Iterable[str]) -> str:
    """' (did you mean "title"?)', or the list of what is known where nothing comes near."""
    choices = sorted({str(name) for name in known})
    meant = [name for name in OTHER_SETTINGS.get(str(word), ()) if name in choices]
    close = meant or difflib.get_close_matches(str(word), choices, n=1)
    if close:
        return f' (did you mean "{close[0]}"?)'
    return f" (known: {', '.join(choices) or 'none'})"


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


def is_plain(value: Any) -> bool:
    """Whether a value can be held against others for being equal: no list, table, set or array."""
    return not isinstance(value, list | dict | set | np.ndarray)


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


class RuleColumn(NamedTuple):
    """A column as one rule reads it; what cannot be used is refused with the names of column, rule and item."""

    values: np.ndarray
    field: str
    rule: str
    columns: Columns  # all of them: items are named by their ids

    @classmethod
    def of(cls, columns: Columns, field: str, rule: str) -> RuleColumn:
        """The column a rule needs, or an error that names both."""
        if field not in columns:
            raise InputError(
                f'rule "{rule}" needs the field "{field}", which the items lack{nearest(field, columns)}'
            )
        return cls(columns[field], field, rule, columns)

    def absent(self) -> Mask:
        """Where no value is held."""
        return absent_values(self.values)

    def label(self, b: int, position: int) -> str:
        """How messages name one candidate."""
        return label(self.columns, b, position)

    def codes(self, counted: Mask) -> Int32[np.ndarray, "B N"]:
        """Equal values, equal numbers from 0 up; -1 where not counted."""
        values = self.values
        if values.dtype.kind in "iufMb":
            _, inverse = np.unique(values, return_inverse=True)
            return np.where(counted, inverse.reshape(values.shape), -1).astype(np.int32)
        read = zip(values.reshape(-1).tolist(), counted.reshape(-1).tolist(), strict=True)
        flat = [value if counts else None for value, counts in read]
        try:
            number = {value: code for code, value in enumerate(dict.fromkeys(flat))}
        except TypeError:
            b, position = next(
                place for place in np.argwhere(counted).tolist() if not is_plain(values[*place])
            )
            raise RequestError(
                b,
                f'rule "{self.rule}" compares values of "{self.field}", but {values[b, position]!r} (position '
                f"{position}) is a {type(values[b, position]).__name__}; plain text or numbers are needed",
            ) from None
        codes = np.fromiter(map(number.__getitem__, flat), np.int32, len(flat))
        return np.where(counted, codes.reshape(values.shape), -1).astype(np.int32)

    def texts(self, counted: Mask) -> list[list[str]]:
        """Lists of text; "" where not counted."""
        rows = [
            [value if counts else "" for value, counts in zip(row, flags, strict=True)]
            for row, flags in zip(self.values.tolist(), counted.tolist(), strict=True)
        ]
        for b, row in enumerate(rows):
            for position, value in enumerate(row):
                if not isinstance(value, str):
                    raise RequestError(
                        b,
                        f'rule "{self.rule}" needs text in "{self.field}", but position {position} has {value!r}',
                    )
        return rows

    def numbers(self, present: Mask) -> np.ndarray:
        """Whole numbers stay whole, all others become float64 as they are written (missing: NaN)."""
        values = self.values
        if values.ndim != 2 or values.dtype.kind not in "iufO":
            raise InputError(
                f'rule "{self.rule}" needs a number per item in "{self.field}", got {values.dtype} of shape '
                f"{values.shape}"
            )
        if values.dtype.kind in "iu":
            return values
        if values.dtype.kind == "f":
            plain = as_written(values).astype(np.float64)
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
            raise self._not_a_number(values[b, position], b, position)
        return plain

    def vectors(self, present: Mask) -> Float64[np.ndarray, "B N F"]:
        """Vectors as float64, NaN throughout where one is missing; lists are stacked."""
        values = self.values
        if values.ndim == 3 and values.dtype.kind in "fiu":
            dense = values.astype(np.float64)
        elif values.ndim == 2 and values.dtype.kind == "O":
            dense = self._stacked(present)
        else:
            raise InputError(
                f'rule "{self.rule}" needs a vector per item in "{self.field}" ([B, N, F] or lists of numbers), '
                f"got {values.dtype} of shape {values.shape}"
            )
        endless = np.isinf(dense).any(2) & present
        if endless.any():
            b, position = np.argwhere(endless)[0].tolist()
            raise self._not_a_number(np.inf, b, position)
        too_large = (np.abs(dense) > LARGEST_COORDINATE).any(2) & present
        if too_large.any():
            b, position = np.argwhere(too_large)[0].tolist()
            where = f"{self.label(b, position)} has {np.nanmax(np.abs(dense[b, position])):g}"
            raise RequestError(
                b, f'rule "{self.rule}" needs numbers of at most 1e150 in "{self.field}", but {where}'
            )
        return dense

    def _stacked(self, present: Mask) -> Float64[np.ndarray, "B N F"]:
        held: dict[tuple[int, int], np.ndarray] = {}
        size = -1
        for b, position in np.argwhere(present).tolist():
            value = self.values[b, position]
            if is_missing(value):
                continue
            try:
                vector = np.asarray(value, np.float64)
            except (TypeError, ValueError, OverflowError):
                raise self._not_a_number(value, b, position) from None
            named = f'rule "{self.rule}": {self.label(b, position)} has'
            if vector.size == 0:
                raise RequestError(b, f'{named} an empty "{self.field}"')
            size = vector.size if size < 0 else size
            if vector.ndim != 1 or vector.size != size:
                raise RequestError(
                    b, f'{named} a "{self.field}" of shape {vector.shape}, others have ({size},)'
                )
            held[b, position] = vector
        dense = np.full((*self.values.shape, max(size, 1)), np.nan)
        for (b, position), vector in held.items():
            dense[b, position] = vector
        return dense

    def _not_a_number(self, value: Any, b: int, position: int) -> RequestError:
        where = f"{self.label(b, position)} has {shown(value)}"
        return RequestError(b, f'rule "{self.rule}" needs finite numbers in "{self.field}", but {where}')


def flat_ids(ids: Any) -> list[Any]:
    """Ids as plain Python values, so that numpy's 3 and Python's 3 are one id."""
    if hasattr(ids, "tolist"):  # arrays, tensors, columns of frames
        return list(ids.tolist())
    return [v.item() if isinstance(v, np.generic) else v for v in ids]


class Scaled(NamedTuple):
    """Whole numbers that stand for the values times 10 ** `places` of their row."""

    whole: Int64[np.ndarray, "B N"]
    places: tuple[int, ...]


def as_written(values: np.ndarray) -> np.ndarray:
    """Floats as their shortest text says: float32 19.99 is 19.99, not 19.989999771."""
    if values.dtype.kind != "f" or values.dtype.itemsize >= 8:
        return values
    exact = values.astype(np.float64)
    written, unsettled = exact.copy(), np.isfinite(exact)
    short = np.abs(exact) < 1 / np.finfo(values.dtype).eps
    for places in range(FEW_PLACES):  # prices and the like: far quicker than by their texts
        tried = np.rint(exact * 10.0**places) / 10.0**places
        settled = unsettled & short & (tried.astype(values.dtype) == values)
        written[settled] = tried[settled]
        unsettled &= ~settled
        if not unsettled.any():
            return written
    written[unsettled] = values[unsettled].astype(str).astype(np.float64)
    return written


def scaled(values: np.ndarray, most: int) -> Scaled:
    """Rows without gaps, each times the smallest power of ten that leaves whole numbers; room for sums of `most`.

    Digits beyond the 17th of the largest possible sum are rounded away: such numbers were computed, not written.
    """
    if values.dtype.kind in "iub":
        return Scaled(values.astype(np.int64), (0,) * len(values))
    largest = float(np.abs(values).max(initial=0.0)) * most
    for places in range(16):
        tried = np.rint(values * 10.0**places)
        if largest * 10.0**places >= 10.0**DIGITS or np.abs(tried).max(initial=0.0) >= WHOLE:
            break
        if (tried / 10.0**places == values).all():
            return Scaled(tried.astype(np.int64), (places,) * len(values))
    if len(values) > 1:  # by itself each row may need fewer digits
        each = [scaled(row[None], most) for row in values]
        return Scaled(np.concatenate([one.whole for one in each]), tuple(one.places[0] for one in each))
    return _slowly(values, largest)


def _slowly(written: np.ndarray, largest: float) -> Scaled:
    """The same by decimal arithmetic, for one row with numbers of many digits."""
    exact = [Decimal(repr(value)) for value in written.reshape(-1).tolist()]
    wanted = max((-int(value.as_tuple().exponent) for value in exact if value), default=0)
    room = DIGITS - (Decimal(largest).adjusted() + 1 if largest else 0)
    places = min(max(wanted, 0), room)
    context = Context(prec=60)
    whole = [int(context.scaleb(value, places).to_integral_value()) for value in exact]
    return Scaled(np.array(whole, np.int64).reshape(written.shape), (places,))


def bounds(low: Any, high: Any, places: int, endless: int) -> tuple[int, int]:
    """Limits in the same whole numbers: the lower one rounded up, the upper one down."""
    context = Context(prec=60)

    def scaled(limit: Any, rounding: str) -> int:
        whole = int(context.scaleb(Decimal(str(limit)), places).to_integral_value(rounding=rounding))
        return max(-endless, min(endless, whole))

    lower = -endless if low is None else scaled(low, ROUND_CEILING)
    return lower, endless if high is None else scaled(high, ROUND_FLOOR)
