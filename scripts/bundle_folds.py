"""The five folds of human bundles (FOLDER/impressions.parquet with a column `fold`, items.parquet) as dataset folders.

`python scripts/bundle_folds.py FOLDER data` writes data/bundles-0 to data/bundles-4: of these, fold n is the test part.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import exactk

FOLDS = 5


def main(source: Path, out: Path) -> None:
    """Write every fold."""
    impressions, items = (
        pq.read_table(source / "impressions.parquet"),
        pq.read_table(source / "items.parquet"),
    )
    fold = impressions["fold"].to_numpy()
    for n in range(FOLDS):
        split = np.where(fold == n, "test", np.where(fold == (n + 1) % FOLDS, "valid", "train"))
        rows = impressions.drop_columns(["fold"]).append_column("split", pa.array(split))
        exactk.from_frame(rows, items=items, path=out / f"bundles-{n}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
