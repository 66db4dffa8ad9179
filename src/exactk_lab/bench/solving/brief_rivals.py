"""General solvers on requests under a brief, each with the best formulation we found for it.

Knows nothing of our engine. Values are in tenths, so that weights of places keep them whole.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from exactk_lab.bench.solving.brief_instances import FLAT_WEIGHT, BriefInstance
from exactk_lab.bench.solving.exact_rivals import (
    LinearConstraint,
    Solve,
    cp_model,
    cp_sat_solve,
    highs_solve,
    sparse,
)


def clash_costs(instance: BriefInstance) -> list[tuple[np.ndarray, int]]:
    """For each colour its members, and how many of them may be chosen: the k-th costs k - 1 clashes more."""
    if instance.colour is None:
        return []
    members = [np.flatnonzero(instance.colour == value) for value in np.unique(instance.colour)]
    return [(own, min(len(own), instance.card_size)) for own in members if len(own) > 1]


def brief_cp_sat(instance: BriefInstance, limit: float) -> Solve:
    """CP-SAT on one worker: an item, an item in a place, a value shown and a pair are Booleans each."""
    N, K = len(instance.node), instance.card_size
    model = cp_model.CpModel()
    chosen = [model.new_bool_var("") for _ in range(N)]
    model.add(sum(chosen) == K)
    for row in instance.rows:
        total = sum(int(c) * x for c, x in zip(row.coefficient, chosen, strict=True) if c)
        if row.lower is not None:
            model.add(total >= row.lower)
        if row.upper is not None:
            model.add(total <= row.upper)
    for values, least in instance.varieties:
        shown = []
        for value in np.unique(values):
            seen = model.new_bool_var("")
            model.add_bool_or([chosen[i] for i in np.flatnonzero(values == value)] + [seen.negated()])
            shown.append(seen)
        model.add(sum(shown) >= least)
    terms: list[Any] = []
    if instance.slot_weight is None or instance.eligible is None:
        terms += [FLAT_WEIGHT * int(w) * x for w, x in zip(instance.node, chosen, strict=True)]
    else:
        stands = [
            {i: model.new_bool_var("") for i in np.flatnonzero(instance.eligible[s]).tolist()}
            for s in range(K)
        ]
        for s in range(K):
            model.add_exactly_one(stands[s].values())
            terms += [int(instance.slot_weight[s]) * int(instance.node[i]) * y for i, y in stands[s].items()]
        for i in range(N):
            model.add(sum(stands[s][i] for s in range(K) if i in stands[s]) == chosen[i])
    for own, most in clash_costs(instance):
        extra = [model.new_bool_var("") for _ in range(most - 1)]
        model.add(sum(chosen[i] for i in own) <= 1 + sum(extra))
        terms += [-FLAT_WEIGHT * instance.clash * (k + 1) * t for k, t in enumerate(extra)]
    if instance.pair is not None:
        for i, j in zip(*(ends.tolist() for ends in np.triu_indices(N, 1)), strict=True):
            weight = int(instance.pair[i, j])
            both = model.new_bool_var("")
            if weight > 0:
                model.add_implication(both, chosen[i])
                model.add_implication(both, chosen[j])
            else:
                model.add_bool_or(chosen[i].negated(), chosen[j].negated(), both)
            terms.append(FLAT_WEIGHT * weight * both)
    model.maximize(sum(terms))
    return cp_sat_solve(model, limit, FLAT_WEIGHT)


class LinearProgram:
    """Columns and rows of a linear program, as they come."""

    def __init__(self) -> None:
        self.weight: list[float] = []
        self.whole: list[int] = []
        self.entries: list[tuple[int, int, float]] = []
        self.lower: list[float] = []
        self.upper: list[float] = []

    def columns(self, weights: Any, whole: bool) -> np.ndarray:
        """New columns; returns their numbers."""
        first = len(self.weight)
        self.weight += [float(w) for w in weights]
        self.whole += [int(whole)] * (len(self.weight) - first)
        return np.arange(first, len(self.weight))

    def row(self, columns: Any, values: Any, lower: float = -np.inf, upper: float = np.inf) -> None:
        """A new row."""
        number = len(self.lower)
        values = np.broadcast_to(values, np.shape(columns))
        self.entries += [(number, int(c), float(v)) for c, v in zip(columns, values, strict=True)]
        self.lower.append(lower)
        self.upper.append(upper)


def brief_highs(instance: BriefInstance, limit: float) -> Solve:
    """HiGHS through scipy: the same model; for each item the sum of its pairs = (K-1) times itself."""
    N, K = len(instance.node), instance.card_size
    table = LinearProgram()
    flat = instance.slot_weight is None or instance.eligible is None
    chosen = table.columns(instance.node if flat else np.zeros(N), whole=True)
    table.row(chosen, 1, K, K)
    for row in instance.rows:
        low = -np.inf if row.lower is None else row.lower
        table.row(chosen, row.coefficient, low, np.inf if row.upper is None else row.upper)
    for values, least in instance.varieties:
        kinds = np.unique(values)
        shown = table.columns(np.zeros(len(kinds)), whole=True)
        for seen, value in zip(shown, kinds, strict=True):
            own = chosen[values == value]
            table.row([*own, seen], [1] * len(own) + [-1], 0)
        table.row(shown, 1, least)
    if not flat:
        assert instance.slot_weight is not None
        assert instance.eligible is not None
        placed: list[list[int]] = [[] for _ in range(N)]
        for s in range(K):
            own = np.flatnonzero(instance.eligible[s])
            stands = table.columns(instance.slot_weight[s] / FLAT_WEIGHT * instance.node[own], whole=True)
            table.row(stands, 1, 1, 1)
            for i, column in zip(own.tolist(), stands.tolist(), strict=True):
                placed[i].append(column)
        for i in range(N):
            table.row([*placed[i], chosen[i]], [1] * len(placed[i]) + [-1], 0, 0)
    for own, most in clash_costs(instance):
        extra = table.columns([-instance.clash * (k + 1) for k in range(most - 1)], whole=True)
        table.row([*chosen[own], *extra], [1] * len(own) + [-1] * len(extra), upper=1)
    if instance.pair is not None:
        first, second = np.triu_indices(N, 1)
        both = table.columns(instance.pair[first, second], whole=False)
        for pair, i, j in zip(both.tolist(), first.tolist(), second.tolist(), strict=True):
            table.row([pair, chosen[i]], [1, -1], upper=0)
            table.row([pair, chosen[j]], [1, -1], upper=0)
        for i in range(N):
            of_item = both[(first == i) | (second == i)]
            table.row([*of_item, chosen[i]], [1] * len(of_item) + [-(K - 1)], 0, 0)
    numbers, columns, values = (np.array(part) for part in zip(*table.entries, strict=True))
    shape = (len(table.lower), len(table.weight))
    rules = LinearConstraint(
        sparse.csr_array((values, (numbers.astype(int), columns.astype(int))), shape=shape),
        np.array(table.lower),
        np.array(table.upper),
    )
    return highs_solve(np.array(table.weight), rules, np.array(table.whole), limit, FLAT_WEIGHT)


BRIEF_RIVALS = {"CP-SAT": brief_cp_sat, "HiGHS": brief_highs}
