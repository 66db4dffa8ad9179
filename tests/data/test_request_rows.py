"""What trained is what serves: the rows of a log, sent again through any door, are the arrays the log itself gives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings

from column_logs import COLUMNS, K, as_lists, as_requests, assert_same, beside_items, column_logs, with_counts
from exactk.data.logs.files import is_untyped, tables_of
from exactk.data.logs.frame import from_frame
from exactk.data.logs.request_rows import AskedColumns, RequestReader, numbered, requests_of_frame
from exactk.data.requests import RequestTable
from exactk.data.requests.builder import RequestBuilder
from exactk.data.requests.catalogue import Catalogue
from exactk.errors import DataError, InputError
from exactk.scale.plan import files_of, parts_of
from exactk.scale.reading import PartReader

Logs = tuple[pa.Table, pa.Table, pa.Table]


def read(source: Path | pa.Table, asked: AskedColumns) -> RequestTable:
    """Through the reader of files, in pieces."""
    reader = RequestReader(asked, str(source)[:80], untyped=is_untyped(source))
    as_text = [asked.columns.roles.get(name, name) for name in ("request_id", "user_id", "item_id")]
    pieces = [piece.requests.table for piece in reader.pieces(numbered(tables_of(source, as_text)))]
    assert not reader.report.dropped
    return RequestTable(pa.concat_tables(pieces, promote_options="permissive"), asked.card_size)


@given(log=column_logs())
@settings(max_examples=40, deadline=None)
def test_rows_sent_again_are_the_arrays_of_the_log(
    tmp_path_factory: pytest.TempPathFactory, log: Logs
) -> None:
    rows, items, users = log
    place = tmp_path_factory.mktemp("rows")
    dataset = from_frame(
        rows, COLUMNS, items=items, users=users, path=place / "log",
        item_columns={"item_id": "sku"}, user_columns={"user_id": "visitor"},
    )  # fmt: skip
    vocabulary, logged = dataset.vocabulary(), dataset.batch(dataset.vocabulary())
    asked = AskedColumns.of(vocabulary, K)
    known = RequestBuilder(vocabulary, Catalogue.of(dataset))
    counted = with_counts(rows, dataset)
    wide = beside_items(counted, items, users)
    pq.write_table(counted, place / "rows.parquet", row_group_size=3)
    (place / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in counted.to_pylist()))
    pq.write_table(as_lists(counted), place / "lists.parquet")
    sources: dict[str, Any] = {
        "an Arrow table": requests_of_frame(counted, asked),
        "pandas": requests_of_frame(counted.to_pandas(), asked),
        "polars": requests_of_frame(pl.from_arrow(counted), asked),
        "lists": requests_of_frame(as_lists(counted), asked),
        "Parquet": read(place / "rows.parquet", asked),
        "JSON lines": read(place / "rows.jsonl", asked),
        "Parquet of lists": read(place / "lists.parquet", asked),
        "with items and users": requests_of_frame(wide, asked),
        "requests": as_requests(counted),
        "requests with items and users": as_requests(wide),
    }
    sources["taken one by one"] = list(sources["an Arrow table"])
    for name, requests in sources.items():
        try:
            batch = known.batch(requests)
        except InputError as error:
            raise AssertionError(name) from error
        assert batch.card_size.max() <= K
        assert_same(batch, logged, ("card_size",))
    # Nothing is known of items and users but what is sent; a price usual must then be missing, as none is sent.
    nothing = Catalogue.of(dataset)
    bare = RequestBuilder(vocabulary, Catalogue(nothing.items.slice(0, 0), nothing.users.slice(0, 0)))
    for requests in (requests_of_frame(wide, asked), as_requests(wide)):
        assert_same(bare.batch(requests), logged, ("card_size", "item_features"))


@given(log=column_logs())
@settings(max_examples=15, deadline=None)
def test_csv_is_read_as_the_build_reads_it(tmp_path_factory: pytest.TempPathFactory, log: Logs) -> None:
    rows, place = log[0], tmp_path_factory.mktemp("csv")
    pacsv.write_csv(rows, place / "rows.csv")
    columns = {name: held for name, held in COLUMNS.items() if name not in ("item", "user", "pair_features")}
    dataset = from_frame(place / "rows.csv", columns, path=place / "log")
    vocabulary = dataset.vocabulary()
    pacsv.write_csv(with_counts(rows, dataset), place / "asked.csv")
    asked = read(place / "asked.csv", AskedColumns.of(vocabulary, K))
    batch = RequestBuilder(vocabulary, Catalogue.of(dataset)).batch(asked)
    assert_same(batch, dataset.batch(vocabulary), ("card_size",))


def small(**columns: Any) -> pa.Table:
    return pa.table({"request_id": ["a", "a", "b", "b"], "item_id": [1, 2, 2, 3], **columns})


ASKED = AskedColumns.of(
    from_frame(
        small(price=[1.0, 2.0, 3.0, 4.0], device=["x", "x", "y", "y"], clicked=[1, 0, 0, 1]),
        {"candidate": {"numbers": ["price"]}, "context": {"categories": ["device"]}},
    ).vocabulary(),
    K,
)  # fmt: skip


def test_what_is_not_read_and_what_nobody_sent_is_said() -> None:
    reader = RequestReader(ASKED, "rows")
    pieces = list(reader.pieces([(0, small(prize=[1, 2, 3, 4], device=["x", "x", "y", "y"]))]))
    assert [name for piece in pieces for name in piece.requests.request_ids] == ["a", "b"]
    assert [row for piece in pieces for row in piece.rows.tolist()] == [0, 2]
    assert list(reader.report.ignored) == ["prize"]
    assert set(ASKED.wanted) - reader.met == {"price"}


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (small().drop_columns(["item_id"]), "no column 'item_id'.*none 'candidates'"),
        (small().drop_columns(["request_id"]), "rows of one request share a 'request_id'"),
        (small(price=["1", "2", "cheap", "3"]), "row 2, column 'price': 'cheap' cannot be read as float"),
        (small(k=[1, 1, 1.5, 1]), "'k' holds no whole numbers"),
        (
            pa.table({"candidates": [[1, 2]], "price": [3.0]}),
            "column 'price' holds float, not a list beside",
        ),
        (pa.table({"candidates": [[1, 2]], "include": ["a"]}), "'include' holds string, not lists"),
    ],
)
def test_columns_that_cannot_be_read_are_named(frame: pa.Table, message: str) -> None:
    with pytest.raises(DataError, match=message):
        requests_of_frame(frame, ASKED)


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (small(device=["x", "y", "z", "z"]), "'device' differs within a request"),
        (pa.table({"request_id": ["a", "b", "a"], "item_id": [1, 2, 3]}).slice(0, 0), "no rows"),
        (pa.table({"request_id": ["a", None], "item_id": [1, 2]}), "a value is missing"),
        (small(user_id=["u", "v", "w", "w"]), "its request is of several users"),
    ],
)
def test_rows_that_make_no_request_are_errors_in_python(frame: pa.Table, message: str) -> None:
    with pytest.raises(InputError, match=message):
        requests_of_frame(frame, ASKED)


def test_lists_may_be_objects_and_say_nothing_of_some_requests() -> None:
    nested = pa.table({
        "request_id": ["a", "b", "c"],
        "candidates": [
            [{"item_id": 1, "price": 2.0}, {"item_id": 2, "price": None}], [{"item_id": 3, "price": 5.0}], [],
        ],
        "context": [{"device": "x"}, {"device": None}, None],
        "include": [[2], [], None],
        "k": [1, None, 1],
    })  # fmt: skip
    table = requests_of_frame(nested, ASKED)
    first, second, _ = table
    assert (first.candidates, first.include, first.k) == ((1, 2), (2,), 1)
    assert first.attributes == {1: {"price": 2.0}}
    assert first.context == {"device": "x"}
    assert (second.k, second.context, second.attributes) == (K, {}, {3: {"price": 5.0}})
    silent = pa.table({"candidates": [[1, 2], [3]], "price": pa.array([None, [4.0]], pa.list_(pa.float64()))})
    assert requests_of_frame(silent, ASKED).sent["price"].to_pylist() == [None, None, 4.0]


def test_requests_that_cannot_be_answered_are_named_by_their_place() -> None:
    lists = [[1, 2], [], [1, None, 2], [1, 1], [1], None]
    table = RequestTable(pa.table({"candidates": lists, "k": [2, 1, 1, 1, 2, 1]}), K)
    assert table.faults() == {
        1: "there are no candidates",
        2: "a candidate has no id",
        3: "a candidate appears twice",
        4: "a card of 2 cannot be made of 1 candidates",
        5: "there is no list of candidates",
    }
    short = pa.table({"candidates": [[1, 2], [3]], "candidate.price": [[1.0], [2.0]]})
    assert RequestTable(short, 1).faults() == {0: "price: its list is not as long as the candidates'"}


def test_a_table_of_requests_is_parted_by_the_memory_its_graphs_take() -> None:
    lists = [list(range(n)) for n in [10, 10, 2000, 2000, 2000, 5]]
    table = RequestTable(pa.table({"candidates": lists}), K)
    sizes = [len(part) for part in table.parts(2)]
    assert sum(sizes) == 6
    assert max(sizes[2:]) <= 2
    assert [part.item_ids[0].as_py() for part in table.parts(2)] == [0] * len(sizes)


def test_an_item_met_in_many_requests_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Titles in rows are read once for each item, not for each row: they cost a thousand numbers each."""
    rows = pa.table({
        "request_id": np.repeat(np.arange(50), 4), "item_id": np.tile([1, 2, 3, 4], 50),
        "title": np.tile(["red lamp", "old lamp", "red chair", "old chair"], 50), "clicked": np.tile([1, 0, 0, 0], 50),
        "price": np.arange(200.0),
    })  # fmt: skip
    dataset = from_frame(rows, {"item": {"texts": ["title"]}, "candidate": {"numbers": ["price"]}})
    vocabulary = dataset.vocabulary()
    read_rows: list[int] = []
    transform = type(vocabulary.columns.texts["title"])
    whole = transform.__call__

    def counted(self: Any, texts: Any) -> Any:
        read_rows.append(len(texts))
        return whole(self, texts)

    monkeypatch.setattr(transform, "__call__", counted)
    builder = RequestBuilder(vocabulary, Catalogue.of(dataset))
    batch = builder.batch(requests_of_frame(rows, AskedColumns.of(vocabulary, 1)))
    assert sorted(read_rows) == [4, 4]  # the catalogue's, and those sent
    assert_same(batch, dataset.batch(vocabulary), ("card_size",))


