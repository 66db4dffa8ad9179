"""What a batch teaches, compiled: losses along paths and their gradients at the scores; one request at a time.

Knows no network. The losses are those of `learning.losses` as `learning.rlfd` weighs them; a `Plan` says which.
"""

from __future__ import annotations

from typing import NamedTuple, no_type_check

import numpy as np

from exactk.engine.lanes import (
    exponential,
    inner,
    larger,
    largest,
    load,
    multiply_add,
    spread,
    store,
    subtract,
)
from exactk.engine.train_decoder import row_of

NOTHING, ZERO, ONE = np.float32(-np.inf), np.float32(0), np.float32(1)
CARD, CLICKED, SET, UNIFORM = range(4)
# What the losses of one request weigh, and the temperature: places in an array, as they change from batch to batch.
SUPERVISED, REINFORCED, BONUS, TEMPERATURE = range(4)
TARGETS = {"card": CARD, "clicked": CLICKED, "set": SET, "uniform": UNIFORM}


class Plan(NamedTuple):
    """How the paths of one batch are made and what they count. Paths: first the one that is supervised alone, if any
    is, then those with an advantage; where all are samples, the first of these is supervised as well."""

    samples: int  # drawn of each request
    paths: int
    rewarded: int  # the last of the paths, which have an advantage
    demonstrated: bool  # the first path is the logged card, not a sample
    best_only: bool  # of the samples, only the best one has an advantage
    leave_one_out: bool
    judged: bool  # rewards are estimated here, not handed in
    target: int


@inner
@no_type_check
def open_softmax(k, row, x, mask, to, sharpness, span):
    """Probabilities of one row's open positions into x[to...], zero elsewhere.

    Returns c, with which log p = sharpness * score - c.
    """
    factor, most = spread(sharpness), spread(NOTHING)
    for i in range(0, span, 16):
        value = multiply_add(load(k, row + i), factor, load(x, mask + i))
        store(x, to + i, value)
        most = larger(most, value)
    top, sums = largest(most), ZERO
    for i in range(0, span, 16):
        store(x, to + i, exponential(subtract(load(x, to + i), spread(top))))
    for n in range(span):
        if x[mask + n] < ZERO:
            x[to + n] = ZERO  # e^x ends at e^-80
        sums += x[to + n]
    share = ONE / sums
    for n in range(span):
        x[to + n] *= share
    return top + np.log(sums)


@inner
@no_type_check
def masked(x, mask, allowed, span):
    """0 where allowed, else -inf, for padding too."""
    for n in range(span):
        x[mask + n] = ZERO if n < len(allowed) and allowed[n] else NOTHING


@inner
@no_type_check
def mark_wanted(target, x, wanted, path, t, allowed, demonstration, clicked_at):
    """Ones at the positions that choice t of a path should take, as far as they are allowed; how many there are."""
    count = 0
    for n in range(len(allowed)):
        x[wanted + n] = ZERO
    if target == CARD:
        at = demonstration[t]
        if at >= 0 and allowed[at]:
            x[wanted + at] = ONE
            count = 1
    elif target == CLICKED:
        taken = False
        for i in range(t):
            taken |= path[i] == clicked_at
        if clicked_at >= 0 and not taken and allowed[clicked_at]:
            x[wanted + clicked_at] = ONE
            count = 1
    else:
        for at in demonstration:
            taken = False
            for i in range(t):
                taken |= path[i] == at
            if at >= 0 and not taken and allowed[at] and x[wanted + at] == ZERO:
                x[wanted + at] = ONE
                count += 1
    return count


@inner
@no_type_check
def supervise(plan, weigh, k, rows, x, to, places, path, allowed, demonstration, clicked_at, span):
    """L_S along the first path (eq. 15, 16); its gradient goes onto the rows of scores at x[to...]."""
    mask, p, wanted = places
    N, loss = allowed.shape[1], ZERO
    for t in range(len(path)):
        count = mark_wanted(plan.target, x, wanted, path, t, allowed[t], demonstration, clicked_at)
        if count == 0:
            continue
        row = row_of(0, t, plan.paths) * span
        masked(x, mask, allowed[t], span)
        constant = open_softmax(k, rows + row, x, mask, p, ONE, span)
        inside, along = ZERO, ZERO
        for n in range(N):
            if x[wanted + n] > ZERO:
                inside += x[p + n]
                along += k[rows + row + n] - constant
        each = plan.target == UNIFORM
        loss -= along / np.float32(count) if each or count == 1 else np.log(inside)
        for n in range(N):
            share = ONE / np.float32(count) if each else x[p + n] / inside
            x[to + row + n] += weigh[SUPERVISED] * (x[p + n] - x[wanted + n] * share)
    return loss


@inner
@no_type_check
def reinforce(plan, weigh, k, rows, x, to, places, path, number, allowed, advantage, span):
    """-advantage x log P(card) of one path (eq. 19), under the tempered distribution; the gradient likewise."""
    mask, p, _ = places
    sharpness, likely = ONE / weigh[TEMPERATURE], ZERO
    weight = weigh[REINFORCED] * advantage * sharpness
    for t in range(len(path)):
        row = row_of(number, t, plan.paths) * span
        masked(x, mask, allowed[t], span)
        constant = open_softmax(k, rows + row, x, mask, p, sharpness, span)
        likely += k[rows + row + path[t]] * sharpness - constant
        for n in range(allowed.shape[1]):
            x[to + row + n] += weight * x[p + n]
        x[to + row + path[t]] -= weight
    return -advantage * likely


@inner
@no_type_check
def disperse(plan, weigh, k, rows, x, to, places, number, allowed, span):
    """The entropy of a path's distributions, in nats; minus its gradient goes onto the rows."""
    mask, p, _ = places
    K, N = allowed.shape
    entropy = ZERO
    for t in range(K):
        row = row_of(number, t, plan.paths) * span
        masked(x, mask, allowed[t], span)
        constant = open_softmax(k, rows + row, x, mask, p, ONE, span)
        own = ZERO
        for n in range(N):
            own -= x[p + n] * (k[rows + row + n] - constant)
        for n in range(N):
            x[to + row + n] += weigh[BONUS] * x[p + n] * (k[rows + row + n] - constant + own)
        entropy += own
    return entropy


@inner
@no_type_check
def advantage_of(plan, rewards, i):
    """The reward of sample i, less the mean of the others where that is the baseline."""
    if not plan.leave_one_out:
        return rewards[i]
    others = ZERO
    for reward in rewards:
        others += reward
    return rewards[i] - (others - rewards[i]) / np.float32(len(rewards) - 1)
