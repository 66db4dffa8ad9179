"""A whole training step in one compiled call: ids to cards, rewards, losses and the gradients of all weights.

Knows neither modules nor batches; `lesson.py` hands everything in. One request at a time, whose numbers stay in the
cache from its ids to its gradients; threads that share a counter share the requests.
"""

from __future__ import annotations

from typing import no_type_check

import numpy as np

from exactk.engine.gradients import clear
from exactk.engine.lanes import add, inner, load, store
from exactk.engine.sharing import taken
from exactk.engine.train_decoder import replay_kept
from exactk.engine.train_encoder import encode_kept
from exactk.engine.train_inputs import embed_back, embed_kept, onto_tables
from exactk.engine.train_kernel import back_one, draw_one
from exactk.engine.train_losses import advantage_of, disperse, reinforce, supervise
from exactk.engine.train_reward import judge_one
from exactk.problem.compiling import compiled

NOTHING, ZERO = np.float32(-np.inf), np.float32(0)


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


@inner
@no_type_check
def explore_one(
    b, begin, plan, s, at, into, p, places, w, turned, vectors, request, uniform, judge, given, scratch, drawn
):
    """One request's nodes on the tape, its samples and their rewards; False where nothing could be drawn."""
    user, item, present, graph, _, _, _ = request
    tape, x, y, _, extra = scratch
    cards, log_prob, allowed, rewards, added = drawn
    N, D = item.shape[1], s.width
    span, n4 = (N + 15) // 16 * 16, (N + 3) // 4 * 4
    for n in range(span):
        tape[begin + p.absent + n] = ZERO if n < N and present[b, n] else NOTHING
    if into.size:
        embed_kept(into, w, turned, extra, places[2][4], user[b], item[b], N, D, tape, begin + p.inputs)
    else:
        for n in range(N):
            for d in range(D):
                tape[begin + p.inputs + n * D + d] = given[b, n, d]
    encode_kept(s, at, p, w, turned, tape, begin, x, N, span, n4)
    if not plan.samples:
        return True
    if not draw_one(
        b, begin, s, at, p, turned, vectors, tape, y, places[0], graph, present, added, uniform,
        plan.temperature, cards, log_prob, allowed,
    ):  # fmt: skip
        return False
    if plan.judged:
        judge_one(judge, user[b], item[b], cards[b], extra, places[2][4], rewards[b])
    return True


@inner
@no_type_check
def make_paths(b, plan, request, drawn, paths, masks):
    """Fill paths [P, K] and what is allowed along them; the sample that is the best one."""
    _, _, present, graph, demonstration, _, _ = request
    cards, _, allowed, rewards, _ = drawn
    K, N, best = paths.shape[1], present.shape[1], 0
    for i in range(1, plan.samples if plan.rewarded else 0):
        if rewards[b, i] > rewards[b, best]:
            best = i
    alone = plan.paths - plan.rewarded
    for i in range(plan.paths):
        if i < alone and plan.demonstrated:
            for t in range(K):
                paths[i, t] = demonstration[b, t]
                for n in range(N):
                    before = present[b, n] if t == 0 else masks[i, t - 1, n]
                    last = paths[i, t - 1]
                    masks[i, t, n] = before and (t == 0 or (n != last and graph[b, last, n]))
            continue
        source = 0 if i < alone else best if plan.best_only else i - alone
        for t in range(K):
            paths[i, t] = cards[b, source, t]
            for n in range(N):
                masks[i, t, n] = allowed[b, source, t, n]
    return best


