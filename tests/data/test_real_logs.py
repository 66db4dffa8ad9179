"""Real logs, where they are on this machine: what goes in, by hand, and what comes out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from exactk.data import Dataset
from exactk.data.audit import audit
from exactk.data.logs.frame import build_frame

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data"
HOTELS, BUNDLES = SHARED / "trivago" / "rows.parquet", SHARED / "bundles-electronic"


def test_the_hotel_log_builds_splits_and_is_judged(tmp_path: Path) -> None:
    if not HOTELS.is_file():
        pytest.skip("the hotel log is not on this machine")
    report = build_frame(tmp_path / "hotels", HOTELS)
    assert (report.rows_read, report.rows_dropped, report.impressions) == (312_033, 0, 13_413)
    dataset = Dataset.open(tmp_path / "hotels")
    train, _, test = dataset.split()
    assert (len(train), len(test)) == (8_047, 4_024)
    batch = dataset.batch(train.vocabulary())
    rows = pq.read_table(HOTELS).to_pandas()
    for place, name in enumerate(("price", "price_rank", "touched_before", "last_touched", "touches")):
        numbers = batch.candidate_numbers[..., place][batch.present]  # type: ignore[index]
        np.testing.assert_array_equal(numbers, rows[name].astype(np.float32))
    np.testing.assert_array_equal(batch.clicks[batch.present] > 0, rows["clicked"])  # type: ignore[index]
    orders = audit(dataset)["lists"]["orders"]
    assert orders["the order shown"]["precision"] == pytest.approx(0.5405, abs=5e-5)
    assert orders["chance"]["precision"] == pytest.approx(0.182, abs=5e-4)


def test_the_bundles_build_and_are_judged_by_whole_cards(tmp_path: Path) -> None:
    if not BUNDLES.is_dir():
        pytest.skip("the bundles are not on this machine")
    build_frame(tmp_path / "bundles", BUNDLES / "impressions.parquet", items=BUNDLES / "items.parquet")
    dataset = Dataset.open(tmp_path / "bundles")
    folds = pq.read_table(BUNDLES / "impressions.parquet")["fold"].to_numpy()
    batch = dataset.batch(dataset.take(np.flatnonzero(folds != 0)).vocabulary())
    cards = [len(card) for card in dataset.impressions()["card"].to_pylist()]
    assert (batch.card >= 0).sum(axis=1).tolist() == cards  # type: ignore[operator, union-attr]
    assert dataset.signal.names == ("positives only",)
    shares = audit(dataset)["recovery"]["whole_card"]
    assert shares["what pairs have in common"] > 3 * shares["chance"]
