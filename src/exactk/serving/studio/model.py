"""The model as the page sees it: how it weighs one request, the card its policy writes, and its own story.

Knows models through the Recommender's parts, no route.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

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


SKIPPED = {"step", "steps", "epoch", "seconds", "samples_per_second", "learning_rate"}
MAX_CURVES = 6


def story(arm: Arm) -> dict[str, Any]:
    """Facts, curves and table of the model that serves now."""
    state = arm.state()
    rules = arm.loaded.recommender.fitted.constraints.names
    facts = {
        "model": state["kind"].replace("_", " "),
        "version": state["version"],
        "items on a card": state["card_size"],
        "users known": state["users"],
        "items known": state["items"],
        "rules": "; ".join(rules) or "none",
        "serving since": state["since"],
    }
    history = list(arm.loaded.recommender.history)
    return {"facts": facts, "curves": curves(history), "comparison": comparison(arm.folder)}


def curves(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One line per task, event and figure that was reported at least twice."""
    lines: dict[str, list[float]] = {}
    for row in history:
        for name, value in row.items():
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if name in SKIPPED or not number or not math.isfinite(value):
                continue
            when = {"train": "in training", "valid": "on validation"}.get(str(row.get("event")), "")
            title = f"{row.get('task', 'model')}: {name.replace('_', ' ')} {when}".strip()
            lines.setdefault(title, []).append(float(value))
    long = [{"name": name, "values": values[-200:]} for name, values in lines.items() if len(values) > 1]
    return sorted(long, key=lambda line: "validation" not in line["name"])[:MAX_CURVES]


def comparison(folder: Path) -> dict[str, Any] | None:
    """The table of `comparison.json` beside the model, in the shape of every report: rows of named figures."""
    try:
        rows = json.loads((folder / "comparison.json").read_text(encoding="utf-8"))["rows"]
        columns = list(dict.fromkeys(name for row in rows for name in row))[:10]
        cells = [[_cell(row.get(name)) for name in columns] for row in rows[:40]]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None  # there is none, or it is of another make: the model serves all the same
    ours = next((i for i, row in enumerate(cells) if row and "exactk" in str(row[0]).lower()), -1)
    return {"columns": columns, "rows": cells, "ours": ours}


def _cell(value: Any) -> Any:
    if value is None or isinstance(value, str | int | float):
        return value
    return json.dumps(value)
