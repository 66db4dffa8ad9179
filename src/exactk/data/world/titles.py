"""What items are called, as rows of bytes, and which of them may share a card under the rule on titles.

Knows no latent truth but what a seller would write: brand, category, theme, and words of its own.
"""

from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Bool, Int64, UInt8

from exactk.data.world.recipe import NUM_BRANDS, THEMES, Goods, Items, stream
from exactk.problem.compiling import compiled
from exactk.problem.rules.titles import as_fraction

WIDTH = 64  # bytes of the longest title, so that a title's positions fit one machine word
AT_ONCE = 32  # pairs settled side by side; fewer, and the compiler makes no vectors of them (measured: 3 times slower)

_NOUNS = (
    "brim hat", "knit scarf", "gloves", "long coat", "silk dress", "handbag", "high heels", "slim jeans",
    "sneakers", "backpack", "dome tent", "steel thermos", "clay teapot", "glazed teacup", "blanket", "desk lamp",
)  # fmt: skip
_LOOKS = (
    "soft", "bold", "plain", "striped", "vintage", "nordic", "urban", "floral", "pastel", "rustic",
    "classic", "compact", "elegant", "folding", "woven", "quilted", "matte", "bright", "slender", "layered",
    "checked", "dotted", "minimal", "ornate", "sporty", "velvet", "linen", "amber", "indigo", "crimson",
)  # fmt: skip
_CLAIMS = (
    "new", "sale", "gift", "2019", "hot", "best", "top", "deal", "fast post", "in stock", "official", "outlet",
)  # fmt: skip


class Titles(NamedTuple):
    """Row i: the title of item i in ASCII, then zeros."""

    text: UInt8[np.ndarray, "I W"]
    length: Int64[np.ndarray, "I"]


def titles_of(items: Goods, seed: int) -> Titles:
    """brand, look, theme, noun, claim; one listing in six turns the words round, so near-duplicates escape."""
    product, claim, order = items.words.T
    words = [
        pa.array(brand_names(seed)).take(pa.array(items.brand)),
        pa.array(_LOOKS).take(pa.array(product % len(_LOOKS))),
        pa.array(THEMES).take(pa.array(items.theme, mask=items.theme < 0)),
        pa.array(_NOUNS).take(pa.array(items.category)),
        pa.array(_CLAIMS).take(pa.array(claim % len(_CLAIMS))),
    ]
    join = partial(pc.binary_join_element_wise, null_handling="skip")
    straight, turned = join(*words, " "), join(*words[::-1], " ")
    spelled = pc.if_else(pa.array(order % 6 == 0), turned, straight)
    length = np.asarray(pc.binary_length(spelled), np.int64)
    text = np.zeros((len(length), WIDTH), np.uint8)
    letters = np.frombuffer(spelled.buffers()[2], np.uint8, int(length.sum()))
    text[np.arange(WIDTH) < length[:, None]] = letters
    return Titles(text, length)


def as_strings(titles: Titles, start: int, stop: int) -> pa.Array:
    """The titles of a range of items as an Arrow column."""
    length = titles.length[start:stop]
    text = titles.text[start:stop]
    letters = text[np.arange(WIDTH) < length[:, None]]
    offsets = np.concatenate([[0], np.cumsum(length)]).astype(np.int32)
    return pa.StringArray.from_buffers(len(length), pa.py_buffer(offsets), pa.py_buffer(letters))


def allowed_pairs(titles: Titles, items: Items, minimum: float) -> Bool[np.ndarray, "B N N"]:
    """Which candidates may share a card: the answer of `TitleDistance(minimum)`, for titles held as bytes.

    With M matches and S substitutions an edit path between lengths n <= m has weight n+m-2M-S, length n+m-M-S and
    S <= n - M, so weight/length < p/q needs q M > (q-p) m. Most pairs have no common subsequence that long (one machine
    word per title finds the longest), or one so long that weight n+m-2M, length n+m-M is a path under p/q already.
    The others get the rule's dynamic programme, AT_ONCE pairs at a time.
    """
    threshold = as_fraction(minimum)
    p, q = threshold.numerator, threshold.denominator
    allowed = np.empty((*items.shape, items.shape[1]), np.bool_)
    doubtful = _sieve(titles, items, p, q, allowed)
    b, first, second = doubtful.T
    far = np.empty(len(doubtful), np.bool_)
    _settle(titles, items[b, first], items[b, second], p, q, far)
    allowed[b, first, second] = allowed[b, second, first] = far
    return allowed


