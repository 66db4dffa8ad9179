"""Sixteen numbers at a time: powers of two, and squares of numbers turned over."""

from __future__ import annotations

from typing import no_type_check

import numpy as np
from numba import njit

from exactk.engine.card_value.network_kernel import squared
from exactk.engine.lanes import LANES, load, power_of_two, store, turn_block


@njit
@no_type_check
def raised(x):
    for i in range(0, len(x), LANES):
        store(x, i, power_of_two(load(x, i)))


@njit
@no_type_check
def turned(x, source, target, step):
    turn_block(x, source, step, target, step)


@njit
@no_type_check
def mirrored(x, at, row, span, size):
    squared(x, at, row, span, size)


def test_powers_of_two_are_good_to_seven_digits() -> None:
    x = np.linspace(-126, 20, 16 * 500, dtype=np.float32)
    wanted = 2.0 ** x.astype(np.float64)
    raised(x)
    assert np.abs(x / wanted - 1).max() < 3e-7


def test_beyond_the_least_power_of_two_nothing_gets_smaller_or_wrong() -> None:
    x = np.array([-1e9, -np.inf, -200, -127, -126, *np.zeros(11)], np.float32)
    raised(x)
    np.testing.assert_array_equal(x[:5], np.float32(2.0**-126))
    np.testing.assert_array_equal(x[5:], 1)


def test_a_block_turned_over_is_the_transposed_matrix() -> None:
    step = 19
    x = np.random.default_rng(0).random(2 * 16 * step).astype(np.float32)
    before = x.reshape(2, 16, step).copy()
    turned(x, 0, 16 * step, step)
    after = x.reshape(2, 16, step)
    np.testing.assert_array_equal(after[1, :, :16], before[0, :, :16].T)
    np.testing.assert_array_equal(after[0], before[0])
    np.testing.assert_array_equal(after[1, :, 16:], before[1, :, 16:])


def test_values_of_pairs_become_a_symmetric_matrix_of_any_size() -> None:
    for size in (2, 3, 15, 16, 17, 33, 50):
        span = -(-size // 16) * 16
        values = np.random.default_rng(size).random(size * (size - 1) // 2).astype(np.float32)
        x = np.full(64 + len(values) + span * span + 600, 7, np.float32)
        x[64 : 64 + len(values)] = values
        at = 64 + len(values) + 300
        mirrored(x, at, 64, span, size)
        wanted = np.zeros((size, size), np.float32)
        wanted[np.triu_indices(size, 1)] = values
        found = x[at : at + span * span].reshape(span, span)[:size, :size]
        np.testing.assert_array_equal(found, wanted + wanted.T)
