"""Bringing your own log: every layout and file ends in the same folder, and nothing is lost unsaid."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_dataset import told

from card_logs import random_impressions
from exactk.data import Dataset
from exactk.data.logs.files import tables_of
from exactk.data.logs.frame import build_frame, from_frame
from exactk.errors import DataError, ExactKError, InputError
from exactk.problem.rules.constraints import Constraints, Distinct

TOLD = ("user_id", "candidates", "card", "clicked", "clicked_item")


def heard(dataset: Dataset) -> list[dict[str, Any]]:
    return told(dataset.batch(dataset.vocabulary()), dataset)


def long_rows(impressions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row per candidate."""
    return [
        {
            "request_id": row["request_id"],
            "user_id": row["user_id"],
            "item_id": item,
            "on_card": item in row["card"],
            "clicked": item == row["clicked_item"],
            "timestamp": row["timestamp"],
        }
        for row in impressions
        for item in row["candidates"]
    ]


FRAMES = {
    "pandas": pd.DataFrame,
    "polars": pl.DataFrame,
    "lazy polars": lambda rows: pl.DataFrame(rows).lazy(),
    "arrow": pa.Table.from_pylist,
}


@given(
    num=st.integers(1, 30),
    seed=st.integers(0, 1000),
    kind=st.sampled_from(sorted(FRAMES)),
    sizes=st.sampled_from([(1, 3), (3, 9)]),
)
@settings(max_examples=30, deadline=None)
def test_a_frame_comes_back_out_of_its_batches(
    tmp_path_factory: pytest.TempPathFactory, num: int, seed: int, kind: str, sizes: tuple[int, int]
) -> None:
    rows = random_impressions(num, seed, sizes=sizes)
    frame = FRAMES[kind](rows)
    dataset = from_frame(frame, path=tmp_path_factory.mktemp("frame") / "log")
    assert heard(dataset) == [{name: row[name] for name in TOLD} for row in rows]
    assert dataset.impressions().select(list(rows[0])).to_pylist() == rows


@given(num=st.integers(1, 30), seed=st.integers(0, 1000), kind=st.sampled_from(sorted(FRAMES)))
@settings(max_examples=20, deadline=None)
def test_one_row_per_item_says_the_same_as_lists(
    tmp_path_factory: pytest.TempPathFactory, num: int, seed: int, kind: str
) -> None:
    rows = random_impressions(num, seed)
    frame = FRAMES[kind](long_rows(rows))
    dataset = from_frame(frame, path=tmp_path_factory.mktemp("frame") / "log")
    expected = [{name: row[name] for name in TOLD} for row in rows]
    for row in expected:  # rows of items know which were shown, not in which order
        row["card"] = [item for item in row["candidates"] if item in row["card"]]
    assert heard(dataset) == expected


def test_rows_of_a_request_need_not_stand_together_in_a_frame(tmp_path: Path) -> None:
    rows = random_impressions(20)
    table = pa.Table.from_pylist(long_rows(rows))
    order = np.random.default_rng(0).permutation(len(table))
    mixed = from_frame(table.take(pa.array(order)), path=tmp_path / "log")
    by_request = {row["request_id"]: set(row["candidates"]) for row in mixed.impressions().to_pylist()}
    assert by_request == {row["request_id"]: set(row["candidates"]) for row in rows}


def as_text(rows: list[dict[str, Any]], join: Any) -> pd.DataFrame:
    return pd.DataFrame([row | {n: join(row[n]) for n in ("candidates", "card")} for row in rows])


