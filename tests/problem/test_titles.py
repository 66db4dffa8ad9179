"""Distances between titles, held against hand numbers and against every edit path of short texts."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rapidfuzz.distance import Levenshtein

from exactk.errors import InputError, OutOfTimeError
from exactk.problem.deadline import Deadline
from exactk.problem.rules import titles
from exactk.problem.rules.constraints import TitleDistance
from exactk.problem.rules.titles import TitlePairs, far_apart
from exactk.problem.solving import solve

short_text = st.text(alphabet="abc", max_size=6)
any_text = st.text(max_size=12)


def ned_over_every_path(first: str, second: str) -> Fraction:
    """Marzal and Vidal's definition, written out: the least weight/length over all edit paths."""

    @cache
    def paths(i: int, j: int) -> frozenset[tuple[int, int]]:
        if i == len(first) and j == len(second):
            return frozenset({(0, 0)})
        found = set()
        if i < len(first):
            found |= {(w + 1, length + 1) for w, length in paths(i + 1, j)}
        if j < len(second):
            found |= {(w + 1, length + 1) for w, length in paths(i, j + 1)}
        if i < len(first) and j < len(second):
            edit = first[i] != second[j]
            found |= {(w + edit, length + 1) for w, length in paths(i + 1, j + 1)}
        return frozenset(found)

    return min((Fraction(w, length) for w, length in paths(0, 0) if length), default=Fraction(0))


def is_the_ned(value: float, first: str, second: str) -> bool:
    """Whether two texts are that far apart, and no farther."""
    reached, passed = (
        far_apart([first], [second], minimum, "ned")[0, 0] for minimum in (value, value + 1e-6)
    )
    return bool(reached and not passed)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("ab", "ba", 2 / 3),  # delete a, match b, insert a: 2 of 3 steps cost; two substitutions would be 2/2
        ("abc", "abd", 1 / 3),
        ("kitten", "sitting", 3 / 7),  # 3 edits, 4 matches
        ("", "abc", 1.0),
        ("", "", 0.0),
        ("same", "same", 0.0),
        ("abcd", "wxyz", 1.0),
        ("aaaa", "aa", 2 / 4),
        ("\U0001f600b", "\U0001f601b", 1 / 2),  # one code point each, though two UTF-16 units
    ],
)
def test_ned_of_known_pairs(first: str, second: str, expected: float) -> None:
    assert is_the_ned(expected, first, second)


@settings(max_examples=300, deadline=None)
@given(short_text, short_text)
def test_ned_is_the_least_ratio_over_every_edit_path(first: str, second: str) -> None:
    assert is_the_ned(float(ned_over_every_path(first, second)), first, second)


def test_a_dearer_path_can_have_the_lesser_ratio() -> None:
    # aab -> bcc: three substitutions weigh 3 of 3; delete aa, match b, insert cc weighs 4, but of 5.
    assert Levenshtein.distance("aab", "bcc") == 3
    assert is_the_ned(4 / 5, "aab", "bcc")


@settings(max_examples=200, deadline=None)
@given(any_text, any_text)
def test_ned_lies_between_its_two_levenshtein_bounds(first: str, second: str) -> None:
    distance, total = Levenshtein.distance(first, second), len(first) + len(second)
    if total:
        least, most = 2 * distance / (total + distance), distance / max(len(first), len(second))
        assert far_apart([first], [second], least, "ned")[0, 0]
        assert not far_apart([first], [second], most + 1e-6, "ned")[0, 0]


@settings(max_examples=200, deadline=None)
@given(any_text, any_text)
def test_ned_is_symmetric_and_zero_only_for_equal_texts(first: str, second: str) -> None:
    far = far_apart([first, second], [first, second], 0.5, "ned")
    assert far[0, 1] == far[1, 0]
    assert far_apart([first], [second], 1e-6, "ned")[0, 0] == (first != second)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(short_text, min_size=1, max_size=5),
    st.sampled_from([0.0, 0.1, 1 / 3, 0.5, 2 / 3, 0.7, 5 / 7, 0.123456, 1.0]),
)
def test_the_threshold_is_met_exactly_when_the_true_ratio_reaches_it(
    words: list[str], minimum: float
) -> None:
    threshold = Fraction(minimum).limit_denominator(10**6)
    far = far_apart(words, words, minimum, "ned")
    for i, first in enumerate(words):
        for j, second in enumerate(words):
            assert far[i, j] == (ned_over_every_path(first, second) >= threshold)


def test_every_threshold_on_every_pair_of_short_words_is_decided_right() -> None:
    words = ["".join(letters) for size in range(4) for letters in product("abc", repeat=size)]
    ratio = [[ned_over_every_path(first, second) for second in words] for first in words]
    for threshold in sorted({value for row in ratio for value in row}):
        far = far_apart(words, words, float(threshold), "ned")
        assert far.tolist() == [[value >= threshold for value in row] for row in ratio]


@settings(max_examples=100, deadline=None)
@given(st.lists(any_text, min_size=1, max_size=5), st.sampled_from([0.0, 0.3, 0.5, 0.6, 1.0]))
def test_normalised_levenshtein_agrees_with_rapidfuzz_to_the_threshold(
    words: list[str], minimum: float
) -> None:
    far = far_apart(words, words, minimum, "levenshtein")
    expected = [
        [round(Levenshtein.normalized_distance(a, b) - minimum, 12) >= 0 for b in words] for a in words
    ]
    assert far.tolist() == expected


