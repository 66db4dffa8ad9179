"""`exactk.solve`: scores and rules in, the best valid card out, proven. No model needed.

Knows nothing of learning; reading lives in `problem/reading.py`, searching in `problem/cliques.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, Unpack, overload

import numpy as np
from jaxtyping import Float64

from exactk.errors import ConfigError, ExactKError, InfeasibleError, InputError, OutOfTimeError
from exactk.problem.brief import Brief, breaks, card_worth
from exactk.problem.deadline import Deadline
from exactk.problem.exact.cliques import PairWeights, Ranking, any_card, arranged, best_n
from exactk.problem.given import Wishes
from exactk.problem.graph import Requests
from exactk.problem.reading import (
    CandidateTable,
    CardSize,
    Matrices,
    Matrix,
    Part,
    Scores,
    ScoresOfMany,
    SolveOptions,
    card_count,
    card_sizes,
    check_scores,
    checked_pair_scores,
    matrices,
    padded,
    read,
    relax_order,
    seconds_of,
    wishes_of,
)
from exactk.problem.rules import explain as explaining
from exactk.problem.rules.columns import RequestError
from exactk.problem.rules.counting import Prefer
from exactk.problem.rules.explain import WhyNot
from exactk.problem.rules.pairs import Allowed, Rule
from exactk.problem.rules.rule_set import Constraints
from exactk.problem.rules.sheet import CardRules, RuleSheet, best_under_card_rules

PAIRS_AT_ONCE = 2**23  # a batch is solved in parts, so that its padded pair scores stay below 64 MiB


class Broken(NamedTuple):
    """A preference that a card breaks: how often, and what that costs."""

    rule: str
    times: int
    cost: float


@dataclass(frozen=True)
class Card:
    """Exactly k items that keep every rule.

    A card is a set: its items come in the order in which you offered them, or, with `Slots`, by their places.

    No valid card is worth more than `bound`; this is proven. `optimal`: `value` reaches it. `relaxed` names the
    rules that were dropped. `broken` names the preferences that the card breaks, how often, and the cost, which is
    already subtracted in `value`. `reasons` say why each other candidate is not on the card (with `explain=True`).
    """

    items: tuple[Any, ...]
    positions: tuple[int, ...]
    value: float
    bound: float
    optimal: bool
    relaxed: tuple[str, ...] = ()
    request_id: Any = None
    reasons: tuple[WhyNot, ...] = ()
    broken: tuple[Broken, ...] = ()

    @property
    def gap(self) -> float:
        """How much more the best card could be worth at most; 0 where optimal."""
        return self.bound - self.value

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON; `reasons` and `broken` only where there are any."""
        plain = {
            "items": list(self.items),
            "positions": list(self.positions),
            "value": self.value
            if math.isfinite(self.value)
            else None,  # a policy without a reward knows none
            "bound": self.bound if math.isfinite(self.bound) else None,
            "gap": self.gap if math.isfinite(self.gap) else None,
            "optimal": self.optimal,
            "relaxed": list(self.relaxed),
        }
        reasons = {"reasons": [reason.as_dict() for reason in self.reasons]} if self.reasons else {}
        broken = {"broken": [one._asdict() for one in self.broken]} if self.broken else {}
        return plain | broken | reasons


@dataclass(frozen=True)
class Job:
    """One call of `solve`: what was asked, and how it is to be answered."""

    asked: CandidateTable
    sizes: np.ndarray
    rules: Constraints
    pairs: Any
    graphs: Any
    include: Wishes
    exclude: Wishes
    relax: tuple[Any, ...]
    explain: bool
    time_limit: float | None
    deadline: Deadline
    n: int
    infeasible: str

    def search_limit(self, num_requests: int) -> float | None:
        """Seconds each of so many requests may be searched: some of the time is kept for what follows the search."""
        if self.time_limit is None:
            return None
        share = 0.5 if self.explain or self.relax else 0.9
        return share * min(self.time_limit, self.deadline.left / num_requests)

    def deadline_of_one(self) -> Deadline:
        """By when the request now taken up must be answered."""
        return Deadline(min(self.deadline.ends, Deadline.after(self.time_limit).ends))

    def part(self, here: slice) -> Part:
        """Some of the requests, side by side."""
        scores, asked = self.asked.part(here, self.sizes)
        include, exclude = self.include and self.include[here], self.exclude and self.exclude[here]
        return Part(scores, asked._replace(include=include, exclude=exclude))

    def rules_of(self, here: slice, num_candidates: int) -> Constraints:
        """The rules, with the allowed matrices of some requests as one rule more."""
        if self.graphs is None:
            return self.rules
        return self.rules & Allowed(padded(self.graphs[here], num_candidates))

    def where(self, b: int) -> str:
        """How messages about a request begin."""
        return "" if self.asked.single else f"{self.asked.name(b)}: "