@inner
@no_type_check
def learn_one(
    b,
    begin,
    plan,
    s,
    at,
    into,
    p,
    q,
    places,
    w,
    turned,
    vectors,
    request,
    scratch,
    drawn,
    paths,
    masks,
    told,
    g,
    back,
):
    """What one request teaches: figures into `told`, gradients of weights onto g, those of its inputs into `back`."""
    user, item, _, _, demonstration, clicked, clicked_at = request
    tape, _, _, kept, x = scratch
    _, _, _, rewards, _ = drawn
    inputs_g, item_g, user_g = back
    N, D, (P, K) = item.shape[1], s.width, paths.shape
    span = (N + 15) // 16 * 16
    room, scores, own = places[2][0], places[1][6], (places[2][1], places[2][2], places[2][3])
    best = make_paths(b, plan, request, drawn, paths, masks)
    rows = replay_kept(s, at, p, q, turned, vectors, tape, begin, kept, room, paths, N, span)
    clear(x, scores, (1 + (K - 1) * P) * span)
    told[b, :] = ZERO
    if plan.supervised > ZERO and clicked[b]:
        told[b, 0] = supervise(
            plan, kept, rows, x, scores, own, paths[0], masks[0], demonstration[b], clicked_at[b], span
        )
    alone = P - plan.rewarded
    for i in range(alone, P):
        source = best if plan.best_only else i - alone
        advantage = advantage_of(plan, rewards[b], source)
        told[b, 1] += reinforce(plan, kept, rows, x, scores, own, paths[i], i, masks[i], advantage, span)
    if plan.bonus > ZERO:
        told[b, 2] = disperse(plan, kept, rows, x, scores, own, P - 1, masks[P - 1], span)
    to = back_one(begin, room, s, at, p, q, w, tape, kept, x, places[1], g, paths, N)
    if into.size:
        embed_back(
            into,
            w,
            x,
            places[2][4],
            user[b],
            item[b],
            N,
            D,
            x,
            to,
            tape,
            begin + p.inputs,
            g,
            item_g[b],
            user_g[b],
        )
    else:
        for n in range(N):
            for d in range(D):
                inputs_g[b, n, d] = x[to + n * D + d]


@compiled
@no_type_check
def teach_each(
    counter, each, stages, plan, s, at, into, p, q, places, w, turned, vectors, request, uniform, judge, given,
    scratch, drawn, told, sums, back,
):  # fmt: skip
    """Explore and learn from requests, or one of the two (`stages`), `each` at a time; how many could not be drawn for.

    Gradients of weights are summed in the row of `sums` that belongs to their piece, whoever takes it. `places`: of
    `draw_one`, of `back_one`, and room, mask, probabilities, wanted positions, free scratch. `scratch`: tape, and
    working memory of the encoder, of draws, of kept rows, of all else. A tape with room for one request serves all.
    """
    explores, learns = stages
    B, N = request[1].shape
    K = drawn[0].shape[2]
    paths, masks = np.empty((plan.paths, K), np.int64), np.empty((plan.paths, K, N), np.bool_)
    stride = p.end if len(scratch[0]) >= B * p.end else 0
    failed, piece = 0, taken(counter)
    while piece * each < B:
        if learns:
            clear(sums[piece], 0, sums.shape[1])
        for b in range(piece * each, min((piece + 1) * each, B)):
            if explores and not explore_one(
                b, b * stride, plan, s, at, into, p, places, w, turned, vectors, request, uniform, judge, given,
                scratch, drawn,
            ):  # fmt: skip
                failed += 1
                continue
            if learns:
                learn_one(
                    b, b * stride, plan, s, at, into, p, q, places, w, turned, vectors, request, scratch, drawn,
                    paths, masks, told, sums[piece], back,
                )  # fmt: skip
        piece = taken(counter)
    return failed


@compiled
@no_type_check
def gathered(s, at, into, sums, num, g, user, item, back):
    """The gradient of all weights from the sums of `num` pieces, in order, and from the embeddings' gradients."""
    _, item_g, user_g = back
    end = into.end if into.size else at.end
    for i in range(0, end, 16):
        value = load(sums[0], i)
        for piece in range(1, num):
            value = add(value, load(sums[piece], i))
        store(g, i, value)
    for layer in range(s.decoder_layers):  # the two biases of a cell are one to the network
        bias = at.cells + layer * at.cell_size + 8 * s.width * s.width
        for i in range(bias, bias + 4 * s.width):
            g[i + 4 * s.width] = g[i]
    if into.size:
        onto_tables(into, g, len(g), user, item, item_g, user_g)
    return 0