def brand_names(seed: int) -> list[str]:
    """Distinct pronounceable names of two or three syllables."""
    rng = stream(seed, "brands")
    names: dict[str, None] = {}
    while len(names) < NUM_BRANDS:
        syllables = rng.integers(0, [12, 5], size=(int(rng.integers(2, 4)), 2))
        names["".join("bdfklmnprstv"[c] + "aeiou"[v] for c, v in syllables) + "nrx"[rng.integers(3)]] = None
    return list(names)


@compiled
def _sieve(titles, items, p, q, allowed):
    """Fill `allowed` where the longest common subsequence decides; return the other pairs as (b, first, second)."""
    text, length = titles
    B, N = items.shape
    doubtful = np.empty((max(64, B * N), 3), np.int64)
    count = 0
    where = np.zeros((N, 128), np.uint64)
    one = np.uint64(1)
    for b in range(B):
        where[:] = 0
        for a in range(N):
            item = items[b, a]
            for c in range(length[item]):
                where[a, text[item, c]] |= one << np.uint64(c)
        for a in range(N):
            allowed[b, a, a] = False
            for c in range(a):
                item = items[b, c]
                # Hyyrö's recurrence: zeros of `row` mark where the common subsequence grows.
                row = ~np.uint64(0)
                for letter in range(length[item]):
                    match = row & where[a, text[item, letter]]
                    row = (row + match) | (row - match)
                common = 0
                for bit in range(length[items[b, a]]):
                    common += ((row >> np.uint64(bit)) & one) == 0
                n, m = length[item], length[items[b, a]]
                far = q * common <= (q - p) * max(n, m)
                near = q * (n + m - 2 * common) < p * (n + m - common)
                allowed[b, a, c] = allowed[b, c, a] = far
                if not far and not near:
                    if count == len(doubtful):
                        wider = np.empty((2 * count, 3), np.int64)
                        wider[:count] = doubtful
                        doubtful = wider
                    doubtful[count, 0], doubtful[count, 1], doubtful[count, 2] = b, a, c
                    count += 1
    return doubtful[:count]


@compiled
def _settle(titles, first, second, p, q, far):
    """Whether NED >= p/q, pair by pair: no edit path may have q * weight - p * length < 0.

    Titles side by side differ in length; cells behind the end of a title never reach its last one.
    """
    text, length = titles
    least, diagonal = np.empty((WIDTH + 1, AT_ONCE), np.int64), np.empty(AT_ONCE, np.int64)
    rows, columns = np.zeros((WIDTH, AT_ONCE), np.int64), np.zeros((WIDTH, AT_ONCE), np.int64)
    edit = q - p
    for start in range(0, len(first), AT_ONCE):
        pairs = min(AT_ONCE, len(first) - start)
        height, width = 0, 0
        for pair in range(pairs):
            a, b = first[start + pair], second[start + pair]
            for c in range(length[a]):
                rows[c, pair] = text[a, c]
            for c in range(length[b]):
                columns[c, pair] = text[b, c]
            height, width = max(height, length[a]), max(width, length[b])
        for j in range(width + 1):
            for pair in range(AT_ONCE):
                least[j, pair] = j * edit
        for i in range(height):
            row = rows[i]
            for pair in range(AT_ONCE):
                diagonal[pair] = least[0, pair]
                least[0, pair] += edit
            for j in range(width):
                column, left, here = columns[j], least[j], least[j + 1]
                for pair in range(AT_ONCE):
                    above = here[pair]
                    step = diagonal[pair] + (-p if row[pair] == column[pair] else edit)
                    skip = (above if above < left[pair] else left[pair]) + edit
                    diagonal[pair] = above
                    here[pair] = step if step < skip else skip
            for pair in range(pairs):
                if length[first[start + pair]] == i + 1:
                    far[start + pair] = least[length[second[start + pair]], pair] >= 0
