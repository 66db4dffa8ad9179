"""Beam search over one request, compiled; and choice by choice for briefs, where the exact engine says what is open.

Knows no network: scores come in, the next beams go out; the tie rule, and the cards, are `search.beam`'s. Masks of the
compiled one are rows of 0 (open) or -inf (closed).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from exactk.engine import log_softmax
from exactk.engine.arithmetic import ZERO
from exactk.engine.lanes import add, exponential, inner, larger, largest, load, spread, store, subtract, total
from exactk.problem.batch import Batch
from exactk.problem.exact import cliques
from exactk.problem.exact.exists import completable_each
from exactk.problem.graph import Requests

NOTHING = np.float32(-np.inf)


class CardsBegun(NamedTuple):
    """Cards begun in two halves that take turns, and room for a choice among them.

    `parent`, `place` and `so_far` say what was chosen: which row goes on, with which position, and its log-probability.
    """

    path: np.ndarray  # 2 W K
    chosen: np.ndarray  # 2 W N
    parent: np.ndarray  # W
    place: np.ndarray  # W
    so_far: np.ndarray  # W
    tops: np.ndarray  # W: the largest number of each row
    again: np.ndarray  # W * W, 2: other orders of sets taken
    again_worth: np.ndarray  # W * W


@inner
def row_largest(x, at, width):
    """The largest number of a row."""
    most = spread(NOTHING)
    for i in range(at, at + width, 16):
        most = larger(most, load(x, i))
    return largest(most)


@inner
def log_probabilities(x, at, width, barred, barred_at, so_far):
    """so_far + log softmax(x + barred) of one row, in place; returns its largest number, -inf if all are barred."""
    for i in range(0, width, 16):
        store(x, at + i, add(load(x, at + i), load(barred, barred_at + i)))
    top = row_largest(x, at, width)
    if top == NOTHING:
        return NOTHING
    sums = spread(ZERO)
    for i in range(at, at + width, 16):
        sums = add(sums, exponential(subtract(load(x, i), spread(top))))
    shift = top + np.float32(np.log(total(sums)))
    for i in range(at, at + width, 16):
        store(x, i, add(subtract(load(x, i), spread(shift)), spread(so_far)))
    return row_largest(x, at, width)


@inner
def same_set_at(path, chosen, row, t, parent, place):
    """The position at which `row` would reach the set of `parent` plus `place`, -1 if at none; t were chosen so far."""
    missing = -1
    for k in range(t + 1):
        position = place if k == t else path[parent, k]
        if not chosen[row, position]:
            if missing >= 0:
                return -1
            missing = position
    return missing


@inner
def choose(worth, worth_at, width, num, t, wanted, distinct, old, beams):
    """The likeliest expansions of the `old` half, distinct sets first, then other orders of sets taken; how many.

    With `distinct` the other orders are left out. `worth` [num, width] at worth_at and `tops` are used up. Ties go to
    the lower row, then the lower position.
    """
    path, chosen, tops = beams.path[old], beams.chosen[old], beams.tops
    parent, place, so_far = beams.parent, beams.place, beams.so_far
    again, again_worth = beams.again, beams.again_worth
    taken, num_again = 0, 0
    while taken < wanted:
        best, row = NOTHING, np.int64(-1)
        for w in range(num):
            if tops[w] > best:
                best, row = tops[w], w
        if row < 0:
            break
        at = worth_at + row * width
        position = 0
        while worth[at + position] != best:
            position += 1
        parent[taken], place[taken], so_far[taken] = row, position, best
        taken += 1
        if taken == wanted:
            break
        for w in range(num):
            other = position if w == row else same_set_at(path, chosen, w, t, row, position)
            if other < 0:
                continue
            at = worth_at + w * width
            held = worth[at + other]
            if held == NOTHING:
                continue
            worth[at + other] = NOTHING
            if held == tops[w]:
                tops[w] = row_largest(worth, at, width)
            if w != row:
                again[num_again, 0], again[num_again, 1] = w, other
                again_worth[num_again] = held
                num_again += 1
    while taken < wanted and num_again > 0 and not distinct:
        best, which = NOTHING, -1
        for k in range(num_again):
            held = again_worth[k]
            lower = (
                which >= 0 and again[k, 0] * width + again[k, 1] < again[which, 0] * width + again[which, 1]
            )
            if held > best or (held == best and held > NOTHING and lower):
                best, which = held, k
        if which < 0:
            break
        parent[taken], place[taken], so_far[taken] = again[which, 0], again[which, 1], best
        again_worth[which] = NOTHING
        taken += 1
    return taken


@inner
def extend(barred, old_at, new_at, N, b, rules, place, chosen):
    """The mask after choosing `place`; `chosen` [N] holds the card with it."""
    graph, group, cap = rules[0][b], rules[4][b], rules[5][b]
    for n in range(N):
        barred[new_at + n] = barred[old_at + n] if graph[place, n] else NOTHING
    barred[new_at + place] = NOTHING
    for c in range(len(cap)):
        mine = group[c, place]
        if mine < 0:
            continue
        count = 0
        for n in range(N):
            count += np.int64(chosen[n] and group[c, n] == mine)
        if count >= cap[c]:
            for n in range(N):
                if group[c, n] == mine:
                    barred[new_at + n] = NOTHING


@inner
def most_strangers(graph, present, N):
    """Over the present positions: the most present ones that any of them may not stand with."""
    worst = 0
    for i in range(N):
        if present[i]:
            strangers = 0
            for j in range(N):
                strangers += np.int64(present[j] & ~graph[i, j])
            if not graph[i, i]:
                strangers -= 1
            worst = max(worst, strangers)
    return worst


@inner
def look_ahead(b, t, strangers, barred, at, N, rules, chosen, asked, answer, allowed, allowed_at):
    """The mask of one row with dead ends closed: open, demanded by pins if any wait, completable.

    Where more are open than the choices to come can shut out, no choice is a dead end and nothing is asked.
    """
    graph, present, card_size, pinned, group, cap = rules
    num_open, waiting = 0, 0
    for n in range(N):
        num_open += np.int64(barred[at + n] == ZERO)
        waiting += np.int64(pinned[b, n] and not chosen[n])
    needed = np.int64(card_size[b]) - t - 1
    if waiting == 0 and (needed <= 0 or (cap.shape[1] == 0 and num_open > needed * (strangers + 1))):
        for n in range(N):
            allowed[allowed_at + n] = barred[at + n]
        return
    for n in range(N):
        asked[b, n] = chosen[n]
    completable_each(b, b + 1, graph, present, card_size, pinned, asked, group, cap, answer)
    for n in range(N):
        kept = answer[b, n] and (waiting == 0 or pinned[b, n])
        allowed[allowed_at + n] = barred[at + n] if kept else NOTHING


# Scores [W, N] of request b after each of W cards begun [W, t].
Scores = Callable[[int, Int[np.ndarray, "W t"]], Float[np.ndarray, "W N"]]


def likeliest_cards(
    batch: Batch, scores: Scores, width: int, kept: int
) -> tuple[Int[np.ndarray, "B W K"], Int[np.ndarray, "B"]]:
    """The `kept` likeliest cards by a beam, best first, -1 where there are fewer; and how many there are."""
    requests = batch.requests()
    cards = np.full((len(batch), kept, int(batch.card_size.max())), -1, np.int64)
    num_found = np.zeros(len(batch), np.int64)
    for b in range(len(batch)):
        size, total = int(batch.card_size[b]), np.zeros(1)
        begun = np.empty((1, 0), np.int64)
        for t in range(size):
            allowed = _allowed(requests.rows(np.full(len(begun), b)), begun)
            worth = np.where(allowed, scores(b, begun).astype(np.float64), -np.inf)
            live = allowed.any(1)
            worth[live] = log_softmax(worth[live])
            final = t + 1 == size
            taken = _best(total[:, None] + worth, begun, min(width, kept) if final else width, distinct=final)
            parent, position = taken // worth.shape[1], taken % worth.shape[1]
            total = (total[:, None] + worth).ravel()[taken]
            begun = np.concatenate([begun[parent], position[:, None]], 1)
        found = cliques.arranged(requests.rows(np.full(len(begun), b)), begun)
        cards[b, : len(found), :size], num_found[b] = found, len(found)
    return cards, num_found


def _allowed(requests: Requests, begun: Int[np.ndarray, "W t"]) -> Bool[np.ndarray, "W N"]:
    """What may follow: a valid card must be left, and pinned positions come first."""
    chosen = np.zeros(requests.present.shape, bool)
    np.put_along_axis(chosen, begun, values=True, axis=1)
    open_ = cliques.completable(requests, chosen)
    waiting = open_ & requests.pinned
    return np.where(waiting.any(1, keepdims=True), waiting, open_)


def _best(
    worth: Float[np.ndarray, "W N"], begun: Int[np.ndarray, "W t"], count: int, distinct: bool
) -> Int[np.ndarray, "C"]:
    """The best expansions, distinct sets before further orders of the same; with `distinct` without those."""
    order = np.argsort(-worth.ravel(), kind="stable")
    first: list[int] = []
    again: list[int] = []
    seen = set()
    for at in order[np.isfinite(worth.ravel()[order])].tolist():
        made = frozenset((*begun[at // worth.shape[1]].tolist(), at % worth.shape[1]))
        (again if made in seen else first).append(at)
        seen.add(made)
        if len(first) == count:
            break
    return np.array((first if distinct else first + again)[:count], np.int64)
