"""Everything the page shows about one request: rules, graph, cards of several methods, why each item is in or out.

Knows the exact engine and the rules, no route. Values are sums of scores plus pair scores of the chosen items.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from time import perf_counter
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64

from exactk.problem.deadline import ENDLESS, Deadline
from exactk.problem.exact import cliques
from exactk.problem.graph import Requests, is_valid_card
from exactk.problem.greedy import naive_node_weight
from exactk.problem.rules.constraints import Constraints
from exactk.serving.http.wire import columns_of

AT_ONCE = 2**16  # pairs weighed between two looks at the clock
NOT_WORKED_OUT: dict[str, Any] = {"cost": None, "blockers": [], "swap": None, "pairs": [],
                                  "text": "Not worked out in the time there was."}  # fmt: skip
MMR_BALANCE = 0.7  # weight of relevance against likeness to what is already chosen


@dataclass(frozen=True)
class Scene:
    """A request ready to be looked at: its items, weights, switched-on rules, and what is valid under them."""

    items: Sequence[Mapping[str, Any]]
    scores: Float64[np.ndarray, "N"]
    pairs: Float64[np.ndarray, "N N"] | None
    constraints: Constraints
    requests: Requests
    verdicts: tuple[Bool[np.ndarray, "N N"], ...]  # of each rule alone
    link: Callable[[float], float] | None = None  # from a sum of weights to what the API calls the value
    judge: Callable[[Sequence[int]], float] | None = None  # of a card, where no sum tells

    @property
    def card_size(self) -> int:
        """Items on the card."""
        return int(self.requests.card_size[0])

    def value(self, positions: Sequence[int]) -> float | None:
        """What a set of items is worth, valid or not; as `/v1/cards` says it where a model scores."""
        if self.judge is not None:
            return self.judge(positions) if len(positions) == self.card_size else None
        return self.worth(self.weight(positions))

    def worth(self, weight: float) -> float:
        """What a sum of weights is worth."""
        return weight if self.link is None or not math.isfinite(weight) else self.link(weight)

    def weight(self, positions: Sequence[int]) -> float:
        """Scores and pair scores of a set of items, added up."""
        worth = float(self.scores[list(positions)].sum())
        if self.pairs is not None:
            worth += float(sum(self.pairs[i, j] for i, j in combinations(positions, 2)))
        return worth

    def best(
        self, requests: Requests, time_limit: float | None, with_pairs: bool = True
    ) -> cliques.Solutions:
        """The exact engine on variants of this request, so many seconds for each."""
        B = len(requests)
        nodes = np.broadcast_to(self.scores, (B, len(self.scores))).copy()
        pairs = None
        if with_pairs and self.pairs is not None:
            pairs = np.broadcast_to(self.pairs, (B, *self.pairs.shape)).copy()
        return cliques.best(requests, nodes, pairs, time_limit=time_limit)


def scene_of(
    items: Sequence[Mapping[str, Any]],
    scores: Float64[np.ndarray, "N"],
    pairs: Float64[np.ndarray, "N N"] | None,
    constraints: Constraints,
    k: int,
    include: Sequence[Any],
    exclude: Sequence[Any],
    deadline: Deadline = ENDLESS,
) -> Scene:
    """Evaluate the rules once, each on its own, so that the page can say which rule forbids what."""
    columns = columns_of(items, constraints.fields)
    requests = constraints.requests(columns, k, include=[include], exclude=[exclude], deadline=deadline)
    verdicts = tuple(
        rule.allowed_within(columns, requests.present, deadline)[0] for rule in constraints.rules
    )
    return Scene(items, scores, pairs, constraints, requests, verdicts)


def conflicts(scene: Scene) -> list[tuple[int, int]]:
    """Pairs that some rule forbids (wishes do not count: an excluded item conflicts with nobody)."""
    allowed = np.ones((len(scene.items),) * 2, bool)
    for verdict in scene.verdicts:
        allowed &= verdict
    first, second = np.nonzero(np.triu(~allowed, 1))
    return list(zip(first.tolist(), second.tolist(), strict=True))


def best_card(
    scene: Scene, deadline: Deadline = ENDLESS, proof: str = "proven best for these scores"
) -> dict[str, Any] | None:
    """The exact card with its proof; None where no valid card exists, or none was found in half of the time."""
    started = perf_counter()
    solution = scene.best(scene.requests, deadline.part(0.4).limit())
    if not solution.found[0]:
        return None
    positions = solution.card[0].tolist()
    return {
        "positions": positions,
        "value": scene.value(positions),
        "weight": float(solution.weight[0]),
        "bound": None if scene.judge else scene.worth(float(solution.bound[0])),
        "optimal": bool(solution.optimal[0]),
        "proof": proof if solution.optimal[0] else "time ran out: there may be a better one",
        "ms": round((perf_counter() - started) * 1000, 3),
    }


def methods(
    scene: Scene,
    best: Mapping[str, Any] | None,
    policy: Sequence[int] | None = None,
    deadline: Deadline = ENDLESS,
) -> list[dict[str, Any]]:
    """What others would have shown, each worth what it is worth under the same value; the policy's card after ours."""
    ranked = [p for p in np.argsort(-scene.scores, kind="stable").tolist() if scene.requests.present[0, p]]
    stuck = naive_node_weight(scene.requests, scene.scores[None])[0]
    rows = [
        _method(
            scene, "exact", "exactk", best["positions"] if best else [], "exact search over the whole card"
        ),
        _method(scene, "top", "Top-K", ranked[: scene.card_size], "the highest scores, whatever the rules"),
        _method(
            scene,
            "greedy",
            "Algorithm 1",
            [p for p in stuck.tolist() if p >= 0],
            "best first, skip what clashes",
        ),
        _method(scene, "mmr", "MMR", mmr(scene), "score against likeness, one by one"),
    ]
    if policy is not None:
        rows.insert(1, _method(scene, "policy", "The policy", policy, "as the trained network writes it"))
    if scene.pairs is not None:
        alone = scene.best(scene.requests, deadline.part(0.2).limit(), with_pairs=False)
        found = alone.card[0].tolist() if alone.found[0] else []
        rows.append(_method(scene, "solver", "Score + solver", found, "exact, but blind to pairs"))
    return rows


