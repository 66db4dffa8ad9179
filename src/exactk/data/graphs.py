"""Graphs recorded in a folder: rules evaluated once, at building time, so that no epoch pays for them.

Knows the folder, its rules, and that a graph is packed into a column of impressions.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from exactk.data.assemble import padded
from exactk.data.dataset import Dataset
from exactk.data.table import FILES, pack_graphs
from exactk.data.writer import DatasetWriter
from exactk.errors import DataError

_ROWS = 1 << 13


def record_graphs(dataset: Dataset) -> Dataset:
    """Rewrite the dataset's folder, all of it, with a `graph` column made by the rules of the dataset."""
    rules = dataset.rules
    if rules is None:
        raise DataError(f"{dataset.path} has no constraint to make graphs of")
    folder, index = dataset.folder, dataset.folder.index
    meta = folder.meta.without_files(constraint=rules.constraints.to_dict())
    with DatasetWriter(dataset.path, meta) as writer:
        for name in folder.meta.checksums:
            if name != FILES["impressions"]:
                writer.copy(dataset.path / name)
        with pq.ParquetFile(dataset.path / FILES["impressions"], pre_buffer=False) as file:
            first = 0
            for batch in file.iter_batches(_ROWS):
                rows = np.arange(first, first + len(batch))
                first += len(batch)
                count = index.candidate_start[rows + 1] - index.candidate_start[rows]
                item = padded(rows, index.candidate_start, index.candidates, max(1, int(count.max())))
                packed = pack_graphs(rules.graph(item, item >= 0), count)
                table = pa.Table.from_batches([batch])
                if "graph" in table.column_names:
                    table = table.drop_columns(["graph"])
                writer.write_impressions(table.append_column("graph", packed))
    return Dataset.open(dataset.path)
