"""Every command of the command line is started, in one small story; none can be added without a test that starts it."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from exactk.cli import app
from exactk.serving.log import Impression, ImpressionLog
from exactk_lab.bench.report import Report

RULES = '[[rule]]\ntype = "distinct"\nfield = "category"\n'
SCORES = "item_id,score,category\na,0.9,x\nb,0.8,x\nc,0.7,y\nd,0.1,z\n"


AUTHORS = {
    "item_ids.txt": "1\n2\n3\n4\n",
    "user_ids.txt": "7\n",
    "rerank_data_train.txt": "7\t3,1\t1,2,3,4\n",
    "rerank_data_test.txt": "7\t2,1\t1,2,3\n",
    "dis_data_train.txt": "7\t3,1\t1\n7\t2,4\t0\n",
    "dis_data_test.txt": "7\t2,1\t1\n7\t1,3\t0\n",
}
MOVIELENS = {
    "u.data": "".join(f"{user}\t{item}\t{5 - item % 2}\t1\n" for user in range(1, 9) for item in range(1, 9)),
    "u.genre": "unknown|0\n",
    "u.item": "".join(f"{item}|Film {item}|||url|1\n" for item in range(1, 9)),
    "u.user": "".join(f"{user}|30|M|other|1\n" for user in range(1, 9)),
}


def commands() -> set[str]:
    """The name of every command, groups included."""

    def below(command: Any, name: str) -> Iterator[str]:
        inner: Mapping[str, Any] | None = getattr(command, "commands", None)
        if inner is None:
            yield name
        for each, sub in (inner or {}).items():
            yield from below(sub, f"{name} {each}".strip())

    return set(below(typer.main.get_command(app), ""))


def test_every_command_is_started_below() -> None:
    started_here = re.findall(r'started\(\s*f?"([a-z ]+)', Path(__file__).read_text(encoding="utf-8"))
    lines = {line.strip() for line in started_here}
    assert {
        name for name in commands() if not any(f"{line} ".startswith(f"{name} ") for line in lines)
    } == set()


def started(line: str) -> str:
    """What a command prints; an exit status other than 0 fails."""
    done = CliRunner().invoke(app, shlex.split(line), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small world and a model of it, made by the commands themselves."""
    folder = tmp_path_factory.mktemp("cli")
    started(f"data build world --out {folder}/world --users 40 --items 80 --impressions 900 --n 10")
    started(f"train {folder}/world --out {folder}/model --preset tiny --set model=policy")
    return folder


def test_solve_answers_from_a_file_of_scores(tmp_path: Path) -> None:
    (tmp_path / "scores.csv").write_text(SCORES)
    (tmp_path / "rules.toml").write_text(RULES)
    told = json.loads(started(f"solve {tmp_path}/scores.csv --k 2 --rules {tmp_path}/rules.toml --json"))
    assert told["cards"][0]["items"] == ["a", "c"]


def test_demo_shows_the_embedded_requests() -> None:
    assert "exactk" in started("demo --only-requests")


def test_settings_shows_what_a_preset_changes() -> None:
    rows = json.loads(started("settings --preset tiny --json"))["settings"]
    changed = {row["setting"]: (row["default"], row["changed"]) for row in rows}
    assert changed["training.epochs"] == (10, 2)
    assert "service.budget_ms = 100.0" in started("settings")


def test_key_prints_a_key_and_its_hash() -> None:
    key, digest = started("key").split()
    assert key.startswith("ek_")
    assert len(digest.rpartition(":")[2]) == 64


def test_a_trained_model_is_evaluated_and_recommends(place: Path, tmp_path: Path) -> None:
    figures = json.loads(started(f"evaluate {place}/model {place}/world --json"))
    assert figures["valid"] == 1.0
    asked = tmp_path / "asked.jsonl"
    asked.write_text(json.dumps({"user_id": 1, "candidates": [1, 2, 3, 5, 8, 13]}) + "\n")
    (card,) = json.loads(started(f"recommend {place}/model --requests {asked} --json"))["cards"]
    assert len(card["items"]) == 4


def test_score_writes_a_card_for_every_request(place: Path, tmp_path: Path) -> None:
    told = json.loads(started(f"score {place}/model {place}/world --out {tmp_path}/cards --json"))
    assert told["requests"] == 900


