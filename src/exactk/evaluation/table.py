"""From scores request by request to one table: means with intervals, who beats whom and how surely, in figures.

Knows no model and no file; `verdict.py` puts it in words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from exactk.data.assemble import padded
from exactk.data.dataset import Dataset
from exactk.evaluation import metrics, offpolicy
from exactk.evaluation.click_models import weighed_hits
from exactk.evaluation.judging import Scores
from exactk.evaluation.significance import Interval, bootstrap_interval, holm, paired_permutation

SEED = 7
HEADLINES = {
    "value": "true value",
    "precision": "clicked item on the card",
    "whole_card": "whole card recovered",
    "hit_ratio": "overlap with the logged card",
}


@dataclass(frozen=True)
class Entry:
    """A way to pick cards as it came out of the jobs: scores of every seed, or the reason there are none."""

    method: str
    way: str
    kind: str  # "ours", "yours", "rival" or "probe"
    scores: tuple[Scores, ...] = ()
    train_seconds: float = float("nan")
    chosen: Mapping[str, Any] = field(default_factory=dict)
    reason: str = ""

    def mean(self, name: str) -> Float[np.ndarray, "R"]:
        """A per-request score averaged over the seeds."""
        return np.asarray(np.mean([getattr(s, name) for s in self.scores], axis=0))

    def number(self, name: str) -> float:
        """A figure of the whole run, averaged over the seeds."""
        return float(np.mean([getattr(s, name) for s in self.scores]))


@dataclass(frozen=True)
class Logged:
    """What the log says of the judged requests: who asked, what was shown, was it clicked, how likely was it."""

    user: Int[np.ndarray, "R"]
    card: Int[np.ndarray, "R K"]
    clicked: Bool[np.ndarray, "R"]
    propensity: Float[np.ndarray, "R"]
    num_left_out: int = 0  # requests without any valid card
    examined: Float[np.ndarray, "R"] | None = None  # how likely the clicked place was looked at, NaN unknown

    @classmethod
    def of(cls, view: Dataset, num_left_out: int = 0) -> Logged:
        index, rows = view.folder.index, view.rows
        longest = (index.card_start[rows + 1] - index.card_start[rows]).max(initial=1)
        return cls(
            user=index.user[rows].astype(np.int64),
            card=padded(rows, index.card_start, index.card, int(longest)),
            clicked=index.clicked[rows],
            propensity=index.propensity[rows].astype(np.float32).astype(np.float64),  # as batches have it
            num_left_out=num_left_out,
        )

    def estimates(
        self,
        cards: Int[np.ndarray, "R L"],
        rng: np.random.Generator,
        opinions: offpolicy.Opinions | None = None,
    ) -> Mapping[str, offpolicy.Estimate]:
        """What these cards would have earned, as the log lets one say."""
        by = offpolicy.Resampling(rng, self.user)
        return offpolicy.estimate_value(cards, self.card, self.clicked, self.propensity, by, opinions)


@dataclass(frozen=True)
class Row:
    """One line of the table. Intervals are 95%, resampled by user; None where the data cannot say."""

    method: str
    way: str
    kind: str
    precision: Interval | None
    hit_ratio: Interval | None
    whole_card: Interval | None
    weighed: float | None  # clicked item, clicks weighed by 1 / how likely their place was looked at
    value: Interval | None
    share_of_optimum: Interval | None
    regret: float | None
    estimates: Mapping[str, offpolicy.Estimate]
    valid_rate: float
    diversity: float | None
    coverage: float
    ms_per_card: float
    ms_alone: float
    train_seconds: float
    difference: Interval | None = None  # headline minus the strongest rival's, request by request
    p_value: float | None = None
    p_adjusted: float | None = None  # Holm, over all rows tested
    chosen: Mapping[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values; NaN becomes null."""
        document: dict[str, Any] = {}
        for name, value in vars(self).items():
            if isinstance(value, Interval):
                document[name] = value._asdict()
            elif name == "estimates":
                document[name] = {kind: estimate.as_dict() for kind, estimate in self.estimates.items()}
            elif isinstance(value, float) and np.isnan(value):
                document[name] = None
            else:
                document[name] = dict(value) if isinstance(value, Mapping) else value
        return document


