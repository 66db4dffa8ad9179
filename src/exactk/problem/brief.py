"""What B requests demand of whole cards, as numpy arrays: sums, variety, preferences and places.

Knows neither rules (`rules/` makes these) nor search. The checks here are written plainly: tests hold the engine
against them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int32, Int64

ENDLESS = 2**62  # a sum's bound that binds nothing


class Brief(NamedTuple):
    """Beside pairs and caps (`Requests`), what a card of request b must keep, and what it rather should.

    Row m: the sum of `coefficient[b, m]` over the card lies within `lower[b, m]` and `upper[b, m]`.
    Variety v: `least[b, v]` different `value[b, v]` or more (-1: none). Clash q: no pair in `clash[b, q]`.
    Each belongs to a preference (its index in `row_of`, `value_of`, `clash_of`) or is a rule (-1; clashes never are).
    A preference costs `worth` a break: a unit beyond the bounds, a value short, a pair that clashes; or `once`.

    With S > 0 the card has places, and position k of it stands in place k: only where `eligible[b, k]`, and as
    neighbours only i before j with `follows[b, 0, i, j]`. There it is worth its score times `slot_weight[b, k]` plus
    `slot_score[b, k]`.
    """

    coefficient: Int64[np.ndarray, "B M N"]
    lower: Int64[np.ndarray, "B M"]
    upper: Int64[np.ndarray, "B M"]
    row_of: Int32[np.ndarray, "B M"]
    value: Int32[np.ndarray, "B V N"]
    least: Int32[np.ndarray, "B V"]
    value_of: Int32[np.ndarray, "B V"]
    clash: Bool[np.ndarray, "B Q N N"]
    clash_of: Int32[np.ndarray, "B Q"]
    worth: Float64[np.ndarray, "B P"]
    once: Bool[np.ndarray, "B P"]
    eligible: Bool[np.ndarray, "B S N"]
    slot_weight: Float64[np.ndarray, "B S"]
    slot_score: Float64[np.ndarray, "B S N"]
    follows: Bool[np.ndarray, "B F N N"]

    @property
    def has_slots(self) -> bool:
        """Whether cards have places."""
        return bool(self.eligible.shape[1] > 0)

    @property
    def num_preferences(self) -> int:
        """P."""
        return int(self.worth.shape[1])

    def rows(self, index: np.ndarray | slice) -> Brief:
        """Some of the requests, in the order asked for."""
        return Brief(*(array[index] for array in self))


def blank(num_requests: int, num_candidates: int) -> Brief:
    """A brief that demands nothing, to be filled with `_replace`."""
    B, N = num_requests, num_candidates
    return Brief(
        coefficient=np.empty((B, 0, N), np.int64),
        lower=np.empty((B, 0), np.int64),
        upper=np.empty((B, 0), np.int64),
        row_of=np.empty((B, 0), np.int32),
        value=np.empty((B, 0, N), np.int32),
        least=np.empty((B, 0), np.int32),
        value_of=np.empty((B, 0), np.int32),
        clash=np.empty((B, 0, N, N), bool),
        clash_of=np.empty((B, 0), np.int32),
        worth=np.empty((B, 0)),
        once=np.empty((B, 0), bool),
        eligible=np.empty((B, 0, N), bool),
        slot_weight=np.empty((B, 0)),
        slot_score=np.empty((B, 0, N)),
        follows=np.empty((B, 0, N, N), bool),
    )


def sums(
    coefficient: Int64[np.ndarray, "B M N"] | Bool[np.ndarray, "B M N"],
    lower: Int64[np.ndarray, "B M"] | int = -ENDLESS,
    upper: Int64[np.ndarray, "B M"] | int = ENDLESS,
) -> Brief:
    """A brief of rows alone."""
    B, M, N = coefficient.shape
    return blank(B, N)._replace(
        coefficient=coefficient.astype(np.int64),
        lower=np.broadcast_to(np.asarray(lower, np.int64), (B, M)),
        upper=np.broadcast_to(np.asarray(upper, np.int64), (B, M)),
        row_of=np.full((B, M), -1, np.int32),
    )


def joined(parts: Sequence[Brief]) -> Brief | None:
    """All demands together; None where there are none. Of places, every part's conditions hold and worths add up."""
    if not parts:
        return None
    if len(parts) == 1:
        return parts[0]
    shifted, before = [], 0
    for part in parts:
        moved = {
            name: np.where(getattr(part, name) < 0, -1, getattr(part, name) + before).astype(np.int32)
            for name in ("row_of", "value_of", "clash_of")
        }
        shifted.append(part._replace(**moved))
        before += part.num_preferences
    side_by_side = {
        name: np.concatenate([getattr(part, name) for part in shifted], axis=1) for name in Brief._fields[:11]
    }
    return Brief(**side_by_side, **_places([part for part in parts if part.has_slots], shifted[0]))


