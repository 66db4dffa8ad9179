"""One request of a training step, compiled: ids to cards and rewards, then losses and the gradients of all weights.

Knows neither modules nor threads; `desk.py` lays everything out. A request's numbers stay in the cache from its ids to
its gradients.
"""

from __future__ import annotations

from typing import Any, NamedTuple, no_type_check

import numpy as np

from exactk.engine.gradients import clear
from exactk.engine.lanes import inner
from exactk.engine.train_decoder import replay_kept
from exactk.engine.train_encoder import encode_kept
from exactk.engine.train_inputs import embed_back, embed_kept
from exactk.engine.train_kernel import back_one, draw_one
from exactk.engine.train_losses import (
    BONUS,
    SUPERVISED,
    TEMPERATURE,
    advantage_of,
    disperse,
    reinforce,
    supervise,
)
from exactk.engine.train_reward import judge_one
from exactk.problem.compiling import compiled

NOTHING, ZERO = np.float32(-np.inf), np.float32(0)


class Network(NamedTuple):
    """Sizes, places and weights."""

    sizes: Any
    spots: Any
    inputs: Any  # InputSpots
    tape: Any  # Tape
    rows: Any  # Rows
    drawing: Any  # places of `draw_one`
    backing: Any  # and of `back_one`
    room: int  # where kept rows begin
    losses: Any  # places of a mask, of probabilities, of wanted positions
    free: int  # scratch behind all these
    matrices: Any  # those that are turned
    weights: Any
    gradient: Any
    first: Any  # Adam's moments
    second: Any
    moving: Any  # and what a step of it multiplies by


class Work(NamedTuple):
    """One batch, and all that is made of it."""

    user: Any
    item: Any
    present: Any
    graph: Any
    demonstration: Any
    clicked: Any
    clicked_at: Any
    uniform: Any  # K B S, the numbers that decide draws
    weigh: Any  # of losses
    inputs: Any  # B N D, where they are not made here
    judge: Any
    cards: Any  # B S K
    log_prob: Any
    allowed: Any  # B S K N
    rewards: Any  # B S
    added: Any  # B N, onto scores
    told: Any  # B 3: the supervised loss, REINFORCE's, entropy
    figures: Any  # what was told, summed over requests, and the mean reward
    sums: Any  # gradients of weights, a row for each piece
    inputs_g: Any
    item_g: Any
    user_g: Any


class Scratch(NamedTuple):
    """A thread's working memory. Weights are turned by each for itself: what another core writes is slow to come."""

    version: Any  # the step whose weights are turned
    tape: Any
    turned: Any
    vectors: Any
    encoding: Any
    drawing: Any
    kept: Any
    backing: Any


@compiled
@no_type_check
def usual_size(graph, present, card_size, pinned, user, item, num_users, num_items):
    """K, if all requests are of the usual kind: cards of one size, no pins, no order of choosing that could end early
    (`Feasible.safe`), ids that there are rows for; else 0."""
    B, N = present.shape
    K = card_size[0]
    for b in range(B):
        if card_size[b] != K or user[b] < 0 or user[b] >= num_users:
            return 0
        num_open, missing = 0, 0
        for i in range(N):
            if pinned[b, i] or item[b, i] < 0 or item[b, i] >= num_items:
                return 0
            strangers = 0
            for j in range(N):
                strangers += present[b, j] and not graph[b, i, j]
            if present[b, i]:
                num_open += 1
                missing = max(missing, strangers - (not graph[b, i, i]))
        if num_open <= (K - 1) * (missing + 1):
            return 0
    return K


@compiled
@no_type_check
def shuffled_onto(card, order, out):
    """The positions of cards by rising numbers, then padding: `learning.rlfd.shuffled`, cut or padded to fit."""
    B, length = card.shape
    K = out.shape[1]
    row = np.empty(length, np.float32)
    for b in range(B):
        num = 0
        for i in range(length):
            if card[b, i] < 0:
                continue
            at = num
            while at > 0 and row[at - 1] > order[b, i]:
                row[at] = row[at - 1]
                if at < K:
                    out[b, at] = out[b, at - 1]
                at -= 1
            row[at] = order[b, i]
            if at < K:
                out[b, at] = card[b, i]
            num += 1
        for i in range(num, K):
            out[b, i] = -1
    return 0


