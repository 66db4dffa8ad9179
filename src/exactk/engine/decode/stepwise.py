"""A policy's beam one choice at a time, for rules the compiled beam does not know: the exact engine says what is open.

Knows no network: whoever calls it gives the scores after a card begun. The same cards as `search.beam`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float, Int

from exactk.engine.network import log_softmax
from exactk.problem.batch import Batch
from exactk.problem.exact import cliques
from exactk.problem.graph import Requests

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