@dataclass(frozen=True)
class Found:
    """One request of a call (the b-th), under which rules it was searched, and what was found."""

    job: Job
    b: int
    part: Part
    rules: Constraints
    requests: Requests
    pairs: Float64[np.ndarray, "N N"] | None
    ranking: Ranking
    relaxed: tuple[str, ...] = ()

    @property
    def any(self) -> bool:
        """Whether there is a card."""
        return bool(self.ranking.num_found[0])

    def sheet(self, deadline: Deadline) -> RuleSheet:
        """The request laid open, rule by rule."""
        rules = self.job.rules_of(slice(self.b, self.b + 1), self.part.scores.shape[1])
        return RuleSheet.of(rules, self.part.asked, deadline)


@overload
def solve(
    scores: ScoresOfMany,
    k: CardSize | Sequence[int],
    pair_scores: Matrices | None = None,
    *,
    infeasible: Literal["raise"] = "raise",
    **options: Unpack[SolveOptions],
) -> tuple[Card, ...]: ...


@overload
def solve(
    scores: ScoresOfMany,
    k: CardSize | Sequence[int],
    pair_scores: Matrices | None = None,
    *,
    infeasible: Literal["return"],
    **options: Unpack[SolveOptions],
) -> tuple[Card | ExactKError, ...]: ...


@overload
def solve(
    scores: Scores,
    k: CardSize,
    pair_scores: Matrix | None = None,
    *,
    infeasible: Literal["raise"] = "raise",
    **options: Unpack[SolveOptions],
) -> Card: ...


@overload
def solve(
    scores: Scores,
    k: CardSize,
    pair_scores: Matrix | None = None,
    *,
    infeasible: Literal["return"],
    **options: Unpack[SolveOptions],
) -> Card | ExactKError: ...


@overload
def solve(
    scores: Any,  # with items the type of the answer depends on whether they have a `request_id`
    k: Any,
    pair_scores: Matrices | None = None,
    *,
    items: Any = None,
    n: int = 1,
    infeasible: Literal["raise", "return"] = "raise",
    **options: Unpack[SolveOptions],
) -> Any: ...


