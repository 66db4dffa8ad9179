"""Cards for a whole user base, or any number of requests: read, decided, written as Parquet, resumed after a kill.

Knows no cluster: `placed` makes a part here or has Ray make it. The same part gives the same rows wherever it is made.
"""

from __future__ import annotations

import hashlib
import json
import math
import resource
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from exactk.atomic import write_text
from exactk.data.logs.request_rows import AskedColumns
from exactk.data.requests import Request, RequestTable
from exactk.data.table import combine
from exactk.errors import DataError, ExactKError, InfeasibleError, InputError, without_place
from exactk.problem.batch import Batch
from exactk.problem.exact import cliques
from exactk.recommender import Recommender
from exactk.scale.cluster import HERE, Placement, placed
from exactk.scale.plan import (
    JobPart,
    Plan,
    facts_in,
    files_of,
    fingerprint,
    finished_parquet,
    parts_of,
    refuse_inside,
)
from exactk.scale.reading import AT_ONCE, DamagedPartError, PartReader, ReadRequests

ROWS = 1 << 16  # of a part
MANIFEST = "manifest.json"
EXAMPLES = 5  # bad rows named in a report
NO_CARD = "no valid card exists under the rules"


@dataclass(frozen=True)
class ScoringJob:
    """What every worker must know; plain values, so that they travel anywhere."""

    model: str
    out: str
    columns: Mapping[str, str] = field(default_factory=dict)
    candidates: tuple[Any, ...] | None = None  # for every user, where the rows name none
    k: int | None = None
    skip_bad: bool = False


@dataclass(frozen=True)
class PartReport:
    """What became of a part; kept in its file, so that a resumed job can add up."""

    number: int
    requests: int
    infeasible: int
    bad: int
    examples: tuple[dict[str, Any], ...]
    seconds: float
    megabytes: float  # resident memory of the process afterwards
    unread: tuple[str, ...] = ()  # names of the source that neither the model nor a rule reads
    missing: tuple[str, ...] = ()  # names the model reads and nobody sent
    notes: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, held: Mapping[str, Any]) -> PartReport:
        """What a worker told of a part, or the part's file."""
        lists = ("examples", "unread", "missing")
        return cls(**{**held, **{name: tuple(held.get(name, ())) for name in lists}})


class ScoredCard(NamedTuple):
    """A card as positions with its value and bound (NaN: unknown), or what kept it away."""

    positions: Sequence[int] = ()
    value: float = math.nan
    bound: float = math.nan
    problem: str | None = None


