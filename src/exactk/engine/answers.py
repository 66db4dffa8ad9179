"""Requests to cards, each as if asked alone: one batch, rules let go where a caller allows it, reasons on asking.

Knows no door. What is wrong with one request is found by halving, so that no other suffers for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from exactk.data.request_batch import RequestBuilder
from exactk.data.requests import Request
from exactk.engine.decide import Calibration, Decider
from exactk.engine.reasons import RuledBatch, card_of, why_not, with_rules_relaxed
from exactk.errors import InputError
from exactk.problem.given import RelaxOrder
from exactk.problem.rules.constraints import Constraints


@dataclass(frozen=True)
class Asking:
    """How requests are answered; `raises`: the first error is raised, else each stands in the place of its card."""

    builder: RequestBuilder
    decider: Decider
    calibration: Calibration
    rules: Constraints
    relax: RelaxOrder = ()
    explain: bool = False
    prove_seconds: float = 0.0
    raises: bool = True


def answers(asking: Asking, requests: Sequence[Request]) -> list[Any]:
    """A card for each request, or the error in its place."""
    try:
        batch = asking.builder.batch(requests, asking.rules)
        asked = with_rules_relaxed(
            RuledBatch(requests, batch, asking.rules, asking.builder), tuple(asking.relax)
        )
        failed = [error for error in asked.errors if error is not None]
        if failed and asking.raises:
            raise failed[0]
        found: list[Any] = list(asked.errors)
        open_rows = [b for b, error in enumerate(asked.errors) if error is None]
        if not open_rows:
            return found
        decision = asking.decider.decide(
            asked.batch.rows(np.array(open_rows)), prove_seconds=asking.prove_seconds
        )
    except InputError as error:  # from the model, too: a size of card it was not made for
        if asking.raises or not len(requests):
            raise
        if len(requests) == 1:
            return [InputError(getattr(error, "reason", str(error)))]
        half = len(requests) // 2
        return [*answers(asking, requests[:half]), *answers(asking, requests[half:])]
    listed = list(requests)
    for row, b in enumerate(open_rows):
        card = card_of(listed[b], decision, row, asking.calibration, asked.relaxed[b])
        if asking.explain:
            card = replace(card, reasons=why_not(asked, b, card, asking.decider.value, asking.calibration))
        found[b] = card
    return found
