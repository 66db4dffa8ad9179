"""Rolling counts: never a peek, and one counting in build and service."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exactk.data import Dataset
from exactk.data.columns import ROLLING
from exactk.data.logs.frame import from_frame
from exactk.data.rolling import WEIGHT, RollingCounts, Shown
from exactk.data.writer import DatasetWriter
from exactk.errors import DataError, InputError

COLUMNS = {"roles": {"request_id": "request_id"}, "rolling": list(ROLLING)}
Rows = list[dict[str, Any]]


def random_rows(num: int, seed: int, moments: int) -> Rows:
    """Requests in any order of time, several at one moment, clicks anywhere in the list."""
    rng = np.random.default_rng(seed)
    rows = []
    for request in range(num):
        moment, user = int(rng.integers(moments)), (0, 1, 2, None)[int(rng.integers(4))]
        for place, item in enumerate(rng.choice(8, rng.integers(2, 6), replace=False).tolist()):
            rows.append({"request_id": request, "user_id": user, "item_id": item, "on_card": place < 2,
                         "clicked": bool(rng.random() < 0.3), "timestamp": moment})  # fmt: skip
    rows[-1] |= {"on_card": False, "clicked": True}  # a click outside the card: lists were shown whole
    return rows


def built(rows: Rows, path: Path) -> tuple[Dataset, np.ndarray]:
    dataset = from_frame(pa.Table.from_pylist(rows), COLUMNS, path=path)
    batch = dataset.batch(dataset.vocabulary())
    assert batch.candidate_numbers is not None
    return dataset, batch.candidate_numbers[batch.present]


def counted_by_hand(rows: Rows, row: dict[str, Any]) -> list[float]:
    """The six counts from all rows of strictly earlier moments, summed anew for every row."""
    before = [other for other in rows if other["timestamp"] < row["timestamp"]]
    same = [other for other in before if other["item_id"] == row["item_id"]]
    own = [other for other in same if other["user_id"] == row["user_id"] is not None]
    clicks, shown, own_clicks, own_shown = (
        sum(other["clicked"] for other in same), len(same), sum(other["clicked"] for other in own), len(own)
    )  # fmt: skip
    overall = sum(other["clicked"] for other in before) / len(before) if before else 0.0
    rate = (clicks + WEIGHT * overall) / (shown + WEIGHT)
    return [clicks, shown, rate, own_clicks, own_shown, (own_clicks + WEIGHT * rate) / (own_shown + WEIGHT)]


@given(num=st.integers(2, 25), seed=st.integers(0, 1000), moments=st.integers(1, 12))
@settings(max_examples=25, deadline=None)
def test_counts_are_those_of_strictly_earlier_requests(
    tmp_path_factory: pytest.TempPathFactory, num: int, seed: int, moments: int
) -> None:
    rows = random_rows(num, seed, moments)
    _, found = built(rows, tmp_path_factory.mktemp("rolling") / "log")
    np.testing.assert_allclose(found, [counted_by_hand(rows, row) for row in rows], rtol=1e-6)


@given(seed=st.integers(0, 1000))
@settings(max_examples=15, deadline=None)
def test_what_comes_later_changes_no_count(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    folder = tmp_path_factory.mktemp("rolling")
    rows = random_rows(20, seed, 6)
    changed = [row | ({"clicked": not row["clicked"]} if row["timestamp"] >= 3 else {}) for row in rows]
    early = np.array([row["timestamp"] <= 3 for row in rows])
    (_, before), (_, after) = built(rows, folder / "one"), built(changed, folder / "two")
    np.testing.assert_array_equal(before[early], after[early])


@given(seed=st.integers(0, 1000))
@settings(max_examples=15, deadline=None)
def test_a_service_that_counts_as_it_goes_has_the_counts_of_the_build(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    rows = random_rows(20, seed, 1000)
    _, found = built(rows, tmp_path_factory.mktemp("rolling") / "log")
    counts, looked_up = RollingCounts(ROLLING), np.empty_like(found)
    by_request: dict[int, list[int]] = {}
    for place, row in enumerate(rows):
        by_request.setdefault(row["request_id"], []).append(place)
    moments = sorted({row["timestamp"] for row in rows})
    for moment in moments:
        at = [places for places in by_request.values() if rows[places[0]]["timestamp"] == moment]
        for places in at:
            looked_up[places] = counts.lookup(
                rows[places[0]]["user_id"], [rows[p]["item_id"] for p in places]
            )
        for places in at:
            counts.update([Shown(rows[places[0]]["user_id"], [rows[p]["item_id"] for p in places])])
            clicked = [rows[p]["item_id"] for p in places if rows[p]["clicked"]]
            counts.update([Shown(rows[places[0]]["user_id"], clicked=clicked)])
    np.testing.assert_array_equal(looked_up, found)


def test_a_service_goes_on_where_the_log_ended_and_after_a_restart(tmp_path: Path) -> None:
    rows = random_rows(60, 4, 30)
    dataset, _ = built(rows, tmp_path / "log")
    counts = dataset.rolling_counts()
    assert counts is not None
    last = {"timestamp": 10**9, "user_id": 1}
    expected = [counted_by_hand(rows, last | {"item_id": item}) for item in range(8)]
    np.testing.assert_allclose(counts.lookup(1, range(8)), expected, rtol=1e-6)
    counts.save(tmp_path)
    loaded = RollingCounts.load(tmp_path)
    for one in (counts, loaded):
        one.update([Shown(1, [3, "new"], [3])])
    np.testing.assert_array_equal(loaded.lookup(1, [3, 5, 99, "new"]), counts.lookup(1, [3, 5, 99, "new"]))
    assert loaded.lookup(1, ["new"])[0, 1] == 1
    (tmp_path / "rolling-counts.parquet").unlink()
    with pytest.raises(DataError, match="rolling-counts"):
        RollingCounts.load(tmp_path)


@given(seed=st.integers(0, 1000), cut=st.integers(0, 30))
@settings(max_examples=15, deadline=None)
def test_counts_of_two_stretches_of_time_add_up(
    tmp_path_factory: pytest.TempPathFactory, seed: int, cut: int
) -> None:
    dataset, _ = built(random_rows(30, seed, 30), tmp_path_factory.mktemp("rolling") / "log")
    moment = dataset.folder.index.timestamp
    early, late, whole = (
        view.rolling_counts() for view in (dataset.take(moment < cut), dataset.take(moment >= cut), dataset)
    )
    assert early is not None
    assert late is not None
    assert whole is not None
    together = late.plus(early)
    for user in range(3):
        np.testing.assert_array_equal(together.lookup(user, range(8)), whole.lookup(user, range(8)))


def test_counts_that_stood_before_a_log_go_on_in_it(tmp_path: Path) -> None:
    """The folder holds what was counted before, as of a moment: rows of before that moment are counted already."""
    rows = random_rows(40, 3, 20)
    frame = pa.Table.from_pylist(rows)
    when = pc.cast(pc.multiply(frame["timestamp"], 10**6), pa.timestamp("us"))
    frame = frame.set_column(frame.column_names.index("timestamp"), "timestamp", when)
    whole = from_frame(frame, COLUMNS, path=tmp_path / "whole")
    moment = whole.folder.index.timestamp
    before = whole.take(moment <= 9_000_000).rolling_counts()
    assert before is not None
    assert before.as_of == 9_000_000
    later = whole.take(moment >= 5_000_000)  # some of it was counted before
    with DatasetWriter(tmp_path / "later", replace(later.meta, checksums={})) as writer:
        writer.write_items(later.items)
        writer.write_users(later.users)
        writer.write_impressions(later.impressions())
        for name, table in before.tables().items():
            writer.write_extra(name, table)
    reopened = Dataset.open(tmp_path / "later")
    found, expected = reopened.rolling_counts(), whole.rolling_counts()
    assert found is not None
    assert expected is not None
    assert found.as_of == expected.as_of == 19_000_000
    for user in range(3):
        np.testing.assert_array_equal(found.lookup(user, range(8)), expected.lookup(user, range(8)))


def test_counts_asked_for_that_the_log_brings_itself_are_its_own_and_go_on(tmp_path: Path) -> None:
    rows = [row | {"shown_so_far": 5} for row in random_rows(20, 0, 9)]
    columns = {
        "roles": {},
        "candidate": {"numbers": ["shown_so_far"]},
        "rolling": ["shown_so_far", "rate_so_far"],
    }
    dataset = from_frame(pa.Table.from_pylist(rows), columns, path=tmp_path / "log")
    vocabulary = dataset.vocabulary()
    assert set(vocabulary.columns.rolling) == {"shown_so_far", "rate_so_far"}
    batch = dataset.batch(vocabulary)
    place = vocabulary.columns.candidate_numbers.names.index("shown_so_far")
    assert (batch.candidate_numbers[batch.present][:, place] == 5).all()  # type: ignore[index]
    counts = dataset.rolling_counts()
    assert counts is not None
    assert counts.names == ("rate_so_far", "shown_so_far")


def test_a_card_alone_shows_its_items_only(tmp_path: Path) -> None:
    rows = [{"request_id": r, "user_id": 1, "item_id": i, "on_card": i < 2, "clicked": i == 0, "timestamp": r}
            for r in range(4) for i in range(3)]  # fmt: skip
    _, found = built(rows, tmp_path / "log")
    assert found[9:, 1].tolist() == [3, 3, 0]


def test_an_unknown_item_has_the_overall_rate_and_an_unknown_user_the_items() -> None:
    counts = RollingCounts(["rate_so_far", "user_rate_so_far"])
    assert counts.lookup("u", ["a"]).tolist() == [[0, 0]]
    counts.update([Shown("u", ["a", "b"], ["a"])])
    found = counts.lookup("stranger", ["a", "z"])
    np.testing.assert_allclose(found[:, 0], [(1 + WEIGHT / 2) / (1 + WEIGHT), 0.5])
    np.testing.assert_allclose(found[:, 0], found[:, 1])
    with pytest.raises(InputError, match="no rolling count 'views'"):
        RollingCounts(["views"])


def test_columns_of_the_logs_own_stand_and_a_log_without_moments_has_no_counts(tmp_path: Path) -> None:
    rows = [row | {"clicks_so_far": 7} for row in random_rows(20, 0, 9)]
    columns = {"roles": {}, "candidate": {"numbers": ["clicks_so_far"]}}
    dataset = from_frame(pa.Table.from_pylist(rows), columns, path=tmp_path / "own")
    assert dataset.folder.names.rolling == ("shown_so_far", "rate_so_far")
    undated = pa.Table.from_pylist(rows).drop_columns(["timestamp"])
    dataset = from_frame(undated, columns, path=tmp_path / "undated")
    assert dataset.rolling_counts() is None
    with pytest.raises(DataError, match="need a timestamp"):
        from_frame(undated, columns | {"rolling": ["rate_so_far"]}, path=tmp_path / "asked")


def test_a_file_of_counts_that_names_none_is_refused(tmp_path: Path) -> None:
    """A Parquet file of another tool has the columns, but not what `save` notes beside them."""
    counts = RollingCounts(["clicks_so_far"])
    counts.update([Shown("u", ["a"], ["a"])])
    counts.save(tmp_path)
    path = tmp_path / "rolling-counts.parquet"
    pq.write_table(pq.read_table(path).replace_schema_metadata(None), path)
    with pytest.raises(DataError, match="missing or damaged"):
        RollingCounts.load(tmp_path)
