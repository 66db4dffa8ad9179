"""What a world is asked to be, who lives in it, and the truth: how likely a card is clicked, which item, the best card.

Users have tastes; items come in families, with category, brand, style, price, quality and theme. Knows nothing of what
a log shows of all this (`writing.py`). For user u and card A, with liking l and pair effect w,

    logit P(click | A, u) = bias + sum_i l(u, i) + strength * coordination_u * sum_{i<j} w(i, j) + theme * T(A)

    l(u, i) = taste <taste_u, style_i> + quality quality_i - price (price_i - budget_u)^2
    w(i, j) = complement c(i, j)                                  in two categories, c of `COMPLEMENTS`
            = -same_category - near_duplicate exp(-|style_i - style_j|^2 / LIKENESS)    in one category
    T(A)    = how many themes are shared by at least three items of A

with the sizes of `Effects`. With theme = 0 the best card is a K-clique of the most node and pair weight; with themes
the exact engine takes each as a preference. Given a click, item i of A is the clicked
one with probability softmax(CHOICE * appeal_i), where appeal_i is l(u, i) plus half of the effect of each of its pairs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
from jaxtyping import Float32, Float64, Int8, Int32, Int64

from exactk.errors import ConfigError
from exactk.problem.brief import joined, sums
from exactk.problem.compiling import compiled
from exactk.problem.exact import cliques
from exactk.problem.graph import Requests
from exactk.settings.sections import Section, setting

Users = Int64[np.ndarray, "B"]
Items = Int64[np.ndarray, "B N"]
CardItems = Int64[np.ndarray, "B K"]

VERSION = 1  # of the recipe: another recipe makes another world from the same seed, and must say so

CATEGORIES = (
    "hat", "scarf", "gloves", "coat", "dress", "handbag", "heels", "jeans", "sneakers", "backpack",
    "tent", "thermos", "teapot", "teacup", "blanket", "lamp",
)  # fmt: skip
THEMES = ("winter", "wedding", "campus", "camping", "teatime", "cosy")

# How much two categories help each other on one card, in units of `Effects.complement`; clashes are negative.
COMPLEMENTS: Mapping[tuple[str, str], float] = {
    ("hat", "scarf"): 1.0, ("hat", "gloves"): 0.7, ("hat", "coat"): 0.6, ("scarf", "gloves"): 1.0,
    ("scarf", "coat"): 0.8, ("gloves", "coat"): 0.7, ("scarf", "handbag"): 0.6, ("hat", "dress"): 0.5,
    ("dress", "handbag"): 1.0, ("dress", "heels"): 1.0, ("handbag", "heels"): 0.8, ("coat", "handbag"): 0.5,
    ("coat", "jeans"): 0.6, ("jeans", "sneakers"): 1.0, ("jeans", "backpack"): 0.6, ("hat", "sneakers"): 0.5,
    ("sneakers", "backpack"): 0.8, ("backpack", "tent"): 0.9, ("backpack", "thermos"): 0.8,
    ("tent", "thermos"): 0.7, ("tent", "lamp"): 0.7, ("gloves", "thermos"): 0.6, ("tent", "blanket"): 0.5,
    ("teapot", "teacup"): 1.0, ("teacup", "blanket"): 0.8, ("teapot", "lamp"): 0.6, ("teapot", "blanket"): 0.6,
    ("blanket", "lamp"): 0.9, ("teacup", "lamp"): 0.6, ("thermos", "teacup"): 0.5,
    ("scarf", "sneakers"): -0.5, ("dress", "sneakers"): -0.6, ("heels", "backpack"): -0.6,
    ("heels", "tent"): -0.6, ("handbag", "tent"): -0.5, ("coat", "teapot"): -0.4, ("jeans", "teapot"): -0.4,
    ("dress", "thermos"): -0.4, ("gloves", "lamp"): -0.4, ("hat", "teacup"): -0.4,
}  # fmt: skip


MOST = 100_000_000  # people or goods, which are all in memory at once


@dataclass(frozen=True)
class WorldConfig(Section):
    """Size and knobs of a world; everything in it follows from these and nothing else."""

    section = "world"

    users: int = setting(2_000, "how many users", least=1, most=MOST)
    items: int = setting(5_000, "how many items; at least twice n", least=1, most=MOST)
    impressions: int = setting(30_000, "logged cards", least=1)
    k: int = setting(
        4, "items on a card; exact propensities are summed over all 2^k prefixes", least=1, most=12
    )
    n: int = setting(50, "candidates of a request", least=1)
    strength: float = setting(
        1.0, "strength of the effect of pairs; 0: the best single items are the best card", least=0, most=100
    )
    theme: float = setting(0.0, "what three items of one theme gain a card, in log-odds", least=0, most=100)
    click_rate: float = setting(0.13, "mean click probability of the logged cards", above=0, below=1)
    min_distance: float = setting(
        0.5, "least distance of two titles on one card, as normalised edit distance", least=0, most=1
    )
    seed: int = setting(7, "seed of everything", least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.k > self.n:
            raise ConfigError(f"setting world.k must be at most world.n, got {self.k} and {self.n}")
        if self.items < 2 * self.n:
            raise ConfigError(
                f"setting world.items must be at least twice world.n, got {self.items} and {self.n}"
            )

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)


def stream(seed: int, name: str, index: int = 0) -> np.random.Generator:
    """The generator of one named part of a world: parts never share draws, so none depends on who ran first."""
    return np.random.default_rng([seed, crc32(name.encode()), index])


def complement_table() -> np.ndarray:
    """[C, C] symmetric: `COMPLEMENTS` by category number, zero elsewhere."""
    table = np.zeros((len(CATEGORIES), len(CATEGORIES)))
    for (first, second), weight in COMPLEMENTS.items():
        i, j = CATEGORIES.index(first), CATEGORIES.index(second)
        table[i, j] = table[j, i] = weight
    return table


TASTE_SIZE = 8
NUM_BRANDS = 120
CHUNK = 1 << 16  # items and users are drawn in chunks of this size, each from a generator of its own
FAMILY_SIZES = (0.30, 0.22, 0.18, 0.14, 0.10, 0.06)  # a product is listed 1 to 6 times, 2.7 times on average
UNTHEMED = 0.25

# A theme is at home in these categories (weight 6 against 1 elsewhere).
_AT_HOME = {
    "winter": ("hat", "scarf", "gloves", "coat", "thermos", "blanket"),
    "wedding": ("dress", "handbag", "heels", "hat", "lamp", "teapot"),
    "campus": ("jeans", "sneakers", "backpack", "coat", "lamp", "thermos"),
    "camping": ("backpack", "tent", "thermos", "gloves", "sneakers", "lamp"),
    "teatime": ("teapot", "teacup", "dress", "scarf", "blanket", "handbag"),
    "cosy": ("blanket", "lamp", "scarf", "teacup", "coat", "teapot"),
}


class People(NamedTuple):
    """Per user: taste (of length sqrt(D)), the price level they shop at, how much they care for what goes together."""

    taste: Float32[np.ndarray, "U D"]
    budget: Float32[np.ndarray, "U"]
    coordination: Float32[np.ndarray, "U"]
    activity: Float32[np.ndarray, "U"]


class Goods(NamedTuple):
    """Per item: its latent truth. Listings of one product (a family) are neighbours: `family` never falls.

    `words` are raw draws, one for the product and two for the seller, of which `titles.py` makes titles.
    """

    category: Int8[np.ndarray, "I"]
    theme: Int8[np.ndarray, "I"]
    brand: Int32[np.ndarray, "I"]
    family: Int32[np.ndarray, "I"]
    style: Float32[np.ndarray, "I D"]
    price: Float32[np.ndarray, "I"]
    quality: Float32[np.ndarray, "I"]
    words: Int32[np.ndarray, "I W"]


class Geometry(NamedTuple):
    """What all chunks share: where each category sits among the tastes, and how dear each brand is."""

    centre: Float64[np.ndarray, "C D"]
    brand_tier: Float64[np.ndarray, "R"]


class Shelves(NamedTuple):
    """Where retrieval looks: the families of each category, and the items of each family."""

    category_start: Int64[np.ndarray, "C1"]
    families: Int64[np.ndarray, "G"]
    family_start: Int64[np.ndarray, "G1"]


def geometry(seed: int) -> Geometry:
    """Category centres (unit vectors, as chance throws them) and brand tiers (standard normal)."""
    rng = stream(seed, "geometry")
    centre = rng.standard_normal((len(CATEGORIES), TASTE_SIZE))
    centre /= np.linalg.norm(centre, axis=1, keepdims=True)
    return Geometry(centre, rng.standard_normal(NUM_BRANDS))


def chunks(total: int, size: int = CHUNK) -> Iterator[tuple[int, int, int]]:
    """(number, start, stop) of each chunk."""
    for number, start in enumerate(range(0, total, size)):
        yield number, start, min(start + size, total)


def people(config: WorldConfig) -> People:
    """All users."""
    return People(*_joined([_people_chunk(config.seed, *chunk) for chunk in chunks(config.users)]))


def _people_chunk(seed: int, number: int, start: int, stop: int) -> tuple[np.ndarray, ...]:
    rng = stream(seed, "people", number)
    num = stop - start
    taste = rng.standard_normal((num, TASTE_SIZE), np.float32)
    taste *= np.sqrt(TASTE_SIZE) / np.linalg.norm(taste, axis=1, keepdims=True)
    budget = np.float32(0.7) * rng.standard_normal(num, np.float32)
    coordination = np.clip(1 + 0.2 * rng.standard_normal(num, np.float32), 0.5, 1.5)
    activity = np.exp(0.7 * rng.standard_normal(num, np.float32))
    return taste, budget, coordination.astype(np.float32), activity


def goods(config: WorldConfig) -> Goods:
    """All items."""
    shared = geometry(config.seed)
    parts = [_goods_chunk(config.seed, shared, *chunk) for chunk in chunks(config.items)]
    num_families = np.cumsum([0] + [int(part[3][-1]) + 1 for part in parts[:-1]])
    shifted = [
        (*part[:3], part[3] + np.int32(before), *part[4:])
        for part, before in zip(parts, num_families, strict=True)
    ]
    return Goods(*_joined(shifted))


def _goods_chunk(seed: int, shared: Geometry, number: int, start: int, stop: int) -> tuple[np.ndarray, ...]:
    rng = stream(seed, "items", number)
    num = stop - start
    sizes = rng.choice(np.arange(1, 7), size=num, p=FAMILY_SIZES)
    family = np.repeat(np.arange(num, dtype=np.int32), sizes)[:num]
    num_families = int(family[-1]) + 1

    category = rng.integers(len(CATEGORIES), size=num_families, dtype=np.int8)
    # The chance of each theme (last column: none) in each category.
    weight = np.array([[6.0 if c in _AT_HOME[t] else 1.0 for t in THEMES] for c in CATEGORIES])
    weight *= (1 - UNTHEMED) / weight.sum(axis=1, keepdims=True)
    ladder = np.cumsum(np.column_stack([weight, np.full(len(weight), UNTHEMED)]), axis=1)[category]
    drawn = (rng.random(num_families)[:, None] > ladder).sum(axis=1)
    theme = np.where(drawn >= len(THEMES), -1, drawn).astype(np.int8)
    brand = rng.integers(NUM_BRANDS, size=num_families, dtype=np.int32)
    tier = shared.brand_tier[brand]
    price = 0.6 * tier + 0.8 * rng.standard_normal(num_families)
    quality = 0.5 * tier + 0.7 * rng.standard_normal(num_families)
    own_style = rng.standard_normal((num_families, TASTE_SIZE)) / np.sqrt(TASTE_SIZE)
    style = np.sqrt(0.5) * (shared.centre[category] + own_style)
    product_words = rng.integers(1 << 30, size=(num_families, 1), dtype=np.int32)

    # A listing is its product, seen by one seller: almost the same style and price, a service of its own.
    listed_style = style[family] + 0.03 * rng.standard_normal((num, TASTE_SIZE))
    listed_price = price[family] + 0.1 * rng.standard_normal(num)
    listed_quality = quality[family] + 0.5 * rng.standard_normal(num)
    seller_words = rng.integers(1 << 30, size=(num, 2), dtype=np.int32)
    return (
        category[family],
        theme[family],
        brand[family],
        family,
        listed_style.astype(np.float32),
        listed_price.astype(np.float32),
        listed_quality.astype(np.float32),
        np.concatenate([product_words[family], seller_words], axis=1),
    )


def shelves(items: Goods) -> Shelves:
    """Sort the families by category once, for retrieval."""
    first = np.flatnonzero(np.diff(items.family, prepend=-1))
    category = items.category[first]
    families = np.argsort(category, kind="stable")
    counts = np.bincount(category, minlength=len(CATEGORIES))
    return Shelves(
        category_start=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        families=families.astype(np.int64),
        family_start=np.append(first, len(items.family)).astype(np.int64),
    )


def _joined(parts: list[tuple[np.ndarray, ...]]) -> list[np.ndarray]:
    return [np.concatenate(column) for column in zip(*parts, strict=True)]


CHOICE = 2.0
LIKENESS = 0.25  # squared distance of styles at which the effect of near-duplicates has fallen to 1/e
THEMED = 3  # items that must share a theme before it pays


class Effects(NamedTuple):
    """The sizes of all effects, in log-odds."""

    taste: float = 0.8
    quality: float = 0.5
    price: float = 0.1
    complement: float = 0.45
    same_category: float = 0.3
    near_duplicate: float = 0.4


class Truth(NamedTuple):
    """Everything the click model reads, as the compiled code takes it."""

    people: People
    goods: Goods
    strength: float
    theme_gain: float
    complement: np.ndarray = complement_table()
    effects: Effects = Effects()


def item_logits(truth: Truth, users: Users, items: Items) -> Float64[np.ndarray, "B N"]:
    """What each item adds to the log-odds by itself."""
    node = np.empty(items.shape)
    _like(truth, users, items, node)
    return node


def node_pair(
    truth: Truth, users: Users, items: Items
) -> tuple[Float64[np.ndarray, "B N"], Float64[np.ndarray, "B N N"]]:
    """Likings and pair effects (strength and coordination included) of B requests; pairs symmetric, diagonal 0."""
    pair = np.empty((*items.shape, items.shape[1]))
    _pair(truth, users, items, pair)
    return item_logits(truth, users, items), pair


def theme_gain(truth: Truth, items: CardItems) -> Float64[np.ndarray, "B"]:
    """What each card gains by its themes, in log-odds."""
    themes = truth.goods.theme[items]  # B K
    shared = sum((themes == t).sum(axis=1) >= THEMED for t in range(len(THEMES)))
    return truth.theme_gain * np.asarray(shared, np.float64)


def card_logits(truth: Truth, users: Users, items: CardItems) -> Float64[np.ndarray, "B"]:
    """Log-odds of a click on each card, but for the bias."""
    node, pair = node_pair(truth, users, items)
    return np.asarray(node.sum(axis=1) + pair.sum(axis=(1, 2)) / 2 + theme_gain(truth, items))


def choice_probabilities(truth: Truth, users: Users, items: CardItems) -> Float64[np.ndarray, "B K"]:
    """Given that the card is clicked, which item is."""
    node, pair = node_pair(truth, users, items)
    appeal = CHOICE * (node + pair.sum(axis=2) / 2)
    weight = np.exp(appeal - appeal.max(axis=1, keepdims=True))
    return np.asarray(weight / weight.sum(axis=1, keepdims=True))


def sigmoid(logits: Float64[np.ndarray, "*S"]) -> Float64[np.ndarray, "*S"]:
    """The logistic function, safe for any size."""
    return np.asarray(0.5 * (1 + np.tanh(logits / 2)))


@compiled
def _like(truth, users, items, node):
    B, N = items.shape
    people, goods, effects = truth.people, truth.goods, truth.effects
    for b in range(B):
        u = users[b]
        for a in range(N):
            i = items[b, a]
            agreement = 0.0
            for d in range(people.taste.shape[1]):
                agreement += np.float64(people.taste[u, d]) * goods.style[i, d]
            distance = np.float64(goods.price[i]) - people.budget[u]
            node[b, a] = effects.taste * agreement + effects.quality * goods.quality[i]
            node[b, a] -= effects.price * distance * distance


@compiled
def _pair(truth, users, items, pair):
    B, N = items.shape
    people, goods, effects = truth.people, truth.goods, truth.effects
    for b in range(B):
        scale = truth.strength * people.coordination[users[b]]
        for a in range(N):
            i = items[b, a]
            pair[b, a, a] = 0.0
            for c in range(a):
                j = items[b, c]
                effect = effects.complement * truth.complement[goods.category[i], goods.category[j]]
                if goods.category[i] == goods.category[j]:
                    apart = 0.0
                    for d in range(goods.style.shape[1]):
                        apart += (np.float64(goods.style[i, d]) - goods.style[j, d]) ** 2
                    effect = -effects.same_category - effects.near_duplicate * np.exp(-apart / LIKENESS)
                pair[b, a, c] = pair[b, c, a] = scale * effect


def best_themed(
    requests: Requests,
    node: Float64[np.ndarray, "B N"],
    pair: Float64[np.ndarray, "B N N"],
    theme: Int8[np.ndarray, "B N"],
    gain: float,
) -> CardItems:
    """The valid cards of the most weight, proven; rows of -1 where no valid card exists.

    To the engine every theme is a preference for three of its items, which costs the gain where it is broken.
    """
    B, T = len(theme), len(THEMES)
    wished = sums(theme[:, None, :] == np.arange(T)[:, None], lower=THEMED)._replace(
        row_of=np.tile(np.arange(T, dtype=np.int32), (B, 1)),
        worth=np.full((B, T), float(gain)),
        once=np.ones((B, T), bool),
    )
    held = [] if requests.brief is None else [requests.brief]
    return cliques.best(replace(requests, brief=joined([*held, wished])), node, pair).card
