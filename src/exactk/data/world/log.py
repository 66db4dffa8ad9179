"""What production did in a world: which candidates it retrieved, which cards it showed, when, and who clicked.

Knows the truth only as far as production does, through a noisy score of each item; clicks follow the truth itself. The
logging policy draws valid cards item by item, and says the exact probability of each card as a set.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float64

from exactk.data.world.recipe import (
    CardItems,
    Geometry,
    Goods,
    Items,
    People,
    Shelves,
    Truth,
    Users,
    WorldConfig,
    item_logits,
)
from exactk.data.world.titles import Titles, allowed_pairs
from exactk.errors import ConfigError
from exactk.problem.compiling import compiled

RETRIEVAL_FOCUS = 1.0  # a category is drawn in proportion to exp(FOCUS <taste, centre>)
RETRIEVAL_ROUNDS = 3  # of this many random products of the category, the one nearest the taste is taken
SHOWN_LISTINGS = 4  # at most so many listings of one product, and at most an eighth of the candidates
PRODUCTION_NOISE = 0.5  # of the production score, in log-odds
SHARPNESS = 0.7  # of the logging policy: choice in proportion to exp(SHARPNESS * score)
ATTEMPTS = 30  # at candidates that hold a valid card, before a world counts as too narrow

DAYS = 3  # two for training, one for testing
FIRST_DAY = np.datetime64("2019-08-05T00:00:00", "us")
_MINUTES = np.arange(24 * 60 * DAYS + 1)
# Requests per minute over the day: a trough at eight in the morning, a peak at eight in the evening.
_RATE = 1 - 0.6 * np.cos((_MINUTES / 60 - 8) * np.pi / 12)
_ELAPSED = np.concatenate([[0.0], np.cumsum((_RATE[1:] + _RATE[:-1]) / 2)])
VALID_SHARE = 0.1  # of the two training days, the latest


class Shop(NamedTuple):
    """All that production works with."""

    people: People
    goods: Goods
    geometry: Geometry
    shelves: Shelves
    titles: Titles
    truth: Truth


class ShownCards(NamedTuple):
    """B requests and the cards shown: users, candidates and graph, cards as positions, their propensities as sets."""

    users: Users
    items: Items
    graph: Bool[np.ndarray, "B N N"]
    card: CardItems
    propensity: Float64[np.ndarray, "B"]

    def card_items(self) -> CardItems:
        """The cards as items."""
        return np.take_along_axis(self.items, self.card, axis=1)


def visitors(rng: np.random.Generator, people: People, num: int) -> Users:
    """Who comes: users in proportion to their activity."""
    ladder = np.cumsum(people.activity, dtype=np.float64)
    places = np.searchsorted(ladder, rng.random(num) * ladder[-1], side="right")
    return np.asarray(np.minimum(places, len(ladder) - 1), np.int64)


def record(rng: np.random.Generator, shop: Shop, config: WorldConfig, users: Users) -> ShownCards:
    """Retrieve, score with noise, show: one request for each of these users."""
    B = len(users)
    items, graph = np.empty((B, config.n), np.int64), np.empty((B, config.n, config.n), np.bool_)
    card, propensity = np.empty((B, config.k), np.int64), np.zeros(B)
    open_rows = np.arange(B)
    for _ in range(ATTEMPTS):
        asking = users[open_rows]
        items[open_rows] = found = retrieve(rng, shop, asking, config.n)
        graph[open_rows] = allowed = allowed_pairs(shop.titles, found, config.min_distance)
        noise = PRODUCTION_NOISE * rng.standard_normal(found.shape)
        scores = SHARPNESS * (item_logits(shop.truth, asking, found) + noise)
        card[open_rows], propensity[open_rows] = show(rng, scores, allowed, config.k)
        open_rows = open_rows[propensity[open_rows] == 0]  # no valid card among these candidates: ask again
        if not len(open_rows):
            return ShownCards(users, items, graph, card, propensity)
    raise ConfigError(
        f"min_distance={config.min_distance} leaves no valid card of k={config.k} among n={config.n} candidates "
        f"({ATTEMPTS} attempts); lower it, or raise n"
    )


def retrieve(rng: np.random.Generator, shop: Shop, users: Users, n: int) -> Items:
    """N distinct items for each user: categories by taste, then products near the taste, with their near-duplicates."""
    taste, shelves = shop.people.taste[users].astype(np.float64), shop.shelves
    stocked = np.diff(shelves.category_start) > 0
    affinity = np.exp(RETRIEVAL_FOCUS * taste @ shop.geometry.centre.T) * stocked
    ladder = np.cumsum(affinity / affinity.sum(axis=1, keepdims=True), axis=1)  # B C
    found = np.empty((len(users), n), np.int64)
    _retrieve(rng, taste, ladder, shop.goods.style, shelves, found)
    return found


def moments(first: int, last: int, total: int) -> np.ndarray:
    """When requests first..last-1 of `total` came: evenly along the traffic of three days, in rising order."""
    share = (np.arange(first, last) + 0.5) / total
    minute = np.interp(share * _ELAPSED[-1], _ELAPSED, _MINUTES)
    return np.asarray(FIRST_DAY + (minute * 60e6).astype("timedelta64[us]"))


def splits(first: int, last: int, total: int) -> np.ndarray:
    """train and valid: the first two days, valid the latest tenth of them; test: the third day."""
    share = (np.arange(first, last) + 0.5) / total * DAYS / (DAYS - 1)
    return np.where(share < 1 - VALID_SHARE, "train", np.where(share < 1, "valid", "test"))


@compiled
def _retrieve(rng, taste, ladder, style, shelves, found):
    category_start, families, family_start = shelves
    B, n = found.shape
    most_listings = max(1, min(SHOWN_LISTINGS, n // 8))
    num_items = len(style)
    for b in range(B):
        filled = 0
        misses = 0
        while filled < n:
            category = min(np.searchsorted(ladder[b], rng.random()), len(category_start) - 2)
            low, high = category_start[category], category_start[category + 1]
            best, best_score = -1, -np.inf
            for _ in range(RETRIEVAL_ROUNDS if high > low else 0):
                family = families[low + int(rng.random() * (high - low))]
                score = 0.0
                for d in range(taste.shape[1]):
                    score += taste[b, d] * style[family_start[family], d]
                if score > best_score:
                    best, best_score = family, score
            if best >= 0 and misses < 4 * n:
                first = family_start[best]
                listings = min(family_start[best + 1] - first, most_listings)
            else:  # a small shop whose best shelves are empty by now: fill up with anything
                first = int(rng.random() * num_items)
                listings = 1
            before = filled
            for item in range(first, first + listings):
                if filled < n and not np.any(found[b, :filled] == item):
                    found[b, filled] = item
                    filled += 1
            if filled == before:
                misses += 1
        for a in range(n - 1, 0, -1):  # so that neighbours in the catalogue are none among the candidates
            c = int(rng.random() * (a + 1))
            found[b, a], found[b, c] = found[b, c], found[b, a]


class Drawn(NamedTuple):
    """Cards as positions in the order they were drawn, and the probability of each as a set."""

    card: CardItems
    propensity: Float64[np.ndarray, "B"]


def show(
    rng: np.random.Generator, scores: Float64[np.ndarray, "B N"], graph: Bool[np.ndarray, "B N N"], k: int
) -> Drawn:
    """Draw a valid card for each request, item by item in proportion to exp(score).

    An item may be drawn when it is allowed beside all those drawn before it and a valid card can still be completed.
    The propensity of a card is summed over all orders in which it could have been drawn, so over all valid cards of a
    request it sums to one. A request without any valid card gets propensity 0.
    """
    B = len(scores)
    weight, card = np.exp(scores - scores.max(axis=1, keepdims=True)), np.empty((B, k), np.int64)
    _draw(rng.random((B, k)), weight, graph, card)
    return Drawn(card, set_propensity(scores, graph, card))


def set_propensity(
    scores: Float64[np.ndarray, "B N"], graph: Bool[np.ndarray, "B N N"], card: CardItems
) -> Float64[np.ndarray, "B"]:
    """The probability that the logging policy shows exactly these items, in whatever order; 0 for a card of -1."""
    weight = np.exp(scores - scores.max(axis=1, keepdims=True))
    propensity = np.empty(len(scores))
    _propensities(weight, graph, card, propensity)
    return propensity


@compiled
def _has_clique(graph, among, size):
    """Whether `size` positions of `among` are pairwise allowed: depth first, smallest position first."""
    if size <= 0:
        return True
    N = len(among)
    inside = np.empty((size + 1, N), np.bool_)
    inside[0] = among
    at = np.zeros(size + 1, np.int64)
    depth = 0
    while depth >= 0:
        if at[depth] >= N:
            depth -= 1
            continue
        p = at[depth]
        at[depth] += 1
        if not inside[depth, p]:
            continue
        if depth + 1 == size:
            return True
        for q in range(N):
            inside[depth + 1, q] = q > p and inside[depth, q] and graph[p, q]
        at[depth + 1] = p + 1
        depth += 1
    return False


@compiled
def _drawable(graph, allowed, crowding, need, drawable):
    """Which allowed positions may be drawn so that `need` of them (this one included) can be.

    Each position rules out at most `crowding` others, so from more than (need - 1)(crowding + 1) allowed positions
    any start can be completed; only a tighter request is searched.
    """
    N = len(allowed)
    count = 0
    for p in range(N):
        count += allowed[p]
    if count > (need - 1) * (crowding + 1):
        drawable[:] = allowed
        return
    for p in range(N):
        drawable[p] = allowed[p] and _has_clique(graph, allowed & graph[p], need - 1)


@compiled
def _crowding(graph):
    """The most positions that any one position rules out."""
    N = len(graph)
    most = 0
    for p in range(N):
        ruled_out = -1  # itself
        for q in range(N):
            ruled_out += not graph[p, q]
        most = max(most, ruled_out)
    return most


@compiled
def _set_propensity(weight, graph, crowding, card, allowed, drawable):
    """mass[S], S a set of card members as bits: the probability that the first |S| draws are exactly S."""
    k = len(card)
    mass = np.zeros(1 << k)
    mass[0] = 1.0
    for prefix in range((1 << k) - 1):
        if mass[prefix] == 0.0:
            continue
        drawn = 0
        allowed[:] = True
        for a in range(k):
            if prefix >> a & 1:
                drawn += 1
                allowed &= graph[card[a]]
        _drawable(graph, allowed, crowding, k - drawn, drawable)
        total = 0.0
        for p in range(len(weight)):
            if drawable[p]:
                total += weight[p]
        for a in range(k):
            if not prefix >> a & 1 and drawable[card[a]]:
                mass[prefix | 1 << a] += mass[prefix] * weight[card[a]] / total
    return mass[(1 << k) - 1]


@compiled
def _draw(uniform, weight, graph, card):
    """Cards as positions; -1 where there is no valid one."""
    B, N = weight.shape
    k = card.shape[1]
    allowed, drawable = np.empty(N, np.bool_), np.empty(N, np.bool_)
    for b in range(B):
        crowding = _crowding(graph[b])
        allowed[:] = True
        for step in range(k):
            _drawable(graph[b], allowed, crowding, k - step, drawable)
            total = 0.0
            for p in range(N):
                if drawable[p]:
                    total += weight[b, p]
            if total == 0.0:
                card[b] = -1
                break
            threshold = uniform[b, step] * total
            pick = -1
            reached = 0.0
            for p in range(N):
                if drawable[p]:
                    pick = p
                    reached += weight[b, p]
                    if reached > threshold:
                        break
            card[b, step] = pick
            allowed &= graph[b, pick]


@compiled
def _propensities(weight, graph, card, propensity):
    B, N = weight.shape
    allowed, drawable = np.empty(N, np.bool_), np.empty(N, np.bool_)
    for b in range(B):
        propensity[b] = 0.0
        if card[b, 0] >= 0:
            crowding = _crowding(graph[b])
            propensity[b] = _set_propensity(weight[b], graph[b], crowding, card[b], allowed, drawable)
