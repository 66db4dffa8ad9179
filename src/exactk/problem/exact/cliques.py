"""The exact engine: does a valid card exist, can this prefix become one, which card has the most weight; greedy cards.

Knows no rules (`constraints.py` makes the requests) and no network. The searches over a batch are in `best.py`.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int64

from exactk.errors import InputError
from exactk.problem.brief import Brief
from exactk.problem.compiling import num_cores, shared
from exactk.problem.deadline import ENDLESS, Deadline
from exactk.problem.exact.best import (
    arrange_each,
    best_briefs_each,
    best_nodes_each,
    best_pairs_each,
    completable_briefs_each,
    exists_briefs_each,
)
from exactk.problem.exact.exists import FOUND, OUT_OF_TIME, completable_each, exists_each
from exactk.problem.exact.leaves import LARGEST_SUM, TOO_LARGE
from exactk.problem.graph import Requests
from exactk.problem.rules.columns import RequestError

NodeWeights = Float64[np.ndarray, "B N"]
PairWeights = Float64[np.ndarray, "B N N"]
NO_PAIRS = np.empty((0, 0, 0))
# In the order of the kernels' parameters.
_PARTS = attrgetter("graph", "present", "card_size", "pinned", "group", "cap")


class Ranking(NamedTuple):
    """The n best cards of each request, best first, equal ones as ties are settled; `num_found` may be less than n.

    `bound` is a proven upper bound on the value of every valid card that is not listed (-inf: there is none).
    """

    card: Int64[np.ndarray, "B n K"]
    weight: Float64[np.ndarray, "B n"]
    num_found: Int64[np.ndarray, "B"]
    bound: Float64[np.ndarray, "B"]
    optimal: Bool[np.ndarray, "B"]


class Solutions(NamedTuple):
    """The best card of each request; `weight` is its value, `bound` a proven upper bound on any valid card's value.

    `optimal` where the search was finished: then `weight == bound`. Nothing `found`: card all -1, weight -inf; with
    `optimal` that proves that no valid card exists. Positions ascend. Among cards of equal weight (to within the
    rounding of a sum) the requests' tie keys decide; without keys the one whose positions come first in dictionary
    order is returned: [0, 5] before [1, 2].
    """

    card: Int64[np.ndarray, "B K"]
    weight: Float64[np.ndarray, "B"]
    bound: Float64[np.ndarray, "B"]
    optimal: Bool[np.ndarray, "B"]
    found: Bool[np.ndarray, "B"]

    @classmethod
    def of(cls, ranking: Ranking) -> Solutions:
        """The first card of each."""
        card, weight, num_found, bound, optimal = ranking
        return cls(card[:, 0], weight[:, 0], bound, optimal, num_found > 0)


class Existence(NamedTuple):
    """Whether each request has a valid card: one where it was found (else -1); `proven` where the answer is certain."""

    card: Int64[np.ndarray, "B K"]
    found: Bool[np.ndarray, "B"]
    proven: Bool[np.ndarray, "B"]


def exists(requests: Requests) -> Bool[np.ndarray, "B"]:
    """Whether each request has any valid card, however long it takes to prove."""
    return can_complete(requests, requests.pinned)


def any_card(requests: Requests, deadline: Deadline = ENDLESS, time_limit: float | None = None) -> Existence:
    """Any valid card of each request, as good as it comes; neither found nor proven where time ran out.

    `time_limit` is in seconds for each request, the deadline for all of them.
    """
    cards = np.empty((len(requests), int(requests.card_size.max(initial=0))), np.int64)
    status = _existence(requests, requests.pinned, cards, deadline, time_limit)
    return Existence(cards, status == FOUND, status != OUT_OF_TIME)


def can_complete(requests: Requests, chosen: Bool[np.ndarray, "B N"]) -> Bool[np.ndarray, "B"]:
    """Whether some valid card holds all of `chosen` (and all pinned positions)."""
    status = _existence(requests, chosen, np.empty((len(chosen), 0), np.int64), ENDLESS, None)
    return np.asarray(status == FOUND)


def _existence(
    requests: Requests,
    chosen: Bool[np.ndarray, "B N"],
    cards: Int64[np.ndarray, "B K"],
    deadline: Deadline,
    time_limit: float | None,
) -> Int64[np.ndarray, "B"]:
    answer = np.empty(len(chosen), np.int64)
    limit = np.inf if time_limit is None else float(time_limit)
    *given, group, cap = plain_arrays(requests)
    until = (limit, deadline.ends, cards, answer)
    if requests.brief is None:
        _each(exists_each, 32, *given, _plain(chosen), group, cap, *until)
    else:
        _each(exists_briefs_each, 4, *given, group, cap, _plain_brief(requests.brief), _plain(chosen), *until)
    return answer


def completable(requests: Requests, chosen: Bool[np.ndarray, "B N"]) -> Bool[np.ndarray, "B N"]:
    """The positions outside `chosen` that may be chosen next so that a valid card can still be completed."""
    answer = np.empty(chosen.shape, np.bool_)
    *given, group, cap = plain_arrays(requests)
    if requests.brief is None:
        _each(completable_each, 16, *given, _plain(chosen), group, cap, answer)
    else:
        brief = _plain_brief(requests.brief)
        _each(completable_briefs_each, 2, *given, group, cap, brief, _plain(chosen), answer)
    return answer


def best(
    requests: Requests,
    node_weights: NodeWeights,
    pair_weights: PairWeights | None = None,
    time_limit: float | None = None,
    cores: int | None = None,
) -> Solutions:
    """The valid card with the largest sum of node weights, plus pair weights over its unordered pairs.

    `time_limit` is in seconds for each request; where it ends a search, the best card so far is returned with a
    proven bound. Weights of absent positions and of pairs the graph forbids are never read. `cores` (all of them if
    not given) share a large batch.
    """
    return Solutions.of(best_n(requests, node_weights, pair_weights, 1, time_limit, cores))


def best_n(
    requests: Requests,
    node_weights: NodeWeights,
    pair_weights: PairWeights | None = None,
    n: int = 1,
    time_limit: float | None = None,
    cores: int | None = None,
) -> Ranking:
    """The n valid cards of the largest weight, best first; weights and time limit as in `best`."""
    if n < 1:
        raise InputError(f"n is {n}, but at least one card must be asked for")
    B = len(node_weights)
    sizes = requests.card_size
    longest = int(sizes[0] if B == 1 else sizes.max(initial=0))
    cards, weights = np.empty((B, n, longest), np.int64), np.empty((B, n))
    found, bound, complete = np.empty(B, np.int64), np.empty(B), np.empty(B, np.bool_)
    fault = np.empty((B, 2), np.int64)
    limit = np.inf if time_limit is None else float(time_limit)
    keys = np.empty((B, 0), np.int64) if requests.tie_key is None else _plain(requests.tie_key)
    given, node = plain_arrays(requests), _plain(node_weights)
    answer = (limit, cards, weights, found, bound, complete, fault)
    if requests.brief is not None:
        pair = NO_PAIRS if pair_weights is None else _plain(pair_weights)
        brief = _plain_brief(requests.brief)
        faults = _each(best_briefs_each, 2, *given, brief, keys, node, pair, *answer, cores=cores)
    elif pair_weights is None:
        faults = _each(best_nodes_each, 4, *given, keys, node, *answer, cores=cores)
    else:
        faults = _each(best_pairs_each, 4, *given, keys, node, _plain(pair_weights), *answer, cores=cores)
    if faults:
        _complain(requests, fault, node_weights, pair_weights)
    return Ranking(cards, weights, found, bound, complete)


def _complain(
    requests: Requests,
    fault: Int64[np.ndarray, "B 2"],
    node_weights: NodeWeights,
    pair_weights: PairWeights | None,
) -> None:
    """Name the first weight that cannot be used."""
    b = int(np.flatnonzero(fault[:, 0] >= 0)[0])
    p, q = (int(position) for position in fault[b])
    if q == TOO_LARGE:
        raise _too_large(requests, b, node_weights, pair_weights)
    if q < 0 or pair_weights is None:
        raise InputError(
            f"node_weights[{b}, {p}] is {node_weights[b, p]}: weights must be finite; "
            "to keep a position out, mark it absent"
        )
    there, back = pair_weights[b, p, q], pair_weights[b, q, p]
    if np.isfinite(there):
        raise InputError(
            f"pair_weights are not symmetric: [{b}, {p}, {q}] is {there} but [{b}, {q}, {p}] is {back}"
        )
    raise InputError(
        f"pair_weights[{b}, {p}, {q}] is {there}: weights must be finite; to keep a pair apart, forbid it in the graph"
    )


def _too_large(
    requests: Requests, b: int, node_weights: NodeWeights, pair_weights: PairWeights | None
) -> RequestError:
    """The refusal of weights whose sums could leave the finite range: which is the largest, and how large it may be."""
    size = int(requests.card_size[b])
    node = np.where(requests.present[b], np.abs(node_weights[b]), 0.0)
    p = int(node.argmax())
    named, value, count = f"the score at position {p}", node_weights[b, p], size
    if pair_weights is not None:
        pair = np.where(requests.graph[b], np.abs(pair_weights[b]), 0.0)
        i, j = (int(place) for place in np.unravel_index(pair.argmax(), pair.shape))
        if pair[i, j] > node[p]:
            named, value = f"the pair score at positions {i} and {j}", pair_weights[b, i, j]
        count += size * (size - 1) // 2
    return RequestError(
        b,
        f"{named} is {value:g}, and a card of {size} adds up {count} such numbers: their sum may not exceed "
        f"{LARGEST_SUM:g} (scale the scores down; only their proportions matter)",
    )


def _plain(array: np.ndarray) -> np.ndarray:
    """The array itself if compiled code can take it as it is: another layout would be compiled for anew."""
    return array if array.flags.carray else np.array(array, order="C")


def _plain_brief(brief: Brief) -> Brief:
    return Brief(*map(_plain, brief))


def plain_arrays(requests: Requests) -> tuple[np.ndarray, ...]:
    """What decides validity but briefs, as kernels take it."""
    return tuple(map(_plain, _PARTS(requests)))


def arranged(
    requests: Requests, cards: Int64[np.ndarray, "B K"], node_weights: NodeWeights | None = None
) -> Int64[np.ndarray, "B K"]:
    """Cards found as sets, in their best order of place where cards have places; without weights any allowed one."""
    if requests.brief is None or not requests.brief.has_slots:
        return cards
    node = np.zeros(requests.present.shape) if node_weights is None else _plain(node_weights)
    ordered = cards.astype(np.int64)
    _each(arrange_each, 16, _plain(requests.card_size), _plain_brief(requests.brief), node, ordered)
    return ordered


def _each(kernel: Any, grain: int, *arrays: Any, cores: int | None = None) -> int:
    """Run `kernel` over all requests, in slices of `grain` or more on all cores; returns the sum of what it returns.

    Small batches run on this thread alone.
    """
    B = len(arrays[0])
    cores = min(cores or num_cores(), num_cores()) if 2 * grain <= B else 1
    if cores == 1:
        return int(kernel(0, B, *arrays))
    slice_size = max(grain, -(-B // (4 * cores)))
    slices = iter(range(0, B, slice_size))  # whoever asks is given the next one

    def work(_: int) -> int:
        return sum(int(kernel(first, min(first + slice_size, B), *arrays)) for first in slices)

    return sum(shared(cores, work))


def naive_node_weight(requests: Requests, node_weights: NodeWeights) -> Int64[np.ndarray, "B K"]:
    """Algorithm 1: take the heaviest node, drop its non-neighbours, again; in order of choice, -1 where it got stuck.

    Equal weights: the larger tie key first (the lower position where there are none). It knows only the graph, as in
    the paper: caps and pins are ignored.
    """
    return _greedy(requests, node_weights, safe=False)


def safe_node_weight(requests: Requests, node_weights: NodeWeights) -> Int64[np.ndarray, "B K"]:
    """Algorithm 1 that only takes nodes from which a valid card can be completed; all -1 where none exists.

    Honours caps; pinned positions come first, in ascending order.
    """
    return _greedy(requests, node_weights, safe=True)


def _greedy(requests: Requests, node_weights: NodeWeights, safe: bool) -> Int64[np.ndarray, "B K"]:
    B, N = requests.present.shape
    rows = np.arange(B)
    card = np.full((B, int(requests.card_size.max(initial=0))), -1, np.int64)
    chosen = np.zeros((B, N), bool)
    open_ = requests.present.copy()
    for step in range(card.shape[1]):
        if safe:
            open_ = completable(requests, chosen)
            waiting = open_ & requests.pinned
            open_ = np.where(waiting.any(1, keepdims=True), waiting & (waiting.cumsum(1) == 1), open_)
        heaviest = np.where(open_, node_weights, -np.inf)
        pick = heaviest.argmax(1)
        if requests.tie_key is not None:
            equal = open_ & (heaviest == heaviest.max(1, keepdims=True))
            pick = np.where(equal, requests.tie_key, np.iinfo(np.int64).min).argmax(1)
        goes_on = open_.any(1) & (step < requests.card_size)
        card[goes_on, step] = pick[goes_on]
        chosen[rows[goes_on], pick[goes_on]] = True
        open_ = open_ & requests.graph[rows, pick] & ~chosen & goes_on[:, None]
    return card
