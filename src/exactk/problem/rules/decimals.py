"""Numbers as they are written: 0.1 and 0.2 make 0.3. Columns scaled to whole numbers, so that sums are exact.

Knows no rule.
"""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int64

DIGITS = 17  # of the largest sum that is kept exact: what float64 can tell apart
WHOLE = (
    10.0**15
)  # below this every whole number times a power of ten up to 10^22 reads back as it was written


class Scaled(NamedTuple):
    """Whole numbers that stand for the values times 10 ** `places` of their row."""

    whole: Int64[np.ndarray, "B N"]
    places: tuple[int, ...]


def as_written(values: np.ndarray) -> np.ndarray:
    """Floats as their shortest text says: float32 19.99 is 19.99, not 19.989999771."""
    if values.dtype.kind != "f" or values.dtype.itemsize >= 8:
        return values
    return values.astype(str).astype(np.float64)


def scaled(values: np.ndarray, most: int) -> Scaled:
    """Rows without gaps, each times the smallest power of ten that leaves whole numbers; room for sums of `most`.

    Digits beyond the 17th of the largest possible sum are rounded away: such numbers were computed, not written.
    """
    if values.dtype.kind in "iub":
        return Scaled(values.astype(np.int64), (0,) * len(values))
    written = as_written(values).astype(np.float64)
    largest = float(np.abs(written).max(initial=0.0)) * most
    for places in range(16):
        tried = np.rint(written * 10.0**places)
        if largest * 10.0**places >= 10.0**DIGITS or np.abs(tried).max(initial=0.0) >= WHOLE:
            break
        if (tried / 10.0**places == written).all():
            return Scaled(tried.astype(np.int64), (places,) * len(values))
    if len(values) > 1:  # by itself each row may need fewer digits
        each = [scaled(row[None], most) for row in written]
        return Scaled(np.concatenate([one.whole for one in each]), tuple(one.places[0] for one in each))
    return _slowly(written, largest)


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