def _method(scene: Scene, key: str, name: str, positions: Sequence[int], note: str) -> dict[str, Any]:
    clashes = [
        [i, j] for i, j in combinations(positions, 2) if any(not verdict[i, j] for verdict in scene.verdicts)
    ]
    valid = is_valid_card(scene.requests, 0, np.array(positions, np.int64))
    missing = scene.card_size - len(positions)
    if missing and key != "exact":
        note = f"{note}: stuck after {len(positions)} of {scene.card_size}"
    elif clashes:
        note = f"{note}: breaks {_rules_between(scene, *clashes[0])[0]}"
    elif not valid and not missing:
        note = f"{note}: breaks a cap or a wish"
    return {
        "key": key,
        "name": name,
        "positions": list(positions),
        "value": scene.value(positions) if positions else None,
        "valid": valid,
        "clashes": clashes,
        "missing": missing,
        "note": note,
    }


def mmr(scene: Scene) -> list[int]:
    """Maximal marginal relevance: likeness is one minus the share of rules that let two items stand together."""
    N = len(scene.items)
    likeness = np.zeros((N, N))
    for verdict in scene.verdicts:
        likeness += ~verdict
    if scene.verdicts:
        likeness /= len(scene.verdicts)
    low, high = scene.scores.min(), scene.scores.max()
    relevance = (scene.scores - low) / (high - low or 1.0)
    chosen: list[int] = []
    open_ = scene.requests.present[0].copy()
    while len(chosen) < scene.card_size and open_.any():
        nearest = likeness[:, chosen].max(1) if chosen else np.zeros(N)
        marginal = MMR_BALANCE * relevance - (1 - MMR_BALANCE) * nearest
        pick = int(np.where(open_, marginal, -np.inf).argmax())
        chosen.append(pick)
        open_[pick] = False
    return chosen


