"""Candidate features on disk: a row for every candidate of every impression, beside the Parquet files, stored once.

Knows the columns and their order, no batches. Plain .npy files, appended a block at a time and mapped back: numbers are
float32, NaN where missing; categories int32 codes, 0 where missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from jaxtyping import Float32, Int32

from exactk.atomic import sha256
from exactk.data.columns import MEASURED, SENT_MEASURES, Columns
from exactk.data.columns.codes import CategoryCoder, categories_table, category_lists, category_texts
from exactk.data.table import flatten, read_parquet
from exactk.errors import DataError
from exactk.problem.rules.columns import as_written

NUMBERS, CATEGORIES, VALUES = "candidate_numbers.npy", "candidate_categories.npy", "candidate_values.parquet"
_SMALL = 1 << 12  # bytes


def number_names(columns: Columns) -> tuple[str, ...]:
    """Columns of the matrix of numbers: the features, then score, position and reward where the log has them."""
    return (*columns.candidate.numbers, *columns.measured)


class CandidateWriter:
    """Takes the candidates' columns out of impressions and appends them to the matrices."""

    def __init__(self, folder: Path, columns: Columns) -> None:
        self.columns = columns
        self.numbers = number_names(columns)
        self.categories = columns.candidate.categories
        self._coder = CategoryCoder(self.categories)
        self._matrices = {
            name: MatrixWriter(folder / name, dtype, len(columns_of))
            for name, dtype, columns_of in (
                (NUMBERS, np.float32, self.numbers), (CATEGORIES, np.int32, self.categories),
            )
            if columns_of
        }  # fmt: skip

    def take_from(self, table: pa.Table, first_row: int) -> pa.Table:
        """Append what the impressions say of their candidates; the impressions without it."""
        counts = flatten(table["candidates"])[1]
        held = {
            name: self._flat(table, name, counts, first_row) for name in (*self.numbers, *self.categories)
        }
        if self.numbers:
            blocks = [_float32(held[name]) for name in self.numbers]
            self._matrices[NUMBERS].append(np.column_stack(blocks))
        if self.categories:
            codes = [self._coder.coded(name, category_texts(held[name])) for name in self.categories]
            self._matrices[CATEGORIES].append(np.column_stack(codes))
        return table.drop_columns([self._named(name) for name in held])

    def close(self) -> tuple[dict[str, dict[str, Any]], pa.Table | None]:
        """Checksums of the finished matrices, and the categories' values as a table."""
        sums = {name: matrix.close() for name, matrix in self._matrices.items()}
        return sums, categories_table(self._coder.lists()) if self.categories else None

    def abandon(self) -> None:
        """Let go of the files."""
        for matrix in self._matrices.values():
            matrix.abandon()

    def _named(self, name: str) -> str:
        return name if name in self.columns.measured else f"candidate.{name}"

    def _flat(self, table: pa.Table, name: str, counts: np.ndarray, first_row: int) -> pa.Array:
        named = self._named(name)
        if named not in table.column_names:
            raise DataError(f"impressions have no column '{named}', which meta.json names")
        values, sizes = flatten(table[named])
        if (sizes != counts).any():
            row = int(np.flatnonzero(sizes != counts)[0])
            raise DataError(
                f"impressions: row {first_row + row}, column '{named}': {sizes[row]} values for "
                f"{counts[row]} candidates"
            )
        return values


def _float32(values: pa.Array) -> Float32[np.ndarray, "C"]:
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.uint8())
    cast = values.cast(pa.float32(), safe=False)
    plain = np.asarray(cast, np.float32)  # nulls become NaN
    return plain if np.isfinite(plain).all() else np.where(np.isinf(plain), np.float32(np.nan), plain)


@dataclass(frozen=True)
class CandidateColumns:
    """The matrices of a folder, mapped; row c is the c-th candidate of all impressions end to end."""

    number_names: tuple[str, ...]
    numbers: Float32[np.ndarray, "C F"]
    category_names: tuple[str, ...]
    categories: Int32[np.ndarray, "C G"]
    values: dict[str, list[str]]  # of each category, in the order of their codes from 1

    @classmethod
    def of(cls, folder: Path, columns: Columns, num_candidates: int) -> CandidateColumns:
        """Map what `CandidateWriter` wrote."""
        numbers, categories = number_names(columns), columns.candidate.categories
        return cls(
            number_names=numbers,
            numbers=mapped_matrix(folder / NUMBERS, np.float32, num_candidates, len(numbers)),
            category_names=categories,
            categories=mapped_matrix(folder / CATEGORIES, np.int32, num_candidates, len(categories)),
            values=category_lists(read_parquet(folder / VALUES), categories) if categories else {},
        )

    def said(self, first: int, last: int) -> list[dict[str, Any]]:
        """What the log says of candidates first to last - 1, by name, as it was written; nothing where missing.

        No reward: no request can know one.
        """
        wanted = [name for name in self.number_names if name not in MEASURED or name in SENT_MEASURES]
        rows: list[dict[str, Any]] = [{} for _ in range(first, last)]
        for name in wanted:
            column = self.numbers[first:last, self.number_names.index(name)]
            for row, value in zip(rows, as_written(column).tolist(), strict=True):
                if value == value:  # NaN is missing
                    row[name] = int(value) if value.is_integer() else value
        for place, name in enumerate(self.category_names):
            values = self.values[name]
            for row, code in zip(rows, self.categories[first:last, place].tolist(), strict=True):
                if code:
                    row[name] = values[code - 1]
        return rows


class MatrixWriter:
    """An [R, F] .npy file growing row by row. numpy leaves room in the header for R, which is known at the end."""

    def __init__(self, path: Path, dtype: type[np.generic], width: int) -> None:
        self.path, self.dtype, self.width, self.rows = path, np.dtype(dtype), width, 0
        self._file = path.open("wb")
        self._write_header()

    def append(self, block: np.ndarray) -> None:
        """More rows."""
        self._file.write(np.ascontiguousarray(block, self.dtype).data)
        self.rows += len(block)

    def close(self) -> dict[str, Any]:
        """Finish the file; what meta.json records of it."""
        self._file.seek(0)
        self._write_header()
        self._file.close()
        return {"sha256": sha256(self.path), "bytes": self.path.stat().st_size, "rows": self.rows}

    def abandon(self) -> None:
        """Let go of the file."""
        self._file.close()

    def _write_header(self) -> None:
        described = {"descr": self.dtype.str, "fortran_order": False, "shape": (self.rows, self.width)}
        np.lib.format.write_array_header_1_0(self._file, described)


def mapped_matrix(path: Path, dtype: type[np.generic], rows: int, width: int) -> np.ndarray:
    """The rows as they lie on disk, read as they are asked for; no file is there for no columns."""
    if not width:
        return np.empty((rows, 0), dtype)
    try:
        # An empty matrix cannot be mapped; np.asarray drops memmap's subclass, which compiled loops do not know.
        mode: Literal["r"] | None = "r" if path.stat().st_size > _SMALL else None
        matrix = np.asarray(np.load(path, mmap_mode=mode, allow_pickle=False))
    except (OSError, ValueError) as error:
        raise DataError(f"{path} is missing or damaged: {error}") from error
    if matrix.ndim != 2 or matrix.shape[1] != width:
        raise DataError(f"{path} is damaged: its shape is {matrix.shape}, {width} columns were written")
    if len(matrix) != rows:
        raise DataError(f"{path} has {len(matrix)} rows, the impressions {rows} candidates")
    return matrix
