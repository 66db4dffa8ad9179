"""`exactk train` says in its last line when nothing was learned; with --strict its exit status says so, too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from card_logs import write_log
from exactk.cli import app

SMALL = ["--set", "training.epochs=1", "--set", "reward.epochs=1", "--set", "policy.width=16"]


def rows(named: bool = False, plain_to_see: bool = False) -> list[dict[str, Any]]:
    """Cards whose clicks mean nothing, or hang on one item; which item was clicked is known, or not."""
    rng = np.random.default_rng(0)
    found = []
    for number in range(300):
        candidates = rng.permutation(12)[:6].tolist()
        card = candidates[:2]
        clicked = (0 in card) if plain_to_see else bool(rng.random() < 0.5)
        found.append(
            {
                "request_id": number,
                "user_id": int(rng.integers(5)),
                "candidates": candidates,
                "card": card,
                "clicked": clicked,
                "clicked_item": card[0] if clicked and named else None,
            }
        )
    return found


def train(place: Path, log: list[dict[str, Any]], *more: str) -> Result:
    write_log(place / "log", log)
    return CliRunner().invoke(app, ["train", str(place / "log"), "--out", str(place / "model"), *more])


def test_a_policy_taught_clicked_items_that_no_row_names(tmp_path: Path) -> None:
    told = train(tmp_path, rows(plain_to_see=True), "--preset", "best-ids", *SMALL, "--strict")
    last = told.stdout.strip().splitlines()[-1]
    assert last.startswith("WARNING: the loss of the policy was 0.0000")
    assert told.exit_code == 3
    assert (tmp_path / "model" / "config.json").is_file()


def test_clicks_that_mean_nothing_are_a_fault_of_the_object_and_no_error_unless_strict(
    tmp_path: Path,
) -> None:
    told = train(tmp_path, rows(), "--preset", "tiny", "--json")
    assert told.exit_code == 0
    assert "no better than by chance" in json.loads(told.stdout)["faults"][0]


def test_clicks_that_hang_on_an_item_are_learned_and_exit_zero(tmp_path: Path) -> None:
    log = rows(named=True, plain_to_see=True)
    settings = ("model=pair_value", "pair_value.epochs=30", "pair_value.learning_rate=0.05")
    chosen = [word for setting in settings for word in ("--set", setting)]
    told = train(tmp_path, log, "--preset", "tiny", *chosen, "--strict", "--json")
    assert told.exit_code == 0, told.stdout
    assert json.loads(told.stdout)["faults"] == []


@pytest.mark.parametrize("preset", ["best", "pair-value", "guided"])
def test_the_advice_for_cards_that_were_all_clicked_works(tmp_path: Path, preset: str) -> None:
    log = [{**row, "clicked": True, "clicked_item": row["card"][0]} for row in rows()]
    refused = train(tmp_path, log, "--preset", preset)
    assert "preset best-ids" in str(refused.exception)
    words = ["train", str(tmp_path / "log"), "--out", str(tmp_path / "followed"), "--preset", "best-ids"]
    followed = CliRunner().invoke(app, [*words, *SMALL, "--strict"])
    assert followed.exit_code == 0, followed.stdout


def test_a_setting_that_nothing_reads_is_named_with_the_one_that_is(tmp_path: Path) -> None:
    changed = ["--set", "training.epochs=1", "--set", "pair_value.epochs=1"]
    found = train(tmp_path, rows(plain_to_see=True), "--preset", "pair-value", *changed)
    assert found.exit_code == 0
    assert (
        "model=pair_value does not read the setting training.epochs; pair_value.epochs is read"
        in found.stderr
    )
    assert found.stderr.count("does not read") == 1
