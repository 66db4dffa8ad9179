"""The exact engine beside CP-SAT, HiGHS and networkx on the same requests, one core each; equal optima or an error.

Knows no solver from inside: rivals are `exact_rivals.py`, ours is `cliques.best` as anyone calls it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from exactk.errors import ExactKError
from exactk.problem.exact import cliques
from exactk.problem.graph import Requests
from exactk_lab.bench.report import Goal, Report
from exactk_lab.bench.solving.brief_instances import BriefInstance
from exactk_lab.bench.solving.exact_rivals import RIVALS, Instance, SolverOutcome, Status
from exactk_lab.bench.solving.stopping import Ring
from exactk_lab.bench.timing import repeated, spread

NODES_ONLY, PAIRS = "node", "node+pair"


class DisagreementError(ExactKError):
    """Two solvers proved different optima: one of them is wrong, and no time is worth reporting."""


@dataclass(frozen=True)
class BenchPlan:
    """Which cells to measure, on how many requests each, and when to stop a solver (seconds)."""

    num_nodes: tuple[int, ...] = (20, 50, 100, 200, 500)
    card_sizes: tuple[int, ...] = (4, 6, 10)
    densities: tuple[float, ...] = (0.3, 0.6, 0.9)
    num_instances: int = 3
    limit: float = 20.0
    repeat_seconds: float = 0.2


FULL = BenchPlan()
QUICK = BenchPlan((20, 50, 200), (4, 10), (0.6, 0.9), num_instances=1, limit=1.5, repeat_seconds=0.05)


class InstanceKind(NamedTuple):
    """One kind of request."""

    kind: str
    card_size: int
    density: float
    num_nodes: int


def run(quick: bool = False) -> Report:
    """Every cell of the plan, then single calls by the clock."""
    plan = QUICK if quick else FULL
    for kind in (NODES_ONLY, PAIRS):  # compiled code is loaded before anything is timed
        ours(instance_of(InstanceKind(kind, 4, 0.9, 20), seed=0), limit=60.0, seconds=0.0)
    over: set[tuple[str, InstanceKind]] = set()
    with Ring() as ring:
        rows = [measure(cell, plan, ring, over) for cell in cells(plan)]
    singles = single_calls(plan)
    return Report(
        name="exact",
        rows=rows + singles,
        goals=goals(rows, singles),
        notes=[
            "ours is the whole Python call; a rival's time is its solve call alone, without building the model",
            f"at {plan.limit:g} s a solver is stopped: its time then counts as the limit, the ratio as a lower bound",
            "a rival once stopped is not tried on the other requests of that cell, nor on larger N of the same K, "
            "density and kind: there it is taken to need the limit at least",
            "networkx applies where weights are on nodes only and no clique is larger than the card",
            "weights are whole numbers, nodes 0..1000, pairs -500..500; all proven optima agreed",
        ],
        seeds=list(range(plan.num_instances)),
        quick=quick,
    )


def cells(plan: BenchPlan) -> Iterator[InstanceKind]:
    """Smaller N first, so that a rival that gives up is known to."""
    for kind in (NODES_ONLY, PAIRS):
        for K in plan.card_sizes:
            for density in plan.densities:
                for N in plan.num_nodes:
                    yield InstanceKind(kind, K, density, N)


def instance_of(cell: InstanceKind, seed: int) -> Instance:
    """The seed-th random request of a cell."""
    rng = np.random.default_rng([seed, cell.num_nodes, cell.card_size, round(100 * cell.density)])
    N = cell.num_nodes
    upper = np.triu(rng.random((N, N)) < cell.density, 1)
    node = rng.integers(0, 1001, N)
    pair = np.triu(rng.integers(-500, 501, (N, N)), 1)
    return Instance(upper | upper.T, cell.card_size, node, pair + pair.T if cell.kind == PAIRS else None)


def arguments(instance: Instance | BriefInstance) -> tuple[Requests, np.ndarray, np.ndarray | None]:
    """The same request as our engine takes it."""
    if isinstance(instance, BriefInstance):
        requests = instance.requests()
    else:
        requests = Requests.of(instance.graph[None], instance.card_size)
    pair = None if instance.pair is None else instance.pair[None].astype(float)
    return requests, instance.node[None].astype(float), pair


def ours(
    instance: Instance | BriefInstance, limit: float, seconds: float
) -> tuple[SolverOutcome, list[float]]:
    """Our answer, and the times of repeated calls (the first, which may load compiled code, left out)."""
    requests, node, pair = arguments(instance)
    started = time.perf_counter()
    solution = cliques.best(requests, node, pair, limit)
    first = time.perf_counter() - started
    finished = bool(solution.optimal[0])
    status: Status = "limit" if not finished else "optimal" if solution.found[0] else "infeasible"
    long = first > limit / 2
    times = [first] if long else repeated(lambda: cliques.best(requests, node, pair, limit), seconds)
    outcome = SolverOutcome(
        status, float(solution.weight[0]), float(solution.bound[0]), float(np.median(times))
    )
    return outcome, times


def applies(name: str, instance: Instance | BriefInstance) -> bool:
    """Whether a rival can solve this kind of request at all."""
    if isinstance(instance, BriefInstance):
        return True
    if name == "CP-SAT, tight pairs":
        return instance.pair is not None
    if name == "networkx":
        larger = Requests.of(instance.graph[None], instance.card_size + 1)
        return instance.pair is None and not cliques.exists(larger)[0]
    return True


def check(mine: SolverOutcome, other: SolverOutcome, name: str, cell: tuple[Any, ...], seed: int) -> None:
    """Refuse to go on where two proofs, or a card and a proof, contradict each other."""
    # HiGHS works in floating point.
    slack = 1e-6 * max(1.0, abs(mine.value)) if np.isfinite(mine.value) else 0.0
    if mine.value > other.bound + slack or other.value > mine.bound + slack:
        raise DisagreementError(f"{cell}, seed {seed}: ours says {mine}, {name} says {other}")


class Asked(NamedTuple):
    """The requests of a cell, our answers to them, and the seconds after which a rival is stopped."""

    cell: tuple[Any, ...]
    instances: Sequence[Instance | BriefInstance]
    answers: Sequence[SolverOutcome]
    limit: float

    def figures(self, least: Sequence[float]) -> dict[str, Any]:
        """How we stand to the best rival's time on each request, and what nobody could prove."""
        ratios = [
            1.0 if answer.status == "limit" and best >= self.limit else best / answer.seconds
            for answer, best in zip(self.answers, least, strict=True)
        ]
        return {
            "ratio": float(np.median(ratios)),
            "least_ratio": float(min(ratios)),
            "infeasible": sum(answer.status == "infeasible" for answer in self.answers),
            "unproven": sum(answer.status == "limit" for answer in self.answers),
        }


