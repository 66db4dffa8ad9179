"""Matrices on disk: rows of one width appended a block at a time to a plain .npy file, and mapped back.

Knows no meaning of rows or columns.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Literal

import numpy as np

from exactk.errors import DataError

_SMALL = 1 << 12  # bytes


class MatrixWriter:
    """An [R, F] .npy file growing row by row. numpy leaves room in the header for R, which is known at the end."""

    def __init__(self, path: Path, dtype: type[np.generic], width: int) -> None:
        self.path, self.dtype, self.width, self.rows = path, np.dtype(dtype), width, 0
        self._file = path.open("w+b")
        self._write_header()

    def append(self, block: np.ndarray) -> None:
        """More rows."""
        self._file.write(np.ascontiguousarray(block, self.dtype).data)
        self.rows += len(block)

    def close(self) -> dict[str, Any]:
        """Finish the file; what meta.json records of it."""
        self._file.seek(0)
        self._write_header()
        self._file.seek(0)
        digest = hashlib.file_digest(self._file, "sha256").hexdigest()
        self._file.close()
        return {"sha256": digest, "bytes": self.path.stat().st_size, "rows": self.rows}

    def abandon(self) -> None:
        """Let go of the file."""
        self._file.close()

    def _write_header(self) -> None:
        described = {"descr": self.dtype.str, "fortran_order": False, "shape": (self.rows, self.width)}
        np.lib.format.write_array_header_1_0(self._file, described)


def mapped_matrix(path: Path, width: int) -> np.ndarray:
    """The rows as they lie on disk, read as they are asked for."""
    try:
        # An empty matrix cannot be mapped; np.asarray drops memmap's subclass, which compiled loops do not know.
        mode: Literal["r"] | None = "r" if path.stat().st_size > _SMALL else None
        matrix = np.asarray(np.load(path, mmap_mode=mode, allow_pickle=False))
    except (OSError, ValueError) as error:
        raise DataError(f"{path} is missing or damaged: {error}") from error
    if matrix.ndim != 2 or matrix.shape[1] != width:
        raise DataError(f"{path} is damaged: its shape is {matrix.shape}, {width} columns were written")
    return matrix
