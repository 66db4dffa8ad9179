"""Questions of one arm answered together: ids to a batch, the rung each has time for, cards back to ids.

Knows no HTTP. One bad or infeasible question never spoils its neighbours'.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from exactk.data.requests import Request, request_batch
from exactk.engine.reasons import RuledBatch, card_of, why_not, with_rules_relaxed
from exactk.errors import ExactKError
from exactk.problem.deadline import Deadline
from exactk.problem.rules.constraints import Constraints
from exactk.problem.solving import Card
from exactk.serving.model.arms import Arm, Loaded
from exactk.serving.model.decoding import RUNGS

EXPLAIN_SHARE = 0.75  # of the time left once there is a card: hundreds of reasons must still be written down
AT_ONCE_SECONDS = 0.008  # of which the search takes half at most: what the event loop may be held for


class Question(NamedTuple):
    """One request to one arm; `deadline` is on the clock of `perf_counter`, `is_patient` says that it is far off."""

    arm: Arm
    request: Request
    constraints: Constraints | None
    relax: tuple[str, ...]
    explain: bool
    deadline: float
    is_patient: bool = False

    @property
    def group(self) -> tuple[Any, ...]:
        """Questions that are alike may be decided as one batch."""
        return self.arm.name, id(self.constraints), self.relax, self.explain


class Answer(NamedTuple):
    """A card and how it came about."""

    card: Card
    propensity: float | None
    method: str
    fallback: bool
    version: str
    unfinished: tuple[str, ...] = ()


class Ladder:
    """How long each rung takes, as lately measured: the best rung that fits into the time left is taken."""

    def __init__(self) -> None:
        self._seconds = dict.fromkeys(RUNGS, 0.0)

    def rung(self, left: float) -> str:
        """The first rung that is expected to be done in time; the last one always is as quick as it gets."""
        for rung in RUNGS[:-1]:
            if self._seconds[rung] <= left:
                return rung
            self._seconds[rung] *= 0.98  # a slow moment must not shut a rung for ever
        return RUNGS[-1]

    def took(self, rung: str, seconds: float) -> None:
        """Note a run: quick to learn that a rung is slow, slower to believe that it is quick."""
        known = self._seconds[rung]
        self._seconds[rung] = known + (0.3 if seconds > known else 0.05) * (seconds - known)


class Answerer:
    """What the batcher runs: a quick way in the event loop, a thorough one in threads. Safe in several at a time."""

    def __init__(self, seed: int | None) -> None:
        self._generator = np.random.default_rng(seed)
        self._ladders: dict[str, Ladder] = {}

    def __call__(self, questions: Sequence[Question]) -> list[Answer | Exception]:
        """One answer or exception per question, in order."""
        answers: list[Answer | Exception] = [RuntimeError("a question was left unanswered")] * len(questions)
        for places in _grouped(questions):
            for place, answer in zip(places, self._together([questions[n] for n in places]), strict=True):
                answers[place] = answer
        return answers

    def at_once(self, questions: Sequence[Question]) -> list[Answer | Exception | None]:
        """Answers proven best within milliseconds; None for a question that needs more time or the long way."""
        answers: list[Answer | Exception | None] = [None] * len(questions)
        for places in _grouped(questions):
            asked = [questions[n] for n in places]
            found = self._tried(asked, AT_ONCE_SECONDS)
            if found is None and len(asked) > 1:
                share = AT_ONCE_SECONDS / len(asked)
                found = [(self._tried([each], share) or [None])[0] for each in asked]
            for place, answer in zip(places, found or [None] * len(places), strict=True):
                in_time = questions[place].deadline - perf_counter() > AT_ONCE_SECONDS
                if answer is not None and (answer.card.optimal or not in_time):
                    answers[place] = answer
        return answers

    def _tried(self, questions: Sequence[Question], seconds: float) -> list[Answer | None] | None:
        """The quick way, or None: what is wrong with a question is said by the long way."""
        try:
            return self._by_tables(questions, seconds)
        except ExactKError:
            return None

    def _together(self, questions: Sequence[Question]) -> list[Answer | Exception]:
        """Questions of one group. If they cannot be answered together, each is asked alone, whatever the reason."""
        try:
            left = min(question.deadline for question in questions) - perf_counter()
            found = self._by_tables(questions, left)
            if found is not None and None not in found:
                return [answer for answer in found if answer is not None]
            return self._by_model(questions)
        except Exception as error:
            if len(questions) == 1:
                return [error]
            return [self._together([question])[0] for question in questions]

    def _by_model(self, questions: Sequence[Question]) -> list[Answer | Exception]:
        loaded = questions[0].arm.loaded
        fitted = loaded.recommender.fitted
        rules = fitted.constraints if questions[0].constraints is None else questions[0].constraints
        requests = [_sized(question.request, fitted.card_size) for question in questions]
        deadline = Deadline(min(question.deadline for question in questions))
        batch = loaded.quick.batch(requests) if loaded.quick and rules is fitted.constraints else None
        if batch is None:
            batch = request_batch(requests, fitted.vocabulary, rules, fitted.catalogue, deadline=deadline)
        asked = RuledBatch(tuple(requests), batch, rules, fitted.catalogue)
        asked = with_rules_relaxed(asked, questions[0].relax, deadline)
        return self._decoded(questions, asked, loaded)

    def _by_tables(self, questions: Sequence[Question], seconds: float) -> list[Answer | None] | None:
        """The quick way for the usual request; None where all must go the long way.

        It asks no ladder: no rung is quicker, and one that is slower would only make a late service later. Where time
        has run out, the search is stopped early, and its card is a fallback unless it was proven best all the same.
        """
        first, loaded = questions[0], questions[0].arm.loaded
        if loaded.express is None or first.constraints is not None or first.relax or first.explain:
            return None
        card_size = loaded.recommender.fitted.card_size
        requests = [_sized(question.request, card_size) for question in questions]
        cards = loaded.express.cards(requests, max(seconds, 0.0))
        if cards is None:
            return None
        return [
            None if card is None else _proven_or_stopped(card, seconds <= 0, loaded.version) for card in cards
        ]

    def _decoded(
        self, questions: Sequence[Question], asked: RuledBatch, loaded: Loaded
    ) -> list[Answer | Exception]:
        answers: list[Answer | Exception | None] = list(asked.errors)
        ladder = self._ladders.setdefault(questions[0].arm.name, Ladder())
        now = perf_counter()
        rungs: dict[str, list[int]] = {}
        for b, question in enumerate(questions):
            if answers[b] is None:
                rungs.setdefault(ladder.rung(question.deadline - now), []).append(b)
        for rung, rows in rungs.items():
            started = perf_counter()
            left = max(min(questions[b].deadline for b in rows) - started, 0.0)
            batch = asked.batch if len(rows) == len(questions) else asked.batch.rows(np.array(rows))
            decoded = loaded.decoder.decode(batch, rung, self._generator, left)
            for row, b in enumerate(rows):
                calibration = loaded.recommender.fitted.calibration
                card = card_of(asked.requests[b], decoded.decision, row, calibration, asked.relaxed[b])
                unfinished: tuple[str, ...] = ()
                if questions[b].explain:
                    until = Deadline(questions[b].deadline).part(EXPLAIN_SHARE)
                    said = why_not(asked, b, card, loaded.recommender.decider.value, calibration, until)
                    card = replace(card, reasons=said)
                    unfinished = ("reasons",) if until.passed else ()
                sure = float(decoded.propensity[row])
                method = decoded.methods[row]
                answers[b] = Answer(
                    card=card,
                    propensity=None if math.isnan(sure) else sure,
                    method=method,
                    fallback=rung != RUNGS[0] or method == RUNGS[-1],
                    version=loaded.version,
                    unfinished=unfinished,
                )
            ladder.took(rung, perf_counter() - started)
        return [each for each in answers if each is not None]


def _proven_or_stopped(card: Card, late: bool, version: str) -> Answer:
    method = "exact" if card.optimal else "exact, stopped"
    return Answer(card, 1.0, method, late and not card.optimal, version)


def _grouped(questions: Sequence[Question]) -> list[list[int]]:
    groups: dict[Any, list[int]] = {}
    for place, question in enumerate(questions):
        groups.setdefault(question.group, []).append(place)
    return list(groups.values())


def _sized(request: Request, card_size: int) -> Request:
    return request if request.k else replace(request, k=card_size)