def test_export_writes_one_file(place: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript", reason="the extra 'onnx' brings it")
    started(f"export {place}/model --out {tmp_path}/cards.onnx")
    assert (tmp_path / "cards.onnx").stat().st_size > 1000


def test_compare_prints_a_verdict_and_knows_no_goals(place: Path, tmp_path: Path) -> None:
    told = started(
        f"compare {place}/world --method random --method popularity --out {tmp_path}/out "
        f"--keep {tmp_path}/kept.json --trials 1 --jobs 1"
    )
    assert "Highest true value" in told
    kept = json.loads((tmp_path / "kept.json").read_text())
    assert kept["machine"]["cores"]
    assert "goals" not in kept


def test_lists_shown_whole_are_built_for_cards_of_the_size_asked(tmp_path: Path) -> None:
    rows = ["request_id,item_id,price,clicked"]
    rows += [f"r{r},{i},{r + i},{int(i == r % 6)}" for r in range(20) for i in range(6)]
    (tmp_path / "log.csv").write_text("\n".join(rows) + "\n")
    built = json.loads(
        started(f"data build frame --impressions {tmp_path}/log.csv -k 5 --out {tmp_path}/data --json")
    )
    assert "cards of 5" in built["cards"]
    assert built["used"]["candidate numbers"] == ["price"]


def test_a_drafted_columns_file_builds_the_log_it_was_drawn_from(place: Path, tmp_path: Path) -> None:
    log, items = f"{place}/world/impressions.parquet", f"--items {place}/world/items.parquet"
    (tmp_path / "columns.toml").write_text(started(f"data columns {log} {items}"))
    options = f"{items} --columns {tmp_path}/columns.toml --out {tmp_path}/data --json"
    built = json.loads(started(f"data build frame --impressions {log} {options}"))
    assert (built["rows_dropped"], built["faults"]) == (0, [])


def test_stats_and_audit_look_at_a_folder(place: Path) -> None:
    assert json.loads(started(f"data stats {place}/world --json"))["samples"] == 900
    assert json.loads(started(f"data audit {place}/world --json"))["verdict"]


def written(folder: Path, files: Mapping[str, str]) -> Path:
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


def test_published_and_movielens_are_read_from_a_folder(tmp_path: Path) -> None:
    authors, stars = written(tmp_path / "authors", AUTHORS), written(tmp_path / "ml", MOVIELENS)
    started(f"data build published --source {authors} --out {tmp_path}/log")
    started(f"data build movielens --source {stars} --out {tmp_path}/stars --k 2 --n 4")
    for built in ("log", "stars"):
        assert json.loads(started(f"data stats {tmp_path}/{built} --json"))["samples"] > 0


def test_frame_reads_a_log_of_your_own(tmp_path: Path) -> None:
    row = {
        "uid": "u",
        "candidates": ["a", "b", "c"],
        "card": ["a", "b"],
        "clicked": True,
        "clicked_item": "b",
    }
    (tmp_path / "log.jsonl").write_text(json.dumps(row) + "\n")
    started(f"data build frame --impressions {tmp_path}/log.jsonl --map user_id=uid --out {tmp_path}/data")
    assert json.loads(started(f"data stats {tmp_path}/data --json"))["samples"] == 1


def test_log_turns_what_was_served_into_data(tmp_path: Path) -> None:
    log = ImpressionLog(tmp_path / "log", 1 << 20, 3600.0, lambda rows: None)
    log.shown(Impression("r1", "u1", list("abcd"), ["a", "b"], 0.25, 0.5, "champion", "v1"))
    log.answered("r1", True, "b").result(5)
    log.close()
    started(f"data build log {tmp_path}/log --out {tmp_path}/data")
    assert json.loads(started(f"data stats {tmp_path}/data --json"))["samples"] == 1


def test_serve_hands_its_settings_to_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(
        "exactk.serving.run.serve", lambda *given, **settings: asked.append((given, settings))
    )
    started("serve --port 9000 --explore 0.1")
    assert asked == [((None, "127.0.0.1", 9000, 1, None), {"dataset": None, "explore": 0.1})]


def test_bench_prints_a_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "exactk_lab.bench.trust.run", lambda quick: Report("trust", [{"rows": 1}], quick=quick)
    )
    assert json.loads(started("bench trust --quick --json"))["quick"] is True


def test_reproduce_prints_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"beam": 1}
    monkeypatch.setattr("exactk_lab.reproduce.beam.run", lambda place, options: Report("beam", [row]))
    assert json.loads(started("reproduce beam --json"))["rows"] == [row]