def reasons(
    scene: Scene, best: Mapping[str, Any] | None, deadline: Deadline = ENDLESS
) -> tuple[list[dict[str, Any]], bool]:
    """For each item why it is in, or what choosing it would cost, and whether there was time for all of them.

    One exact search per item, some at a time, with looks at the clock between them.
    """
    N, chosen = len(scene.items), set(best["positions"]) if best else set()
    at_once = N if deadline.limit() is None else max(1, AT_ONCE // N**2)
    reason: list[dict[str, Any]] = []
    took, finished = 0.0, True
    for start in range(0, N, at_once):
        positions = range(start, min(start + at_once, N))
        if deadline.left <= took:
            reason += [NOT_WORKED_OUT for _ in positions]
            finished = False
            continue
        begun = perf_counter()
        share = deadline.part(len(positions) / (N - start) / len(positions)).limit()
        other = scene.best(_varied(scene, positions, chosen), share)
        finished &= bool(other.optimal.all())
        reason += [_reason(scene, i, row, chosen, best, other) for row, i in enumerate(positions)]
        took = max(took, perf_counter() - begun)
    return reason, finished


def _varied(scene: Scene, positions: Sequence[int], chosen: Collection[int]) -> Requests:
    """The request once per position: without it where it was chosen, with it where it was not."""
    B = len(positions)
    must = np.repeat(scene.requests.pinned, B, 0)
    present = np.repeat(scene.requests.present, B, 0)
    for row, i in enumerate(positions):
        must[row, i] = i not in chosen
        present[row, i] &= i not in chosen
    copies = scene.requests.rows(np.zeros(B, np.int64))
    graph = copies.graph & present[:, :, None] & present[:, None, :]
    return replace(copies, graph=graph, present=present, pinned=must)


def _reason(
    scene: Scene,
    i: int,
    row: int,
    chosen: set[int],
    best: Mapping[str, Any] | None,
    other: cliques.Solutions,
) -> dict[str, Any]:
    """Of item i, whose variant of the request is `row` of those searched."""
    found = bool(other.found[row]) and (i in chosen or bool(scene.requests.present[0, i]))
    pairs = [
        {"position": j, "value": float(scene.pairs[i, j])}
        for j in sorted(chosen - {i})
        if scene.pairs is not None and scene.pairs[i, j]
    ]
    reason: dict[str, Any] = {"cost": None, "blockers": [], "swap": None, "pairs": pairs, "text": ""}
    if best is None:
        return reason | {"text": "No card of this size exists, so nothing can be chosen."}
    cost = None
    if found:
        weight = float(other.weight[row])
        tied = abs(best["weight"] - weight) < 1e-9 * (1 + abs(best["weight"]))  # sums in another order
        cost = 0.0 if tied else scene.worth(best["weight"]) - scene.worth(weight)
    elif not other.optimal[row]:
        return reason | NOT_WORKED_OUT
    if i in chosen:
        if scene.requests.pinned[0, i]:
            return reason | {"cost": 0.0, "text": "In the card, because you reason it must."}
        if cost is None:
            return reason | {
                "cost": 0.0,
                "text": "In the card, and in every valid card there is: without it, none exists.",
            }
        if cost == 0:
            return reason | {
                "cost": 0.0,
                "text": "In the card, by a tie: another card without it is worth just as much.",
            }
        return reason | {
            "cost": 0.0,
            "text": f"In the card. Without it, the best card would be worth {cost:.3g} less.",
        }
    if not scene.requests.present[0, i]:
        return reason | {"text": "Out, because you reason never."}
    blockers = [
        {"position": j, "rules": rules} for j in sorted(chosen) if (rules := _rules_between(scene, i, j))
    ]
    if cost is None:
        return reason | {"blockers": blockers, "text": "Out: no valid card holds it."}
    swap = [p for p in other.card[row].tolist() if p >= 0]
    text = f"Out. Choosing it would cost {max(cost, 0.0):.3g}."
    if cost == 0:
        text = "Out, by a tie: a card with it is worth just as much."
    elif not blockers:
        text = f"Out. It clashes with nothing, but choosing it would cost {cost:.3g}."
    return reason | {"cost": max(cost, 0.0), "blockers": blockers, "swap": swap, "text": text}


def _rules_between(scene: Scene, i: int, j: int) -> list[str]:
    named = zip(scene.constraints.names, scene.verdicts, strict=True)
    return [name for name, verdict in named if not verdict[i, j]]
