"""A batch's columns as every member of a card value reads them, compiled: what `models.card_inputs` makes.

Knows the scales of train and no weights that were learned; other columns are refused by name. Lists of numbers lie
candidate by candidate (`span` apart), pairs i < j one after the other (`pair_span` apart), sixteen to a register.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float32, Int64

from exactk.engine import Weights, plain
from exactk.engine.arithmetic import filled
from exactk.engine.lanes import (
    add,
    inner,
    larger,
    load,
    multiply,
    repeat,
    spread,
    store,
    subtract,
    where_positive,
)
from exactk.engine.shapes import CardReads
from exactk.errors import InputError
from exactk.problem.batch import Batch
from exactk.settings.config import InputSizes


class Scales(NamedTuple):
    """Of train: knots of numbers, pieces train reaches, mean and deviation of pair features, knots of the context."""

    knots: Float32[np.ndarray, "F n"]
    used: Float32[np.ndarray, "F"]
    pair_mean: Float32[np.ndarray, "P"]
    pair_deviation: Float32[np.ndarray, "P"]
    context_knots: Float32[np.ndarray, "X n"]

    @classmethod
    def of(cls, weights: Weights) -> Scales:
        """From what a model's `inputs` saved."""
        names = ("numbers.knots", "numbers.used", "pair_mean", "pair_deviation", "context_numbers.knots")
        return cls(*(plain(weights[name]) for name in names))


class ModelColumns(NamedTuple):
    """Of a batch, with no columns where there are none; `own` is what each member makes of ids and features."""

    own: Float32[np.ndarray, "M B N S"]
    numbers: Float32[np.ndarray, "B N F"]
    vectors: Float32[np.ndarray, "B N V"]
    context_numbers: Float32[np.ndarray, "B X"]
    user_features: Float32[np.ndarray, "B U"]
    pairs: Float32[np.ndarray, "B N N P"]
    codes: Int64[np.ndarray, "B N C"]
    context_codes: Int64[np.ndarray, "B G"]
    present: Bool[np.ndarray, "B N"]


def columns_of(
    batch: Batch, reads: CardReads, sizes: InputSizes, own: Float32[np.ndarray, "M B N S"]
) -> ModelColumns:
    """Everything the model reads; a batch with other columns is refused."""
    as_numbers = reads.features_are_numbers
    features = _of(batch.item_features, sizes.item_feature_size, "item features")
    numbers = [
        *_of(batch.candidate_numbers, sizes.candidate_numbers, "candidate numbers"),
        *_one(batch.score, sizes.scored, "scores"),
        *_one(batch.position, reads.places, "positions"),
        *(features if as_numbers else []),
    ]
    vectors = _of(batch.item_vectors, sizes.item_vector_size, "item vectors")
    codes = [
        *_of(batch.item_categories, len(sizes.item_categories), "item categories"),
        *_of(batch.candidate_categories, len(sizes.candidate_categories), "candidate categories"),
    ]
    context_codes = [
        *_of(batch.context_categories, len(sizes.context_categories), "context categories"),
        *_of(batch.user_categories, len(sizes.user_categories), "user categories"),
    ]
    B, N = batch.item.shape
    return ModelColumns(
        own,
        _joined(numbers, (B, N), np.float32),
        _joined(vectors if as_numbers else [*features, *vectors], (B, N), np.float32),
        _joined(_of(batch.context_numbers, sizes.context_numbers, "context numbers"), (B,), np.float32),
        _joined(_of(batch.user_features, sizes.user_feature_size, "user features"), (B,), np.float32),
        _joined(_of(batch.pair_features, sizes.pair_features, "pair features"), (B, N, N), np.float32),
        _joined(codes, (B, N), np.int64),
        _joined(context_codes, (B,), np.int64),
        np.ascontiguousarray(batch.present),
    )


def _of(values: np.ndarray | None, size: int, name: str) -> list[np.ndarray]:
    if not size:
        return []
    if values is None or values.shape[-1] != size:
        given = "none" if values is None else str(values.shape[-1])
        raise InputError(f"this model reads {size} {name}, the batch has {given}")
    return [values]


def _one(values: np.ndarray | None, wanted: bool, name: str) -> list[np.ndarray]:
    if not wanted:
        return []
    if values is None:
        raise InputError(f"this model reads {name}, the batch has none")
    return [values[..., None]]


