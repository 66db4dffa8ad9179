"""One batch to cards, by the rung of the ladder that time allows: as trained, greedy, Algorithm 1.

Knows models and search, no ids and no clock. Also what makes the serving policy: with exploration, a card is drawn from
a shortlist, and its exact probability is told.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

from exactk.engine.decode.decoder import CompiledDecoder
from exactk.engine.pair_value.search import CompiledPairSearch
from exactk.learning.decide import PairValueSearch, PolicyWriter
from exactk.model_folder import Fitted
from exactk.models.ensemble import SearchableValue, Values
from exactk.models.pairvalue import PairValue
from exactk.problem.batch import Batch
from exactk.problem.exact import cliques
from exactk.search import Feasible, beam, greedy
from exactk.search.exact import as_weights
from exactk.search.greedy import greedy_by_weight
from exactk.tensors import TensorBatch

log = logging.getLogger("exactk.serving")

RUNGS = ("usual", "greedy", "algorithm 1")
SHORTLIST = 8  # cards to explore among


class Decoded(NamedTuple):
    """Cards of a batch; bound infinite and propensity NaN where unknown."""

    cards: Int[Tensor, "B K"]
    logit: Float[Tensor, B]
    bound: Float[Tensor, B]
    propensity: Float[Tensor, B]
    methods: tuple[str, ...]


@dataclass(frozen=True)
class Decoder:
    """A trained model and how it is decoded when serving."""

    fitted: Fitted
    decider: PolicyWriter | PairValueSearch
    explore: float = 0.0
    compiled: CompiledDecoder | CompiledPairSearch | None = None  # the same answers, sooner

    @torch.inference_mode()
    def decode(self, batch: Batch, rung: str, generator: torch.Generator, seconds: float) -> Decoded:
        """Cards by one rung. `seconds` is the time left: an exact search stops by then, with what it has."""
        asked = TensorBatch.of(batch)
        if isinstance(self.decider, PairValueSearch):
            return self._by_value(self.decider, asked, rung, generator, seconds)
        return self._by_policy(self.decider, asked, rung, generator)

    def _by_value(
        self,
        search: PairValueSearch,
        batch: TensorBatch,
        rung: str,
        generator: torch.Generator,
        seconds: float,
    ) -> Decoded:
        values = self._values(search.model, batch)
        if rung == "algorithm 1":
            return self._weighed(batch, values.node)
        if self.explore > 0 and rung == "usual":
            cards, propensity = self._drawn(_shortlist(batch, values, seconds), generator)
            logit = self._logit(batch, cards)
            return Decoded(
                cards, logit, torch.full_like(logit, torch.inf), propensity, ("exact, explored",) * len(batch)
            )
        found = cliques.best(
            batch.requests(), as_weights(values.node), symmetric(values.pair), _share(seconds, batch)
        )
        bias = values.bias.double()  # of each request, or one for all
        cards, logit = torch.from_numpy(found.card), torch.from_numpy(found.weight) + bias
        methods = ["exact"] * len(batch)
        if not found.found.all():  # time ran out before any card was found
            rows = torch.from_numpy(np.flatnonzero(~found.found))
            late = self._weighed(batch.rows(rows), values.node[rows])
            cards[rows], logit[rows] = late.cards, late.logit
            for row in rows.tolist():
                methods[row] = "algorithm 1"
        return Decoded(cards, logit, torch.from_numpy(found.bound) + bias, _sure(cards), tuple(methods))

    def _by_policy(
        self, writer: PolicyWriter, batch: TensorBatch, rung: str, generator: torch.Generator
    ) -> Decoded:
        if isinstance(self.compiled, CompiledDecoder) and self.explore == 0 and rung == "usual":
            cards = torch.from_numpy(self.compiled.recommend(batch.arrays()))
            logit = self._logit(batch, cards)
            unproven = torch.full_like(logit, torch.inf)
            return Decoded(cards, logit, unproven, _sure(cards), ("beam",) * len(batch))
        feasible, steps = Feasible.of(batch), writer.policy.steps(batch)
        if rung == "algorithm 1":
            return self._weighed(batch, steps.step(steps.start(1)).squeeze(1))
        if rung == "greedy":
            cards = greedy(steps, feasible)
            propensity, method = _sure(cards), "greedy"
        elif self.explore > 0:
            beams = beam(steps, feasible, max(SHORTLIST, writer.config.beam))
            cards, propensity = self._drawn((beams.cards, torch.isfinite(beams.log_prob).sum(1)), generator)
            method = "beam, explored"
        else:
            cards = writer.recommend(batch)
            propensity, method = _sure(cards), "beam"
        logit = self._logit(batch, cards)
        return Decoded(cards, logit, torch.full_like(logit, torch.inf), propensity, (method,) * len(batch))

    def _weighed(self, batch: TensorBatch, weights: Float[Tensor, "B N"]) -> Decoded:
        cards = greedy_by_weight(weights, Feasible.of(batch))
        logit = self._logit(batch, cards)
        return Decoded(
            cards, logit, torch.full_like(logit, torch.inf), _sure(cards), ("algorithm 1",) * len(batch)
        )

    def _values(self, model: SearchableValue, batch: TensorBatch) -> Values:
        if not isinstance(self.compiled, CompiledPairSearch):
            return model.values(batch)
        node, pair = self.compiled.values(batch.arrays())
        members: Any = model.members
        bias = torch.stack([member.user_bias(member.vectors.user(batch)) for member in members]).mean(0)
        return Values(bias.squeeze(-1), torch.from_numpy(node), torch.from_numpy(pair))

    def _logit(self, batch: TensorBatch, cards: Int[Tensor, "B K"]) -> Float[Tensor, B]:
        value = self.fitted.models.value
        if value is None:
            return torch.full((len(cards),), torch.nan, dtype=torch.float64)
        logits: Tensor = value(batch, cards.unsqueeze(1))
        return logits.squeeze(1).double()

    def _drawn(
        self, listed: tuple[Int[Tensor, "B W K"], Int[Tensor, B]], generator: torch.Generator
    ) -> tuple[Int[Tensor, "B K"], Float[Tensor, B]]:
        """The first card, or, with probability `explore`, any of the shortlist at even odds.

        Of 4 cards at explore = 0.2 the first has 0.8 + 0.2 / 4 = 0.85, each other 0.05.
        """
        cards, count = listed
        coin = torch.rand(2, len(cards), generator=generator)
        place = torch.where(coin[0] < self.explore, (coin[1] * count).long(), 0)
        propensity = self.explore / count.double() + (1 - self.explore) * (place == 0)
        return cards[torch.arange(len(cards)), place], propensity.double()


def _sure(cards: Int[Tensor, "B K"]) -> Float[Tensor, B]:
    """Without chance, the card had to come."""
    return torch.ones(len(cards), dtype=torch.float64)


def _shortlist(
    batch: TensorBatch, values: Values, seconds: float
) -> tuple[Int[Tensor, "B W K"], Int[Tensor, B]]:
    """The best cards by value, and how many there are."""
    ranking = cliques.best_n(
        batch.requests(),
        as_weights(values.node),
        symmetric(values.pair),
        n=SHORTLIST,
        time_limit=_share(seconds, batch),
    )
    return torch.from_numpy(ranking.card), torch.from_numpy(np.maximum(ranking.num_found, 1))


def symmetric(pair: Float[Tensor, "B N N"]) -> Float64[np.ndarray, "B N N"]:
    """Pair values as the engine takes them: a matrix product may differ from its transpose in the last digit."""
    doubled = pair.double()
    return as_weights((doubled + doubled.transpose(1, 2)) / 2)


def _share(seconds: float, batch: TensorBatch) -> float:
    """Half of the time left, shared by all: what is not proven by then is returned with its bound."""
    return max(seconds / 2 / len(batch), 1e-4)


def decoder_of(fitted: Fitted, decider: PolicyWriter | PairValueSearch, explore: float) -> Decoder:
    """The decoder of a trained model."""
    if isinstance(decider, PairValueSearch):
        model = decider.model
        return Decoder(
            fitted, decider, explore, CompiledPairSearch(model) if isinstance(model, PairValue) else None
        )
    # Served by one thread each, and held against the model itself (`checked`): not by the recommender's own engine.
    decider = replace(decider, by_beam=None)
    compiled = CompiledDecoder(decider.policy, threads=1) if decider.config.beam > 1 else None
    return Decoder(fitted, decider, explore, compiled)


@torch.inference_mode()
def checked(decoder: Decoder, batch: Batch) -> Decoder:
    """The decoder without its compiled part, should that not give the model's own answers for this batch.

    A policy must write the same cards; a search may take another card of the same value.
    """
    plain, chance = replace(decoder, compiled=None, explore=0.0), torch.Generator()
    wanted = plain.decode(batch, RUNGS[0], chance, 1.0)
    found = replace(decoder, explore=0.0).decode(batch, RUNGS[0], chance, 1.0)
    if isinstance(decoder.compiled, CompiledDecoder):
        same = torch.equal(wanted.cards, found.cards)
    else:
        same = torch.allclose(wanted.logit, found.logit, rtol=1e-3, atol=1e-3)
    if same:
        return decoder
    log.warning("compiled code does not give this model's own answers: it goes unused")
    return replace(decoder, compiled=None)
