"""The fastest way a trained model has to decide on cards: the compiled engine where it can, the model elsewhere.

Knows no ids and no files. The cards are those of `Recommender.decide`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float64

from exactk.engine.pair_value.search import CompiledPairSearch
from exactk.learning.decide import Decision, PairValueSearch
from exactk.models.pairvalue import PairMember, PairValue
from exactk.problem.batch import Batch
from exactk.problem.exact import cliques
from exactk.recommender import Recommender
from exactk.tensors import TensorBatch

Decide = Callable[[Batch], Decision]


def fast_decide(recommender: Recommender) -> Decide:
    """For batches of requests that have a valid card."""
    search = recommender.decider.search
    if isinstance(search, PairValueSearch) and isinstance(search.model, PairValue):
        compiled = CompiledPairSearch(search.model)
        return lambda batch: _by_value(compiled, batch)
    return recommender.decide


def _by_value(search: CompiledPairSearch, batch: Batch) -> Decision:
    node, pair = search.values(batch)
    found = cliques.best(batch.requests(), node, pair, time_limit=search.time_limit)
    bias = _bias(search.model, batch)
    return Decision(found.card, found.weight + bias, found.bound + bias)


@torch.no_grad()
def _bias(model: PairValue, batch: Batch) -> Float64[np.ndarray, "B"]:
    """What a user brings to every card: no search needs it, the value does."""
    told, asked = [], TensorBatch.of(batch)
    for member in model.members:
        assert isinstance(member, PairMember)
        told.append(member.user_bias(member.vectors.user(asked)).squeeze(-1))
    return torch.stack(told).mean(0).double().numpy()
