"""Bring your own log: a frame, or files, with a word on their columns, become a dataset folder and a report.

Knows no particular log; two layouts are told apart by their columns: `candidates` lists, or one row per `item_id`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from exactk.atomic import temporary_folder
from exactk.data.columns import NO_USER
from exactk.data.dataset import Dataset
from exactk.data.logs.check import NOTHING_ELSE, ReadReport, completed, flags_as_ids, problems
from exactk.data.logs.chosen import ChosenColumns, ReadOptions, choose_columns
from exactk.data.logs.columns import ID_LISTS, IDS, LONG, WIDE, ColumnReader, selected
from exactk.data.logs.files import is_untyped, tables_of
from exactk.data.logs.rows import DistinctIds, Piece, RequestGatherer
from exactk.data.logs.tables import Collected, TextEncoders, entity_tables
from exactk.data.table import Meta, flatten
from exactk.data.writer import DatasetWriter
from exactk.errors import DataError, InputError
from exactk.problem.rules.constraints import Constraint, Constraints

Rules = Constraints | Constraint | Sequence[Constraint] | None


class Beside(NamedTuple):
    """Tables of items and users beside a log, and whether all ids are read as text."""

    items: Any = None
    users: Any = None
    text_ids: bool = False


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
    options are those of `ReadOptions`.
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
    **options: Any,
) -> ReadReport:
    """Write a dataset folder from frames or files (.parquet, .csv, .tsv, .jsonl), a piece at a time; report on it.

    The options are those of `ReadOptions`.
    """
    given = ReadOptions(**options)
    if given.bad_rows not in ("error", "drop"):
        raise InputError(f"bad_rows must be 'error' or 'drop', got {given.bad_rows!r}")
    report = ReadReport(str(impressions) if isinstance(impressions, str | Path) else "frame")
    chosen = choose_columns(impressions, columns, items, users, given)
    tables = sensible_impressions(impressions, chosen, report, given)
    return write_frame(out, tables, report, chosen, Beside(items, users, given.text_ids), constraints)


def sensible_impressions(
    source: Any, chosen: ChosenColumns, report: ReadReport, options: ReadOptions
) -> Iterator[pa.Table]:
    """Those impressions of a frame or file that can be used, a piece at a time; the report tells of the others."""
    untyped, strict = is_untyped(source), options.bad_rows == "error"
    reader = ColumnReader(report.source, options.separator, options.text_ids, chosen.columns, untyped)
    for piece in _pieces(source, chosen, reader, report):
        if strict:
            _refuse_lost(report)
        kept = _sensible(piece, report, strict)
        if len(kept):
            yield kept
    if strict:
        _refuse_lost(report)


def write_frame(
    out: Path | str,
    tables: Iterable[pa.Table],
    report: ReadReport,
    chosen: ChosenColumns,
    beside: Beside,
    constraints: Rules = None,
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
            lost = (f"{reason} ({entry['rows']})" for reason, entry in report.dropped.items())
            raise DataError(
                f"{report.source}: none of {report.rows_read} rows could be used: "
                f"{'; '.join(lost) or 'there are none'}"
            )
        for entity, source in ((chosen.entity("item"), beside.items), (chosen.entity("user"), beside.users)):
            known, named = met[entity.kind].array(), said[entity.kind].table()
            for table in entity_tables(entity, source, known, named, beside.text_ids, report):
                if entity.kind == "item":
                    writer.write_items(encode(table))
                else:
                    writer.write_users(table)
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
    report.note("a row without a user: no column names one, so no user's taste is learned", None, len(table))
    return table.append_column("user_id", pa.array([NO_USER["string"]] * len(table), pa.string()))


def _sensible(piece: Piece, report: ReadReport, strict: bool) -> pa.Table:
    """The rows without a problem; every other is an error or in the report."""
    keep = np.ones(len(piece.table), bool)
    for problem in problems(piece.table):
        row = int(piece.rows[problem.row])
        if strict:
            raise DataError(
                f"{report.source}: row {row}, column '{problem.column}': {problem.value!r}: {problem.reason}; "
                'correct it, or leave such rows out (bad_rows="drop")'
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
            'correct it, or leave such rows out (bad_rows="drop")'
        )
