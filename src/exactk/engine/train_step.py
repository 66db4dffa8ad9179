"""A whole training step in one compiled call a thread: requests in pieces, the sum of their gradients, AdamW.

Knows neither modules nor batches. Threads share the pieces by counters; what a piece sums up does not depend on who
takes it.
"""

from __future__ import annotations

from typing import no_type_check

import numpy as np

from exactk.engine.adam import move_range
from exactk.engine.gradients import clear
from exactk.engine.lanes import add, inner, load, store
from exactk.engine.sharing import seen, shown, taken
from exactk.engine.train_inputs import onto_tables
from exactk.engine.train_kernel import turn
from exactk.engine.train_request import explore_one, learn_one
from exactk.problem.compiling import compiled

# Counters that threads share, each on a cache line of its own: pieces finished, requests for which nothing could be
# drawn, whether helpers are to leave, what is to be done, the number of the step; for each piece whether it is taken.
FINISHED, FAILED, LEAVE, STAGES, STEP, CLAIMS = 0, 8, 16, 24, 32, 40
EXPLORE, LEARN, GATHER, MOVE = 1, 2, 4, 8
PATIENCE = 300_000  # looks for a piece before a helper leaves: about a millisecond


@compiled
@no_type_check
def opened(counters, stages, step):
    """Let the pieces be taken: from here on whoever looks begins."""
    shown(counters, STAGES, stages)
    shown(counters, STEP, step)
    shown(counters, FINISHED, 0)
    shown(counters, FAILED, 0)
    for claim in range(CLAIMS, len(counters), 8):
        shown(counters, claim, 0)
    return 0


@inner
@no_type_check
def claimed(counters, home, num):
    """A piece nobody has taken, `num` if there is none.

    Every thread begins at its own: what it wrote in the last step is still in its cache, and in no other.
    """
    for i in range(num):
        piece = home + i if home + i < num else home + i - num
        claim = CLAIMS + 8 * piece
        if seen(counters, claim) == 0 and taken(counters, claim) == 0:
            return piece
    return num


@compiled
@no_type_check
def teach_each(counters, patience, home, each, plan, net, work, own):
    """Take pieces of `each` requests until there is none: explore, learn, or both; or share in what comes after.

    Gradients of weights are summed in the row of `sums` that belongs to their piece, whoever takes it. A tape with room
    for one request serves all. With `patience` this is a helper, who goes on looking for pieces for a while; without,
    the caller, who returns when all are finished: how many requests nothing could be drawn for.
    """
    (B, N), K = work.item.shape, work.cards.shape[2]
    num, looks, done = len(work.sums), 0, np.int64(0)
    paths, masks = np.empty((plan.paths, K), np.int64), np.empty((plan.paths, K, N), np.bool_)
    stride = net.tape.end if len(own.tape) >= B * net.tape.end else 0
    while True:
        piece = claimed(counters, home, num)
        if piece < num:
            looks, done = 0, seen(counters, STAGES)
            if done & (EXPLORE | LEARN):
                if own.version[0] != seen(counters, STEP):
                    turn(net.sizes, net.spots, net.matrices, net.weights, own.turned, own.vectors)
                    own.version[0] = seen(counters, STEP)
                failed = teach_piece(piece, each, done, stride, plan, net, work, own, paths, masks)
                for _ in range(failed):
                    taken(counters, FAILED)
            elif done & GATHER:
                gather_piece(piece, net, work)
            else:
                begin, end = part_of(piece, num, len(net.weights))
                move_range(net.weights, net.gradient, net.first, net.second, net.moving, begin, end)
            taken(counters, FINISHED)
        elif patience:
            looks += 1
            if looks > patience or seen(counters, LEAVE):
                break
        elif seen(counters, FINISHED) == num:
            if not seen(counters, STAGES) & LEARN or seen(counters, FAILED):
                break
            opened(counters, GATHER, seen(counters, STEP))
    return seen(counters, FAILED)


@inner
@no_type_check
def teach_piece(piece, each, stages, stride, plan, net, work, own, paths, masks):
    """One piece of the requests; how many nothing could be drawn for."""
    g, failed = work.sums[piece], 0
    if stages & LEARN:
        clear(g, 0, len(g))
    for b in range(piece * each, min((piece + 1) * each, len(work.user))):
        if stages & EXPLORE and not explore_one(b, b * stride, plan, net, work, own):
            failed += 1
        elif stages & LEARN:
            learn_one(b, b * stride, plan, net, work, own, paths, masks, g)
    for layer in range(net.sizes.decoder_layers):  # the two biases of a cell are one to the network
        D = net.sizes.width
        bias = net.spots.cells + layer * net.spots.cell_size + 8 * D * D
        for i in range(bias, bias + 4 * D):
            g[i + 4 * D] = g[i]
    return failed


@inner
@no_type_check
def part_of(piece, num, size):
    """Where a piece of `size` numbers begins and ends, in whole cache lines as far as there are."""
    each = (size + 16 * num - 1) // (16 * num) * 16
    return min(piece * each, size), min((piece + 1) * each, size)


@inner
@no_type_check
def gather_piece(piece, net, work):
    """A part of the gradient: the sums of all pieces, in order; of the first part, tables and figures as well."""
    into, sums, g, num = net.inputs, work.sums, net.gradient, len(work.sums)
    end = into.end if into.size else net.spots.end
    begin, end = part_of(piece, num, end)
    for i in range(begin, end, 16):
        value = load(sums[0], i)
        for other in range(1, num):
            value = add(value, load(sums[other], i))
        store(g, i, value)
    if piece:
        return
    if into.size:
        onto_tables(into, g, len(g), work.user, work.item, work.item_g, work.user_g)
    work.figures[:] = 0.0
    for b in range(len(work.told)):
        for i in range(3):
            work.figures[i] += work.told[b, i]
        for reward in work.rewards[b]:
            work.figures[3] += reward / work.rewards.size
