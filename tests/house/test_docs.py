"""What README and docs show is run: Python as it stands on small data, rules read, command lines parsed."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import typer

import exactk
from exactk.cli import app
from exactk.data.columns import Columns
from exactk.evaluation.compare import method_names
from exactk.learning.phases import Models
from exactk.problem.rules.constraints import Constraints
from exactk_lab.bench.pages.tables import pages

ROOT = Path(__file__).resolve().parents[2]
PAGES = [page for page in pages(ROOT) if "decisions" not in page.parts and page.name != "changelog.md"]
SMALL: dict[str, Any] = {"users": 60, "items": 120, "impressions": 1500, "n": 12}


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)


def pages_with(language: str) -> list[Any]:
    return [pytest.param(page, id=str(page.relative_to(ROOT))) for page in PAGES if blocks(page, language)]


@pytest.fixture
def shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The names that pages take for granted, all small; presets and worlds of any size are small, too."""
    whole, world = exactk.Recommender, exactk.world
    tiny = exactk.preset("tiny")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(exactk, "preset", lambda name: tiny)
    monkeypatch.setattr(exactk, "world", lambda **asked: world(**{**SMALL, "seed": asked["seed"]}))
    data = world(**SMALL, path="data/world")
    shutil.copytree("data/world", "data/mine")
    train, valid, test = data.split()
    rec = whole(tiny).fit(train, valid, show=False)
    titles = ["red hat", "blue hat", "warm scarf", "tent", "old lamp", "teapot"]
    items = pd.DataFrame(
        {"item_id": [*"abcd", "sponsored-7", "out-of-stock-3"], "title": titles, "price": 10.0}
    )
    frame = items.assign(score=np.linspace(1, 0, 6), brand=list("xyzxyz"))
    log = pd.DataFrame({"uid": ["u"], "slate": [list("abcd")], "shown": [list("ab")], "click": ["a"]})
    return {
        "exactk": exactk, "train": train, "valid": valid, "test": test, "rec": rec, "recommender": rec,
        "policy": Models.of(rec.fitted).policy, "batch": train.take(slice(0, 4)).batch(rec.fitted.vocabulary),
        "frame": frame, "items": items, "users": None, "log": log, "scores": frame["score"].to_numpy(),
        "rules": exactk.TitleDistance(0.5),
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("page", pages_with("python"))
def test_the_python_of_a_page_runs(page: Path, shown: dict[str, Any]) -> None:
    for block in blocks(page, "python"):
        run(block, page.name, shown)


def run(block: str, name: str, names: dict[str, Any]) -> None:
    """Statement by statement; what stands behind `# -> ` is what the expression before it comes to."""
    lines = block.splitlines()
    for statement in ast.parse(block).body:
        promised = lines[(statement.end_lineno or 1) - 1].partition("# -> ")[2]
        if isinstance(statement, ast.Expr):
            value = eval(compile(ast.Expression(statement.value), name, "eval"), names)
            assert not promised or repr(value) == promised, ast.unparse(statement)
        else:
            assert not promised, f"{name}: only an expression can be promised: {promised}"
            exec(compile(ast.Module([statement], []), name, "exec"), names)


@pytest.mark.parametrize("page", pages_with("toml"))
def test_the_rules_of_a_page_are_rules_and_its_columns_columns(page: Path) -> None:
    for block in blocks(page, "toml"):
        described = tomllib.loads(block)
        if "roles" in described:
            assert Columns.from_dict(described).candidate.names
        else:
            assert Constraints.from_dict(described).names


def commands() -> Iterator[Any]:
    """Every line that begins with `exactk`, in a block of its own or after a prompt, and every one within the text."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        text = text.replace("\\\n", " ")  # a command that goes on in the next line
        lines = re.findall(
            r"^(?:\$ )?exactk (?!is\b)(.*?)(?: &)?$", "\n".join(re.findall(r"```.*?```", text, re.S)), re.M
        )
        lines += re.findall(r"`exactk ([^`]+)`", re.sub(r"```.*?```", "", text, flags=re.S))
        for line in lines:
            yield pytest.param(line, id=f"{page.relative_to(ROOT)}: exactk {line}"[:100])


@pytest.mark.parametrize("line", list(commands()))
def test_a_command_of_the_docs_is_one(line: str) -> None:
    """The options it names exist; what a command is given is not looked at."""
    command: Any = typer.main.get_command(app)
    words = shlex.split(line, comments=True)
    while words and getattr(command, "commands", None) is not None:
        names = words.pop(0).split("|")
        assert all(name in command.commands for name in names), f"there is no command {names}"
        command = command.commands[names[0]]
    known = {option for parameter in command.params for option in parameter.opts} | {"--help"}
    assert {word for word in words if word.startswith("-") and word != "-"} <= known


def test_the_guide_names_every_method_of_a_comparison() -> None:
    text = (ROOT / "docs" / "guide" / "compare.md").read_text(encoding="utf-8")
    table = text[text.index("## Who is in the table") : text.index("### The same budget")]
    assert set(re.findall(r"`([a-z0-9-]+)`", table)) >= set(method_names())


@pytest.mark.slow
def test_the_quickstart_runs_as_it_stands() -> None:
    """All of it but cloning and installing; `python scripts/stranger.py` runs and times those, too."""
    bin_folder = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        [sys.executable, "scripts/stranger.py", "--here", "--limit", "240"], cwd=ROOT, env=environment,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    assert '"card":["scarf-red","beanie","gloves"]' in done.stdout


@pytest.mark.parametrize("page", pages_with("json"))
def test_the_json_of_a_page_is_json(page: Path) -> None:
    for block in blocks(page, "json"):
        json.loads(block)
