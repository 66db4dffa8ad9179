"""Every promise of the service's guide names tests that hold it, and these are there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_each_promise_is_held_by_tests_that_exist() -> None:
    page = (ROOT / "docs" / "guide" / "serve.md").read_text(encoding="utf-8")
    table = page.partition("## What is promised")[2].partition("\n## ")[0]
    promises = [line for line in table.splitlines() if line.startswith("| ")][1:]
    assert len(promises) > 10
    written = {
        name
        for file in (ROOT / "tests" / "serving").glob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", file.read_text(encoding="utf-8"), re.MULTILINE)
    }
    for promise in promises:
        held_by = re.findall(r"`(test_\w+)`", promise)
        assert held_by, promise
        assert set(held_by) <= written, promise
