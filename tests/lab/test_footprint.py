"""The footprint is counted from what is installed, not guessed."""

from __future__ import annotations

import os

from exactk_lab.bench import footprint


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
    assert footprint.resident(os.getpid()) > 10
