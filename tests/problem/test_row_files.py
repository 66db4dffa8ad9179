"""Rows from files: types that stay what they were, and bytes of any kind, which are rows or a clear refusal."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from exactk.errors import DataError, ExactKError, InputError
from exactk.problem import row_files
from exactk.problem.row_files import scored_rows
from exactk.problem.solving_file import solve_file


def rows_of(path: Path, **more: Any) -> list[dict[str, Any]]:
    return [dict(row) for _, row in scored_rows(path, **more)]


SAID = b"request_id,item_id,score\n1,2,0.5\n1,3,0.25\n"
LINES = b'{"item_id": 1, "score": 2}\n{"items": [{"item_id": "a", "score": 1}], "k": 1}\n'
torn = st.one_of(
    st.binary(max_size=200),
    st.tuples(st.sampled_from([SAID, LINES]), st.integers(0, 60), st.binary(max_size=6)).map(
        lambda told: told[0][: told[1]] + told[2] + told[0][told[1] :]
    ),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["item_id", "score", "request_id", "items", "k", "include", "pair_scores"]),
                inner,
            )
        ),
        max_leaves=12,
    ).map(lambda value: json.dumps(value).encode()),
)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=torn, suffix=st.sampled_from([".csv", ".jsonl", ".parquet"]), text_ids=st.booleans())
@example(content=b"[" * 100_000, suffix=".jsonl", text_ids=False)
@example(content=b'{"item_id": 1, "score": ' + b"9" * 400 + b"}", suffix=".jsonl", text_ids=False)
@example(content=b'{"item_id": 1, "score": ' + b"9" * 5000 + b"}", suffix=".jsonl", text_ids=False)
@example(content=b'{"item_id": [1], "score": 1}', suffix=".jsonl", text_ids=False)
@example(content=b'{"request_id": {}, "item_id": 1, "score": 1}', suffix=".jsonl", text_ids=False)
@example(content=SAID.decode().encode("utf-16"), suffix=".csv", text_ids=False)
@example(content=gzip.compress(SAID, mtime=0), suffix=".csv", text_ids=False)
@example(content=b"item_id,score\n\xe9,1\n", suffix=".csv", text_ids=True)
@example(content=b"PAR1" + b"\x00" * 20 + b"PAR1", suffix=".parquet", text_ids=False)
def test_bytes_of_any_kind_are_answered_or_refused_in_words(
    tmp_path: Path, content: bytes, suffix: str, text_ids: bool
) -> None:
    path = tmp_path / f"scores{suffix}"
    path.write_bytes(content)
    told = ""
    try:
        for answer in solve_file(path, 1, text_ids=text_ids):
            assert answer.error is not None or len(answer.cards[0].items) == 1
    except ExactKError as error:
        told = str(error)
    assert not told or str(path) in told


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("a.csv", b"\xff\xfei\x00t\x00", "this is UTF-16 text: save it as UTF-8"),
        ("a.csv", gzip.compress(SAID, mtime=0), "this is compressed by gzip: unpack it first"),
        ("a.jsonl", gzip.compress(LINES, mtime=0), "this is compressed by gzip"),
        ("a.csv", b"item_id,score\n\xe9,1\n", "this is not UTF-8 text"),
        ("a.parquet", SAID, "a.parquet: Parquet"),
        ("a.csv", b"item_id,score,score\n1,2,3\n", "line 1: there are 2 columns 'score'"),
        ("a.jsonl", b"[" * 100_000, "line 1: not JSON: nested too deeply"),
    ],
)
def test_a_file_of_another_kind_is_named_for_what_it_is(
    tmp_path: Path, name: str, content: bytes, told: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(DataError) as refused:
        rows_of(path)
    assert told in str(refused.value)


def test_csv_ids_are_numbers_if_all_are_written_as_such(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    for ids, read in (
        (["42", "-7", "0"], [42, -7, 0]),
        (["42", "042"], ["42", "042"]),
        (["1", "4.2"], ["1", "4.2"]),
        (["1", "+2"], ["1", "+2"]),
        (["1", "-0"], ["1", "-0"]),
        (["NA", "null"], ["NA", "null"]),
    ):
        path.write_text("item_id,score\n" + "".join(f"{one},1\n" for one in ids))
        assert [row["item_id"] for row in rows_of(path)] == read
        assert [row["item_id"] for row in rows_of(path, text_ids=True)] == ids


def test_an_id_that_turns_out_to_be_text_too_late_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("item_id,score\n" + "11,1\n" * 300_000 + "042,1\n")
    with pytest.raises(DataError, match=r"line 300002: item_id '042' is not a whole number.*text_ids=True"):
        rows_of(path)
    assert rows_of(path, text_ids=True)[-1]["item_id"] == "042"


def test_files_that_say_their_types_are_believed(tmp_path: Path) -> None:
    table, lines = tmp_path / "a.parquet", tmp_path / "a.jsonl"
    pq.write_table(pa.table({"item_id": ["042", "7"], "score": [1, 2]}), table)
    lines.write_text('{"item_id": "042", "score": 1}\n{"item_id": 7, "score": 2}\n')
    assert [row["item_id"] for row in rows_of(table)] == ["042", "7"]
    assert [row["item_id"] for row in rows_of(lines)] == ["042", 7]
    assert [row["item_id"] for row in rows_of(lines, text_ids=True)] == ["042", "7"]
    lines.write_text(
        '{"items": [{"item_id": 1, "score": 1}], "include": [1], "pair_scores": [[1, 2, 3.0]]}\n'
    )
    (row,) = rows_of(lines, text_ids=True)
    assert (row["items"][0]["item_id"], row["include"], row["pair_scores"]) == ("1", ["1"], [["1", "2", 3.0]])


def test_numbers_are_decided_for_the_whole_file(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers: dict[str, bool] = {}
    assert row_files._ids(Path("a.csv"), 1, "item_id", ["a", "1"], numbers) == ["a", "1"]
    assert row_files._ids(Path("a.csv"), 3, "item_id", ["1", "2"], numbers) == ["1", "2"]


def test_a_name_said_twice_is_refused_in_every_kind_of_file(tmp_path: Path) -> None:
    """One of the two values would be lost."""
    table = pa.table([pa.array(["a"]), pa.array([1.0]), pa.array([2.0])], ["item_id", "score", "score"])
    pq.write_table(table, tmp_path / "a.parquet")
    (tmp_path / "a.csv").write_text("item_id,score,score\na,1,2\n")
    (tmp_path / "a.jsonl").write_text('{"item_id": "a", "score": 1, "score": 2}\n')
    (tmp_path / "b.jsonl").write_text('{"items": [{"item_id": "a", "score": 1, "score": 2}]}\n')
    for name in ("a.parquet", "a.csv", "a.jsonl", "b.jsonl"):
        with pytest.raises(DataError, match=f"{name}.*2 .*'score'"):
            rows_of(tmp_path / name)


def test_half_a_character_is_refused_and_two_halves_are_one(tmp_path: Path) -> None:
    """It could be written nowhere: not on a terminal, not into a file of cards."""
    file = tmp_path / "a.jsonl"
    file.write_text('{"item_id": "\\ud83d\\udc4d", "score": 1}\n')
    assert rows_of(file) == [{"item_id": "\N{THUMBS UP SIGN}", "score": 1}]
    for half in ('"\\ud800"', '["\\uDFFF"]', '{"\\ud800": 1}'):
        file.write_text(f'{{"item_id": 1, "score": 1}}\n{{"item_id": 2, "score": 1, "note": {half}}}\n')
        with pytest.raises(DataError, match="line 2: .* is half of a character"):
            rows_of(file)


def test_what_databases_export_is_read_as_what_it_means(tmp_path: Path) -> None:
    """Texts as bytes, numbers as decimals."""
    whole, part = pa.decimal128(9, 0), pa.decimal128(9, 2)
    columns = [pa.array([b"r"]), pa.array([7], whole), pa.array([Decimal("1.25")], part), pa.array([b"x"])]
    pq.write_table(pa.table(columns, ["request_id", "item_id", "score", "brand"]), tmp_path / "a.parquet")
    (row,) = rows_of(tmp_path / "a.parquet")
    assert row == {"request_id": "r", "item_id": 7, "score": 1.25, "brand": "x"}
    assert [type(value) for value in row.values()] == [str, int, float, str]
    pq.write_table(
        pa.table([pa.array([b"\xff"]), pa.array([1.0])], ["item_id", "score"]), tmp_path / "b.parquet"
    )
    with pytest.raises(DataError, match="not UTF-8 text"):
        rows_of(tmp_path / "b.parquet")


def test_a_pair_that_is_said_twice_must_be_said_alike(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    line = {
        "items": [{"item_id": i, "score": 0} for i in "abc"],
        "pair_scores": [["a", "b", 2], ["b", "a", 2]],
    }
    file.write_text(json.dumps(line))
    (card,) = solve_file(file, 2)
    assert card.cards[0].value == 2.0
    file.write_text(json.dumps(line | {"pair_scores": [["a", "b", 2], ["b", "a", 3]]}))
    with pytest.raises(InputError, match="'a' twice|'b' and 'a' twice"):
        list(solve_file(file, 2))
