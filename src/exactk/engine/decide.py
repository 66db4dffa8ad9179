"""How a trained model decides on cards: THE choice of implementation, for every door.

Knows weights and settings, no ids, no files, no training. A batch comes in, positions go out. A pair value is
searched exactly; a policy writes by compiled beam search, and a learned value, if any, says what its cards are worth.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Float64, Int

from exactk.engine import Weights, part_of
from exactk.engine.card_value.values import CompiledCardValue
from exactk.engine.card_values import LearnedPairs, LearnedValue, NetworkValue, SummedValue
from exactk.engine.decode import CompiledDecoder
from exactk.engine.pair_values import PairValues
from exactk.errors import ConfigError, InfeasibleError
from exactk.problem.batch import Batch, in_tie_order, moved_positions
from exactk.problem.exact import cliques
from exactk.problem.graph import Requests
from exactk.settings.config import Config, InputSizes


class ModelWeights(NamedTuple):
    """What a model learned, by name: a policy, a value of cards, or both."""

    policy: Weights | None = None
    value: Weights | None = None


@dataclass(frozen=True)
class Calibration:
    """From the logit of a card to a click probability one can trust (Platt): p = sigmoid(scale x logit + shift).

    It never changes which card is best; `learning.calibrate` fits it on validation data.
    """

    scale: float = 1.0
    shift: float = 0.0

    def __call__(self, logits: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
        """The trustworthy probability."""
        return np.asarray(0.5 + 0.5 * np.tanh((self.scale * logits + self.shift) / 2))

    def one(self, logit: float) -> float:
        """The same of a single number, sooner."""
        return 0.5 + 0.5 * math.tanh((self.scale * logit + self.shift) / 2)


class Decision(NamedTuple):
    """Cards as positions (-1 beyond a card's size), the logit of their value, and what no valid card exceeds.

    Positions ascend; where a brief gives cards places, they stand in the order of those.

    The bound is infinite where nothing is proven, and the logit NaN where no value was learned. Where nothing was
    found the card is all -1; `optimal` then says that there is none.
    """

    cards: Int[np.ndarray, "B K"]
    logit: Float64[np.ndarray, "B"]
    bound: Float64[np.ndarray, "B"]
    optimal: Bool[np.ndarray, "B"]
    found: Bool[np.ndarray, "B"]


@dataclass(frozen=True, eq=False)
class ExactDecider:
    """The card with the highest learned value, found and proven by the clique engine."""

    value: SummedValue
    cores: int | None = None  # that share a batch; all of them if not given

    def recommend(self, batch: Batch) -> Int[np.ndarray, "B K"]:
        """One valid card per request, ascending positions."""
        return cards_of(self.decide(batch), batch)

    def decide(self, batch: Batch, seconds: float | None = None, prove_seconds: float = 0.0) -> Decision:  # noqa: ARG002 - proven as it is
        """The best cards; with `seconds` (for each request) the best found by then, and how good a card may be."""
        return order_free(lambda ordered: self.best(ordered, self.value.values(ordered), seconds), batch)

    def best(self, batch: Batch, values: PairValues, seconds: float | None = None) -> Decision:
        """The same, the values known already."""
        return searched(batch.requests(), values, seconds, self.cores)


@dataclass(frozen=True, eq=False)
class PolicyDecider:
    """Cards written by the policy, their value estimated by the reward model."""

    decoder: CompiledDecoder
    value: LearnedValue | None
    guided: bool  # by the very value that judges: its numbers are then computed once

    def recommend(self, batch: Batch) -> Int[np.ndarray, "B K"]:
        """One valid card per request."""
        ordered, order = in_tie_order(batch)
        return in_order(moved_positions(self.decoder.recommend(ordered), order), batch)

    def decide(self, batch: Batch, seconds: float | None = None, prove_seconds: float = 0.0) -> Decision:  # noqa: ARG002 - a beam takes what it takes
        """The cards and their value; a reward that is a pair value proves a bound where seconds are given for it."""
        return order_free(lambda ordered: self._decided(ordered, prove_seconds), batch)

    def _decided(self, batch: Batch, prove_seconds: float) -> Decision:
        values = self.value.values(batch) if isinstance(self.value, SummedValue) else None
        written = self.decoder.write(batch, values=values if self.guided else None)
        cards, found = written.cards[:, 0], written.num_found > 0
        # In order of choice: the paper's form reads cards as lists.
        logit = np.full(len(cards), np.nan)
        held = None if values is None else PairValues(*(part[found] for part in values))
        if found.any():
            logit[found] = self.logit(batch if found.all() else batch.rows(found), cards[found], held)
        cards = in_order(cards, batch)
        bound = np.full(len(cards), np.inf)
        if values is not None and prove_seconds > 0 and isinstance(self.value, SummedValue):
            if not self.value.only_pairs:
                return Decision(cards, logit, bound, ~found, found)
            proven = cliques.best(batch.requests(), values.node, values.pair, prove_seconds)
            bound = np.maximum(proven.bound + values.bias, logit)
        return Decision(cards, logit, bound, ~found | (bound - logit <= 1e-9), found)

    def logit(
        self, batch: Batch, cards: Int[np.ndarray, "B K"], values: PairValues | None = None
    ) -> Float64[np.ndarray, "B"]:
        """What the learned value says of one card per request; NaN where none was learned."""
        if self.value is None:
            return np.full(len(cards), np.nan)
        if values is not None and isinstance(self.value, SummedValue):
            return self.value.of(values, batch, cards[:, None])[:, 0]
        return self.value.logits(batch, cards[:, None])[:, 0]


Decider = ExactDecider | PolicyDecider


def decider_of(
    config: Config, weights: ModelWeights, sizes: InputSizes, card_size: int, threads: int | None = None
) -> Decider:
    """The decider of a trained model; `threads` (all cores if not given) share a batch."""
    value = None if weights.value is None else card_value_of(weights.value, config, sizes, card_size, threads)
    if weights.policy is not None:
        decoder = CompiledDecoder(weights.policy, config.policy, sizes, config.pair_value, threads)
        return PolicyDecider(decoder, value, guided_by(weights.policy, weights.value))
    if not isinstance(value, SummedValue) or not value.only_pairs:
        raise ConfigError("this model has neither a policy nor a value to search")
    return ExactDecider(value, threads)


def order_free(decide: Callable[[Batch], Decision], batch: Batch) -> Decision:
    """What is decided of the candidates in the one order that does not depend on how they came.

    So neither ties, nor what rounding makes of sums, can show in which order somebody listed the candidates.
    """
    ordered, order = in_tie_order(batch)
    decision = decide(ordered)
    return decision._replace(cards=in_order(moved_positions(decision.cards, order), batch))


def in_order(cards: Int[np.ndarray, "B K"], batch: Batch) -> Int[np.ndarray, "B K"]:
    """Cards written in order of choice in the order of the candidates; where cards have places, as they are."""
    if batch.brief is not None and batch.brief.has_slots:
        return cards
    last = batch.item.shape[1]
    ordered = np.sort(np.where(cards < 0, last, cards), axis=1)
    return np.where(ordered == last, -1, ordered)


def card_value_of(
    weights: Weights, config: Config, sizes: InputSizes, card_size: int, threads: int | None = None
) -> LearnedValue:
    """The value the settings describe."""
    if config.model == "card_value" and sizes.columns:
        return CompiledCardValue(weights, config, sizes, threads)
    if config.model != "policy" or config.reward.kind == "pair":
        return LearnedPairs(weights, config, sizes)
    return NetworkValue(weights, config.reward, sizes, card_size)


def guided_by(policy: Weights, value: Weights | None) -> bool:
    """Whether a policy's guide is this very value."""
    guide = part_of(policy, "guide.value")
    same = value is not None and all(np.array_equal(guide[name], value[name]) for name in guide)
    return bool(guide) and same


def searched(
    requests: Requests, values: PairValues, seconds: float | None = None, cores: int | None = None
) -> Decision:
    """The best cards under these values."""
    found = cliques.best(requests, values.node, values.pair, seconds, cores)
    logit, bound = found.weight + values.bias, found.bound + values.bias
    return Decision(found.card, logit, bound, found.optimal, found.found)


def cards_of(decision: Decision, batch: Batch) -> Int[np.ndarray, "B K"]:
    """The cards; a request without one is refused by number."""
    if not decision.found.all():
        b = int(np.flatnonzero(~decision.found)[0])
        raise InfeasibleError(
            f"request {b} of the batch has no valid card of {int(batch.card_size[b])} items"
            + ("" if decision.optimal[b] else " that was found in time")
        )
    return decision.cards
