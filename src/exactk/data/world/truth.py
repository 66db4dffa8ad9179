"""The truth of a world: how likely a card is clicked, which of its items then is, and the best card where themes pay.

Knows neither logs nor features. For user u and card A, with liking l and pair effect w,

    logit P(click | A, u) = bias + sum_i l(u, i) + strength * coordination_u * sum_{i<j} w(i, j) + theme * T(A)

    l(u, i) = taste <taste_u, style_i> + quality quality_i - price (price_i - budget_u)^2
    w(i, j) = complement c(i, j)                                  in two categories, c of `COMPLEMENTS`
            = -same_category - near_duplicate exp(-|style_i - style_j|^2 / LIKENESS)    in one category
    T(A)    = how many themes are shared by at least three items of A

with the sizes of `Effects`. With theme = 0 the best card is a K-clique of the most node and pair weight, which the
exact engine finds; with themes its card is where a search of our own starts. Given a click, item i of A is the clicked
one with probability softmax(CHOICE * appeal_i), where appeal_i is l(u, i) plus half of the effect of each of its pairs.
"""

from __future__ import annotations

from typing import NamedTuple, no_type_check

import numpy as np
from jaxtyping import Float64, Int8

from exactk.data.world.recipe import THEMES, CardItems, Goods, Items, People, Users, complement_table
from exactk.problem.exact import cliques
from exactk.problem.exact.bits import compiled
from exactk.problem.graph import Requests

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
@no_type_check
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
@no_type_check
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


NUM_THEMES = len(THEMES)


def best_themed(
    requests: Requests,
    node: Float64[np.ndarray, "B N"],
    pair: Float64[np.ndarray, "B N N"],
    theme: Int8[np.ndarray, "B N"],
    gain: float,
) -> CardItems:
    """The valid cards of the most weight, proven by branch and bound; rows of -1 where no valid card exists.

    Rules that cap groups or pin items are not for this search: it reads graph, present and card size alone.
    """
    start = cliques.best(requests, node, pair)
    card = np.ascontiguousarray(start.card)
    allowed = requests.graph & requests.present[:, :, None] & requests.present[:, None, :]
    sizes = np.where(start.found, requests.card_size, 0).astype(np.int64)
    _search(allowed, requests.present, sizes, node, pair, theme, float(gain), card)
    return card


@compiled
@no_type_check
def _theme_gain(theme, chosen, size, gain):
    count = np.zeros(NUM_THEMES, np.int64)
    total = 0.0
    for a in range(size):
        t = theme[chosen[a]]
        if t >= 0:
            count[t] += 1
            if count[t] == THEMED:
                total += gain
    return total


@compiled
@no_type_check
def _most_themes(theme, chosen, size, left):
    """At most how many more themes `left` further items can bring to three: the nearest to three first."""
    missing = np.full(NUM_THEMES, THEMED)
    for a in range(size):
        t = theme[chosen[a]]
        if t >= 0:
            missing[t] -= 1
    reached = 0
    for need in range(1, THEMED + 1):
        for t in range(NUM_THEMES):
            if missing[t] == need and left >= need:
                left -= need
                reached += 1
    return reached


@compiled
@no_type_check
def _card_weight(node, pair, theme, gain, chosen, size):
    total = _theme_gain(theme, chosen, size, gain)
    for a in range(size):
        total += node[chosen[a]]
        for c in range(a):
            total += pair[chosen[a], chosen[c]]
    return total


@compiled
@no_type_check
def _bound(worth, highest, inside, first, left):
    """The most that `left` positions from `first` on can add: each its worth and half of its best pair with the rest.

    A pair of two further items is at most the mean of the two items' highest pair effects, so each brings at most
    (left - 1) / 2 of its own highest.
    """
    top = np.full(left, -np.inf)
    for p in range(first, len(worth)):
        if inside[p]:
            most = worth[p] + (left - 1) / 2 * highest[p]
            a = left - 1
            if most > top[a]:
                while a > 0 and top[a - 1] < most:
                    top[a] = top[a - 1]
                    a -= 1
                top[a] = most
    return top.sum()


@compiled
@no_type_check
def _search(graph, present, sizes, nodes, pairs, themes, gain, cards):
    B, N = nodes.shape
    widest = cards.shape[1]
    inside = np.empty((widest + 1, N), np.bool_)
    worth = np.empty((widest + 1, N))
    weight = np.empty(widest + 1)
    at = np.empty(widest + 1, np.int64)
    chosen = np.empty(widest, np.int64)
    highest = np.empty(N)
    for b in range(B):
        K = sizes[b]
        if K == 0:
            continue
        node, pair, theme = nodes[b], pairs[b], themes[b]
        best = _card_weight(node, pair, theme, gain, cards[b], K)
        for p in range(N):
            highest[p] = -np.inf
            for q in range(N):
                if graph[b, p, q]:
                    highest[p] = max(highest[p], pair[p, q])
            if highest[p] == -np.inf:  # rules everything else out; never beside another item
                highest[p] = 0.0
        inside[0] = present[b]
        worth[0] = node
        weight[0], at[0], depth = 0.0, 0, 0
        while depth >= 0:
            p = at[depth]
            if p >= N:
                depth -= 1
                continue
            left = K - depth
            if left > 1 and inside[depth, p]:
                hope = _most_themes(theme, chosen, depth, left) * gain
                more = _bound(worth[depth], highest, inside[depth], p, left)
                if weight[depth] + more + hope <= best + 1e-12:
                    depth -= 1  # nothing from p on can do better, with or without p
                    continue
            at[depth] += 1
            if not inside[depth, p]:
                continue
            chosen[depth] = p
            value = weight[depth] + worth[depth, p]
            if left == 1:
                value += _theme_gain(theme, chosen, K, gain) - _theme_gain(theme, chosen, depth, gain)
                if value > best + 1e-12:
                    best = value
                    cards[b, :K] = np.sort(chosen[:K])
                continue
            value += _theme_gain(theme, chosen, depth + 1, gain) - _theme_gain(theme, chosen, depth, gain)
            for q in range(N):
                inside[depth + 1, q] = q > p and inside[depth, q] and graph[b, p, q]
                worth[depth + 1, q] = worth[depth, q] + pair[p, q]
            weight[depth + 1] = value
            at[depth + 1] = p + 1
            depth += 1