def _joined(parts: list[np.ndarray], shape: tuple[int, ...], kind: type) -> np.ndarray:
    if not parts:
        return np.zeros((*shape, 0), kind)
    whole = parts[0] if len(parts) == 1 else np.concatenate(parts, -1)
    return np.ascontiguousarray(whole, kind)


LARGEST = np.float32(4.0)  # deviations, of a pair feature
ZERO, ONE, TWO = np.float32(0), np.float32(1), np.float32(2)
NOTHING = np.float32(-np.inf)


class ColumnSizes(NamedTuple):
    """How many there are of each kind; `depth` are the numbers of a candidate's row, `own` those of one member."""

    numbers: int
    bins: int
    vectors: int  # numbers read as they are
    pairs: int  # features of pairs
    gaps: int  # numbers of which every two candidates are compared
    categories: int
    context_numbers: int
    user_features: int
    context_categories: int
    pairs_are_context: int
    own: int  # embeddings, and what ids and features give
    depth: int
    context_depth: int
    pair_depth: int


class ColumnPlaces(NamedTuple):
    """Where in the scratch array everything lies, for one number of candidates."""

    span: int
    pair_span: int
    present: int
    known: int
    values: int
    level: int
    rank: int
    piece: int  # how many whole pieces of its scale a number reaches
    part: int  # what it reaches of the next
    rows: int  # a row for each candidate
    context: int
    context_piece: int
    pair_rows: int  # a row for each column of pairs
    standard: int  # pair features in deviations, all N x N of one column


@inner
def read_columns(s, p, x, scales, given, b):
    """All of request b but its context and what differs from member to member."""
    _, numbers, vectors, _, _, pairs, codes, _, present = given
    N = present.shape[1]
    for n in range(p.span + 16):
        x[p.present + n] = ONE if n < N and present[b, n] else ZERO
    for f in range(s.numbers):
        _read_number(s, p, x, scales, f, numbers, b, N)
    at = 3 * s.numbers
    for n in range(N):
        for v in range(s.vectors):
            x[p.rows + n * s.depth + at + v] = vectors[b, n, v] if present[b, n] else ZERO
    _read_gaps(s, p, x, N)
    for column in range(s.pairs):
        _read_pair_feature(s, p, x, scales, pairs, column, b, N)
    _read_same(s, p, x, codes, b, N)


@inner
def pieces_of(value, knots, f, bins):
    """How many whole pieces of a scale lie below a value, and how much of the next."""
    whole = 0
    while whole < bins and value >= knots[f, whole + 1]:
        whole += 1
    if whole == bins or value <= knots[f, whole]:
        return whole, ZERO
    return whole, (value - knots[f, whole]) / (knots[f, whole + 1] - knots[f, whole])


@inner
def _read_number(s, p, x, scales, f, numbers, b, N):
    """One number of all candidates: its pieces, its level less the list's mean, its rank, whether it is missing."""
    knots, used = scales[0], scales[1]
    values, level, rank = p.values + f * p.span, p.level + f * p.span, p.rank + f * p.span
    total, count = ZERO, 0
    for n in range(p.span):
        value = np.float32(np.nan) if n >= N else numbers[b, n, f]
        missing = np.isnan(value)
        whole, part = (0, ZERO) if missing else pieces_of(value, knots, f, s.bins)
        x[values + n] = value
        x[level + n] = (np.float32(whole) + part) / used[f]
        x[p.piece + f * p.span + n], x[p.part + f * p.span + n] = np.float32(whole), part
        x[p.known + n] = ZERO if missing else x[p.present + n]
        if x[p.known + n] > ZERO:
            total += x[level + n]
            count += 1
    _rank(p, x, values, rank, count, N)
    mean = total / np.float32(max(count, 1))
    for n in range(N):
        row = p.rows + n * s.depth + f
        x[row] = ONE if np.isnan(x[values + n]) else ZERO
        x[row + s.numbers] = TWO * (x[level + n] - mean) * x[p.known + n]
        x[row + 2 * s.numbers] = x[rank + n]


@inner
def _rank(p, x, values, rank, count, N):
    """From -1, the least of its list, to 1: how many are less, less how many are more, of all others."""
    one = spread(ONE)
    scale = spread(ONE / np.float32(max(count - 1, 1)))
    for c in range(0, p.span, 16):
        value, sums = load(x, values + c), spread(ZERO)
        for m in range(N):
            if x[p.known + m] > ZERO:
                apart = subtract(value, repeat(x, values + m))
                sums = add(sums, where_positive(one, apart))
                sums = subtract(sums, where_positive(one, subtract(spread(ZERO), apart)))
        store(x, rank + c, multiply(multiply(sums, scale), load(x, p.known + c)))


