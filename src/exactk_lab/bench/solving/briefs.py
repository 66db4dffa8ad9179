"""Random briefs to our engine, CP-SAT and HiGHS in one run; and how good our answers are when time is short.

Knows no solver from inside: rivals are `brief_rivals.py`, requests `brief_instances.py`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from exactk.problem.exact import cliques
from exactk.problem.graph import Requests, complete_graph
from exactk_lab.bench.report import Goal, Report
from exactk_lab.bench.solving.brief_instances import brief_instance
from exactk_lab.bench.solving.brief_rivals import BRIEF_RIVALS
from exactk_lab.bench.solving.exact import Asked, ours, spread_of, try_rival
from exactk_lab.bench.solving.root_bounds import measured as bounds_measured
from exactk_lab.bench.solving.stopping import Ring
from exactk_lab.bench.timing import spread


@dataclass(frozen=True)
class BriefPlan:
    """Which cells to measure, on how many requests each, and when to stop a solver (seconds)."""

    num_nodes: tuple[int, ...] = (20, 50, 200)
    card_sizes: tuple[int, ...] = (4, 6, 10)
    num_instances: int = 5
    limit: float = 20.0
    repeat_seconds: float = 0.1
    anytime_nodes: tuple[int, ...] = (200, 500)
    anytime_instances: int = 5
    reference_seconds: float = 20.0


FULL = BriefPlan()
QUICK = BriefPlan((20, 50), (4, 6), 1, 1.5, 0.02, (200,), 1, 1.0)
BUDGETS_MS = (1.0, 5.0, 20.0)
ANYTIME_CARD = 10


class BriefCell(NamedTuple):
    """One kind of request under a brief."""

    pairs: bool
    card_size: int
    num_nodes: int


def run(quick: bool = False) -> Report:
    """Every cell of the plan, then short budgets."""
    plan = QUICK if quick else FULL
    with Ring() as ring:
        rows = rows_of(plan, ring)
    anytime = anytime_rows(plan)
    return Report(
        name="briefs",
        rows=rows + anytime + root_rows(plan),
        goals=brief_goals(rows, anytime),
        notes=[
            "ours is the whole Python call; a rival's time is its solve call alone, without building the model",
            f"at {plan.limit:g} s a solver is stopped: its time then counts as the limit, the ratio as a lower bound; "
            "it is not tried on the other requests of that cell, nor on larger N of the same K and weights",
            "briefs are random mixes of rules: caps, counts, totals, variety, places, preferences",
            "weights are whole numbers, nodes 0..1000, pairs -500..500; all proven optima agreed",
        ],
        seeds=list(range(plan.num_instances)),
        quick=quick,
    )


def rows_of(plan: BriefPlan, ring: Ring) -> list[dict[str, Any]]:
    """Every cell; a rival once stopped is taken to need the limit at larger N of the same K."""
    over: set[tuple[str, bool, int]] = set()
    ours(brief_instance(20, 4, True, 0), limit=60.0, seconds=0.0)  # compiled code is loaded first
    return [measured(cell, plan, ring, over) for cell in cells(plan)]


def cells(plan: BriefPlan) -> Iterator[BriefCell]:
    """Smaller N first."""
    for pairs in (False, True):
        for K in plan.card_sizes:
            for N in plan.num_nodes:
                yield BriefCell(pairs, K, N)


def measured(
    cell: BriefCell, plan: BriefPlan, ring: Ring, over: set[tuple[str, bool, int]]
) -> dict[str, Any]:
    """One row: our times and each rival's on the requests of a cell; refuses contradicting proofs."""
    instances = [
        brief_instance(cell.num_nodes, cell.card_size, cell.pairs, seed) for seed in range(plan.num_instances)
    ]
    solved = [ours(instance, plan.limit, plan.repeat_seconds) for instance in instances]
    asked = Asked(cell, instances, [outcome for outcome, _ in solved], plan.limit)
    row: dict[str, Any] = {
        "brief": "node+pair" if cell.pairs else "node",
        "card_size": cell.card_size,
        "num_nodes": cell.num_nodes,
        "ours_ms": spread([t for _, times in solved for t in times]),
    }
    least = np.full(len(instances), np.inf)
    for name in BRIEF_RIVALS:
        kind = (name, cell.pairs, cell.card_size)
        trial = try_rival(f"brief, {name}", asked, ring, kind in over)
        if trial.num_stopped:
            over.add(kind)
        least = np.minimum(least, list(trial.seconds.values()))
        row[f"{name}_ms"] = spread_of(trial)
    return row | asked.figures(least.tolist())


