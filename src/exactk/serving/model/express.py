"""The usual request by tables of the catalogue: known items, the model's own rules, a pair value, exact search.

Knows no HTTP and no ladder. Whatever it cannot answer it leaves to the long way, which gives the same cards by test.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from exactk.data.requests import Request
from exactk.engine.calibration import Calibration
from exactk.engine.card_values import LearnedPairs
from exactk.engine.decide import Decider, ExactDecider, searched
from exactk.engine.pair_value.tables import PairTables
from exactk.engine.reasons import card_of
from exactk.model_folder import TrainedModel
from exactk.problem.solving import Card
from exactk.serving.model.quick import QuickBatches


@dataclass(frozen=True, eq=False)
class Express:
    """Tables of one model, and how its logits become probabilities."""

    quick: QuickBatches
    tables: PairTables
    calibration: Calibration

    @classmethod
    def of(cls, fitted: TrainedModel, decider: Decider, quick: QuickBatches | None) -> Express | None:
        """None where the model is of another kind, or its tables would be too large."""
        if quick is None or not isinstance(decider, ExactDecider) or fitted.weights.value is None:
            return None
        if not isinstance(decider.value, LearnedPairs):
            return None
        weights, values = fitted.weights.value, decider.value.compiled
        tables = PairTables.of(weights, fitted.config.pair_value, values, quick.index, quick.features)
        return None if tables is None else cls(quick, tables, fitted.calibration)

    def cards(self, requests: Sequence[Request], seconds: float) -> list[Card | None] | None:
        """A card for each, proven best within `seconds` or told with its bound; None for what needs the long way."""
        found = self.quick.find(requests)
        if found is None:
            return None
        values = self.tables.values(found.user, found.user_features, found.rows)
        limit = max(seconds / 2 / len(requests), 1e-4)
        decision = searched(found.requests, values, limit, cores=1)
        return [
            card_of(request, decision, row, self.calibration) if decision.found[row] else None
            for row, request in enumerate(requests)
        ]
