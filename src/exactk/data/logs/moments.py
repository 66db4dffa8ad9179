"""Moments as people write them: 2026-03-01 09:05, 3/1/2026 9:05:12 AM, 1.3.2026, with a zone or without.

Knows one column of texts. 3/1/2026 may be March or January: other values decide, and where none does it is not read.
"""

from __future__ import annotations

from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

Order = Literal["ymd", "dmy", "mdy"]

_DATE = r"(?P<first>\d{1,4})[-/.](?P<second>\d{1,2})[-/.](?P<third>\d{1,4})"
_TIME = r"(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second_of>\d{2})(?:\.(?P<fraction>\d{1,9}))?)?"
_WRITTEN = (
    rf"^\s*{_DATE}(?:[ T]+{_TIME}\s*(?P<half>[AaPp][Mm])?\s*(?P<zone>Z|UTC|GMT|[+-]\d{{2}}:?\d{{2}})?)?\s*$"
)


_ZONE = r"\d(Z|[+-]\d{2}:?\d{2})$"

_DATED = r"^\s*(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{4})\b"


def read_moments(texts: pa.Array, order: Order | None) -> pa.Array | None:
    """Microseconds, of UTC where zones are written; dates that are not ISO's in the given order."""
    zoned = pc.any(pc.match_substring_regex(texts, _ZONE)).as_py()
    try:
        return texts.cast(pa.timestamp("us", "UTC" if zoned else None))
    except pa.ArrowInvalid:
        return None if order is None else _written(texts, order)


def are_dates(texts: pa.Array) -> bool:
    """Whether all are written as dates, readable or not."""
    known = pc.unique(texts.drop_null())
    return bool(len(known) and pc.all(pc.match_substring_regex(known, _DATED)).as_py())


def order_of(texts: pa.Array) -> Order | None:
    """Whether days, months or years come first; None where texts are no dates, or may be read in two ways."""
    known = texts.drop_null()
    parts = pc.extract_regex(known, _WRITTEN)
    if not len(known) or parts.null_count:
        return None
    first, second, third = (parts.field(name) for name in ("first", "second", "third"))
    if _lengths(first) == {4}:
        return "ymd"
    if _lengths(third) != {4} or not _lengths(first) <= {1, 2}:
        return None
    day_first, month_first = _most(first) > 12, _most(second) > 12
    if day_first or month_first:
        return None if day_first and month_first else "dmy" if day_first else "mdy"
    if pc.all(pc.match_substring_regex(known, r"^\s*\d+\.")).as_py():
        return "dmy"  # with points days come first everywhere
    return (
        "mdy" if _has(parts.field("half")) else None
    )  # so does the month where clocks count twice to twelve


def _written(texts: pa.Array, order: Order) -> pa.Array | None:
    texts = texts.cast(pa.string())
    parts = pc.extract_regex(texts, _WRITTEN)
    if parts.null_count > texts.null_count:
        return None
    field = {
        place: parts.field(place) for place in ("hour", "minute", "second_of", "fraction", "half", "zone")
    }
    year, month, day = (
        pc.utf8_lpad(parts.field(("first", "second", "third")[order.index(letter)]), width, "0")
        for letter, width in (("y", 4), ("m", 2), ("d", 2))
    )
    hour = pc.fill_null(_whole(field["hour"]), 0)
    late = pc.equal(pc.utf8_lower(field["half"]), "pm")
    early = pc.equal(pc.utf8_lower(field["half"]), "am")
    twelve = pc.equal(hour, 12)
    hour = pc.if_else(pc.and_(late, pc.invert(twelve)), pc.add(hour, 12), hour)
    hour = pc.if_else(pc.and_(early, twelve), 0, hour)
    clock = [
        pc.utf8_lpad(hour.cast(pa.string()), 2, "0"),
        *(pc.coalesce(_filled(field[name]), "00") for name in ("minute", "second_of")),
    ]
    fraction = pc.utf8_slice_codeunits(
        pc.utf8_rpad(pc.coalesce(_filled(field["fraction"]), "0"), 6, "0"), 0, 6
    )
    written = pc.binary_join_element_wise(
        pc.binary_join_element_wise(year, month, day, "-"), pc.binary_join_element_wise(*clock, ":"), " "
    )
    written = pc.binary_join_element_wise(written, fraction, ".")
    zoned = _has(field["zone"])
    if zoned:
        zone = pc.coalesce(_filled(field["zone"]), "Z")
        zone = pc.if_else(pc.is_in(zone, value_set=pa.array(["UTC", "GMT"])), "Z", zone)
        written = pc.binary_join_element_wise(written, zone, "")
    written = pc.if_else(texts.is_valid(), written, None)
    try:
        return written.cast(pa.timestamp("us", "UTC" if zoned else None))
    except pa.ArrowInvalid:
        return None


def _filled(texts: pa.Array) -> pa.Array:
    """What was not written as missing."""
    return pc.if_else(pc.equal(texts, ""), None, texts)


def _has(texts: pa.Array) -> bool:
    return bool(pc.any(pc.not_equal(texts, "")).as_py())


def _whole(texts: pa.Array) -> pa.Array:
    return _filled(texts).cast(pa.int64())


def _most(texts: pa.Array) -> int:
    return int(pc.max(_whole(texts)).as_py())


def _lengths(texts: pa.Array) -> set[int]:
    return set(pc.unique(pc.utf8_length(texts)).to_pylist())
