"""From files to batches: the dataset folder, its sources, and what can be wrong with it.

Import from the rooms themselves; this door names the few everyone needs.
"""

from exactk.data.columns.vocabulary import Vocabulary
from exactk.data.dataset import Dataset
from exactk.data.table import Meta, pack_graphs
from exactk.data.writer import DatasetWriter

__all__ = ["Dataset", "DatasetWriter", "Meta", "Vocabulary", "pack_graphs"]