@inner
def pair_at(i, N):
    """Where the pairs of candidate i with those behind it begin."""
    return i * (2 * N - i - 1) // 2


@inner
def _read_gaps(s, p, x, N):
    """How far two candidates are apart in level, twice, and in rank."""
    zero = spread(ZERO)
    for f in range(s.gaps):
        for kind in range(2):
            values = (p.level if kind == 0 else p.rank) + f * p.span
            row = p.pair_rows + (3 * s.pairs + kind * s.gaps + f) * p.pair_span
            for i in range(N):
                mine = repeat(x, values + i)
                scale = spread(x[p.present + i] * (TWO if kind == 0 else ONE))
                at = row + pair_at(i, N) - i - 1
                for j in range(i + 1, N, 16):  # what is written beyond the last is the next row's, or spare
                    apart = subtract(mine, load(x, values + j))
                    apart = larger(apart, subtract(zero, apart))
                    store(x, at + j, multiply(multiply(apart, scale), load(x, p.present + j)))


@inner
def _read_pair_feature(s, p, x, scales, pairs, column, b, N):
    """One feature of pairs in deviations, the same less the list's mean, whether it is missing."""
    mean, scale = scales[2][column], ONE / scales[3][column]
    total, count = 0.0, 0
    for i in range(N):
        for j in range(N):
            z = np.float32(np.nan)
            if i != j and x[p.present + i] > ZERO and x[p.present + j] > ZERO:
                z = (pairs[b, i, j, column] - mean) * scale
                if not np.isnan(z):
                    z = min(max(z, -LARGEST), LARGEST)
                    total += z
                    count += 1
            x[p.standard + i * N + j] = z
    centre = np.float32(total / max(count, 1))
    row = p.pair_rows + column * p.pair_span
    for i in range(N):
        for j in range(i + 1, N):
            z, at = x[p.standard + i * N + j], row + pair_at(i, N) + j - i - 1
            missing, two = np.isnan(z), x[p.present + i] * x[p.present + j]
            x[at] = ZERO if missing else z
            x[at + s.pairs * p.pair_span] = ZERO if missing else z - centre
            x[at + 2 * s.pairs * p.pair_span] = two if missing else ZERO
    if s.pairs_are_context:
        _read_own_pairs(s, p, x, column, centre, N)


@inner
def _read_own_pairs(s, p, x, column, centre, N):
    """Of each candidate the mean and the best of its pairs, less the list's mean, and whether it has any."""
    for i in range(N):
        total, best, count = ZERO, NOTHING, 0
        for j in range(N):
            z = x[p.standard + i * N + j]
            if not np.isnan(z):
                total += z - centre
                best = max(best, z - centre)
                count += 1
        row = p.rows + i * s.depth + 3 * s.numbers + s.vectors + column
        x[row] = total / np.float32(max(count, 1))
        x[row + s.pairs] = best if count else ZERO
        x[row + 2 * s.pairs] = ONE if count else ZERO


@inner
def _read_same(s, p, x, codes, b, N):
    """Which categories, known ones, two candidates share."""
    for c in range(s.categories):
        row = p.pair_rows + (3 * s.pairs + 2 * s.gaps + c) * p.pair_span
        for i in range(N):
            at, code = row + pair_at(i, N) - i - 1, codes[b, i, c]
            for j in range(i + 1, N):
                same = code > 0 and codes[b, j, c] == code
                x[at + j] = x[p.present + i] * x[p.present + j] if same else ZERO


@inner
def read_context(s, p, x, scales, given, b):
    """What a request's context gives every member: which of its numbers are missing, the user's features."""
    _, _, _, context_numbers, user_features, _, _, _, present = given
    knots = scales[4]
    count = ZERO
    for n in range(present.shape[1]):
        count += x[p.present + n]
    filled(x, p.context, (4 * s.context_depth + 15) // 16 * 16, ZERO)
    for f in range(s.context_numbers):
        value = count if f == 0 else context_numbers[b, f - 1]
        missing = np.isnan(value)
        whole, part = (0, ZERO) if missing else pieces_of(value, knots, f, s.bins)
        x[p.context_piece + 2 * f], x[p.context_piece + 2 * f + 1] = np.float32(whole), part
        x[p.context + f] = ONE if missing else ZERO
    for f in range(s.user_features):
        x[p.context + s.context_numbers + f] = user_features[b, f]
