"""What a code host reads: workflows that call targets there are, on the Pythons we promise; citation and security."""

from __future__ import annotations

import re
import runpy
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import exactk

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def jobs() -> Iterator[dict[str, Any]]:
    """Every job of every workflow."""
    for path in WORKFLOWS:
        yield from yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"].values()


def commands(job: dict[str, Any]) -> list[str]:
    return [step["run"] for step in job["steps"] if "run" in step]


def called(command: str) -> list[str]:
    """The targets that a line of `make` asks for."""
    return [word for word in command.split()[1:] if "=" not in word] if command.startswith("make ") else []


def pythons(job: dict[str, Any]) -> list[str]:
    return job.get("strategy", {}).get("matrix", {}).get("python", [])  # type: ignore[no-any-return]


def promised() -> list[str]:
    """Versions of Python that the package says it is for."""
    found = (
        re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", line) for line in PROJECT["classifiers"]
    )
    return [match[1] for match in found if match]


def test_workflows_do_nothing_but_call_targets_of_the_makefile() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
    lines = [line for job in jobs() for line in commands(job)]
    assert lines
    assert [line for line in lines if not called(line)] == []
    assert {target for line in lines for target in called(line)} <= targets


def test_hosted_runs_ask_for_all_that_decides_here() -> None:
    here = re.findall(r"^make (\w+)$", (ROOT / ".ci" / "run").read_text(encoding="utf-8"), re.M)
    hosted = {target for job in jobs() for line in commands(job) for target in called(line)}
    assert here
    assert {*here, "docs", "wheels"} <= hosted


@pytest.mark.parametrize("target", ["test", "wheels"])
def test_every_promised_python_is_tested_on_linux(target: str) -> None:
    (job,) = [job for job in jobs() if any(target in called(line) for line in commands(job))]
    assert pythons(job) == promised()
    assert job["runs-on"].startswith("ubuntu")
    (setup,) = [step for step in job["steps"] if step.get("uses", "").startswith("actions/setup-python@")]
    assert setup["with"]["python-version"] == "${{ matrix.python }}"


def test_one_job_runs_on_macos() -> None:
    assert [job["name"] for job in jobs() if str(job["runs-on"]).startswith("macos")] == [
        "quick test on macOS"
    ]


def test_hosted_runs_may_read_alone_and_end() -> None:
    for path in WORKFLOWS:
        workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
        assert workflow["permissions"] == {"contents": "read"}
        assert set(workflow[True]) == {"push", "pull_request"}  # YAML reads `on` as true
    assert all(job["timeout-minutes"] <= 90 for job in jobs())


def test_the_citation_names_this_version_and_the_paper() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == exactk.__version__
    assert citation["license"] == PROJECT["license"]
    assert {"cff-version", "message", "title", "authors", "type"} <= set(citation)
    (paper,) = citation["references"]
    assert paper["doi"] in PROJECT["urls"]["Paper"]


def test_security_says_which_version_is_supported() -> None:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    minor = exactk.__version__.rpartition(".")[0]
    assert f"| {minor}.x | yes |" in text
    for link in re.findall(r"\]\(([^)]+)\)", text):
        assert (ROOT / link).exists(), link


def test_the_readme_of_an_index_has_no_picture_and_no_link_into_the_repository() -> None:
    hook = runpy.run_path(str(ROOT / "hatch_build.py"))["ReadmeHook"]
    metadata: dict[str, Any] = {}
    hook(str(ROOT), {}).update(metadata)
    text = metadata["readme"]["text"]
    assert "exactk.solve(" in text
    assert "[all rules]" not in text
    assert "all rules" in text
    assert re.findall(r"\]\((?!https?:)|<[a-z!]", text) == []
