"""The fastest way a trained model has to decide on cards: the compiled engine where it can, the model elsewhere.

Knows no ids and no files. The cards are those of `Recommender.decide`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from exactk.engine.compiled import CompiledDecoder
from exactk.engine.pair_search import CompiledPairSearch
from exactk.learning.decide import Decision, PairValueSearch
from exactk.models.pairvalue import PairMember, PairValue
from exactk.problem import cliques
from exactk.problem.batch import Batch
from exactk.recommender import Recommender

Decide = Callable[[Batch], Decision]


def fast_decide(recommender: Recommender) -> Decide:
    """For batches of requests that have a valid card."""
    decider = recommender.decider
    if isinstance(decider, PairValueSearch):
        search = CompiledPairSearch(decider.model, decider.config.time_limit_seconds or None)
        return lambda batch: _by_value(search, batch)
    if decider.config.decoding != "beam" or decider.config.improve_seconds:
        return recommender.decide
    decoder, reward = CompiledDecoder(decider.policy), decider.reward

    @torch.no_grad()
    def by_policy(batch: Batch) -> Decision:
        cards = decoder.recommend(batch)
        if reward is None:
            unknown = torch.full((len(cards),), torch.nan, dtype=torch.float64)
            return Decision(cards, unknown, torch.full_like(unknown, torch.inf))
        logit = reward(batch, cards.unsqueeze(1)).squeeze(1).double()
        return Decision(cards, logit, torch.full_like(logit, torch.inf))

    return by_policy


def _by_value(search: CompiledPairSearch, batch: Batch) -> Decision:
    node, pair = search.values(batch)
    found = cliques.best(batch.requests(), node, pair, time_limit=search.time_limit)
    bias = _bias(search.model, batch)
    return Decision(
        torch.from_numpy(found.card),
        torch.from_numpy(found.weight) + bias,
        torch.from_numpy(found.bound) + bias,
    )


@torch.no_grad()
def _bias(model: PairValue, batch: Batch) -> torch.Tensor:
    """What a user brings to every card: no search needs it, the value does."""
    told = []
    for member in model.members:
        assert isinstance(member, PairMember)
        told.append(member.user_bias(member.vectors.user(batch)).squeeze(-1))
    return torch.stack(told).mean(0).double()
