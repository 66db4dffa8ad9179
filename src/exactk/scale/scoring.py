"""Cards for the requests of one part of a job: read, decided, written as Parquet.

Knows no cluster: `score.py` runs it here or has Ray place it. The same part gives the same rows wherever it is made.
"""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from jaxtyping import Int64

from exactk.data.logs.request_rows import AskedColumns
from exactk.data.requests.request import Request, RequestTable
from exactk.data.table import combine
from exactk.errors import DataError, ExactKError, InfeasibleError, InputError, without_place
from exactk.problem.exact import cliques
from exactk.recommender import Recommender
from exactk.scale.plan import JobPart, facts_in, finished_parquet
from exactk.scale.reading import AT_ONCE, DamagedPartError, PartReader, ReadRequests

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

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, held: Mapping[str, Any]) -> PartReport:
        """The inverse of `to_dict`."""
        lists = ("examples", "unread", "missing")
        return cls(**{**held, **{name: tuple(held.get(name, ())) for name in lists}})

    @classmethod
    def read(cls, path: Path) -> PartReport:
        """From a finished part."""
        return cls.from_dict(facts_in(path))


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

    def score(self, part: JobPart) -> PartReport:
        """Make the part's file; a row that cannot be used is an error by file and row, or counted."""
        began = time.perf_counter()
        made: list[pa.Table] = []
        bad: list[dict[str, Any]] = []
        lost = 0
        reader = PartReader(self.asked, self.job.columns, self.job.candidates)
        try:
            for read in reader.read(part):
                table, reasons = self.of(read)
                made.append(table)
                bad += [{"file": part.file, "row": row, "reason": reason} for row, reason in reasons.items()]
                if bad and not self.job.skip_bad:
                    raise BadRowError(bad[0])
        except (DamagedPartError, pa.ArrowException, OSError) as error:
            cause = error.__cause__ or error
            reason = f"its {part.num_rows or 'unknown number of'} rows from there on cannot be read ({cause})"
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
            unread=tuple(sorted(reader.unread)),
            missing=reader.missing if len(table) else (),
            notes=reader.notes,
        )
        described = json.dumps(report.to_dict(), ensure_ascii=False)
        with finished_parquet(Path(self.job.out) / part.name, lambda: described) as write:
            write(table)
        return report

    def of(self, read: ReadRequests) -> tuple[pa.Table, dict[int, str]]:
        """Cards of what was read, and what is wrong with the rows that are not among them."""
        requests, answers = read.requests, Answers(len(read.requests))
        refused: dict[int, str] = {}
        fitted = self.recommender.fitted
        self._seen += len(requests)
        if self._seen > len(fitted.catalogue.items):
            fitted.builder.settle_titles(fitted.constraints)
        if isinstance(requests, RequestTable):
            first = 0
            for part in requests.parts(AT_ONCE):
                refused |= self._answer(part, answers, first)
                first += len(part)
        else:
            refused = self._ask(requests, answers, 0)
        reasons = read.reasons | {read.rows[place]: reason for place, reason in refused.items()}
        return self._table(read, answers, refused), dict(sorted(reasons.items()))

    def _answer(self, requests: RequestTable, answers: Answers, first: int) -> dict[int, str]:
        """All of them as one batch; where one cannot be used, each as if asked alone."""
        fitted = self.recommender.fitted
        try:
            batch = fitted.builder.batch(requests, fitted.constraints)
        except InputError:
            return self._ask(requests, answers, first)
        possible = cliques.exists(batch.requests())
        if not possible.any():
            return {}
        decision = self.recommender.decide(batch if possible.all() else batch.rows(possible))
        calibration = fitted.calibration
        limit = calibration(np.maximum(decision.bound, decision.logit))
        bound = np.where(np.isfinite(decision.bound), limit, np.nan)
        answers.put(first + np.flatnonzero(possible), decision.cards, calibration(decision.logit), bound)
        return {}

    def _ask(self, requests: Sequence[Request], answers: Answers, first: int) -> dict[int, str]:
        """Answer requests by the recommender's front door; returns why some of them are refused."""
        refused: dict[int, str] = {}
        found = self.recommender.recommend_many(requests, infeasible="return") if len(requests) else []
        for place, card in enumerate(found, first):
            if isinstance(card, InfeasibleError):
                answers.problem[place] = without_place(card)
            elif isinstance(card, ExactKError):
                refused[place] = without_place(card)
            else:
                at, bound = np.array([place]), card.bound if np.isfinite(card.bound) else np.nan
                answers.put(at, np.array([card.positions]), card.value, bound)
        return refused

    def _table(self, read: ReadRequests, answers: Answers, refused: Mapping[int, str]) -> pa.Table:
        """Positions to ids; requests without an id of their own are named by their row."""
        kept = [place for place in range(len(read.rows)) if place not in refused]
        names = [read.rows[place] if read.ids[place] is None else read.ids[place] for place in kept]
        users, cards = self._users_and_cards(read.requests, answers, kept)
        return pa.table(
            [
                pa.array([str(name) for name in names], pa.string()),
                users,
                cards,
                pa.array(answers.value[kept], from_pandas=True),
                pa.array(answers.bound[kept], from_pandas=True),
                pa.array([answers.problem[place] for place in kept], pa.string()),
            ],
            schema=self.schema,
        )

    def _users_and_cards(
        self, requests: Sequence[Request], answers: Answers, kept: Sequence[int]
    ) -> tuple[pa.Array, pa.Array]:
        """Columns of the places kept; what a refused row held need not fit their types."""
        user, card = self.schema.field("user_id").type, self.schema.field("card").type
        positions = answers.cards[kept]
        real = positions >= 0
        none = pa.array([answers.problem[place] is not None for place in kept], pa.bool_())
        offsets = pa.array(np.concatenate([[0], np.cumsum(real.sum(1))]), pa.int32())
        if isinstance(requests, RequestTable):
            starts = np.cumsum(requests.counts) - requests.counts
            items = requests.item_ids.take(pa.array((starts[kept][:, None] + positions)[real]))
            users = combine(requests.table["user_id"]).take(pa.array(kept, pa.int64()))
        else:
            chosen = [
                requests[place].candidates[p]
                for place, row in zip(kept, positions.tolist(), strict=True)
                for p in row
                if p >= 0
            ]
            items = pa.array(chosen, card.value_type)
            users = pa.array([requests[place].user_id for place in kept], user)
        return users.cast(user), pa.ListArray.from_arrays(offsets, items.cast(card.value_type), mask=none)


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
