"""How a model weighs one request, and the card its policy writes for it.

Knows models through the Recommender's parts, no route.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from jaxtyping import Float64

from exactk.data.requests.request import Request
from exactk.engine.card_values import LearnedValue, SummedValue
from exactk.engine.decide import Calibration, PolicyDecider
from exactk.engine.network import log_softmax
from exactk.problem.batch import Batch
from exactk.problem.rules.constraints import Constraints
from exactk.serving.model.answering import Answer, Answerer, Question
from exactk.serving.model.arms import Arm
from exactk.serving.studio.scene import Weights
from exactk.serving.studio.schemas import ViewRequest


def request_of(asked: ViewRequest, k: int) -> Request:
    """The page's request as models take it."""
    ids = tuple(item["item_id"] for item in asked.items)
    return Request(
        user_id=asked.user,
        candidates=ids,
        k=k,
        include=tuple(asked.include),
        exclude=tuple(asked.exclude),
        attributes=dict(zip(ids, asked.items, strict=True)),
        user_features=None if asked.user_features is None else tuple(asked.user_features),
        context=asked.context or {},
    )


def policy_card(arm: Arm, request: Request, constraints: Constraints, ends: float) -> list[int] | None:
    """The card the model's policy writes for this request, as positions; None where it has no policy."""
    if arm.loaded.recommender.fitted.weights.policy is None:
        return None
    (answer,) = Answerer(0)([Question(arm, request, constraints, (), False, ends)])
    return list(answer.card.positions) if isinstance(answer, Answer) else None


def weights(arm: Arm, request: Request) -> Weights:
    """One request as the model sees it; an excluded item, which it never sees, weighs as little as any.

    A value that is a sum over items and pairs gives its own numbers. Any other model gives the first step's
    log-probabilities of its policy, and how they change once some item is chosen.
    """
    fitted, decider = arm.loaded.recommender.fitted, arm.loaded.recommender.decider
    batch = fitted.builder.batch([request])
    seen = batch.present[0]
    attention = None
    value, calibration = decider.value, fitted.calibration
    if isinstance(decider, PolicyDecider) and fitted.config.policy.encoder_layers:
        attention = decider.decoder.attention(batch)[0, -1].mean(0).tolist()  # last layer, heads together
    judge = None if value is None else partial(judged, value, batch, calibration)
    if isinstance(value, SummedValue):
        values, whole = value.values(batch), value.only_pairs
        bias, pairs = float(values.bias[0]), np.where(seen[:, None] & seen, values.pair[0], 0.0)
        return Weights(
            np.where(seen, values.node[0], values.node[0, seen].min()),
            pairs if pairs.any() else None,  # of a log whose pairs say nothing, none is shown
            attention,
            # Preferences cost in the model's own units: the sum is weighed as it is, and calibrated to be shown.
            link=(lambda weight: calibration.one(weight + bias)) if whole else None,
            judge=None if whole else judge,
            proof="proven best under this model" if whole else "proven best by scores and pairs alone",
        )
    assert isinstance(decider, PolicyDecider)
    first = log_softmax(decider.decoder.scores(batch)[0].astype(np.float64))
    first = np.where(seen, first, first[seen].min())
    return Weights(
        first, None, attention, _influence(decider, batch, first), judge=judge,
        proof="proven best by the policy's first step alone",
    )  # fmt: skip


def judged(value: LearnedValue, batch: Batch, calibration: Calibration, positions: Sequence[int]) -> float:
    """The click probability of a card by any model of cards."""
    return calibration.one(float(value.logits(batch, np.array([[list(positions)]]))[0, 0]))


def _influence(decider: PolicyDecider, batch: Batch, first: Float64[np.ndarray, "N"]) -> list[list[float]]:
    """By how much choosing one of two items raises the log-probability of the other, the mean of both ways."""
    N = len(first)
    alike = batch.rows(np.zeros(N, np.int64))  # row by row another item was chosen before
    second = decider.decoder.scores(alike, np.arange(N)[:, None]).astype(np.float64)
    np.fill_diagonal(second, -np.inf)  # nobody is chosen twice
    gain = log_softmax(second) - first
    np.fill_diagonal(gain, 0.0)
    listed: list[list[float]] = ((gain + gain.T) / 2).tolist()
    return listed
