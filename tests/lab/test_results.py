"""What the README claims is what the committed results say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from exactk_lab.bench.tables import BLOCK, exact_table, pages, renewed

ROOT = Path(__file__).resolve().parents[2]
RESULTS = sorted((ROOT / "results").glob("*.json"))


def test_the_readme_shows_the_measured_table() -> None:
    document = json.loads((ROOT / "results" / "bench-exact.json").read_text())
    assert exact_table(document) in (ROOT / "README.md").read_text()


@pytest.mark.parametrize("page", pages(ROOT), ids=lambda page: str(page.relative_to(ROOT)))
def test_the_tables_of_a_page_are_those_of_the_results(page: Path) -> None:
    text = page.read_text()
    assert renewed(text, ROOT) == text, "python -m exactk_lab.bench.tables makes them anew"


def test_every_comparison_is_shown_in_full() -> None:
    shown = {
        (match[2], match[3])
        for match in BLOCK.finditer((ROOT / "docs" / "benchmarks" / "compare.md").read_text())
    }
    kept = {f"results/{path.name}" for path in RESULTS if path.name.startswith("compare-")}
    assert {name for name, table in shown if table == "full_comparison"} == kept


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.name)
def test_every_result_names_its_command_machine_and_commit(path: Path) -> None:
    document: dict[str, Any] = json.loads(path.read_text())
    assert document["command"].startswith(("exactk ", "python -m exactk"))
    assert document["rows"]
    assert document["machine"]["commit"]
    assert not document["quick"]
    for goal in document.get("goals", ()):
        assert set(goal) == {"name", "measured", "goal", "met"}
