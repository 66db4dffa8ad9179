"""The house itself: public names, the lazy front door, the map, no pickle."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

import pytest

import exactk

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))


def test_every_public_name_resolves_and_is_listed_once() -> None:
    assert len(set(exactk.__all__)) == len(exactk.__all__)
    assert set(exactk.__all__) - {"__version__"} == set(exactk._HOMES)
    for name in exactk.__all__:
        assert getattr(exactk, name) is not None


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        exactk.nonsense  # noqa: B018


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["solve", "--help"], ["bench", "--help"]])
def test_help_needs_no_heavy_import(arguments: list[str]) -> None:
    """`exactk --help` must answer within half a second: what costs seconds is torch, numba, pyarrow."""
    script = (
        "import sys, json, exactk.cli as cli\n"
        "try: cli.app(sys.argv[1:], prog_name='exactk')\n"
        "except SystemExit: pass\n"
        "sys.stderr.write(json.dumps(sorted({m.split('.')[0] for m in sys.modules})))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=True
    )
    loaded = set(json.loads(done.stderr))
    assert done.stdout
    assert not loaded & {"torch", "numba", "numpy", "pyarrow", "pandas", "polars", "scipy", "matplotlib"}


def test_no_module_uses_pickle() -> None:
    offenders = [
        path.name
        for path in SOURCES
        if re.search(r"^\s*(import|from) (pickle|dill|joblib)|torch\.(load|save)\(", path.read_text(), re.M)
    ]
    assert offenders == []


def test_every_module_says_what_lives_there() -> None:
    missing = [str(path) for path in SOURCES if not path.read_text().lstrip().startswith('"""')]
    assert missing == []


def rooms() -> list[str]:
    """The rooms of the import contract, the lowest first."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers: list[str] = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    return layers[::-1]


def test_the_map_people_read_is_the_one_that_is_checked() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    shown = re.findall(
        r"`([a-z_]+)`", text[text.index("holds this list to it") : text.index("Beside the package")]
    )
    assert shown == rooms()


def test_no_shape_is_annotated_without_quotes() -> None:
    """An unquoted dimension is a name nobody defined: no shape is checked by it."""
    unquoted = re.compile(r"\b(?:Float|Int|UInt|Bool)\d*\[[\w.]+, [A-Z]\w*\]")
    assert [str(path) for path in SOURCES if unquoted.search(path.read_text())] == []


def test_every_class_name_has_one_definition() -> None:
    """A name of ours is a name of everybody's; where numpy mirrors torch, the names say which is which."""
    names = Counter(
        node.name
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    )
    assert {name: times for name, times in names.items() if times > 1} == {}