WRITERS = {
    "log.parquet": lambda rows, path: pq.write_table(pa.Table.from_pylist(rows), path),
    "log.jsonl": lambda rows, path: path.write_text("".join(json.dumps(row) + "\n" for row in rows)),
    "comma.csv": lambda rows, path: as_text(rows, ",".join).to_csv(path, index=False),
    "pipe.csv": lambda rows, path: as_text(rows, "|".join).to_csv(path, index=False),
    "repr.csv": lambda rows, path: as_text(rows, str).to_csv(path, index=False),
    "json.csv": lambda rows, path: as_text(rows, json.dumps).to_csv(path, index=False),
    "log.tsv": lambda rows, path: as_text(rows, " ".join).to_csv(path, index=False, sep="\t"),
}


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("sizes", [(1, 1), (3, 9)])
def test_every_kind_of_file_gives_the_same_log(tmp_path: Path, name: str, sizes: tuple[int, int]) -> None:
    rows = random_impressions(40, sizes=sizes)
    WRITERS[name](rows, tmp_path / name)
    report = build_frame(tmp_path / "log", tmp_path / name)
    assert report.to_dict()["rows_dropped"] == 0
    assert heard(Dataset.open(tmp_path / "log")) == [{n: row[n] for n in TOLD} for row in rows]


@pytest.mark.parametrize("name", ["log.parquet", "log.jsonl", "comma.csv"])
@pytest.mark.parametrize("layout", ["lists", "items"])
def test_files_are_read_in_pieces(
    tmp_path: Path, name: str, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("exactk.data.logs.files.BYTES", 2000)
    monkeypatch.setattr("exactk.data.logs.files.ROWS", 17)
    rows = random_impressions(300)
    if layout == "lists":
        WRITERS[name](rows, tmp_path / name)
    elif name == "comma.csv":
        pd.DataFrame(long_rows(rows)).to_csv(tmp_path / name, index=False)
    else:
        WRITERS[name](long_rows(rows), tmp_path / name)
    report = build_frame(tmp_path / "log", tmp_path / name)
    assert (report.impressions, report.dropped) == (300, {})
    dataset = Dataset.open(tmp_path / "log")
    assert [row["candidates"] for row in heard(dataset)] == [row["candidates"] for row in rows]


def test_a_request_that_reappears_in_a_later_piece_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("exactk.data.logs.files.ROWS", 4)
    rows = [{"request_id": r, "user_id": 1, "item_id": i} for r, i in zip("aabbccdda", range(9), strict=True)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "x.parquet")
    report = build_frame(tmp_path / "log", tmp_path / "x.parquet")
    (reason,) = report.dropped
    assert "sort the rows by request" in reason
    assert report.dropped[reason] == {
        "rows": 1,
        "examples": [{"row": 8, "column": "request_id", "value": "a"}],
    }
    assert report.impressions == 4


def test_reading_a_file_keeps_no_more_than_a_piece_of_it(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    table = pa.table({f"f{n}": rng.normal(size=200_000) for n in range(8)})
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=10_000)
    size = table.nbytes
    del table
    before = pa.total_allocated_bytes()
    held = [pa.total_allocated_bytes() - before for _ in tables_of(tmp_path / "x.parquet")]
    assert max(held) < size * 0.6


def test_a_request_in_a_hundred_pieces_is_one_and_a_late_one_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("exactk.data.logs.files.ROWS", 3)
    ids = [*range(100), *([100] * 300), *range(40)]
    rows = [{"request_id": r, "user_id": 1, "item_id": i, "clicked": True} for i, r in enumerate(ids)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "x.parquet")
    report = build_frame(tmp_path / "log", tmp_path / "x.parquet")
    assert (report.impressions, report.rows_dropped, report.rows_read) == (101, 40, 440)
    assert len(Dataset.open(tmp_path / "log").impressions()["candidates"][100]) == 300


def test_columns_are_mapped_from_our_names_to_theirs(tmp_path: Path) -> None:
    frame = pd.DataFrame({"uid": ["u"], "slate": [["a", "b"]], "shown": [["b"]], "hit": [1], "ts": [1.5]})
    mapping = {"user_id": "uid", "candidates": "slate", "card": "shown", "clicked": "hit", "timestamp": "ts"}
    (row,) = from_frame(frame, mapping, path=tmp_path / "log").impressions().to_pylist()
    assert (row["user_id"], row["candidates"], row["card"], row["clicked"]) == ("u", ["a", "b"], ["b"], True)
    assert row["request_id"] == 0
    assert row["timestamp"].microsecond == 500_000


GOOD = {
    "request_id": 0, "user_id": "u", "candidates": ["a", "b", "c"], "card": ["a", "b"], "clicked": True,
    "clicked_item": "a", "propensity": 0.5, "split": "train",
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "column", "reason"),
    [
        ({"request_id": None}, "request_id", "a value is missing"),
        ({"candidates": None}, "candidates", "a value is missing"),
        ({"candidates": []}, "candidates", "there are no candidates"),
        ({"candidates": ["a", "b", "a"]}, "candidates", "the item appears twice"),
        ({"candidates": ["a", "b", None]}, "candidates", "an item is missing"),
        ({"card": ["a", "z"]}, "card", "the item is not among the candidates"),
        ({"card": ["a", "a"]}, "card", "the item appears twice"),
        ({"card": ["a", None]}, "card", "an item is missing"),
        ({"clicked": None}, "clicked", "a value is missing"),
        ({"clicked": False}, "clicked_item", "an item is named though nothing was clicked"),
        ({"clicked_item": "z"}, "clicked_item", "the clicked item is not on the card"),
        ({"propensity": 1.5}, "propensity", "is not a probability above 0 and at most 1"),
        ({"split": "holdout"}, "split", "is none of train, valid, test"),
    ],
)
def test_each_bad_row_is_an_error_or_dropped_with_its_reason(
    tmp_path: Path, change: dict[str, Any], column: str, reason: str
) -> None:
    rows = [GOOD, GOOD | {"request_id": 1} | change, GOOD | {"request_id": 2}]
    frame = pa.Table.from_pylist(rows)
    with pytest.raises(DataError) as caught:
        from_frame(frame, path=tmp_path / "strict")
    assert f"row 1, column '{column}'" in str(caught.value)
    assert reason in str(caught.value)
    report = build_frame(tmp_path / "log", frame)
    assert (report.rows_read, report.rows_dropped, report.impressions) == (3, 1, 2)
    assert list(report.dropped) == [reason]
    example = report.dropped[reason]["examples"][0]
    assert (example["row"], example["column"]) == (1, column)
    kept = Dataset.open(tmp_path / "log").impressions()["request_id"].to_pylist()
    assert kept == [0, 2]