def solve(
    scores: Any,
    k: Any,
    pair_scores: Any = None,
    *,
    constraints: Any = None,
    items: Any = None,
    allowed: Any = None,
    include: Any = (),
    exclude: Any = (),
    relax: Any = (),
    explain: bool = False,
    time_limit: int | float | None = None,
    n: int = 1,
    infeasible: Literal["raise", "return"] = "raise",
) -> Any:
    """Find the card of k candidates with the largest sum of scores (and pair scores) that keeps all rules.

    For one request, give N scores, or the name of a column of `items`; the result is a `Card`. For a batch, give [B, N]
    scores, or items with a column `request_id`; the result is a tuple of cards. With n > 1 you get a tuple of the n
    best cards, best first, in the place of each card.

    items:       the columns that rules read: a pandas, polars or Arrow frame, a mapping of columns, or a list of rows;
                 `item_id` names the candidates (without it, their positions do)
    constraints: the rules: `TitleDistance(0.5) & Distinct("brand")`
    pair_scores: an [N, N] matrix (for a batch [B, N, N]): what two items together add to the value of a card
    allowed:     an [N, N] matrix: True where two candidates may share a card
    include:     ids that must be on the card; for a batch one list per request (or by request id)
    exclude:     ids that must not be on the card
    relax:       rules (or their names or types) that may be dropped, in this order, if no card exists otherwise
    explain:     also say why each other candidate is not on the card
    time_limit:  seconds per request for the whole answer. After that you get the best card so far, with its bound, and
                 reasons that say what was not finished; or an OutOfTimeError if there is no card yet
    infeasible:  "return" puts the InfeasibleError (or OutOfTimeError) in the place of the card instead of raising it.
                 In a batch it does so with the InputError of a bad request, too, and the others get their cards
    """
    limit = seconds_of(time_limit)
    rules = Constraints.of(constraints)
    if infeasible not in ("raise", "return"):
        raise ConfigError(f'infeasible must be "raise" or "return", got {infeasible!r}')
    sees_everything = any(isinstance(rule, Rule) and not rule.fields for rule in rules.rules)
    asked = read(scores, items, None if sees_everything else rules.fields)
    job = Job(
        asked=asked,
        sizes=card_sizes(k, len(asked)),
        rules=rules,
        pairs=matrices(pair_scores, "pair_scores", asked),
        graphs=matrices(allowed, "allowed", asked),
        include=wishes_of(include, "include", asked),
        exclude=wishes_of(exclude, "exclude", asked),
        relax=relax_order(relax),
        explain=bool(explain),
        time_limit=limit,
        deadline=Deadline.after(None if limit is None else limit * len(asked)),
        n=card_count(n),
        infeasible=infeasible,
    )
    at_once = max(1, PAIRS_AT_ONCE // asked.rows.shape[1] ** 2)
    answers: list[Any] = []
    for start in range(0, len(asked), at_once):
        answers += _solve_part(job, start, min(start + at_once, len(asked)))
    return answers[0] if asked.single else tuple(answers)


def _solve_part(job: Job, start: int, stop: int) -> list[Any]:
    """The requests start..stop-1, searched side by side."""
    here = slice(start, stop)
    part = job.part(here)
    N = part.scores.shape[1]
    try:
        check_scores(part)
        rules = job.rules_of(here, N)
        explaining.check_relaxable(rules, job.relax)
        requests = rules.requests(part.asked, job.deadline)
        pairs = None if job.pairs is None else checked_pair_scores(job.pairs[here], N)
        ranking = _ranked(job, part, requests, pairs, rules.whole)
    except (RequestError, OutOfTimeError) as error:
        if stop - start > 1 and job.infeasible == "return":  # by halves, until those at fault stand alone
            half = (start + stop) // 2
            return _solve_part(job, start, half) + _solve_part(job, half, stop)
        return [_refused_part(job, start, error)]
    answers = []
    for b in range(stop - start):
        of_one = Ranking(*(array[b : b + 1] for array in ranking))
        pair = None if pairs is None else pairs[b]
        found = Found(job, start + b, part.one(b), job.rules, requests.one(b), pair, of_one)
        try:
            answers.append(_answer(found))
        except (InfeasibleError, OutOfTimeError) as error:
            answers.append(_refused(job, error))
    return answers


def _refused_part(job: Job, start: int, error: RequestError | OutOfTimeError) -> ExactKError:
    """What a request that cannot be used gets: its error returned where that was asked for, else raised."""
    if isinstance(error, RequestError):
        named = InputError(f"{job.asked.name(start + error.request)}: {error.reason}")
        if job.infeasible == "raise" or job.asked.single:
            raise named from None
        return named
    return _refused(job, OutOfTimeError(f"{job.where(start)}{error}"))


def _refused(job: Job, error: ExactKError) -> ExactKError:
    if job.infeasible == "raise":
        raise error
    return error


def _ranked(
    job: Job, part: Part, requests: Requests, pairs: PairWeights | None, whole: tuple[Rule, ...]
) -> Ranking:
    limit = job.search_limit(len(requests))
    if not whole:
        return best_n(requests, part.scores, pairs, job.n, limit)
    asked = CardRules(whole, part.asked.columns)
    return best_under_card_rules(requests, part.scores, pairs, asked, job.n, limit)


def _answer(found: Found) -> Any:
    """The card or cards of one request, after relaxing and explaining where that was asked and is needed."""
    job, deadline = found.job, found.job.deadline_of_one()
    sheet: RuleSheet | None = None
    if not found.any:
        found, sheet = _without_search(found, deadline)
    reasons: tuple[WhyNot, ...] = ()
    if job.explain:
        scores, asked = found.part
        card = [p for p in found.ranking.card[0, 0].tolist() if p >= 0]
        try:
            sheet = sheet or found.sheet(deadline)
            reasons = explaining.why_not(sheet, card, scores[0], found.pairs, deadline=deadline)
        except OutOfTimeError:  # the card stands; of no other item is said why
            ids = asked.columns["item_id"][0].tolist()
            left_out = [p for p in np.flatnonzero(asked.everywhere()[0]).tolist() if p not in card]
            reasons = tuple(WhyNot(ids[p], (), None, None, exact=False) for p in left_out)
    cards = [_card(found, rank, reasons if rank == 0 else ()) for rank in range(found.ranking.num_found[0])]
    return tuple(cards) if job.n > 1 else cards[0]


def _without_search(found: Found, deadline: Deadline) -> tuple[Found, RuleSheet | None]:
    """A card for a request whose search found none: any valid one, or the best after rules went; else the error."""
    job, ranking, where = found.job, found.ranking, found.job.where(found.b)
    if not ranking.optimal[0] and not job.rules.whole:
        found = replace(found, ranking=_any_card(found, deadline))
        if found.any:
            return found, None
    if not found.ranking.optimal[0] and not job.relax:
        raise OutOfTimeError(where + _unsettled(job.rules))
    try:
        sheet = found.sheet(deadline)
        let_go = explaining.relax(sheet, job.relax, deadline) if job.relax else None
        if let_go is None:
            raise explaining.infeasible_error(sheet, where, job.relax, deadline)
    except OutOfTimeError as error:
        raise OutOfTimeError(f"{where}{error}") from None
    relaxed, sheet = let_go
    requests = sheet.requests(sheet.pieces())
    pairs = None if found.pairs is None else found.pairs[None]
    try:
        ranking = _ranked(job, found.part, requests, pairs, sheet.whole)
    except RequestError as error:
        raise InputError(f"{job.asked.name(found.b)}: {error.reason}") from None
    rules = Constraints(sheet.rules)
    found = replace(found, rules=rules, requests=requests, ranking=ranking, relaxed=relaxed)
    if not found.any:
        raise OutOfTimeError(where + _unsettled(rules))
    return found, sheet


def _any_card(found: Found, deadline: Deadline) -> Ranking:
    """The search ended before any card was found: a valid one all the same, or the proof that there is none, or not."""
    requests, ranking, scores = found.requests, found.ranking, found.part.scores
    card, exists, proven = any_card(requests, deadline)
    if not exists[0]:
        return ranking._replace(optimal=proven)
    card = arranged(requests, card, scores)
    weight = card_worth(requests.brief, 0, card[0].tolist(), scores[0], found.pairs)
    return Ranking(card[:, None], np.array([[weight]]), np.ones(1, np.int64), ranking.bound, ranking.optimal)


def _card(found: Found, rank: int, reasons: tuple[WhyNot, ...]) -> Card:
    job, ranking = found.job, found.ranking
    positions = [p for p in ranking.card[0, rank].tolist() if p >= 0]
    value, optimal = float(ranking.weight[0, rank]), bool(ranking.optimal[0])
    ids = found.part.asked.columns["item_id"][0].tolist()
    return Card(
        items=tuple(ids[p] for p in positions),
        positions=tuple(positions),
        value=value,
        bound=value if optimal else max(value, float(ranking.bound[0])),
        optimal=optimal,
        relaxed=found.relaxed,
        request_id=None if job.asked.request_ids is None else job.asked.request_ids[found.b],
        reasons=reasons,
        broken=broken_preferences(found.rules, found.requests.brief, 0, positions),
    )


def broken_preferences(
    rules: Constraints, brief: Brief | None, b: int, card: Sequence[int]
) -> tuple[Broken, ...]:
    """The preferences that a card of request b breaks, in the order in which they were given."""
    if brief is None or not brief.num_preferences:
        return ()
    named = zip(rules.names, rules.rules, strict=True)
    names = [name for name, rule in named if isinstance(rule, Prefer)]
    # A request of a batch that let preferences go has fewer than there is room for.
    rows = zip(names, breaks(brief, b, card), brief.worth[b].tolist(), strict=False)
    return tuple(Broken(name, count, count * price) for name, count, price in rows if count)


def _unsettled(rules: Constraints) -> str:
    """No card, and no proof that there is none."""
    if not rules.whole:
        return explaining.NOT_SETTLED
    names = ", ".join(rule.name for rule in rules.whole)
    return (
        f"none of the best cards that could be asked about keeps {names}; give it more time, "
        "or say it with rules the engine can look into"
    )
