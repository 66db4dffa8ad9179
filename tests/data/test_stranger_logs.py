"""Logs of other teams, read with no setting: every column is what it is, or is named with the reason why not."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from exactk.data import Dataset
from exactk.data.audit import audit
from exactk.data.columns import Columns
from exactk.data.logs.check import ReadReport, build_faults
from exactk.data.logs.columns import ColumnReader
from exactk.data.logs.draft import draft_columns, draft_of_files
from exactk.data.logs.files import spread
from exactk.data.logs.frame import build_frame, from_frame
from exactk.data.logs.request_rows import AskedColumns
from exactk.data.logs.written import are_numbers, order_of, read_moments
from exactk.data.table import combine
from exactk.errors import DataError
from exactk.scale.building import Reading, build_parts
from exactk.scale.plan import files_of, parts_of
from exactk.scale.reading import PartReader
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
    assert set(spread(log.log).column_names) <= used | set(said["ignored"])
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
    "as databases do": lambda price: [f"{p}" if p < 3000 else "\\N" for p in price],
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
        [
            np.nan if text in ("N/A", "\\N") else price
            for text, price in zip(texts, rows["price"], strict=True)
        ]
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


@pytest.mark.parametrize("written", ["{:.2f}", "{:.0f}"])
def test_numbers_that_a_file_holds_as_plain_text_are_numbers(written: str) -> None:
    """Parquet says text; hardly two are alike, so that as words they would be of no use."""
    rows = shop_rows()
    texts = [written.format(price) for price in rows["price"].tolist()]
    dataset = from_frame(pa.table(rows | {"price": texts, "offer_code": texts}))
    assert dataset.folder.columns.candidate.numbers == ("price",)
    assert "offer_code" in dataset.meta.provenance["report"]["ignored"]


@pytest.mark.parametrize("in_lists", [False, True])
@pytest.mark.parametrize("as_text", [False, True])
def test_a_history_is_no_word_of_the_request(in_lists: bool, as_text: bool) -> None:
    """As a category every history would be a value of its own."""
    rows = shop_rows()
    rows["item_id"] = np.array([f"N{n}" for n in rows["item_id"]])
    read = [[f"N{(user * 3 + n) % 40}" for n in range(2 + user % 4)] for user in rows["user_id"].tolist()]
    held = [" ".join(ids) for ids in read] if as_text else read
    log: dict[str, Any] = rows | {"history": held}
    if in_lists:
        log = {name: log[name][::8] for name in ("request_id", "user_id", "history")}
        log["candidates"] = [part.tolist() for part in np.split(rows["item_id"], 60)]
        log["clicked_item"] = rows["item_id"][rows["clicked"]]
    dataset = from_frame(pa.table(log))
    assert "as the history of a user does" in dataset.meta.provenance["report"]["ignored"]["history"]
    assert not dataset.folder.columns.context.names


def test_items_under_the_bare_noun_are_found_where_they_part_the_rows_of_a_request() -> None:
    rows = shop_rows()
    rows["article"] = rows.pop("item_id") + 10_000
    assert draft_columns(pa.table(rows)).columns.roles["item_id"] == "article"


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("set", ("train", "valid", "test")),
        ("fold", ("Training", "dev", "TESTING")),
        ("subset", ("train",) * 3),
    ],
)
def test_the_parts_of_a_log_are_its_split_under_usual_names_and_words(
    name: str, parts: tuple[str, ...]
) -> None:
    rows = shop_rows()
    place = rows["request_id"] // 20
    dataset = from_frame(pa.table(rows | {name: np.array(parts)[place]}))
    assert dataset.folder.columns.roles["split"] == name
    if len(set(parts)) > 1:
        assert [len(part) for part in dataset.split()] == [20, 20, 20]
    other = draft_columns(pa.table(rows | {name: np.array(["brush", "comb", "cup"])[place]}))
    assert "split" not in other.columns.roles


def test_a_grade_beside_a_reward_is_no_feature() -> None:
    rows = shop_rows()
    rng = np.random.default_rng(5)
    earned = np.where(rows["clicked"], rng.exponential(9, 480), 0.0)
    graded = rows | {"revenue": earned, "grade": rng.integers(0, 5, 480)}
    draft = draft_columns(pa.table(graded))
    assert draft.columns.roles["reward"] == "revenue"
    assert draft.columns.candidate.numbers == ("price",)
    assert "how good" in next(fact.reason for fact in draft.facts if fact.column == "grade")


def test_what_was_put_together_under_the_name_of_the_request_was_chosen() -> None:
    pool = [[f"t{(7 * r + n) % 90}" for n in range(8)] for r in range(60)]
    log = {"playlist_id": [f"pl-{r}" for r in range(60)], "pool": pool, "tracks": [ids[2:5] for ids in pool]}
    dataset = from_frame(pa.table(log))
    assert dataset.signal.names == ("positives only",)
    assert dataset.folder.columns.roles["request_id"] == "playlist_id"


def test_every_type_of_text_id_is_text() -> None:
    rows = shop_rows()
    ids = [UUID(int=int(n) + 5) for n in rows["item_id"]]
    views = pa.array([f"p{n}" for n in rows["item_id"]]).cast(pa.string_view())
    tables = [pd.DataFrame(rows | {"item_id": ids})]
    tables += [
        pa.table(rows | {"item_id": held}) for held in (views, views.cast(pa.string()).cast(pa.binary()))
    ]
    for table, first in zip(tables, (str(ids[0]), *[views[0].as_py()] * 2), strict=True):
        assert from_frame(table).items["item_id"][0].as_py() == first


def test_a_click_in_a_row_of_its_own_is_that_of_its_item() -> None:
    """Trackers write a row when something is shown and another, later, when it is clicked."""
    rows = pa.table(shop_rows())
    clicked = combine(rows["clicked"])
    when = pa.array(1_700_000_000 + 60 * np.repeat(np.arange(60), 8))
    bare = rows.drop_columns(["clicked"]).append_column("ts", when)
    shown = bare.append_column("event", pa.array(["impression"] * len(bare)))
    late = bare.filter(clicked)
    late = late.set_column(late.column_names.index("ts"), "ts", pc.add(late["ts"], 7))
    both = pa.concat_tables([shown, late.append_column("event", pa.array(["click"] * len(late)))])
    both = both.take(pc.sort_indices(both, [("request_id", "ascending"), ("event", "descending")]))
    said = from_frame(both).meta.provenance["report"]
    assert (said["used"]["clicked"], said["used"]["timestamp"]) == (["event"], ["ts"])
    assert said["notes"]["a click in a row of its own, joined to that of its item"]["rows"] == 60
    one, other = (from_frame(table) for table in (both, rows.append_column("ts", when)))
    np.testing.assert_array_equal(one.folder.index.click, other.folder.index.click)
    assert len(one) == 60


def test_lists_with_flags_or_what_was_taken_beside_them_are_lists_of_candidates() -> None:
    rows = shop_rows()
    lists = {name: np.split(rows[name], 60) for name in ("item_id", "clicked", "price")}
    wide = {"request_id": np.arange(60), "slate": lists["item_id"], "prices": lists["price"]}
    flagged = from_frame(pa.table(wide | {"clicks": [part.astype(int) for part in lists["clicked"]]}))
    assert flagged.folder.columns.roles["candidates"] == "slate"
    taken = rows["item_id"][rows["clicked"]]
    picked = {"products" if name == "slate" else name: held for name, held in wide.items()}
    named = from_frame(pa.table(picked | {"clicked_product": taken}))
    np.testing.assert_array_equal(named.folder.index.click, flagged.folder.index.click)
    ids = from_frame(pa.table(picked | {"clicked": [[one] for one in taken.tolist()]}))
    assert ids.folder.columns.roles["clicked_items"] == "clicked"
    np.testing.assert_array_equal(ids.folder.index.click, flagged.folder.index.click)
    facts = draft_columns(pa.table(picked | {"outcome": taken})).facts
    assert "surely what came of the list" in next(fact.reason for fact in facts if fact.column == "outcome")


def test_what_tells_of_a_request_only_after_its_click_is_no_feature() -> None:
    rows = shop_rows(requests=200)
    clicked = rows["clicked"] & np.repeat(np.arange(200) % 2 == 0, 8)
    place = np.where(clicked, np.arange(1600) % 8, 0).reshape(200, 8).sum(axis=1)
    said = rows | {
        "clicked": clicked,
        "session_converted": np.repeat(np.arange(200) % 6 == 0, 8),
        "chosen_rank": pa.array(np.repeat(place + 1, 8), mask=np.repeat(np.arange(200) % 2 == 1, 8)),
        "visits": np.repeat(np.random.default_rng(3).integers(8, size=200), 8),
    }
    found = draft_columns(pa.table(said))
    assert found.columns.context.names == ("visits",)
    reasons = {fact.column: fact.reason for fact in found.facts}
    assert "an outcome" in reasons["session_converted"]
    assert "known only afterwards" in reasons["chosen_rank"] or "an outcome" in reasons["chosen_rank"]
    few = said | {"clicked": rows["clicked"] & np.repeat(np.arange(200) % 50 > 0, 8)}
    few["language"] = np.repeat(np.where(np.arange(200) % 50 == 7, "no", "de"), 8)
    assert "language" in draft_columns(pa.table(few)).columns.context.categories
    always = {name: held for name, held in said.items() if name != "session_converted"}
    always |= {
        "clicked": rows["clicked"],
        "chosen_rank": np.repeat(rows["clicked"].reshape(200, 8).argmax(1), 8),
    }
    assert draft_columns(pa.table(always)).columns.context.names == ("visits",)


@pytest.mark.parametrize("in_lists", [False, True])
def test_what_the_clicked_candidate_holds_is_no_feature_of_its_request(in_lists: bool) -> None:
    """Every list has a click, so that it is never empty; what was searched for is known before."""
    rows, place = shop_rows(requests=200), np.repeat(np.arange(200), 8)
    kind = rows["item_id"] % 5
    log = rows | {"kind": [f"k{n}" for n in kind]}
    first = np.flatnonzero(rows["clicked"])
    said = {
        "chosen_kind": np.array([f"k{n}" for n in kind[first]]),
        "bought_sku": rows["item_id"][first],
        "paid": rows["price"][first],
        "searched": np.array([f"k{n}" for n in np.where(np.arange(200) % 2 == 0, kind[first], 7)]),
    }
    log |= {name: held[place] for name, held in said.items()}
    if in_lists:
        lists = {
            name: [list(part) for part in np.split(np.array(log[name]), 200)] for name in ("kind", "price")
        }
        items = [part.tolist() for part in np.split(rows["item_id"], 200)]
        log = {"request_id": np.arange(200), "candidates": items, "clicked_item": rows["item_id"][first]}
        log |= lists | said
    found = draft_columns(pa.table(log))
    reasons = {fact.column: fact.reason for fact in found.facts}
    assert found.columns.context.names == ("searched",)
    assert "it is the kind of what was clicked" in reasons["chosen_kind"]
    assert "it is the price of what was clicked" in reasons["paid"]


@pytest.mark.parametrize("name", ["position clicked", "clicked_rank", "slotOfClick"])
def test_the_place_of_the_click_is_no_feature_where_rows_are_mixed(name: str) -> None:
    """Their order does not tell that it is the place; the name does. A rank by clicks differs within a request."""
    rows = shop_rows()
    mixed = np.random.default_rng(2).permutation(480)
    log = rows | {
        name: np.repeat(rows["clicked"].reshape(60, 8).argmax(1) + 1, 8),
        "rank_by_clicks": rows["item_id"] % 9,
    }
    columns = draft_columns(pa.table({each: np.asarray(held)[mixed] for each, held in log.items()})).columns
    assert name in columns.ignored
    assert "rank_by_clicks" in (*columns.candidate.numbers, *columns.item.numbers)


def test_what_was_logged_can_be_asked_again(built: tuple[StrangerLog, Path, dict[str, Any]]) -> None:
    """By the names and in the form of the log."""
    log, folder, said = built
    path, _ = log.write(folder)
    dataset = Dataset.open(folder / "data")
    reader = PartReader(AskedColumns.of(dataset.vocabulary(), 2))
    read = [found for part in parts_of(files_of(path), 10**6) for found in reader.read(part)]
    assert not any(found.reasons for found in read)
    assert sum(len(found.requests) for found in read) == said["impressions"]
    assert reader.missing == ()


def test_what_dates_and_vectors_are_written_as_is_not_taken_for_words() -> None:
    rows = shop_rows()
    vectors = np.random.default_rng(0).normal(size=(40, 4)).round(3)
    texts = {
        "shape": [str(vectors[n].tolist()) for n in rows["item_id"]],
        "arrival": [f"{1 + n % 12:02d}/{1 + n % 9:02d}/2026" for n in rows["request_id"]],
    }
    dataset = from_frame(pa.table(rows | texts))
    assert dataset.folder.columns.item.vectors == ("shape",)
    assert "it holds dates" in dataset.meta.provenance["report"]["ignored"]["arrival"]


def test_baskets_without_anything_else_on_offer_say_what_is_missing(tmp_path: Path) -> None:
    rows = shop_rows()
    del rows["clicked"]
    report = build_frame(tmp_path / "data", pa.table(rows), {"positives_only": True})
    fault = build_faults(report, Dataset.open(tmp_path / "data").signal.names)
    assert "rows of what was left" in fault[0]
    left = rows | {"on_card": np.tile(np.arange(8) < 3, 60)}
    report = build_frame(tmp_path / "more", pa.table(left), {"positives_only": True})
    assert not build_faults(report, Dataset.open(tmp_path / "more").signal.names)


def test_folders_that_say_what_all_their_rows_have_are_columns(tmp_path: Path) -> None:
    for day in range(1, 5):
        folder = tmp_path / "log" / f"dt=2026-03-0{day}" / f"market={'north' if day % 2 else 'south%20west'}"
        folder.mkdir(parents=True)
        rows = shop_rows(requests=20)
        rows["request_id"] += 100 * day
        pq.write_table(pa.table(rows), folder / "part-0.parquet")
    said = build_parts(tmp_path / "data", tmp_path / "log", Reading(str(tmp_path / ".draft")))
    assert said.used["timestamp"] == ["dt"]
    assert "market" in said.used["context categories"]
    held = pq.read_table(tmp_path / "data" / "impressions.parquet")
    assert set(held["market"].to_pylist()) == {"north", "south west"}


def test_fields_of_objects_keep_apart_what_bears_one_name() -> None:
    one = {"id": 7, "name": "x", "at": {"name": "y", "lat": 0.5}}
    table = pa.table({"name": ["z"], "shop": [one], "shop.name": [1], "sold": [[{"sku": 3}, None]]})
    found = spread(table).to_pylist()
    assert found == [
        {
            "name": "z",
            "shop.id": 7,
            "shop.shop.name": "x",
            "at.name": "y",
            "lat": 0.5,
            "shop.name": 1,
            "sku": [3, None],
        }
    ]


@pytest.mark.parametrize("reward", [3.5, None])
def test_a_reward_of_the_whole_list_is_none_of_its_candidates(reward: Any) -> None:
    lists = pa.table({"candidates": [[1, 2, 3], [2, 3, 4]], "clicked_item": [1, 2], "reward": [reward] * 2})
    dataset = from_frame(lists)
    assert "reward" not in dataset.folder.columns.roles
    if reward:
        with pytest.raises(DataError, match="'reward' holds double, not a list beside the candidates"):
            from_frame(lists, {"reward": "reward"})


def test_a_log_of_no_rows_is_refused() -> None:
    with pytest.raises(DataError, match="none of 0 rows"):
        from_frame(pa.table(shop_rows()).slice(0, 0))


def test_clicks_alone_are_no_log_of_cards() -> None:
    """A user's events are not a request, and the id of an event is not an item."""
    rng = np.random.default_rng(0)
    events = {
        "eventId": rng.integers(2**40, size=300),
        "userId": rng.integers(30, size=300),
        "time": 1_700_000_000 + 60 * np.arange(300),
        "title": [f"old story {n}" for n in rng.integers(40, size=300)],
        "category": ["news"] * 150 + ["sport"] * 150,
    }
    with pytest.raises(DataError, match="clicks alone, without the items shown beside them, teach nothing"):
        from_frame(pa.table(events))
    rows = shop_rows()
    del rows["item_id"]
    with pytest.raises(DataError, match="no column for 'item_id'; .*if items have no ids, number the rows"):
        from_frame(pa.table(rows))


