"""What the name or the values of one column suggest: the usual names of roles, flags, moments, row numbers, outcomes.

Knows one column at a time; `recognised.py` holds them against each other.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Bool, Float64, Int64

from exactk.data.logs.written import flags_of, order_of, read_moments
from exactk.data.table import SPLITS, codes_of, flatten, is_list, is_number, is_text, owners

SUGGESTED_K = 4


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


SPLIT_NAMES = {"training": "train", "validation": "valid", "val": "valid", "dev": "valid", "testing": "test"}
_SPLITS = pa.array(SPLITS)

# In order of preference; written without separators and in small letters.
ROLE_NAMES: Mapping[str, tuple[str, ...]] = {
    role: (role.replace("_", ""), *names.split())
    for role, names in {
        "request_id": "request requestid impressionid impression impid queryid qid searchid srchid serpid slateid "
        "rankingid listid pageviewid viewid basketid bundleid outfitid playlistid orderid query search sessionid "
        "session groupid sid basket cart bundle outfit playlist",
        "user_id": "user userid uid visitorid visitor customerid customer clientid client memberid member profile "
        "shopper buyer guest kunde nutzer benutzer reader viewer student subscriber traveller traveler patient",
        "item_id": "item itemid sku product productid propid articleid docid hotelid movieid newsid asin pid iid "
        "artikel produkt",
        "candidates": "candidate candidateids candidateitems inview articleidsinview shownitems showitems itemids "
        "items impressions exposeditems pool offered productids products results list",
        "card": "slate bundle outfit basket shownitems displayed panel",
        "on_card": "oncard incard onpanel inpanel inslate onslate shown isshown displayed isdisplayed impressed "
        "exposed visible isvisible",
        "clicked": "click clk tapped isclick isclicked wasclicked clickbool clicks chosen ischosen selected isselected "
        "purchased ispurchased bought isbought booked isbooked bookingbool ordered converted conversion label labels "
        "feedback userfeedback event eventtype action geklickt gekauft target y",
        "clicked_item": "clicked clickeditemid clickedid click clicks clickeditem chosen selected",
        "clicked_items": "clicked clicks clickedids clickeditemids clickeditems articleidsclicked purchased bought "
        "chosen selected",
        "score": "upstreamscore modelscore rankingscore rankerscore predictedctr pctr prediction",
        "position": "pos displayposition displayrank displayorder listposition rankposition slot rank",
        "reward": "revenue dwell dwelltime grade relevance rel gain judgement judgment label",
        "propensity": "probability",
        "timestamp": "ts datetime dt ds eventdate eventtime impressiontime requesttime searchtime time date datum "
        "zeitpunkt",
        "split": "set subset partition fold dataset datasplit",
    }.items()
}  # fmt: skip
ID_NOUNS: Mapping[str, frozenset[str]] = {
    role: _set(names)
    for role, names in {
        "request_id": "request req impression imp query search srch serp slate ranking list pageview view session "
        "basket bundle outfit playlist order event anfrage suche",
        "user_id": "user visitor customer client member account profile shopper buyer guest reader viewer student "
        "subscriber person traveller traveler patient household cookie device kunde kunden nutzer benutzer",
        "item_id": "item sku product prod prop property article art doc document hotel movie film news recipe dish "
        "course job video song track listing restaurant book game app post offer ad creative story page url content "
        "media show place venue poi candidate variant option product piece garment artikel produkt",
    }.items()
}  # fmt: skip

_ID_WORDS = _set("id ids uuid guid key code sku hash no nr")
_GRADES = _set("grade relevance rel gain judgement judgment")
_BOOKKEEPING = _set("index row rowid rownumber fold unnamed0 indexlevel0 split subset partition")
_CATEGORY_WORDS = _set(
    "id code type class category subcategory brand genre country city region group topic gender state zip zipcode "
    "postcode platform browser os language segment department aisle store colour color kind label"
)
_TEXT_WORDS = _set("title name description text headline summary subtitle")
_CLICK_WORDS = _set(
    "click clicked clicks purchase purchased booking booked order ordered bought chosen selected conversion converted "
    "cart"
)
_PLACES = _set("position pos rank slot place index")
_MOMENT_WORDS = _set("timestamp ts time datetime date at")
_OTHER_MOMENTS = _set(
    "publish published created creation birth release released signup registered registration modified updated expire "
    "expires expiry start end checkin checkout read dwell watch play spent on"
) | (_CLICK_WORDS - {"order"})
_AFTERWARDS = _set(
    "dwell readtime readingtime watchtime timespent timeonpage playtime scroll viewport inview hover"
)
_CONSUMED = _set("watch watched read reading play played listen listened listening viewed viewing")
_AMOUNTS = _set(
    "seconds second secs sec s ms millis minutes minute mins min hours time duration share percent pct ratio"
)
_BEFOREHAND = _set(
    "avg mean average median total history hist past previous prev before far last estimated expected typical"
)
_EPOCHS = ((1e8, 5e9), (1e11, 5e12), (1e14, 5e15), (1e17, 5e18))  # seconds, ms, us, ns since 1970
_DAY = 86_400_000_000  # microseconds
_DATES = 20_000  # rows, to tell months from days
_LONG_LIST, _ENOUGH_LISTS, _NEARLY_EVERY = 4, 50, 0.98
_MEMBER = r"[^\s|;,\[\]()]+"
_CODE = r"([A-Za-z]\S*\d\S*|\d+(-[01])?)"
_LIST_TEXT = rf"^\s*(\[.*\]|\(.*\)|{_MEMBER}(\s*[|;,]\s*{_MEMBER})*|{_CODE}( {_CODE})*|)\s*$"


def name_words(name: str) -> list[str]:
    """request_id, request-ID and requestId are all request, id."""
    parted = re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", name)
    return [word for word in re.split(r"[\W_]+", parted.lower()) if word]


def plain_name(name: str) -> str:
    """Request-ID, request_id and requestId are one name."""
    return "".join(letter for letter in name.lower() if letter.isalnum())


def named_for(role: str, names: Sequence[str]) -> list[str]:
    """Columns whose names are usual for the role, the most usual first; ids also by their noun, the shortest first."""
    usual = {name: place for place, name in reversed(list(enumerate(ROLE_NAMES[role])))}
    exact = [name for name in names if plain_name(name) in usual]
    exact.sort(key=lambda name: usual[plain_name(name)])
    nouns = ID_NOUNS.get(role, frozenset())
    by_noun = [name for name in names if name not in exact and _id_noun(name) in nouns]
    return exact + sorted(by_noun, key=lambda name: len(name_words(name)))


def is_noun_of(role: str, name: str) -> bool:
    """Whether a name is the bare noun of what the role's ids stand for: article, hotel, song."""
    return plain_name(name) in ID_NOUNS[role]


