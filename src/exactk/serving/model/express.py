"""The usual request, answered without torch: known items, the model's own rules, a pair value, exact search.

Knows no HTTP and no ladder. Whatever it cannot answer it leaves to the long way, which gives the same cards by test.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from exactk.data.requests import Request
from exactk.engine.calibration import Calibration
from exactk.engine.pair_value.tables import PairTables
from exactk.model_folder import Fitted
from exactk.models.pairvalue import PairValue
from exactk.problem.exact import cliques
from exactk.problem.solving import Card
from exactk.serving.model.quick import QuickBatches
from exactk.serving.model.trials import trial_requests
from exactk.tensors import TensorBatch

log = logging.getLogger("exactk.serving")

TOLERANCE = 1e-3  # of a value: tables that stray further from the model were not made for it


@dataclass(frozen=True, eq=False)
class Express:
    """Tables of one model, and how its logits become probabilities."""

    quick: QuickBatches
    tables: PairTables
    calibration: Calibration

    @classmethod
    def of(cls, fitted: Fitted, quick: QuickBatches | None) -> Express | None:
        """None where the model is of another kind, or the tables do not give what the model gives."""
        model = fitted.models.value
        if quick is None or fitted.models.policy is not None or not isinstance(model, PairValue):
            return None
        features = None if quick.features is None else torch.from_numpy(quick.features)
        tables = PairTables.of(model, torch.from_numpy(quick.index), features)
        if tables is None:
            return None
        express = cls(quick, tables, fitted.calibration)
        if not express.agrees(model, trial_requests(fitted)):
            log.warning("the quick way does not give this model's values: it goes unused")
            return None
        return express

    def cards(self, requests: Sequence[Request], seconds: float) -> list[Card | None] | None:
        """A card for each, proven best within `seconds` or told with its bound; None for what needs the long way."""
        found = self.quick.find(requests)
        if found is None:
            return None
        bias, node, pair = self.tables.values(found.user, found.user_features, found.rows)
        best = cliques.best(found.requests, node, pair, max(seconds / 2 / len(requests), 1e-4), cores=1)
        columns = zip(
            requests, best.card.tolist(), (best.weight + bias).tolist(), (best.bound + bias).tolist(),
            best.found.tolist(), best.optimal.tolist(), strict=True,
        )  # fmt: skip
        return [self._card(*each) if each[4] else None for each in columns]

    def _card(
        self, request: Request, positions: list[int], logit: float, bound: float, _: bool, optimal: bool
    ) -> Card:
        chosen = tuple(positions[: request.k])
        value = self.calibration.one(logit)
        return Card(
            items=tuple([request.candidates[place] for place in chosen]),
            positions=chosen,
            value=value,
            bound=value if optimal else self.calibration.one(max(bound, logit)),
            optimal=optimal,
        )

    @torch.inference_mode()
    def agrees(self, model: PairValue, requests: Sequence[Request]) -> bool:
        """Whether the tables give the model's own values for these requests."""
        found, batch = self.quick.find(requests), self.quick.batch(requests)
        if found is None or batch is None:
            return False
        ours = self.tables.values(found.user, found.user_features, found.rows)
        present = found.requests.present
        both = present[:, :, None] & present[:, None, :]
        shown: tuple[Any, ...] = (slice(None), present, both)
        return all(
            np.allclose(mine[at], theirs.double().numpy()[at], rtol=TOLERANCE, atol=TOLERANCE)
            for mine, theirs, at in zip(ours, model.values(TensorBatch.of(batch)), shown, strict=True)
        )
