"""Cards for the requests of one part of a job: read, decided, written as Parquet.

Knows no cluster: `score.py` runs it here or has Ray place it. The same part gives the same rows wherever it is made.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Int64

from exactk.data.requests import Request
from exactk.data.table import combine
from exactk.errors import DataError, ExactKError, InfeasibleError
from exactk.problem.batch import Batch
from exactk.problem.exact import cliques
from exactk.recommender import Recommender
from exactk.scale.plan import JobPart, finished_parquet
from exactk.scale.reading import Lines, lines, tables
from exactk.scale.requests import RequestTables, canonical_ids

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

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, held: Mapping[str, Any]) -> PartReport:
        """The inverse of `to_dict`."""
        return cls(**{**held, "examples": tuple(held["examples"])})

    @classmethod
    def read(cls, path: Path) -> PartReport:
        """From a finished part."""
        return cls.from_dict(json.loads((pq.read_metadata(path).metadata or {})[b"exactk"]))


class Answers:
    """Cards as positions, -1 beyond a card's size, with values and bounds (NaN: unknown) and what kept a card away."""

    def __init__(self, count: int) -> None:
        self.cards = np.full((count, 1), -1, np.int64)
        self.value, self.bound = np.full((2, count), np.nan)
        self.problem: list[str | None] = [NO_CARD] * count

    def put(self, at: Int64[np.ndarray, "Q"], cards: np.ndarray, value: Any, bound: Any) -> None:
        """Cards of the requests at these places."""
        wider = cards.shape[1] - self.cards.shape[1]
        if wider > 0:
            self.cards = np.pad(self.cards, ((0, 0), (0, wider)), constant_values=-1)
        self.cards[at, : cards.shape[1]] = cards
        self.value[at], self.bound[at] = value, bound
        for place in at.tolist():
            self.problem[place] = None


