"""Walk a stranger's path: run every shell block of docs/quickstart.md in order, in a new folder, and time each.

`python scripts/stranger.py` clones this checkout, runs the demo, solves a CSV, learns from a log, serves a card.
`--here` leaves out cloning and installing and uses the `exactk` on the path. Needs bash, git, curl, nothing of ours.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "quickstart.md"
MARK = "=====exactk-stranger====="


def blocks(page: Path) -> list[tuple[str, str]]:
    """(the heading it stands under, the commands) of every shell block."""
    found, heading = [], ""
    for part in re.findall(r"^#+ [^\n]*$|^```bash\n.*?^```", page.read_text(encoding="utf-8"), re.M | re.S):
        if part.startswith("#"):
            heading = part.lstrip("# ")
        else:
            found.append((heading, part.removeprefix("```bash\n").removesuffix("```")))
    return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> int:
    """Run the blocks in one shell, as a person would, and print how long each took."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--here", action="store_true", help="use the exactk on the path: no clone, no install")
    asked.add_argument("--limit", type=float, default=1800, help="seconds for all of it")
    given = asked.parse_args()
    chosen = [block for block in blocks(PAGE) if not (given.here and block[0] == "Install")]
    port = str(free_port())
    script = "set -eEmo pipefail\n" + "".join(
        f"echo; echo '{MARK}'\n{commands.replace('8000', port)}\n" for _, commands in chosen
    )
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "EXACTK": str(ROOT)}
        shell = subprocess.Popen(
            ["bash", "-c", script + f"\necho; echo '{MARK}'\n"], cwd=folder, env=environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        times: list[float] = []
        try:
            assert shell.stdout is not None
            for line in shell.stdout:
                if line.strip() == MARK:
                    times.append(time.monotonic())
                else:
                    sys.stdout.write(line)
                if times and time.monotonic() - times[0] > given.limit:
                    sys.stdout.write(f"gave up after {given.limit:g} s\n")
                    return 1
            status = shell.wait()
        finally:
            end(shell)
    sys.stdout.write("\n")
    for (heading, commands), start, stop in zip(chosen, times, times[1:], strict=False):
        first = commands.strip().splitlines()[0]
        sys.stdout.write(f"{stop - start:7.1f} s  {heading}: {first[:60]}\n")
    if status == 0:
        sys.stdout.write(f"{times[-1] - times[0]:7.1f} s  in all\n")
    else:
        heading, commands = chosen[len(times) - 1]
        sys.stdout.write(f"failed with status {status} under '{heading}':\n{commands}")
    return status


def end(shell: subprocess.Popen[str]) -> None:
    """End what the shell started, itself included."""
    try:
        os.killpg(shell.pid, signal.SIGTERM)
    except ProcessLookupError:
        return


if __name__ == "__main__":
    sys.exit(main())
