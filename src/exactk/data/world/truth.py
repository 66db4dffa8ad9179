"""The truth of a world: how likely a card is clicked, and which of its items then is.

Knows neither logs nor features. For user u and card A, with liking l and pair effect w,

    logit P(click | A, u) = bias + sum_i l(u, i) + strength * coordination_u * sum_{i<j} w(i, j) + theme * T(A)

    l(u, i) = taste <taste_u, style_i> + quality quality_i - price (price_i - budget_u)^2
    w(i, j) = complement c(i, j)                                  in two categories, c of `COMPLEMENTS`
            = -same_category - near_duplicate exp(-|style_i - style_j|^2 / LIKENESS)    in one category
    T(A)    = how many themes are shared by at least three items of A

with the sizes of `Effects`. With theme = 0 the best card is a K-clique of the most node and pair weight. Given a
click, item i of A is the clicked one with probability softmax(CHOICE * appeal_i), where appeal_i is l(u, i) plus half
of the effect of each of its pairs.
"""

from typing import NamedTuple, no_type_check

import numpy as np
from jaxtyping import Float64, Int64

from exactk.data.world.config import THEMES, complement_table
from exactk.data.world.latents import Goods, People
from exactk.problem.exact.bits import compiled

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


DEFAULT_EFFECTS = Effects()


class Truth(NamedTuple):
    """Everything the click model reads, in the order the compiled code takes it."""

    taste: np.ndarray
    budget: np.ndarray
    coordination: np.ndarray
    category: np.ndarray
    theme: np.ndarray
    style: np.ndarray
    price: np.ndarray
    quality: np.ndarray
    complement: np.ndarray
    effects: Effects
    strength: float
    theme_gain: float


def truth_of(
    people: People, items: Goods, strength: float, theme: float, effects: Effects = DEFAULT_EFFECTS
) -> Truth:
    """Lay the latent values of users and items out for the click model; no copies."""
    return Truth(
        people.taste,
        people.budget,
        people.coordination,
        items.category,
        items.theme,
        items.style,
        items.price,
        items.quality,
        complement_table(),
        effects,
        float(strength),
        float(theme),
    )


def item_logits(
    truth: Truth, users: Int64[np.ndarray, "B"], items: Int64[np.ndarray, "B N"]
) -> Float64[np.ndarray, "B N"]:
    """What each item adds to the log-odds by itself."""
    node = np.empty(items.shape)
    _like(truth, users, items, node)
    return node


def node_pair(
    truth: Truth, users: Int64[np.ndarray, "B"], items: Int64[np.ndarray, "B N"]
) -> tuple[Float64[np.ndarray, "B N"], Float64[np.ndarray, "B N N"]]:
    """Likings and pair effects (strength and coordination included) of B requests; pairs symmetric, diagonal 0."""
    pair = np.empty((*items.shape, items.shape[1]))
    _pair(truth, users, items, pair)
    return item_logits(truth, users, items), pair


def theme_gain(truth: Truth, items: Int64[np.ndarray, "B K"]) -> Float64[np.ndarray, "B"]:
    """What each card gains by its themes, in log-odds."""
    themes = truth.theme[items]  # B K
    shared = sum((themes == t).sum(axis=1) >= THEMED for t in range(len(THEMES)))
    return truth.theme_gain * np.asarray(shared, np.float64)


def card_logits(
    truth: Truth, users: Int64[np.ndarray, "B"], items: Int64[np.ndarray, "B K"]
) -> Float64[np.ndarray, "B"]:
    """Log-odds of a click on each card, but for the bias."""
    node, pair = node_pair(truth, users, items)
    return np.asarray(node.sum(axis=1) + pair.sum(axis=(1, 2)) / 2 + theme_gain(truth, items))


def choice_probabilities(
    truth: Truth, users: Int64[np.ndarray, "B"], items: Int64[np.ndarray, "B K"]
) -> Float64[np.ndarray, "B K"]:
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
    effects = truth.effects
    for b in range(B):
        u = users[b]
        for a in range(N):
            i = items[b, a]
            agreement = 0.0
            for d in range(truth.taste.shape[1]):
                agreement += np.float64(truth.taste[u, d]) * truth.style[i, d]
            distance = np.float64(truth.price[i]) - truth.budget[u]
            node[b, a] = effects.taste * agreement + effects.quality * truth.quality[i]
            node[b, a] -= effects.price * distance * distance


@compiled
@no_type_check
def _pair(truth, users, items, pair):
    B, N = items.shape
    effects = truth.effects
    for b in range(B):
        scale = truth.strength * truth.coordination[users[b]]
        for a in range(N):
            i = items[b, a]
            pair[b, a, a] = 0.0
            for c in range(a):
                j = items[b, c]
                effect = effects.complement * truth.complement[truth.category[i], truth.category[j]]
                if truth.category[i] == truth.category[j]:
                    apart = 0.0
                    for d in range(truth.style.shape[1]):
                        apart += (np.float64(truth.style[i, d]) - truth.style[j, d]) ** 2
                    effect = -effects.same_category - effects.near_duplicate * np.exp(-apart / LIKENESS)
                pair[b, a, c] = pair[b, c, a] = scale * effect
