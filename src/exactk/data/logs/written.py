"""What people write in cells: numbers (1,234.50, €99, N/A), moments (3/1/2026 9:05 AM), flags (yes), lists (a|b),
objects ({"price": 9.5}).

Knows one column of texts at a time. Where a text may mean two things, as 12,5 and 3/1/2026 may, it is not read unless
the other values decide.
"""

from __future__ import annotations

import ast
import json
import re
from contextlib import suppress
from itertools import accumulate, pairwise
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pajson

from exactk.data.table import flagged, flags_in, flatten, is_number, is_text, lists_of

LEVELS = 64  # of lists and objects in one another; no log that anybody reads has more
_TEXT = re.compile(rb'"(?:[^"\\\n]|\\.)*"')
_MONEY = "€$£¥"
_NUMBER = rf"^[-+]?[{_MONEY}]?\s?[-+]?(\d{{1,3}}(,\d{{3}})+|\d+)?(\.\d+)?([eE][-+]?\d+)?\s?[%{_MONEY}]?$"
_COMMAS = rf"^\s*[-+]?[{_MONEY}]?\s?[-+]?(\d{{1,3}}(\.\d{{3}})+|\d+)(,\d+)?([eE][-+]?\d+)?\s?[%{_MONEY}]?\s*$"
_DIGIT, _MARK = r"\d", rf"[,%{_MONEY}]"
_CODE = r"^[-+]?0\d"  # 007
_DECIMALS = r"\d\.\d+\s*$"
_NOTHING = pa.array(["", "n/a", "na", "null", "\\n", "none", "nan", "nat", "-", "--", "?"])


def _known(texts: pa.Array) -> pa.Array:
    """Texts without the space around them, a word for a missing value as null."""
    bare = pc.utf8_trim_whitespace(texts.cast(pa.string()))
    return pc.if_else(pc.is_in(pc.utf8_lower(bare), value_set=_NOTHING), None, bare)


def numbers_of_texts(column: pa.Array) -> pa.Array | None:
    """Every text as a number, a word for a missing one as null; None where some text is neither.

    Commas part thousands, a point parts decimals.
    """
    known = _known(column)
    fine = pc.and_(pc.match_substring_regex(known, _NUMBER), pc.match_substring_regex(known, _DIGIT))
    if pc.all(fine).as_py() is False:
        return None
    return pc.replace_substring_regex(known, rf"[,%\s{_MONEY}]", "").cast(pa.float64())


def reads_as_numbers(column: pa.Array) -> bool:
    """Whether all texts read as numbers, most of them known ones, none written as 007 is."""
    texts = pc.unique(column.drop_null())
    read = numbers_of_texts(texts)
    if read is None or read.null_count > len(read) / 2:
        return False
    return not pc.any(pc.match_substring_regex(texts, _CODE)).as_py()


def are_numbers(column: pa.Array) -> bool:
    """Whether texts are surely numbers: all read as such, and some are written as no code would be."""
    texts = pc.unique(column.drop_null())
    if not reads_as_numbers(texts):
        return False
    decimals = pc.mean(pc.match_substring_regex(texts, _DECIMALS).cast(pa.int8())).as_py()
    marked = pc.any(pc.match_substring_regex(texts, _MARK)).as_py() or _known(texts).null_count
    return bool(marked or (len(texts) and decimals > 0.5))


def has_decimal_commas(column: pa.Array) -> bool:
    """Whether texts are numbers with a comma before the decimals, most of them with some: 1.234,50 and 0,5."""
    texts = _known(column).drop_null() if is_text(column.type) else pa.nulls(0)
    if not len(texts) or not pc.all(pc.match_substring_regex(texts, _COMMAS)).as_py():
        return False
    several = pc.mean(pc.match_substring(texts, ",").cast(pa.float64())).as_py()
    return bool(several > 0.5 and numbers_of_texts(texts) is None)  # 1,234 may part thousands


