"""The audit judges each kind of log by what it can: lists by the clicked item, positives only by the whole card."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from exactk.data import Dataset
from exactk.data.audit import audit, stats
from exactk.data.audit.probes import _whole
from exactk.data.logs.draft import draft_columns
from exactk.data.logs.frame import from_frame
from exactk.data.sample import sample_log
from exactk.errors import InputError
from small_batches import complete_batch

SAMPLE = sample_log(requests=300, seed=5)


@pytest.fixture(scope="module")
def lists(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return from_frame(SAMPLE.rows, items=SAMPLE.items, path=tmp_path_factory.mktemp("audit") / "lists")


def by_hand(dataset: Dataset, column: str, sign: float) -> float:
    """The share of test clicks among the four of highest (or lowest) value; missing ones last, ties by chance."""
    test = set(dataset.split()[2].impressions()["request_id"].to_pylist())
    rows: dict[str, list[dict[str, Any]]] = {}
    for row in SAMPLE.rows.to_pylist():
        if row["request_id"] in test:
            rows.setdefault(row["request_id"], []).append(row)
    shares = []
    for request in rows.values():
        values = [sign * row[column] if row[column] == row[column] else -np.inf for row in request]
        found = []
        for row, value in zip(request, values, strict=True):
            if row["clicked"]:
                above, tied = sum(v > value for v in values), sum(v == value for v in values)
                found.append(min(max((4 - above) / tied, 0), 1))
        shares.append(np.mean(found))
    return float(np.mean(shares))


def test_lists_shown_whole_count_no_cards_and_say_what_size_they_ask_for() -> None:
    sizes = [2, 3, 9]
    rows = {
        "request_id": np.repeat(np.arange(3), sizes),
        "item_id": np.arange(14),
        "clicked": np.arange(14) % 7 == 1,
    }
    counted = stats(from_frame(pa.table(rows), {"k": 4}))
    assert counted["K"] == {"least": 2, "mean": 3.0, "most": 4}
    assert counted["cards"] == 0


def test_lists_are_judged_by_the_share_of_their_clicks_that_a_card_would_hold(lists: Dataset) -> None:
    found = audit(lists)["lists"]
    assert found["orders"]["the order shown"]["precision"] == pytest.approx(by_hand(lists, "position", -1))
    assert found["orders"]["the logged card"]["precision"] == pytest.approx(by_hand(lists, "position", -1))
    assert found["orders"]["the score upstream"]["precision"] == pytest.approx(by_hand(lists, "score", 1))
    assert found["columns"]["-price"] == pytest.approx(by_hand(lists, "price", -1))
    assert found["columns"]["touches"] == pytest.approx(by_hand(lists, "touches", 1))
    chance = found["orders"]["chance"]["precision"]
    assert chance == pytest.approx(
        np.mean([4 / len(row) for row in lists.split()[2].impressions()["candidates"].to_pylist()])
    )
    assert {"popularity in train", "popularity so far"} <= set(found["orders"])


def test_popularity_so_far_counts_what_test_itself_has_shown_before(tmp_path: Path) -> None:
    # Item 0 is clicked from the third request of test on; train never showed it.
    rows = [
        {"request_id": r, "user_id": r % 7, "item_id": i, "timestamp": r, "on_card": i < 2,
         "clicked": i == (0 if r >= 182 else 1 + r % 3)}
        for r in range(200) for i in (range(1, 5) if r < 180 else (0, *range(5, 12)))
    ]  # fmt: skip
    orders = audit(from_frame(pa.Table.from_pylist(rows), path=tmp_path / "log"))["lists"]["orders"]
    # At the first click all eight are new and tie; from the next on item 0 leads.
    assert orders["popularity so far"]["precision"] == pytest.approx((1 / 8 + 17) / 18)
    assert orders["popularity in train"]["precision"] == pytest.approx(1 / 8)


def test_a_column_written_after_the_click_is_named_a_leak(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    clicked = SAMPLE.rows["clicked"].to_numpy(zero_copy_only=False)
    rows = SAMPLE.rows.append_column(
        "paid", pa.array(np.where(clicked, 5.0, rng.uniform(0, 1, len(clicked))))
    )
    drafted = draft_columns(rows).columns
    assert "paid" in drafted.ignored
    told = drafted.to_dict() | {"ignored": [], "candidate": {"numbers": ["price", "paid"]}}
    found = audit(from_frame(rows, told, path=tmp_path / "log"))
    assert not found["clean"]
    assert any(line.startswith("LEAK: the column 'paid' alone") for line in found["verdict"])


def test_an_honest_log_of_lists_is_clean(lists: Dataset) -> None:
    found = audit(lists)
    assert found["clean"], found["verdict"]
    assert found["signal"]["names"] == ["card clicked", "item of the list", "rewards"]


def test_figures_that_favour_the_logging_policy_are_called_that(tmp_path: Path) -> None:
    by_place = SAMPLE.rows["position"].to_numpy() == 1
    rows = SAMPLE.rows.set_column(9, "clicked", pa.array(by_place)).drop_columns(["dwell", "score"])
    rows = rows.append_column("late", pa.array(np.where(SAMPLE.rows["position"].to_numpy() == 9, 1.0, 0.0)))
    outside = rows.to_pylist()
    outside[10] |= {"clicked": True, "on_card": False}
    top = audit(from_frame(pa.Table.from_pylist(outside), path=tmp_path / "top"))
    assert any("clicks fall near the top" in line for line in top["verdict"])
    cards = audit(from_frame(rows, path=tmp_path / "cards"))
    assert any("favours the policy that was logged, which always has it" in line for line in cards["verdict"])


def bundles(path: Path, num: int = 80) -> Dataset:
    """People put together all items of one kind; nothing else tells."""
    rng = np.random.default_rng(0)
    kinds = rng.integers(6, size=60)
    rows: list[dict[str, Any]] = []
    while len(rows) < num:
        offered = rng.choice(60, 8, replace=False)
        counts = np.bincount(kinds[offered], minlength=6)
        if (counts == counts.max()).sum() == 1 and counts.max() >= 2:
            card = offered[kinds[offered] == counts.argmax()]
            rows.append({"request_id": len(rows), "user_id": 1, "candidates": offered.tolist(), "card": card.tolist(),
                         "clicked": True, "timestamp": len(rows)})  # fmt: skip
    items = pa.table({"item_id": np.arange(60), "kind": [f"k{kind}" for kind in kinds]})
    return from_frame(pa.Table.from_pylist(rows), items=items, path=path)


def test_positives_only_are_judged_by_whole_cards(tmp_path: Path) -> None:
    found = audit(bundles(tmp_path / "log"))
    assert found["signal"]["names"] == ["positives only"]
    shares = found["recovery"]["whole_card"]
    assert shares["what pairs have in common"] == 1
    assert shares["chance"] < 0.1
    assert found["lists"] is None
    assert not any("cannot be learned without the others" in line for line in found["verdict"])


def test_a_whole_card_comes_out_by_chance_as_often_as_its_ties_allow() -> None:
    batch = replace(complete_batch(1, 6, 3).arrays(), card=np.array([[0, 1, 2]]))
    scores = {
        1: [3, 2, 2, 0, 0, 0], 1 / 6: [9, 5, 5, 5, 5, 0], 0: [1, 1, 1, 2, 0, 0], 1 / 20: [0, 0, 0, 0, 0, 0],
    }  # fmt: skip
    for expected, score in scores.items():
        assert _whole(np.array([score], float), batch)[0] == pytest.approx(expected)


def test_a_sample_log_of_nothing_is_refused() -> None:
    for size in ({"requests": 0}, {"users": 0}, {"items": 11}):
        with pytest.raises(InputError, match="a sample log needs a request, a user and 12 items"):
            sample_log(**size)
