"""How far apart two titles are: Marzal-Vidal normalised edit distance (NED) and normalised Levenshtein.

Knows no items and no rules, only text. Every comparison with a threshold is made in whole numbers.

NED(a, b) is the least weight/length over all edit paths from a to b (match 0, any other edit 1; matches count
in the length). It is not Levenshtein / longer length: from "ab" to "ba", substituting twice costs 2/2, but
delete-match-insert costs 2/3, and NED is 2/3.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import no_type_check

import numpy as np
from jaxtyping import Bool, Int32, Int64
from rapidfuzz.distance import Levenshtein
from rapidfuzz.process import cdist

from exactk.problem.compiling import compiled
from exactk.problem.deadline import ENDLESS, Deadline
from exactk.problem.exact.bits import seconds

UNKNOWN, FAR, NEAR = 0, 1, 2
CACHED_TITLES = 4096  # one byte per pair of them: 16 MiB per rule at most
MOST_REMEMBERED = 12_000  # 144 MB
BLOCK = 128  # titles compared with all others at a time
FINEST_THRESHOLD = 10**9
MOST_LETTERS = 10_000  # of a title: comparing two such takes milliseconds, and nothing can end it before
AT_ONCE = 4_000_000  # steps of 64 letters each between two looks at the clock: some milliseconds


def as_fraction(minimum: float) -> Fraction:
    """The threshold as the fraction that was meant: 0.1 is 1/10 and 5/7 is 5/7, whatever their binary forms.

    A distance w/L of titles shorter than 10^9 that lies between float and fraction equals the fraction,
    so the only pairs whose verdict can change by the rounding are those meant to be exactly at the threshold.
    """
    return Fraction(minimum).limit_denominator(FINEST_THRESHOLD)


def far_apart(
    rows: Sequence[str], titles: Sequence[str], minimum: float, metric: str, deadline: Deadline = ENDLESS
) -> Bool[np.ndarray, "R N"]:
    """Whether each of `rows` is at least `minimum` away from each of `titles`.

    For NED, one Levenshtein distance d (fast, for all pairs) settles most pairs: with lengths n and m,
    2d/(n+m+d) <= NED <= d/max(n, m). A path of weight w has length at most (n+m+w)/2, which gives the left
    side; the cheapest path has length at least max(n, m), which gives the right one. Only pairs with the
    threshold between the two get a dynamic programme of their own. Long work is done in pieces, with looks at the
    clock between them.
    """
    if deadline.ends == math.inf or _steps(rows, titles) <= AT_ONCE:
        return _far_apart(rows, titles, minimum, metric, deadline)
    far = np.empty((len(rows), len(titles)), bool)
    for r, row in enumerate(rows):
        start = 0
        while start < len(titles):
            deadline.check(
                f"the distances of titles of up to {max(map(len, titles)):,} letters were not finished"
            )
            end, steps = start, 0
            while end < len(titles) and (end == start or steps <= AT_ONCE):
                steps += _steps([row], titles[end : end + 1])
                end += 1
            far[r, start:end] = _far_apart([row], titles[start:end], minimum, metric, deadline)[0]
            start = end
    return far


def _steps(rows: Sequence[str], titles: Sequence[str]) -> int:
    """How many steps of 64 letters comparing all of them takes."""
    return sum(len(row) // 64 + 1 for row in rows) * sum(len(title) + 1 for title in titles)


def _far_apart(
    rows: Sequence[str], titles: Sequence[str], minimum: float, metric: str, deadline: Deadline
) -> Bool[np.ndarray, "R N"]:
    threshold = as_fraction(minimum)
    p, q = threshold.numerator, threshold.denominator
    # A copy: rapidfuzz leaves its vector path when both lists are one object (50 x 50 in 150 us, not 50).
    distance = cdist(list(rows), titles, scorer=Levenshtein.distance, dtype=np.int64)
    n = np.array([len(title) for title in rows], np.int64)[:, None]
    m = np.array([len(title) for title in titles], np.int64)[None, :]
    longer = np.maximum(n, m)
    far = q * distance >= p * longer
    if metric == "ned":
        # `far` is now only the right side: what it denies is denied for good, the rest needs the left one.
        undecided = far & (2 * q * distance < p * (n + m + distance))
        row, column = np.nonzero(undecided)
        if len(row):
            row_codes, row_starts = _joined(rows)
            codes, starts = _joined(titles)
            verdicts = np.zeros(len(row), np.bool_)
            done = _reach_threshold(
                row_codes, row_starts, row, codes, starts, column, p, q, deadline.ends, verdicts
            )
            if not done:
                deadline.check(f"the distances of {len(row)} pairs of titles were not finished")
            far[row, column] = verdicts
    far[(longer == 0) & (p > 0)] = False  # two empty texts are at distance 0, though 0/0 meets any bound
    return far


class TitlePairs:
    """The verdict on every pair of titles met so far, for one threshold; bounded: forgets all when full."""

    def __init__(self, minimum: float, metric: str, capacity: int = CACHED_TITLES) -> None:
        self.minimum = minimum
        self.metric = metric
        self.capacity = capacity
        self.number: dict[str, int] = {}
        self.verdict = np.zeros((capacity, capacity), np.uint8)
        self.lock = threading.Lock()

    def far_apart(
        self, requests: Sequence[Sequence[str]], deadline: Deadline = ENDLESS
    ) -> Bool[np.ndarray, "B N N"]:
        """For each request, which of its titles are far enough apart; all have equally many titles.

        Requests whose titles take long are compared aside: nobody waits for them, and nobody would ask again.
        """
        num_titles = len(requests[0]) if requests else 0
        far = np.empty((len(requests), num_titles, num_titles), bool)
        at_once = self.capacity // max(num_titles, 1)
        slow = [at_once == 0 or _steps(titles, titles) > AT_ONCE for titles in requests]
        for b in np.flatnonzero(slow).tolist():
            far[b] = far_apart(requests[b], requests[b], self.minimum, self.metric, deadline)
        quick = [b for b, takes_long in enumerate(slow) if not takes_long]
        for start in range(0, len(quick), max(at_once, 1)):
            part = quick[start : start + at_once]
            deadline.check("the distances of the titles were not finished")
            with self.lock:
                far[part] = self._look_up([requests[b] for b in part])
        return far

    def remember(self, titles: Iterable[str]) -> bool:
        """Settle every pair of these titles now and keep it, so that no later request compares any of them.

        For whoever will ask about a whole catalogue many times over; False, and nothing done, where it is too large.
        """
        distinct = list(dict.fromkeys(titles))
        if len(distinct) > MOST_REMEMBERED:
            return False
        with self.lock:
            if len(distinct) > self.capacity:
                self.capacity = len(distinct)
                self.verdict = np.zeros((self.capacity, self.capacity), np.uint8)
            self.verdict.fill(UNKNOWN)
            self.number = {title: number for number, title in enumerate(distinct)}
            for start in range(0, len(distinct), BLOCK):
                end = min(start + BLOCK, len(distinct))
                settled = np.where(
                    far_apart(distinct[start:end], distinct[start:], self.minimum, self.metric), FAR, NEAR
                )
                self.verdict[start:end, start : len(distinct)] = settled
                self.verdict[start : len(distinct), start:end] = settled.T
        return True

    def _look_up(self, requests: Sequence[Sequence[str]]) -> Bool[np.ndarray, "B N N"]:
        numbers = self._numbers(requests)
        verdict = self.verdict[numbers[:, :, None], numbers[:, None, :]]  # B N N
        unknown = np.flatnonzero((verdict == UNKNOWN).any((1, 2))).tolist()
        for b in unknown:
            own = numbers[b]
            if len(unknown) > 1:  # an earlier request of this part may have settled these pairs
                verdict[b] = self.verdict[own[:, None], own[None, :]]
            rows = np.flatnonzero((verdict[b] == UNKNOWN).any(1))
            if len(rows) == 0:
                continue
            asked = [requests[b][row] for row in rows.tolist()]
            settled = np.where(far_apart(asked, requests[b], self.minimum, self.metric), FAR, NEAR)
            self.verdict[own[rows][:, None], own[None, :]] = settled
            self.verdict[own[:, None], own[rows][None, :]] = settled.T
            verdict[b, rows] = settled
            verdict[b][:, rows] = settled.T
        return np.asarray(verdict == FAR, bool)

    def _numbers(self, requests: Sequence[Sequence[str]]) -> Int64[np.ndarray, "B N"]:
        new = {title for titles in requests for title in titles if title not in self.number}
        if len(self.number) + len(new) > self.capacity:
            self.number.clear()
            self.verdict.fill(UNKNOWN)
            new = {title for titles in requests for title in titles}
        for title in new:
            self.number[title] = len(self.number)
        return np.array([[self.number[title] for title in titles] for titles in requests], np.int64)


@lru_cache(maxsize=8)
def title_pairs(minimum: float, metric: str) -> TitlePairs:
    """The shared cache of one threshold."""
    return TitlePairs(minimum, metric)


def _code_points(text: str) -> Int32[np.ndarray, "L"]:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.int32)


def _joined(titles: Sequence[str]) -> tuple[Int32[np.ndarray, "L"], Int64[np.ndarray, "N1"]]:
    """All code points end to end, and where each title starts (one more entry than titles)."""
    starts = np.zeros(len(titles) + 1, np.int64)
    np.cumsum([len(title) for title in titles], out=starts[1:])
    return _code_points("".join(titles)), starts


@compiled
@no_type_check
def _reach_threshold(row_codes, row_starts, row, codes, starts, column, p, q, ends, far):
    """Whether NED >= p/q, pair by pair: one programme decides if any path has q * weight < p * length.

    Returns whether all was done before the clock showed `ends`.
    """
    cells = 0
    for pair in range(len(row)):
        a = row_codes[row_starts[row[pair]] : row_starts[row[pair] + 1]]
        b = codes[starts[column[pair]] : starts[column[pair] + 1]]
        least = np.empty(len(b) + 1, np.int64)
        for j in range(len(b) + 1):
            least[j] = j * (q - p)
        for i in range(len(a)):
            cells += len(b) + 1
            if cells > 1_000_000:
                if seconds() >= ends:
                    return False
                cells = 0
            diagonal = least[0]
            least[0] += q - p
            for j in range(len(b)):
                above = least[j + 1]
                step = diagonal - p if a[i] == b[j] else diagonal + q - p
                least[j + 1] = min(step, min(above, least[j]) + q - p)
                diagonal = above
        far[pair] = least[len(b)] >= 0
    return True
