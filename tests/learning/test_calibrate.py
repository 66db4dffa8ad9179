"""Calibration figures against hand numbers and planted truth."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from exactk.engine.decide import Calibration
from exactk.learning import calibrate
from exactk.learning.calibrate import training_faults

YES, NO = True, False


def test_auc_counts_pairs_in_order_and_ties_by_half() -> None:
    scores = torch.tensor([0.9, 0.4, 0.4, 0.1])
    clicked = torch.tensor([YES, YES, NO, NO])
    assert calibrate.auc(scores, clicked) == (1 + 1 + 0.5 + 1) / 4  # 0.9>0.4, 0.9>0.1, 0.4=0.4, 0.4>0.1


def test_auc_equals_the_count_over_all_pairs() -> None:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randint(0, 20, (200,), generator=generator).float()
    clicked = torch.rand(200, generator=generator) < 0.3
    above = scores[clicked][:, None] - scores[~clicked][None, :]
    expected = ((above > 0).float() + 0.5 * (above == 0).float()).mean().item()
    assert calibrate.auc(scores, clicked) == pytest.approx(expected)


def test_auc_without_both_kinds_is_not_a_number() -> None:
    assert math.isnan(calibrate.auc(torch.tensor([0.1, 0.2]), torch.tensor([YES, YES])))


def test_log_loss_by_hand() -> None:
    loss = calibrate.log_loss(torch.tensor([0.8, 0.25]), torch.tensor([YES, NO]))
    assert loss == pytest.approx(-(math.log(0.8) + math.log(0.75)) / 2)


def test_calibration_error_by_hand() -> None:
    probability = torch.tensor([0.1, 0.3, 0.6, 0.8])
    clicked = torch.tensor([NO, YES, YES, NO])
    # two bins: |0.2 - 0.5| and |0.7 - 0.5|
    assert calibrate.calibration_error(probability, clicked, num_bins=2) == pytest.approx((0.3 + 0.2) / 2)


def test_a_perfect_forecast_has_a_small_calibration_error_and_a_biased_one_its_bias() -> None:
    generator = torch.Generator().manual_seed(0)
    probability = torch.rand(200_000, generator=generator) * 0.5 + 0.2
    clicked = torch.rand(200_000, generator=generator) < probability
    assert calibrate.calibration_error(probability, clicked) < 0.005
    assert calibrate.calibration_error(probability + 0.1, clicked) == pytest.approx(0.1, abs=0.005)


def test_platt_scaling_recovers_a_planted_distortion() -> None:
    generator = torch.Generator().manual_seed(1)
    truth = torch.randn(100_000, generator=generator) - 1.5
    clicked = torch.rand(100_000, generator=generator) < truth.sigmoid()
    overconfident = 3.0 * truth + 2.0
    fitted = calibrate.fitted_calibration(overconfident, clicked)
    assert fitted.scale == pytest.approx(1 / 3, rel=0.03)
    assert fitted.shift == pytest.approx(-2 / 3, abs=0.03)
    figures = calibrate.reward_figures(overconfident, clicked, fitted)
    assert figures["calibration_error"] < 0.01
    assert figures["log_loss"] < calibrate.reward_figures(overconfident, clicked)["log_loss"]
    assert figures["auc"] == pytest.approx(calibrate.auc(truth, clicked), abs=1e-6)


def test_calibration_never_reverses_an_order() -> None:
    logits = torch.linspace(-2, 2, 101)
    fitted = calibrate.fitted_calibration(logits, logits < 0)  # a value that is wrong throughout
    assert (np.diff(fitted(logits.numpy())) > 0).all()


@pytest.mark.parametrize("clicked", [[YES, YES], [NO, NO]])
def test_calibration_on_one_kind_of_outcome_leaves_things_as_they_are(clicked: list[bool]) -> None:
    assert calibrate.fitted_calibration(torch.tensor([0.3, 0.4]), torch.tensor(clicked)) == Calibration()


def test_separable_data_keep_calibration_finite() -> None:
    logits = torch.tensor([-3.0, -2.0, 2.0, 3.0]).repeat(50)
    fitted = calibrate.fitted_calibration(logits, logits > 0)
    assert 0 < fitted.scale < 100
    assert math.isfinite(fitted.shift)


@pytest.mark.parametrize(
    ("true_share", "kept"), [(1.0, 1.0), (0.4, 0.4), (0.0, 0.0), (-1.0, 0.0), (1.8, 1.0)]
)
def test_pairs_keep_the_share_that_clicks_bear_out(true_share: float, kept: float) -> None:
    generator = torch.Generator().manual_seed(2)
    rest, pairs = torch.randn(2, 60_000, generator=generator)
    clicked = torch.rand(60_000, generator=generator) < (0.7 * (rest + true_share * pairs) - 1.5).sigmoid()
    assert calibrate.fitted_pair_share(rest, pairs, clicked) == pytest.approx(kept, abs=0.04)


def test_a_few_cards_hardly_move_the_share_of_pairs() -> None:
    generator = torch.Generator().manual_seed(3)
    rest, noise = torch.randn(2, 30, generator=generator)
    clicked = torch.rand(30, generator=generator) < rest.sigmoid()
    assert calibrate.fitted_pair_share(rest, 0.1 * noise, clicked) > 0.9
    assert calibrate.fitted_pair_share(rest, noise, torch.ones(30, dtype=torch.bool)) == 1.0


def reported(*losses: float, auc: float | None = None) -> list[dict[str, Any]]:
    told: list[dict[str, Any]] = [{"task": "policy", "event": "train", "loss": loss} for loss in losses]
    return told if auc is None else [*told, {"task": "value", "event": "calibrated", "auc": auc}]


def test_a_loss_that_never_moved_is_named() -> None:
    assert "was 0.0000" in training_faults(reported(0.0, 0.0, 0.0), 0, 0.0)[0]
    assert "was 0.6931" in training_faults(reported(0.6931, 0.6931), 0, 0.0)[0]
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