@inner
@no_type_check
def explore_one(b, begin, plan, net, work, own):
    """One request's nodes on the tape, its samples and their rewards; False where nothing could be drawn."""
    p, tape = net.tape, own.tape
    N, D = work.item.shape[1], net.sizes.width
    span, n4 = (N + 15) // 16 * 16, (N + 3) // 4 * 4
    for n in range(span):
        tape[begin + p.absent + n] = ZERO if n < N and work.present[b, n] else NOTHING
    if net.inputs.size:
        embed_kept(
            net.inputs, net.weights, own.turned, own.backing, net.free, work.user[b], work.item[b], N, D,
            tape, begin + p.inputs,
        )  # fmt: skip
    else:
        for n in range(N):
            for d in range(D):
                tape[begin + p.inputs + n * D + d] = work.inputs[b, n, d]
    encode_kept(net.sizes, net.spots, p, net.weights, own.turned, tape, begin, own.encoding, N, span, n4)
    if not plan.samples:
        return True
    if not draw_one(
        b, begin, net.sizes, net.spots, p, own.turned, own.vectors, tape, own.drawing, net.drawing,
        work.graph, work.present, work.added, work.uniform, work.weigh[TEMPERATURE],
        work.cards, work.log_prob, work.allowed,
    ):  # fmt: skip
        return False
    if plan.judged:
        judge_one(
            work.judge, work.user[b], work.item[b], work.cards[b], own.backing, net.free, work.rewards[b]
        )
    return True


@inner
@no_type_check
def make_paths(b, plan, work, paths, masks):
    """Fill paths [P, K] and what is allowed along them; the sample that is the best one."""
    (P, K), N, best = paths.shape, work.present.shape[1], 0
    for i in range(1, plan.samples if plan.rewarded else 0):
        if work.rewards[b, i] > work.rewards[b, best]:
            best = i
    alone = P - plan.rewarded
    for i in range(P):
        if i < alone and plan.demonstrated:
            for t in range(K):
                paths[i, t] = work.demonstration[b, t]
                for n in range(N):
                    if t == 0:
                        masks[i, t, n] = work.present[b, n]
                    else:
                        last = paths[i, t - 1]
                        masks[i, t, n] = masks[i, t - 1, n] and n != last and work.graph[b, last, n]
            continue
        source = 0 if i < alone else best if plan.best_only else i - alone
        for t in range(K):
            paths[i, t] = work.cards[b, source, t]
            for n in range(N):
                masks[i, t, n] = work.allowed[b, source, t, n]
    return best


@inner
@no_type_check
def learn_one(b, begin, plan, net, work, own, paths, masks, g):
    """What one request teaches: figures, gradients of weights onto g, those of its inputs."""
    tape, kept, x, weigh, told = own.tape, own.kept, own.backing, work.weigh, work.told[b]
    N, D, (P, K) = work.item.shape[1], net.sizes.width, paths.shape
    span, scores, places = (N + 15) // 16 * 16, net.backing[6], net.losses
    best = make_paths(b, plan, work, paths, masks)
    rows = replay_kept(
        net.sizes, net.spots, net.tape, net.rows, own.turned, own.vectors, tape, begin, kept, net.room,
        paths, N, span,
    )  # fmt: skip
    clear(x, scores, (1 + (K - 1) * P) * span)
    told[0], told[1], told[2] = ZERO, ZERO, ZERO
    if weigh[SUPERVISED] > ZERO and work.clicked[b]:
        told[0] = supervise(
            plan, weigh, kept, rows, x, scores, places, paths[0], masks[0],
            work.demonstration[b], work.clicked_at[b], span,
        )  # fmt: skip
    alone = P - plan.rewarded
    for i in range(alone, P):
        advantage = advantage_of(plan, work.rewards[b], best if plan.best_only else i - alone)
        told[1] += reinforce(
            plan, weigh, kept, rows, x, scores, places, paths[i], i, masks[i], advantage, span
        )
    if weigh[BONUS] > ZERO:
        told[2] = disperse(plan, weigh, kept, rows, x, scores, places, P - 1, masks[P - 1], span)
    to = back_one(
        begin, net.room, net.sizes, net.spots, net.tape, net.rows, net.weights, tape, kept, x, net.backing,
        g, paths, N,
    )  # fmt: skip
    if net.inputs.size:
        embed_back(
            net.inputs, net.weights, x, net.free, work.user[b], work.item[b], N, D, x, to,
            tape, begin + net.tape.inputs, g, work.item_g[b], work.user_g[b],
        )  # fmt: skip
    else:
        for n in range(N):
            for d in range(D):
                work.inputs_g[b, n, d] = x[to + n * D + d]
