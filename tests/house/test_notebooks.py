"""The notebooks run as they stand, show today what is in their files, and are light."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from exactk_lab.notebooks.running import FOLDER, cells, lasting, load, run, save, source

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / FOLDER).glob("*.ipynb"))
LEARNS = "Recommender("  # what is learned may differ in its last digits on another machine
LARGEST_PICTURE, LARGEST_FILE = 100_000, 200_000

every_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])


def kinds(notebook: dict[str, Any]) -> list[list[str]]:
    """What each cell shows, without what it says."""
    return [
        [output.get("name") or "+".join(sorted(output["data"])) for output in cell["outputs"]]
        for cell in cells(notebook)
    ]


def test_there_is_one_for_everything_promised() -> None:
    index = (ROOT / FOLDER / "index.md").read_text(encoding="utf-8")
    listed = index[index.index("maxdepth") : index.rindex("```")].split()[2:]
    assert sorted(listed) == [path.stem for path in NOTEBOOKS]
    assert len(NOTEBOOKS) == 6


@pytest.mark.slow
@every_notebook
def test_a_notebook_runs_and_shows_what_its_file_shows(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / path.name
    script = (
        "import sys; from pathlib import Path; from exactk_lab.notebooks.running import load, run, save\n"
        "save(run(load(Path(sys.argv[1]))), Path(sys.argv[2]))"
    )
    command = [sys.executable, "-c", script, str(path), str(copy)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    shown, today = load(path), load(copy)
    assert kinds(today) == kinds(shown)
    if LEARNS not in path.read_text(encoding="utf-8"):
        for before, now in zip(cells(shown), cells(today), strict=True):
            assert lasting(now["outputs"]) == lasting(before["outputs"]), source(before)


@every_notebook
def test_a_notebook_is_whole_and_light(path: Path) -> None:
    notebook = load(path)
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert path.stat().st_size < LARGEST_FILE
    names = [cell["id"] for cell in notebook["cells"]]
    assert len(set(names)) == len(names)
    assert source(notebook["cells"][0]).startswith("# ")
    assert [cell["execution_count"] for cell in cells(notebook)] == [
        n + 1 for n in range(len(list(cells(notebook))))
    ]
    pictures = [
        "".join(output["data"]["image/svg+xml"])
        for cell in cells(notebook)
        for output in cell["outputs"]
        if "image/svg+xml" in output.get("data", {})
    ]
    assert pictures
    assert max(map(len, pictures)) < LARGEST_PICTURE
    assert all(picture.startswith("<svg") and "href=\"http" not in picture for picture in pictures)  # fmt: skip


def test_a_cell_shows_what_jupyter_would(tmp_path: Path) -> None:
    code = [
        "x = 3\nprint('hello', x)\nx + 1",
        "x;",
        "import matplotlib.pyplot as plt\nplt.title('three')\nplt.show()",
    ]
    empty: dict[str, Any] = {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None}
    blank = {"cells": [empty | {"id": str(n), "source": [text]} for n, text in enumerate(code)]}
    before = Path.cwd()
    save(run(blank), tmp_path / "a.ipynb")
    assert Path.cwd() == before
    first, silent, drawn = (cell["outputs"] for cell in cells(load(tmp_path / "a.ipynb")))
    assert [first[0]["text"], first[1]["data"]["text/plain"]] == [["hello 3\n"], ["4"]]
    assert silent == []
    assert drawn[0]["metadata"] == {"image/svg+xml": {"alt": "three"}}
    again = json.dumps(run(blank))
    assert json.loads(again) == load(tmp_path / "a.ipynb"), "the same picture every time"


def test_passing_figures_are_no_difference() -> None:
    def printed(text: str) -> list[dict[str, Any]]:
        return [{"name": "stdout", "output_type": "stream", "text": [text]}]

    assert lasting(printed("a card in  0.83 ms")) == lasting(printed("a card in 12.1 ms"))
    assert lasting(printed("worth 0.83")) != lasting(printed("worth 0.84"))