def _places(parts: Sequence[Brief], none: Brief) -> dict[str, np.ndarray]:
    if not parts:
        return {name: getattr(none, name) for name in Brief._fields[11:]}
    follows = [part.follows[:, 0] for part in parts if part.follows.shape[1]]
    return {
        "eligible": np.logical_and.reduce([part.eligible for part in parts]),
        "slot_weight": np.multiply.reduce([part.slot_weight for part in parts]),
        "slot_score": np.add.reduce([part.slot_score for part in parts]),
        "follows": np.logical_and.reduce(follows)[:, None] if follows else parts[0].follows,
    }


def neutral(brief: Brief, b: int) -> Brief:
    """The same with request b asked nothing: sums unbounded, no variety, no price, everyone in every place."""
    plain = {
        "lower": -ENDLESS, "upper": ENDLESS, "least": 0, "clash": False, "worth": 0.0, "eligible": True,
        "slot_weight": 1.0, "slot_score": 0.0, "follows": True, "row_of": -1, "value_of": -1,
    }  # fmt: skip
    changed = {}
    for name, value in plain.items():
        changed[name] = getattr(brief, name).copy()
        changed[name][b] = value
    return brief._replace(**changed)


def with_request(brief: Brief | None, b: int, lighter: Brief | None) -> Brief | None:
    """A batch's brief with that of request b changed for a lighter one, of fewer demands and candidates."""
    if brief is None:
        return None
    filled = Brief(*(array.copy() for array in neutral(brief, b)))
    if lighter is not None:
        for mine, its in zip(filled, lighter, strict=True):
            inside: Any = (b, *(slice(size) for size in its.shape[1:]))
            mine[inside] = its[0]
    return filled


def preferred(part: Brief, clash: Bool[np.ndarray, "B Q N N"], worth: int | float, once: bool) -> Brief:
    """Rules turned into one preference; `clash` holds the pairs that break it."""
    B = len(part.lower)
    index = {name: np.zeros(getattr(part, name).shape, np.int32) for name in ("row_of", "value_of")}
    return part._replace(
        **index,
        clash=clash,
        clash_of=np.zeros(clash.shape[:2], np.int32),
        worth=np.full((B, 1), float(worth)),
        once=np.full((B, 1), once),
    )


def keeps(brief: Brief, b: int, card: Sequence[int]) -> bool:
    """Whether a card (with places: in their order) keeps what this brief demands of request b."""
    chosen = list(card)
    for m in np.flatnonzero(brief.row_of[b] < 0):
        total = sum(int(brief.coefficient[b, m, p]) for p in chosen)
        if not brief.lower[b, m] <= total <= brief.upper[b, m]:
            return False
    for v in np.flatnonzero(brief.value_of[b] < 0):
        if len({int(brief.value[b, v, p]) for p in chosen} - {-1}) < brief.least[b, v]:
            return False
    return not brief.has_slots or may_stand(brief, b, chosen)


def may_stand(brief: Brief, b: int, card: Sequence[int]) -> bool:
    """Whether each position of a card may stand in its place and beside its neighbours."""
    if len(card) > brief.eligible.shape[1] or not all(brief.eligible[b, k, p] for k, p in enumerate(card)):
        return False
    F = brief.follows.shape[1]
    return all(brief.follows[b, f, p, q] for f in range(F) for p, q in pairwise(card))


def breaks(brief: Brief, b: int, card: Sequence[int]) -> list[int]:
    """How often a card breaks each preference of request b."""
    chosen = list(card)
    times = [0] * brief.num_preferences
    for m in np.flatnonzero(brief.row_of[b] >= 0):
        total = sum(int(brief.coefficient[b, m, p]) for p in chosen)
        over = max(int(brief.lower[b, m]) - total, total - int(brief.upper[b, m]), 0)
        times[brief.row_of[b, m]] += over
    for v in np.flatnonzero(brief.value_of[b] >= 0):
        held = len({int(brief.value[b, v, p]) for p in chosen} - {-1})
        times[brief.value_of[b, v]] += max(int(brief.least[b, v]) - held, 0)
    for q, of in enumerate(brief.clash_of[b].tolist()):
        times[of] += sum(bool(brief.clash[b, q, i, j]) for n, i in enumerate(chosen) for j in chosen[n + 1 :])
    return [min(count, 1) if brief.once[b, p] else count for p, count in enumerate(times)]


def cost(brief: Brief, b: int, card: Sequence[int]) -> float:
    """What the broken preferences of a card cost together."""
    return float(sum(count * brief.worth[b, p] for p, count in enumerate(breaks(brief, b, card))))


def card_worth(
    brief: Brief | None,
    b: int,
    card: Sequence[int],
    node: Float64[np.ndarray, "N"],
    pair: Float64[np.ndarray, "N N"] | None,
) -> float:
    """Node weights (in their places, where there are any), plus pair weights, less what broken preferences cost."""
    chosen = list(card)
    value = float(node[chosen].sum())
    if brief is not None and brief.has_slots:
        places = range(len(chosen))
        value = float(
            (node[chosen] * brief.slot_weight[b, places] + brief.slot_score[b, places, chosen]).sum()
        )
    if pair is not None:
        value += float(np.triu(pair[np.ix_(chosen, chosen)], 1).sum())
    return value - (0.0 if brief is None else cost(brief, b, chosen))
