"""`exactk solve` beside the places it reads and writes."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from exactk.cli import app, main
from exactk.errors import InputError

ROWS = "request_id,item_id,brand,score\n1,042,x,3\n1,7,y,2\n1,8,x,1\n2,9,,1\n"


@pytest.fixture
def scores(tmp_path: Path) -> Path:
    file = tmp_path / "scores.csv"
    file.write_text(ROWS)
    return file


def run(*arguments: Any) -> Any:
    return CliRunner().invoke(app, ["solve", *map(str, arguments)], catch_exceptions=True)


def test_cards_are_kept_as_json_lines_or_as_rows_by_the_name_of_the_file(scores: Path) -> None:
    lines, table = scores.with_name("cards.jsonl"), scores.with_name("cards.csv")
    assert run(scores, "-k", 2, "--out", lines).exit_code == 2  # the second request has one candidate only
    assert run(scores, "-k", 2, "--out", table).exit_code == 2
    first, second = [json.loads(line) for line in lines.read_text().splitlines()]
    assert (first["items"], second["request_id"]) == (["042", "7"], 2)
    with table.open() as text:
        rows = list(csv.DictReader(text))
    assert [(row["request_id"], row["card"], row["item_id"], row["position"]) for row in rows] == [
        ("1", "1", "042", "0"),
        ("1", "1", "7", "1"),
        ("2", "", "", ""),
    ]
    assert "a card of 2 cannot be made of 1 candidates" in rows[2]["error"]
    assert {file.name for file in scores.parent.iterdir()} == {"scores.csv", "cards.jsonl", "cards.csv"}


def test_the_file_that_is_read_is_never_written(scores: Path) -> None:
    link = scores.with_name("link.csv")
    link.symlink_to(scores)
    for out in (scores, link):
        error = run(scores, "-k", 1, "--out", out).exception
        assert isinstance(error, InputError)
        assert "is the file that is read" in str(error)
    assert scores.read_text() == ROWS


def test_a_link_is_followed_and_a_device_is_written_to(scores: Path) -> None:
    link = scores.with_name("link.jsonl")
    link.symlink_to("real.jsonl")
    assert run(scores, "-k", 1, "--out", link).exit_code == 0
    assert link.is_symlink()
    assert len(scores.with_name("real.jsonl").read_text().splitlines()) == 2
    assert run(scores, "-k", 1, "--out", "/dev/null").exit_code == 0
    assert Path("/dev/null").is_char_device()


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("", "is a folder"),
        ("none/cards.csv", "make it first"),
        ("cards.xlsx", "as .jsonl or .csv, not .xlsx"),
    ],
)
def test_a_place_that_cannot_be_written_is_refused_by_name(scores: Path, name: str, told: str) -> None:
    error = run(scores, "-k", 1, "--out", scores.parent / name).exception
    assert isinstance(error, InputError)
    assert told in str(error)


def test_nothing_is_left_behind_by_a_run_that_failed(scores: Path) -> None:
    scores.write_text(ROWS + "1,1,x,5\n")
    assert run(scores, "-k", 1, "--out", scores.with_name("cards.jsonl")).exception is not None
    assert [file.name for file in scores.parent.iterdir()] == ["scores.csv"]


def test_ids_are_numbers_only_where_all_are_written_as_such(scores: Path) -> None:
    def items(*more: str) -> Any:
        return json.loads(run(scores, "-k", 1, "--json", *more).stdout)["cards"][0]["items"]

    assert items() == ["042"]
    scores.write_text(ROWS.replace("042", "42"))
    assert items() == [42]
    assert items("--text-ids") == ["42"]
    scores.write_text(ROWS.replace("042", "9" * 19))
    assert items() == ["9" * 19]


def test_advice_is_given_in_the_words_of_the_command_line(
    scores: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scores.write_text("item_id,score\n" + "11,1\n" * 300_000 + "042,1\n")
    monkeypatch.setattr("sys.argv", ["exactk", "solve", str(scores), "-k", "1"])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2
    said = capsys.readouterr().err
    assert "read ids as text (--text-ids)" in said
    assert "text_ids=True" not in said


@pytest.mark.parametrize("option", ["include", "exclude"])
def test_an_item_that_no_request_offers_is_not_passed_over(scores: Path, option: str) -> None:
    done = run(scores, "-k", 1, f"--{option}", "8", f"--{option}", "nobody")
    assert isinstance(done.exception, InputError)
    assert str(done.exception).endswith(f"no request offers the {option}d item 'nobody'")
    assert run(scores, "-k", 1, f"--{option}", "8").exit_code == 0


def test_a_folder_and_an_empty_file_are_called_what_they_are(scores: Path) -> None:
    empty = scores.with_name("empty.csv")
    empty.touch()
    assert str(run(empty, "-k", 1).exception) == f"{empty}: the file is empty"
    assert str(run(scores.parent, "-k", 1).exception) == f"{scores.parent} is a folder; name a file in it"


def test_a_card_of_nothing_is_refused_once(scores: Path) -> None:
    done = run(scores, "-k", 0)
    assert done.exit_code == 2
    assert "equal to 1" in done.output


def test_brackets_and_colons_in_ids_are_letters_like_others(tmp_path: Path) -> None:
    file = tmp_path / "brackets.csv"
    file.write_text("item_id,score\n[/b],3\n[red]x,2\n:smile:,1\n")
    done = run(file, "-k", 3)
    assert done.exit_code == 0
    assert "[/b], [red]x, :smile:" in done.stdout


def test_a_table_that_goes_to_a_file_is_as_wide_as_it_needs_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    file, ids = tmp_path / "wide.csv", [f"an-item-with-a-long-name-{n}" for n in range(8)]
    file.write_text("item_id,score\n" + "".join(f"{name},1\n" for name in ids))
    assert ", ".join(ids) in run(file, "-k", 8).stdout


def test_a_card_says_what_it_breaks_and_a_bad_request_is_not_called_infeasible(scores: Path) -> None:
    rules = scores.with_name("rules.toml")
    rules.write_text('[[rule]]\ntype = "prefer"\nworth = 0.5\nrule = {type = "distinct", field = "brand"}\n')
    lines = " ".join(run(scores, "-k", 3, "--rules", rules).stdout.split())
    assert "optimal, breaks rather distinct brand 1 x (-0.5)" in lines
    assert "a card of 3 cannot be made of 1 candidates" in lines
    assert "- no card" in lines
    assert "infeasible" not in lines
