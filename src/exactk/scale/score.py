"""A whole user base, or any number of requests, into Parquet cards: planned, placed, resumed after a kill.

Knows neither models nor rows: `scoring.py` makes a part, this file sees that each is made once.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from exactk.atomic import write_text
from exactk.errors import DataError, InputError
from exactk.scale.cluster import HERE, Placement, Work, placed
from exactk.scale.plan import Plan, files_of, fingerprint, parts_of
from exactk.scale.scoring import EXAMPLES, PartReport, Scorer, ScoringJob

ROWS = 1 << 16  # of a part
MANIFEST = "manifest.json"


@dataclass(frozen=True)
class ScoreReport:
    """What became of a job, also of the parts that an earlier run had made."""

    out: str
    parts: int
    parts_before: int  # found finished
    requests: int
    infeasible: int
    bad: int
    examples: tuple[dict[str, Any], ...]
    seconds: float
    requests_per_second: float  # of this run
    megabytes_first: float
    megabytes_most: float
    unread: tuple[str, ...]  # columns of the source that neither the model nor a rule reads
    missing: tuple[str, ...]  # what the model reads of requests, and no part had
    notes: dict[str, int]

    def to_dict(self) -> dict[str, Any]:
        """What `--json` prints and manifest.json keeps."""
        return asdict(self)


def score(
    job: ScoringJob,
    source: Path,
    placement: Placement = HERE,
    rows: int = ROWS,
    progress: Callable[[int, int], None] = lambda *_: None,
) -> ScoreReport:
    """Make every part that is not there yet; the same call again resumes where a killed one stopped.

    `progress` hears how many of how many requests are done.
    """
    if rows < 1:
        raise InputError(f"a part needs at least one row, got {rows}")
    began = time.perf_counter()
    out = Path(job.out)
    plan = planned(job, source, rows).kept_in(out)
    left = plan.open_parts(out)
    before = {part.number for part in plan.parts} - {part.number for part in left}
    reports = {n: PartReport.read(out / plan.parts[n].name) for n in sorted(before)}
    done = sum(plan.parts[n].num_rows for n in before)
    made = 0
    for written in placed(scorer, job, left, placement):
        report = PartReport.from_dict(written)
        reports[report.number] = report
        done, made = done + plan.parts[report.number].num_rows, made + report.requests
        progress(done, plan.num_rows)
    in_order = [reports[n] for n in sorted(reports)]
    seconds = time.perf_counter() - began
    total = ScoreReport(
        out=job.out,
        parts=len(plan.parts),
        parts_before=len(before),
        requests=sum(r.requests for r in in_order),
        infeasible=sum(r.infeasible for r in in_order),
        bad=sum(r.bad for r in in_order),
        examples=tuple(example for r in in_order for example in r.examples)[:EXAMPLES],
        seconds=round(seconds, 2),
        requests_per_second=round(made / max(seconds, 1e-9), 1),
        megabytes_first=in_order[0].megabytes if in_order else 0.0,
        megabytes_most=max((r.megabytes for r in in_order), default=0.0),
        unread=tuple(sorted({name for r in in_order for name in r.unread})),
        missing=tuple(
            dict.fromkeys(
                name
                for r in in_order
                for name in r.missing
                if all(name in o.missing for o in in_order if o.requests)
            )
        ),
        notes=dict(sum((Counter(r.notes) for r in in_order), Counter())),
    )
    write_text(out / MANIFEST, json.dumps(total.to_dict(), indent=1, ensure_ascii=False) + "\n")
    return total


def planned(job: ScoringJob, source: Path, rows: int) -> Plan:
    """The parts of a source, and what the job is about: the model's fingerprint among it."""
    described = Path(job.model) / "config.json"
    if not described.is_file():
        raise DataError(f"{job.model} is not a model folder: it has no config.json")
    inner = source / "impressions.parquet"
    files = (inner,) if (source / "meta.json").is_file() and inner.is_file() else files_of(source)
    about = {
        "model": hashlib.sha256(described.read_bytes()).hexdigest()[:16],
        "source": str(source.absolute()),
        "files": fingerprint(files),
        "columns": dict(job.columns),
        "candidates": None if job.candidates is None else list(job.candidates),
        "k": job.k,
        "rows": rows,
    }
    return Plan(about, parts_of(files, rows))


def plain_candidates(path: Path, model: Path) -> tuple[Any, ...]:
    """Item ids of a file, one a line, in the type of the model's own."""
    from exactk.data.columns.vocabulary import Vocabulary

    if not path.is_file():
        raise DataError(f"{path}: there is no such file")
    try:
        names = [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: this is not UTF-8 text; save it as UTF-8") from error
    if not pa.types.is_integer(Vocabulary.load(model).item_ids.type):
        return tuple(names)
    wrong = next((name for name in names if not name.lstrip("-").isdigit()), None)
    if wrong is not None:
        raise DataError(f"{path}: the model's item ids are whole numbers, got {wrong!r}")
    return tuple(int(name) for name in names)


def scorer(job: ScoringJob) -> Work:
    """A loaded model that makes parts."""
    loaded = Scorer(job)
    return lambda part: loaded.score(part).to_dict()
