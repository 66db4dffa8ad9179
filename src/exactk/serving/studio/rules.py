"""What each rule of a request does: the pairs it forbids, what the card holds of it, what keeping it costs.

Knows a scene and the rules' arrays. A rule that is off is looked at, too: the card may break it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np

from exactk.errors import ConfigError, InputError, OutOfTimeError
from exactk.problem.brief import Brief, breaks
from exactk.problem.deadline import ENDLESS, Deadline
from exactk.problem.graph import is_valid_card
from exactk.problem.rules.counting import Count, Share, Total, Variety
from exactk.problem.rules.places import Slots
from exactk.problem.rules.prefer import Prefer
from exactk.problem.rules.rule_set import Constraint, Constraints
from exactk.problem.rules.sheet import Demand, RuleSheet
from exactk.serving.http.wire import columns_of, constraints_of
from exactk.serving.studio.scene import Scene
from exactk.serving.studio.schemas import Switch

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
                state["cost"], known = _cost(scene, rule, best, share)
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
        columns, present = columns_of(scene.items, rule.fields), np.ones((1, len(scene.items)), bool)
        sheet = RuleSheet.of(Constraints((rule,)), columns, scene.card_size, present, deadline=deadline)
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


def _cost(
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
