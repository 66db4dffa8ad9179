"""Questions of one arm answered together: ids to a batch, the rung each has time for, cards back to ids.

Knows no HTTP. An infeasible question never spoils its neighbours'; from a bad one the batcher keeps them apart.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from exactk.data.requests import Request
from exactk.data.requests.builder import Built
from exactk.data.requests.sheet import sheet_of
from exactk.engine.answers import RuledBatch, card_of, why_not, with_rules_relaxed
from exactk.errors import ExactKError
from exactk.problem.batch import Batch
from exactk.problem.deadline import Deadline
from exactk.problem.rules.constraints import Constraints
from exactk.problem.solving import Card
from exactk.serving.model import RUNGS, Arm, Loaded

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
    so_far: list[Answer] | None = None  # what is answered where the reasons take too long

    @property
    def unread(self) -> list[str]:
        """Names that came along and that neither the model nor a rule reads."""
        fitted, sent = self.arm.loaded.recommender.fitted, self.request.attributes.values()
        rules = fitted.constraints if self.constraints is None else self.constraints
        names = frozenset().union(*sent) if sent else ()
        return fitted.builder.unread(names, self.request.context, rules.fields)

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
    counted: Mapping[str, Sequence[float]] = {}  # counts so far of each candidate, as the model read them


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
        """One answer or exception per question of a group, in order. What is raised is of all: they are asked alone."""
        loaded = questions[0].arm.loaded  # read once: another may take its place meanwhile
        deadline = Deadline(min(question.deadline for question in questions))
        asked = _together(questions, loaded, deadline)
        if _may_search(questions[0], loaded):
            found = _searched(asked, deadline.left)
            if None not in found:
                return [answer for answer in found if answer is not None]
        return self._decoded(questions, with_rules_relaxed(asked.ruled, questions[0].relax, deadline), loaded)

    def at_once(self, questions: Sequence[Question]) -> list[Answer | Exception | None]:
        """Answers proven best within milliseconds; None for a question that needs more time or the long way."""
        groups: dict[Any, list[int]] = {}
        for place, question in enumerate(questions):
            groups.setdefault(question.group, []).append(place)
        answers: list[Answer | Exception | None] = [None] * len(questions)
        for places in groups.values():
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
            if not _may_search(questions[0], loaded := questions[0].arm.loaded):
                return None
            return _searched(_together(questions, loaded, Deadline.after(seconds)), seconds)
        except ExactKError:
            return None

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
                card = card_of(asked, b, decoded.decision, row, calibration)
                sure = float(decoded.propensity[row])
                method = decoded.methods[row]
                counted = _counted(loaded, asked.batch, b, len(asked.requests[b].candidates))
                late = rung != RUNGS[0] or method == RUNGS[-1]
                propensity = None if math.isnan(sure) else sure
                answer = Answer(card, propensity, method, late, loaded.version, counted=counted)
                if questions[b].explain:
                    unexplained = answer._replace(unfinished=("reasons",))
                    if (so_far := questions[b].so_far) is not None:
                        so_far.append(unexplained)
                    until = Deadline(questions[b].deadline).part(EXPLAIN_SHARE)
                    said = why_not(asked, b, card, loaded.recommender.decider.value, calibration, until)
                    held = unexplained if until.passed else answer
                    answer = held._replace(card=replace(card, reasons=said))
                answers[b] = answer
            ladder.took(rung, perf_counter() - started)
        return [each for each in answers if each is not None]


def _counted(loaded: Loaded, batch: Batch, b: int, count: int) -> dict[str, list[float]]:
    """What the model read of one request that it was not sent: what served must be what trains."""
    fitted = loaded.recommender.fitted.vocabulary.columns
    if not fitted.rolling or batch.candidate_numbers is None:
        return {}
    numbers = batch.candidate_numbers[b, :count]
    return {name: numbers[:, fitted.candidate_numbers.names.index(name)].tolist() for name in fitted.rolling}


class _Together(NamedTuple):
    """Questions of one group, as one model reads them."""

    loaded: Loaded
    requests: tuple[Request, ...]
    rules: Constraints
    built: Built

    @property
    def ruled(self) -> RuledBatch:
        """The batch with what it was made of."""
        return RuledBatch(self.requests, self.built.batch, self.rules, self.loaded.recommender.fitted.builder)


def _together(questions: Sequence[Question], loaded: Loaded, deadline: Deadline) -> _Together:
    """One batch; a request that names no card size gets the model's."""
    fitted, given = loaded.recommender.fitted, questions[0].constraints
    asked = [question.request for question in questions]
    requests = tuple([each if each.k else replace(each, k=fitted.card_size) for each in asked])
    rules = fitted.constraints if given is None else given
    built = fitted.builder.built(sheet_of(requests, fitted.catalogue), rules, deadline)
    return _Together(loaded, requests, rules, built)


def _may_search(question: Question, loaded: Loaded) -> bool:
    """Whether the search alone can answer: the model's own rules, no reasons, a value that can be searched."""
    return not (question.constraints or question.relax or question.explain) and loaded.searches


def _searched(asked: _Together, seconds: float) -> list[Answer | None]:
    """The best cards by search; None for a question whose card was not found, which must go the long way.

    It asks no ladder: no rung is quicker, and one that is slower would only make a late service later. Where time
    has run out, the search is stopped early, and its card is a fallback unless it was proven best all the same.
    """
    loaded, requests = asked.loaded, asked.requests
    calibration, limit = loaded.recommender.fitted.calibration, max(seconds / 2 / len(requests), 1e-4)
    decision = loaded.searched(asked.built, limit)
    answers: list[Answer | None] = [None] * len(requests)
    ruled = asked.ruled
    for row in np.flatnonzero(decision.found).tolist():
        card = card_of(ruled, row, decision, row, calibration)
        counted = _counted(loaded, asked.built.batch, row, len(requests[row].candidates))
        method, late = "exact" if card.optimal else "exact, stopped", seconds <= 0 and not card.optimal
        answers[row] = Answer(card, 1.0, method, late, loaded.version, counted=counted)
    return answers
