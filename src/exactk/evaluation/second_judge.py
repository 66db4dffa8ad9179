"""A second judge beside counted clicks, for logs of lists with positions: clicks weighed by a click model.

Knows datasets and click models; no recommender. The model is fitted on the validation part, which no method is
judged on; of the two kinds the one that explains its clicks better is used.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float64

from exactk.data.dataset import Dataset
from exactk.evaluation.click_models import Lists, fitted_cascade, fitted_position_based

FEWEST_CLICKS = 200  # to fit a click model by


class SecondJudge(NamedTuple):
    """How likely the first clicked place of each test request was looked at, NaN without a click; and the model."""

    examined: Float64[np.ndarray, "R"]
    facts: dict[str, Any]


def second_judge(valid: Dataset, test: Dataset) -> SecondJudge | None:
    """Weights for clicks; None where no lists with positions and clicks are kept, or too few."""
    held_out, judged = shown_lists(valid), shown_lists(test)
    if held_out is None or judged is None or held_out.clicked.sum() < FEWEST_CLICKS:
        return None
    num_items = len(test.folder.items)
    models = [fitted_position_based(held_out, num_items), fitted_cascade(held_out, num_items)]
    fits = [model.log_likelihood(held_out) for model in models]
    model = models[int(np.argmax(fits))]
    examined = model.examined(judged)
    first = np.full(len(test), np.nan)
    rows = np.flatnonzero(judged.clicked)[::-1]  # the first click is written last
    first[judged.request[rows]] = examined[rows]
    facts = {
        "kind": model.kind,
        "examination": [round(float(x), 4) for x in model.examination],
        "log_likelihood": {m.kind: round(fit, 5) for m, fit in zip(models, fits, strict=True)},
        "fitted_on": int(held_out.clicked.sum()),
    }
    return SecondJudge(first, facts)


def shown_lists(view: Dataset) -> Lists | None:
    """Candidates of every request with the place they were shown at; None where the log keeps no places."""
    vocabulary = view.take(slice(0, 1)).vocabulary(texts=False)
    request, item, position, clicked = [], [], [], []
    index, done = view.folder.index, 0
    for batch in view.batches(vocabulary, 4096):
        if batch.position is None or batch.clicks is None:
            return None
        rows = view.rows[done : done + len(batch)]
        known = batch.present & ~np.isnan(batch.position)
        owner, place = np.nonzero(known)
        request.append(owner + done)
        item.append(index.candidates[index.candidate_start[rows][owner] + place].astype(np.int64))
        position.append(batch.position[known].astype(np.int64))
        clicked.append(batch.clicks[known] > 0)
        done += len(batch)
    if not request:
        return None
    at = np.concatenate(position)
    if not len(at):
        return None
    return Lists(np.concatenate(request), np.concatenate(item), at - at.min(), np.concatenate(clicked))
