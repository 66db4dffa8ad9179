"""For each item why it is on the card, or what keeps it out and what choosing it would cost.

Knows a scene; items left out are explained by `problem/rules/explain.py`, here they get their words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from exactk.problem.deadline import ENDLESS, Deadline
from exactk.problem.graph import Requests
from exactk.problem.rules.explain import WhyNot, why_not
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
    pairs = scene.weights.pairs
    return {
        "cost": None,
        "blockers": [],
        "blocking": [],
        "swap": None,
        "pairs": []
        if pairs is None
        else [{"position": j, "value": float(pairs[i, j])} for j in sorted({*chosen} - {i}) if pairs[i, j]],
        "text": text,
    } | known


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