def test_every_row_read_is_an_impression_or_in_the_report(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = random_impressions(200)
    for row in rows:
        if rng.random() < 0.3:
            row["card"] = [*row["card"], f"i{rng.integers(40)}"]
        if rng.random() < 0.1:
            row["user_id"] = None
        if rng.random() < 0.1:
            row["candidates"] = [*row["candidates"], row["candidates"][0]]
    report = build_frame(tmp_path / "log", pa.Table.from_pylist(rows)).to_dict()
    assert report["rows_read"] == 200
    assert report["rows_dropped"] + report["impressions"] == 200
    assert len(report["dropped"]) == 2
    nobody = "a request without a user: it teaches what suits unknown users"
    assert report["notes"][nobody]["rows"] == sum(row["user_id"] is None for row in rows)
    assert all(len(entry["examples"]) <= 5 for entry in report["dropped"].values())
    assert Dataset.open(tmp_path / "log").meta.provenance["report"] == json.loads(json.dumps(report))


def test_rows_of_items_count_as_rows_when_their_request_is_dropped(tmp_path: Path) -> None:
    rows = long_rows(random_impressions(3))
    rows += [{"request_id": 9, "user_id": u, "item_id": i} for u, i in ((1, "x"), (2, "y"), (1, "z"))]
    report = build_frame(tmp_path / "log", pa.Table.from_pylist(rows))
    assert report.dropped["its request is of several users"]["rows"] == 3
    assert (report.impressions, report.rows_read - report.rows_dropped) == (3, len(rows) - 3)


def test_several_clicks_are_all_kept_and_the_first_names_the_card(tmp_path: Path) -> None:
    rows = [{"request_id": 0, "user_id": 1, "item_id": i, "clicked": i > 1} for i in range(4)]
    build_frame(tmp_path / "log", pd.DataFrame(rows))
    (row,) = Dataset.open(tmp_path / "log").impressions().to_pylist()
    assert (row["clicked_item"], row["clicked_items"]) == (2, [2, 3])


def test_a_click_outside_the_card_is_a_click_of_the_list_and_noted(tmp_path: Path) -> None:
    report = build_frame(
        tmp_path / "log", pa.Table.from_pylist([GOOD, GOOD | {"request_id": 1, "clicked_item": "c"}])
    )
    dataset = Dataset.open(tmp_path / "log")
    assert dataset.clicked.tolist() == [True, False]
    assert dataset.impressions()["clicked_items"].to_pylist() == [["a"], ["c"]]
    assert report.notes["a click outside the card, kept as a click on the list"]["rows"] == 1
    assert dataset.signal.outside_clicks == 1


@pytest.mark.parametrize(
    ("frame", "mapping", "message"),
    [
        (
            {"user_id": ["u"], "slate": [["a"]]},
            {},
            "no column for 'candidates'; each row is one request .*; map one of user_id, slate",
        ),
        (
            {"user_id": ["u"], "slate": [["a"]]},
            {"candidates": "slat"},
            "no column 'slat' .did you mean .slate",
        ),
        ({"user_id": ["u"], "candidates": [["a"]]}, {"candidate": "x"}, "no column 'candidate' to map"),
        ({"user_id": ["u"], "candidates": [3.5]}, {}, "row 0, column 'candidates': 3.5 is not a list"),
        ({"user_id": [1.5], "candidates": [["a"]]}, {}, "column 'user_id' holds double"),
        (
            {"user_id": ["u"], "candidates": [["a"]], "clicked": [7]},
            {},
            "row 0, column 'clicked': 7 is neither",
        ),
        (
            {"user_id": ["u"] * 2, "candidates": [["a"]] * 2, "timestamp": ["2024-01-01", "soon"]},
            {},
            "row 1, column 'timestamp': 'soon' cannot be read",
        ),
    ],
)
def test_mapping_mistakes_name_the_column_and_what_would_be_right(
    tmp_path: Path, frame: dict[str, Any], mapping: dict[str, str], message: str
) -> None:
    with pytest.raises((DataError, InputError), match=message):
        from_frame(pa.table(frame), mapping, path=tmp_path / "log")
    assert not (tmp_path / "log").exists()


def test_items_and_users_bring_attributes_and_features(tmp_path: Path) -> None:
    items = pd.DataFrame(
        {"sku": ["a", "b", "c"], "name": ["A", "B", "C"], "price": [1, 2, 6], "ctr": [0.5, None, 1]}
    )
    users = pl.DataFrame({"user_id": ["u", "v"], "features": [[1.0], [3.0]]})
    dataset = from_frame(
        pa.Table.from_pylist([GOOD]), items=items, users=users, path=tmp_path / "log",
        item_columns={"item_id": "sku", "title": "name"}, item_features=["price", "ctr"],
    )  # fmt: skip
    assert dataset.items.column_names == ["price", "ctr", "item_id", "title", "features"]
    vocabulary = dataset.vocabulary()
    batch = dataset.batch(vocabulary)
    assert vocabulary.item_feature_size == 2
    # prices 1, 2, 6: mean 3, deviation sqrt(14/3); rates 0.5, ?, 1: mean 0.75, deviation 0.25, unknown is the mean
    price = np.array([-2, -1, 3]) / np.sqrt(14 / 3)
    expected = np.column_stack([price, [-1, 0, 1]])
    np.testing.assert_allclose(batch.item_features[0], expected, rtol=1e-5)  # type: ignore[index]


def test_items_the_table_lacks_are_added_and_noted(tmp_path: Path) -> None:
    items = pd.DataFrame(
        {"item_id": ["a", "b", "b"], "title": ["A", "B", "B again"], "features": [[1.0]] * 3}
    )
    report = build_frame(tmp_path / "log", pa.Table.from_pylist([GOOD]), items=items)
    dataset = Dataset.open(tmp_path / "log")
    assert dataset.items["title"].to_pylist() == ["A", "B", None]
    assert dataset.items["item_id"].to_pylist() == ["a", "b", "c"]
    assert {text.split(":")[-1].strip(): entry["rows"] for text, entry in report.notes.items()} == {
        "an id appears in several rows; the first one was kept": 1,
        "items of the log that the item table lacks, added without attributes": 1,
    }
    assert dataset.batch(dataset.vocabulary()).item_features[0, 2].tolist() == [0.0]  # type: ignore[index]


def test_an_id_repeated_in_a_later_piece_of_the_items_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("exactk.data.logs.files.ROWS", 2)
    items = {"item_id": ["a", "b", "c", "a"], "title": ["A", "B", "C", "A again"]}
    pq.write_table(pa.table(items), tmp_path / "items.parquet")
    report = build_frame(tmp_path / "log", pa.Table.from_pylist([GOOD]), items=tmp_path / "items.parquet")
    assert Dataset.open(tmp_path / "log").items["title"].to_pylist() == ["A", "B", "C"]
    assert [entry["examples"] for entry in report.notes.values()] == [["a"]]


def test_rules_are_evaluated_once_and_recorded(tmp_path: Path) -> None:
    items = pd.DataFrame({"item_id": ["a", "b", "c"], "brand": ["x", "x", "y"]})
    rules = Constraints.of([Distinct("brand")])
    dataset = from_frame(
        pa.Table.from_pylist([GOOD, GOOD]), items=items, constraints=Distinct("brand"), path=tmp_path / "log"
    )
    assert dataset.folder.has_graphs
    assert dataset.constraints == rules
    graph = dataset.batch(dataset.vocabulary()).graph[1]
    assert graph.tolist() == [[False, False, True], [False, False, True], [True, True, False]]
    assert dataset.impressions().select(list(GOOD)).to_pylist() == [GOOD, GOOD]


def test_ids_can_be_kept_as_text(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("user_id,candidates,card\n007,010|2,010\n8,3|2,2\n")
    (tmp_path / "items.csv").write_text("item_id,title\n010,ten\n2,two\n3,three\n")
    build_frame(tmp_path / "log", tmp_path / "log.csv", items=tmp_path / "items.csv", text_ids=True)
    rows = Dataset.open(tmp_path / "log").impressions().to_pylist()
    assert [(row["user_id"], row["candidates"]) for row in rows] == [("007", ["010", "2"]), ("8", ["3", "2"])]
    # 010 is no number as numbers are written, so that it is text without being told
    build_frame(tmp_path / "same", tmp_path / "log.csv", items=tmp_path / "items.csv")
    assert Dataset.open(tmp_path / "same").impressions().to_pylist() == rows


@pytest.mark.parametrize("kind", ["parquet", "frame", "jsonl"])
def test_texts_of_digits_stay_text_where_the_source_has_types(tmp_path: Path, kind: str) -> None:
    table = pa.table({"user_id": ["1", "2"], "candidates": [["3", "4"], ["5", "3"]], "card": [["3"], ["5"]]})
    source: Any = table
    if kind == "parquet":
        source = tmp_path / "log.parquet"
        pq.write_table(table, source)
    elif kind == "jsonl":
        source = tmp_path / "log.jsonl"
        source.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    build_frame(tmp_path / "log", source)
    rows = Dataset.open(tmp_path / "log").impressions().to_pylist()
    assert [(row["user_id"], row["candidates"]) for row in rows] == [("1", ["3", "4"]), ("2", ["5", "3"])]
    with pytest.raises(DataError, match=r"read all ids as text \(text_ids=True\)"):
        build_frame(tmp_path / "mixed", source, items=pa.table({"item_id": [3, 4, 5], "title": list("abc")}))


def test_csv_ids_are_numbers_if_all_are_written_as_such(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("user_id,candidates,card,clicked_item\n1,3|4,3,\n2,[5|3],5,5.0\n")
    build_frame(tmp_path / "log", tmp_path / "log.csv")
    rows = Dataset.open(tmp_path / "log").impressions().to_pylist()
    assert [(row["user_id"], row["candidates"], row["clicked_item"]) for row in rows] == [
        (1, [3, 4], None),
        (2, [5, 3], 5),
    ]


def test_an_id_of_another_kind_later_in_the_file_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("exactk.data.logs.files.BYTES", 40)
    rows = "".join(f"1,{r}|9\n" for r in range(8))
    (tmp_path / "log.csv").write_text(f"user_id,candidates\n{rows}1,5|oops\n")
    with pytest.raises(DataError, match="row 8, column 'candidates': 'oops' is not an id like"):
        build_frame(tmp_path / "log", tmp_path / "log.csv")


def test_what_is_no_frame_and_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="pandas, polars or Arrow frame, or a path, is needed, got list"):
        from_frame([GOOD])
    with pytest.raises(DataError, match="missing"):
        build_frame(tmp_path / "log", tmp_path / "nothing.csv")
    (tmp_path / "x.xlsx").touch()
    with pytest.raises(InputError, match="known endings are"):
        build_frame(tmp_path / "log", tmp_path / "x.xlsx")
    with pytest.raises(DataError, match="none of 1 rows"):
        build_frame(tmp_path / "log", pa.Table.from_pylist([GOOD | {"card": ["z"]}]))


def test_without_a_path_the_folder_is_temporary() -> None:
    dataset = from_frame(pd.DataFrame([GOOD]))
    assert dataset.path.is_dir()
    assert len(dataset) == 1


ROWS: dict[str, list[Any]] = {
    "request_id": [1, 1, 2, 2],
    "user_id": ["u", "u", "v", "v"],
    "item_id": [7, 8, 7, 9],
    "clicked": [1, 0, 0, 1],
}


def test_columns_of_tables_and_bytes_are_left_out_and_named(tmp_path: Path) -> None:
    odd = {"where": [{"x": [[2]]}] * 4, "bytes": [b"\xff"] * 4, "nested": [[[1]]] * 4}
    report = build_frame(tmp_path / "log", pa.table({**ROWS, **odd}))
    assert report.ignored["x"].startswith("it holds list<item: list<item: int64>>, which nothing here reads")
    assert {"bytes", "nested"} <= report.ignored.keys()


@pytest.mark.parametrize(
    ("more", "columns", "message"),
    [
        ({"split": [1.0] * 4}, None, "'split' holds double, not train, valid or test"),
        ({"reward": [[1.0]] * 4}, None, "'reward' holds list<.*>, not numbers"),
        ({"clicked": [2**62, 0, 0, 1]}, {"clicked": "clicked"}, "clicked"),
        ({"shown": [{"x": 1}] * 4}, {"item_id": "shown"}, "there is no column 'shown' .*, x"),
        ({"item_id": pa.array([2**63, 1, 2, 3], pa.uint64())}, None, "9223372036854775808 is not an id"),
    ],
)
def test_a_column_of_the_wrong_kind_is_refused_by_name(
    tmp_path: Path, more: dict[str, list[Any]], columns: Any, message: str
) -> None:
    with pytest.raises(ExactKError, match=message):
        build_frame(tmp_path / "log", pa.table({**ROWS, **more}), columns)


def test_a_column_named_twice_and_a_file_without_rows_are_refused(tmp_path: Path) -> None:
    (tmp_path / "twice.csv").write_text("user_id,item_id,item_id\nu,1,2\n")
    with pytest.raises(DataError, match="there are 2 columns 'item_id'"):
        build_frame(tmp_path / "log", tmp_path / "twice.csv")
    twice = pd.DataFrame([["u", 1, 2]], columns=["user_id", "item_id", "item_id"])
    with pytest.raises(DataError, match="a column more than once: 'item_id' 2 times"):
        build_frame(tmp_path / "log", twice)
    for name, content in (("empty.jsonl", ""), ("header.csv", "user_id,item_id\n")):
        (tmp_path / name).write_text(content)
        with pytest.raises(DataError, match="holds no rows|none of 0 rows"):
            build_frame(tmp_path / "log", tmp_path / name)


def test_what_was_dropped_can_be_kept_whatever_it_was(tmp_path: Path) -> None:
    rows = {"user_id": ["u"] * 3, "candidates": [[1, 2], [3], [1]], "propensity": [float("inf"), 0.5, 0.5]}
    report = build_frame(tmp_path / "log", pa.table({**rows, "clicked_item": [1, 3, None]}))
    (dropped,) = report.dropped.values()
    assert dropped["examples"][0]["value"] == "inf"
    assert (
        json.loads((tmp_path / "log" / "meta.json").read_text())["provenance"]["report"]["rows_dropped"] == 1
    )


REPEATED = {"request_id": [1, 1, 1, 2, 2], "user_id": [7, 7, 7, 8, 8], "item_id": [3, 4, 3, 3, 4],
            "price": [1.0, 2.0, 1.0, None, 5.0], "clicked": [True, False, True, False, True]}  # fmt: skip


def test_a_row_that_stands_twice_counts_once(tmp_path: Path) -> None:
    """Logs are often delivered at least once; a repeated row is no reason to lose its request."""
    report = build_frame(tmp_path / "data", pa.table(REPEATED), {"k": 1})
    assert (report.impressions, report.rows_read, report.rows_dropped) == (2, 5, 1)
    assert list(report.dropped) == ["the same row twice, the first one kept"]
    with pytest.raises(DataError, match="the same row twice"):
        from_frame(pa.table(REPEATED), {"k": 1})


def test_an_item_that_stands_twice_with_two_prices_loses_its_request(tmp_path: Path) -> None:
    rows = REPEATED | {"price": [1.0, 2.0, 1.5, None, 5.0]}
    columns = {"k": 1, "candidate": {"numbers": ["price"]}}
    report = build_frame(tmp_path / "data", pa.table(rows), columns)
    assert (report.impressions, report.rows_dropped) == (1, 3)


@pytest.mark.parametrize(
    ("change", "message"),
    [({"user_id": [7, 7, 9, 8, 8], "item_id": [3, 4, 5, 3, 4]}, "several users"),
     ({"request_id": [1, 1, 1, 2, None]}, "a value is missing|twice")],
)  # fmt: skip
def test_rows_lost_before_they_are_requests_are_errors_in_python_too(
    change: dict[str, Any], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        from_frame(pa.table(REPEATED | change))


def test_lists_that_are_all_empty_are_dropped_whatever_ids_the_cards_have(tmp_path: Path) -> None:
    table = pa.table({"candidates": pa.array([[], []], pa.list_(pa.null())), "card": [[1, 2], [3]],
                      "clicked_item": [1, None]})  # fmt: skip
    with pytest.raises(DataError, match=r"none of 2 rows could be used: there are no candidates \(2\)"):
        build_frame(tmp_path / "data", table)


def test_columns_of_half_floats_and_sparse_ones(tmp_path: Path) -> None:
    """Arrow compares half floats with nothing; sparse columns of pandas it does not take."""
    rows = pd.DataFrame(long_rows(random_impressions(8, 1)))
    rows["clicked"] = rows["clicked"].astype("float16")
    assert len(from_frame(rows, path=tmp_path / "log")) == 8
    rows["price"] = pd.arrays.SparseArray(np.zeros(len(rows)))
    with pytest.raises(DataError, match="a type that Arrow lacks: Sparse pandas data"):
        from_frame(rows, path=tmp_path / "log")
