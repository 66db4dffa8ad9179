"""The footprint is counted from what is installed, not guessed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from exactk_lab.bench.service import footprint


def test_an_install_counts_every_package_it_leads_to_once() -> None:
    found = footprint.closure(["rich>=13", "markdown-it-py"])
    assert {"rich", "pygments", "markdown-it-py", "mdurl"} <= found
    assert "numpy" not in found
    assert footprint.size_of("rich") > 500_000


def test_an_extra_adds_to_the_install() -> None:
    bare, served = (footprint.installed(footprint.HERE, extra) for extra in ("", "serve"))
    assert served["packages"] > bare["packages"]
    assert served["megabytes"] >= bare["megabytes"]


def test_a_process_is_timed_and_asked_for_torch() -> None:
    row = footprint.started("nothing", "pass", footprint.HERE, repeats=1)
    assert row["torch"] is False
    assert 0 < row["seconds"] < 60


def test_memory_is_that_of_the_worker_not_of_the_process_that_started_it() -> None:
    row = footprint.served(footprint.HERE, "fixture", footprint.MODEL)
    assert row["worker_megabytes"] > 2 * row["supervisor_megabytes"] > 0
    assert 0 < row["worker_own_megabytes"] < row["worker_megabytes"]
    held = footprint.memory(os.getpid())
    assert 10 < held.own < held.resident


def test_what_an_install_does_not_bring_is_hidden_from_what_is_measured(tmp_path: Path) -> None:
    environment = footprint.environment(footprint.HERE, tmp_path)
    for names, shown in ((["pandas", "torch"], False), (["numpy", "fastapi", "exactk"], True)):
        code = f"import importlib\nfor name in {names!r}:\n    importlib.import_module(name)"
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True)
        assert (done.returncode == 0) is shown, done.stderr