@pytest.mark.parametrize("minimum", [1 / 3, 2 / 3, 0.1, 5 / 7])
def test_a_distance_equal_to_the_minimum_counts_as_reaching_it(minimum: float) -> None:
    # "aaaaaaaaa" against itself with some letters replaced by unique ones: NED is edits/length exactly.
    length = 21 if minimum not in (0.1,) else 20
    edits = round(minimum * length)
    changed = "".join(chr(0x4E00 + i) for i in range(edits)) + "a" * (length - edits)
    assert far_apart(["a" * length], [changed], minimum, "ned")[0, 0]
    assert far_apart(["a" * length], [changed], minimum, "levenshtein")[0, 0]
    assert not far_apart(["a" * length], [changed], minimum + 1e-6, "ned")[0, 0]


def random_titles(count: int, seed: int) -> list[str]:
    generator = np.random.default_rng(seed)
    return ["".join(generator.choice(list("abcde "), size=generator.integers(1, 9))) for _ in range(count)]


def test_the_cache_answers_as_the_uncached_function_also_when_it_overflows() -> None:
    words = random_titles(60, seed=1)
    generator = np.random.default_rng(2)
    tight = TitlePairs(0.5, "ned", capacity=12)
    for _ in range(40):
        requests = [list(generator.choice(words, size=5)) for _ in range(4)]
        expected = [far_apart(titles, titles, 0.5, "ned") for titles in requests]
        assert np.array_equal(tight.far_apart(requests), np.array(expected))


def test_the_cache_lets_requests_through_that_are_larger_than_itself() -> None:
    words = random_titles(30, seed=3)
    assert np.array_equal(
        TitlePairs(0.5, "ned", capacity=8).far_apart([words])[0], far_apart(words, words, 0.5, "ned")
    )


def test_a_pair_of_titles_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = []

    def counting(rows: list[str], others: list[str], minimum: float, metric: str) -> np.ndarray:
        measured.append((len(rows), len(others)))
        return far_apart(rows, others, minimum, metric)

    monkeypatch.setattr(titles, "far_apart", counting)
    cache_ = TitlePairs(0.5, "ned")
    first = cache_.far_apart([["red shoe", "blue shoe", "hat"]])
    again = cache_.far_apart([["red shoe", "blue shoe", "hat"], ["hat", "red shoe", "blue shoe"]])
    assert measured == [(3, 3)]
    assert np.array_equal(first[0], again[0])
    assert again[1, 0, 1] == first[0, 2, 0]


def test_lone_surrogates_and_very_long_titles_are_measured() -> None:
    assert is_the_ned(1 / 2, "\ud800a", "a")
    assert is_the_ned(1 / 3000, "a" * 3000, "a" * 2999 + "b")


def test_titles_remembered_together_are_judged_as_they_are_alone() -> None:
    random = np.random.default_rng(3)
    titles = ["".join(random.choice(list("abc"), random.integers(1, 9))) for _ in range(300)]
    pairs, alone = TitlePairs(0.5, "ned", capacity=16), TitlePairs(0.5, "ned")
    assert pairs.remember(titles)
    requests = [[titles[i] for i in random.choice(300, 12, replace=False)] for _ in range(40)]
    assert np.array_equal(pairs.far_apart(requests), alone.far_apart(requests))
    assert (pairs.verdict[: len(set(titles)), : len(set(titles))] != 0).all()
    assert not pairs.remember(str(n) for n in range(20_000))


@pytest.mark.parametrize("metric", ["ned", "levenshtein"])
def test_long_titles_end_at_the_deadline_and_are_the_same_in_pieces(
    metric: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = np.random.default_rng(0)
    texts = ["".join(generator.choice(list("abcd "), 300)) for _ in range(12)]
    whole = far_apart(texts, texts, 0.6, metric)
    monkeypatch.setattr("exactk.problem.rules.titles.AT_ONCE", 2_000)
    assert np.array_equal(far_apart(texts, texts, 0.6, metric, Deadline.after(600.0)), whole)
    with pytest.raises(
        OutOfTimeError, match="titles of up to 300 letters were not finished in the time given"
    ):
        TitlePairs(0.6, metric).far_apart([texts], Deadline(0.0))


def test_the_programme_of_one_pair_looks_at_the_clock() -> None:
    generator = np.random.default_rng(0)
    first, second = ("".join(generator.choice(list("ab"), 4_000)) for _ in range(2))
    with pytest.raises(OutOfTimeError, match="1 pairs of titles"):
        far_apart([first], [second], Levenshtein.normalized_distance(first, second), "ned", Deadline(0.0))


def test_a_title_of_endless_length_is_refused_by_name() -> None:
    items = {"item_id": ["long", "short"], "title": ["x" * 10_001, "y"]}
    with pytest.raises(InputError, match="item 'long' has 10,001 letters; .* up to 10,000: shorten it"):
        solve([1.0, 2.0], 1, items=items, constraints=TitleDistance(0.5))