def is_grade_name(name: str) -> bool:
    """Whether a name says how good a candidate turned out: grade, relevance, judgement."""
    return plain_name(name) in _GRADES


def is_id_name(name: str) -> bool:
    """Whether a name says that it holds ids of something."""
    words = name_words(name)
    return bool(words) and (words[-1] in _ID_WORDS or _id_noun(name) != "")


def _id_noun(name: str) -> str:
    """Of "parent_product_id" product, of "docid" doc; empty where the name is not that of an id."""
    words = name_words(name)
    if len(words) > 1 and words[-1] in _ID_WORDS:
        return words[-2]
    if words and words[-1].endswith("id") and any(words[-1][:-2] in nouns for nouns in ID_NOUNS.values()):
        return words[-1][:-2]
    return ""


def ignored_by_name(name: str) -> str:
    """Why a column of this name is no feature; empty where it may be one."""
    words, plain = name_words(name), plain_name(name)
    if plain in _BOOKKEEPING:
        return "its name says it is bookkeeping"
    if is_afterwards_name(name):
        return "its name says it was measured afterwards; make it the reward to learn from it"
    if words and words[-1] in _MOMENT_WORDS and _CLICK_WORDS & set(words):
        return "its name says it is the moment of what came of the card, unknown when a card is chosen"
    return ""


def is_afterwards_name(name: str) -> bool:
    """Whether a name says that it was measured once the card was there: dwell_ms, seconds_watched, readTime."""
    words, plain = set(name_words(name)), plain_name(name)
    measured = any(part in plain for part in _AFTERWARDS) or bool(_CONSUMED & words and _AMOUNTS & words)
    return measured and not _BEFOREHAND & words


def is_category_name(name: str) -> bool:
    """Whole numbers under such a name are labels, not amounts."""
    return bool({*name_words(name)[-1:], plain_name(name)} & _CATEGORY_WORDS)


def is_text_name(name: str) -> bool:
    """Names of columns people write sentences into."""
    return bool(set(name_words(name)) & _TEXT_WORDS)


def is_moment_name(name: str) -> bool:
    """Names of columns that say when a request was; not when an item was published."""
    words = name_words(name)
    return bool(words) and words[-1] in _MOMENT_WORDS and not set(words[:-1]) & _OTHER_MOMENTS


def may_be_asked_at(name: str) -> bool:
    """Whether moments under this name may be those of requests: nothing says that they are of something else."""
    return not any(
        word in _OTHER_MOMENTS or any(len(other) > 5 and word.startswith(other) for other in _OTHER_MOMENTS)
        for word in name_words(name)
    )


def is_click_name(name: str) -> bool:
    """The usual names of a column of clicks, those that may mean anything left out."""
    return plain_name(name) in ROLE_NAMES["clicked"] and plain_name(name) not in ("label", "target", "y")


