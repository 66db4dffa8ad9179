"""A log in many files into one dataset folder: each file read and checked by a worker, then put together in order.

Knows the reader of `data.frame` and no other. What was read is kept beside the folder until all of it is, so that a
job killed on the way resumes.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from exactk.data.logs.check import EXAMPLES, ReadReport
from exactk.data.logs.chosen import ChosenColumns, ReadOptions, choose_columns
from exactk.data.logs.files import tables_of
from exactk.data.logs.frame import Beside, Rules, sensible_impressions, write_frame
from exactk.errors import DataError
from exactk.scale.cluster import HERE, Placement, Work, placed
from exactk.scale.plan import JobPart, Plan, facts_in, files_of, fingerprint, finished_parquet, refuse_inside

# Rows of a file that has no request ids of its own are numbered from here on, times its number.
SPACING = 1 << 32


@dataclass(frozen=True)
class Reading:
    """How every worker reads its files; plain values. `columns` is what the caller named, `chosen` what came of it."""

    draft: str
    columns: Any = None
    separator: str | None = None
    text_ids: bool = False
    strict: bool = False
    skip_bad: bool = False
    chosen: Mapping[str, Any] = field(default_factory=dict)


def build_parts(
    out: Path,
    source: Path,
    reading: Reading,
    placement: Placement = HERE,
    constraints: Rules = None,
    progress: Callable[[int, int], None] = lambda *_: None,
    **entities: Any,
) -> ReadReport:
    """Write a dataset folder from the files below `source`; `entities` are the items and users, as for `build_frame`.

    The rows of one request must stand in one file.
    """
    refuse_inside(out, source)
    files = files_of(source)
    items, users = entities.pop("items", None), entities.pop("users", None)
    ends = _usable_ends(files, reading)
    chosen = choose_columns(ends, reading.columns, items, users, ReadOptions(**entities))
    reading = replace(reading, chosen=chosen.to_dict())
    parts = tuple(JobPart(n, str(file), 0, 0, 0, 0) for n, file in enumerate(files))
    about = {
        "files": fingerprint(files),
        "columns": chosen.columns.to_dict(),
        "reading": [reading.separator, reading.text_ids, reading.strict, reading.skip_bad],
    }
    draft = Path(reading.draft)
    plan = Plan(about, parts).kept_in(draft)
    left = plan.open_parts(draft)
    done = len(parts) - len(left)
    for _ in placed(reader, reading, left, placement):
        done += 1
        progress(done, len(parts))
    report = ReadReport(str(source))
    for part in parts:
        _add(report, facts_in(draft / part.name), part.file)
    beside = Beside(items, users, reading.text_ids)
    built = write_frame(out, _in_order(draft, parts), report, chosen, beside, constraints)
    shutil.rmtree(draft)
    return built


def reader(reading: Reading) -> Work:
    """Reads and checks one file; its sensible rows and its report go into the draft."""

    def read(part: JobPart) -> dict[str, Any]:
        report = ReadReport(part.file)
        try:
            _keep(part, reading, report)
        except (DataError, OSError) as error:
            if not reading.skip_bad:
                raise DataError(str(error)) from error
            report = ReadReport(part.file)
            report.drop("its file cannot be used", 0, "", str(error))
            with finished_parquet(Path(reading.draft) / part.name, _described(report)):
                pass
        return {"part": part.number, "rows": report.rows_read}

    return read


def _keep(part: JobPart, reading: Reading, report: ReadReport) -> None:
    """Write the sensible rows of a file as they are read: memory does not grow with the file."""
    chosen = ChosenColumns.from_dict(reading.chosen)
    own_ids = _has_request_ids(part.file, chosen.columns.roles)
    options = ReadOptions(
        separator=reading.separator, text_ids=reading.text_ids, bad_rows="error" if reading.strict else "drop"
    )
    with finished_parquet(Path(reading.draft) / part.name, _described(report)) as write:
        for table in sensible_impressions(part.file, chosen, report, options):
            write(table if own_ids else _numbered(table, part.number))


def _described(report: ReadReport) -> Callable[[], str]:
    return lambda: json.dumps(report.to_dict(), ensure_ascii=False, default=str)


def _in_order(draft: Path, parts: Sequence[JobPart]) -> Iterator[pa.Table]:
    """The sensible rows of all files, in the files' order; a request cut in two by the end of a file is an error."""
    last: tuple[Any, str] | None = None
    for part in parts:
        with pq.ParquetFile(draft / part.name) as file:
            for group in range(file.num_row_groups):
                table = file.read_row_group(group)
                if not len(table):
                    continue  # nothing of this file could be used
                ids = table["request_id"]
                if group == 0 and last is not None and ids[0].as_py() == last[0]:
                    raise DataError(
                        f"request {last[0]!r} begins in {last[1]} and continues in {part.file}; "
                        "the rows of a request must be in one file"
                    )
                last = (ids[-1].as_py(), part.file)
                yield table


def _add(report: ReadReport, part: Mapping[str, Any], file: str) -> None:
    """Sum up; examples say which file they are from."""
    report.rows_read += part["rows_read"]
    for name in ("dropped", "notes"):
        held = getattr(report, name)
        for reason, entry in part[name].items():
            into = held.setdefault(reason, {"rows": 0, "examples": []})
            into["rows"] += entry["rows"]
            room = EXAMPLES - len(into["examples"])
            into["examples"] += [
                {"file": file, **example} if isinstance(example, dict) else example
                for example in entry["examples"][:room]
            ]


def _usable_ends(files: Sequence[Path], reading: Reading) -> tuple[Path, ...]:
    """The files from whose beginnings the columns are guessed: the first and the last, of those that can be read."""

    def first(files: Sequence[Path]) -> Path:
        for file in files:
            try:
                next(iter(tables_of(file)))
            except (DataError, OSError):
                if not reading.skip_bad:
                    raise
                continue
            return file
        raise DataError(f"none of the {len(files)} files can be read")

    ends = first(files), first(files[::-1])
    return ends if ends[0] != ends[1] else ends[:1]


def _has_request_ids(file: str, columns: Mapping[str, str]) -> bool:
    named = columns.get("request_id", "request_id")
    first: pa.Table = next(iter(tables_of(file)))
    return named in first.column_names


def _numbered(table: pa.Table, number: int) -> pa.Table:
    """Rows of different files must not share a number."""
    place = table.column_names.index("request_id")
    ids = pc.add(table["request_id"], pa.scalar(np.int64(number) * SPACING))
    return table.set_column(place, "request_id", ids)