def numbers_with_commas(column: pa.Array) -> pa.Array | None:
    """Such texts as numbers; None where one is none."""
    return numbers_of_texts(pc.replace_substring(pc.replace_substring(column, ".", ""), ",", "."))


def hold_digits(column: pa.Array) -> bool:
    """Whether nearly all texts begin like a number."""
    like_a_number = rf"^\s*[-+{_MONEY}]?\s?\d[\d.,\s]*\S{{0,4}}$"
    begin = pc.match_substring_regex(pc.unique(column.drop_null()), like_a_number)
    return bool(len(begin) and pc.mean(begin.cast(pa.float64())).as_py() > 0.9)


Order = Literal["ymd", "dmy", "mdy"]

_DATE = r"(?P<first>\d{1,4})[-/.](?P<second>\d{1,2})[-/.](?P<third>\d{1,4})"
_TIME = r"(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second_of>\d{2})(?:\.(?P<fraction>\d{1,9}))?)?"
_MOMENT = (
    rf"^\s*{_DATE}(?:[ T]+{_TIME}\s*(?P<half>[AaPp][Mm])?\s*(?P<zone>Z|UTC|GMT|[+-]\d{{2}}:?\d{{2}})?)?\s*$"
)
_MARKED = r"\S+-[01]( \S+-[01])+"
_ZONE = r"\d(Z|[+-]\d{2}:?\d{2})$"
_DATED = r"^\s*(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{4})\b"


def read_moments(texts: pa.Array, order: Order | None) -> pa.Array | None:
    """Microseconds, of UTC where zones are written; dates that are not ISO's in the given order."""
    texts = _known(texts)
    zoned = pc.any(pc.match_substring_regex(texts, _ZONE)).as_py()
    try:
        return texts.cast(pa.timestamp("us", "UTC" if zoned else None))
    except pa.ArrowInvalid:
        return None if order is None else _written(texts, order)


def are_dates(texts: pa.Array) -> bool:
    """Whether all are written as dates, readable or not."""
    known = pc.unique(_known(texts).drop_null())
    return bool(len(known) and pc.all(pc.match_substring_regex(known, _DATED)).as_py())


def order_of(texts: pa.Array) -> Order | None:
    """Whether days, months or years come first; None where texts are no dates, or may be read in two ways."""
    known = _known(texts).drop_null()
    parts = pc.extract_regex(known, _MOMENT)
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
    # So does the month where clocks count twice to twelve.
    return "mdy" if _has(parts.field("half")) else None


def _written(texts: pa.Array, order: Order) -> pa.Array | None:
    parts = pc.extract_regex(texts, _MOMENT)
    if parts.null_count > texts.null_count:
        return None

    def said(place: str, unsaid: str) -> pa.Array:
        return pc.coalesce(pc.if_else(pc.equal(parts.field(place), ""), None, parts.field(place)), unsaid)

    year, month, day = (
        pc.utf8_lpad(parts.field(("first", "second", "third")[order.index(letter)]), width, "0")
        for letter, width in (("y", 4), ("m", 2), ("d", 2))
    )
    hour, half = said("hour", "0").cast(pa.int64()), pc.utf8_lower(parts.field("half"))
    twelve = pc.equal(hour, 12)
    hour = pc.if_else(pc.and_(pc.equal(half, "pm"), pc.invert(twelve)), pc.add(hour, 12), hour)
    hour = pc.if_else(pc.and_(pc.equal(half, "am"), twelve), 0, hour)
    hour = pc.utf8_lpad(hour.cast(pa.string()), 2, "0")
    fraction = pc.utf8_slice_codeunits(pc.utf8_rpad(said("fraction", "0"), 6, "0"), 0, 6)
    date = [year, "-", month, "-", day]
    clock = [" ", hour, ":", said("minute", "00"), ":", said("second_of", "00"), ".", fraction]
    zoned = _has(parts.field("zone"))
    if zoned:
        zone = said("zone", "Z")
        clock.append(pc.if_else(pc.is_in(zone, value_set=pa.array(["UTC", "GMT"])), "Z", zone))
    written = pc.if_else(texts.is_valid(), pc.binary_join_element_wise(*date, *clock, ""), None)
    try:
        return written.cast(pa.timestamp("us", "UTC" if zoned else None))
    except pa.ArrowInvalid:
        return None