class Trial(NamedTuple):
    """A rival on the requests of a cell: seconds by seed, the limit where it was stopped or not tried any more."""

    seconds: dict[int, float]
    num_run: int
    num_stopped: int


def try_rival(name: str, asked: Asked, ring: Ring, tried: bool) -> Trial:
    """Run a rival until it is first stopped; `tried` says that this happened already at a smaller N."""
    seconds: dict[int, float] = {}
    run = stopped = 0
    for seed, instance in enumerate(asked.instances):
        if not applies(name, instance):
            continue
        if tried or stopped:
            seconds[seed] = asked.limit
            continue
        outcome = ring.solve(name, instance, asked.limit)
        check(asked.answers[seed], outcome, name, asked.cell, seed)
        run += 1
        stopped += outcome.status == "limit"
        seconds[seed] = max(outcome.seconds, asked.limit) if outcome.status == "limit" else outcome.seconds
    return Trial(seconds, run, stopped)


def measure(
    cell: InstanceKind, plan: BenchPlan, ring: Ring, over: set[tuple[str, InstanceKind]]
) -> dict[str, Any]:
    """One row: our times and each rival's on the requests of a cell. `over` remembers who was stopped, and where."""
    instances = [instance_of(cell, seed) for seed in range(plan.num_instances)]
    solved = [ours(instance, plan.limit, plan.repeat_seconds) for instance in instances]
    asked = Asked(cell, instances, [outcome for outcome, _ in solved], plan.limit)
    row: dict[str, Any] = {**cell._asdict(), "ours_ms": spread([t for _, times in solved for t in times])}
    least = [np.inf] * len(instances)  # the best rival's time on each request
    for name in RIVALS:
        smaller = [cell._replace(num_nodes=N) for N in plan.num_nodes if cell.num_nodes > N]
        trial = try_rival(name, asked, ring, any((name, c) in over for c in smaller))
        if trial.num_stopped:
            over.add((name, cell))
        for seed, seconds in trial.seconds.items():
            least[seed] = min(least[seed], seconds)
        row[f"{name}_ms"] = figures_of(trial, plan.limit)
    gaps = [(a.bound - a.value) / abs(a.value) for a in asked.answers if a.status == "limit"]
    return row | asked.figures(least) | {"largest_gap": max(gaps, default=0.0)}


