"""The audit of dependencies: a known vulnerability fails the check, a silent database is not taken for a clean one."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "audit.py"


@pytest.fixture(scope="module")
def audit() -> Any:
    spec = importlib.util.spec_from_file_location("audit", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_hole_fails_and_names_the_version_that_mends_it(audit: Any) -> None:
    hole = {"id": "PYSEC-1", "fix_versions": ["1.2"]}
    told = [
        {"name": "fine", "version": "3", "vulns": []},
        {"name": "holed", "version": "1.1", "vulns": [hole]},
    ]
    assert audit.verdict(told) == (1, "audit: 1 known vulnerability\n  holed 1.1: PYSEC-1, fixed in 1.2")


@pytest.mark.parametrize("told", [None, [], [{"name": "a", "skip_reason": "not found"}]])
def test_when_nothing_could_be_looked_up_it_says_so_and_goes_on(audit: Any, told: Any) -> None:
    status, words = audit.verdict(told)
    assert status == 0
    assert "NOT DONE" in words


def test_packages_that_were_skipped_are_named(audit: Any) -> None:
    told = [{"name": "fine", "version": "3", "vulns": []}, {"name": "odd", "skip_reason": "not found"}]
    assert audit.verdict(told) == (
        0,
        "audit: no known vulnerability in 1 package; 1 could not be looked up: odd",
    )
