"""How sure: intervals by the bootstrap, differences by a paired permutation test.

Knows no metric: numbers per request in, an interval or a p-value out, the same for the same numpy Generator.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from exactk.errors import InputError

ROUNDS = 2_000
PERMUTATIONS = 10_000
EXACT_UP_TO = 14  # 2**14 sign patterns are fewer than the random ones we would draw
CHUNK = 4_000_000  # numbers drawn at once: 32 MB


class Interval(NamedTuple):
    """An estimate and the range the bootstrap puts around it."""

    low: float
    estimate: float
    high: float


def bootstrap_interval(
    values: Float[np.ndarray, "B"],
    rng: np.random.Generator,
    over: Float[np.ndarray, "B"] | None = None,
    groups: Int[np.ndarray, "B"] | None = None,
    level: float = 0.95,
    rounds: int = ROUNDS,
) -> Interval:
    """Percentile interval of the mean of `values`, or of sum(values) / sum(over) where `over` is given.

    Requests are resampled with replacement; with `groups` (say, the user of each request) whole groups are,
    because the requests of one user are not independent. NaN values are left out with their `over`.
    """
    over = np.ones(len(values)) if over is None else over
    if not 0 < level < 1:
        raise InputError(f"level must lie between 0 and 1, got {level}")
    totals, weights = _by_group(values, over, groups)
    if len(totals) == 0 or weights.sum() == 0:
        return Interval(np.nan, np.nan, np.nan)
    drawn = np.concatenate(list(_resampled_ratios(totals, weights, rng, rounds)))
    tail = (1 - level) / 2
    low, high = np.nanquantile(drawn, [tail, 1 - tail]) if not np.isnan(drawn).all() else (np.nan, np.nan)
    return Interval(float(low), float(totals.sum() / weights.sum()), float(high))


def paired_permutation(
    ours: Float[np.ndarray, "B"],
    theirs: Float[np.ndarray, "C"],  # must be B too; checked below with a message for people
    rng: np.random.Generator,
    groups: Int[np.ndarray, "B"] | None = None,
    rounds: int = PERMUTATIONS,
) -> float:
    """Two-sided p-value of "the two methods are exchangeable on every request", from random sign flips.

    All sign patterns are tried for few pairs; otherwise `rounds` random ones, the observed one counted
    among them, so p is never 0. With `groups` one coin is tossed per group. Pairs with a NaN are left out.
    """
    if len(ours) != len(theirs):
        raise InputError(f"paired test needs equal lengths, got {len(ours)} and {len(theirs)}")
    differences, _ = _by_group(ours - theirs, np.ones(len(ours)), groups)
    differences = differences[differences != 0]  # a zero keeps its sign either way
    if len(differences) == 0:
        return 1.0
    observed = abs(differences.sum())
    slack = 1e-12 * np.abs(differences).sum()  # sums that differ by rounding alone are ties, and ties count
    if len(differences) <= EXACT_UP_TO:
        flips = (np.arange(2 ** len(differences))[:, None] >> np.arange(len(differences))) & 1
        extreme = np.abs(differences.sum() - 2 * flips @ differences) >= observed - slack
        return float(extreme.mean())
    num_extreme = 0
    for size in _chunks(rounds - 1, len(differences)):
        flipped = _coins(rng, size, len(differences)) @ differences
        num_extreme += int((np.abs(differences.sum() - 2 * flipped) >= observed - slack).sum())
    return (1 + num_extreme) / rounds


def holm(p_values: Float[np.ndarray, "M"]) -> Float[np.ndarray, "M"]:
    """Holm's step-down adjustment of M p-values, so that the chance of any false alarm stays below the level.

    Worked: 0.01, 0.04, 0.03 become 0.03, 0.06, 0.06 (3 x 0.01; 2 x 0.03; 1 x 0.04 raised to its predecessor).
    """
    order = np.argsort(p_values, kind="stable")
    scaled = p_values[order] * np.arange(len(p_values), 0, -1)
    adjusted = np.empty(len(p_values))
    adjusted[order] = np.minimum(np.maximum.accumulate(scaled), 1.0)
    return adjusted


def _by_group(
    values: Float[np.ndarray, "B"], over: Float[np.ndarray, "B"], groups: Int[np.ndarray, "B"] | None
) -> tuple[Float[np.ndarray, "G"], Float[np.ndarray, "G"]]:
    """Sums of values and of `over` per group, NaN left out; each request its own group by default."""
    known = ~np.isnan(values) & ~np.isnan(over)
    if groups is None:
        return values[known].astype(np.float64), over[known].astype(np.float64)
    _, place = np.unique(groups[known], return_inverse=True)
    return np.bincount(place, values[known]), np.bincount(place, over[known])


def _resampled_ratios(
    totals: Float[np.ndarray, "G"], weights: Float[np.ndarray, "G"], rng: np.random.Generator, rounds: int
) -> Iterator[Float[np.ndarray, "_"]]:
    """Ratios of resampled sums; groups that are alike (clicks are 0 or 1) are drawn together, by number."""
    alike, times = np.unique(np.stack([totals, weights]), axis=1, return_counts=True)
    few = alike.shape[1] <= len(totals) // 4
    for size in _chunks(rounds, alike.shape[1] if few else len(totals)):
        if few:
            drawn = rng.multinomial(len(totals), times / len(totals), size) @ alike.T
        else:
            picked = rng.integers(0, len(totals), (size, len(totals)))
            drawn = np.stack([totals[picked].sum(1), weights[picked].sum(1)], 1)
        above, below = drawn[:, 0], drawn[:, 1]
        yield np.where(below != 0, above / np.where(below != 0, below, 1.0), np.nan)


def _coins(rng: np.random.Generator, rows: int, columns: int) -> Bool[np.ndarray, "R C"]:
    """Fair coins, one random bit each."""
    packed = np.frombuffer(rng.bytes(rows * ((columns + 7) // 8)), np.uint8).reshape(rows, -1)
    return np.unpackbits(packed, axis=1, count=columns).astype(bool)


def _chunks(rounds: int, width: int) -> Iterator[int]:
    """Split `rounds` so that no chunk draws more than about CHUNK numbers, by the sizes alone."""
    at_once = max(1, CHUNK // max(width, 1))
    for start in range(0, rounds, at_once):
        yield min(at_once, rounds - start)
