"""Files as other programs write them: compressed, in other encodings, without names, with quotes that never end."""

from __future__ import annotations

import bz2
import gzip
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from exactk.data.logs.files import beginning, spread, tables_of
from exactk.data.logs.frame import from_frame
from exactk.data.logs.written import (
    LEVELS,
    flags_of,
    has_decimal_commas,
    json_table,
    numbers_with_commas,
    order_of,
    read_moments,
)
from exactk.errors import DataError, InputError
from exactk.scale.plan import files_of, parts_of

ROWS = "id,name\n1,Zoë\n2,\n"


@pytest.mark.parametrize(
    ("name", "packed"),
    [
        ("a.csv", bytes), ("a.csv.gz", gzip.compress), ("a.CSV.GZ", gzip.compress), ("a.csv.bz2", bz2.compress),
        ("a.csv.zst", lambda text: pa.compress(text, "zstd", asbytes=True)),
        ("wide.csv", lambda text: text.decode().encode("utf-16")),
        ("marked.csv", lambda text: b"\xef\xbb\xbf" + text),
        ("wide.csv.gz", lambda text: gzip.compress(text.decode().encode("utf-16"))),
    ],
)  # fmt: skip
def test_a_file_of_text_reads_alike_however_it_is_stored(tmp_path: Path, name: str, packed: Any) -> None:
    (tmp_path / name).write_bytes(packed(ROWS.encode()))
    assert beginning(tmp_path / name).to_pylist() == [{"id": 1, "name": "Zoë"}, {"id": 2, "name": None}]
    (part,) = parts_of(files_of(tmp_path), 10)
    assert part.num_rows == 2


def test_what_cannot_be_read_says_what_can(tmp_path: Path) -> None:
    (tmp_path / "a.xlsx").write_bytes(b"PK")
    with pytest.raises(InputError, match=r"known endings are .*\.jsonl.*may be compressed \(\.gz"):
        beginning(tmp_path / "a.xlsx")
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(ROWS.encode() * 99)[:-20])
    with pytest.raises(DataError, match=r"a\.csv\.gz cannot be read as csv"):
        list(tables_of(tmp_path / "a.csv.gz"))
    for text in ("id,größe\n1,2\n", "id,name\n1,größe\n"):
        (tmp_path / "a.csv").write_bytes(text.encode("cp1252"))
        with pytest.raises(DataError, match="this is not UTF-8 text; save it as UTF-8"):
            beginning(tmp_path / "a.csv")
    (tmp_path / "a.csv").write_text("id@name\n1@x,y\n")
    with pytest.raises(DataError, match="commas, semicolons, tabs or bars"):
        beginning(tmp_path / "a.csv")


@pytest.mark.parametrize(
    ("ending", "text", "value"),
    [
        ("tsv", "1\tU8\t11/11/2019 9:05:58 AM\tN1-0 N2-1\n2\tU9\t11/12/2019 6:11:30 PM\tN3-1 N4-0\n", "11/11/2019"),
        ("tsv", "1\tU8\tN1-0 N2-1\n2\tU9\tN3-1 N4-0\n", "N1-0"),
        ("tsv", "N0\tsport\tsoccer\n" + "".join(f"N{n}\tsport\tsoccer\n" for n in range(1, 9)), "sport"),
        ("csv", "196,242,3\n186,302,3\n", "196"),
    ],
)  # fmt: skip
def test_a_first_line_of_values_is_not_lost_as_names(
    tmp_path: Path, ending: str, text: str, value: str
) -> None:
    (tmp_path / f"log.{ending}").write_text(text)
    with pytest.raises(
        DataError, match=f"first line must name the columns, but '{value}.*add a line of names"
    ):
        beginning(tmp_path / f"log.{ending}")


@pytest.mark.parametrize(
    "text",
    [
        "1,2,3\n4,5,6\n", "qid,0.5,1\n1,2,3\n", "click,view\nclick,1\n", "day,2026\nx,3\n", "a,b\na,b\n",
    ],
)  # fmt: skip
def test_odd_names_are_names(tmp_path: Path, text: str) -> None:
    (tmp_path / "log.csv").write_text(text)
    assert beginning(tmp_path / "log.csv").column_names == text.splitlines()[0].split(",")


def test_between_tabs_a_quote_may_stand_alone(tmp_path: Path) -> None:
    """A cell that begins with a quote would swallow all lines until the next quote."""
    path = tmp_path / "news.tsv"
    path.write_text('id\ttitle\turl\n1\t"Wheel Of\tu1\n2\t"b" c\tu2\n3\t"d\tu3\n')
    assert beginning(path)["title"].to_pylist() == ['"Wheel Of', '"b" c', '"d']
    path.write_text('id\ttitle\turl\n1\t"two\nlines\tand a tab"\tu1\n2\t"b ""c"""\tu2\n')
    assert beginning(path)["title"].to_pylist() == ["two\nlines\tand a tab", 'b "c"']


