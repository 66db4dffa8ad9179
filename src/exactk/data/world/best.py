"""The best card of a request when themes pay: node and pair weights, plus a gain for themes shared by three items.

Knows numbers only. Without themes the clique engine (`problem/cliques.py`) solves the same problem; here its card is
where the search starts.
"""

from typing import no_type_check

import numpy as np
from jaxtyping import Float64, Int8, Int64

from exactk.data.world.config import THEMES
from exactk.data.world.truth import THEMED
from exactk.problem.exact import cliques
from exactk.problem.exact.bits import compiled
from exactk.problem.graph import Requests

NUM_THEMES = len(THEMES)


def best_themed(
    requests: Requests,
    node: Float64[np.ndarray, "B N"],
    pair: Float64[np.ndarray, "B N N"],
    theme: Int8[np.ndarray, "B N"],
    gain: float,
) -> Int64[np.ndarray, "B K"]:
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
