"""Numbers as people write them: 1,234.50, €99, $1,200, 12%, and N/A where there is none.

Knows one column of texts. Commas part thousands, a point parts decimals: 12,5 is not read, as it may mean either.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

_MONEY = "€$£¥"
_WRITTEN = rf"^[-+]?[{_MONEY}]?\s?[-+]?(\d{{1,3}}(,\d{{3}})+|\d+)?(\.\d+)?([eE][-+]?\d+)?\s?[%{_MONEY}]?$"
_DIGIT, _MARK = r"\d", rf"[,%{_MONEY}]"
_CODE = r"^[-+]?0\d"  # 007
_NONE = pa.array(["", "n/a", "na", "null", "\\n", "none", "nan", "-", "--", "?"])


def numbers_of_texts(column: pa.Array) -> pa.Array | None:
    """Every text as a number, a word for a missing one as null; None where some text is neither."""
    bare = pc.utf8_trim_whitespace(column.cast(pa.string()))
    known = pc.if_else(pc.is_in(pc.utf8_lower(bare), value_set=_NONE), None, bare)
    fine = pc.and_(pc.match_substring_regex(known, _WRITTEN), pc.match_substring_regex(known, _DIGIT))
    if pc.all(fine).as_py() is False:
        return None
    return pc.replace_substring_regex(known, rf"[,%\s{_MONEY}]", "").cast(pa.float64())


def are_numbers(column: pa.Array) -> bool:
    """Whether texts are surely numbers: all read as such, and some are written as no code would be."""
    texts = pc.unique(column.drop_null())
    read = numbers_of_texts(texts)
    if (
        read is None
        or read.null_count > len(read) / 2
        or pc.any(pc.match_substring_regex(texts, _CODE)).as_py()
    ):
        return False
    return bool(read.null_count or pc.any(pc.match_substring_regex(texts, _MARK)).as_py())


def hold_digits(column: pa.Array) -> bool:
    """Whether nearly all texts begin like a number."""
    begin = pc.match_substring_regex(
        pc.unique(column.drop_null()), rf"^\s*[-+{_MONEY}]?\s?\d[\d.,\s]*\S{{0,4}}$"
    )
    return bool(len(begin) and pc.mean(begin.cast(pa.float64())).as_py() > 0.9)