@dataclass(frozen=True, repr=False)
class Comparison:
    """The answer: rows best first, what was skipped and why, the headline metric and the strongest rival."""

    rows: tuple[Row, ...]
    skipped: Mapping[str, str]
    headline: str
    strongest_rival: str | None
    optimum: float | None
    facts: Mapping[str, Any]
    seeds: tuple[int, ...]

    @property
    def served(self) -> list[Row]:
        """The rows that somebody could serve: no probe."""
        return [row for row in self.rows if row.kind != "probe"]

    def row(self, way: str) -> Row:
        """One way's line."""
        return next(row for row in self.rows if row.way == way)

    def headline_of(self, row: Row) -> Interval:
        """The figure the table is ordered by."""
        interval: Interval | None = getattr(row, self.headline)
        return interval or Interval(np.nan, np.nan, np.nan)

    def __str__(self) -> str:
        """The table and the verdict, as `exactk compare` prints them."""
        from exactk.evaluation.verdict import markdown

        return markdown(self)

    __repr__ = __str__

    def _repr_markdown_(self) -> str:
        return str(self)

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values, rows in the order of the table."""
        from exactk.evaluation.verdict import verdict

        return {
            "name": "compare",
            "rows": [row.as_dict() for row in self.rows],
            "skipped": dict(self.skipped),
            "headline": self.headline,
            "strongest_rival": self.strongest_rival,
            "optimum": self.optimum,
            "facts": dict(self.facts),
            "seeds": list(self.seeds),
            "verdict": verdict(self),
        }


def compared(
    entries: Sequence[Entry],
    logged: Logged,
    optimum: Float[np.ndarray, "R"] | None,
    facts: Mapping[str, Any],
    seeds: Sequence[int],
    models: Mapping[str, offpolicy.Opinions] | None = None,
) -> Comparison:
    """Means, intervals and paired tests; every row from the same random stream: equal scores, equal intervals.

    `models` are a value model's opinions (of the logged card, of the way's card), by way, for doubly robust estimates.
    """
    present = [entry for entry in entries if entry.scores]
    headline = _headline(present, optimum)
    averages = {entry.way: entry.mean(headline) for entry in present}
    rivals = [entry.way for entry in present if entry.kind == "rival"]
    strongest = max(rivals, key=lambda way: metrics.mean(averages[way]), default=None)
    tests = {
        way: _against(averages[way], averages[strongest], logged.user)
        for way in averages
        if strongest is not None and way != strongest
    }
    adjusted = dict(zip(tests, holm(np.array([p for _, p in tests.values()])), strict=True)) if tests else {}
    rows = []
    for entry in present:
        difference, p_value = tests.get(entry.way, (None, None))
        row = _row(entry, logged, optimum, (models or {}).get(entry.way))
        p_adjusted = float(adjusted[entry.way]) if entry.way in adjusted else None
        rows.append(replace(row, difference=difference, p_value=p_value, p_adjusted=p_adjusted))

    def best_first(row: Row) -> float:
        interval: Interval | None = getattr(row, headline)
        return np.inf if interval is None or np.isnan(interval.estimate) else -interval.estimate

    return Comparison(
        rows=tuple(sorted(rows, key=best_first)),
        skipped={entry.way: entry.reason for entry in entries if not entry.scores},
        headline=headline,
        strongest_rival=strongest,
        optimum=float(optimum.mean()) if optimum is not None and len(optimum) else None,
        facts={
            **facts,
            "judged": len(logged.user),
            "without_valid_card": logged.num_left_out,
            "same_cards": _same_cards(present),
        },
        seeds=tuple(seeds),
    )


def _same_cards(entries: Sequence[Entry]) -> list[list[str]]:
    """Groups of methods that chose the very same cards, request by request."""
    found: dict[bytes, list[str]] = {}
    for entry in entries:
        chosen = b"".join(np.sort(scores.cards, axis=1).tobytes() for scores in entry.scores)
        found.setdefault(chosen, []).append(entry.method)
    groups = (list(dict.fromkeys(methods)) for methods in found.values())
    return [methods for methods in groups if len(methods) > 1]


def _headline(entries: Sequence[Entry], optimum: np.ndarray | None) -> str:
    """True value where it is known, else the clicked item, else (no item was clicked by name) the whole card."""
    if optimum is not None:
        return "value"
    for name in ("precision", "whole_card"):
        if any(not np.isnan(entry.mean(name)).all() for entry in entries):
            return name
    return "hit_ratio"


def _against(
    ours: Float[np.ndarray, "R"], theirs: Float[np.ndarray, "R"], user: Int[np.ndarray, "R"]
) -> tuple[Interval, float]:
    """The paired difference with its interval, and the p-value of no difference."""
    rng = np.random.default_rng(SEED)
    return bootstrap_interval(ours - theirs, rng, groups=user), paired_permutation(ours, theirs, rng, user)


def _row(
    entry: Entry, logged: Logged, optimum: Float[np.ndarray, "R"] | None, opinions: offpolicy.Opinions | None
) -> Row:
    """All that is known of a way by itself."""
    rng = np.random.default_rng(SEED)
    value = entry.mean("value")
    diversity = metrics.mean(entry.mean("diversity"))
    estimates = logged.estimates(entry.scores[0].cards, rng, opinions)

    def interval(
        values: Float[np.ndarray, "R"], over: Float[np.ndarray, "R"] | None = None
    ) -> Interval | None:
        unknown = np.isnan(values).all()
        return None if unknown else bootstrap_interval(values, rng, over=over, groups=logged.user)

    return Row(
        method=entry.method,
        way=entry.way,
        kind=entry.kind,
        precision=interval(entry.mean("precision")),
        hit_ratio=interval(entry.mean("hit_ratio")),
        whole_card=interval(entry.mean("whole_card")),
        weighed=_weighed(entry.mean("precision"), logged.examined),
        value=None if optimum is None else interval(value),
        share_of_optimum=None if optimum is None else interval(value, optimum),
        regret=None if optimum is None else metrics.mean(optimum - value),
        estimates=estimates,
        valid_rate=metrics.mean(entry.mean("valid")),
        diversity=None if np.isnan(diversity) else diversity,
        coverage=entry.number("coverage"),
        ms_per_card=entry.number("ms_per_card"),
        ms_alone=entry.number("ms_alone"),
        train_seconds=entry.train_seconds,
        chosen=entry.chosen,
    )


def _weighed(precision: Float[np.ndarray, "R"], examined: Float[np.ndarray, "R"] | None) -> float | None:
    if examined is None:
        return None
    known = ~np.isnan(precision) & ~np.isnan(examined)
    share = weighed_hits(precision[known], examined[known])[0]
    return None if np.isnan(share) else share