@pytest.mark.parametrize("word", ["NULL", "\\N", "None", "nan", "#N/A"])
def test_words_for_nothing_are_nothing(tmp_path: Path, word: str) -> None:
    (tmp_path / "log.csv").write_text(f"user,price,NA\n7,{word},NA\n{word},2.5,b\n")
    assert beginning(tmp_path / "log.csv").to_pylist() == [
        {"user": 7, "price": None, "NA": "NA"},
        {"user": None, "price": 2.5, "NA": "b"},
    ]
    texts = pa.array(["3/14/2026", word.strip("#"), None])
    moments = read_moments(texts, order_of(texts))
    assert moments is not None
    assert moments.null_count == 2
    flags = flags_of(pa.array(["1", word.strip("#"), "0"]))
    assert flags is not None
    assert flags.tolist() == [True, False, False]


@pytest.mark.parametrize(
    ("texts", "values"),
    [
        (["12,5", "3,25", "7"], [12.5, 3.25, 7]), (["1.234,50", None, "-0,5 €"], [1234.5, None, -0.5]),
        (["1,234", "5,678"], None), (["12,5,3", "1,2"], None), (["17", "17,5", "3"], None), (["a,b"], None),
    ],
)  # fmt: skip
def test_commas_part_decimals_where_no_list_or_thousand_may_be_meant(texts: Any, values: Any) -> None:
    column = pa.array(texts)
    assert has_decimal_commas(column) is (values is not None)
    if values:
        read = numbers_with_commas(column)
        assert read is not None
        assert read.to_pylist() == values


def test_decimal_commas_are_read_where_commas_part_no_cells(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id;price\n1;1.234,50\n2;\n3;0,75\n")
    assert beginning(tmp_path / "a.csv")["price"].to_pylist() == [1234.5, None, 0.75]
    (tmp_path / "b.csv").write_text('id,price\n1,"1.234,50"\n')
    assert beginning(tmp_path / "b.csv")["price"].to_pylist() == ["1.234,50"]


@pytest.mark.parametrize(
    ("cells", "columns"),
    [
        (['{"a": 1, "b": NaN}', None], {"a": [1, None]}),
        (["[{'a': 1, 'b': None}, {'a': 2, 'b': True}]", "[]"], {"a": [[1, 2], []], "b": [[None, True], []]}),
        (['{"a": 1}', "{broken"], {"cell": ['{"a": 1}', "{broken"]}),
        (["{a} story", "b"], {"cell": ["{a} story", "b"]}),
        (["[{'a': 1}]", "__import__('os')"], {"cell": ["[{'a': 1}]", "__import__('os')"]}),
    ],
)  # fmt: skip
def test_objects_in_cells_are_columns(cells: Any, columns: Any) -> None:
    found = spread(pa.table({"cell": cells}))
    assert {name: found[name].to_pylist() for name in columns} == columns


def frame(**more: Any) -> pd.DataFrame:
    rows = {"request_id": np.repeat(np.arange(40), 5), "item_id": np.tile(np.arange(5), 40)}
    return pd.DataFrame(rows | {"clicked": np.arange(200) % 5 == np.repeat(np.arange(40) % 5, 5)} | more)


def test_numbers_of_databases_and_intervals_are_read() -> None:
    ids = [Decimal(n) for n in np.tile(np.arange(5), 40).tolist()]
    costs = [Decimal(n) / 4 for n in range(200)]
    found = from_frame(frame(item_id=ids, cost=costs, band=pd.cut(np.arange(200) % 7, 3)))
    assert found.items["item_id"].to_pylist() == [0, 1, 2, 3, 4]
    assert {"cost", "left", "right"} <= set(found.folder.columns.candidate.numbers)


def test_ids_that_lost_their_last_digits_are_refused() -> None:
    """A float holds not every whole number beyond 2**53: two users would become one."""
    users = np.repeat(9e17 + 512.0 * np.arange(40), 5)
    users[:5] = np.nan
    with pytest.raises(DataError, match=r"column 'user_id': .* lost its last digits when it was read"):
        from_frame(frame(user_id=users))


@pytest.mark.parametrize("opened", [b"[", b'{"a":', b'[{"a":', b' [\t{ "\\"[" :'])
def test_lines_nested_without_end_are_refused_and_end_no_process(tmp_path: Path, opened: bytes) -> None:
    """Arrow's reader follows them with the machine's own stack: 100,000 levels were a segmentation fault."""
    good = b'{"id": 1, "text": "' + b"[{" * 500 + b'", "list": ' + b"[" * 50 + b"]" * 50 + b"}\n"
    assert len(json_table(good * 3)) == 3  # brackets in texts are no levels
    for levels in (LEVELS + 1, 100_000):
        bad = b'{"id": 2, "list": ' + opened * levels + b"\n"
        with pytest.raises(pa.ArrowInvalid, match="nested more than 64 levels deep"):
            json_table(good + bad + good)
    (tmp_path / "log.jsonl").write_bytes(good + bad)
    with pytest.raises(DataError, match=r"log\.jsonl cannot be read as jsonl: .*nested"):
        list(tables_of(tmp_path / "log.jsonl"))
    cell = (opened * 100_000).decode()
    held = spread(pa.table({"cell": ['{"a": 1}', f'{{"a": {cell}']}))
    assert held["cell"].to_pylist()[1].startswith('{"a": ')  # stays a text
