"""The integer-coded twin of a dataset folder: flat arrays on disk, memory-mapped, built once beside the Parquet.

Knows neither splits nor vocabularies; ids here are rows of `items.parquet` and `users.parquet`.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Bool, Float32, Float64, Int8, Int32, Int64, UInt8

from exactk.atomic import draft_folder, sha256
from exactk.data.assemble import entries, padded
from exactk.data.columns import Columns
from exactk.data.columns.codes import CategoryCoder, category_texts
from exactk.data.logs.coding import Coder
from exactk.data.rolling import write_rolling
from exactk.data.table import FILES, Meta, RowLookup, flatten, nobody_among
from exactk.errors import DataError

_VERSION = 2
_ROWS_AT_ONCE = 1 << 15


@dataclass(frozen=True)
class Index:
    """R impressions as flat arrays; list r spans `start[r]` to `start[r + 1]`, so that E is R + 1.

    `card` and `clicked_position` are positions into the candidates (-1 = none), `split` is a place in
    `table.SPLITS` (-1 = not recorded), `request` numbers runs of rows of one request, propensity is NaN and
    timestamp the lowest integer where the log has none. `graph` holds packed graphs, zero bytes = none. `click` holds
    the positions of all clicks. Codes of categories count from 1, 0 = missing; numbers are NaN where missing.
    """

    candidate_start: Int64[np.ndarray, "E"]
    candidates: Int32[np.ndarray, "C"]
    card_start: Int64[np.ndarray, "E"]
    card: Int32[np.ndarray, "P"]
    user: Int32[np.ndarray, "R"]
    clicked: Bool[np.ndarray, "R"]
    clicked_position: Int32[np.ndarray, "R"]
    propensity: Float64[np.ndarray, "R"]
    timestamp: Int64[np.ndarray, "R"]
    request: Int64[np.ndarray, "R"]
    split: Int8[np.ndarray, "R"]
    graph_start: Int64[np.ndarray, "E"]
    graph: UInt8[np.ndarray, "G"]
    item_features: Float32[np.ndarray, "I Fi"]
    user_features: Float32[np.ndarray, "U Fu"]
    click_start: Int64[np.ndarray, "E"]
    click: Int32[np.ndarray, "L"]
    context_numbers: Float32[np.ndarray, "R Fx"]
    context_categories: Int32[np.ndarray, "R Cx"]
    item_categories: Int32[np.ndarray, "I Ci"]
    user_categories: Int32[np.ndarray, "U Cu"]
    rolling: Float32[np.ndarray, "C Fr"]

    def __len__(self) -> int:
        return len(self.user)

    def candidate_rows(self, rows: Int64[np.ndarray, "B"], width: int = 0) -> Int64[np.ndarray, "B N"]:
        """Candidates as rows of items, side by side, -1 behind the end of each; as wide as the longest, or `width`."""
        return padded(rows, self.candidate_start, self.candidates, width)

    def items_at(
        self, start: Int64[np.ndarray, "E"], positions: Int32[np.ndarray, "L"]
    ) -> Int32[np.ndarray, "L"]:
        """The items that lists of positions, one a row, speak of."""
        first = np.repeat(self.candidate_start[:-1], np.diff(start))
        return np.asarray(self.candidates[first + positions], np.int32)

    def outside_clicks(self, rows: Int64[np.ndarray, "B"]) -> Int64[np.ndarray, "B"]:
        """Clicks of each row on positions that its card does not hold."""
        of_click, clicks = entries(self.click_start, rows)
        of_card, cards = entries(self.card_start, rows)
        position, on_card = self.click[clicks], self.card[cards]
        width = int(max(position.max(initial=0), on_card.max(initial=0))) + 1
        inside = np.isin(of_click * width + position, of_card * width + on_card)
        return np.bincount(of_click[~inside], minlength=len(rows)).astype(np.int64)


@dataclass(frozen=True)
class IndexNames:
    """What the columns of some arrays are: the rolling counts kept, and the values behind codes, by "item.brand"."""

    rolling: tuple[str, ...] = ()
    values: Mapping[str, list[str]] = field(default_factory=dict)


# An array is kept as what its annotation says.
_DTYPES = {entry.name: np.dtype(str(entry.type).partition("[")[0].lower()) for entry in fields(Index)}


def open_index(folder: Path, meta: Meta, verify: bool = False) -> tuple[Index, IndexNames]:
    """The folder's index, built on first opening; building it reads, and so checks, every byte of the folder.

    Later openings trust it while the Parquet files keep their size and time of change, or re-hash them first.
    """
    described = json.dumps([_VERSION, meta.checksums, meta.columns], sort_keys=True)
    key = hashlib.sha256(described.encode()).hexdigest()[:16]
    homes = [folder / ".index" / key, _user_cache() / key]
    for home in homes:
        if _is_there(home):
            index, names, stamps = _opened(home)
            if verify or stamps != _stamps(folder, meta):
                check_sums(folder, meta)
            return index, names
    check_sums(folder, meta)
    reason: OSError | None = None
    for home in homes:
        try:
            home.parent.mkdir(parents=True, exist_ok=True)
            draft = draft_folder(home)
            try:
                _build(folder, meta, draft)
                _place(draft, home)
            finally:
                shutil.rmtree(draft, ignore_errors=True)
        except OSError as error:  # read-only or full: keep the index with the user's other caches
            reason = error
            continue
        index, names, _ = _opened(home)
        return index, names
    raise DataError(
        f"no place to keep the index of {folder}: neither it nor {homes[-1].parent} can be written ({reason})"
    )


def _is_there(home: Path) -> bool:
    """Whether an index lies there that may be read."""
    return os.access(home / "index.json", os.R_OK)


def check_files(folder: Path, meta: Meta) -> None:
    """The cheap half of verification: every file is there, of the recorded size, with a whole footer."""
    for file in FILES.values():
        if file not in meta.checksums:
            raise DataError(f"{folder / 'meta.json'}: no checksum for {file}; the folder is incomplete")
    for file, recorded in meta.checksums.items():
        path = folder / file
        if not path.is_file():
            raise DataError(f"{path} is missing")
        if (size := path.stat().st_size) != recorded["bytes"]:
            raise DataError(f"{path} is damaged: {size} bytes, {recorded['bytes']} were written")
        if path.suffix != ".parquet":
            continue  # a matrix says its shape where it is mapped
        try:
            rows = pq.read_metadata(path).num_rows
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise DataError(f"{path} is damaged: {error}") from error
        if rows != recorded["rows"]:
            raise DataError(f"{path} is damaged: {rows} rows, {recorded['rows']} were written")


def check_sums(folder: Path, meta: Meta) -> None:
    """The thorough half: every byte is the one that was written."""
    for file, recorded in meta.checksums.items():
        if sha256(folder / file) != recorded["sha256"]:
            raise DataError(f"{folder / file} is damaged: its checksum is not the one recorded in meta.json")


def _user_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "exactk"


def _stamps(folder: Path, meta: Meta) -> dict[str, int]:
    return {file: (folder / file).stat().st_mtime_ns for file in meta.checksums}


def _opened(home: Path) -> tuple[Index, IndexNames, dict[str, int]]:
    """An index, and when the files it was built from had changed last."""
    try:
        held = json.loads((home / "index.json").read_text(encoding="utf-8"))
        arrays = {name: tuple(held["arrays"][name]) for name in _DTYPES}
        names, stamps = IndexNames(tuple(held["rolling"]), held["values"]), held["stamps"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(f"{home} is damaged ({error}); delete it, it will be rebuilt") from error
    return _mapped(home, arrays), names, stamps


def _place(draft: Path, home: Path) -> None:
    if home.is_dir() and not _is_there(home):  # what is left of one that was damaged
        shutil.rmtree(home, ignore_errors=True)
    try:
        draft.rename(home)
    except OSError:
        if not _is_there(home):  # else another process was faster; its index is as good
            raise


def _mapped(home: Path, shapes: Mapping[str, tuple[int, ...]]) -> Index:
    held: dict[str, np.ndarray] = {}
    for name, dtype in _DTYPES.items():
        shape, path = shapes[name], home / f"{name}.bin"
        if not path.is_file() or path.stat().st_size != int(np.prod(shape)) * dtype.itemsize:
            raise DataError(f"{path} is damaged; delete {home}, it will be rebuilt")
        # np.memmap refuses empty files; np.asarray drops its subclass, which compiled loops do not know.
        empty = not np.prod(shape)
        held[name] = np.empty(shape, dtype) if empty else np.asarray(np.memmap(path, dtype, "r", shape=shape))
        held[name].setflags(write=False)
    return Index(**held)


def _build(folder: Path, meta: Meta, draft: Path) -> None:
    items = pq.read_table(folder / FILES["items"], columns=["item_id"])["item_id"]
    users = pq.read_table(folder / FILES["users"], columns=["user_id"])["user_id"]
    columns = Columns.from_dict(meta.columns or {}, f"{folder / 'meta.json'}: columns")
    of_item = RowLookup(items, FILES["items"], "item_id")
    coder = Coder(of_item, RowLookup(users, FILES["users"], "user_id"), columns)
    with _Flat(draft) as flat:
        for start in ("candidate_start", "card_start", "graph_start", "click_start"):
            flat.append(start, np.zeros(1, np.int64))
        for batch in _batches(folder / FILES["impressions"], columns):
            for name, array in coder.coded(batch).items():
                flat.append(name, array)
        tables = {
            "context_numbers": (coder.row, len(columns.context.numbers)),
            "context_categories": (coder.row, len(columns.context.categories)),
            "rolling": (flat.counts["candidates"], 0),
        }
        values = {f"context.{name}": held for name, held in coder.categories.lists().items()}
        for kind, ids in (("item", items), ("user", users)):
            path, names = folder / f"{kind}s.parquet", getattr(columns, kind).categories
            tables[f"{kind}_features"] = (len(ids), _write_features(flat, path, f"{kind}_features"))
            tables[f"{kind}_categories"] = (len(ids), len(names))
            values |= _write_categories(flat, path, kind, names)
    shapes = {name: (count,) for name, count in flat.counts.items()} | tables
    rolling: tuple[str, ...] = ()
    if meta.columns:
        rolling = write_rolling(_mapped(draft, shapes), columns, draft / "rolling.bin", nobody_among(users))
    shapes["rolling"] = (flat.counts["candidates"], len(rolling))
    described = {"stamps": _stamps(folder, meta), "arrays": shapes, "rolling": rolling, "values": values}
    (draft / "index.json").write_text(json.dumps(described, ensure_ascii=False), encoding="utf-8")


def _batches(path: Path, columns: Columns) -> Iterator[pa.Table]:
    with pq.ParquetFile(path, pre_buffer=False) as file:
        known = {"request_id", "user_id", "candidates", "card", "clicked", "clicked_item", "propensity"}
        known |= {"timestamp", "split", "graph", "clicked_items", *columns.context.names}
        wanted = [name for name in file.schema_arrow.names if name in known]
        for batch in file.iter_batches(_ROWS_AT_ONCE, columns=wanted):
            yield pa.Table.from_batches([batch])


def _write_features(flat: _Flat, path: Path, name: str) -> int:
    """Append a features column row by row; every row has the same width, 0 where the column is absent."""
    width: int | None = None
    with pq.ParquetFile(path, pre_buffer=False) as file:
        if "features" not in file.schema_arrow.names:
            return 0
        row = 0
        for batch in file.iter_batches(_ROWS_AT_ONCE, columns=["features"]):
            values, lengths = flatten(batch.column(0))
            width = int(lengths[0]) if width is None and len(lengths) else width
            if (lengths != width).any():
                bad = int(np.flatnonzero(lengths != width)[0])
                raise DataError(
                    f"{path.name}: row {row + bad}, column 'features': {lengths[bad]} numbers, "
                    f"the first row has {width}"
                )
            flat.append(name, np.asarray(values, np.float32))
            row += len(lengths)
    return width or 0


def _write_categories(flat: _Flat, path: Path, kind: str, names: Sequence[str]) -> dict[str, list[str]]:
    """Codes of an item's or user's categories, row by row; the values behind them by "item.brand"."""
    coder = CategoryCoder(names)
    with pq.ParquetFile(path, pre_buffer=False) as file:
        for name in names:
            if name not in file.schema_arrow.names:
                raise DataError(f"{path}: there is no column '{name}', which the dataset's columns name")
        for batch in file.iter_batches(_ROWS_AT_ONCE, columns=list(names)) if names else ():
            texts = {name: category_texts(batch.column(name), f"{path.name}: {name}") for name in names}
            codes = [coder.coded(name, held) for name, held in texts.items()]
            flat.append(f"{kind}_categories", np.column_stack(codes))
    return {f"{kind}.{name}": held for name, held in coder.lists().items()}


class _Flat:
    """Flat arrays growing on disk, one open file each."""

    def __init__(self, folder: Path) -> None:
        self._files: dict[str, BinaryIO] = {name: (folder / f"{name}.bin").open("wb") for name in _DTYPES}
        self.counts = dict.fromkeys(_DTYPES, 0)

    def __enter__(self) -> _Flat:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            file.close()

    def append(self, name: str, array: np.ndarray) -> None:
        self._files[name].write(np.ascontiguousarray(array, _DTYPES[name]).data)
        self.counts[name] += len(array)
