"""One request laid open: its size, rules, included and excluded items, each of which can be lifted alone.

Knows how to ask the exact engine whether some of them can be met together; draws no conclusions from it. Rules that are
functions of whole cards are asked of the best cards, one after the other, until enough keep them all.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int32, Int64

from exactk.errors import ConfigError, InputError
from exactk.problem.brief import Brief, joined
from exactk.problem.deadline import ENDLESS, Deadline
from exactk.problem.exact.cliques import Ranking, any_card, best_n
from exactk.problem.given import GivenRequests, wished_positions
from exactk.problem.graph import Requests, pairs_of
from exactk.problem.rules.columns import Columns
from exactk.problem.rules.counting import Prefer
from exactk.problem.rules.pairs import Rule
from exactk.problem.rules.places import Slots
from exactk.problem.rules.rule_set import Constraint, Constraints
from exactk.problem.ties import tie_keys

MOST_SIZES = 64  # of cards tried where any size will do


class Demand(NamedTuple):
    """One demand of a request: size, a rule, an item in, an item out; `at` is the rule or the position."""

    kind: Literal["size", "rule", "include", "exclude"]
    at: int = 0


@dataclass(frozen=True)
class RuleSheet:
    """One request with its demands kept apart, so that each can be lifted alone."""

    rules: tuple[Constraint, ...]
    names: tuple[str, ...]
    allowed: Bool[np.ndarray, "R N N"]
    group: Int32[np.ndarray, "R N"]
    cap: Int32[np.ndarray, "R"]
    present: Bool[np.ndarray, "N"]
    include: Bool[np.ndarray, "N"]
    exclude: Bool[np.ndarray, "N"]
    card_size: int
    item_ids: tuple[Any, ...]
    columns: Columns
    lenient: tuple[Constraint, ...]
    tie_key: Int64[np.ndarray, "N"] | None = None
    briefs: dict[tuple[Constraint, int], Brief | None] = field(default_factory=dict)  # made so far, by size

    @classmethod
    def of(cls, constraints: Constraints, asked: GivenRequests, deadline: Deadline = ENDLESS) -> RuleSheet:
        """Lay out a request that `Constraints.requests` accepted (columns with B = 1).

        Rules were satisfied with the values of the candidates that remain. An excluded one may lack some, or hold what
        no rule can read: then those of all that are excluded count as missing.
        """
        try:
            return cls._laid_out(constraints, asked, asked.columns, deadline)
        except (InputError, ConfigError):
            _, barred = wished_positions(asked)
            if not barred.any():
                raise
            return cls._laid_out(constraints, asked, _emptied(asked.columns, barred), deadline)

    @classmethod
    def _laid_out(
        cls, constraints: Constraints, asked: GivenRequests, columns: Columns, deadline: Deadline
    ) -> RuleSheet:
        present = asked.everywhere()
        pinned, barred = wished_positions(asked)
        lenient = tuple(rule.lenient() for rule in constraints.rules)
        R, N = len(lenient), present.shape[1]
        allowed, group = np.empty((R, N, N), bool), np.full((R, N), -1, np.int32)
        for r, rule in enumerate(lenient):
            allowed[r] = rule.allowed(columns, present, deadline)[0]
            counted = rule.groups(columns, present)
            if counted is not None:
                group[r] = counted[0]
        sheet = cls(
            rules=constraints.rules,
            names=constraints.names,
            allowed=allowed,
            group=group,
            cap=np.array([N if rule.cap is None else rule.cap for rule in lenient], np.int32),
            present=present[0],
            include=pinned[0],
            exclude=barred[0],
            card_size=int(np.ravel(asked.card_size)[0]),
            item_ids=tuple(columns["item_id"][0].tolist()),
            columns=columns,
            lenient=lenient,
            tie_key=tie_keys(columns["item_id"][0]) if asked.ties_by_id else None,
        )
        for r in range(R):
            sheet._brief(r, sheet.card_size, deadline)  # so that what cannot be read is met here
        return sheet

    def pieces(self) -> tuple[Demand, ...]:
        """Everything this request demands."""
        return (
            Demand("size"),
            *(Demand("rule", r) for r in range(len(self.names))),
            *(Demand("include", p) for p in np.flatnonzero(self.include).tolist()),
            *(Demand("exclude", p) for p in np.flatnonzero(self.exclude).tolist()),
        )

    def named(self, piece: Demand) -> str:
        """How reports call a demand."""
        if piece.kind == "size":
            return f"exactly {self.card_size} of {int(self.present.sum())} candidates"
        if piece.kind == "rule":
            return self.names[piece.at]
        must = "must be" if piece.kind == "include" else "must not be"
        return f"{self.item_ids[piece.at]!r} {must} in the card"

    def requests(self, demands: Collection[Demand], card_size: int | None = None) -> Requests:
        """The request with only these demands; `card_size`: a card of so many items instead of those asked for."""
        N = len(self.present)
        rules = [piece.at for piece in demands if piece.kind == "rule"]
        graph = self.allowed[rules].all(0) & pairs_of(self.present[None])[0]
        present, pinned = self.present.copy(), np.zeros(N, bool)
        for piece in demands:
            if piece.kind == "include":
                pinned[piece.at] = True
            elif piece.kind == "exclude":
                present[piece.at] = False
        size = self.card_size if card_size is None else card_size
        capping = [r for r in rules if self.cap[r] < N]
        return Requests(
            graph=graph[None],
            present=present[None],
            card_size=np.array([size], np.int32),
            pinned=pinned[None],
            group=self.group[capping][None],
            cap=self.cap[capping][None],
            brief=joined([part for r in rules if (part := self._brief(r, size)) is not None]),
            tie_key=None if self.tie_key is None else self.tie_key[None],
        )

    def feasible(self, demands: Collection[Demand], deadline: Deadline = ENDLESS) -> bool | None:
        """Whether a card meets these demands; None where the deadline came before that was proven.

        Without its size a card of any size will do, but for one without items. Preferences demand nothing.
        """
        demands = [d for d in demands if d.kind != "rule" or not isinstance(self.rules[d.at], Prefer)]
        rules = [self.rules[piece.at] for piece in demands if piece.kind == "rule"]
        sizes = [self.card_size] if Demand("size") in demands else self._sizes(rules, demands)
        asked = CardRules(Constraints(tuple(rules)).whole, self.columns)
        answer: bool | None = False
        for size in sizes:
            if deadline.passed:
                return None
            found = self._has_card(self.requests(demands, size), asked, deadline)
            if found:
                return True
            answer = None if found is None else answer
        return answer

    def _sizes(self, rules: Collection[Constraint], demands: Collection[Demand]) -> list[int]:
        """Card sizes that may do, the nearest to the one asked for first: places are known up to that one.

        Under rules on pairs alone only the smallest: a part of a valid card is one, too.
        """
        least = max(1, sum(piece.kind == "include" for piece in demands))
        if all(rule.speaks_of_pairs for rule in rules):
            return [least]
        most = min(int(self.present.sum()), max(MOST_SIZES, self.card_size))
        if any(isinstance(rule, Slots) for rule in rules):
            most = min(most, self.card_size)
        return sorted(range(least, most + 1), key=lambda size: abs(size - self.card_size))

    def _has_card(self, requests: Requests, asked: CardRules, deadline: Deadline) -> bool | None:
        if asked.rules:
            scores = np.zeros((1, len(self.present)))
            ranking = best_under_card_rules(requests, scores, None, asked, 1, deadline.limit())
            return bool(ranking.num_found[0]) or (False if ranking.optimal[0] else None)
        answer = any_card(requests, deadline)
        return bool(answer.found[0]) if answer.proven[0] else None

    def _brief(self, r: int, size: int, deadline: Deadline = ENDLESS) -> Brief | None:
        """What a rule demands of a card of this size, worked out once."""
        rule = self.lenient[r]
        if rule.speaks_of_pairs:
            return None
        if (rule, size) not in self.briefs:
            sizes = np.array([size], np.int32)
            self.briefs[rule, size] = rule.brief(self.columns, self.present[None], sizes, deadline)
        return self.briefs[rule, size]

    @property
    def whole(self) -> tuple[Rule, ...]:
        """The rules that are functions of whole cards."""
        return Constraints(self.rules).whole

    def including(self, position: int) -> RuleSheet:
        """The same request, one more item demanded."""
        include = self.include.copy()
        include[position] = True
        return replace(self, include=include)

    def without(self, rules: Collection[int]) -> RuleSheet:
        """The same request, these rules let go."""
        kept = [r for r in range(len(self.rules)) if r not in rules]
        return replace(
            self,
            rules=tuple(self.rules[r] for r in kept),
            names=tuple(self.names[r] for r in kept),
            allowed=self.allowed[kept],
            group=self.group[kept],
            cap=self.cap[kept],
            lenient=tuple(self.lenient[r] for r in kept),
        )


def _emptied(columns: Columns, barred: Bool[np.ndarray, "1 N"]) -> Columns:
    """The columns without the values of what is barred, but for its ids."""
    emptied = dict(columns)
    for name, values in columns.items():
        if name != "item_id":
            of_numbers = values.dtype.kind == "f" or values.ndim > 2
            emptied[name] = values.astype(np.float64 if of_numbers else object)
            emptied[name][barred] = np.nan if of_numbers else None
    return emptied


class CardRules(NamedTuple):
    """Rules that are functions of whole cards, and the columns (a row for each request) that items are made of."""

    rules: tuple[Rule, ...]
    columns: Columns

    def keep(self, b: int, card: Sequence[int]) -> bool:
        """Whether all of them allow a card of request b."""
        return all(rule.allows_card(self.columns, b, card) for rule in self.rules)


FIRST_ASKED, MOST_ASKED, TIMES_MORE = 8, 32_768, 8


def best_under_card_rules(
    requests: Requests,
    scores: Float64[np.ndarray, "B N"],
    pairs: Float64[np.ndarray, "B N N"] | None,
    asked: CardRules,
    n: int = 1,
    time_limit: float | None = None,
) -> Ranking:
    """The n best cards of each request that keep every rule; fewer where time, or the most that are asked, ran out.

    `optimal` is False then; with nothing found it proves, where True, that no card keeps them.
    """
    each = []
    for b in range(len(requests)):
        one = slice(b, b + 1)
        weights = scores[one], None if pairs is None else pairs[one]
        ranking = _best_of_one(requests.rows(one), weights, partial(asked.keep, b), n, time_limit)
        beyond = int(requests.card_size.max()) - ranking.card.shape[2]
        card = np.pad(ranking.card, ((0, 0), (0, 0), (0, beyond)), constant_values=-1)
        each.append(ranking._replace(card=card))
    return Ranking(*(np.concatenate(arrays) for arrays in zip(*each, strict=True)))


def _best_of_one(
    request: Requests,
    weights: tuple[Float64[np.ndarray, "1 N"], Float64[np.ndarray, "1 N N"] | None],
    keeps: Callable[[Sequence[int]], bool],
    n: int,
    time_limit: float | None,
) -> Ranking:
    """The same of one request: its best cards are listed, more each time, and asked about from the best down."""
    deadline = Deadline.after(time_limit)
    wanted = max(n, FIRST_ASKED)
    verdicts: dict[tuple[int, ...], bool] = {}
    while True:
        left = None if time_limit is None else max(deadline.left, 1e-4)
        ranking = best_n(request, *weights, wanted, left)
        listed, complete = int(ranking.num_found[0]), bool(ranking.optimal[0])
        kept: list[int] = []
        late = False
        for rank in range(listed):
            late = deadline.passed
            if len(kept) == n or late:
                break
            listed_card = tuple(p for p in ranking.card[0, rank].tolist() if p >= 0)
            if listed_card not in verdicts:
                verdicts[listed_card] = keeps(listed_card)
            kept += [rank] if verdicts[listed_card] else []
        all_asked = listed < wanted and complete and not late
        if len(kept) == n or all_asked or deadline.passed or wanted >= MOST_ASKED or not complete:
            break
        wanted = min(wanted * TIMES_MORE, MOST_ASKED)
    proven = complete and (len(kept) == n or all_asked)
    bound = -np.inf if proven else float(ranking.bound[0])
    if len(kept) == n:
        bound = max(bound, float(ranking.weight[0, kept[-1]]))
    card, weight = np.full((1, n, ranking.card.shape[2]), -1, np.int64), np.full((1, n), -np.inf)
    card[0, : len(kept)], weight[0, : len(kept)] = ranking.card[0, kept], ranking.weight[0, kept]
    return Ranking(card, weight, np.array([len(kept)]), np.array([bound]), np.array([proven]))
