"""What blocks a request, which rules are let go, why an item is not in a card: all against brute force."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from exactk.errors import ConfigError, InfeasibleError, OutOfTimeError
from exactk.problem.deadline import Deadline
from exactk.problem.given import GivenRequests
from exactk.problem.rules.constraints import (
    Allowed,
    AtMost,
    Constraint,
    Constraints,
    Count,
    Distinct,
    Forbid,
    MinimumGap,
    TitleDistance,
    Total,
    Where,
)
from exactk.problem.rules.explain import (
    blocking_pieces,
    check_relaxable,
    infeasible_error,
    relax,
    why_not,
)
from exactk.problem.rules.sheet import Demand, RuleSheet
from exactk.problem.solving import solve


def blocking_rules(
    constraints: Constraints,
    columns: dict[str, np.ndarray],
    card_size: int,
    include: Sequence[Sequence[Any]] | None = None,
    exclude: Sequence[Sequence[Any]] | None = None,
) -> tuple[str, ...]:
    """The names of a minimal set of demands that together block one request."""
    sheet = RuleSheet.of(constraints, GivenRequests(columns, card_size, None, include, exclude))
    return tuple(sheet.named(piece) for piece in blocking_pieces(sheet).pieces)


@dataclass(frozen=True)
class Puzzle:
    """A small request as plain data, and its own slow idea of validity."""

    num_items: int
    card_size: int
    matrices: tuple[np.ndarray, ...]
    brands: tuple[str, ...]
    most: int
    include: tuple[int, ...]
    exclude: tuple[int, ...]

    def sheet(self) -> RuleSheet:
        columns = {"item_id": np.arange(self.num_items)[None], "brand": np.array([self.brands], object)}
        rules = Constraints((*map(Allowed, self.matrices), AtMost("brand", self.most)))  # equal ones stay two
        asked = GivenRequests(columns, self.card_size, None, [self.include], [self.exclude])
        return RuleSheet.of(rules, asked)

    def cards(self, demands: Collection[Demand]) -> list[tuple[int, ...]]:
        """Every set of items that meets these demands, by trying all sets but the empty one."""
        sizes = [self.card_size] if Demand("size") in demands else range(1, self.num_items + 1)
        return [
            card
            for size in sizes
            for card in combinations(range(self.num_items), size)
            if all(self.meets(card, piece) for piece in demands)
        ]

    def meets(self, card: tuple[int, ...], piece: Demand) -> bool:
        if piece.kind == "include":
            return piece.at in card
        if piece.kind == "exclude":
            return piece.at not in card
        if piece.kind == "size":
            return len(card) == self.card_size
        if piece.at < len(self.matrices):
            return all(self.matrices[piece.at][i, j] for i, j in combinations(card, 2))
        worn = [self.brands[p] for p in card]
        return all(worn.count(brand) <= self.most for brand in worn)


@st.composite
def puzzles(draw: st.DrawFn) -> Puzzle:
    N = draw(st.integers(2, 6))
    density = draw(st.sampled_from([0.3, 0.6, 0.9]))
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    matrices = []
    for _ in range(draw(st.integers(0, 3))):
        upper = np.triu(generator.random((N, N)) < density, 1)
        matrices.append(upper | upper.T)
    wished = draw(st.lists(st.integers(0, N - 1), unique=True, max_size=3))
    cut = draw(st.integers(0, len(wished)))
    return Puzzle(
        num_items=N,
        card_size=draw(st.integers(1, N)),
        matrices=tuple(matrices),
        brands=tuple(draw(st.lists(st.sampled_from("xyz"), min_size=N, max_size=N))),
        most=draw(st.integers(1, 3)),
        include=tuple(wished[:cut]),
        exclude=tuple(wished[cut:]),
    )


@settings(max_examples=200, deadline=None)
@given(puzzles())
def test_the_blocking_set_is_minimal_and_blocks(puzzle: Puzzle) -> None:
    sheet = puzzle.sheet()
    assume(not puzzle.cards(sheet.pieces()))
    blocking, minimal = blocking_pieces(sheet)
    assert minimal
    assert set(blocking) <= set(sheet.pieces())
    assert not puzzle.cards(blocking)
    for piece in blocking:
        assert puzzle.cards([other for other in blocking if other != piece])


@settings(max_examples=200, deadline=None)
@given(puzzles(), st.data())
def test_any_selection_of_demands_is_feasible_exactly_when_some_card_meets_it(
    puzzle: Puzzle, data: st.DataObject
) -> None:
    sheet = puzzle.sheet()
    demands = data.draw(st.sets(st.sampled_from(sheet.pieces())))
    assert sheet.feasible(demands) == bool(puzzle.cards(demands))


def shop(K: int = 2, **settings_: Any) -> dict[str, Any]:
    """Four shoes and a hat: titles near each other, two brands."""
    return {
        "constraints": TitleDistance(0.5) & Distinct("brand"),
        "columns": {
            "item_id": np.array([["s1", "s2", "s3", "hat"]], object),
            "title": np.array([["red shoe", "red shoes", "reed shoe", "green hat"]], object),
            "brand": np.array([["x", "y", "z", "x"]], object),
        },
        "card_size": K,
        **settings_,
    }


def test_the_rule_that_blocks_is_named_and_the_innocent_one_is_not() -> None:
    asked = shop(K=3)
    assert blocking_rules(**asked) == ("exactly 3 of 4 candidates", "title distance >= 0.5 (ned)")


def test_included_items_that_cannot_stand_together_are_blamed_on_themselves() -> None:
    blocking = blocking_rules(**shop(K=2, include=[["s1", "s2"]]))
    assert blocking == (
        "title distance >= 0.5 (ned)",
        "'s1' must be in the card",
        "'s2' must be in the card",
    )


def test_too_many_included_items_are_blamed_on_the_size() -> None:
    sheet = sheet_of(shop(K=1, constraints=Constraints(), include=[["s1", "hat"]]))
    assert [sheet.named(piece) for piece in blocking_pieces(sheet).pieces] == [
        "exactly 1 of 4 candidates",
        "'s1' must be in the card",
        "'hat' must be in the card",
    ]


def test_an_excluded_item_that_was_needed_is_named() -> None:
    blocking = blocking_rules(**shop(K=2, exclude=[["hat"]]))
    assert blocking == (
        "exactly 2 of 4 candidates",
        "title distance >= 0.5 (ned)",
        "'hat' must not be in the card",
    )


def test_an_excluded_item_may_lack_what_rules_read() -> None:
    asked = shop(K=2, exclude=[["hat"]])
    asked["columns"]["title"][0, 3] = None
    assert "'hat' must not be in the card" in blocking_rules(**asked)


@pytest.mark.parametrize("rule", [Total("price", at_most=9), Count(Where("price", at_most=9), exactly=1)])
def test_an_excluded_item_may_hold_what_no_rule_can_read(rule: Constraint) -> None:
    items = {"item_id": ["a", "b", "gone"], "price": [10, 20, "sold out"]}
    with pytest.raises(InfeasibleError) as caught:
        solve([1.0, 2.0, 3.0], 2, items=items, exclude=["gone"], constraints=rule)
    assert rule.name in caught.value.blocking
    card = solve(
        [1.0, 2.0, 3.0], 1, items=items, exclude=["gone"], constraints=MinimumGap("price", 1), explain=True
    )
    assert [reason.item for reason in card.reasons] == ["a", "gone"]


def sheet_of(asked: dict[str, Any]) -> RuleSheet:
    rest = {name: value for name, value in asked.items() if name != "constraints"}
    return RuleSheet.of(asked["constraints"], GivenRequests(**rest))


def test_the_error_carries_the_blocking_set() -> None:
    error = infeasible_error(sheet_of(shop(K=3)), "request 7: ")
    assert error.blocking == ("exactly 3 of 4 candidates", "title distance >= 0.5 (ned)")
    assert str(error) == (
        "request 7: no valid card exists; together these 2 forbid one: "
        "exactly 3 of 4 candidates; title distance >= 0.5 (ned)"
    )


# Letting rules go


@pytest.mark.parametrize(
    ("order", "gone"),
    [
        ([TitleDistance(0.5)], ("title distance >= 0.5 (ned)",)),
        (["title_distance", "distinct brand"], ("title distance >= 0.5 (ned)",)),
        (
            ["distinct", "title distance >= 0.5 (ned)"],
            ("title distance >= 0.5 (ned)",),
        ),  # distinct was not in the way
    ],
)
def test_rules_go_in_the_declared_order_and_come_back_where_they_were_not_in_the_way(
    order: list[Any], gone: tuple[str, ...]
) -> None:
    answer = relax(sheet_of(shop(K=3)), order)
    assert answer is not None
    names, sheet = answer
    assert names == gone
    assert sheet.names == ("distinct brand",)
    assert sheet.feasible(sheet.pieces())


def test_of_two_rules_that_would_each_do_the_first_declared_goes() -> None:
    # Prices 1, 3, 9: a gap of 5 leaves 1-9 and 3-9, the matrix leaves 1-3. Either rule alone has a card of two.
    columns = {"item_id": np.array([[0, 1, 2]]), "price": np.array([[1, 3, 9]])}
    first_two = np.zeros((3, 3), bool)
    first_two[0, 1] = first_two[1, 0] = True
    sheet = RuleSheet.of(Allowed(first_two) & MinimumGap("price", 5), GivenRequests(columns, 2))
    for order, gone in [
        (["allowed", "minimum_gap"], "allowed matrix"),
        (["minimum_gap", "allowed"], "price gap >= 5"),
    ]:
        answer = relax(sheet, order)
        assert answer is not None
        assert answer[0] == (gone,)


def test_where_letting_go_does_not_help_nothing_is_given_up() -> None:
    assert relax(sheet_of(shop(K=3)), ["distinct"]) is None


def test_a_feasible_request_gives_up_nothing() -> None:
    answer = relax(sheet_of(shop(K=2)), ["title_distance"])
    assert answer is not None
    assert answer[0] == ()


def test_what_names_no_rule_is_refused_with_the_nearest_that_does() -> None:
    rules = TitleDistance(0.5) & Distinct("brand")
    with pytest.raises(
        ConfigError, match=r"cannot relax 'title_distanse'.*did you mean \"title_distance\"\?"
    ):
        check_relaxable(rules, ["title_distanse"])
    with pytest.raises(ConfigError, match=r"cannot relax 'distinct colour'"):
        check_relaxable(rules, [Distinct("colour")])


# Why not


@settings(max_examples=150, deadline=None)
@given(puzzles(), st.integers(0, 2**32 - 1), st.booleans())
def test_the_cost_of_an_item_is_what_the_best_card_with_it_loses(
    puzzle: Puzzle, seed: int, with_pairs: bool
) -> None:
    generator = np.random.default_rng(seed)
    node = generator.normal(size=puzzle.num_items)
    pair = generator.normal(size=(puzzle.num_items, puzzle.num_items))
    weights = pair + pair.T if with_pairs else None
    sheet = puzzle.sheet()
    cards = puzzle.cards(sheet.pieces())
    assume(cards)

    def value(card: tuple[int, ...]) -> float:
        return float(sum(node[p] for p in card)) + sum(
            float(weights[i, j]) for i, j in combinations(card, 2) if weights is not None
        )

    best = max(cards, key=value)
    for reason in why_not(sheet, best, node, weights):
        holding = [card for card in cards if reason.item in card]
        if holding:
            assert reason.cost == pytest.approx(value(best) - max(map(value, holding)), abs=1e-9)
            assert reason.instead in holding
            assert not reason.blocking
        else:
            assert reason.cost is None
            demanding = [*sheet.pieces(), Demand("include", reason.item)]
            named = [piece for piece in demanding if sheet.named(piece) in reason.blocking]
            assert len(named) == len(reason.blocking)
            assert not puzzle.cards([*named, Demand("include", reason.item)])
        broken = {other.item for other in reason.conflicts}
        for p in best:
            pair_broken = any(not matrix[reason.item, p] for matrix in puzzle.matrices)
            full = [puzzle.brands[q] for q in best].count(puzzle.brands[reason.item]) >= puzzle.most
            assert (p in broken) == (pair_broken or (full and puzzle.brands[p] == puzzle.brands[reason.item]))


def test_reasons_read_as_sentences() -> None:
    sheet = sheet_of(shop(K=2, exclude=[["s3"]]))
    reasons = {reason.item: reason for reason in why_not(sheet, [1, 3], np.array([3.0, 3.5, 1.0, 2.0]))}
    assert str(reasons["s1"]) == (
        "'s1': not with 's2' (title distance >= 0.5 (ned)); not with 'hat' (distinct brand); "
        "in no valid card: exactly 2 of 4 candidates; title distance >= 0.5 (ned); distinct brand"
    )
    assert "'s3' must not be in the card" in str(reasons["s3"])
    assert reasons["s3"].cost is None


def test_a_swap_is_priced_by_hand() -> None:
    asked = shop(K=2)
    asked["constraints"] = Constraints.of(TitleDistance(0.5))
    (first, third) = why_not(sheet_of(asked), [1, 3], np.array([3.0, 3.5, 1.0, 2.0]))
    assert (first.item, first.cost, first.instead) == ("s1", 0.5, ("s1", "hat"))
    assert (third.item, third.cost, third.instead) == ("s3", 2.5, ("s3", "hat"))
    assert (
        str(third)
        == "'s3': not with 's2' (title distance >= 0.5 (ned)); the best card with it is worth 2.5 less"
    )
    assert first.as_dict() == {
        "item": "s1",
        "conflicts": [{"item": "s2", "rules": ["title distance >= 0.5 (ned)"]}],
        "cost": 0.5,
        "instead": ["s1", "hat"],
        "blocking": [],
        "exact": True,
    }


def test_one_item_can_be_asked_about_alone() -> None:
    asked = shop(K=2, constraints=Constraints())
    (reason,) = why_not(sheet_of(asked), [0, 1], np.array([3.0, 3.5, 1.0, 2.0]), positions=[3])
    assert (reason.item, reason.cost, reason.conflicts) == ("hat", 1.0, ())


def hopeless(N: int, K: int, seed: int = 0) -> RuleSheet:
    """A request whose impossibility takes long to prove."""
    upper = np.triu(np.random.default_rng(seed).random((N, N)) < 0.85, 1)
    columns = {"item_id": np.arange(N)[None]}
    rules = Constraints((Allowed(upper | upper.T), Forbid([[0, 1]])))
    return RuleSheet.of(rules, GivenRequests(columns, K))


def test_what_blocks_is_said_in_time_even_where_it_cannot_be_proven_minimal() -> None:
    sheet = hopeless(300, 40)
    past = Deadline(0.0)
    assert sheet.feasible(sheet.pieces(), past) is None
    error = infeasible_error(sheet, deadline=past)
    assert not error.minimal
    assert error.blocking == ("exactly 40 of 300 candidates", "allowed matrix", "forbidden pairs (1)")
    assert "no time was left" in str(error)
    with pytest.raises(OutOfTimeError, match="give more time"):
        relax(sheet, [], past)


def test_reasons_that_were_not_finished_say_so() -> None:
    sheet = hopeless(60, 4)
    scores = np.linspace(1, 0, 60)
    done = why_not(sheet, [0, 1, 2, 3], scores)
    hurried = why_not(sheet, [0, 1, 2, 3], scores, deadline=Deadline(0.0))
    assert [reason.item for reason in hurried] == [reason.item for reason in done]
    assert not any(reason.exact or reason.blocking or reason.instead for reason in hurried)
    assert [reason.conflicts for reason in hurried] == [reason.conflicts for reason in done]
