"""A training that taught nothing is told from one that did, by what it reported."""

from __future__ import annotations

from typing import Any

from exactk.learning.faults import training_faults


def reported(*losses: float, auc: float | None = None) -> list[dict[str, Any]]:
    told: list[dict[str, Any]] = [{"task": "policy", "event": "train", "loss": loss} for loss in losses]
    return told if auc is None else [*told, {"task": "value", "event": "calibrated", "auc": auc}]


def test_a_loss_that_never_moved_is_named() -> None:
    assert "stood at 0.0000" in training_faults(reported(0.0, 0.0, 0.0), 0, 0.0)[0]
    assert "stood at 0.6931" in training_faults(reported(0.6931, 0.6931), 0, 0.0)[0]
    assert training_faults(reported(0.6931, 0.6921), 0, 0.0) == []


def test_a_single_report_says_something_only_where_it_is_zero() -> None:
    assert training_faults(reported(0.6931), 0, 0.0) == []
    assert len(training_faults(reported(0.0), 0, 0.0)) == 1


def test_an_auc_within_chance_is_a_fault_and_one_above_it_is_none() -> None:
    # 100 cards, half of them clicked: chance spreads by sqrt(101 / 30,000) = 0.058, twice that is 0.116.
    assert "AUC 0.610" in training_faults(reported(2.0, 1.0, auc=0.61), 100, 0.5)[0]
    assert training_faults(reported(2.0, 1.0, auc=0.62), 100, 0.5) == []


def test_where_validation_cannot_say_nothing_is_said() -> None:
    assert training_faults(reported(2.0, 1.0, auc=float("nan")), 100, 0.5) == []
    assert training_faults(reported(2.0, 1.0, auc=0.5), 100, 0.0) == []
    assert training_faults(reported(2.0, 1.0, auc=0.5), 0, 0.0) == []
