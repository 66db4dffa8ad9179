"""Logs of other teams, read with no setting: every column is what it is, or is named with the reason why not."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pytest

from exactk.data import Dataset
from exactk.data.audit.audit import audit
from exactk.data.columns.roles import Columns
from exactk.data.logs.draft import draft_columns, draft_of_files
from exactk.data.logs.frame import build_frame, from_frame
from exactk.data.logs.number_texts import are_numbers
from exactk.data.logs.report import ReadReport
from exactk.errors import DataError
from exactk.scale.building import Reading, build_parts
from stranger_logs import KINDS, StrangerLog


def build(log: StrangerLog, folder: Path, columns: Any, out: str) -> ReadReport:
    path, items = log.write(folder)
    if path.is_file():
        return build_frame(folder / out, path, columns, items=items)
    return build_parts(folder / out, path, Reading(str(folder / f".{out}"), columns), items=items)


@pytest.fixture(scope="module", params=KINDS)
def built(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[StrangerLog, Path, dict[str, Any]]:
    """A log, its folder and what the build said."""
    log = KINDS[request.param](requests=150)
    folder = tmp_path_factory.mktemp(request.param)
    return log, folder, build(log, folder, {}, "data").to_dict()


def test_roles_are_found_and_what_came_afterwards_is_no_feature(
    built: tuple[StrangerLog, Path, dict[str, Any]],
) -> None:
    log, _, said = built
    roles = {ours: names[0] for ours, names in said["used"].items() if len(names) == 1 and ours in log.roles}
    assert roles == log.roles
    assert log.ignored <= set(said["ignored"])
    for use, names in log.features.items():
        assert names <= set(said["used"].get(use, ())), (use, said["used"])


def test_every_column_and_row_was_used_or_is_named(built: tuple[StrangerLog, Path, dict[str, Any]]) -> None:
    log, _, said = built
    used = {name for names in said["used"].values() for name in names}
    assert set(log.log.column_names) <= used | set(said["ignored"])
    assert said["rows_read"] == len(log.log)
    assert said["rows_dropped"] == 0


def test_the_draft_builds_what_was_guessed(built: tuple[StrangerLog, Path, dict[str, Any]]) -> None:
    log, folder, _ = built
    path, items = log.write(folder)
    (folder / "columns.toml").write_text(draft_of_files(path, items, None, {}).text())
    build(log, folder, Columns.load(folder / "columns.toml"), "by-draft")
    one, two = (Dataset.open(folder / name) for name in ("data", "by-draft"))
    assert one.folder.columns == two.folder.columns
    first, second = (vars(each.batch(each.vocabulary())) for each in (one, two))
    for name, value in first.items():
        np.testing.assert_array_equal(value, second[name], err_msg=name)


def test_its_splits_are_by_time_where_it_is_dated_and_it_can_be_audited(
    built: tuple[StrangerLog, Path, dict[str, Any]],
) -> None:
    log, folder, _ = built
    dataset = Dataset.open(folder / "data")
    assert dataset.signal.names
    train, _, test = (part.folder.index.timestamp[part.rows] for part in dataset.split())
    assert (train.max() < test.min()) == ("timestamp" in log.roles)
    found = audit(dataset)
    assert not any("nothing to learn" in line or line.startswith("LEAK") for line in found["verdict"])


def test_a_log_without_users_trains_what_an_unknown_user_is_served() -> None:
    graded = KINDS["graded"](requests=60)
    dataset = from_frame(graded.log)
    assert len(dataset.vocabulary().user_ids) == 0
    assert (dataset.batch(dataset.vocabulary()).user == 0).all()


@pytest.mark.parametrize(
    ("values", "same"),
    [
        (["Y", "N", "y", " n "], [True, False, True, False]),
        (["true", "FALSE", "True", "false"], [True, False, True, False]),
        ([1.0, 0.0, 1.0, 0.0], [True, False, True, False]),
        (["1", "0", "1", "0"], [True, False, True, False]),
    ],
)
def test_flags_may_be_words(values: list[Any], same: list[bool]) -> None:
    log = {"request_id": [1, 1, 2, 2], "user_id": [1, 1, 1, 1], "item_id": [1, 2, 1, 2], "clicked": values}
    dataset = from_frame(pa.table(log), {"k": 1})
    batch = dataset.batch(dataset.vocabulary())
    assert batch.clicks is not None
    assert (batch.clicks.ravel() > 0).tolist() == same


def shop_rows(requests: int = 60, size: int = 8) -> dict[str, Any]:
    """Plain rows of shown candidates under usual names."""
    rng = np.random.default_rng(0)
    count = requests * size
    clicked = (np.arange(count) % size) == np.repeat(rng.integers(size, size=requests), size)
    return {
        "request_id": np.repeat(np.arange(requests), size),
        "user_id": np.repeat(rng.integers(9, size=requests), size),
        "item_id": np.concatenate([rng.choice(40, size, replace=False) for _ in range(requests)]),
        "price": np.exp(rng.normal(7, 1, count)).round(2),
        "clicked": clicked,
    }


@pytest.mark.parametrize(
    "moments",
    [
        lambda seconds: pa.array(seconds * 1_000_000, pa.timestamp("us")),
        lambda seconds: pa.array(seconds * 1_000, pa.timestamp("ms", "UTC")),
        lambda seconds: pa.array(
            [datetime.fromtimestamp(s, UTC).isoformat(timespec="milliseconds") for s in seconds.tolist()]
        ),
    ],
    ids=["us", "ms-utc", "text"],
)
def test_the_clock_of_a_log_is_found_under_any_name(moments: Any) -> None:
    """Without it a split would be at random, and tomorrow would teach today."""
    rows = shop_rows()
    when = 1_700_000_123 + 977 * rows["request_id"]
    draft = draft_columns(pa.table(rows | {"when": moments(when)})).columns
    assert draft.roles["timestamp"] == "when"
    days = pa.array(86_400 * (19_000 + rows["request_id"] % 30), pa.timestamp("s"))
    assert "timestamp" not in draft_columns(pa.table(rows | {"arrival": days})).columns.roles
    made = pa.array(when + rows["request_id"], pa.timestamp("s"))
    assert "timestamp" not in draft_columns(pa.table(rows | {"created": made})).columns.roles


def test_numbers_of_clicks_are_no_feature() -> None:
    rows = shop_rows()
    counted = rows | {"clicks": rows["clicked"] * 3}
    del counted["clicked"]
    draft = draft_columns(pa.table(counted))
    assert "clicks" not in draft.columns.candidate.names
    assert "make it the reward" in next(fact.reason for fact in draft.facts if fact.column == "clicks")
    with pytest.raises(DataError, match="may be the reward"):
        from_frame(pa.table(counted), {"clicked": "clicks"})
    assert from_frame(pa.table(counted), {"reward": "clicks"}).signal.names == ("rewards",)


@pytest.mark.parametrize("parted_by", [",", ";", "\t", "|"])
def test_a_csv_may_part_its_columns_otherwise(tmp_path: Path, parted_by: str) -> None:
    rows = pa.table(shop_rows())
    pacsv.write_csv(rows, tmp_path / "rows.csv", pacsv.WriteOptions(delimiter=parted_by))
    assert build_frame(tmp_path / "data", tmp_path / "rows.csv").impressions == 60


@pytest.mark.parametrize("size", [6, 9, 14])
def test_a_list_shown_whole_asks_for_a_card_of_some_of_it_and_says_so(size: int) -> None:
    rows = shop_rows(size=size)
    dataset = from_frame(pa.table(rows))
    assert set(dataset.batch(dataset.vocabulary()).card_size.tolist()) == {4}
    assert "cards of 4 are to be chosen" in dataset.meta.provenance["report"]["cards"]
    small = from_frame(pa.table(shop_rows(size=3)))
    assert "every list is a card" in small.meta.provenance["report"]["cards"]


def test_lists_without_a_card_never_ask_for_cards_of_nothing() -> None:
    lists = pa.table({"request_id": [1, 2], "user_id": [1, 2], "offered": [[1, 2, 3, 4, 5], [2, 3, 4]],
                      "bought": [[1, 4], [2]]})  # fmt: skip
    dataset = from_frame(lists, {"candidates": "offered", "clicked_items": "bought"})
    assert dataset.batch(dataset.vocabulary()).card_size.tolist() == [4, 3]


NUMBERS_AS_TEXT = {
    "thousands": lambda price: [f"{p:,.2f}" for p in price],
    "money": lambda price: [f"€{p:,.2f}" if p < 3000 else f"{p:.2f} €" for p in price],
    "percent": lambda price: [f"{p}%" for p in price],
    "some missing": lambda price: [f"{p}" if p < 3000 else "N/A" for p in price],
}


@pytest.mark.parametrize("written", NUMBERS_AS_TEXT)
def test_numbers_written_for_people_are_numbers(tmp_path: Path, written: str) -> None:
    rows = shop_rows()
    texts = NUMBERS_AS_TEXT[written](rows["price"].tolist())
    pacsv.write_csv(pa.table(rows | {"price": texts}), tmp_path / "rows.csv")
    build_frame(tmp_path / "data", tmp_path / "rows.csv")
    dataset = Dataset.open(tmp_path / "data")
    assert "price" in dataset.folder.columns.candidate.numbers
    batch = dataset.batch(dataset.vocabulary())
    assert batch.candidate_numbers is not None
    held = batch.candidate_numbers[batch.present][:, 0]
    wanted = np.array(
        [np.nan if text == "N/A" else price for text, price in zip(texts, rows["price"], strict=True)]
    )
    np.testing.assert_allclose(np.sort(held), np.sort(wanted), rtol=1e-6)


@pytest.mark.parametrize(
    ("texts", "fits"),
    [(["007", "1,200"], False), (["12,5", "3,1"], False), (["12", "13"], False), (["1.5", "2"], False),
     (["1,5", "N/A"], False), ([".", "€"], False), (["-$1,200", "3"], True), (["n/a", "4", "5"], True),
     (["n/a", "NA", "5"], False)],
)  # fmt: skip
def test_codes_and_decimal_commas_are_not_taken_for_numbers(texts: list[str], fits: bool) -> None:
    assert are_numbers(pa.array(texts)) is fits


def test_numbers_nobody_reads_say_how_to_write_them() -> None:
    rows = shop_rows()
    comma = [f"{price:.2f}".replace(".", ",") for price in rows["price"].tolist()]
    facts = draft_columns(pa.table(rows | {"price": comma})).facts
    assert "write 1234.5" in next(fact.reason for fact in facts if fact.column == "price")
