"""The benchmark of the exact engine: the rivals are fair, and a disagreement is not passed over."""

from __future__ import annotations

import numpy as np
import pytest

from exactk_lab.bench.solving import briefs, exact
from exactk_lab.bench.solving.brief_instances import brief_instance
from exactk_lab.bench.solving.brief_rivals import BRIEF_RIVALS
from exactk_lab.bench.solving.briefs import BriefPlan
from exactk_lab.bench.solving.exact import NODES_ONLY, PAIRS, BenchPlan, DisagreementError, InstanceKind
from exactk_lab.bench.solving.exact_rivals import RIVALS, SolverOutcome, conflict_sets
from exactk_lab.bench.solving.stopping import Ring


@pytest.mark.parametrize("kind", [NODES_ONLY, PAIRS])
@pytest.mark.parametrize(("card_size", "density"), [(3, 0.4), (4, 0.9), (7, 0.3)])
def test_every_rival_that_applies_proves_our_optimum(kind: str, card_size: int, density: float) -> None:
    instance = exact.instance_of(InstanceKind(kind, card_size, density, 14), seed=1)
    mine, times = exact.ours(instance, limit=20.0, seconds=0.0)
    assert mine.status != "limit"
    assert len(times) == 1
    for name, rival in RIVALS.items():
        if exact.applies(name, instance):
            outcome = rival(instance, 20.0)()
            assert outcome.status == mine.status, name
            assert outcome.value == mine.value, name


def test_a_rival_that_overruns_is_stopped_and_the_next_is_served() -> None:
    # networkx has no time limit; 120 nodes of density 0.9 would take it hours.
    endless = exact.instance_of(InstanceKind(NODES_ONLY, 60, 0.9, 120), seed=0)
    small = exact.instance_of(InstanceKind(NODES_ONLY, 4, 0.5, 12), seed=0)
    with Ring() as ring:
        assert ring.solve("networkx", endless, 0.2) == SolverOutcome("limit", -np.inf, np.inf, 0.2)
        assert ring.solve("CP-SAT", small, 20.0).value == exact.ours(small, 20.0, 0.0)[0].value


def test_networkx_applies_only_where_no_clique_is_larger_than_the_card() -> None:
    dense = exact.instance_of(InstanceKind(NODES_ONLY, 3, 0.9, 14), seed=0)
    assert not exact.applies("networkx", dense)
    assert exact.applies("networkx", dense._replace(card_size=14))
    assert not exact.applies("networkx", exact.instance_of(InstanceKind(PAIRS, 10, 0.3, 14), seed=0))


def test_conflict_sets_cover_exactly_the_forbidden_pairs() -> None:
    graph = exact.instance_of(InstanceKind(NODES_ONLY, 3, 0.5, 25), seed=0).graph
    covered = np.zeros_like(graph)
    for members in conflict_sets(graph):
        covered[np.ix_(members, members)] = True
    np.fill_diagonal(covered, val=False)
    assert (covered == ~graph & ~np.eye(25, dtype=bool)).all()


@pytest.mark.parametrize(
    "other",
    [
        SolverOutcome("optimal", 9.0, 9.0, 0.1),  # proves less than our card is worth
        SolverOutcome("optimal", 11.0, 11.0, 0.1),  # has a card better than our proof allows
        SolverOutcome("infeasible", -np.inf, -np.inf, 0.1),
    ],
)
def test_contradicting_answers_raise(other: SolverOutcome) -> None:
    mine = SolverOutcome("optimal", 10.0, 10.0, 0.1)
    with pytest.raises(DisagreementError, match="ours says"):
        exact.check(mine, other, "a rival", InstanceKind(PAIRS, 4, 0.5, 20), seed=0)


def test_an_unfinished_rival_contradicts_nobody() -> None:
    mine = SolverOutcome("optimal", 10.0, 10.0, 0.1)
    exact.check(
        mine, SolverOutcome("limit", 8.0, 17.0, 1.0), "a rival", InstanceKind(PAIRS, 4, 0.5, 20), seed=0
    )


def test_a_small_run_reports_rows_and_goals(monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = BenchPlan((10, 200), (4, 10), (0.95,), num_instances=1, limit=0.05, repeat_seconds=0.0)
    monkeypatch.setattr(exact, "QUICK", tiny)
    report = exact.run(quick=True).as_dict()
    cells = [row for row in report["rows"] if "kind" in row]
    assert len(cells) == 8
    assert {row["num_nodes"] for row in cells} == {10, 200}
    assert all(row["ratio"] > 0 for row in cells)
    assert [goal["goal"] for goal in report["goals"]] == [">= 100", ">= 10", ">= 1", "<= 0.3", "<= 20"]
    assert report["quick"]


def test_a_small_run_of_briefs_reports_rows_goals_and_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(briefs, "QUICK", BriefPlan((12, 16), (3,), 1, 1.0, 0.0, (40,), 1, 0.1))
    report = briefs.run(quick=True).as_dict()
    assert len([row for row in report["rows"] if "brief" in row]) == 4
    assert report["quick"]
    assert len(report["goals"]) == 3
    assert [row["budget_ms"] for row in report["rows"] if "anytime" in row] == [1.0, 5.0, 20.0]


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_rivals_prove_our_optimum_under_briefs(pairs: bool, seed: int) -> None:
    instance = brief_instance(14, 4, pairs, seed)
    mine, _ = exact.ours(instance, limit=20.0, seconds=0.0)
    for name, rival in BRIEF_RIVALS.items():
        outcome = rival(instance, 20.0)()
        assert outcome.status == mine.status, name
        assert outcome.value == pytest.approx(mine.value, abs=1e-6), name