def test_pandas_rows_of_many_types_read_as_they_are() -> None:
    frame = pd.DataFrame(
        {"request_id": [7, 7], "item_id": [1, 2], "price": [1, np.nan], "device": ["x", "x"]}
    )
    (request,) = requests_of_frame(frame, ASKED)
    assert request.attributes == {1: {"price": 1.0}}
    assert request.context == {"device": "x"}


def lists_log(path: Path) -> list[dict[str, Any]]:
    """Lists under names of a log's own, with prices beside them and a store."""
    rng = np.random.default_rng(0)
    rows = []
    for n in range(60):
        offered = rng.choice(30, 6, replace=False).tolist()
        price = rng.normal(5, 1, 6).round(2).tolist()
        rows.append({"visit": f"v{n}", "shopper": f"s{n % 7}", "pool": offered, "prices": price,
                     "store": ["north", "south"][n % 2], "picked": [offered[0]]})  # fmt: skip
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return rows


def test_lines_of_lists_under_the_names_of_the_log_are_requests(tmp_path: Path) -> None:
    """They were refused: "a request has no field 'prices'", though the same lists in Parquet were read."""
    rows = lists_log(tmp_path / "log.jsonl")
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "log.parquet")
    roles = {"request_id": "visit", "user_id": "shopper", "candidates": "pool", "clicked_items": "picked"}
    dataset = from_frame(pa.Table.from_pylist(rows), roles)
    vocabulary = dataset.vocabulary()
    asked = AskedColumns.of(vocabulary, 3)
    read = {}
    for path in (tmp_path / "log.jsonl", tmp_path / "log.parquet"):
        reader = PartReader(asked)
        (part,) = parts_of(files_of(path), 1000)
        (read[path.suffix],) = reader.read(part)
        assert reader.unread == {"picked"}
        assert {"prices", "store"} <= reader.met
    assert read[".jsonl"].ids == read[".parquet"].ids == [f"v{n}" for n in range(60)]
    builder = RequestBuilder(vocabulary, Catalogue.of(dataset))
    one, two = (vars(builder.batch(each.requests)) for each in read.values())
    for name, value in one.items():
        np.testing.assert_array_equal(value, two[name], err_msg=name)