def _has(texts: pa.Array) -> bool:
    return bool(pc.any(pc.not_equal(texts, "")).as_py())


def _most(texts: pa.Array) -> int:
    return int(pc.max(texts.cast(pa.int64())).as_py())


def _lengths(texts: pa.Array) -> set[int]:
    return set(pc.unique(pc.utf8_length(texts)).to_pylist())


_TAKEN = "click clicked purchase purchased buy bought order ordered booking booked cart add_to_cart addtocart"
_LEFT = "view viewed impression impressed show shown skip skipped ignored none no_click"
FLAG_TEXTS = {
    "true": True, "t": True, "yes": True, "y": True, "1": True, "1.0": True,
    "false": False, "f": False, "no": False, "n": False, "0": False, "0.0": False,
    **dict.fromkeys(("ja", "wahr", "oui", "vrai", "si", "sí", "sì", "sim"), True),
    **dict.fromkeys(("nein", "falsch", "non", "faux", "não", "nee"), False),
    **dict.fromkeys(_TAKEN.split(), True), **dict.fromkeys(_LEFT.split(), False),
}  # fmt: skip
_SEPARATORS = (",", "|", ";", " ")
_BRACKETS = r"^\s*[\[(]|[\])]\s*$"


def objects_of(texts: pa.Array) -> pa.Array | None:
    """Objects, or lists of them, out of texts as JSON or Python write them; None where texts are none."""
    first = pc.index(texts.is_valid(), True).as_py()
    if first < 0 or not texts[first].as_py().lstrip().startswith(("{", "[{")):
        return None
    cells = texts.to_pylist()
    lines = "\n".join(f'{{"cell": {"null" if cell is None else cell}}}' for cell in cells).encode()
    with suppress(pa.ArrowInvalid):
        read = json_table(lines)
        return read["cell"].combine_chunks() if len(read) == len(cells) else None
    with suppress(ValueError, SyntaxError, TypeError, RecursionError, MemoryError, pa.ArrowException):
        return pa.array([None if cell is None else _object(cell) for cell in cells])
    return None


def json_table(lines: bytes) -> pa.Table:
    """Whole lines of JSON; in one block, as a line longer than the usual block would be refused."""
    if deepest(lines) > LEVELS:
        raise pa.ArrowInvalid(f"a line is nested more than {LEVELS} levels deep")
    return pajson.read_json(pa.BufferReader(lines), pajson.ReadOptions(block_size=len(lines) + 1))


def deepest(lines: bytes) -> int:
    """How deep lists and objects stand in one another in the deepest line; some number up to `LEVELS` if no deeper.

    Arrow's reader follows them with the machine's own stack, whose end is the end of the process.
    """
    held = np.frombuffer(lines, np.uint8) | 0x20  # [ and { are one byte then, as ] and } are
    marks = np.flatnonzero((held == ord("{")) | (held == ord("}")))
    steps = np.where(held[marks] == ord("{"), 1, -1)
    levels = steps.cumsum()
    if levels.max(initial=0) - levels.min(initial=0) <= LEVELS:  # nearly always
        return 0
    ends = np.append(np.flatnonzero(np.frombuffer(lines, np.uint8) == ord("\n")), len(lines))
    line_of = np.searchsorted(ends, marks)
    found = 0
    for line in np.flatnonzero(np.bincount(line_of[steps > 0], minlength=1) > LEVELS):
        own = slice(*np.searchsorted(line_of, (line, line + 1)))
        if steps[own].cumsum().max() > LEVELS:  # unless they stand in texts
            bare = _TEXT.sub(b"", lines[ends[line - 1] if line else 0 : ends[line]])
            found = max(found, *accumulate(1 if byte in b"[{" else -1 for byte in bare if byte in b"[{]}"), 0)
    return found