def names_place_of_click(name: str) -> bool:
    """Whether a name says at which place of a list the click was: position clicked, clicked_rank."""
    words = set(name_words(name))
    return bool(_CLICK_WORDS & words and _PLACES & words)


def speaks_of_clicks(name: str) -> bool:
    """Whether a name has a word for clicks in it."""
    return bool(_CLICK_WORDS & set(name_words(name)))


def split_names(column: pa.Array) -> pa.Array:
    """The usual words for a part of a log as train, valid or test; other words stay."""
    held = column.cast(pa.string())
    places = pc.index_in(pc.utf8_lower(held), value_set=pa.array([*SPLITS, *SPLIT_NAMES]))
    return pc.coalesce(pa.array([*SPLITS, *SPLIT_NAMES.values()]).take(places), held)


def role_fits(role: str, column: pa.Array) -> bool:
    """Whether a column can play the role its name suggests."""
    kind = column.type
    if role in ("candidates", "card", "clicked_items"):
        return is_list(kind) or is_text(kind)
    if role in ("clicked", "on_card"):
        return is_flag(flatten(column)[0] if is_list(kind) else column)
    if role in ("score", "position", "reward"):
        return bool(is_number(kind) or (is_list(kind) and not is_text(kind.value_type)))
    if role == "propensity":
        return bool(pa.types.is_floating(kind))
    if role == "timestamp":
        return is_moment(column)
    if role == "split":
        known = pc.unique(column.drop_null())
        return bool(
            is_text(kind) and len(known) and pc.all(pc.is_in(split_names(known), value_set=_SPLITS)).as_py()
        )
    return is_number(kind) or is_text(kind)


def is_flag(column: pa.Array) -> bool:
    """True and false, 1 and 0, or words for them."""
    kind = column.type
    if pa.types.is_boolean(kind):
        return True
    if not (is_number(kind) or is_text(kind)):
        return False
    known = pc.unique(column.drop_null()).slice(0, 8)
    if is_text(kind):
        return bool(len(known)) and flags_of(known) is not None
    return set(known.to_pylist()) <= {0, 1}


def is_moment(column: pa.Array) -> bool:
    """Dates, times, texts that read as such, numbers that count from 1970."""
    kind, known = column.type, column.drop_null()
    if not is_text(kind):
        dated = pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_null(kind)
        return bool(dated or is_number(kind))
    few = known.slice(0, 200)
    if not len(few) or pc.all(pc.match_substring_regex(few, r"^\d{9,19}$")).as_py():
        return True
    return read_moments(few, order_of(known.slice(0, _DATES))) is not None


def is_clock(column: pa.Array) -> bool:
    """Moments, typed or as text, most of them not at midnight: days may be those of a stay, times hardly are."""
    kind, known = column.type, column.drop_null()
    if is_text(kind):
        read = read_moments(known.slice(0, 200), order_of(known.slice(0, _DATES)))
        if read is None:
            return False
        known = read
    elif not pa.types.is_timestamp(kind):
        return False
    of_day = known.cast(pa.timestamp("us", known.type.tz), safe=False).cast(pa.int64()).to_numpy() % _DAY
    return bool(len(of_day) and (of_day > 0).mean() > 0.5)


def moments_as_numbers(column: pa.Array) -> Float64[np.ndarray, "R"] | None:
    """When each was, in whatever unit; None where values are no moments."""
    kind = column.type
    if is_text(kind):
        read = read_moments(column, order_of(column.slice(0, _DATES)))
    else:
        read = column.cast(pa.timestamp("us")) if pa.types.is_date(kind) else column
    if read is None or not (pa.types.is_temporal(read.type) or is_number(kind)):
        return None
    plain = read.cast(pa.int64()) if pa.types.is_temporal(read.type) else read
    return np.asarray(plain.cast(pa.float64(), safe=False))


def looks_like_moments(column: pa.Array) -> bool:
    """Values that can hardly be anything else."""
    kind = column.type
    if not is_number(kind):
        return is_moment(column) and not pa.types.is_null(kind)
    low, high = (pc.min(column).as_py(), pc.max(column).as_py())
    return low is not None and any(first <= low and high <= last for first, last in _EPOCHS)


def is_list_text(name: str, column: pa.Array) -> bool:
    """Texts that are lists: 1|2|3, a,b,c, [1 2 3]; many of several members."""
    if not is_text(column.type):
        return False
    few = column.drop_null().slice(0, 2000)
    if not len(few) or not pc.all(pc.match_substring_regex(few, _LIST_TEXT)).as_py():
        return False
    several = pc.mean(pc.match_substring_regex(few, r"[|;,\[( ]").cast(pa.float64())).as_py()
    return bool(several > (0.0 if named_for("clicked_items", [name]) else 0.3))


