"""DatasetWriter: tables in, one finished dataset folder out, or none at all.

Knows no source: frames, MovieLens, the authors' files and the world all write through here. What a log says of every
candidate of every impression is stored once, in plain .npy files beside the Parquet: numbers are float32, NaN where
missing; categories int32 codes, 0 where missing.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from jaxtyping import Float32

from exactk.atomic import atomic_folder, check_replaceable, failed, sha256
from exactk.data.columns import Columns
from exactk.data.columns.codes import CategoryCoder, categories_table, category_texts
from exactk.data.table import FILES, Kind, Meta, canonical, flatten
from exactk.errors import DataError

_ID = pa.int64()
_EMPTY: Mapping[Kind, pa.Schema] = {
    "impressions": pa.schema({"request_id": _ID, "user_id": _ID, "candidates": pa.list_(_ID)}),
    "items": pa.schema({"item_id": _ID}),
    "users": pa.schema({"user_id": _ID}),
}
NUMBERS, CATEGORIES, VALUES = "candidate_numbers.npy", "candidate_categories.npy", "candidate_values.parquet"


class DatasetWriter:
    """Appends row groups to a draft beside `path`; leaving the `with` block puts the finished folder there.

    An exception, a full disk or a killed process leaves whatever stood at `path` as it was. `write_extra` keeps
    a further table (say, the ratings the cards were made of) in the same folder, under a checksum too.
    """

    def __init__(self, path: Path | str, meta: Meta | Mapping[str, Any] | None = None) -> None:
        self.path = Path(path)
        self.meta = meta if isinstance(meta, Meta) else Meta(**dict(meta or {}))
        self._sinks: dict[str, _Sink] = {}
        self._stack = ExitStack()
        self._largest = {"candidates": 0, "card": 0}
        self._candidates: CandidateWriter | None = None
        self._copied: dict[str, dict[str, Any]] = {}

    def __enter__(self) -> DatasetWriter:
        check_replaceable(self.path, "dataset", ("meta.json", FILES["impressions"]))
        self._draft = self._stack.enter_context(atomic_folder(self.path))
        columns = Columns.from_dict(self.meta.columns or {}, "meta.json: columns")
        if columns.candidate.names or columns.measured:
            self._candidates = CandidateWriter(self._draft, columns)
        return self

    def write_items(self, table: pa.Table) -> None:
        """Append items: item_id, and any of title, category, features (list of float), other attributes."""
        self._append("items", table)

    def write_users(self, table: pa.Table) -> None:
        """Append users: user_id, and any of features, other attributes."""
        self._append("users", table)

    def write_impressions(self, table: pa.Table) -> None:
        """Append impressions: request_id, user_id, candidates, and any of card, clicked, clicked_item,
        clicked_items, propensity, timestamp, split (train, valid, test) and graph (`table.pack_graphs`). Features of
        the candidates that the meta's columns name come as lists beside them, "candidate.price", and go to files
        of their own; so do score, position and reward. Context comes as "context.device" or plainly "device".

        Rows of one request, if it was shown more than one card, stand together.
        """
        if self._candidates is not None:
            written = self._sinks[file].rows if (file := FILES["impressions"]) in self._sinks else 0
            with self._disk():
                table = self._candidates.take_from(table, written)
        table = table.rename_columns([name.removeprefix("context.") for name in table.column_names])
        table = self._append("impressions", table)
        for name in self._largest:
            if name in table.column_names and len(table):
                longest = pc.max(pc.list_value_length(table[name])).as_py()
                self._largest[name] = max(self._largest[name], longest or 0)

    def write_extra(self, file: str, table: pa.Table) -> None:
        """Append to a further Parquet file of the folder."""
        if not file.endswith(".parquet") or file in FILES.values() or "/" in file:
            raise DataError(f"an extra table needs a Parquet name of its own, not '{file}'")
        with self._disk():
            self._sink(file, table.schema).write(table)

    def copy(self, file: Path) -> None:
        """Take over a finished file of another dataset folder as it is."""
        if file.suffix == ".npy" and self._candidates is not None:  # nothing of its own may follow
            self._candidates.abandon()
            self._candidates = None
        with self._disk():
            shutil.copyfile(file, self._draft / file.name)
        self._copied[file.name] = dict(Meta.load(file.parent).checksums[file.name])

    def add_provenance(self, **facts: Any) -> None:
        """Add to the folder's provenance what was learned while writing."""
        self.meta = replace(self.meta, provenance={**self.meta.provenance, **facts})

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                with self._disk():
                    self._finish()
        except BaseException as failure:
            self._close_quietly()
            self._stack.__exit__(type(failure), failure, failure.__traceback__)
            raise
        if error is not None:
            self._close_quietly()
        with self._disk():
            self._stack.__exit__(kind, error, trace)

    def _append(self, kind: Kind, table: pa.Table) -> pa.Table:
        """Write rows of a known kind; returns them as they were written."""
        file = FILES[kind]
        written = self._sinks[file].rows if file in self._sinks else 0
        table = canonical(table, kind, first_row=written)
        with self._disk():
            self._sink(file, table.schema).write(table)
        return table

    def _sink(self, file: str, schema: pa.Schema) -> _Sink:
        if file not in self._sinks:
            self._sinks[file] = _Sink(self._draft / file, schema)
        return self._sinks[file]

    def _finish(self) -> None:
        for kind, file in FILES.items():
            if file not in self._copied:
                self._sink(file, _EMPTY[kind])
        finished = self._copied
        if self._candidates is not None:
            matrices, values = self._candidates.close()
            finished |= matrices
            if values is not None:
                self._sink(VALUES, values.schema).write(values)
        checksums = {file: sink.close() for file, sink in sorted(self._sinks.items())} | finished
        sizes: dict[str, Any] = {"K": self._largest["card"], "N": self._largest["candidates"]}
        unsaid = {name: size for name, size in sizes.items() if getattr(self.meta, name) is None}
        meta = replace(self.meta, checksums=checksums, **unsaid)
        text = json.dumps(meta.to_dict(), indent=2, ensure_ascii=False, allow_nan=False)
        (self._draft / "meta.json").write_text(text + "\n", encoding="utf-8")

    def _close_quietly(self) -> None:
        if self._candidates is not None:
            self._candidates.abandon()
        for sink in self._sinks.values():
            sink.abandon()

    @contextmanager
    def _disk(self) -> Iterator[None]:
        """Say what a failing disk means for the folder."""
        try:
            yield
        except OSError as error:
            raise failed(self.path, error) from error


