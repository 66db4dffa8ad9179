"""Looks up known vulnerabilities of what we install, for `make check`: one fails it; without the database it says so.

Knows only pip-audit's JSON. pip-audit itself calls it a success when it could not look anything up.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

SECONDS = 120
ROOT = Path(__file__).resolve().parent.parent


def audited(pins: Path) -> list[dict[str, Any]] | None:
    """What pip-audit says of each pinned package; None where it could not be run to its end."""
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "audit.json"
        command = [
            sys.executable,
            "-m",
            "pip_audit",
            "--requirement",
            str(pins),
            "--no-deps",
            "--disable-pip",
        ]
        try:
            subprocess.run(
                [*command, "--progress-spinner", "off", "--format", "json", "--output", str(out)],
                capture_output=True, timeout=SECONDS, check=False,
            )  # fmt: skip
            packages: list[dict[str, Any]] = json.loads(out.read_text())["dependencies"]
        except (OSError, ValueError, subprocess.TimeoutExpired):
            return None
        return packages


def verdict(packages: list[dict[str, Any]] | None) -> tuple[int, str]:
    """The exit status and what to say.

    >>> verdict([{"name": "a", "version": "1", "vulns": []}, {"name": "b", "skip_reason": "?"}])
    (0, 'audit: no known vulnerability in 1 package; 1 could not be looked up: b')
    """
    if not packages or all("skip_reason" in each for each in packages):
        return (
            0,
            "audit: NOT DONE, the vulnerability database cannot be reached from here; run it where it can",
        )
    holes = [(each, hole) for each in packages for hole in each.get("vulns", [])]
    if holes:
        lines = [
            f"  {each['name']} {each['version']}: {hole['id']}, "
            f"fixed in {', '.join(hole['fix_versions']) or 'nothing yet'}"
            for each, hole in holes
        ]
        return 1, "\n".join(
            [f"audit: {len(holes)} known vulnerabilit{'y' if len(holes) == 1 else 'ies'}", *lines]
        )
    skipped = [each["name"] for each in packages if "skip_reason" in each]
    num = len(packages) - len(skipped)
    missing = f"; {len(skipped)} could not be looked up: {', '.join(skipped)}" if skipped else ""
    return 0, f"audit: no known vulnerability in {num} package{'' if num == 1 else 's'}{missing}"


def main() -> None:
    """Exit 0, or 1 where a hole is known."""
    status, words = verdict(audited(ROOT / "constraints.txt"))
    sys.stdout.write(words + "\n")
    raise SystemExit(status)


if __name__ == "__main__":
    main()
