"""The table of equations names functions that exist and settings that are settings."""

from __future__ import annotations

import importlib
import re
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest

from exactk.settings.config import Config

TABLE = (Path(__file__).resolve().parents[2] / "docs" / "understand" / "paper.md").read_text(encoding="utf-8")
NAMES = sorted(set(re.findall(r"`([a-z_]+(?:\.[A-Za-z_]+)+)`", TABLE)))
SECTIONS = {f.name: getattr(Config(), f.name) for f in fields(Config)}


@pytest.mark.parametrize("name", [n for n in NAMES if n.split(".")[0] not in {*SECTIONS, "metrics", "tests"}])
def test_every_name_in_the_table_exists(name: str) -> None:
    parts = ["exactk_lab" if name.startswith("reproduce.") else "exactk", *name.split(".")]
    found: object = None
    for cut in range(len(parts), 1, -1):
        try:
            found = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            found = getattr(found, part)
        break
    assert found is not None, name


@pytest.mark.parametrize("name", [n for n in NAMES if n.split(".")[0] in SECTIONS])
def test_every_setting_in_the_table_exists(name: str) -> None:
    section, setting = name.split(".")
    group = SECTIONS[section]
    assert is_dataclass(group)
    assert setting in {f.name for f in fields(group)}


def test_all_equations_are_in_the_table() -> None:
    assert re.findall(r"^\| (\d+) \| [^|]+ \| `", TABLE.split("## Algorithms")[0], re.M) == [
        str(n) for n in range(1, 24)
    ]
