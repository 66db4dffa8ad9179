"""One batch to cards, by the rung of the ladder that time allows: as trained, greedy, Algorithm 1.

Knows the engine's deciders, no ids and no clock. Also what makes the serving policy: with exploration, a card is drawn
from a shortlist, and its exact probability is told.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Float64, Int

from exactk.engine.decide import Decider, Decision, ExactDecider, PolicyDecider, in_order
from exactk.engine.pair_values import PairValues
from exactk.problem.batch import Batch, in_tie_order, moved_positions
from exactk.problem.exact import cliques
from exactk.problem.greedy import safe_node_weight

RUNGS = ("usual", "greedy", "algorithm 1")
SHORTLIST = 8  # cards to explore among


class Decoded(NamedTuple):
    """Cards of a batch, how likely each was to be drawn, and how it was found."""

    decision: Decision
    propensity: Float64[np.ndarray, "B"]
    methods: tuple[str, ...]


@dataclass(frozen=True)
class Decoder:
    """A trained model's decider and how it is used when serving."""

    decider: Decider
    explore: float = 0.0

    def decode(self, batch: Batch, rung: str, generator: np.random.Generator, seconds: float) -> Decoded:
        """Cards by one rung. `seconds` is the time left: an exact search stops by then, with what it has."""
        ordered, order = in_tie_order(batch)
        found = self._decoded(ordered, rung, generator, seconds)
        cards = in_order(moved_positions(found.decision.cards, order), batch)
        return found._replace(decision=found.decision._replace(cards=cards))

    def _decoded(self, batch: Batch, rung: str, generator: np.random.Generator, seconds: float) -> Decoded:
        if isinstance(self.decider, ExactDecider):
            return self._by_value(self.decider, batch, rung, generator, seconds)
        return self._by_policy(self.decider, batch, rung, generator)

    def _by_value(
        self, decider: ExactDecider, batch: Batch, rung: str, generator: np.random.Generator, seconds: float
    ) -> Decoded:
        values = decider.value.values(batch)
        if rung == "algorithm 1":
            cards = safe_node_weight(batch.requests(), values.node)
            return _sure(_unproven(cards, decider.value.of(values, batch, cards[:, None])[:, 0]), rung)
        if self.explore > 0 and rung == "usual":
            cards, propensity = self._drawn(*_shortlist(batch, values, seconds), generator)
            logit = decider.value.of(values, batch, cards[:, None])[:, 0]
            return Decoded(_unproven(cards, logit), propensity, ("exact, explored",) * len(batch))
        decision = decider.best(batch, values, _share(seconds, batch))
        late = np.flatnonzero(~decision.found)
        if not len(late):
            return _sure(decision, "exact")
        # Time ran out before any card was found.
        some, weights = batch.rows(late), values.node[late]
        found = safe_node_weight(some.requests(), weights)
        decision.cards[late, : found.shape[1]] = found
        decision.logit[late] = decider.value.logits(some, found[:, None])[:, 0]
        methods = np.where(decision.found, "exact", "algorithm 1").tolist()
        return Decoded(decision, np.ones(len(batch)), tuple(methods))

    def _by_policy(
        self, decider: PolicyDecider, batch: Batch, rung: str, generator: np.random.Generator
    ) -> Decoded:
        if rung == "algorithm 1":
            cards = safe_node_weight(batch.requests(), decider.decoder.scores(batch).astype(np.float64))
        elif rung == "greedy":
            cards = decider.decoder.with_beam(1).recommend(batch)
        elif self.explore > 0:
            wide = decider.decoder.with_beam(max(SHORTLIST, decider.decoder.beam))
            written = wide.write(batch, kept=SHORTLIST)
            cards, propensity = self._drawn(written.cards, written.num_found, generator)
            decision = _unproven(in_order(cards, batch), decider.logit(batch, cards))
            return Decoded(decision, propensity, ("beam, explored",) * len(batch))
        else:
            return _sure(decider.decide(batch), "beam")
        return _sure(_unproven(in_order(cards, batch), decider.logit(batch, cards)), rung)

    def _drawn(
        self, cards: Int[np.ndarray, "B W K"], count: Int[np.ndarray, "B"], generator: np.random.Generator
    ) -> tuple[Int[np.ndarray, "B K"], Float64[np.ndarray, "B"]]:
        """The first card, or, with probability `explore`, any of the shortlist at even odds.

        Of 4 cards at explore = 0.2 the first has 0.8 + 0.2 / 4 = 0.85, each other 0.05.
        """
        coin = generator.random((2, len(cards)))
        place = np.where(coin[0] < self.explore, (coin[1] * count).astype(np.int64), 0)
        propensity = self.explore / count + (1 - self.explore) * (place == 0)
        return cards[np.arange(len(cards)), place], propensity


def _unproven(cards: Int[np.ndarray, "B K"], logit: Float[np.ndarray, "B"]) -> Decision:
    """Cards of which nothing more is known."""
    never = np.zeros(len(cards), bool)
    return Decision(cards, logit, np.full(len(cards), np.inf), never, ~never)


def _sure(decision: Decision, method: str) -> Decoded:
    """Without chance, the card had to come."""
    return Decoded(decision, np.ones(len(decision.cards)), (method,) * len(decision.cards))


def _shortlist(
    batch: Batch, values: PairValues, seconds: float
) -> tuple[Int[np.ndarray, "B W K"], Int[np.ndarray, "B"]]:
    """The best cards by value, and how many there are."""
    limit = _share(seconds, batch)
    ranking = cliques.best_n(batch.requests(), values.node, values.pair, n=SHORTLIST, time_limit=limit)
    return ranking.card, np.maximum(ranking.num_found, 1)


def _share(seconds: float, batch: Batch) -> float:
    """Half of the time left, shared by all: what is not proven by then is returned with its bound."""
    return max(seconds / 2 / len(batch), 1e-4)