def _object(cell: str) -> Any:
    try:
        return json.loads(cell)
    except ValueError:
        return ast.literal_eval(cell)


def seem_values(names: list[str], columns: list[Any]) -> str | None:
    """The first of the names of columns that is surely a value of a line without names; None where all are names.

    So are dates, items with marks, numbers that are not counted, and names of two columns that are among their values.
    """
    numbers = [name for name in names if re.fullmatch(r"-?\d+(\.\d+)?", name)]
    if numbers and len(numbers) == len(names):
        counted = sorted(map(float, numbers))
        return None if all(b - a == 1 for a, b in pairwise(counted)) else numbers[0]
    odd = next((name for name in names if re.match(_DATED, name) or re.fullmatch(_MARKED, name)), None)
    met = [
        name for name, column in zip(names, columns, strict=True)
        if is_text(column.type) and pc.index(column, pa.scalar(name, column.type)).as_py() >= 0
    ]  # fmt: skip
    return odd or (met[0] if 1 < len(met) < len(names) else None)


def flags_of(column: pa.Array) -> np.ndarray | None:
    """True or false of every value, a missing one false; None where some are neither (nor 0, 1, or words for them)."""
    kind = column.type
    if is_text(kind):
        words = pc.utf8_lower(_known(column))
        places = pc.index_in(words, value_set=pa.array(list(FLAG_TEXTS)))
        if places.null_count > words.null_count:
            return None
        held = pa.array(list(FLAG_TEXTS.values())).take(places)
    elif pa.types.is_boolean(kind) or pa.types.is_null(kind):
        held = column.cast(pa.bool_())
    elif is_number(kind):
        plain = column.cast(pa.float64(), safe=False)
        known = pc.is_in(plain, value_set=pa.array([0.0, 1.0, None, float("nan")]))
        if not pc.all(known).as_py() and len(column):
            return None
        held = pc.equal(column, 1)
    else:
        return None
    return flags_in(held)


def separator_of(column: pa.Array) -> str:
    """What parts the members of lists that are written as text."""
    bare = pc.replace_substring_regex(column, _BRACKETS, "")
    return next((one for one in _SEPARATORS if pc.any(pc.match_substring(bare, one)).as_py()), ",")


def split_lists(column: pa.Array, separator: str | None = None) -> pa.Array:
    """Lists out of texts such as 1,2,3 or [1 2 3] or a|b."""
    bare = pc.replace_substring_regex(column, _BRACKETS, "")
    values, lengths = flatten(pc.split_pattern(bare, separator or separator_of(column)))
    trimmed = pc.utf8_trim_whitespace(values)
    return flagged(lengths, trimmed, np.asarray(pc.not_equal(trimmed, "")), column)


def are_marked(lists: pa.Array) -> bool:
    """Whether every member ends in -1 or -0, and both are there."""
    held = pc.value_counts(pc.utf8_slice_codeunits(flatten(lists)[0], -2)).field("values").to_pylist()
    return {*held} == {"-0", "-1"}


def ids_and_marks(lists: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Members less their marks, and the marks as flags; a missing one where there is none."""
    values, lengths = flatten(lists)
    marks = pc.index_in(pc.utf8_slice_codeunits(values, -2), value_set=pa.array(["-0", "-1"], values.type))
    ids = pc.utf8_slice_codeunits(values, 0, -2)
    return lists_of(lengths, ids, lists), lists_of(lengths, marks.cast(pa.bool_()), lists)


def has_quotes(column: pa.Array) -> bool:
    """Whether lists are written with quotes around their members, as Python and JSON write texts."""
    return bool(pc.any(pc.match_substring_regex(column, r"""^\s*[\[(]\s*["']""")).as_py())
