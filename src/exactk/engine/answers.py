"""Requests to cards, each as if asked alone: rules let go where a caller allows, reasons on asking, cards as a table.

Knows no door and no search: the exact engine proves, a learned value of cards weighs. What is wrong with one request is
found by halving, so that no other suffers for it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from jaxtyping import Int

from exactk.data.requests import Request
from exactk.data.requests.builder import RequestBuilder
from exactk.engine.card_values import LearnedValue, SummedValue
from exactk.engine.decide import Calibration, Decider, Decision
from exactk.errors import ExactKError, InfeasibleError, InputError, OutOfTimeError, without_place
from exactk.problem.batch import Batch
from exactk.problem.brief import card_worth, with_request
from exactk.problem.deadline import ENDLESS, Deadline
from exactk.problem.exact import cliques
from exactk.problem.given import GivenRequests
from exactk.problem.graph import Requests
from exactk.problem.reading import RelaxOrder
from exactk.problem.rules import explain
from exactk.problem.rules.constraints import Constraints
from exactk.problem.rules.explain import Conflict, WhyNot
from exactk.problem.rules.sheet import RuleSheet
from exactk.problem.solving import Card, broken_preferences


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
    for row, b in enumerate(open_rows):
        card = card_of(asked, b, decision, row, asking.calibration)
        if asking.explain:
            card = replace(card, reasons=why_not(asked, b, card, asking.decider.value, asking.calibration))
        found[b] = card
    return found


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
        asked = GivenRequests(columns, request.k, None, [request.include], [request.exclude])
        return RuleSheet.of(self.constraints, asked, deadline)


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
        logit = card_worth(asked.batch.brief, b, card.positions, node, pair) + float(bias)
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
        cost, instead = None, None
        if position in best and value is not None:
            cost = max(float(logits[0] - logits[best[position]]), 0.0)
            instead = tuple(sheet.item_ids[p] for p in tried[best[position]].tolist())
        conflicts = _conflicts(sheet, card, position)
        reasons.append(WhyNot(sheet.item_ids[position], conflicts, cost, instead, exact=False))
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


def card_of(asked: RuledBatch, b: int, decision: Decision, row: int, calibration: Calibration) -> Card:
    """One row of a decision as the card of request b: positions to ids, logits to click probabilities."""
    request, relaxed = asked.requests[b], asked.relaxed[b] if asked.relaxed else ()
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
        broken=broken_preferences(asked.constraints.without(relaxed), asked.batch.brief, b, positions),
    )


def _conflicts(sheet: RuleSheet, card: Card, position: int) -> tuple[Conflict, ...]:
    """Chosen items that the item may not join, by pairs; full groups show in the swaps that remain."""
    names = np.array(sheet.names, object)
    broken = [(p, tuple(names[~sheet.allowed[:, position, p]])) for p in card.positions]
    return tuple(Conflict(sheet.item_ids[p], rules) for p, rules in broken if rules)


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


def cards_table(
    request_ids: Sequence[Any], users: Sequence[Any], answers: Sequence[Card | ExactKError]
) -> pa.Table:
    """request_id, user_id, card (ids), value, bound, relaxed, and the problem where there is no card."""
    rows = [
        (list(answer.items), _known(answer.value), _known(answer.bound), answer.relaxed, None)
        if isinstance(answer, Card)
        else (None, None, None, (), without_place(answer))
        for answer in answers
    ]
    card, value, bound, relaxed, problem = zip(*rows, strict=True) if rows else ((),) * 5
    return pa.table({
        "request_id": pa.array(request_ids), "user_id": pa.array(users), "card": pa.array(card),
        "value": pa.array(value, pa.float64()), "bound": pa.array(bound, pa.float64()),
        "relaxed": pa.array(relaxed, pa.list_(pa.string())), "problem": pa.array(problem, pa.string()),
    })  # fmt: skip


def in_the_library_of(frame: Any, table: pa.Table) -> Any:
    """The table as pandas, polars or Arrow, as `frame` is."""
    # Imported here: services answer without frames.
    import narwhals as nw

    known = nw.from_native(frame)
    return nw.from_arrow(table, backend=known.implementation).to_native()


def named_error(error: ExactKError, request_id: Any) -> ExactKError:
    """The same error, of the request that its caller knows by this name."""
    named = copy(error)
    named.args = (f"request {request_id!r}: {without_place(error)}",)
    return named


def _known(number: float) -> float | None:
    return number if math.isfinite(number) else None
