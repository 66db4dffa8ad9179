"""Intervals and p-values against hand numbers, scipy, and repeated sampling from a known truth."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exactk.errors import InputError
from exactk.evaluation.significance import bootstrap_interval, holm, paired_permutation


def seeded(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_three_equal_wins_have_a_p_value_of_one_quarter() -> None:
    # Of the 8 sign patterns of (1, 1, 1), +++ and --- are as extreme: 2 / 8.
    assert paired_permutation(np.ones(3), np.zeros(3), seeded()) == pytest.approx(0.25)


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=7))
def test_few_pairs_are_enumerated_exactly(differences: list[int]) -> None:
    observed = abs(sum(differences))
    patterns = list(itertools.product((-1, 1), repeat=len(differences)))
    extreme = sum(abs(sum(s * d for s, d in zip(p, differences, strict=True))) >= observed for p in patterns)
    ours = np.array(differences, float)
    assert paired_permutation(ours, np.zeros(len(ours)), seeded()) == pytest.approx(extreme / len(patterns))


def test_random_sign_flips_agree_with_scipy() -> None:
    stats = pytest.importorskip("scipy.stats", reason="scipy comes with the extra 'rivals'")
    rng = seeded(4)
    ours, theirs = rng.normal(0.12, 1, 200), rng.normal(0, 1, 200)
    reference = stats.permutation_test(
        (ours, theirs), lambda a, b, axis: (a - b).mean(axis), permutation_type="samples", vectorized=True,
        n_resamples=9999, random_state=1,
    ).pvalue  # fmt: skip
    assert paired_permutation(ours, theirs, seeded(2)) == pytest.approx(reference, abs=0.02)


def test_under_no_difference_the_p_value_is_uniform() -> None:
    rng = seeded(5)
    p_values = [
        paired_permutation(rng.normal(size=40), rng.normal(size=40), rng, rounds=400) for _ in range(300)
    ]
    # Of 300 uniform p-values 30 +- 5 lie below 0.1; four standard deviations are allowed.
    assert 9 <= sum(p <= 0.1 for p in p_values) <= 51


def test_a_clear_win_is_certain_but_never_p_zero_and_symmetric() -> None:
    ours, theirs = np.full(100, 0.6), np.full(100, 0.5)
    assert paired_permutation(ours, theirs, seeded()) == pytest.approx(1 / 10_000)
    assert paired_permutation(theirs, ours, seeded()) == pytest.approx(1 / 10_000)


def test_equal_methods_have_p_value_one() -> None:
    assert paired_permutation(np.ones(50), np.ones(50), seeded()) == 1.0
    assert paired_permutation(np.full(5, np.nan), np.ones(5), seeded()) == 1.0


def test_repeating_every_user_makes_nothing_surer_when_grouped_by_user() -> None:
    rng = seeded(6)
    ours, theirs = rng.normal(0.4, 1, 12), np.zeros(12)
    users = np.arange(12)
    once = paired_permutation(ours, theirs, seeded(), users)
    often = paired_permutation(np.repeat(ours, 20), np.repeat(theirs, 20), seeded(), np.repeat(users, 20))
    naive = paired_permutation(np.repeat(ours, 20), np.repeat(theirs, 20), seeded())
    assert often == pytest.approx(once)
    assert naive < once / 10


def test_pairs_must_pair() -> None:
    with pytest.raises(InputError, match="got 2 and 3"):
        paired_permutation(np.zeros(2), np.zeros(3), seeded())


def test_the_bootstrap_interval_has_the_width_theory_gives_it() -> None:
    values = seeded(7).normal(3, 2, 4000)
    interval = bootstrap_interval(values, seeded(8))
    half = 1.96 * values.std() / np.sqrt(4000)
    assert interval.estimate == pytest.approx(values.mean())
    assert interval.high - interval.estimate == pytest.approx(half, rel=0.1)
    assert interval.estimate - interval.low == pytest.approx(half, rel=0.1)


def test_the_interval_covers_the_truth_as_often_as_it_says() -> None:
    rng = seeded(9)
    covered = 0
    for _ in range(400):
        interval = bootstrap_interval(rng.exponential(1.0, 150), rng, level=0.9, rounds=300)
        covered += interval.low <= 1.0 <= interval.high
    assert 0.85 <= covered / 400 <= 0.94  # the percentile bootstrap of a skewed mean falls a little short


def test_drawing_alike_values_together_changes_no_distribution() -> None:
    clicks = np.repeat([1.0, 0.0], [120, 880])
    together = bootstrap_interval(clicks, seeded(1), rounds=20_000)
    apart = bootstrap_interval(clicks + 1e-9 * np.arange(1000), seeded(2), rounds=20_000)
    assert tuple(together) == pytest.approx(tuple(apart), abs=0.0021)  # two clicks in a thousand


def test_a_ratio_of_sums_is_resampled_pairwise() -> None:
    over = seeded(1).random(50) + 0.5
    interval = bootstrap_interval(0.8 * over, seeded(), over=over)
    assert tuple(interval) == pytest.approx((0.8, 0.8, 0.8))


def test_grouped_intervals_are_as_wide_as_the_groups_are_few() -> None:
    groups = np.repeat(np.arange(30), 100)
    values = np.repeat(seeded(2).normal(size=30), 100)
    grouped, naive = bootstrap_interval(values, seeded(), groups=groups), bootstrap_interval(values, seeded())
    assert grouped.high - grouped.low == pytest.approx(10 * (naive.high - naive.low), rel=0.2)


def test_nothing_known_gives_no_interval_and_a_single_value_a_point() -> None:
    assert all(np.isnan(bootstrap_interval(np.full(3, np.nan), seeded())))
    assert tuple(bootstrap_interval(np.array([2.0, np.nan]), seeded())) == (2.0, 2.0, 2.0)


def test_a_level_outside_zero_to_one_is_refused() -> None:
    with pytest.raises(InputError, match="level"):
        bootstrap_interval(np.ones(3), seeded(), level=95.0)


def test_same_generator_same_answer() -> None:
    values = seeded(3).normal(size=500)
    assert bootstrap_interval(values, seeded(1)) == bootstrap_interval(values, seeded(1))
    one = paired_permutation(values, np.zeros(500), seeded(1))
    assert one == paired_permutation(values, np.zeros(500), seeded(1))


def test_holm_by_hand() -> None:
    np.testing.assert_allclose(holm(np.array([0.01, 0.04, 0.03])), [0.03, 0.06, 0.06])


@settings(max_examples=50)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_lies_between_the_p_value_and_bonferroni(p_values: list[float]) -> None:
    p = np.array(p_values)
    adjusted = holm(p)
    assert (adjusted >= p - 1e-12).all()
    assert (adjusted <= np.minimum(p * len(p), 1) + 1e-12).all()
