"""The solve door: every kind of input, the best card by brute force, clear refusals."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from exactk.errors import ConfigError, InfeasibleError, InputError, OutOfTimeError
from exactk.problem.exact.cliques import Ranking, best_n
from exactk.problem.graph import Requests
from exactk.problem.rules.constraints import (
    AtMost,
    Distinct,
    MinimumDistance,
    MinimumGap,
    Rule,
    TitleDistance,
)
from exactk.problem.solving import Card, solve

ITEMS = {
    "item_id": ["s1", "s2", "hat", "bag"],
    "title": ["red shoe", "red shoes", "green hat", "leather bag"],
    "brand": ["x", "y", "x", "z"],
    "price": [10, 12, 30, 55],
    "score": [0.9, 0.8, 0.5, 0.4],
}
FRAMES: list[Callable[[dict[str, Any]], Any]] = [
    pd.DataFrame,
    pl.DataFrame,
    pa.table,
    dict,
    lambda columns: [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)],
]
every_frame = pytest.mark.parametrize("frame", FRAMES, ids=["pandas", "polars", "arrow", "mapping", "rows"])


def test_the_best_card_under_rules_by_hand() -> None:
    card = solve([0.9, 0.8, 0.6, 0.4], 2, items=ITEMS, constraints=TitleDistance(0.5) & Distinct("brand"))
    # s1 + s2 (1.7) are too alike, s1 + hat (1.5) are of one brand; s2 + hat (1.4) beats s1 + bag (1.3)
    assert card.items == ("s2", "hat")
    assert card.positions == (1, 2)
    assert card.value == pytest.approx(1.4)
    assert (card.optimal, card.gap, card.relaxed) == (True, 0, ())


@every_frame
def test_every_kind_of_frame_gives_the_same_card(frame: Callable[[dict[str, Any]], Any]) -> None:
    rules = TitleDistance(0.5) & MinimumGap("price", 10)
    card = solve("score", 2, items=frame(ITEMS), constraints=rules)
    assert card == Card(("s1", "hat"), (0, 2), card.value, card.value, True)
    assert card.value == pytest.approx(1.4)
    assert solve(ITEMS["score"], 2, items=frame(ITEMS), constraints=rules) == card


@every_frame
def test_a_frame_of_many_requests_gives_a_card_for_each(frame: Callable[[dict[str, Any]], Any]) -> None:
    log = {
        "request_id": ["r1", "r2", "r1", "r2", "r1"],
        "item_id": [1, 2, 3, 1, 2],
        "score": [0.1, 0.2, 0.3, 0.4, 0.5],
    }
    cards = solve("score", 2, items=frame(log))
    assert [(card.request_id, card.items, card.positions) for card in cards] == [
        ("r1", (3, 2), (1, 2)),
        ("r2", (2, 1), (0, 1)),
    ]
    assert [card.value for card in cards] == pytest.approx([0.8, 0.6])


@pytest.mark.parametrize("given_", [list, np.array, pd.Series, pl.Series, lambda s: np.array(s, np.float32)])
def test_scores_may_be_any_sequence_of_numbers(given_: Callable[[list[float]], Any]) -> None:
    assert solve(given_([1.0, 3.0, 2.0]), 2).items == (1, 2)


def test_whole_numbers_and_numpy_sizes_are_fine() -> None:
    assert solve([1, 3, 2], np.int64(2)).value == 5.0
    assert solve(np.array([[1, 3, 2], [3, 1, 2]]), [1, 2])[1].positions == (0, 2)


@st.composite
def requests(draw: st.DrawFn) -> dict[str, Any]:
    N = draw(st.integers(1, 7))
    K = draw(st.integers(1, N))
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    upper = np.triu(generator.random((N, N)) < draw(st.sampled_from([0.4, 0.7, 1.0])), 1)
    pair = generator.normal(size=(N, N)).round(1)
    wished = draw(st.lists(st.integers(0, N - 1), unique=True, max_size=2))
    cut = draw(st.integers(0, len(wished)))
    return {
        "scores": generator.normal(size=N).round(1),
        "k": K,
        "pair_scores": pair + pair.T if draw(st.booleans()) else None,
        "allowed": upper | upper.T,
        "include": wished[:cut],
        "exclude": wished[cut:],
        "groups": generator.integers(0, 3, N),
        "most": draw(st.integers(1, 3)),
    }


def brute_force(asked: dict[str, Any]) -> list[tuple[float, tuple[int, ...]]]:
    """Every valid card with its value, best first."""
    found = []
    pair = asked["pair_scores"]
    for card in combinations(range(len(asked["scores"])), asked["k"]):
        worn = [asked["groups"][p] for p in card]
        if (
            all(asked["allowed"][i, j] for i, j in combinations(card, 2))
            and set(asked["include"]) <= set(card)
            and not set(asked["exclude"]) & set(card)
            and all(worn.count(group) <= asked["most"] for group in worn)
        ):
            value = sum(asked["scores"][p] for p in card)
            value += sum(pair[i, j] for i, j in combinations(card, 2)) if pair is not None else 0
            found.append((float(value), card))
    return sorted(found, key=lambda one: -one[0])


def solved(asked: dict[str, Any], **more: Any) -> Any:
    arguments = {name: value for name, value in asked.items() if name not in ("groups", "most")}
    items = {"item_id": range(len(asked["scores"])), "group": asked["groups"]}
    return solve(**arguments, items=items, constraints=AtMost("group", asked["most"]), **more)


@settings(max_examples=150, deadline=None)
@given(requests())
def test_the_card_is_the_best_of_all_valid_ones(asked: dict[str, Any]) -> None:
    expected = brute_force(asked)
    if not expected:
        with pytest.raises(InfeasibleError) as caught:
            solved(asked)
        assert caught.value.blocking
        return
    card = solved(asked)
    assert card.value == pytest.approx(expected[0][0])
    assert tuple(sorted(card.positions)) in [
        positions for value, positions in expected if value > card.value - 1e-9
    ]
    assert card.items == card.positions
    assert list(card.positions) == sorted(card.positions)


@settings(max_examples=60, deadline=None)
@given(requests(), st.integers(2, 5))
def test_the_n_best_cards_are_the_n_best(asked: dict[str, Any], n: int) -> None:
    expected = brute_force(asked)
    assume(expected)
    cards = solved(asked, n=n)
    assert [card.value for card in cards] == pytest.approx([value for value, _ in expected[:n]])
    assert len({frozenset(card.positions) for card in cards}) == len(cards)


@settings(max_examples=40, deadline=None)
@given(st.lists(requests(), min_size=1, max_size=4))
def test_a_batch_of_ragged_requests_equals_one_call_for_each(asked: list[dict[str, Any]]) -> None:
    flat: dict[str, list[Any]] = {"request_id": [], "item_id": [], "group": [], "score": []}
    for b, one in enumerate(asked):
        N = len(one["scores"])
        flat["request_id"] += [f"r{b}"] * N
        flat["item_id"] += list(range(N))
        flat["group"] += one["groups"].tolist()
        flat["score"] += one["scores"].tolist()
        one["most"] = asked[0]["most"]
        one["pair_scores"] = np.zeros((N, N)) if one["pair_scores"] is None else one["pair_scores"]
    cards = solve(
        "score",
        [one["k"] for one in asked],
        [one["pair_scores"] for one in asked],
        items=flat,
        constraints=AtMost("group", asked[0]["most"]),
        allowed=[one["allowed"] for one in asked],
        include=[one["include"] for one in asked],
        exclude={f"r{b}": one["exclude"] for b, one in enumerate(asked)},
        infeasible="return",
    )
    for one, card in zip(asked, cards, strict=True):
        alone = solved(one, infeasible="return")
        if isinstance(card, InfeasibleError):
            assert card.blocking == alone.blocking
        else:
            assert (card.items, card.value, card.optimal) == (alone.items, alone.value, alone.optimal)


def test_a_batch_is_solved_in_parts_that_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(5)
    scores = generator.normal(size=(11, 6))
    allowed = generator.random((11, 6, 6)) < 0.9
    allowed &= allowed.transpose(0, 2, 1)
    whole = solve(scores, 2, allowed=allowed)
    monkeypatch.setattr("exactk.problem.solving.PAIRS_AT_ONCE", 100)
    assert solve(scores, 2, allowed=allowed) == whole
    scores[9, 3] = np.nan
    with pytest.raises(InputError, match="request 9: the score at position 3"):
        solve(scores, 2, allowed=allowed)
    with pytest.raises(InputError, match="request 10: included item 7"):
        solve(generator.normal(size=(11, 6)), 2, include=[[]] * 10 + [[7]])


def test_one_matrix_and_one_set_of_items_serve_a_whole_batch() -> None:
    scores = np.array([[3.0, 2.0, 1.0], [1.0, 2.0, 3.0]])
    apart = np.array([[0, 0, 1], [0, 0, 1], [1, 1, 0]])
    first, second = solve(scores, 2, allowed=apart, items={"item_id": ["a", "b", "c"]})
    assert (first.items, second.items) == (("a", "c"), ("b", "c"))
    bonus = np.array([[0, 0, 0], [0, 0, 9], [0, 9, 0]], float)
    assert [card.value for card in solve(scores, 2, bonus)] == [12.0, 14.0]


def test_columns_may_differ_between_requests_of_a_batch() -> None:
    cards = solve(
        np.array([[3.0, 2.0, 1.0], [3.0, 2.0, 1.0]]),
        2,
        items={"brand": [["x", "x", "y"], ["x", "y", "y"]]},
        constraints=Distinct("brand"),
    )
    assert [card.positions for card in cards] == [(0, 2), (0, 1)]


def test_vectors_and_own_rules_come_through_frames() -> None:
    frame = pl.DataFrame(
        {"v": [[0.0, 0.0], [0.0, 1.0], [5.0, 5.0]], "price": [5, 1, 1], "score": [3.0, 2.0, 1.0]}
    )
    assert solve("score", 2, items=frame, constraints=MinimumDistance("v", 2)).positions == (0, 2)
    budget = Rule(lambda a, b: a["price"] + b["price"] <= 5, "budget")
    assert solve("score", 2, items=frame, constraints=budget).positions == (1, 2)
    pandas = frame.to_pandas()
    assert solve("score", 2, items=pandas, constraints=MinimumDistance("v", 2)).positions == (0, 2)


@every_frame
def test_gaps_in_a_frame_are_missing_values(frame: Callable[[dict[str, Any]], Any]) -> None:
    gaps = {
        "item_id": ["a", "b", "c"],
        "title": ["red", None, "blue"],
        "price": [1, None, 7],
        "score": [3.0, 2.0, 1.0],
    }
    for rule in (TitleDistance(0.5), MinimumGap("price", 2)):
        with pytest.raises(InputError, match="request 0: item 'b' has no"):
            solve("score", 2, items=frame(gaps), constraints=rule)
        assert solve("score", 2, items=frame(gaps), constraints=replace(rule, missing="forbid")).items == (
            "a",
            "c",
        )


# Include, exclude, relax, explain


def test_flat_wishes_hold_for_every_request_of_a_batch() -> None:
    scores = np.array([[3.0, 2.0, 1.0], [1.0, 2.0, 3.0]])
    assert [card.positions for card in solve(scores, 2, include=[1])] == [(0, 1), (1, 2)]
    log = {"request_id": [1, 1, 1, 2, 2], "item_id": ["a", "b", "c", "b", "c"], "score": [3.0, 2, 1, 2, 1]}
    assert [card.items for card in solve("score", 2, items=log, exclude=["a"])] == [("b", "c"), ("b", "c")]
    with pytest.raises(InputError, match="'zz' is among the candidates of no request"):
        solve("score", 2, items=log, exclude=["zz"])
    with pytest.raises(InputError, match=r"request 1 \(2\): included item 'a' is not among the candidates"):
        solve("score", 2, items=log, include=["a"])


def test_rules_are_relaxed_only_where_needed_and_only_there_reported() -> None:
    titles = {"title": [["one", "two hats", "three"], ["same", "same", "same"]]}
    scores = np.array([[3.0, 2.0, 1.0]] * 2)
    free, bound = solve(scores, 2, items=titles, constraints=TitleDistance(0.5), relax="title_distance")
    assert free.relaxed == ()
    assert bound.relaxed == ("title distance >= 0.5 (ned)",)
    assert bound.positions == (0, 1)


def test_an_infeasible_request_says_what_blocks_it() -> None:
    with pytest.raises(InfeasibleError) as caught:
        solve([1.0, 2.0], 2, items={"title": ["same", "same"]}, constraints=TitleDistance(0.5))
    assert caught.value.blocking == ("exactly 2 of 2 candidates", "title distance >= 0.5 (ned)")
    assert str(caught.value).startswith("no valid card exists; together these 2 forbid one: exactly 2")
    with pytest.raises(InfeasibleError, match=r"request 1 \('b'\): no valid card exists"):
        solve(
            "s",
            1,
            items={"request_id": ["a", "b", "b"], "item_id": [1, 2, 3], "s": [1.0, 1.0, 1.0]},
            include={"b": [2, 3]},
        )
    answers = solve(np.ones((2, 2)), 2, allowed=np.zeros((2, 2)), infeasible="return")
    assert all(isinstance(answer, InfeasibleError) for answer in answers)


def test_where_relaxing_does_not_help_the_error_names_all_that_blocks() -> None:
    rules = TitleDistance(0.5) & Distinct("title")
    with pytest.raises(InfeasibleError) as caught:
        solve([1.0, 2.0], 2, items={"title": ["same", "same"]}, constraints=rules, relax=["distinct title"])
    assert caught.value.blocking == ("exactly 2 of 2 candidates", "title distance >= 0.5 (ned)")
    assert "no valid card exists, even without distinct title; together" in str(caught.value)


def test_explaining_says_of_every_other_item_why_it_is_not_in() -> None:
    card = solve("score", 2, items=ITEMS, constraints=TitleDistance(0.5), explain=True)
    assert card.items == ("s1", "hat")
    costs = {reason.item: reason.cost for reason in card.reasons}
    assert costs == {"s2": pytest.approx(0.1), "bag": pytest.approx(0.1)}
    assert card.reasons[0].conflicts[0].item == "s1"
    assert card.as_dict()["reasons"][0]["item"] == "s2"
    assert "reasons" not in solve([1.0], 1).as_dict()


def test_after_relaxing_reasons_hold_under_the_rules_that_are_left() -> None:
    items = {"title": ["same", "same", "same"]}
    card = solve(
        [3.0, 2.0, 1.0],
        2,
        items=items,
        constraints=TitleDistance(0.5),
        relax=["title_distance"],
        explain=True,
    )
    assert card.reasons[0].conflicts == ()
    assert card.reasons[0].cost == 1.0


def test_tensors_arrow_arrays_and_frames_are_columns_and_matrices() -> None:
    scores: Any = torch.tensor([0.9, 0.8, 0.5, 0.4])
    brands, pairs = torch.tensor([1, 1, 2, 3]), np.zeros((4, 4))
    pairs[0, 3] = pairs[3, 0] = 1.0
    for brand in (brands, brands.float().requires_grad_(), pa.array(brands.tolist())):
        assert solve(ITEMS["score"], 2, items={"brand": brand}, constraints=Distinct("brand")).items == (0, 2)
    matrices: list[Any] = [torch.tensor(pairs), pd.DataFrame(pairs), pl.DataFrame(pairs)]
    for matrix in matrices:
        assert solve([0.9, 0.8, 0.5, 0.4], 2, matrix).items == (0, 3)
    last: Any = torch.tensor([3])
    for tensor in (scores, scores.bfloat16(), scores.clone().requires_grad_()):
        assert solve(tensor, 2, include=last).items == (0, 3)


def test_what_is_masked_is_missing_in_columns_and_matrices() -> None:
    brand = np.ma.masked_array([1, 1, 2, 3], [False, True, False, False])
    with pytest.raises(InputError, match='item 1 has no "brand"'):
        solve([0.9, 0.8, 0.5, 0.4], 2, items={"brand": brand}, constraints=Distinct("brand"))
    with pytest.raises(InputError, match=r"pair_scores\[0, 1\] is nan"):
        solve([1.0, 2.0], 2, np.ma.masked_equal(np.ones((2, 2)), 1.0))


# Refusals


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"scores": [1.0, float("nan"), 2.0]}, "request 0: the score at position 1 (item 1) is nan"),
        ({"scores": [1.0, None, 2.0]}, "position 1"),
        ({"scores": [[1.0, 2.0], [1.0, float("inf")]]}, "request 1: the score at position 1 (item 1) is inf"),
        ({"scores": [[1.0, 2.0], [1.0]]}, "ragged: rows have 1 to 2 entries"),
        ({"scores": []}, "no candidates"),
        ({"scores": [[], []]}, "no candidates"),
        ({"scores": [1.0, [2.0, 3.0]]}, "must be a list or an array of numbers"),
        ({"scores": {1: 1.0, 2: 2.0}.values()}, "must be a list or an array of numbers"),
        ({"scores": ["1.0", "2.0"]}, "score at [0] is not a number: '1.0'"),
        ({"scores": [1.0, object()]}, "score at [1] is not a number"),
        ({"scores": [1.0, np.complex128(2)]}, "score at [0] is not a number: (1+0j)"),
        ({"scores": 3.0}, "must be a sequence of numbers"),
        ({"scores": bytearray(b"abc")}, "must be a sequence of numbers"),
        ({"scores": np.array([1, 2, 3], "m8[ns]")}, "score at [0] is not a number"),
        ({"scores": np.array([1, 2, np.longdouble("1e4000")])}, "the score at position 2 (item 2) is inf"),
        ({"scores": np.ones((2, 2, 2))}, "must be [N] or [B, N], got shape (2, 2, 2)"),
        ({"scores": "score"}, "'score' names a column, but no items were given"),
        ({"scores": "", "items": ITEMS}, 'the items have no field ""'),
        ({"scores": "scoer", "items": ITEMS}, 'no field "scoer" (did you mean "score"?)'),
        ({"k": 0}, "at least 1, got 0"),
        ({"k": 4}, "a card of 4 cannot be made of 3 candidates"),
        ({"k": 2.0}, "k must be a whole number"),
        ({"k": True}, "k must be a whole number"),
        ({"k": "2"}, "k must be a whole number"),
        ({"k": [2, 2]}, "got 2 card sizes k for 1 requests"),
        ({"pair_scores": np.ones((2, 2))}, "pair_scores must be [3, 3] for 3 candidates, got (2, 2)"),
        ({"pair_scores": [["a"]]}, "pair_scores must be [3, 3]"),
        ({"pair_scores": np.full((3, 3), "a")}, "pair_scores must hold numbers"),
        ({"pair_scores": np.arange(9.0).reshape(3, 3)}, "not symmetric: [0, 1] is 1 but [1, 0] is 3"),
        ({"pair_scores": [[0, 1, 1], [1, 0, np.nan], [1, np.nan, 0]]}, "pair_scores[1, 2] is nan"),
        ({"pair_scores": [[0, 1, 1], [1, 0, -np.inf], [1, -np.inf, 0]]}, "pair_scores[1, 2] is -inf"),
        ({"allowed": np.triu(np.ones((3, 3)))}, "not symmetric: [0, 1] and [1, 0] differ"),
        ({"allowed": np.ones((4, 4))}, "allowed must be [3, 3]"),
        ({"allowed": np.array(1)}, "a column, or a matrix, must be a sequence"),
        ({"items": {"item_id": ["a", "b", "a"]}}, "candidate 'a' appears twice, at 0 and 2"),
        ({"items": {"item_id": ["a", "b"]}}, '"item_id" has shape (2,), but there are 3 scores'),
        ({"items": {"item_id": {7, 8, 9}}}, "must be a sequence of values, got {"),
        ({"items": 3}, "items must be a frame, columns by name or a list of rows, got int"),
        ({"items": {"request_id": [1, None, 1]}}, "row 1 has no request_id"),
        (
            {"items": {"request_id": [1, 2, 1]}, "scores": np.ones((2, 3))},
            "give one score for each row of items",
        ),
        ({"constraints": Distinct("brand")}, 'no field "brand"'),
        ({"constraints": Distinct("brnd"), "items": {"brand": [1, 2, 3]}}, '(did you mean "brand"?)'),
        ({"include": "abc"}, "include must be a list of item ids, got 'abc'"),
        ({"include": [9]}, "included item 9 is not among the candidates"),
        ({"exclude": [9]}, "excluded item 9 is not among the candidates"),
        ({"include": [1], "exclude": [1]}, "item 1 is both included and excluded"),
        ({"scores": np.ones((2, 3)), "include": [[1], 2]}, "mixes item ids and lists"),
        ({"scores": np.ones((2, 3)), "include": [[1]]}, "1 lists of item ids for 2 requests"),
        ({"scores": np.ones((2, 3)), "include": {5: [1]}}, "include names request 5, which is not there"),
        ({"n": 0}, "n, the number of cards, must be"),
        ({"time_limit": 0}, "time_limit must be a number of seconds above 0"),
        ({"time_limit": -1.0}, "time_limit"),
    ],
)
def test_what_cannot_be_solved_is_refused_by_name(arguments: dict[str, Any], message: str) -> None:
    asked: dict[str, Any] = {"scores": [1.0, 2.0, 3.0], "k": 2} | arguments
    with pytest.raises(InputError) as caught:
        solve(**asked)
    assert message in str(caught.value)


def test_whole_numbers_beside_fractions_stay_whole_as_ids_and_endless_time_is_a_time() -> None:
    for limit in (10**400, float("inf"), 1e308):
        card = solve([3, 2, 1], 2, items={"item_id": [1, 2, 2.5]}, time_limit=limit)
        assert [(item, type(item)) for item in card.items] == [(1, int), (2, int)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"constraints": "title_distance"}, "must be a rule or a list of rules"),
        (
            {"relax": ["distinct"], "constraints": TitleDistance(0.5), "items": {"title": ["a", "b"]}},
            "cannot relax",
        ),
        ({"relax": np.array(["distinct", "total"])}, "there is no such rule"),
        ({"allowed": [[0, 2], [2, 0]]}, "only true and false"),
    ],
)
def test_wrong_rules_are_refused_as_settings(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        solve([1.0, 2.0], 1, **arguments)
    assert message in str(caught.value)


def test_the_diagonal_of_pair_scores_and_of_the_matrix_means_nothing() -> None:
    pair = np.array([[np.nan, 1.0], [1.0, np.nan]])
    assert solve([1.0, 1.0], 2, pair, allowed=np.ones((2, 2))).value == 3.0
    assert solve([1.0, 1.0], 2, pair, allowed=1 - np.eye(2)).value == 3.0


def test_pair_scores_that_differ_by_rounding_are_one_score() -> None:
    pair = np.array([[0.0, 0.3], [0.1 + 0.2, 0.0]])
    assert pair[0, 1] != pair[1, 0]
    assert solve([0.0, 0.0], 2, pair).value == pytest.approx(0.3)


def test_large_pair_scores_that_differ_by_rounding_are_refused_without_a_warning() -> None:
    pairs = np.array([[0.0, 1.7e308], [1.7e308 * (1 - 1e-9), 0.0]])
    with pytest.raises(InputError, match="their sum may not exceed"):
        solve([1.0, 2.0], 2, pairs)


def test_what_is_masked_is_missing() -> None:
    with pytest.raises(InputError, match="score at position 1 .* is nan"):
        solve(np.ma.array([1.0, 2.0], mask=[False, True]), 1)


def test_nothing_the_caller_owns_is_changed() -> None:
    scores, pair = np.array([1.0, 2.0, 3.0]), np.full((3, 3), np.nan)
    pair[~np.eye(3, dtype=bool)] = 1.0
    allowed = np.ones((3, 3), bool)
    before = scores.copy(), pair.copy(), allowed.copy()
    solve(scores, 2, pair, allowed=allowed, explain=True)
    for now, then in zip((scores, pair, allowed), before, strict=True):
        assert np.array_equal(now, then, equal_nan=True)
    assert allowed.flags.writeable


# Time


def hard_request(N: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(3)
    pair = generator.normal(size=(N, N))
    return generator.normal(size=N), pair + pair.T


def test_a_time_limit_gives_a_valid_card_with_a_proven_bound() -> None:
    scores, pair = hard_request(300)
    start = time.perf_counter()
    card = solve(scores, 12, pair, time_limit=0.05)
    assert time.perf_counter() - start < 5
    assert len(set(card.items)) == 12
    assert not card.optimal
    assert card.bound >= card.value
    assert card.gap == card.bound - card.value


def test_a_single_call_costs_well_under_a_millisecond() -> None:
    generator = np.random.default_rng(0)
    scores, allowed = generator.normal(size=50), generator.random((50, 50)) < 0.7
    allowed &= allowed.T
    solve(scores, 4, allowed=allowed)
    seconds = []
    for _ in range(30):
        start = time.perf_counter()
        solve(scores, 4, allowed=allowed)
        seconds.append(time.perf_counter() - start)
    assert min(seconds) < 0.005  # five times the promise: the type checker of the tests runs along


@pytest.mark.parametrize("with_pairs", [False, True])
def test_no_time_at_all_gives_a_card_or_a_proof_that_comes_at_once_and_else_says_so(with_pairs: bool) -> None:
    # A planted card of 16 among 120, made of the items with the lowest scores: no greedy start comes upon it.
    generator = np.random.default_rng(0)
    planted = generator.choice(120, 16, replace=False)
    upper = np.triu(generator.random((120, 120)) < 0.7, 1)
    allowed = upper | upper.T
    allowed[np.ix_(planted, planted)] = True
    scores, pair = hard_request(120)
    scores[planted] -= 3
    pairs = pair if with_pairs else None
    with pytest.raises(OutOfTimeError, match="no valid card was found in the time given"):
        solve(scores, 16, pairs, allowed=allowed, time_limit=1e-9)
    assert isinstance(
        solve(scores, 16, pairs, allowed=allowed, time_limit=1e-9, infeasible="return"), OutOfTimeError
    )
    card = solve(scores, 5, pairs, allowed=allowed, time_limit=1e-9, explain=True)
    assert len(set(card.positions)) == 5
    assert all(allowed[i, j] for i, j in combinations(card.positions, 2))
    together = sum(pair[i, j] for i, j in combinations(card.positions, 2)) if with_pairs else 0.0
    assert card.value == pytest.approx(sum(scores[p] for p in card.positions) + together)
    assert card.bound > card.value or card.optimal
    assert card.optimal is not with_pairs  # five scores alone are settled before the clock is first looked at
    assert len(card.reasons) == 115
    assert not any(reason.exact for reason in card.reasons)
    assert "not finished in the time given" in str(card.reasons[0])
    with pytest.raises(InfeasibleError):
        solve(scores, 2, pairs, allowed=np.zeros((120, 120)), time_limit=1e-9)


@pytest.mark.parametrize("pairs", [False, True])
def test_scores_whose_sum_overflows_are_refused_by_name(pairs: bool) -> None:
    more: Any = {"pair_scores": np.zeros((3, 3))} if pairs else {}
    with pytest.raises(InputError, match=r"request 0: the score at position 1 is 1e\+308, .* exceed 1e\+300"):
        solve([1.0, 1e308, 1e307], k=2, **more)
    with pytest.raises(InputError, match=r"request 1 \('b'\): the score at position 0 is -1e\+308"):
        solve("score", 1, items={"request_id": ["a", "b"], "score": [1.0, -1e308]})


def test_a_rule_let_go_brings_no_unseen_weight_into_the_search() -> None:
    # the heavy one may join nobody, so that it is never weighed until the rule goes
    with pytest.raises(InputError, match="may not exceed"):
        solve(
            [1.0, 1e305, 2.0],
            2,
            items={"item_id": [1, 2, 3], "brand": ["x", "x", "x"]},
            constraints=Distinct("brand"),
            relax=["distinct"],
        )


@settings(max_examples=60, deadline=None)
@given(requests(), st.randoms(use_true_random=False), st.booleans())
def test_the_order_of_candidates_never_changes_the_card(
    asked: dict[str, Any], random: Any, texts: bool
) -> None:
    N = len(asked["scores"])
    order = list(range(N))
    random.shuffle(order)
    ids = [f"item {p}" if texts else p for p in range(N)]
    wished = {word: [ids[p] for p in asked[word]] for word in ("include", "exclude")}

    def card_of(order: list[int]) -> Any:
        pair: Any = asked["pair_scores"]
        return solve(
            np.round(asked["scores"][order]),
            asked["k"],
            None if pair is None else np.round(pair)[order][:, order],
            items={"item_id": [ids[p] for p in order], "group": asked["groups"][order]},
            constraints=AtMost("group", asked["most"]),
            allowed=asked["allowed"][order][:, order],
            infeasible="return",
            include=wished["include"],
            exclude=wished["exclude"],
        )

    straight, shuffled = card_of(list(range(N))), card_of(order)
    if isinstance(straight, InfeasibleError):
        assert isinstance(shuffled, InfeasibleError)
        return
    assert set(straight.items) == set(shuffled.items)
    assert (straight.value, straight.bound) == (shuffled.value, shuffled.bound)
    assert [order[p] for p in shuffled.positions] == [
        p for p in order if p in straight.positions
    ]  # as they were offered


def test_a_request_of_a_batch_that_cannot_be_used_leaves_the_others_their_cards() -> None:
    items: dict[str, list[Any]] = {
        "request_id": ["a", "a", "b", "b", "c", "c", "d", "d", "e", "e"],
        "item_id": [1, 2, 1, 2, 1, 1, 1, 2, 1, 2],
        "title": ["cat", "dog", "cat", None, "cat", "dog", "cat", "dog", "cat", "dog"],
        "score": [1.0, 2.0, 1.0, 2.0, 1.0, 2.0, 1.0, float("nan"), 3.0, 1e305],
    }
    first, lacking, twice, nan, huge = solve(
        "score", 1, items=items, constraints=TitleDistance(0.5), infeasible="return"
    )
    assert first.items == (2,)
    for error, told in (
        (lacking, "request 1 ('b'): item 2 has no \"title\""),
        (twice, "request 2 ('c'): candidate 1 appears twice"),
        (nan, "request 3 ('d'): the score at position 1 (item 2) is nan"),
        (huge, "request 4 ('e'): the score at position 1 is 1e+305"),
    ):
        assert isinstance(error, InputError)
        assert str(error).startswith(told)
    with pytest.raises(InputError, match=r"request 3 \('d'\)"):
        solve("score", 1, items=items, constraints=TitleDistance(0.5))


def test_a_search_that_finds_nothing_in_time_after_rules_went_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    searched: list[Any] = []

    def in_time_once(requests: Requests, *how: Any) -> Ranking:
        searched.append(requests)
        found = best_n(requests, *how)
        if len(searched) == 1:
            return found
        return found._replace(num_found=np.zeros(1, np.int64), optimal=np.zeros(1, bool))

    monkeypatch.setattr("exactk.problem.solving.best_n", in_time_once)
    items = {"title": ["same", "same"]}
    with pytest.raises(OutOfTimeError, match="no valid card was found in the time given"):
        solve([1.0, 2.0], 2, items=items, constraints=Distinct("title"), relax="distinct")
    assert len(searched) == 2
