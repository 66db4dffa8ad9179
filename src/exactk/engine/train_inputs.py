"""The input layer for training, compiled: x_i from the ids of one request, and back to the rows of the tables (eq. 4).

Knows ids alone; features stay torch's. Weights and tables lie in one array, places in it are `InputSpots`.
"""

from __future__ import annotations

from typing import NamedTuple, no_type_check

from exactk.engine.arithmetic import product, rectify
from exactk.engine.gradients import clear, masked_by, outer_onto, rows_onto
from exactk.engine.lanes import add, inner, load, store


class InputSpots(NamedTuple):
    """Where the input layer's weights begin, and the tables of users and items behind them."""

    size: int  # of an embedding; 0: inputs are handed in
    item: int
    bias: int
    user: int
    end: int  # of what is summed over requests
    users: int
    items: int


@inner
@no_type_check
def gather(into, w, x, at, user, item, N):
    """The embeddings of the candidates, then the user's, at x[at...]; where the latter is."""
    E = into.size
    for n in range(N):
        for e in range(E):
            x[at + n * E + e] = w[into.items + item[n] * E + e]
    own = at + (N + 3) // 4 * 4 * E
    for e in range(E):
        x[own + e] = w[into.users + user * E + e]
    return own


@inner
@no_type_check
def embed_kept(into, w, turned, x, at, user, item, N, D, tape, to):
    """x_i of every candidate into tape[to...]. Scratch from x[at] on: embeddings, the user's, a few rows of D."""
    E = into.size
    own = gather(into, w, x, at, user, item, N)
    row = own + 4 * E
    product(x, own, E, 1, E, turned, into.user, D, D, w, into.bias, x, row, D)
    product(x, at, E, N, E, turned, into.item, D, D, x, row, tape, to, D)
    rectify(tape, to, N * D)


@inner
@no_type_check
def embed_back(into, w, x, at, user, item, N, D, y, y_at, tape, kept, g, item_g, user_g):
    """Gradients y [N, D] at x_i, which is at tape[kept...], to those of the weights (onto g) and of the embeddings.

    Scratch x begins with zeros; from x[at] on as in `embed_kept`, with as much again for what comes out.
    """
    E = into.size
    own = gather(into, w, x, at, user, item, N)
    row = own + 4 * E
    out = row + 4 * D
    masked_by(y, y_at, tape, kept, N * D)
    outer_onto(y, y_at, D, D, x, at, E, E, N, g, into.item, E)
    clear(x, row, D)
    rows_onto(y, y_at, D, N, D, x, row)
    for d in range(0, D, 16):
        store(g, into.bias + d, add(load(g, into.bias + d), load(x, row + d)))
    outer_onto(x, row, D, D, x, own, E, E, 1, g, into.user, E)
    product(y, y_at, D, N, D, w, into.item, E, E, x, 0, x, out, E)
    for n in range(N):
        for e in range(E):
            item_g[n, e] = x[out + n * E + e]
    product(x, row, D, 1, D, w, into.user, E, E, x, 0, x, out, E)
    for e in range(E):
        user_g[e] = x[out + e]


@inner
@no_type_check
def onto_tables(into, g, end, user, item, item_g, user_g):
    """Gradients of embeddings onto those of the tables' rows, request after request; all others are zero."""
    E = into.size
    clear(g, into.users, end - into.users)
    for b in range(len(user)):
        for e in range(E):
            g[into.users + user[b] * E + e] += user_g[b, e]
        for n in range(item.shape[1]):
            for e in range(E):
                g[into.items + item[b, n] * E + e] += item_g[b, n, e]