def anytime_rows(plan: BriefPlan) -> list[dict[str, Any]]:
    """Every pair allowed and scored, no brief: the proven gap after so many milliseconds, and what the card lacked.

    `short` is measured against the best card of a much longer search, `gap` is what was proven by then; both are
    shares of the best card known.
    """
    rows = []
    for N in plan.anytime_nodes:
        asked = list(dense_requests(N, plan.anytime_instances))
        known = [cliques.best(*request, plan.reference_seconds).weight[0] for request in asked]
        for budget in BUDGETS_MS:
            gaps, short, taken = [], [], []
            for request, best in zip(asked, known, strict=True):
                started = time.perf_counter()
                found = cliques.best(*request, budget / 1e3)
                taken.append(time.perf_counter() - started)
                gaps.append((found.bound[0] - found.weight[0]) / best)
                short.append((best - found.weight[0]) / best)
            rows.append(
                {
                    "anytime": "node+pair", "num_nodes": N, "card_size": ANYTIME_CARD, "budget_ms": budget,
                    "gap": float(np.median(gaps)), "short": float(np.median(short)),
                    "worst_short": float(max(short)), "taken_ms": spread(taken),
                }
            )  # fmt: skip
    return rows


def root_rows(plan: BriefPlan) -> list[dict[str, Any]]:
    """Of the smallest of those requests: what bounds of other kinds leave open at the root, and how long they take."""
    N = plan.anytime_nodes[0]
    each = []
    for requests, node, pair in dense_requests(N, plan.anytime_instances):
        best = float(cliques.best(requests, node, pair, plan.reference_seconds).weight[0])
        each.append(bounds_measured(node[0], pair[0], ANYTIME_CARD, best))
    medians = {name: float(np.median([row[name] for row in each])) for name in each[0]}
    return [
        {
            "root": name, "num_nodes": N, "card_size": ANYTIME_CARD, "above": above,
            "seconds": medians[f"{name}, s"],
        }
        for name, above in medians.items()
        if not name.endswith(", s")
    ]  # fmt: skip


def dense_requests(num_nodes: int, num_instances: int) -> Iterator[tuple[Requests, np.ndarray, np.ndarray]]:
    """Requests in which every pair is allowed and scored at random, with their weights."""
    N = num_nodes
    for seed in range(num_instances):
        rng = np.random.default_rng([seed, N])
        upper = np.triu(rng.integers(-500, 501, (N, N)), 1)
        node, pair = rng.integers(0, 1001, (1, N)).astype(float), (upper + upper.T)[None].astype(float)
        yield Requests.of(complete_graph(N)[None], ANYTIME_CARD), node, pair


def brief_goals(rows: list[dict[str, Any]], anytime: list[dict[str, Any]]) -> list[Goal]:
    """What was promised of briefs and of short times."""
    small = [row["ratio"] for row in rows if row["num_nodes"] <= 50 and row["card_size"] <= 6]
    large = [row["ratio"] for row in rows if row["num_nodes"] == 200 and row["card_size"] == 10]
    in_five = max((row["gap"] for row in anytime if row["budget_ms"] == 5.0), default=float("nan"))
    goals = [
        Goal(
            "briefs, N <= 50, K <= 6: times faster than the best rival, median",
            float(np.median(small)),
            100.0,
            "least",
        )
    ]
    if large:
        goals.append(
            Goal(
                "briefs, N = 200, K = 10: times faster than the best rival, median",
                float(np.median(large)),
                10.0,
                "least",
            )
        )
    return [
        *goals,
        Goal(
            "briefs, anywhere: times faster, on the worst request",
            min(row["least_ratio"] for row in rows),
            1.0,
            "least",
        ),
        Goal("proven gap after 5 ms, share of the best card, worst N", in_five, 0.02, "most"),
    ]
