"""What runs today, as rivals: the logged policy itself, the upstream score, and popularity counted up to each request.

Know no training. A log without the column they read is said so, and their row is left out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

from exactk.errors import InputError
from exactk.problem.batch import Batch
from exactk.rivals.contract import Budget, Logs, Setting, TrainedMethod, tuned
from exactk.rivals.selection import Greedy, Judge, Mmr, Scorer, by_weight
from exactk.tensors import TensorBatch

TRADE_OFFS: list[Setting] = [{"trade_off": t} for t in (0.9, 0.7, 0.95, 0.5, 0.99)]


@dataclass(frozen=True)
class LoggedCards:
    """The card as it was shown; where the log keeps none, the first K of the list as it was shown."""

    def recommend(self, batch: Batch) -> Int[np.ndarray, "B K"]:
        """One card per request: not ours to make valid, it is what happened."""
        if batch.card is not None and (batch.card >= 0).any():
            return batch.card
        return Greedy(by_position).recommend(batch)


def by_position(batch: TensorBatch) -> Float64[Tensor, "B N"]:
    """The higher in the list, the better; where nobody knows, last."""
    if batch.position is None:
        return torch.zeros(batch.item.shape, dtype=torch.float64)
    return -batch.position.double().nan_to_num(nan=1e6)


@dataclass(frozen=True)
class Column:
    """One column of numbers as the score; where it is missing, the lowest of the request."""

    column: int | None  # of `candidate_numbers`; None: the upstream score

    def __call__(self, batch: TensorBatch) -> Float[Tensor, "B N"]:
        """Each candidate's number."""
        held = batch.score if self.column is None else batch.candidate_numbers
        assert held is not None
        values = (held if self.column is None else held[..., self.column]).double()
        known = ~values.isnan() & batch.present
        lowest = values.masked_fill(~known, torch.inf).amin(1, keepdim=True)
        lowest = lowest.masked_fill(lowest.isinf(), 0.0)
        return torch.where(known, values, lowest - 1.0)


def fit_logged_policy(train: Logs, valid: Logs, budget: Budget) -> TrainedMethod:  # noqa: ARG001 - the contract
    """What was shown."""
    columns = train.vocabulary.columns
    if not train.view.signal.cards and "position" not in columns.measured.names:
        raise InputError("the log keeps no cards and no positions, so nobody knows what was shown")
    return TrainedMethod({"logged policy": LoggedCards()})


def fit_upstream(train: Logs, valid: Logs, budget: Budget) -> TrainedMethod:
    """The upstream ranker's score: its top K, and the same with MMR over whatever says that items are alike."""
    if "score" not in train.vocabulary.columns.measured.names:
        raise InputError("the log has no column `score` of an upstream ranker")
    scorer: Scorer = Column(None)
    ways = by_weight("upstream score", scorer)
    if not _has_vectors(train):
        return TrainedMethod(ways)
    judge = Judge.of(valid, budget)

    def attempt(setting: Setting) -> tuple[Mmr, float]:
        way = Mmr(scorer, vectors_of, setting["trade_off"])
        return way, judge(way)

    mmr, chosen, score = tuned(TRADE_OFFS, budget, attempt)
    return TrainedMethod({**ways, "upstream score MMR": mmr}, chosen, score)


def _has_vectors(logs: Logs) -> bool:
    return bool(logs.vocabulary.columns.vector_size or logs.vocabulary.item_feature_size)


def vectors_of(batch: TensorBatch) -> Float[Tensor, "B N F"]:
    """What says how alike two candidates are: vectors of their texts, else their features."""
    found = batch.item_vectors if batch.item_vectors is not None else batch.item_features
    assert found is not None
    return found


def fit_popularity_so_far(train: Logs, valid: Logs, budget: Budget) -> TrainedMethod:  # noqa: ARG001 - the contract
    """Clicks per showing up to the moment of the request: knows items that train never met."""
    names = train.vocabulary.columns.candidate_numbers.names
    if "rate_so_far" not in names:
        raise InputError("the log keeps no rolling counts: it needs a column `timestamp`")
    return TrainedMethod(by_weight("popularity so far", Column(names.index("rate_so_far"))))
