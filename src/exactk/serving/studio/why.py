"""Why: what each rule of a request does and costs, why each item is on the card, or what keeps it out and at what cost.

Knows a scene and the rules' arrays. A rule that is off is looked at, too: the card may break it. Items left out are
explained by `problem/rules/explain.py`; here they get their words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np

from exactk.errors import ConfigError, InputError, OutOfTimeError
from exactk.problem.brief import Brief, breaks
from exactk.problem.deadline import ENDLESS, Deadline
from exactk.problem.given import GivenRequests
from exactk.problem.graph import Requests, is_valid_card
from exactk.problem.rules.counting import Count, Prefer, Share, Total, Variety
from exactk.problem.rules.explain import WhyNot, why_not
from exactk.problem.rules.places import Slots
from exactk.problem.rules.rule_set import Constraint, Constraints
from exactk.problem.rules.sheet import Demand, RuleSheet
from exactk.serving.http.wire import columns_of, constraints_of
from exactk.serving.schemas import Switch
from exactk.serving.studio.scene import Scene

NOT_WORKED_OUT = "Not worked out in the time there was."
NO_CARD = "No card of this size exists, so nothing can be chosen."


def reasons(
    scene: Scene, best: Mapping[str, Any] | None, deadline: Deadline = ENDLESS
) -> tuple[list[dict[str, Any]], bool]:
    """One reason an item, in order, and whether there was time for all of them."""
    N = len(scene.items)
    if best is None:
        return [_reason(scene, i, [], NO_CARD) for i in range(N)], True
    chosen: list[int] = best["positions"]
    reason, finished = _of_the_card(scene, best, deadline.part(0.2))
    barred = np.flatnonzero(scene.sheet.exclude).tolist()
    reason |= {i: _reason(scene, i, chosen, "Out, because you said never.") for i in barred}
    open_ = [i for i in range(N) if i not in reason]
    said = why_not(scene.sheet, chosen, scene.weights.scores, scene.weights.pairs, open_, deadline)
    reason |= {i: _left_out(scene, i, best, why) for i, why in zip(open_, said, strict=True)}
    return [reason[i] for i in range(N)], finished and all(why.exact for why in said)


def _reason(scene: Scene, i: int, chosen: Sequence[int], text: str, **known: Any) -> dict[str, Any]:
    pairs, others = scene.weights.pairs, sorted({*chosen} - {i})
    held = []
    if pairs is not None:
        held = [{"position": j, "value": float(pairs[i, j])} for j in others if pairs[i, j]]
    unknown: dict[str, Any] = {"cost": None, "blockers": [], "blocking": [], "swap": None}
    return {**unknown, "pairs": held, "text": text, **known}


def _of_the_card(
    scene: Scene, best: Mapping[str, Any], deadline: Deadline
) -> tuple[dict[int, dict[str, Any]], bool]:
    """What each chosen item is worth there: how much the best card without it falls short."""
    chosen: list[int] = best["positions"]
    limit = deadline.part(1 / len(chosen)).limit()
    other = scene.best(_without_each(scene.requests, chosen), limit)
    found = {}
    for row, i in enumerate(chosen):
        cost = _cost(scene, best, float(other.weight[row])) if other.found[row] else None
        if scene.requests.pinned[0, i]:
            text = "On the card, because you said it must."
        elif not other.found[row] and not other.optimal[row]:
            text = f"On the card. What it would be without it: {NOT_WORKED_OUT.lower()}"
        elif cost is None:
            text = "On the card, and on every valid card there is: without it, none exists."
        elif cost == 0:
            text = "On the card, by a tie: another card without it is worth just as much."
        else:
            most = "" if other.optimal[row] else "at most "
            text = f"On the card. Without it, the best card would be worth {most}{cost:.3g} less."
        found[i] = _reason(scene, i, chosen, text, cost=0.0)
    return found, bool(other.optimal.all())


def _without_each(requests: Requests, positions: Sequence[int]) -> Requests:
    """The request once per position, without it."""
    copies = requests.rows(np.zeros(len(positions), np.int64))
    present, pinned = copies.present.copy(), copies.pinned.copy()
    rows = np.arange(len(positions))
    present[rows, positions] = pinned[rows, positions] = False
    graph = copies.graph & present[:, :, None] & present[:, None, :]
    return replace(copies, graph=graph, present=present, pinned=pinned)


def _left_out(scene: Scene, i: int, best: Mapping[str, Any], why: WhyNot) -> dict[str, Any]:
    place = {item["item_id"]: position for position, item in enumerate(scene.items)}
    blockers = [{"position": place[other.item], "rules": list(other.rules)} for other in why.conflicts]
    known: dict[str, Any] = {"blockers": blockers, "blocking": list(why.blocking)}
    if why.cost is None or why.instead is None:
        text = "Out: no valid card holds it." if why.exact or why.blocking else NOT_WORKED_OUT
        return _reason(scene, i, best["positions"], text, **known)
    cost = _cost(scene, best, best["weight"] - why.cost)
    known |= {"cost": cost, "swap": [place[item] for item in why.instead]}
    if not why.exact:
        text = f"Out. Choosing it would cost at most {cost:.3g}; there was no time to find out more."
    elif cost == 0:
        text = "Out, by a tie: a card with it is worth just as much."
    elif blockers:
        text = f"Out. Choosing it would cost {cost:.3g}."
    else:
        text = f"Out. It clashes with no single item, but choosing it would cost {cost:.3g}."
    return _reason(scene, i, best["positions"], text, **known)


def _cost(scene: Scene, best: Mapping[str, Any], weight: float) -> float:
    """What a card of this weight is worth less than the best; sums in another order are no difference."""
    if abs(best["weight"] - weight) < 1e-9 * (1 + abs(best["weight"])):
        return 0.0
    return max(scene.worth(best["weight"]) - scene.worth(weight), 0.0)


UNREADABLE: dict[str, Any] = {"says": "", "kept": None, "cost": None}


def rule_states(
    scene: Scene, switches: Sequence[Switch], best: Mapping[str, Any] | None, deadline: Deadline = ENDLESS
) -> tuple[list[dict[str, Any]], bool]:
    """One entry a switch, in order, and whether there was time to find out what each rule costs."""
    card: Sequence[int] = best["positions"] if best else ()
    states, finished = [], True
    for place, switch in enumerate(switches):
        rule = constraints_of([switch.rule]).rules[0]
        state = {"name": rule.name, "type": rule.type} | UNREADABLE
        share = deadline.part(1 / (len(switches) - place))
        try:
            state |= _looked_at(scene, rule, switch.on, card, share)
            if switch.on and best is not None:
                state["cost"], known = _cost_of_rule(scene, rule, best, share)
                finished &= known
        except OutOfTimeError:
            finished = False
        except (InputError, ConfigError):  # of a rule that is on, the scene would have said so
            pass
        states.append(state)
    return states, finished


def _looked_at(
    scene: Scene, rule: Constraint, is_on: bool, card: Sequence[int], deadline: Deadline
) -> dict[str, Any]:
    """What a rule says of these candidates and of the card, whether it is on or not."""
    sheet, at = scene.sheet, 0
    if is_on:
        at = scene.constraints.rules.index(rule)
    else:
        columns = columns_of(scene.items, rule.fields)
        sheet = RuleSheet.of(Constraints((rule,)), GivenRequests(columns, scene.card_size), deadline)
    asked = sheet.requests([Demand("rule", at)], len(card))
    forbidden = int(np.triu(~sheet.allowed[at], 1).sum())
    says = f"{forbidden} pair{'s' * (forbidden != 1)}"
    if asked.brief is not None:
        says = _held(rule, asked.brief, scene.items, card)
    elif rule.cap is not None and not forbidden:
        groups = [g for g in sheet.group[at, list(card)].tolist() if g >= 0]
        says = f"{max(map(groups.count, groups), default=0)} of {rule.cap}" if card else "cap"
    kept = is_valid_card(asked, 0, np.array(card, np.int64))
    if asked.brief is not None and asked.brief.num_preferences:
        kept = not sum(breaks(asked.brief, 0, card))
    return {"name": sheet.names[at], "says": says, "kept": kept if card else None}


def _held(rule: Constraint, brief: Brief, items: Sequence[Mapping[str, Any]], card: Sequence[int]) -> str:
    """What the card holds of what a rule on whole cards counts."""
    if not card or isinstance(rule, Slots):
        return ""
    if isinstance(rule, Prefer):
        times, worth = sum(breaks(brief, 0, card)), float(brief.worth[0, 0])
        often = {1: "once", 2: "twice"}.get(times, f"{times} times")
        return f"broken {often}: −{times * worth:.3g}" if times else "kept"
    if isinstance(rule, Variety):
        return f"has {len({int(brief.value[0, 0, p]) for p in card} - {-1})}"
    counted = [p for p in card if brief.coefficient[0, 0, p]]
    if isinstance(rule, Total):
        return f"has {sum(Decimal(str(items[p][rule.field])) for p in counted):.12g}"
    if isinstance(rule, Count | Share):
        return f"has {len(counted)}" + (f" of {len(card)}" if isinstance(rule, Share) else "")
    return ""


def _cost_of_rule(
    scene: Scene, rule: Constraint, best: Mapping[str, Any], deadline: Deadline
) -> tuple[float | None, bool]:
    """How much more the best card is worth without the rule, and whether that is known; places have worths of
    their own, so that without them nothing can be compared."""
    if isinstance(rule, Slots) and (rule.weights or rule.scores):
        return None, True
    at = scene.constraints.rules.index(rule)
    others = [demand for demand in scene.sheet.pieces() if demand != Demand("rule", at)]
    free = scene.best(scene.sheet.requests(others), deadline.part(0.5).limit())
    if not best["optimal"] or not free.optimal[0]:
        return None, False
    weight = float(free.weight[0])
    if abs(weight - best["weight"]) < 1e-9 * (1 + abs(weight)):
        return 0.0, True
    return max(scene.worth(weight) - scene.worth(best["weight"]), 0.0), True
