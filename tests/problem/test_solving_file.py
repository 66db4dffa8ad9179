"""Files of scored candidates: every format, streamed, wrong in every way a file can be wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from exactk import Constraints, DataError, Distinct, InputError, TitleDistance
from exactk.problem.solving_file import Solved, read_requests, solve_file

ROWS = [
    {"request_id": "a", "item_id": 1, "score": 0.9, "brand": "x"},
    {"request_id": "a", "item_id": 2, "score": 0.8, "brand": "x"},
    {"request_id": "a", "item_id": 3, "score": 0.5, "brand": "y"},
    {"request_id": "b", "item_id": 1, "score": 0.1, "brand": "x"},
    {"request_id": "b", "item_id": 4, "score": 0.2, "brand": "y"},
]
BRANDS = Constraints.of([Distinct("brand")])


def written(folder: Path, suffix: str, rows: list[dict[str, Any]] = ROWS) -> Path:
    path = folder / f"scores{suffix}"
    table = pa.Table.from_pylist(rows)
    if suffix == ".csv":
        pa.csv.write_csv(table, path)
    elif suffix == ".parquet":
        pa.parquet.write_table(table, path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def cards(path: Path, k: int = 2, **settings: Any) -> list[Solved]:
    return list(solve_file(path, k, **settings))


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".jsonl", ".ndjson"])
def test_every_format_gives_the_same_cards(tmp_path: Path, suffix: str) -> None:
    first, second = cards(written(tmp_path, suffix), constraints=BRANDS)
    assert (first.request_id, first.cards[0].items) == ("a", (1, 3))
    assert (second.request_id, second.cards[0].items) == ("b", (1, 4))
    assert first.cards[0].value == pytest.approx(1.4)


def test_without_request_ids_the_file_is_one_request(tmp_path: Path) -> None:
    rows = [{"item_id": i, "score": i / 10} for i in range(6)]
    (only,) = cards(written(tmp_path, ".csv", rows), k=3)
    assert only.request_id is None
    assert only.cards[0].items == (3, 4, 5)


def test_a_request_may_bring_its_own_size_pairs_and_wishes(tmp_path: Path) -> None:
    items = [{"item_id": name, "score": score} for name, score in [("p", 0.9), ("q", 0.5), ("r", 0.4)]]
    lines = [
        {"request_id": 1, "items": items},
        {"request_id": 2, "items": items, "pair_scores": [["q", "r", 2.0]]},
        {"request_id": 3, "items": items, "k": 1, "exclude": ["p"]},
        {"request_id": 4, "items": items, "include": ["r"]},
    ]
    found = cards(written(tmp_path, ".jsonl", lines))
    assert [solved.cards[0].items for solved in found] == [("p", "q"), ("q", "r"), ("q",), ("p", "r")]


def test_an_infeasible_request_is_an_answer_and_the_rest_goes_on(tmp_path: Path) -> None:
    found = cards(
        written(tmp_path, ".csv"), k=2, constraints=Constraints.of([Distinct("brand")]), exclude=[4]
    )
    assert found[0].error is None
    assert found[1].error is not None
    assert found[1].error.startswith("no valid card exists")
    assert found[1].as_dict()["blocking"]


def test_the_n_best_cards_come_best_first(tmp_path: Path) -> None:
    first, _ = cards(written(tmp_path, ".csv"), n=3)
    assert [round(card.value, 6) for card in first.cards] == [1.7, 1.4, 1.3]
    assert [other["items"] for other in first.as_dict()["others"]] == [[1, 3], [2, 3]]


def test_more_requests_than_are_solved_at_once(tmp_path: Path) -> None:
    rows = [{"request_id": r, "item_id": i, "score": i + r} for r in range(1100) for i in range(3)]
    seen: list[int] = []
    found = cards(written(tmp_path, ".jsonl", rows), progress=seen.append)
    assert [solved.request_id for solved in found] == list(range(1100))
    assert {solved.cards[0].items for solved in found} == {(1, 2)}
    assert seen == sorted(seen)
    assert seen


def test_one_cell_that_is_no_score_is_blamed_not_the_first_of_its_column(tmp_path: Path) -> None:
    path = tmp_path / "scores.csv"
    path.write_text("item_id,score\nred,0.94\nsocks,n.a.\n")
    with pytest.raises(DataError, match="the score of item 'socks' is 'n.a.', not a number"):
        cards(path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "scores.jsonl: holds no candidates"),
        ("\n\n", "holds no candidates"),
        ('{"item_id": 1, "score": 1', "line 1: not JSON"),
        ("[1, 2]", "line 1: expected an object, got list"),
        ('{"score": 1}', "line 1: there is no column 'item_id'; the columns are score"),
        ('{"item_id": 1}', "no column 'score'"),
        ('{"item_id": 1, "score": "high"}', "the score of item 1 is 'high', not a number"),
        ('{"item_id": 1, "score": null}', "the score of item 1 is None"),
        ('{"item_id": 1, "score": true}', "the score of item 1 is True"),
        ('{"item_id": 1, "score": NaN}\n{"item_id": 2, "score": 1}', "line 1"),
        ('{"items": 3}', "items must be a list of objects"),
        ('{"items": [], "colour": 1}', "unknown key 'colour'"),
        (
            '{"items": [{"item_id": 1, "score": 1}], "pair_scores": [[1, 9, 1]]}',
            "pair_scores holds [1, 9, 1]",
        ),
        ('{"items": [{"item_id": 1, "score": 1}], "pair_scores": [[1, 1]]}', "pair_scores holds [1, 1]"),
        ('{"items": [{"item_id": 1, "score": 1}], "k": "4"}', "k must be a whole number, got '4'"),
        ('{"items": [{"item_id": 1, "score": 1}], "include": 1}', "include must be a list, got 1"),
        ('{"items": [{"item_id": 1, "score": 1}], "include": [[1]]}', "line 1"),
        ('{"item_id": 1, "score": 1}', "line 1"),  # k = 2 of one candidate
        ('{"item_id": 1, "score": 1}\n{"item_id": 1, "score": 2}', "line 1"),  # the same item twice
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "scores.jsonl"
    path.write_text(text)
    try:  # a request that cannot be used is an answer by itself; the others get theirs
        found = str(cards(path)[0].error)
    except (DataError, InputError) as error:
        found = str(error)
    assert said in found


def test_a_request_torn_apart_is_refused(tmp_path: Path) -> None:
    rows = [ROWS[0], ROWS[3], ROWS[1]]
    with pytest.raises(DataError, match="request 'a' appears again .* sort scores.csv by request_id"):
        list(read_requests(written(tmp_path, ".csv", rows)))


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_damaged_file_is_a_data_error(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"scores{suffix}"
    path.write_bytes(b"item_id,score\n1,2,3\n" if suffix == ".csv" else b"PAR1 not really")
    with pytest.raises(DataError, match="scores"):
        cards(path)


def test_an_unknown_suffix_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read .xlsx"):
        cards(tmp_path / "scores.xlsx")
    with pytest.raises(DataError, match="there is no such file"):
        cards(tmp_path / "scores.csv")


def test_a_rule_on_a_column_that_is_not_there_names_it(tmp_path: Path) -> None:
    with pytest.raises(InputError, match='"title"'):
        cards(written(tmp_path, ".csv"), constraints=Constraints.of([TitleDistance(0.5)]))