def holds_lists(name: str, column: pa.Array) -> bool:
    """Lists, or texts that are lists."""
    return is_list(column.type) or is_list_text(name, column)


def is_running_number(values: pa.Array) -> bool:
    """1, 2, 3, ... over more than a few rows, in any order; or whole numbers that rise from row to row."""
    if not pa.types.is_integer(values.type) or values.null_count or len(values) < 30:
        return False
    held = values.to_numpy()
    return bool((np.diff(np.sort(held)) == 1).all() or (np.diff(held) > 0).all())


def is_outcome(
    values: pa.Array, clicked: Bool[np.ndarray, "C"], luck: float = 1.0, strays: float = 0.002
) -> bool:
    """One value (or none) wherever nothing was clicked (but for a few strays), and often another where something was.

    Not where as many unclicked ones would all have the usual value by chance more often than `luck`.
    """
    if is_list(values.type) or not clicked.any() or clicked.all():
        return False
    code = codes_of(values)
    usual = int(np.bincount(code[~clicked]).argmax())
    elsewhere, there = (code[~clicked] != usual).mean(), (code[clicked] != usual).mean()
    by_chance = (1 - there) ** (~clicked).sum()
    return bool(elsewhere <= strays and there > max(0.02, 20 * elsewhere) and by_chance <= luck)


def points_at_clicks(values: pa.Array, clicked: Bool[np.ndarray, "C"], sizes: Int64[np.ndarray, "R"]) -> bool:
    """Whether whole numbers of requests, counted from 0 or 1, are nearly always the place of a clicked candidate."""
    if not is_number(values.type):
        return False
    place = np.asarray(values.cast(pa.float64(), safe=False))
    for first in (0, 1):
        inside = (place >= first) & (place < sizes + first) & (sizes >= _LONG_LIST)
        if inside.sum() < _ENOUGH_LISTS:
            return False
        at = (np.cumsum(sizes) - sizes + np.nan_to_num(place) - first).astype(np.int64)
        if clicked[at[inside]].mean() >= _NEARLY_EVERY:
            return True
    return False


def plain_comparable(values: pa.Array) -> np.ndarray:
    """Numbers as floats (a missing one NaN), anything else as text (a missing one empty), to be compared."""
    if is_number(values.type):
        return np.asarray(values.cast(pa.float64(), safe=False))
    return np.asarray(pc.fill_null(values.cast(pa.string()), "").to_numpy(zero_copy_only=False), str)


def names_clicked(
    said: np.ndarray, held: np.ndarray, clicked: Bool[np.ndarray, "C"], sizes: Int64[np.ndarray, "R"]
) -> bool:
    """Whether requests nearly always say what their clicked candidate holds, and most others of them do not.

    Of lists with a click, where something is said: the category of what was clicked, its id, its price.
    """
    if said.dtype.kind != held.dtype.kind:
        return False
    owner, at = owners(sizes), np.flatnonzero(clicked)
    known = (said != "") if said.dtype.kind == "U" else ~np.isnan(said)
    told = np.bincount(owner[at], minlength=len(sizes)).astype(bool) & known
    right = np.bincount(owner[at][said[owner[at]] == held[at]], minlength=len(sizes)).astype(bool)
    if told.sum() < _ENOUGH_LISTS or right[told].mean() < _NEARLY_EVERY:
        return False
    others = np.flatnonzero(~clicked & told[owner])
    return bool(len(others) and (said[owner[others]] == held[others]).mean() < 0.5)


def finds_every_click(
    values: pa.Array, clicked: Bool[np.ndarray, "C"], sizes: Int64[np.ndarray, "R"]
) -> bool:
    """Whether the one largest (or smallest) value of a list is a clicked one in nearly every list with a click."""
    if is_list(values.type) or is_text(values.type) or len(values) != int(sizes.sum()) or not len(values):
        return False
    try:
        plain = values.cast(pa.uint8()) if pa.types.is_boolean(values.type) else values
        held = np.asarray(plain.cast(pa.float64()))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return False
    sizes = sizes[sizes > 0]
    starts = np.cumsum(sizes) - sizes
    judged = (np.add.reduceat(clicked.astype(np.int64), starts) > 0) & (sizes >= _LONG_LIST)
    if judged.sum() < _ENOUGH_LISTS:
        return False
    for each in (held, -held):
        score = np.where(np.isnan(each), -np.inf, each)
        top = score == np.repeat(np.maximum.reduceat(score, starts), sizes)
        found = np.add.reduceat(top & clicked, starts) == np.add.reduceat(top.astype(np.int64), starts)
        if found[judged].mean() >= _NEARLY_EVERY:
            return True
    return False


def words(values: pa.Array) -> float:
    """Words in the mean of the first thousand texts."""
    texts = values.drop_null()[:1000].to_pylist()
    return float(np.mean([len(text.split()) for text in texts])) if texts else 0.0
