"""Splits: nothing lost, nothing twice, nothing leaking across the line each of them draws."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from inspect import unwrap
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from card_logs import random_impressions, random_log, write_log
from exactk.data import Dataset
from exactk.data.split import Method, _by_time, epoch_order, in_batches
from exactk.errors import DataError, InputError


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return random_log(tmp_path_factory.mktemp("split") / "log", num=400)


def sides(parts: tuple[Dataset, Dataset, Dataset], column: str) -> list[set[Any]]:
    return [set(part.impressions()[column].to_pylist()) for part in parts]


def pairs(part: Dataset) -> set[tuple[Any, Any]]:
    rows = part.impressions().to_pylist()
    return {(row["user_id"], item) for row in rows for item in row["candidates"]}


@pytest.mark.parametrize("by", [m for m in get_args(Method) if m != "recorded"])
def test_every_split_parts_the_log_and_loses_nothing(dataset: Dataset, by: Method) -> None:
    parts = dataset.split(by, seed=3)
    assert sorted(np.concatenate([part.rows for part in parts])) == list(range(400))
    again = dataset.split(by, seed=3)
    assert all((a.rows == b.rows).all() for a, b in zip(parts, again, strict=True))


def test_a_random_split_has_the_asked_for_shares(dataset: Dataset) -> None:
    assert [len(part) for part in dataset.split("random", seed=1)] == [320, 40, 40]
    assert [len(part) for part in dataset.split("random", valid=0.25, test=0.5)] == [100, 100, 200]
    assert (
        dataset.split("random", seed=1)[2].rows.tolist() != dataset.split("random", seed=2)[2].rows.tolist()
    )


def test_split_by_user_puts_a_user_on_one_side(dataset: Dataset) -> None:
    train, valid, test = sides(dataset.split("user", valid=0.2, test=0.2), "user_id")
    assert train
    assert test
    assert not train & valid
    assert not train & test
    assert not valid & test


def test_split_by_time_never_trains_on_the_future(dataset: Dataset) -> None:
    train, valid, test = sides(dataset.split("time"), "timestamp")
    assert max(train) < min(valid) <= max(valid) < min(test)
    assert (len(train), len(valid), len(test)) == (320, 40, 40)


def test_cutoffs_are_the_first_moments_of_valid_and_test(dataset: Dataset) -> None:
    train, valid, test = sides(dataset.split("time", cutoffs=(2000, 3000)), "timestamp")
    assert (max(train), min(valid), max(valid), min(test)) == (1990, 2000, 2990, 3000)
    with pytest.raises(InputError, match="rise"):
        dataset.split("time", cutoffs=(3000, 2000))


def test_equal_moments_stay_on_one_side(tmp_path: Path) -> None:
    rows = [row | {"timestamp": r // 10} for r, row in enumerate(random_impressions(100))]
    train, valid, test = sides(Dataset.open(write_log(tmp_path / "log", rows)).split("time"), "timestamp")
    assert max(train) < min(valid) <= max(valid) < min(test)


def test_datetimes_serve_as_cutoffs(tmp_path: Path) -> None:
    rows = [row | {"timestamp": datetime(2024, 5, 1 + r)} for r, row in enumerate(random_impressions(9))]
    dataset = Dataset.open(write_log(tmp_path / "log", rows))
    parts = dataset.split("time", cutoffs=(datetime(2024, 5, 4), datetime(2024, 5, 9)))
    assert [len(part) for part in parts] == [3, 5, 1]
    east = timezone(timedelta(hours=9))  # 9 o'clock there is midnight of what the log tells
    cutoffs = (datetime(2024, 5, 4, 9, tzinfo=east), datetime(2024, 5, 9, 9, tzinfo=east))
    assert [len(part) for part in dataset.split("time", cutoffs=cutoffs)] == [3, 5, 1]


@pytest.mark.parametrize(
    "cutoffs", [("2024-05-04", "2024-05-09"), (2000,), (2000.5, 3000), (date(2024, 5, 4),) * 2]
)
def test_cutoffs_of_another_kind_are_refused(dataset: Dataset, cutoffs: Any) -> None:
    with pytest.raises(InputError, match="cutoffs must be two whole numbers or datetimes"):
        unwrap(_by_time)(dataset.folder.index, dataset.rows, 0.1, 0.1, cutoffs)


def test_cutoffs_that_would_part_nothing_are_refused(dataset: Dataset) -> None:
    with pytest.raises(InputError, match="cutoffs are for a split by time, not by user"):
        dataset.split("user", cutoffs=(2000, 3000))
    with pytest.raises(InputError, match="timestamps of this log are numbers"):
        dataset.split("time", cutoffs=(datetime(2024, 5, 4), datetime(2024, 5, 9)))


def test_split_by_pair_never_shows_a_user_an_item_on_two_sides(tmp_path: Path) -> None:
    rows = random_impressions(300, num_users=5, num_items=4000, sizes=(3, 9))
    dataset = Dataset.open(write_log(tmp_path / "log", rows))
    parts = dataset.split("pair", valid=0.2, test=0.2)
    train, valid, test = (pairs(part) for part in parts)
    assert not train & valid
    assert not train & test
    assert not valid & test
    users = sides(parts, "user_id")
    assert users[0] & users[2]  # finer than a split by user, where the log allows
    random_train, _, random_test = (pairs(part) for part in dataset.split("random", valid=0.2, test=0.2))
    assert random_train & random_test


def test_split_by_pair_follows_chains_of_shared_items(tmp_path: Path) -> None:
    chain = [["a", "b"], ["b", "c"], ["c", "d"]]
    rows = [{"request_id": r, "user_id": 0, "candidates": c} for r, c in enumerate([*chain, ["x"], ["y"]])]
    dataset = Dataset.open(write_log(tmp_path / "log", rows))
    for seed in range(20):
        parts = [set(part.rows.tolist()) for part in dataset.split("pair", seed, valid=0.3, test=0.3)]
        assert any({0, 1, 2} <= part for part in parts)


def test_split_by_pair_ties_only_requests_of_one_user(tmp_path: Path) -> None:
    rows = [{"request_id": r, "user_id": r, "candidates": ["everyone's favourite"]} for r in range(40)]
    parts = Dataset.open(write_log(tmp_path / "log", rows)).split("pair", valid=0.25, test=0.25)
    assert [len(part) for part in parts] == [20, 10, 10]


def test_split_by_pair_keeps_a_request_together_even_without_shared_items(tmp_path: Path) -> None:
    rows = [{"request_id": r // 2, "user_id": 0, "candidates": [f"i{r}"]} for r in range(40)]
    parts = sides(
        Dataset.open(write_log(tmp_path / "log", rows)).split("pair", valid=0.2, test=0.2), "request_id"
    )
    assert not parts[0] & parts[1]
    assert not parts[0] & parts[2]


def test_two_cards_of_one_request_stay_together(tmp_path: Path) -> None:
    rows = [row | {"request_id": r // 2} for r, row in enumerate(random_impressions(100))]
    parts = sides(Dataset.open(write_log(tmp_path / "log", rows)).split("random"), "request_id")
    assert not parts[0] & parts[1]
    assert not parts[0] & parts[2]
    assert [len(part) for part in parts] == [40, 5, 5]


def test_a_recorded_split_is_honoured_and_valid_is_carved_out_of_train(tmp_path: Path) -> None:
    rows = [
        row | {"split": "test" if r % 4 == 0 else "train"} for r, row in enumerate(random_impressions(80))
    ]
    dataset = Dataset.open(write_log(tmp_path / "log", rows))
    train, valid, test = dataset.split(seed=5)
    assert test.rows.tolist() == list(range(0, 80, 4))
    assert (len(train), len(valid)) == (54, 6)
    assert set(train.impressions()["split"].to_pylist()) == {"train"}


def test_a_recorded_valid_part_is_kept(tmp_path: Path) -> None:
    named = ["train", "valid", "test", "train"]
    rows = [row | {"split": named[r % 4]} for r, row in enumerate(random_impressions(8))]
    train, valid, test = Dataset.open(write_log(tmp_path / "log", rows)).split()
    assert (train.rows.tolist(), valid.rows.tolist(), test.rows.tolist()) == ([0, 3, 4, 7], [1, 5], [2, 6])


def test_impossible_wishes_are_refused(tmp_path: Path, dataset: Dataset) -> None:
    with pytest.raises(InputError, match="leave something"):
        dataset.split(valid=0.5, test=0.5)
    with pytest.raises(DataError, match="nothing recorded"):
        dataset.split("recorded")
    rows = [
        {name: row[name] for name in ("request_id", "user_id", "candidates")} for row in random_impressions(4)
    ]
    with pytest.raises(DataError, match="row 0, column 'timestamp'"):
        Dataset.open(write_log(tmp_path / "log", rows)).split("time")


@given(
    num=st.integers(0, 300),
    window=st.integers(1, 400),
    block=st.integers(1, 50),
    start=st.integers(0, 310),
    seed=st.one_of(st.none(), st.integers(0, 99)),
)
@settings(deadline=None)
def test_windowed_orders_visit_each_place_once_and_resume_anywhere(
    num: int, window: int, block: int, start: int, seed: int | None
) -> None:
    whole = [int(p) for w in epoch_order(num, seed, 1, 0, window, block) for p in w]
    assert sorted(whole) == list(range(num))
    assert [int(p) for w in epoch_order(num, seed, 1, start, window, block) for p in w] == whole[start:]
    batches = list(in_batches(epoch_order(num, seed, 1, 0, window, block), 7))
    assert [int(p) for batch in batches for p in batch] == whole
    assert all(len(batch) == 7 for batch in batches[:-1])


def test_a_long_log_is_read_in_runs_of_neighbours() -> None:
    first = next(epoch_order(100_000, 0, window=8192, block=1024))
    assert len(np.unique(first // 1024)) <= 9  # eight blocks, one of them perhaps the short last
    assert (np.diff(first) != 1).mean() > 0.9  # and shuffled within
