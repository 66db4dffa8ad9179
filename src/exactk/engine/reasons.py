"""Requests that cannot be met: what blocks one, which rules were relaxed; and, after it, why an item is not in.

Knows no search of its own: the exact engine proves, a learned value of cards weighs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Int

from exactk.data.request_batch import RequestBuilder
from exactk.data.requests import Request
from exactk.engine.card_values import LearnedValue, SummedValue
from exactk.engine.decide import Calibration, Decision
from exactk.errors import InfeasibleError, OutOfTimeError
from exactk.problem.batch import Batch
from exactk.problem.brief import with_request
from exactk.problem.deadline import ENDLESS, Deadline
from exactk.problem.exact import cliques
from exactk.problem.graph import Requests
from exactk.problem.rules import explain
from exactk.problem.rules.explain import Conflict, WhyNot
from exactk.problem.rules.rule_set import Constraints
from exactk.problem.rules.sheet import RuleSheet
from exactk.problem.solving import Card


@dataclass(frozen=True)
class RuledBatch:
    """Requests and the batch made of them; `relaxed` names rules let go, `errors` what has no card all the same."""

    requests: Sequence[Request]
    batch: Batch
    constraints: Constraints
    builder: RequestBuilder
    relaxed: tuple[tuple[str, ...], ...] = ()
    errors: tuple[InfeasibleError | OutOfTimeError | None, ...] = ()

    def sheet(self, b: int, deadline: Deadline = ENDLESS) -> RuleSheet:
        """One request laid open, demand by demand."""
        request = self.requests[b]
        columns = self.builder.rule_columns(request, self.constraints.fields)
        present = np.ones((1, len(request.candidates)), bool)
        return RuleSheet.of(
            self.constraints,
            columns,
            request.k,
            present,
            [request.include],
            [request.exclude],
            deadline=deadline,
        )


def with_rules_relaxed(asked: RuledBatch, order: tuple[Any, ...], deadline: Deadline = ENDLESS) -> RuledBatch:
    """Find the requests without a valid card; relax rules in the order given, or say what blocks.

    Each has an equal share of the time left; what is not decided in it stands among the errors.
    """
    explain.check_relaxable(asked.constraints, order)
    count = len(asked.requests)
    possible = cliques.any_card(asked.batch.requests(), deadline, deadline.part(0.5 / count).limit())
    relaxed: list[tuple[str, ...]] = [()] * count
    errors: list[InfeasibleError | OutOfTimeError | None] = [None] * count
    batch = asked.batch
    unmet = np.flatnonzero(~possible.found).tolist()
    for place, b in enumerate(unmet):
        part = deadline.part(1 / (len(unmet) - place))
        where = f"request {b}: " if count > 1 else ""
        try:
            if not possible.proven[b] and not order:
                raise OutOfTimeError(explain.NOT_SETTLED)
            sheet = asked.sheet(b, part)
            eased = explain.relax(sheet, order, part) if order else None
            if eased is None:
                errors[b] = explain.infeasible_error(sheet, where, deadline=part)
                continue
        except OutOfTimeError as error:
            errors[b] = OutOfTimeError(f"{where}{error}")
            continue
        relaxed[b], lighter = eased
        batch = _replaced(batch, b, lighter.requests(lighter.pieces()))
    return replace(asked, batch=batch, relaxed=tuple(relaxed), errors=tuple(errors))


def why_not(
    asked: RuledBatch,
    b: int,
    card: Card,
    value: LearnedValue | None,
    calibration: Calibration,
    deadline: Deadline = ENDLESS,
) -> tuple[WhyNot, ...]:
    """Why each other candidate is not in the card, the cost in click probability.

    A pair value tells the best card that would hold the item; any other value tells the best one that differs from
    the card in one place, and then the cost is an upper limit (`exact` False). Without a value, conflicts only.
    """
    sheet = asked.sheet(b, deadline)
    if card.relaxed:
        sheet = sheet.without([r for r, name in enumerate(sheet.names) if name in card.relaxed])
    one = asked.batch.rows(slice(b, b + 1))
    if isinstance(value, SummedValue) and value.only_pairs:
        bias, node, pair = (part[0] for part in value.values(one))
        N = len(sheet.present)
        pair = np.ascontiguousarray(pair[:N, :N])
        found = explain.why_not(sheet, card.positions, node[:N], pair, deadline=deadline)
        logit = explain.card_value(card.positions, node, pair) + float(bias)
    else:
        found, logit = _by_swaps(sheet, one, card, value)
    return tuple(_in_probability(reason, logit, calibration) for reason in found)


def _by_swaps(
    sheet: RuleSheet, one: Batch, card: Card, value: LearnedValue | None
) -> tuple[tuple[WhyNot, ...], float]:
    """The best single swap that brings each item in, judged by any value of cards."""
    chosen = np.array(card.positions, np.int64)
    swaps = _valid_swaps(one, chosen)
    tried = np.array([chosen, *(swap for _, swap in swaps)])
    logits = np.full(len(tried), np.nan) if value is None else value.logits(one, tried[None])[0]
    best: dict[int, int] = {}
    for number, (position, _) in enumerate(swaps, start=1):
        if position not in best or logits[number] > logits[best[position]]:
            best[position] = number
    reasons = []
    for position in np.flatnonzero(sheet.present & ~sheet.exclude).tolist():
        if position in card.positions:
            continue
        possible = position in best and value is not None
        instead = tried[best[position]].tolist() if possible else []
        reasons.append(
            WhyNot(
                item=sheet.item_ids[position],
                conflicts=_conflicts(sheet, card, position),
                cost=max(float(logits[0] - logits[best[position]]), 0.0) if possible else None,
                instead=tuple(sheet.item_ids[p] for p in instead) if possible else None,
                exact=False,
            )
        )
    return tuple(reasons), float(logits[0])


def _valid_swaps(one: Batch, chosen: Int[np.ndarray, "K"]) -> list[tuple[int, Int[np.ndarray, "K"]]]:
    """Every position not chosen with every set in which it takes one item's place and the rules are kept."""
    others = np.setdiff1d(np.flatnonzero(one.present[0]), chosen)
    tried = np.repeat(chosen[None], len(others) * len(chosen), 0)
    place, position = np.tile(np.arange(len(chosen)), len(others)), np.repeat(others, len(chosen))
    tried[np.arange(len(tried)), place] = position
    sets = np.zeros((len(tried), one.present.shape[1]), bool)
    sets[np.arange(len(tried))[:, None], tried] = True
    # A full card that can be completed is complete.
    kept = cliques.can_complete(one.requests().rows(np.zeros(len(tried), np.int64)), sets)
    return [(int(position[n]), tried[n]) for n in np.flatnonzero(kept)]