class Scorer:
    """A loaded model and its decoder; `score` makes one part."""

    def __init__(self, job: ScoringJob) -> None:
        self.job = job
        self.recommender = Recommender.load(job.model)
        fitted = self.recommender.fitted
        self.tables = RequestTables.of(fitted, Path(job.model))
        self.decide = self.recommender.decide
        self.seen = 0
        self.card_size = fitted.card_size if job.k is None else job.k
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

    def score(self, part: JobPart) -> PartReport:
        """Make the part's file; a row that cannot be used is an error by file and row, or counted."""
        began = time.perf_counter()
        made: list[pa.Table] = []
        bad: list[dict[str, Any]] = []
        lost = 0
        try:
            for table, reasons in self._answered(part):
                made.append(table)
                bad += [{"file": part.file, "row": row, "reason": reason} for row, reason in reasons.items()]
                if bad and not self.job.skip_bad:
                    raise BadRowError(bad[0])
        except (pa.ArrowException, OSError) as error:
            reason = f"its {part.num_rows or 'unknown number of'} rows from there on cannot be read ({error})"
            problem = {"file": part.file, "row": part.first_row, "reason": reason}
            if not self.job.skip_bad:
                raise BadRowError(problem) from error
            made, bad, lost = [], [problem], max(1, part.num_rows)
        table = pa.concat_tables(made) if made else self.schema.empty_table()
        report = PartReport(
            number=part.number,
            requests=len(table),
            infeasible=len(table) - table["problem"].null_count,
            bad=lost or len(bad),
            examples=tuple(bad[:EXAMPLES]),
            seconds=round(time.perf_counter() - began, 3),
            megabytes=round(resident_megabytes(), 1),
        )
        described = json.dumps(report.to_dict(), ensure_ascii=False)
        with finished_parquet(Path(self.job.out) / part.name, lambda: described) as write:
            write(table)
        return report

    def _answered(self, part: JobPart) -> Iterator[tuple[pa.Table, dict[int, str]]]:
        """Pieces of a part's result, and what is wrong with the rows that are not in it."""
        job = self.job
        if part.file.endswith(".parquet"):
            for first_row, table in tables(part, job.columns):
                try:
                    yield self.of_table(table, first_row)
                except DataError as error:
                    raise DataError(f"{part.file}: rows from {first_row} on: {error}") from error
        else:
            for read in lines(part, job.columns, self.card_size, job.candidates):
                yield self.of_lines(read)

    def of_table(self, table: pa.Table, first_row: int) -> tuple[pa.Table, dict[int, str]]:
        """Cards of the rows of a table, and what is wrong with the others."""
        table = self._completed(table)
        asked_sizes = self._sizes(table)
        asked = self.tables.sound(table, asked_sizes)
        reasons = {first_row + row: reason for row, reason in asked.reasons.items()}
        if not len(asked.rows):
            return self.schema.empty_table(), dict(sorted(reasons.items()))
        sound, sizes = table.take(pa.array(asked.rows)), asked_sizes[asked.rows]
        row = self.tables.places(combine(sound["candidates"]))
        long_way = self.tables.needs_long_way(row)
        self.seen += len(sound)
        if self.tables.precomputed is None and self.seen > len(self.tables.item_index):
            self.tables = self.tables.with_precomputed_rules()
        answers = Answers(len(sound))
        quick = np.flatnonzero(~long_way)
        if len(quick):
            users, lists = (combine(sound[name]).take(pa.array(quick)) for name in ("user_id", "candidates"))
            self._decide(self.tables.batch(users, lists, row[quick], sizes[quick]), answers, quick)
        requests = {
            place: Request(
                sound["user_id"][place].as_py(), tuple(sound["candidates"][place].as_py()), int(sizes[place])
            )
            for place in np.flatnonzero(long_way).tolist()
        }
        refused = self._ask(requests, answers)
        rows = asked.rows + first_row
        reasons |= {int(rows[place]): reason for place, reason in refused.items()}
        return self._table(sound, answers, rows, refused), dict(sorted(reasons.items()))

    def of_lines(self, read: Lines) -> tuple[pa.Table, dict[int, str]]:
        """JSON lines go the long way: each may bring items, features, pins and bans of its own."""
        answers = Answers(len(read.requests))
        refused = self._ask(dict(enumerate(read.requests)), answers)
        reasons = read.reasons | {read.rows[place]: reason for place, reason in refused.items()}
        kept = [place for place in range(len(read.requests)) if place not in refused]
        ids = [read.ids[p] if read.ids[p] is not None else str(read.rows[p]) for p in range(len(read.rows))]
        columns = {
            "request_id": pa.array(ids, pa.string()),
            "user_id": _typed([r.user_id for r in read.requests], kept, self.schema.field("user_id").type),
            "candidates": _typed([r.candidates for r in read.requests], kept, self.schema.field("card").type),
        }
        table = self._table(pa.table(columns), answers, np.array(read.rows, np.int64), refused)
        return table, dict(sorted(reasons.items()))

    def _ask(self, requests: Mapping[int, Request], answers: Answers) -> dict[int, str]:
        """Answer requests by the recommender's front door; returns why some of them are refused."""
        refused: dict[int, str] = {}
        asked = list(requests.values())
        found = self.recommender.recommend_many(asked, infeasible="return") if asked else []
        for place, card in zip(requests, found, strict=True):
            if isinstance(card, InfeasibleError):
                answers.problem[place] = str(card)
            elif isinstance(card, ExactKError):
                refused[place] = str(card)
            else:
                at, bound = np.array([place]), card.bound if np.isfinite(card.bound) else np.nan
                answers.put(at, np.array([card.positions]), card.value, bound)
        return refused

    def _decide(self, batch: Batch, answers: Answers, at: Int64[np.ndarray, "Q"]) -> None:
        possible = cliques.exists(batch.requests())
        if not possible.any():
            return
        rows = batch if possible.all() else batch.rows(possible)
        decision = self.decide(rows)
        calibration = self.recommender.fitted.calibration
        limit = calibration(np.maximum(decision.bound, decision.logit))
        bound = np.where(np.isfinite(decision.bound), limit, np.nan)
        value = calibration(decision.logit)
        answers.put(at[possible], decision.cards, value, bound)

    def _completed(self, table: pa.Table) -> pa.Table:
        """Ids in the types models know; the job's candidates where the rows name none."""
        if "user_id" not in table.column_names:
            raise DataError("there is no column 'user_id'; say which one it is (columns={\"user_id\": ...})")
        if "candidates" not in table.column_names:
            if self.job.candidates is None:
                raise DataError("there is no column 'candidates', and no list was given for all users")
            same = pa.array([list(self.job.candidates)]).take(pa.array(np.zeros(len(table), np.int64)))
            table = table.append_column("candidates", same)
        for name in ("user_id", "candidates"):
            table = table.set_column(table.column_names.index(name), name, canonical_ids(table[name]))
        return table

    def _sizes(self, table: pa.Table) -> Int64[np.ndarray, "R"]:
        if self.job.k is None and "k" in table.column_names:
            return np.asarray(combine(table["k"]).fill_null(self.card_size).to_numpy(), np.int64)
        return np.full(len(table), self.card_size, np.int64)

    def _table(
        self, sound: pa.Table, answers: Answers, rows: Int64[np.ndarray, "R"], refused: Mapping[int, str]
    ) -> pa.Table:
        """Positions to ids; requests without an id of their own are named by their row."""
        lists = combine(sound["candidates"])
        real = answers.cards >= 0
        taken = (lists.offsets.to_numpy()[:-1, None] + answers.cards)[real]
        card = self.schema.field("card").type
        offsets = pa.array(np.concatenate([[0], np.cumsum(real.sum(1))]), pa.int32())
        none = pa.array([problem is not None for problem in answers.problem], pa.bool_())
        own = "request_id" in sound.column_names
        made = pa.table(
            [
                (combine(sound["request_id"]) if own else pa.array(rows)).cast(pa.string()),
                combine(sound["user_id"]).cast(self.schema.field("user_id").type),
                pa.ListArray.from_arrays(
                    offsets, lists.values.take(pa.array(taken)).cast(card.value_type), mask=none
                ),
                pa.array(answers.value, from_pandas=True),
                pa.array(answers.bound, from_pandas=True),
                pa.array(answers.problem, pa.string()),
            ],
            schema=self.schema,
        )
        kept = [place for place in range(len(made)) if place not in refused] if refused else None
        return made if kept is None else made.take(pa.array(kept, pa.int64()))


class BadRowError(DataError):
    """A row, or a whole part, that cannot be used; says where."""

    def __init__(self, problem: Mapping[str, Any]) -> None:
        super().__init__(
            f"{problem['file']}: row {problem['row']}: {problem['reason']}; "
            "mend it, or have such rows counted and left out (skip_bad=True)"
        )


def _typed(values: Sequence[Any], kept: Sequence[int], kind: pa.DataType) -> pa.Array:
    """Values of the rows that were answered; what a refused row held need not fit the type."""
    sound = set(kept)
    empty: Any = [] if pa.types.is_list(kind) else None
    return pa.array([value if p in sound else empty for p, value in enumerate(values)], kind)


def resident_megabytes() -> float:
    """Memory of this process that is in use now."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 2**20