class _Sink:
    """One Parquet file being written."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.path, self.schema, self.rows = path, schema, 0
        self._file = path.open("wb")
        self._writer = pq.ParquetWriter(self._file, schema, compression="zstd", write_page_checksum=True)

    def write(self, table: pa.Table) -> None:
        if table.schema != self.schema:
            table = self._conform(table)
        if len(table):
            self._writer.write_table(table, row_group_size=1 << 16)
            self.rows += len(table)

    def _conform(self, table: pa.Table) -> pa.Table:
        if set(table.column_names) != set(self.schema.names):
            raise DataError(
                f"{self.path.name}: rows from {self.rows} have columns {sorted(table.column_names)}, "
                f"those before had {sorted(self.schema.names)}"
            )
        try:
            return table.select(self.schema.names).cast(self.schema)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise DataError(
                f"{self.path.name}: rows from {self.rows} do not have the types of those before: {error}"
            ) from error

    def close(self) -> dict[str, Any]:
        self._writer.close()
        self._file.close()
        return {"sha256": sha256(self.path), "bytes": self.path.stat().st_size, "rows": self.rows}

    def abandon(self) -> None:
        """Let go of the file without caring whether its end can still be written."""
        with suppress(OSError, pa.ArrowException, ValueError):
            self._writer.close()
        with suppress(OSError):
            self._file.close()


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
        names = (*self.numbers, *self.categories)
        held = {name: self._flat(table, name, counts, first_row) for name in names}
        if self.numbers:
            blocks = [_float32(held[name]) for name in self.numbers]
            self._matrices[NUMBERS].append(np.column_stack(blocks))
        if self.categories:
            codes = [self._coder.coded(name, category_texts(held[name])) for name in self.categories]
            self._matrices[CATEGORIES].append(np.column_stack(codes))
        return table.drop_columns([*map(self._named, names)])

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
            place = f"row {first_row + row}, column '{named}'"
            raise DataError(f"impressions: {place}: {sizes[row]} values for {counts[row]} candidates")
        return values


def _float32(values: pa.Array) -> Float32[np.ndarray, "C"]:
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.uint8())
    plain = np.asarray(values.cast(pa.float32(), safe=False), np.float32)  # nulls become NaN
    return plain if np.isfinite(plain).all() else np.where(np.isinf(plain), np.float32(np.nan), plain)


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
