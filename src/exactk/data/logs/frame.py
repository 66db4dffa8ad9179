"""Bring your own log: a frame, or files, with a mapping of columns, become a dataset folder and a report.

Knows no particular log; two layouts are told apart by their columns: `candidates` lists, or one row per `item_id`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from exactk.data.atomic import temporary_folder
from exactk.data.dataset import Dataset
from exactk.data.graphs import record_graphs
from exactk.data.logs.check import Report, completed, problems
from exactk.data.logs.columns import IDS, LONG, WIDE, ColumnReader, renamed
from exactk.data.logs.files import tables_of
from exactk.data.logs.rows import Piece, RequestGatherer
from exactk.data.logs.tables import write_entities
from exactk.data.table import Meta, combine
from exactk.data.writer import DatasetWriter
from exactk.errors import DataError, InputError
from exactk.problem.rules.constraints import Constraint, Constraints

BadRows = Literal["error", "drop"]
Rules = Constraints | Constraint | Sequence[Constraint] | None


def from_frame(
    frame: Any,
    columns: Mapping[str, str] | None = None,
    items: Any = None,
    users: Any = None,
    constraints: Rules = None,
    path: Path | str | None = None,
    **options: Any,
) -> Dataset:
    """A dataset out of a pandas, polars or Arrow frame; `columns` maps our names to the frame's.

    The first row that cannot be used is an error; `bad_rows="drop"` leaves such rows out and keeps the report in
    the folder's provenance. Without a `path` the folder lasts as long as this process. Options: see `build_frame`.
    """
    target = temporary_folder() if path is None else Path(path)
    build_frame(target, frame, columns, items, users, constraints, **{"bad_rows": "error"} | options)
    return Dataset.open(target)


def build_frame(
    out: Path | str,
    impressions: Any,
    columns: Mapping[str, str] | None = None,
    items: Any = None,
    users: Any = None,
    constraints: Rules = None,
    *,
    item_columns: Mapping[str, str] | None = None,
    user_columns: Mapping[str, str] | None = None,
    item_features: Sequence[str] = (),
    user_features: Sequence[str] = (),
    separator: str | None = None,
    text_ids: bool = False,
    bad_rows: BadRows = "drop",
) -> Report:
    """Write a dataset folder from frames or files (.parquet, .csv, .tsv, .jsonl), a piece at a time; report on it.

    `item_features` and `user_features` name number columns to be joined into features. `separator` parts lists
    written as text. `text_ids` reads every id as text, so that 007 stays 007.
    """
    if bad_rows not in ("error", "drop"):
        raise InputError(f"bad_rows must be 'error' or 'drop', got {bad_rows!r}")
    report = Report(str(impressions) if isinstance(impressions, str | Path) else "frame")
    tables = sensible_impressions(impressions, dict(columns or {}), report, separator, text_ids, bad_rows)
    return write_frame(
        out, tables, report, columns, items, users, constraints, item_columns=item_columns, user_columns=user_columns,
        item_features=item_features, user_features=user_features, text_ids=text_ids,
    )  # fmt: skip


def sensible_impressions(
    source: Any,
    mapping: dict[str, str],
    report: Report,
    separator: str | None = None,
    text_ids: bool = False,
    bad_rows: BadRows = "drop",
) -> Iterator[pa.Table]:
    """Those impressions of a frame or file that can be used, a piece at a time; the report tells of the others."""
    reader = ColumnReader(report.source, separator, text_ids)
    for piece in _pieces(source, mapping, reader, report, text_ids):
        kept = _sensible(piece, report, bad_rows)
        if len(kept):
            yield kept


def write_frame(
    out: Path | str,
    tables: Iterable[pa.Table],
    report: Report,
    columns: Mapping[str, str] | None = None,
    items: Any = None,
    users: Any = None,
    constraints: Rules = None,
    *,
    item_columns: Mapping[str, str] | None = None,
    user_columns: Mapping[str, str] | None = None,
    item_features: Sequence[str] = (),
    user_features: Sequence[str] = (),
    text_ids: bool = False,
) -> Report:
    """Write a dataset folder from sensible impressions, wherever they come from; completes and returns the report."""
    rules = Constraints.of(constraints)
    meta = Meta(
        constraint=rules.to_dict() if rules else None,
        provenance={"source": "frame", "columns": dict(columns or {}), "report": None},
    )
    met = {"item": pa.array([]), "user": pa.array([])}
    with DatasetWriter(out, meta) as writer:
        for kept in tables:
            writer.write_impressions(kept)
            report.impressions += len(kept)
            met["item"] = _joined(met["item"], kept["candidates"])
            met["user"] = _joined(met["user"], kept["user_id"])
        if not report.impressions:
            raise DataError(
                f"{report.source}: not one of {report.rows_read} rows could be used: {_summary(report)}"
            )
        write_entities(
            writer, "item", items, met["item"], dict(item_columns or {}), item_features, text_ids, report
        )
        write_entities(
            writer, "user", users, met["user"], dict(user_columns or {}), user_features, text_ids, report
        )
        writer.add_provenance(report=report.to_dict())
    if rules:
        record_graphs(Dataset.open(out))
    return report


def _pieces(
    source: Any, mapping: dict[str, str], reader: ColumnReader, report: Report, text_ids: bool
) -> Iterator[Piece]:
    """Typed, completed, one row per impression."""
    layout: tuple[str, ...] | None = None
    as_text = [mapping.get(name, name) for name in ("candidates", "card", *(IDS if text_ids else ()))]
    gatherer = RequestGatherer(report)

    def typed() -> Iterator[tuple[int, pa.Table]]:
        nonlocal layout
        for table in tables_of(source, as_text):
            layout = layout or _layout(table, mapping)
            required = ("user_id", "candidates") if layout is WIDE else ("request_id", "user_id", "item_id")
            ours = renamed(table, mapping, layout, required, reader.source)
            first, report.rows_read = report.rows_read, report.rows_read + len(ours)
            yield first, reader.typed(ours, first)

    pieces = typed()
    for first, table in pieces:
        if layout is WIDE:
            rows = np.arange(first, first + len(table))
            yield Piece(completed(table, first), rows, np.ones(len(table), np.int64))
        else:
            yield from gatherer.requests(_chained(first, table, pieces))


def _chained(
    first: int, table: pa.Table, rest: Iterator[tuple[int, pa.Table]]
) -> Iterator[tuple[int, pa.Table]]:
    yield first, table
    yield from rest


def _layout(table: pa.Table, mapping: Mapping[str, str]) -> tuple[str, ...]:
    """Lists of candidates, or one row per item."""
    if mapping.get("candidates", "candidates") in table.column_names or "candidates" in mapping:
        return WIDE
    if mapping.get("item_id", "item_id") in table.column_names or "item_id" in mapping:
        return LONG
    return WIDE


def _sensible(piece: Piece, report: Report, bad_rows: BadRows) -> pa.Table:
    """The rows without a problem; every other is an error or in the report."""
    keep = np.ones(len(piece.table), bool)
    for problem in problems(piece.table):
        row = int(piece.rows[problem.row])
        if bad_rows == "error":
            raise DataError(
                f"{report.source}: row {row}, column '{problem.column}': {problem.value!r}: {problem.reason}; "
                "mend it, or drop such rows"
            )
        keep[problem.row] = False
        report.drop(problem.reason, row, problem.column, problem.value, int(piece.counts[problem.row]))
    return piece.table.filter(pa.array(keep))


def _joined(known: pa.Array, more: Any) -> pa.Array:
    """Distinct ids so far."""
    values = combine(more)
    flat = values.flatten() if pa.types.is_list(values.type) else values
    known = known.cast(flat.type) if not len(known) else known
    return pc.unique(pa.concat_arrays([known, pc.unique(flat)]))


def _summary(report: Report) -> str:
    return (
        "; ".join(f"{reason} ({entry['rows']})" for reason, entry in report.dropped.items())
        or "there are none"
    )