def test_whole_numbers_that_no_float_holds_exactly_are_numbers_still() -> None:
    rows = shop_rows()
    views = 2**24 + 1 + 3 * np.arange(len(rows["price"]))
    items = pa.table({"item_id": np.arange(40), "followers": 2**24 + 1 + np.arange(40)})
    dataset = from_frame(pa.table(rows | {"views": rng_shuffled(views)}), items=items)
    assert "views" in dataset.folder.columns.candidate.numbers
    assert dataset.folder.columns.item.numbers == ("followers",)


def rng_shuffled(values: np.ndarray) -> np.ndarray:
    return np.random.default_rng(1).permutation(values)


def test_a_request_of_nobody_is_kept() -> None:
    rows = shop_rows()
    users = pa.array(rows["user_id"], mask=rows["user_id"] % 3 == 0)
    dataset = from_frame(pa.table(rows | {"user_id": users}))
    assert len(dataset) == 60
    vocabulary = dataset.vocabulary()
    assert sorted(vocabulary.user_ids.to_pylist()) == [n for n in range(9) if n % 3]
    unknown = dataset.batch(vocabulary).user == 0
    np.testing.assert_array_equal(unknown, rows["user_id"][::8] % 3 == 0)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (["11/15/2019 9:05:12 AM", "11/9/2019 12:00:00 PM"], ["2019-11-15T09:05:12", "2019-11-09T12:00:00"]),
        (["15/11/2019 19:05", "9/11/2019 00:00"], ["2019-11-15T19:05:00", "2019-11-09T00:00:00"]),
        (["15.11.2019", "9.1.2019"], ["2019-11-15T00:00:00", "2019-01-09T00:00:00"]),
        (["5.11.2019 1:02:03.5"], ["2019-11-05T01:02:03.500"]),
        (["2019/11/5", None], ["2019-11-05T00:00:00", None]),
        (["2019-10-01 00:00:00 UTC", "2019-10-01 02:00:00 +02:00"], ["2019-10-01T00:00:00Z"] * 2),
        (["2019-11-05 01:02:03.123456789"], ["2019-11-05T01:02:03.123456"]),
        (["3/4/2019", "1/2/2019"], None),
        (["3/14/2019", "14/3/2019"], None),
        (["3-in-1", "old 2019"], None),
    ],
)
def test_moments_are_read_as_people_write_them(written: list[Any], read: list[Any] | None) -> None:
    texts = pa.array(written)
    found = read_moments(texts, order_of(texts))
    if read is None:
        assert found is None
        return
    assert found is not None
    zone = "UTC" if "Z" in str(read[0]) else None
    assert found.equals(pa.array(read).cast(pa.timestamp("us", zone)))


