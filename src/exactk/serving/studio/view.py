"""Everything the page shows about one request: rules, graph, cards of several methods, why each item is in or out.

Knows the exact engine and the rules, no route. Values are sums of scores plus pair scores of the chosen items.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from time import perf_counter
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64

from exactk.problem.exact import cliques
from exactk.problem.graph import Requests, is_valid_card
from exactk.problem.greedy import naive_node_weight
from exactk.problem.rules.constraints import Constraints
from exactk.serving.http.wire import columns_of

MMR_BALANCE = 0.7  # weight of relevance against likeness to what is already chosen


@dataclass(frozen=True)
class Scene:
    """A request ready to be looked at: its items, weights, switched-on rules, and what is valid under them."""

    items: Sequence[Mapping[str, Any]]
    scores: Float64[np.ndarray, N]
    pairs: Float64[np.ndarray, "N N"] | None
    constraints: Constraints
    requests: Requests
    verdicts: tuple[Bool[np.ndarray, "N N"], ...]  # of each rule alone

    @property
    def card_size(self) -> int:
        """Items on the card."""
        return int(self.requests.card_size[0])

    def value(self, positions: Sequence[int]) -> float:
        """What a set of items is worth, valid or not."""
        worth = float(self.scores[list(positions)].sum())
        if self.pairs is not None:
            worth += float(sum(self.pairs[i, j] for i, j in combinations(positions, 2)))
        return worth

    def best(self, requests: Requests, with_pairs: bool = True, time_limit: float = 2.0) -> cliques.Solutions:
        """The exact engine on variants of this request."""
        B = len(requests)
        nodes = np.broadcast_to(self.scores, (B, len(self.scores))).copy()
        pairs = None
        if with_pairs and self.pairs is not None:
            pairs = np.broadcast_to(self.pairs, (B, *self.pairs.shape)).copy()
        return cliques.best(requests, nodes, pairs, time_limit=time_limit)


def scene_of(
    items: Sequence[Mapping[str, Any]],
    scores: Float64[np.ndarray, N],
    pairs: Float64[np.ndarray, "N N"] | None,
    constraints: Constraints,
    k: int,
    include: Sequence[Any],
    exclude: Sequence[Any],
) -> Scene:
    """Evaluate the rules once, each on its own, so that the page can say which rule forbids what."""
    columns = columns_of(items, constraints.fields)
    requests = constraints.requests(columns, k, include=[include], exclude=[exclude])
    verdicts = tuple(rule.allowed(columns, requests.present)[0] for rule in constraints.rules)
    return Scene(items, scores, pairs, constraints, requests, verdicts)


def conflicts(scene: Scene) -> list[tuple[int, int]]:
    """Pairs that some rule forbids (wishes do not count: an excluded item conflicts with nobody)."""
    allowed = np.ones((len(scene.items),) * 2, bool)
    for verdict in scene.verdicts:
        allowed &= verdict
    first, second = np.nonzero(np.triu(~allowed, 1))
    return list(zip(first.tolist(), second.tolist(), strict=True))


def best_card(scene: Scene) -> dict[str, Any] | None:
    """The exact card with its proof; None where no valid card exists."""
    started = perf_counter()
    solution = scene.best(scene.requests)
    if not solution.found[0]:
        return None
    return {
        "positions": solution.card[0].tolist(),
        "value": float(solution.weight[0]),
        "bound": float(solution.bound[0]),
        "optimal": bool(solution.optimal[0]),
        "ms": round((perf_counter() - started) * 1000, 3),
    }


def methods(
    scene: Scene, best: Mapping[str, Any] | None, policy: Sequence[int] | None = None
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
        alone = scene.best(scene.requests, with_pairs=False)
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


def reasons(scene: Scene, best: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """For each item why it is in, or what choosing it would cost: two exact searches per item, all in one batch."""
    N = len(scene.items)
    chosen = set(best["positions"]) if best else set()
    must = np.broadcast_to(scene.requests.pinned[0], (N, N)).copy()
    present = np.broadcast_to(scene.requests.present[0], (N, N)).copy()
    for i in range(N):
        if i in chosen:
            present[i, i] = False
            must[i, i] = False
        else:
            must[i, i] = True
    graph = scene.requests.graph[0] & present[:, :, None] & present[:, None, :]
    asked = Requests(
        graph=graph,
        present=present,
        card_size=np.full(N, scene.card_size, np.int32),
        pinned=must,
        group=np.broadcast_to(scene.requests.group, (N, *scene.requests.group.shape[1:])).copy(),
        cap=np.broadcast_to(scene.requests.cap, (N, *scene.requests.cap.shape[1:])).copy(),
    )
    other = scene.best(asked, time_limit=0.02)
    return [_reason(scene, i, chosen, best, other) for i in range(N)]


def _reason(
    scene: Scene, i: int, chosen: set[int], best: Mapping[str, Any] | None, other: cliques.Solutions
) -> dict[str, Any]:
    found = bool(other.found[i]) and (i in chosen or bool(scene.requests.present[0, i]))
    pairs = [
        {"position": j, "value": float(scene.pairs[i, j])}
        for j in sorted(chosen - {i})
        if scene.pairs is not None and scene.pairs[i, j]
    ]
    told: dict[str, Any] = {"cost": None, "blockers": [], "swap": None, "pairs": pairs, "text": ""}
    if best is None:
        return told | {"text": "No card of this size exists, so nothing can be chosen."}
    cost = best["value"] - float(other.weight[i]) if found else None
    if cost is not None and abs(cost) < 1e-9 * (1 + abs(best["value"])):
        cost = 0.0  # two sums of the same numbers, added in another order
    if i in chosen:
        if scene.requests.pinned[0, i]:
            return told | {"cost": 0.0, "text": "In the card, because you said it must."}
        if cost is None:
            return told | {
                "cost": 0.0,
                "text": "In the card, and in every valid card there is: without it, none exists.",
            }
        if cost == 0:
            return told | {
                "cost": 0.0,
                "text": "In the card, by a tie: another card without it is worth just as much.",
            }
        return told | {
            "cost": 0.0,
            "text": f"In the card. Without it, the best card would be worth {cost:.3g} less.",
        }
    if not scene.requests.present[0, i]:
        return told | {"text": "Out, because you said never."}
    blockers = [
        {"position": j, "rules": rules} for j in sorted(chosen) if (rules := _rules_between(scene, i, j))
    ]
    if cost is None:
        return told | {"blockers": blockers, "text": "Out: no valid card holds it."}
    swap = [p for p in other.card[i].tolist() if p >= 0]
    text = f"Out. Choosing it would cost {max(cost, 0.0):.3g}."
    if cost == 0:
        text = "Out, by a tie: a card with it is worth just as much."
    elif not blockers:
        text = f"Out. It clashes with nothing, but choosing it would cost {cost:.3g}."
    return told | {"cost": max(cost, 0.0), "blockers": blockers, "swap": swap, "text": text}


def _rules_between(scene: Scene, i: int, j: int) -> list[str]:
    named = zip(scene.constraints.names, scene.verdicts, strict=True)
    return [name for name, verdict in named if not verdict[i, j]]
