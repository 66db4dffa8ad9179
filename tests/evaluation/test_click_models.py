"""Click models: planted examination is found again, hand numbers, and what a weighed metric corrects."""

from __future__ import annotations

import numpy as np
import pytest

from exactk.errors import InputError
from exactk.evaluation.click_models import (
    Lists,
    fitted_cascade,
    fitted_position_based,
    reach,
    read_down_to_click,
    weighed_hits,
)

ITEMS, PLACES = 30, 6


def shown(num: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    item = np.stack([rng.permutation(ITEMS)[:PLACES] for _ in range(num)])
    return np.repeat(np.arange(num), PLACES), item.ravel(), np.tile(np.arange(PLACES), num)


def test_planted_examination_of_positions_is_found_again() -> None:
    rng = np.random.default_rng(0)
    looked, liked = np.array([1.0, 0.8, 0.6, 0.4, 0.3, 0.2]), rng.uniform(0.05, 0.6, ITEMS)
    request, item, position = shown(20_000, rng)
    clicked = rng.random(len(item)) < looked[position] * liked[item]
    model = fitted_position_based(Lists(request, item, position, clicked), ITEMS)
    np.testing.assert_allclose(model.examination, looked, atol=0.03)
    np.testing.assert_allclose(model.attraction, liked, atol=0.03)


def test_planted_cascade_is_found_again_and_told_apart_from_positions() -> None:
    rng = np.random.default_rng(1)
    liked = rng.uniform(0.05, 0.6, ITEMS)
    request, item, position = shown(20_000, rng)
    drawn = rng.random(len(item)) < liked[item]
    lists = Lists(request, item, position, drawn)
    clicked = drawn & (read_down_to_click(lists) > 0)
    lists = lists._replace(clicked=clicked)
    cascade, by_position = fitted_cascade(lists, ITEMS), fitted_position_based(lists, ITEMS)
    np.testing.assert_allclose(cascade.attraction, liked, atol=0.03)
    assert np.all(np.diff(cascade.examination) < 0)
    assert cascade.log_likelihood(lists) > by_position.log_likelihood(lists)


def test_reading_stops_at_the_first_click_whatever_the_order_of_rows() -> None:
    request, item = np.array([1, 0, 0, 0, 1]), np.arange(5)
    position = np.array([1, 2, 0, 1, 0])
    clicked = np.array([False, True, False, True, False])
    lists = Lists(request, item, position, clicked)
    # request 0: places 0 (no click), 1 (click), 2 (below the click); request 1: no click at all
    assert read_down_to_click(lists).tolist() == [1, 0, 1, 1, 1]
    chances = reach(lists, np.array([0.5, 0.5, 0.25, 0.5, 0.1]))
    np.testing.assert_allclose(chances, [0.9, 0.75 * 0.5, 1.0, 0.75, 1.0])


def test_cascade_attraction_by_hand() -> None:
    # Item 0 on top of both lists: clicked once of two looks. Item 1 below: looked at once, clicked once.
    lists = Lists(
        np.array([0, 0, 1, 1]),
        np.array([0, 1, 0, 1]),
        np.array([0, 1, 0, 1]),
        np.array([True, False, False, True]),
    )
    model = fitted_cascade(lists, 2, prior=(1.0, 1.0))
    np.testing.assert_allclose(model.attraction, [2 / 4, 2 / 3])


def test_clicks_at_places_few_look_at_count_more() -> None:
    share, effective = weighed_hits(np.array([1.0, 0.0]), np.array([1.0, 0.5]))
    assert share == pytest.approx(1 / 3)
    assert effective == pytest.approx(9 / 5)
    assert np.isnan(weighed_hits(np.array([]), np.array([]))[0])


def test_weighing_takes_back_what_the_logging_policy_gained() -> None:
    rng = np.random.default_rng(2)
    looked = np.array([1.0, 0.5, 0.25, 0.125, 0.1, 0.1])
    request, item, position = shown(40_000, rng)
    clicked = rng.random(len(item)) < looked[position] * 0.3  # all items alike: no card of two beats another
    lists = Lists(request, item, position, clicked)
    model = fitted_position_based(lists, ITEMS)
    at = np.flatnonzero(clicked)
    logged = (position[at] < 2).astype(float)  # the two on top
    plain, (weighed, _) = logged.mean(), weighed_hits(logged, model.examined(lists)[at])
    assert plain > 0.6
    assert weighed == pytest.approx(2 / PLACES, abs=0.03)


def test_no_lists_and_wrong_rows_are_refused() -> None:
    nothing = np.array([], dtype=np.int64)
    with pytest.raises(InputError, match="none"):
        fitted_cascade(Lists(nothing, nothing, nothing, nothing.astype(bool)), 1)
    one = np.array([0])
    with pytest.raises(InputError, match="from 0 to 0"):
        fitted_position_based(Lists(one, one + 1, one, one > 0), 1)
    with pytest.raises(InputError, match="0 .the top. or more"):
        fitted_position_based(Lists(one, one, one - 1, one > 0), 1)
