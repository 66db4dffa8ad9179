"""What names and values suggest of a column: the usual names of roles, row numbers, outcomes, texts.

Knows one column at a time.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Bool

from exactk.data.table import SPLITS, is_list, is_text

SUGGESTED_K = 4

ROLE_NAMES: Mapping[str, frozenset[str]] = {
    role: frozenset({role.replace("_", ""), *names.split()})
    for role, names in {
        "request_id": "request requestid impressionid impression queryid qid searchid srchid slateid listid sessionid",
        "user_id": "user userid uid visitorid visitor customerid customer clientid memberid",
        "item_id": "item itemid sku productid propid articleid docid hotelid movieid newsid asin",
        "candidates": "", "card": "slate", "on_card": "oncard", "clicked": "click isclick isclicked clickbool",
        "clicked_item": "clickeditemid", "clicked_items": "",
        "score": "upstreamscore modelscore rankingscore", "position": "pos displayposition displayrank",
        "reward": "revenue dwell dwelltime grade relevance", "propensity": "probability",
        "timestamp": "time ts datetime eventtime date", "split": "",
    }.items()
}  # fmt: skip

_BOOKKEEPING = {"index", "row", "rowid", "rownumber", "fold", "unnamed0", "indexlevel0"}
_CATEGORY_ENDINGS = (
    "id",
    "code",
    "type",
    "class",
    "category",
    "brand",
    "genre",
    "country",
    "city",
    "region",
    "group",
)
_TEXT_NAMES = ("title", "name", "description", "text", "headline", "summary")


def plain_name(name: str) -> str:
    """Request-ID, request_id and requestId are one name."""
    return "".join(letter for letter in name.lower() if letter.isalnum())


def ignored_by_name(name: str) -> str:
    """Why a column of this name is no feature; empty where it may be one."""
    return "its name says it is bookkeeping" if plain_name(name) in _BOOKKEEPING else ""


def is_category_name(name: str) -> bool:
    """Whole numbers under such a name are labels, not amounts."""
    plain = name.lower()
    return any(plain == ending or plain.endswith(f"_{ending}") for ending in _CATEGORY_ENDINGS)


def is_text_name(name: str) -> bool:
    """Names of columns people write sentences into."""
    return any(part in _TEXT_NAMES for part in name.lower().split("_"))


def role_fits(role: str, column: pa.Array) -> bool:
    """Whether a column can play the role its name suggests."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    if role in ("candidates", "card", "clicked_items"):
        return is_list(kind) or is_text(kind)
    if role in ("clicked", "on_card"):
        return bool(pa.types.is_boolean(kind) or (number and _only_flags(column)))
    if role in ("score", "position", "reward"):
        return bool(number or (is_list(kind) and not is_text(kind.value_type)))
    if role == "propensity":
        return bool(pa.types.is_floating(kind))
    if role == "timestamp":
        return bool(number or pa.types.is_timestamp(kind) or pa.types.is_date(kind) or is_text(kind))
    if role == "split":
        return bool(
            is_text(kind) and pc.all(pc.is_in(column.drop_null(), value_set=pa.array(SPLITS))).as_py()
        )
    return bool(pa.types.is_integer(kind) or is_text(kind) or pa.types.is_floating(kind))


def _only_flags(column: pa.Array) -> bool:
    known = set(pc.unique(column.drop_null()).to_pylist())
    return known <= {0, 1}


def is_running_number(values: pa.Array) -> bool:
    """1, 2, 3, ... over more than a few rows."""
    if not pa.types.is_integer(values.type) or values.null_count or len(values) < 30:
        return False
    return bool((np.diff(np.sort(values.to_numpy())) == 1).all())


def is_outcome(values: pa.Array, clicked: Bool[np.ndarray, "C"]) -> bool:
    """One value (or none) wherever nothing was clicked, and often another where something was."""
    if is_list(values.type) or not clicked.any() or clicked.all():
        return False
    code = values.dictionary_encode(null_encoding="encode").indices.to_numpy(zero_copy_only=False)
    usual = code[~clicked][0]
    return bool((code[~clicked] == usual).all() and (code[clicked] != usual).mean() > 0.02)


def words(values: pa.Array) -> float:
    """Words in the mean of the first thousand texts."""
    texts = values.drop_null()[:1000].to_pylist()
    return float(np.mean([len(text.split()) for text in texts])) if texts else 0.0
