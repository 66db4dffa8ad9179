"""`python -m exactk_lab.bench MODULE`: a benchmark as JSON where the command line's packages are missing."""

from __future__ import annotations

import argparse
import json
import sys

from exactk_lab.bench import benchmark

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m exactk_lab.bench")
    parser.add_argument("module", help="a module of exactk_lab.bench, such as train_cuda")
    parser.add_argument("--quick", action="store_true")
    chosen = parser.parse_args()
    report = benchmark(chosen.module).run(quick=chosen.quick)
    sys.stdout.write(
        json.dumps(
            {**report.as_dict(), "command": " ".join(["python -m exactk_lab.bench", *sys.argv[1:]])}, indent=1
        )
    )
