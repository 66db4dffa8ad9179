"""What people would use instead of the exact engine, each with the best formulation we found for it.

Knows nothing of our engine. A rival builds its model when called and returns what solves it: only that is timed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np

from exactk.errors import MissingExtraError

try:
    import networkx
    from ortools.sat.python import cp_model as cp_model
    from scipy import sparse as sparse
    from scipy.optimize import Bounds, milp
    from scipy.optimize import LinearConstraint as LinearConstraint
except ImportError as error:
    raise MissingExtraError(
        f"the rivals are not installed ({error.name}): pip install 'exactk[rivals]'"
    ) from error


class Instance(NamedTuple):
    """One request with whole-number weights, so that equal optima are exactly equal; `pair` None: nodes only."""

    graph: np.ndarray
    card_size: int
    node: np.ndarray
    pair: np.ndarray | None


Status = Literal["optimal", "infeasible", "limit"]


class SolverOutcome(NamedTuple):
    """What a solver said, and how long it took; `bound` is proven, `value` the best card it found."""

    status: Status
    value: float
    bound: float
    seconds: float


Solve = Callable[[], SolverOutcome]


def conflict_sets(graph: np.ndarray) -> list[list[int]]:
    """Sets of mutually forbidden nodes that together cover every forbidden pair: fewer, stronger constraints."""
    N = len(graph)
    rivals = [sum(1 << j for j in range(N) if j != i and not graph[i, j]) for i in range(N)]
    uncovered = list(rivals)
    sets = []
    for i in range(N):
        while later := uncovered[i] >> (i + 1):
            members = [i, i + (later & -later).bit_length()]
            common = rivals[members[0]] & rivals[members[1]]
            while common:
                members.append((common & -common).bit_length() - 1)
                common &= rivals[members[-1]]
            mask = sum(1 << member for member in members)
            for member in members:
                uncovered[member] &= ~mask
            sets.append(members)
    return sets


def allowed_pairs(instance: Instance) -> tuple[np.ndarray, np.ndarray]:
    """The ends of every allowed pair, lower first."""
    first, second = np.nonzero(np.triu(instance.graph, 1))
    return first, second


def cp_sat(instance: Instance, limit: float, tight: bool = False) -> Solve:
    """CP-SAT on one worker. `tight` adds, for each node, that its chosen pairs number (K-1) times itself.

    Forbidden pairs go in one by one: its presolve joins them into sets faster than it takes sets of ours.
    """
    N, K = len(instance.graph), instance.card_size
    model = cp_model.CpModel()
    chosen = [model.new_bool_var("") for _ in range(N)]
    model.add(sum(chosen) == K)
    for i, j in zip(*np.nonzero(np.triu(~instance.graph, 1)), strict=True):
        model.add_bool_or(chosen[i].negated(), chosen[j].negated())
    terms = [int(weight) * x for weight, x in zip(instance.node, chosen, strict=True)]
    if instance.pair is not None:
        of_node: list[list[Any]] = [[] for _ in range(N)]
        for i, j in zip(*allowed_pairs(instance), strict=True):
            weight = int(instance.pair[i, j])
            both = model.new_bool_var("")
            if weight > 0 or tight:
                model.add_implication(both, chosen[i])
                model.add_implication(both, chosen[j])
            if weight < 0 or tight:
                model.add_bool_or(chosen[i].negated(), chosen[j].negated(), both)
            terms.append(weight * both)
            of_node[i].append(both)
            of_node[j].append(both)
        if tight:
            for i in range(N):
                model.add(sum(of_node[i]) == (K - 1) * chosen[i])
    model.maximize(sum(terms))
    return cp_sat_solve(model, limit)


def cp_sat_solve(model: Any, limit: float, unit: int = 1) -> Solve:
    """What solves a model of CP-SAT on one worker; values are counted in parts of a unit."""
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_time_in_seconds = limit

    def solve() -> SolverOutcome:
        started = time.perf_counter()
        status = solver.solve(model)
        seconds = time.perf_counter() - started
        if status == cp_model.INFEASIBLE:
            return SolverOutcome("infeasible", -np.inf, -np.inf, seconds)
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return SolverOutcome("limit", -np.inf, np.inf, seconds)
        said: Status = "optimal" if status == cp_model.OPTIMAL else "limit"
        value, bound = round(solver.objective_value), solver.best_objective_bound
        return SolverOutcome(said, value / unit, bound / unit, seconds)

    return solve


def cp_sat_tight(instance: Instance, limit: float) -> Solve:
    """CP-SAT with the tighter model of pairs; better on dense graphs, worse on sparse ones."""
    return cp_sat(instance, limit, tight=True)


def highs(instance: Instance, limit: float) -> Solve:
    """HiGHS through scipy: sets of mutually forbidden nodes, and for each node sum of its pairs = (K-1) * itself."""
    N, K = len(instance.graph), instance.card_size
    sets = conflict_sets(instance.graph)
    rows = np.repeat(np.arange(len(sets)), [len(members) for members in sets])
    columns = np.array([i for members in sets for i in members], int)
    blocks = [
        [sparse.csr_array(np.ones((1, N)))],
        [sparse.csr_array((np.ones(len(rows)), (rows, columns)), shape=(len(sets), N))],
    ]
    lower, upper = [np.full(1, K), np.full(len(sets), -np.inf)], [np.full(1, K), np.ones(len(sets))]
    weights = instance.node.astype(float)
    if instance.pair is not None:
        first, second = allowed_pairs(instance)
        num = len(first)
        ends = [
            sparse.csr_array((np.ones(num), (np.arange(num), end)), shape=(num, N)) for end in (first, second)
        ]
        pairs = sparse.identity(num, format="csr")
        blocks = [[block, None] for (block,) in blocks]
        blocks += [[-ends[0], pairs], [-ends[1], pairs]]
        blocks += [[-(K - 1) * sparse.identity(N), (ends[0] + ends[1]).T]]
        lower += [np.full(2 * num, -np.inf), np.zeros(N)]
        upper += [np.zeros(2 * num), np.zeros(N)]
        weights = np.concatenate([weights, instance.pair[first, second]])
    rules = LinearConstraint(sparse.bmat(blocks, format="csr"), np.concatenate(lower), np.concatenate(upper))
    whole = np.zeros(len(weights))
    whole[:N] = 1  # with whole nodes the pairs come out whole by themselves
    return highs_solve(weights, rules, whole, limit)


def highs_solve(weights: np.ndarray, rules: Any, whole: np.ndarray, limit: float, unit: int = 1) -> Solve:
    """What solves a linear program of shares between 0 and 1, some of them whole; values are whole parts of a unit."""
    options = {"time_limit": limit, "mip_rel_gap": 0.0}

    def solve() -> SolverOutcome:
        started = time.perf_counter()
        answer = milp(-weights, constraints=rules, integrality=whole, bounds=Bounds(0, 1), options=options)
        seconds = time.perf_counter() - started
        if answer.status == 2:
            return SolverOutcome("infeasible", -np.inf, -np.inf, seconds)
        value = -np.inf if answer.x is None else round(-answer.fun * unit) / unit
        bound = np.inf if answer.mip_dual_bound is None else -answer.mip_dual_bound
        return SolverOutcome("optimal" if answer.status == 0 else "limit", value, bound, seconds)

    return solve


def networkx_clique(instance: Instance, limit: float) -> Solve:  # noqa: ARG001
    """networkx's max_weight_clique, asked to prefer size: right only where no clique is larger than the card.

    It has no time limit of its own, so that `limit` is not honoured: `stopping.py` ends it.
    """
    N, K = len(instance.graph), instance.card_size
    size_first = int(instance.node.sum()) + 1
    graph = networkx.from_numpy_array(instance.graph)
    for i in range(N):
        graph.nodes[i]["weight"] = int(instance.node[i]) + size_first

    def solve() -> SolverOutcome:
        started = time.perf_counter()
        members, weight = networkx.max_weight_clique(graph)
        seconds = time.perf_counter() - started
        if len(members) < K:
            return SolverOutcome("infeasible", -np.inf, -np.inf, seconds)
        value = float(weight - K * size_first)
        return SolverOutcome("optimal", value, value, seconds)

    return solve


Rival = Callable[[Instance, float], Solve]
RIVALS: dict[str, Rival] = {
    "CP-SAT": cp_sat,
    "CP-SAT, tight pairs": cp_sat_tight,
    "HiGHS": highs,
    "networkx": networkx_clique,
}
