"""What each part of the default gains: the way with all parts is the model's own, and the table says differences."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from exactk import Recommender
from exactk.cli import app
from exactk.data.dataset import Dataset
from exactk_lab.bench.pages.tables import parts_table
from exactk_lab.gains import parts_of
from hotel_logs import hotel_rows

SMALL = ["card_value.epochs=1", "card_value.width=8", "card_value.layers=1", "card_value.heads=2"]


@pytest.mark.slow
def test_the_way_with_all_its_parts_is_what_evaluate_says(tmp_path: Path) -> None:
    rows = tmp_path / "rows.parquet"
    pq.write_table(hotel_rows(200), rows)
    data = tmp_path / "hotels"
    built = CliRunner().invoke(app, f"data build frame --impressions {rows} -k 4 --out {data}".split())
    assert built.exit_code == 0, built.output

    found = {row["part"]: row for row in parts_of(data, tmp_path / "work", 1, 1000, SMALL)}

    _, _, test = Dataset.open(data).split()
    own = Recommender.load(tmp_path / "work" / "hotels-the-default-0").evaluate(test)
    assert found["the default"]["test"] == pytest.approx(own["precision"])
    # Of a list a card is a sum of shares: greedy picks the same items, and pairs are nothing.
    assert found["greedy instead of exact"]["test"] == found["the default"]["test"]
    assert found["items alone: no pairs"]["test"] == found["the default"]["test"]
    assert "context: no attention among candidates" in found
    assert "whole-list loss: the card of the log alone" in found
    without = Recommender.load(tmp_path / "work" / "hotels-whole-list-loss-0").fitted
    assert without.sizes.shown == "card"


def test_the_table_says_what_the_figure_falls_by_without_a_part_and_takes_caution_by_validation() -> None:
    def row(log: str, part: str, requests: int, valid: float, test: float) -> dict[str, object]:
        return {"log": log, "part": part, "seed": 0, "requests": requests, "valid": valid, "test": test}

    rows = [
        row("bundles-0", "the default", 100, 0.5, 0.4),
        row("bundles-0", "pair features left out", 100, 0.3, 0.3),
        row("bundles-0", "caution, beta 0.5", 100, 0.6, 0.41),
        row("bundles-0", "caution, beta 1.0", 100, 0.5, 0.9),
        row("bundles-1", "the default", 300, 0.5, 0.6),
        row("bundles-1", "pair features left out", 300, 0.3, 0.2),
        row("bundles-1", "caution, beta 0.5", 300, 0.6, 0.61),
        row("bundles-1", "caution, beta 1.0", 300, 0.5, 0.9),
    ]

    lines = [line for line in parts_table({"rows": rows}).splitlines() if line.startswith("| bundles")]

    assert "**0.550**" in lines[0]  # (100 x 0.4 + 300 x 0.6) / 400
    assert "0.225" in lines[1]  # (100 x 0.3 + 300 x 0.2) / 400
    assert "+0.325" in lines[1]
    assert "beta 0.5" in lines[2]
    assert "+0.010" in lines[2]
    assert len(lines) == 3
