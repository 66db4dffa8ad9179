"""The truth of a world: how likely a card is clicked, which of its items then is, and the best card where themes pay.

Knows neither logs nor features. For user u and card A, with liking l and pair effect w,

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

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64, Int8

from exactk.data.world.recipe import THEMES, CardItems, Goods, Items, People, Users, complement_table
from exactk.problem.brief import joined, sums
from exactk.problem.compiling import compiled
from exactk.problem.exact import cliques
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
