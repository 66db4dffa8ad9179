"""What README and docs claim is what the committed results say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from exactk_lab.bench.pages.tables import BLOCK, pages, renewed

ROOT = Path(__file__).resolve().parents[2]
RESULTS = sorted((ROOT / "results").glob("*.json"))


@pytest.mark.parametrize("page", pages(ROOT), ids=lambda page: str(page.relative_to(ROOT)))
def test_the_tables_of_a_page_are_those_of_the_results(page: Path) -> None:
    text = page.read_text()
    assert renewed(text, ROOT) == text, "python -m exactk_lab.bench.pages.tables makes them anew"


@pytest.mark.parametrize("page", pages(ROOT), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_table_of_a_page_holds_something_and_swallows_no_other(page: Path) -> None:
    text = page.read_text()
    found = list(BLOCK.finditer(text))
    assert len(found) == text.count("<!-- made from ")
    for match in found:
        assert match[4].rstrip().splitlines()[-1].replace("|", "").strip("-: "), match[3]


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