def figures_of(trial: Trial, limit: float) -> dict[str, Any] | str:
    """A rival's times in a row of the report, or why there are none."""
    if not trial.seconds:
        return "does not apply"
    if not trial.num_run:
        return f"> {1e3 * limit:g}: stopped at a smaller N"
    return spread_of(trial)


def spread_of(trial: Trial) -> dict[str, Any]:
    """Its times, on how many requests it was run, and on how many it was stopped."""
    return spread(list(trial.seconds.values())) | {"run": trial.num_run, "stopped": trial.num_stopped}


def single_calls(plan: BenchPlan) -> list[dict[str, Any]]:
    """`best` and `can_complete` for one request of the paper's size, by the clock on the wall."""
    rows = []
    for density in (0.3, 0.6, 0.9):
        taken: dict[str, list[float]] = {"best": [], "can_complete": []}
        for seed in range(10):
            requests, node, pair = arguments(instance_of(InstanceKind(PAIRS, 4, density, 50), seed))
            chosen = np.zeros((1, 50), bool)
            chosen[0, seed] = True
            calls: dict[str, Callable[[], Any]] = {
                "best": lambda r=requests, n=node, p=pair: cliques.best(r, n, p),  # type: ignore[misc]
                "can_complete": lambda r=requests, c=chosen: cliques.can_complete(r, c),  # type: ignore[misc]
            }
            for name, call in calls.items():
                taken[name] += repeated(call, plan.repeat_seconds)
        for name, times in taken.items():
            rows.append(
                {"call": name, "num_nodes": 50, "card_size": 4, "density": density, "ms": spread(times)}
            )
    return rows


def goals(rows: list[dict[str, Any]], singles: list[dict[str, Any]]) -> list[Goal]:
    """What was promised."""
    small = [row["ratio"] for row in rows if row["num_nodes"] <= 50 and row["card_size"] <= 6]
    large = [row["ratio"] for row in rows if row["num_nodes"] == 200 and row["card_size"] == 10]
    slowest = {
        name: max(row["ms"]["median"] for row in singles if row["call"] == name)
        for name in ("best", "can_complete")
    }
    return [
        Goal(
            "N <= 50, K <= 6: times faster than the best rival, median",
            float(np.median(small)),
            100.0,
            "least",
        ),
        Goal(
            "N = 200, K = 10: times faster than the best rival, median",
            float(np.median(large)),
            10.0,
            "least",
        ),
        Goal(
            "anywhere: times faster, on the worst request",
            min(row["least_ratio"] for row in rows),
            1.0,
            "least",
        ),
        Goal("best, N = 50, K = 4, node+pair, slowest density: ms", slowest["best"], 0.3, "most"),
        Goal("can_complete, N = 50, K = 4, slowest density: us", 1e3 * slowest["can_complete"], 20.0, "most"),
    ]
