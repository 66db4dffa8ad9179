"""Click models: how likely a place of a list is looked at at all, so that a click can be weighed by how easy it was.

Know no recommender. Whoever logged the list decided what stood on top, and what stands on top is clicked more: a
metric that counts logged clicks favours the logging policy. A click on a place that few people look at says more. As a
second judge a model is fitted on the validation part, which no method is judged on.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int64

from exactk.data.assemble import entries
from exactk.data.dataset import Dataset
from exactk.errors import InputError

ROUNDS = 200
SETTLED = 1e-6  # no probability moves further than this in a round
PRIOR = (1.0, 9.0)  # clicks and passes every item is taken to have had: one in ten
LEAST_EXAMINED = 0.05  # a click counts twenty times at the most


class Lists(NamedTuple):
    """Shown lists, one row per shown item, the rows of a request together; positions count from 0, the top."""

    request: Int64[np.ndarray, "R"]
    item: Int64[np.ndarray, "R"]
    position: Int64[np.ndarray, "R"]
    clicked: Bool[np.ndarray, "R"]


class ClickModel(NamedTuple):
    """What was fitted: `attraction` of every item; of every position, how likely it is looked at.

    Under the cascade a person reads from the top and stops at the first click, so that `examined` follows from what
    stands above, and `examination` is its mean.
    """

    kind: str
    examination: Float64[np.ndarray, "P"]
    attraction: Float64[np.ndarray, "I"]

    def examined(self, lists: Lists) -> Float64[np.ndarray, "R"]:
        """How likely each row was looked at."""
        if self.kind == "cascade":
            return reach(lists, self.attraction)
        return np.asarray(self.examination[np.minimum(lists.position, len(self.examination) - 1)])

    def log_likelihood(self, lists: Lists) -> float:
        """The mean log-probability of the clicks as they were; the higher, the better the model tells them."""
        seen = self.examined(lists) if self.kind != "cascade" else read_down_to_click(lists)
        chance = np.clip(seen * self.attraction[lists.item], 1e-9, 1 - 1e-9)
        return float(np.where(lists.clicked, np.log(chance), np.log1p(-chance)).mean())


def fitted_position_based(lists: Lists, num_items: int, prior: tuple[float, float] = PRIOR) -> ClickModel:
    """P(click) = examination of the position x attraction of the item, by expectation maximisation.

    Only the product can be seen: the examination is scaled so that the place looked at most is always looked at.
    """
    _check(lists, num_items)
    clicked, item, position = lists.clicked, lists.item, lists.position
    examination = np.linspace(1.0, 0.5, int(position.max()) + 1)
    attraction = np.full(num_items, prior[0] / sum(prior))
    shown_at = np.maximum(np.bincount(position, minlength=len(examination)), 1)
    shown = np.bincount(item, minlength=num_items) + sum(prior)
    for _ in range(ROUNDS):
        theta, gamma = examination[position], attraction[item]
        passed = np.maximum(1 - theta * gamma, 1e-12)
        looked = np.where(clicked, 1.0, theta * (1 - gamma) / passed)
        drawn = np.where(clicked, 1.0, gamma * (1 - theta) / passed)
        now = np.bincount(position, looked, len(examination)) / shown_at
        liked = (np.bincount(item, drawn, num_items) + prior[0]) / shown
        moved = max(np.abs(now - examination).max(), np.abs(liked - attraction).max())
        examination, attraction = now, liked
        if moved < SETTLED:
            break
    top = examination.max()
    return ClickModel("position-based", examination / top, np.minimum(attraction * top, 1.0))


def fitted_cascade(lists: Lists, num_items: int, prior: tuple[float, float] = PRIOR) -> ClickModel:
    """A person reads from the top until the first click: attraction = clicks / times looked at, in closed form."""
    _check(lists, num_items)
    looked = read_down_to_click(lists)
    first = lists.clicked & (looked > 0)
    attraction = (np.bincount(lists.item, first, num_items) + prior[0]) / (
        np.bincount(lists.item, looked, num_items) + sum(prior)
    )
    num_positions = int(lists.position.max()) + 1
    reached = np.bincount(lists.position, reach(lists, attraction), num_positions)
    shown_at = np.maximum(np.bincount(lists.position, minlength=num_positions), 1)
    return ClickModel("cascade", reached / shown_at, attraction)


def weighed_hits(hit: Float64[np.ndarray, "C"], examined: Float64[np.ndarray, "C"]) -> tuple[float, float]:
    """Clicked item on the card, each click weighed by 1 / how likely its place was looked at; and effective clicks.

    Hits 1, 0 at places looked at with probability 1 and 0.5 make (1 x 1 + 0 x 2) / (1 + 2) = 1/3.
    """
    if not len(hit):
        return float("nan"), 0.0
    weight = 1.0 / np.maximum(examined, LEAST_EXAMINED)
    return float((weight * hit).sum() / weight.sum()), float(weight.sum() ** 2 / (weight**2).sum())


def reach(lists: Lists, attraction: Float64[np.ndarray, "I"]) -> Float64[np.ndarray, "R"]:
    """How likely a person who stops at the first thing they like gets as far as each row."""
    return np.asarray(np.exp(_sum_above(lists, np.log1p(-np.clip(attraction[lists.item], 0, 1 - 1e-12)))))


def read_down_to_click(lists: Lists) -> Float64[np.ndarray, "R"]:
    """1 for rows down to the first click of their request, 0 below it."""
    return (_sum_above(lists, lists.clicked.astype(np.float64)) < 0.5).astype(np.float64)


def _sum_above(lists: Lists, values: Float64[np.ndarray, "R"]) -> Float64[np.ndarray, "R"]:
    """For every row the sum of `values` over the rows of its request that stand above it."""
    order = np.lexsort((lists.position, lists.request))
    taken = values[order]
    before = np.cumsum(taken) - taken
    starts = np.flatnonzero(np.r_[True, np.diff(lists.request[order]) != 0])
    out = np.empty(len(order))
    out[order] = before - np.repeat(before[starts], np.diff(np.r_[starts, len(order)]))
    return out


def _check(lists: Lists, num_items: int) -> None:
    if not len(lists.item):
        raise InputError("a click model needs shown lists with positions, and there are none")
    if int(lists.position.min()) < 0:
        raise InputError("a position must be 0 (the top) or more")
    if int(lists.item.min()) < 0 or int(lists.item.max()) >= num_items:
        raise InputError(f"items must be rows from 0 to {num_items - 1}")


FEWEST_CLICKS = 200  # to fit a click model by


class SecondJudge(NamedTuple):
    """How likely the first clicked place of each test request was looked at, NaN without a click; and the model.

    Of too few clicks to fit one by, only the facts.
    """

    examined: Float64[np.ndarray, "R"] | None
    facts: dict[str, Any]


def second_judge(valid: Dataset, test: Dataset) -> SecondJudge | None:
    """Weights for clicks; None where no lists with positions and clicks are kept."""
    held_out, judged = shown_lists(valid), shown_lists(test)
    if held_out is None or judged is None or not held_out.clicked.any():
        return None
    if held_out.clicked.sum() < FEWEST_CLICKS:
        return SecondJudge(None, {"fitted_on": int(held_out.clicked.sum()), "needed": FEWEST_CLICKS})
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
    index, held = view.folder.index, view.folder.candidate_columns
    if "position" not in view.folder.columns.measured:
        return None
    request, at = entries(index.candidate_start, view.rows)
    owner, click = entries(index.click_start, view.rows)
    clicked = np.isin(at, index.candidate_start[view.rows[owner]] + index.click[click])
    position = held.numbers[at, held.number_names.index("position")]
    known = ~np.isnan(position)
    if not known.any():
        return None
    place = position[known].astype(np.int64)
    item = index.candidates[at[known]].astype(np.int64)
    return Lists(request[known], item, place - place.min(), clicked[known])