def test_flags_that_are_fewer_than_the_candidates_lose_their_row_by_name(tmp_path: Path) -> None:
    log = KINDS["queries"](requests=40).log
    flags = pa.array(["1", *log["feedback"].to_pylist()[1:]])
    log = log.set_column(log.column_names.index("feedback"), "feedback", flags)
    report = build_frame(tmp_path / "data", log, {"candidates": "items", "clicked": "feedback"})
    ((reason, entry),) = report.dropped.items()
    assert reason == "its list is not as long as that of the candidates"
    assert entry["examples"] == [{"row": 0, "column": "clicked", "value": [True]}]


def test_items_keep_their_marks_apart(tmp_path: Path) -> None:
    lists = ["N1-0 N2-1 N3-0", "N4-1 N2-0 N5-1", ""] * 20
    log = pa.table({"impression_id": np.arange(60), "user_id": ["u"] * 60, "impressions": lists})
    build_frame(tmp_path / "data", log, {"candidates": "impressions"})
    rows = pq.read_table(tmp_path / "data" / "impressions.parquet").to_pylist()
    assert rows[0]["candidates"] == ["N1", "N2", "N3"]
    assert [row["clicked_items"] for row in rows[:2]] == [["N2"], ["N4", "N5"]]
    log = log.set_column(2, "impressions", [[*lists[:-2], "N1-0 N2", ""]])
    log = log.rename_columns(["request_id", "user_id", "candidates"])
    reader = ColumnReader("log")
    reader.typed(log.slice(0, 30), 0)
    with pytest.raises(DataError, match="row 58, column 'candidates': 'N1-0 N2' does not end in -1 or -0"):
        reader.typed(log.slice(30), 30)