class Scorer:
    """A loaded model that makes parts."""

    def __init__(self, job: ScoringJob) -> None:
        self.job = job
        self.recommender = Recommender.load(job.model)
        fitted = self.recommender.fitted
        card_size = fitted.card_size if job.k is None else job.k
        self._seen = 0  # requests
        self.asked = AskedColumns.of(fitted.vocabulary, card_size, fitted.constraints.fields)
        self.schema = pa.schema(
            {
                "request_id": pa.string(),
                "user_id": combine(fitted.catalogue.users["user_id"]).type,
                "card": pa.list_(combine(fitted.catalogue.items["item_id"]).type),
                "value": pa.float64(),
                "bound": pa.float64(),
                "problem": pa.string(),
            }
        )

    def __call__(self, part: JobPart) -> dict[str, Any]:
        """Make the part's file and report on it; a row that cannot be used is an error by file and row, or counted."""
        began = time.perf_counter()
        tables: list[pa.Table] = []
        bad: list[dict[str, Any]] = []
        lost = 0
        reader = PartReader(self.asked, self.job.columns, self.job.candidates)
        try:
            for read in reader.read(part):
                table, reasons = self.of(read)
                tables.append(table)
                bad += [{"file": part.file, "row": row, "reason": reason} for row, reason in reasons.items()]
                if bad and not self.job.skip_bad:
                    raise BadRowError(bad[0])
        except (DamagedPartError, pa.ArrowException, OSError) as error:
            cause = error.__cause__ or error
            reason = f"its {part.num_rows or 'unknown number of'} rows from there on cannot be read ({cause})"
            problem = {"file": part.file, "row": part.first_row, "reason": reason}
            if not self.job.skip_bad:
                raise BadRowError(problem) from error
            tables, bad, lost = [], [problem], max(1, part.num_rows)
        table = pa.concat_tables(tables) if tables else self.schema.empty_table()
        report = PartReport(
            number=part.number,
            requests=len(table),
            infeasible=len(table) - table["problem"].null_count,
            bad=lost or len(bad),
            examples=tuple(bad[:EXAMPLES]),
            seconds=round(time.perf_counter() - began, 3),
            megabytes=round(resident_megabytes(), 1),
            unread=tuple(sorted(reader.unread)),
            missing=reader.missing if len(table) else (),
            notes=reader.notes,
        )
        facts = asdict(report)
        described = json.dumps(facts, ensure_ascii=False)
        with finished_parquet(Path(self.job.out) / part.name, lambda: described) as write:
            write(table)
        return facts

    def of(self, read: ReadRequests) -> tuple[pa.Table, dict[int, str]]:
        """Cards of what was read, and what is wrong with the rows that are not among them."""
        requests, fitted = read.requests, self.recommender.fitted
        self._seen += len(requests)
        if self._seen > len(fitted.catalogue.items):
            fitted.builder.settle_titles(fitted.constraints)
        parts = requests.parts(AT_ONCE) if isinstance(requests, RequestTable) else [requests]
        answers = [answer for part in parts for answer in self._answers(part)]
        refused = {row: why for row, why in zip(read.rows, answers, strict=True) if isinstance(why, str)}
        return self._table(read, answers), dict(sorted((read.reasons | refused).items()))

    def _answers(self, requests: Sequence[Request]) -> list[ScoredCard | str]:
        """A card for each, or why it is refused: all as one batch, or, where one cannot be used, each by itself."""
        fitted = self.recommender.fitted
        if isinstance(requests, RequestTable):
            try:
                batch = fitted.builder.batch(requests, fitted.constraints)
            except InputError:
                pass
            else:
                return self._together(batch)
        found = self.recommender.recommend_many(requests, infeasible="return") if len(requests) else []
        return [_alone(answer) for answer in found]

    def _together(self, batch: Batch) -> list[ScoredCard | str]:
        answers: list[ScoredCard | str] = [ScoredCard(problem=NO_CARD)] * len(batch)
        possible = cliques.exists(batch.requests())
        if not possible.any():
            return answers
        decision = self.recommender.decide(batch if possible.all() else batch.rows(possible))
        calibration = self.recommender.fitted.calibration
        limit = calibration(np.maximum(decision.bound, decision.logit))
        bound = np.where(np.isfinite(decision.bound), limit, np.nan)
        figures = np.stack([calibration(decision.logit), bound], 1).tolist()
        places = np.flatnonzero(possible).tolist()
        for place, card, numbers in zip(places, decision.cards.tolist(), figures, strict=True):
            answers[place] = ScoredCard([p for p in card if p >= 0], *numbers)
        return answers

    def _table(self, read: ReadRequests, answers: Sequence[ScoredCard | str]) -> pa.Table:
        """Positions to ids; requests without an id of their own are named by their row, those refused are left out."""
        kept = {place: answer for place, answer in enumerate(answers) if not isinstance(answer, str)}
        names = [read.rows[place] if read.ids[place] is None else read.ids[place] for place in kept]
        chosen = [(place, p) for place, answer in kept.items() for p in answer.positions]
        user, card = self.schema.field("user_id").type, self.schema.field("card").type
        requests = read.requests
        if isinstance(requests, RequestTable):
            starts = (np.cumsum(requests.counts) - requests.counts).tolist()
            items = requests.item_ids.take(pa.array([starts[place] + p for place, p in chosen], pa.int64()))
            users = combine(requests.table["user_id"]).take(pa.array(list(kept), pa.int64()))
        else:  # what a refused row held need not fit the types
            items = pa.array([requests[place].candidates[p] for place, p in chosen], card.value_type)
            users = pa.array([requests[place].user_id for place in kept], user)
        found = list(kept.values())
        offsets = pa.array([0, *accumulate(len(each.positions) for each in found)], pa.int32())
        none = pa.array([each.problem is not None for each in found], pa.bool_())
        columns = [
            pa.array([str(name) for name in names], pa.string()),
            users.cast(user),
            pa.ListArray.from_arrays(offsets, items.cast(card.value_type), mask=none),
            pa.array([each.value for each in found], pa.float64(), from_pandas=True),
            pa.array([each.bound for each in found], pa.float64(), from_pandas=True),
            pa.array([each.problem for each in found], pa.string()),
        ]
        return pa.table(columns, schema=self.schema)


def _alone(answer: Any) -> ScoredCard | str:
    """What the recommender's front door said of one request."""
    if isinstance(answer, InfeasibleError):
        return ScoredCard(problem=without_place(answer))
    if isinstance(answer, ExactKError):
        return without_place(answer)
    bound = answer.bound if math.isfinite(answer.bound) else math.nan
    return ScoredCard(answer.positions, answer.value, bound)


class BadRowError(DataError):
    """A row, or a whole part, that cannot be used; says where."""

    def __init__(self, problem: Mapping[str, Any]) -> None:
        super().__init__(
            f"{problem['file']}: row {problem['row']}: {problem['reason']}; "
            "correct it, or count and leave out such rows (skip_bad=True)"
        )


def resident_megabytes() -> float:
    """Memory of this process that is in use now."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * 4096 / 2**20
    except FileNotFoundError:  # macOS tells the most there ever was
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


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
    reports = {n: PartReport.from_dict(facts_in(out / plan.parts[n].name)) for n in sorted(before)}
    done = sum(plan.parts[n].num_rows for n in before)
    answered = 0
    for written in placed(Scorer, job, left, placement):
        report = PartReport.from_dict(written)
        reports[report.number] = report
        done, answered = done + plan.parts[report.number].num_rows, answered + report.requests
        progress(done, plan.num_rows)
    in_order = [reports[n] for n in sorted(reports)]
    never_sent = set.intersection(*[{*r.missing} for r in in_order if r.requests] or [set()])
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
        requests_per_second=round(answered / max(seconds, 1e-9), 1),
        megabytes_first=in_order[0].megabytes if in_order else 0.0,
        megabytes_most=max((r.megabytes for r in in_order), default=0.0),
        unread=tuple(sorted({name for r in in_order for name in r.unread})),
        missing=tuple(dict.fromkeys(name for r in in_order for name in r.missing if name in never_sent)),
        notes=dict(sum((Counter(r.notes) for r in in_order), Counter())),
    )
    write_text(out / MANIFEST, json.dumps(total.to_dict(), indent=1, ensure_ascii=False) + "\n")
    return total


def planned(job: ScoringJob, source: Path, rows: int) -> Plan:
    """The parts of a source, and what the job is about: the model's fingerprint among it."""
    described = Path(job.model) / "config.json"
    if not described.is_file():
        raise DataError(f"{job.model} is not a model folder: it has no config.json")
    refuse_inside(Path(job.out), source)
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
