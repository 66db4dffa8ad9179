"""Bring your own log: a frame, or files, with a word on their columns, become a dataset folder and a report.

Knows no particular log; two layouts are told apart by their columns: `candidates` lists, or one row per `item_id`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from exactk.atomic import temporary_folder
from exactk.data.columns.roles import NO_USER
from exactk.data.dataset import Dataset
from exactk.data.logs.check import completed, flags_as_ids, problems
from exactk.data.logs.chosen import ChosenColumns, choose_columns
from exactk.data.logs.collected import Collected, DistinctIds
from exactk.data.logs.columns import ID_LISTS, IDS, LONG, WIDE, ColumnReader, selected
from exactk.data.logs.encoders import TextEncoders
from exactk.data.logs.files import is_untyped, tables_of
from exactk.data.logs.report import NOTHING_ELSE, ReadReport
from exactk.data.logs.rows import Piece, RequestGatherer
from exactk.data.logs.tables import write_entities
from exactk.data.table import Meta, flatten
from exactk.data.writer import DatasetWriter
from exactk.errors import DataError, InputError
from exactk.problem.rules.constraints import Constraint, Constraints

BadRows = Literal["error", "drop"]
Rules = Constraints | Constraint | Sequence[Constraint] | None


def from_frame(
    frame: Any,
    columns: Any = None,
    items: Any = None,
    users: Any = None,
    constraints: Rules = None,
    path: Path | str | None = None,
    **options: Any,
) -> Dataset:
    """Make a dataset from a pandas, polars or Arrow frame.

    `columns` says what the columns are for. It may be a mapping from roles to columns of the frame; the other columns
    are then guessed, and the report says how. Or it describes all columns: a `Columns`, its plain form, or the path of
    a columns file. The first row that cannot be used is an error; with `bad_rows="drop"` such rows are left out, and
    the folder's provenance keeps the report. Without a `path` the folder lasts as long as this process. The other
    options are those of `build_frame`.
    """
    target = temporary_folder() if path is None else Path(path)
    build_frame(target, frame, columns, items, users, constraints, **{"bad_rows": "error"} | options)
    return Dataset.open(target)


def build_frame(
    out: Path | str,
    impressions: Any,
    columns: Any = None,
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
) -> ReadReport:
    """Write a dataset folder from frames or files (.parquet, .csv, .tsv, .jsonl), a piece at a time; report on it.

    `item_features` and `user_features` name the number columns that are features, instead of those guessed.
    `separator` parts lists written as text. `text_ids` reads every id as text, so that 007 stays 007.
    """
    if bad_rows not in ("error", "drop"):
        raise InputError(f"bad_rows must be 'error' or 'drop', got {bad_rows!r}")
    report = ReadReport(str(impressions) if isinstance(impressions, str | Path) else "frame")
    chosen = choose_columns(
        impressions, columns, items, users, item_columns, user_columns, item_features, user_features
    )
    tables = sensible_impressions(impressions, chosen, report, separator, text_ids, bad_rows)
    return write_frame(out, tables, report, chosen, items, users, constraints, text_ids=text_ids)


def sensible_impressions(
    source: Any,
    chosen: ChosenColumns,
    report: ReadReport,
    separator: str | None = None,
    text_ids: bool = False,
    bad_rows: BadRows = "drop",
) -> Iterator[pa.Table]:
    """Those impressions of a frame or file that can be used, a piece at a time; the report tells of the others."""
    reader = ColumnReader(report.source, separator, text_ids, chosen.columns, is_untyped(source))
    for piece in _pieces(source, chosen, reader, report):
        if bad_rows == "error":
            _refuse_lost(report)
        kept = _sensible(piece, report, bad_rows)
        if len(kept):
            yield kept
    if bad_rows == "error":
        _refuse_lost(report)


def write_frame(
    out: Path | str,
    tables: Iterable[pa.Table],
    report: ReadReport,
    chosen: ChosenColumns,
    items: Any = None,
    users: Any = None,
    constraints: Rules = None,
    *,
    text_ids: bool = False,
) -> ReadReport:
    """Write a dataset folder from sensible impressions, wherever they come from; completes and returns the report."""
    rules = Constraints.of(constraints)
    meta = Meta(
        K=chosen.columns.k if chosen.whole_lists else None,
        constraint=rules.to_dict() if rules else None,
        columns=chosen.columns.with_encoded().to_dict(),
        provenance={"source": "frame", "columns": dict(chosen.columns.roles), "report": None},
    )
    encode = TextEncoders(chosen.columns.encoders)
    met = {"item": DistinctIds(), "user": DistinctIds()}
    said = {"item": Collected("item"), "user": Collected("user")}
    more = 0  # requests that were offered more than their card
    with DatasetWriter(out, meta) as writer:
        for kept in tables:
            writer.write_impressions(said["user"].take_from(said["item"].take_from(kept)))
            report.impressions += len(kept)
            if "card" in kept.column_names:
                more += int((flatten(kept["candidates"])[1] > flatten(kept["card"])[1]).sum())
            met["item"].add(kept["candidates"])
            met["user"].add(kept["user_id"])
        if not report.impressions:
            raise DataError(
                f"{report.source}: not one of {report.rows_read} rows could be used: {_summary(report)}"
            )
        for entity, source in ((chosen.entity("item"), items), (chosen.entity("user"), users)):
            known, named = met[entity.kind].array(), said[entity.kind].table()
            write = (
                (lambda table: writer.write_items(encode(table)))
                if entity.kind == "item"
                else writer.write_users
            )
            write_entities(write, entity, source, known, named, text_ids, report)
        if chosen.columns.positives_only and not more:
            report.note(NOTHING_ELSE, None, report.impressions)
        chosen.tell(report)
        writer.add_provenance(report=report.to_dict())
    if rules:
        Dataset.open(out).record_graphs()
    return report


def _pieces(source: Any, chosen: ChosenColumns, reader: ColumnReader, report: ReadReport) -> Iterator[Piece]:
    """Typed, completed, one row per impression."""
    columns = chosen.columns
    as_text = [columns.roles.get(name, name) for name in (*ID_LISTS, *IDS)]
    gatherer = RequestGatherer(report, columns.k)
    layout = WIDE if chosen.lists else LONG

    def typed() -> Iterator[tuple[int, pa.Table]]:
        for table in tables_of(source, as_text):
            ours = selected(table, columns, layout, reader.source)
            first, report.rows_read = report.rows_read, report.rows_read + len(ours)
            yield first, _with_user(reader.typed(ours, first), report)

    if chosen.lists:
        for first, table in typed():
            marked, rows = flags_as_ids(table, np.arange(first, first + len(table)), report)
            whole = completed(marked, first, report, columns.positives_only)
            yield Piece(whole, rows, np.ones(len(rows), np.int64))
        return
    for piece in gatherer.requests(typed()):
        yield piece._replace(table=completed(piece.table, 0, report, columns.positives_only))


def _with_user(table: pa.Table, report: ReadReport) -> pa.Table:
    """A log need not say who asked."""
    if "user_id" in table.column_names:
        return table
    report.note(
        "a row without a user: no column says who asked, so nobody's taste is learned", None, len(table)
    )
    return table.append_column("user_id", pa.array([NO_USER["string"]] * len(table), pa.string()))


def _sensible(piece: Piece, report: ReadReport, bad_rows: BadRows) -> pa.Table:
    """The rows without a problem; every other is an error or in the report."""
    keep = np.ones(len(piece.table), bool)
    for problem in problems(piece.table):
        row = int(piece.rows[problem.row])
        if bad_rows == "error":
            raise DataError(
                f"{report.source}: row {row}, column '{problem.column}': {problem.value!r}: {problem.reason}; "
                'mend it, or have such rows dropped (bad_rows="drop")'
            )
        keep[problem.row] = False
        report.drop(problem.reason, row, problem.column, problem.value, int(piece.counts[problem.row]))
    return piece.table if keep.all() else piece.table.filter(pa.array(keep))


def _refuse_lost(report: ReadReport) -> None:
    """Rows that were lost on the way to requests: of no request, of several users, late, or twice there."""
    for reason, entry in report.dropped.items():
        first = entry["examples"][0]
        raise DataError(
            f"{report.source}: row {first['row']}, column '{first['column']}': {first['value']!r}: {reason}; "
            'mend it, or have such rows dropped (bad_rows="drop")'
        )


def _summary(report: ReadReport) -> str:
    return (
        "; ".join(f"{reason} ({entry['rows']})" for reason, entry in report.dropped.items())
        or "there are none"
    )
