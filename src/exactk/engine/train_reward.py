"""The paper's reward estimator (eq. 18), compiled: what it makes of the cards drawn for one request.

Knows one network of kind `pnn` over ids, whose weights do not change meanwhile; others are torch's.
"""

from __future__ import annotations

from typing import Any, no_type_check

import numpy as np
from torch import nn

from exactk.engine.arithmetic import product
from exactk.engine.lanes import inner, larger, load, multiply_add, spread, total
from exactk.engine.packing import aligned, plain, rounded
from exactk.models.reward import PnnReward

ZERO, ONE, TWO = np.float32(0), np.float32(1), np.float32(2)

Judge = tuple[np.ndarray, np.ndarray, np.ndarray]  # the tables of users and items; all other weights


def judge_of(reward: Any) -> Judge | None:
    """An estimator's weights as they are now; None where it is of another kind."""
    members = [] if reward is None else list(reward.members)
    if len(members) != 1 or not isinstance(members[0], PnnReward) or members[0].training:
        return None
    member, vectors = members[0], members[0].vectors.vectors
    mapped = not isinstance(members[0].vectors.map_user, nn.Identity) or not isinstance(
        members[0].vectors.map_item, nn.Identity
    )
    if mapped or vectors.users is None or vectors.items is None or member.hidden.out_features % 16:
        return None
    parts = (member.hidden.weight.T, member.hidden.bias, member.out.weight, member.out.bias)
    joined = np.concatenate([plain(part).ravel() for part in parts])
    weights = aligned(len(joined) + 15)
    weights[: len(joined)] = joined
    return plain(vectors.users.weight), plain(vectors.items.weight), weights


def no_judge() -> Judge:
    """Arrays of the same kinds, empty."""
    none = np.zeros((0, 0), np.float32)
    return none, none, np.zeros(0, np.float32)


def judge_room(judge: Judge, S: int, K: int) -> int:
    """Scratch that `judge_one` needs."""
    inputs, hidden = judge_sizes(judge, K)
    return rounded(S, 4) * (rounded(inputs) + hidden)


def judge_sizes(judge: Judge, K: int) -> tuple[int, int]:
    """Of what the hidden layer reads, and of the hidden layer."""
    inputs = K + (K + 1) * judge[0].shape[1]
    return inputs, (len(judge[2]) - 16) // (inputs + 2)


@inner
@no_type_check
def judge_one(judge, user, item, cards, x, at, rewards):
    """R = 2 (p - 0.5) of cards [S, K] (eq. 20) into `rewards`; scratch from x[at] on."""
    users, items, w = judge
    (S, K), E = cards.shape, users.shape[1]
    inputs = K + (K + 1) * E
    H = (len(w) - 16) // (inputs + 2)
    step = (inputs + 15) // 16 * 16
    hidden = at + (S + 3) // 4 * 4 * step
    for i in range(S):
        row = at + i * step
        for t in range(K):
            one, along = item[cards[i, t]], ZERO
            for e in range(E):
                value = items[one, e]
                x[row + K + t * E + e] = value
                along += value * users[user, e]
            x[row + t] = along
        for e in range(E):
            x[row + K + K * E + e] = users[user, e]
    product(x, at, step, S, inputs, w, 0, H, H, w, inputs * H, x, hidden, H)
    zero, out = spread(ZERO), (inputs + 1) * H
    for i in range(S):
        sums = zero
        for h in range(0, H, 16):
            sums = multiply_add(larger(load(x, hidden + i * H + h), zero), load(w, out + h), sums)
        logit = total(sums) + w[out + H]
        rewards[i] = TWO / (ONE + np.exp(-logit)) - ONE
