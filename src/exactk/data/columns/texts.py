"""Texts as words, and as vectors: hashed words and letter n-grams, weighted by rarity, reduced by a truncated SVD.

Knows no items, only lists of texts; nothing is downloaded and nothing is random but by a fixed seed. What was fitted
on train is applied by numpy alone.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, Int32, Int64

from exactk.problem.compiling import compiled

BUCKETS = 1 << 17  # words hash into the first so many places, n-grams into the next
GRAMS = (3, 4)
SIZE = 64  # numbers of a text's vector
MOST_TERMS = 1 << 15
_OVERSAMPLE, _ITERATIONS = 8, 4
_AT_ONCE = 1 << 15
_WORD = re.compile(r"[^\W_]+")


class Terms(NamedTuple):
    """Sorted distinct terms of R texts: text r has those from start[r] to start[r + 1]."""

    start: Int64[np.ndarray, "E"]
    terms: Int32[np.ndarray, "T"]

    def taken(self, rows: Int64[np.ndarray, "R"]) -> Terms:
        """Those of some rows, in the order asked for; row -1 has none."""
        start = np.append(self.start, self.start[-1])  # where there is no text, row 0 may be asked for, too
        at = np.maximum(rows, 0)
        counts = np.where(rows >= 0, start[at + 1] - start[at], 0)
        ends = np.cumsum(counts)
        place = np.arange(int(counts.sum())) + np.repeat(start[at] - (ends - counts), counts)
        return Terms(np.concatenate([[0], ends]), self.terms[place])

    def followed_by(self, other: Terms) -> Terms:
        """Those of both."""
        return Terms(
            np.concatenate([self.start, self.start[-1] + other.start[1:]]),
            np.concatenate([self.terms, other.terms]),
        )


def words_of(texts: Sequence[str | Sequence[str] | None]) -> Terms:
    """Distinct words of every text; of a list of texts each member counts as one more word."""
    blocks = [texts[first : first + _AT_ONCE] for first in range(0, max(1, len(texts)), _AT_ONCE)]
    parts = [_terms([_spelled(text) for text in some], (), _members(some)) for some in blocks]
    return reduce(Terms.followed_by, parts)


def terms_of(texts: Sequence[str | Sequence[str] | None]) -> tuple[Terms, Terms]:
    """Distinct words, and distinct letter n-grams of the words."""
    spelled = [_spelled(text) for text in texts]
    return _terms(spelled, (), _members(texts)), _terms(spelled, GRAMS, None)


@dataclass(frozen=True, eq=False)
class TextTransform:
    """Fitted on the texts of train: how rare each word is, and where each term points."""

    idf: Float32[np.ndarray, "W"]  # of every bucket of words
    terms: Int32[np.ndarray, "T"]  # sorted: the terms that have a direction
    weights: Float32[np.ndarray, "T"]
    directions: Float32[np.ndarray, "T V"]

    @classmethod
    def fitted(cls, texts: Sequence[str | Sequence[str] | None], size: int = SIZE) -> TextTransform:
        """Terms that at least two texts share get a direction; the vectors of near texts point near."""
        words, grams = terms_of(texts)
        num_texts = max(1, len(texts))
        frequency = np.bincount(np.concatenate([words.terms, grams.terms]), minlength=2 * BUCKETS)
        rarity = (np.log((1 + num_texts) / (1 + frequency)) + 1).astype(np.float32)
        shared = np.flatnonzero(frequency >= 2)
        if len(shared) > MOST_TERMS:
            shared = np.sort(shared[np.argsort(-frequency[shared], kind="stable")[:MOST_TERMS]])
        terms = shared.astype(np.int32)
        weights = rarity[shared]
        directions = _directions(_weighted(words, grams, terms, weights), len(terms), size)
        return cls(rarity[:BUCKETS].copy(), terms, weights, directions)

    def __call__(self, texts: Sequence[str | Sequence[str] | None]) -> Float32[np.ndarray, "R V"]:
        """A vector of length 1 for each text, or zeros where it shares no term with train."""
        vectors = np.zeros((len(texts), self.directions.shape[1]), np.float32)
        for first in range(0, len(texts), _AT_ONCE):
            vectors[first : first + _AT_ONCE] = self._vectors(texts[first : first + _AT_ONCE])
        return vectors

    def _vectors(self, texts: Sequence[str | Sequence[str] | None]) -> Float32[np.ndarray, "R V"]:
        words, grams = terms_of(texts)
        rows = _weighted(words, grams, self.terms, self.weights)
        vectors = np.zeros((len(texts), self.directions.shape[1]), np.float32)
        _sparse_times_dense(rows.start, rows.terms, rows.values, self.directions, vectors)
        return _unit(vectors)


class _Sparse(NamedTuple):
    start: Int64[np.ndarray, "E"]
    terms: Int32[np.ndarray, "T"]
    values: Float32[np.ndarray, "T"]


def _spelled(text: str | Sequence[str] | None) -> list[str]:
    if text is None:
        return []
    whole = text if isinstance(text, str) else " ".join(part for part in text if part)
    return _WORD.findall(unicodedata.normalize("NFKC", whole).casefold())


def _members(texts: Sequence[str | Sequence[str] | None]) -> list[list[str]]:
    """Each member of a list of texts, spelled as one word; plain texts have none."""
    return [
        [] if text is None or isinstance(text, str) else ["_".join(_spelled(part)) for part in text]
        for text in texts
    ]


def _terms(spelled: list[list[str]], grams: tuple[int, ...], members: list[list[str]] | None) -> Terms:
    rows = spelled
    if members is not None:
        rows = [words + more for words, more in zip(spelled, members, strict=True)]
    counts = np.array([len(words) for words in rows], np.int64)
    letters = "\0".join(word for words in rows for word in words) + "\0"
    points = np.frombuffer(letters.encode("utf-32-le"), np.uint32)
    ends = np.flatnonzero(points == 0)[: int(counts.sum())]
    if not len(ends):
        return Terms(np.zeros(len(rows) + 1, np.int64), np.empty(0, np.int32))
    starts = np.concatenate([[0], ends[:-1] + 1])
    owner = np.repeat(np.arange(len(rows)), counts)
    if grams:
        lengths = ends - starts
        room = sum(int(np.maximum(lengths + 2 - n + 1, 0).sum()) for n in grams)
        hashed, of_word = np.empty(room, np.int64), np.empty(room, np.int64)
        _hash_grams(points, starts, ends, np.array(grams), hashed, of_word)
        owner, bucket = owner[of_word], BUCKETS + hashed % BUCKETS
    else:
        hashed = np.empty(len(ends), np.int64)
        _hash_words(points, starts, ends, hashed)
        bucket = hashed % BUCKETS
    distinct = np.unique(owner * (2 * BUCKETS) + bucket)
    owners, terms = np.divmod(distinct, 2 * BUCKETS)
    start = np.concatenate([[0], np.cumsum(np.bincount(owners, minlength=len(rows)))])
    return Terms(start, terms.astype(np.int32))


@compiled
def _mixed(value, letter):
    return ((value ^ np.uint64(letter)) * np.uint64(0x100000001B3)) & np.uint64(0xFFFFFFFFFFFFFFFF)


@compiled
def _finished(value):
    value = (value ^ (value >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    return np.int64((value ^ (value >> np.uint64(33))) >> np.uint64(2))


@compiled
def _hash_words(points, starts, ends, out):
    for w in range(len(starts)):
        value = np.uint64(0xCBF29CE484222325)
        for at in range(starts[w], ends[w]):
            value = _mixed(value, points[at])
        out[w] = _finished(value)


@compiled
def _hash_grams(points, starts, ends, grams, out, of_word):
    place = 0
    for w in range(len(starts)):
        length = ends[w] - starts[w]
        for n in grams:
            for first in range(-1, length + 2 - n):  # a border before and behind the word: -1 and length
                value = np.uint64(0xCBF29CE484222325) + np.uint64(n)
                for at in range(first, first + n):
                    value = _mixed(value, points[starts[w] + at] if 0 <= at < length else 1)
                out[place] = _finished(value)
                of_word[place] = w
                place += 1


def _weighted(
    words: Terms, grams: Terms, terms: Int32[np.ndarray, "T"], weights: Float32[np.ndarray, "T"]
) -> _Sparse:
    """Rows of weights: words and n-grams each of length 1, so that neither drowns the other."""
    blocks = []
    for held in (words, grams):
        place = np.minimum(np.searchsorted(terms, held.terms), max(len(terms) - 1, 0))
        known = terms[place] == held.terms if len(terms) else np.zeros(len(held.terms), bool)
        owner = np.repeat(np.arange(len(held.start) - 1), np.diff(held.start))[known]
        value = weights[place[known]] if len(terms) else np.empty(0, np.float32)
        norm = np.sqrt(np.bincount(owner, value.astype(np.float64) ** 2, minlength=len(held.start) - 1))
        blocks.append((owner, place[known], value / np.maximum(norm[owner], 1e-12)))
    owner, place, value = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
    order = np.argsort(owner, kind="stable")
    counts = np.bincount(owner, minlength=len(words.start) - 1)
    start = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return _Sparse(start, place[order].astype(np.int32), value[order].astype(np.float32))


def _directions(rows: _Sparse, num_terms: int, size: int) -> Float32[np.ndarray, "T V"]:
    """The leading right singular vectors, by subspace iteration from a fixed start (Halko, Martinsson, Tropp 2011)."""
    num_rows = len(rows.start) - 1
    wide = min(size + _OVERSAMPLE, num_terms, num_rows)
    out = np.zeros((num_terms, size), np.float32)
    if not wide:
        return out
    right = np.random.default_rng(0).standard_normal((num_terms, wide)).astype(np.float32)
    for _ in range(_ITERATIONS):
        left = np.zeros((num_rows, wide), np.float32)
        _sparse_times_dense(rows.start, rows.terms, rows.values, right, left)
        left = np.linalg.qr(left)[0]
        right = np.zeros((num_terms, wide), np.float32)
        _transpose_times_dense(rows.start, rows.terms, rows.values, left, right)
        right = np.linalg.qr(right)[0]
    left = np.zeros((num_rows, wide), np.float32)
    _sparse_times_dense(rows.start, rows.terms, rows.values, right, left)
    _, weight, turn = np.linalg.svd(left, full_matrices=False)
    # Directions that carry nothing are rounding errors, which differ from machine to machine.
    kept = min(size, int((weight > 1e-4 * weight[0]).sum()))
    leading = right @ turn[:kept].T
    signs = np.sign(leading[np.abs(leading).argmax(axis=0), np.arange(kept)])  # else each machine has its own
    out[:, :kept] = leading * np.where(signs == 0, 1, signs)
    return out


@compiled
def _sparse_times_dense(start, terms, values, dense, out):
    for row in range(len(start) - 1):
        for at in range(start[row], start[row + 1]):
            for v in range(dense.shape[1]):
                out[row, v] += values[at] * dense[terms[at], v]


@compiled
def _transpose_times_dense(start, terms, values, dense, out):
    for row in range(len(start) - 1):
        for at in range(start[row], start[row + 1]):
            for v in range(dense.shape[1]):
                out[terms[at], v] += values[at] * dense[row, v]


def _unit(vectors: Float32[np.ndarray, "R V"]) -> Float32[np.ndarray, "R V"]:
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(np.where(length > 1e-9, vectors / np.maximum(length, 1e-9), 0.0), np.float32)


def overlaps(
    start: Int64[np.ndarray, "E"],
    words: Int32[np.ndarray, "W"],
    idf: Float32[np.ndarray, "I"],
    rows: Int64[np.ndarray, "B N"],
) -> Float32[np.ndarray, "B N N"]:
    """Rarity of the words two texts share over that of all their words; texts are rows of the lists, -1 = none."""
    out = np.zeros((*rows.shape, rows.shape[1]), np.float32)
    _overlaps(start, words, idf, rows, out)
    return out


@compiled
def _overlaps(start, words, idf, rows, out):
    B, N = rows.shape
    for b in range(B):
        for i in range(N):
            if rows[b, i] < 0:
                continue
            for j in range(i + 1, N):
                if rows[b, j] < 0:
                    continue
                p, p_end = start[rows[b, i]], start[rows[b, i] + 1]
                q, q_end = start[rows[b, j]], start[rows[b, j] + 1]
                shared = every = 0.0
                while p < p_end or q < q_end:
                    if q >= q_end or (p < p_end and words[p] < words[q]):
                        every += idf[words[p]]
                        p += 1
                    elif p >= p_end or words[q] < words[p]:
                        every += idf[words[q]]
                        q += 1
                    else:
                        shared += idf[words[p]]
                        every += idf[words[p]]
                        p += 1
                        q += 1
                if every > 0:
                    out[b, i, j] = out[b, j, i] = shared / every
