"""The figure people ask for is said in plain words, for lists and for logs of positives only."""

from __future__ import annotations

import json

import numpy as np
import pytest

from exactk.cli import app
from exactk.cli.output import emit_figures
from exactk.data import Dataset
from exactk.recommender import Recommender
from small_models import COLUMNS, folder_of


def test_evaluate_counts_the_clicks_of_whole_lists(capsys: pytest.CaptureFixture[str]) -> None:
    """A log with clicks below the card: what is printed is what `compare` calls the clicked item on the card."""
    model, log = folder_of(COLUMNS), folder_of(COLUMNS).parent / "log"
    app(["evaluate", str(model), str(log), "--json"], standalone_mode=False)
    told = json.loads(capsys.readouterr().out)
    recommender, test = Recommender.load(model), Dataset.open(log).split()[2]
    batch = test.batch(recommender.fitted.vocabulary)
    cards = recommender.recommend_batch(batch)
    assert batch.clicks is not None
    assert batch.clicked_position is not None
    shares = [
        sum(batch.clicks[b, card]) / batch.clicks[b].sum()
        for b, card in enumerate(cards)
        if batch.clicks[b].any()
    ]
    assert (batch.clicks.sum(1) > (batch.clicked_position >= 0)).any()  # some fall outside the card
    assert told["precision"] == pytest.approx(np.mean(shares))
    app(["evaluate", str(model), str(log)], standalone_mode=False)
    shown = capsys.readouterr().out
    assert f"clicked items on the card: {told['precision']:.1%} (test; all clicks of a list count)" in shown


def test_positives_only_are_told_by_whole_cards(capsys: pytest.CaptureFixture[str]) -> None:
    emit_figures(
        {"requests": 118.0, "precision": float("nan"), "hit_ratio": 0.7, "whole_card": 0.435}, "test"
    )
    shown = capsys.readouterr().out
    assert "P@K" not in shown
    assert "whole cards recovered: 43.5% (test; no card was shown and passed over)" in shown


def test_counts_are_shown_whole_and_shares_in_four_digits(capsys: pytest.CaptureFixture[str]) -> None:
    emit_figures({"requests": 20_000.0, "infeasible": 0.0, "precision": 0.43654321}, "test")
    lines = {tuple(line.split()[-2:]) for line in capsys.readouterr().out.splitlines() if line.strip()}
    assert ("requests", "20,000") in lines
    assert ("out", "0") in lines
    assert ("(P@K)", "0.4365") in lines