def card_of(
    request: Request,
    decision: Decision,
    row: int,
    calibration: Calibration,
    relaxed: tuple[str, ...] = (),
) -> Card:
    """One row of a decision as a card: positions to ids, logits to click probabilities."""
    positions = tuple([place for place in decision.cards[row].tolist() if place >= 0])
    logit, bound = float(decision.logit[row]), float(decision.bound[row])
    value, optimal = calibration.one(logit), bool(decision.optimal[row])
    limit = calibration.one(max(bound, logit)) if math.isfinite(bound) else math.inf
    return Card(
        items=tuple([request.candidates[place] for place in positions]),
        positions=positions,
        value=value,
        bound=value if optimal else limit,
        optimal=optimal,
        relaxed=relaxed,
    )


def _conflicts(sheet: RuleSheet, card: Card, position: int) -> tuple[Conflict, ...]:
    """Chosen items that the item may not join, by pairs; full groups show in the swaps that remain."""
    broken = [
        Conflict(
            sheet.item_ids[p],
            tuple(n for r, n in enumerate(sheet.names) if not sheet.allowed[r, position, p]),
        )
        for p in card.positions
    ]
    return tuple(conflict for conflict in broken if conflict.rules)


def _in_probability(reason: WhyNot, logit: float, calibration: Calibration) -> WhyNot:
    """The same reason, its cost in click probability instead of logits."""
    if reason.cost is None:
        return reason
    return replace(reason, cost=calibration.one(logit) - calibration.one(logit - reason.cost))


def _replaced(batch: Batch, b: int, request: Requests) -> Batch:
    """The batch with request b under lighter rules; caps that were let go leave a row that counts nothing."""
    N = batch.present.shape[1]
    graph, group, cap = batch.graph.copy(), batch.group.copy(), batch.cap.copy()
    count, kept = request.graph.shape[1], request.cap.shape[1]
    graph[b, :count, :count] = request.graph[0]
    group[b], cap[b] = -1, N
    group[b, :kept, :count] = request.group[0]
    cap[b, :kept] = request.cap[0]
    brief = with_request(batch.brief, b, request.brief)
    return replace(batch, graph=graph, group=group, cap=cap, brief=brief)
