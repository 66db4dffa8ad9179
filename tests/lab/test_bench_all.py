"""`exactk bench all`: one object of all reports, each kept by itself, and what cannot run here named."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from exactk_lab.bench.report import Goal, Report
from exactk_lab.commands import bench


def counting(quick: bool = False) -> Report:
    return Report("counting", [{"to": 10}], [Goal("counted", 10.0, 5.0, "least")], quick=quick)


def test_all_is_one_object_of_what_ran_and_what_did_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    module = ModuleType("exactk_lab.bench.counting")
    module.run = counting  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "exactk_lab.bench.counting", module)
    monkeypatch.setattr(bench, "BENCHMARKS", {"counting": "to ten", "nowhere": "not installed"})
    bench._all(quick=True, published=None, as_json=True, out=tmp_path)
    told = json.loads(capsys.readouterr().out)
    assert [report["name"] for report in told["reports"]] == ["counting"]
    assert told["reports"][0]["command"] == "exactk bench counting"
    assert list(told["left_out"]) == ["nowhere"]
    assert json.loads((tmp_path / "bench-counting.json").read_text()) == told["reports"][0]
