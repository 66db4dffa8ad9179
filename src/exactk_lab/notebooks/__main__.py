"""`python -m exactk_lab.notebooks [NAME...]` runs the notebooks of docs/notebooks and keeps what they show.

Each is run in a process of its own; without names, all of them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from exactk_lab.notebooks.running import FOLDER, load, run, save

ONE_THREAD = {
    "OMP_NUM_THREADS": "1"
}  # threads that wait for each other on a busy machine take ten times as long


def main(names: list[str]) -> int:
    """Run one here, or several each in a process of its own."""
    paths = [FOLDER / f"{name}.ipynb" for name in names] or sorted(FOLDER.glob("*.ipynb"))
    if len(paths) == 1:
        save(run(load(paths[0])), paths[0])
        return 0
    for path in paths:
        started = time.monotonic()
        command = [sys.executable, "-m", "exactk_lab.notebooks", path.stem]
        done = subprocess.run(command, check=False, env=os.environ | ONE_THREAD)
        if done.returncode:
            return done.returncode
        size = Path(path).stat().st_size
        sys.stdout.write(f"{path}: {time.monotonic() - started:.0f} s, {size / 1000:.0f} kB\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
