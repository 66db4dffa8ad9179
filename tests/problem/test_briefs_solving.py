"""Briefs through `exactk.solve`: order of places, broken preferences, functions of cards, what blocks, what relaxes."""

from __future__ import annotations

import contextlib
import runpy
import time
from collections.abc import Collection
from itertools import combinations, permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import exactk
from exactk import (
    AtMost,
    Count,
    Distinct,
    InfeasibleError,
    MinimumDistance,
    MinimumGap,
    Prefer,
    Rule,
    Slots,
    TitleDistance,
    Total,
    Variety,
    Where,
)
from exactk.errors import OutOfTimeError
from exactk.problem.deadline import Deadline
from exactk.problem.given import GivenRequests
from exactk.problem.rules.constraints import Constraints
from exactk.problem.rules.explain import blocking_pieces, relax, why_not
from exactk.problem.rules.sheet import Demand, RuleSheet
from random_briefs import KINDS, Shelf, a_shelf, columns, times_broken

SHELF: list[dict[str, Any]] = [
    {"item_id": "tv", "price": 120, "hero": True, "sale": False, "brand": "a", "colour": "black"},
    {"item_id": "pan", "price": 30, "hero": True, "sale": True, "brand": "b", "colour": "black"},
    {"item_id": "mug", "price": 10, "hero": False, "sale": False, "brand": "b", "colour": "red"},
    {"item_id": "lamp", "price": 60, "hero": False, "sale": True, "brand": "c", "colour": "white"},
]
SCORES = [9.0, 5.0, 4.0, 6.0]


def solve(rules: Any, k: int = 2, **settings_: Any) -> Any:
    return exactk.solve(SCORES, k, items=SHELF, constraints=rules, **settings_)


def test_a_card_with_places_stands_in_their_order() -> None:
    card = solve(Slots(where={1: ~Where("hero")}))
    assert card.items == ("lamp", "tv")
    assert card.positions == (3, 0)
    assert solve([]).items == ("tv", "lamp")
    assert solve(Slots(weights=[0.5, 1])).items == ("lamp", "tv")
    assert solve(Slots(weights=[0.5, 1])).value == 9.0 + 3.0


def test_broken_preferences_are_named_and_paid() -> None:
    card = solve(
        [Total("price", at_most=100), Prefer(Distinct("hero"), 2.0), Prefer(Count("sale", at_least=1), 1.0)]
    )
    assert (card.items, card.value, card.broken) == (("pan", "lamp"), 11.0, ())
    dear = solve([Prefer(Total("price", at_most=100), 1.5), Prefer(Distinct("colour"), 1.0)])
    assert dear.items == ("tv", "lamp")
    assert dear.value == 15.0 - 1.5
    assert dear.as_dict()["broken"] == [{"rule": "rather total price at most 100", "times": 1, "cost": 1.5}]


def test_a_function_of_whole_cards_is_asked_of_the_best_cards_first() -> None:
    asked: list[tuple[Any, ...]] = []

    def cheap(card: Any) -> bool:
        asked.append(tuple(item["item_id"] for item in card))
        return bool(sum(item["price"] for item in card) <= 90)

    keeps: Any = cheap
    card = solve(Rule(keeps, "cheap", on="card"))
    assert card.items == ("pan", "lamp")
    assert card.optimal
    assert asked == [("tv", "lamp"), ("tv", "pan"), ("tv", "mug"), ("pan", "lamp")]
    assert [c.value for c in solve(Rule(keeps, on="card"), n=3)] == [11.0, 10.0, 9.0]


def test_a_function_that_nothing_pleases_blocks_and_can_be_let_go() -> None:
    never = Rule(lambda card: False, "never", on="card")
    with pytest.raises(InfeasibleError) as caught:
        solve([never, AtMost("brand", 1)])
    assert caught.value.blocking == ("never",)
    assert solve([never, AtMost("brand", 1)], relax=["never"]).relaxed == ("never",)


def test_cards_that_a_function_was_not_asked_about_in_time_are_not_ruled_out() -> None:
    def pleased_by_the_least(card: Any) -> bool:
        time.sleep(0.2)
        return {item["item_id"] for item in card} == {"lamp", "mug"}

    slow: Any = pleased_by_the_least
    with pytest.raises(OutOfTimeError, match="none of the best cards that could be asked about keeps slow"):
        solve(Rule(slow, "slow", on="card"), time_limit=0.3)


def test_a_function_is_asked_of_cards_of_several_sizes_side_by_side() -> None:
    several: Any = lambda card: len({item["colour"] for item in card}) == len(card)  # noqa: E731
    items = [{**item, "request_id": size} for size in (1, 3, 2) for item in SHELF]
    cards = exactk.solve(SCORES * 3, [1, 3, 2], items=items, constraints=Rule(several, on="card"))
    assert [card.items for card in cards] == [("tv",), ("tv", "mug", "lamp"), ("tv", "lamp")]


def test_a_brief_that_blocks_is_named_and_relaxed_in_order() -> None:
    rules = [Count("hero", exactly=2), Total("price", at_most=100), Variety("brand", at_least=2)]
    with pytest.raises(InfeasibleError, match="total price at most 100") as caught:
        solve(rules)
    assert set(caught.value.blocking) == {"exactly 2 with hero", "total price at most 100"}
    card = solve(rules, relax=["variety", "total"])
    assert card.relaxed == ("total price at most 100",)
    assert card.items == ("tv", "pan")


def test_why_not_weighs_places_and_preferences() -> None:
    rules = [
        Slots(where={1: "hero"}, weights=[2, 1]),
        Prefer(Distinct("colour"), 1.0),
        Count("sale", at_least=1),
    ]
    card = solve(rules, explain=True)
    reasons = {reason.item: reason for reason in card.reasons}
    assert card.items == ("tv", "lamp")
    assert reasons["pan"].instead == ("tv", "pan")
    assert reasons["pan"].cost == pytest.approx(24.0 - (18 + 5 - 1))
    assert reasons["mug"].cost == pytest.approx(24.0 - (2 * 5 + 4))


def demands_of(shelf: Shelf, sheet: RuleSheet, demands: Collection[Demand]) -> bool:
    """Whether some card, of any size from 1 where none is demanded, meets these demands: by trying all."""
    rules = [sheet.rules[piece.at] for piece in demands if piece.kind == "rule"]
    N, places = len(shelf.items), any(isinstance(rule, Slots) for rule in rules)
    sizes = [shelf.K] if Demand("size") in demands else range(1, (shelf.K if places else N) + 1)
    wanted = {piece.at for piece in demands if piece.kind == "include"}
    for size in sizes:
        for chosen in combinations(range(N), size):
            if not wanted <= set(chosen):
                continue
            for card in permutations(chosen) if places else [chosen]:
                items = [shelf.items[p] for p in card]
                if not any(kept_at(rule, items) for rule in rules):
                    return True
    return False


def kept_at(rule: Any, items: list[dict[str, Any]]) -> int:
    """Breaks of a rule by a card of any size: preferences none, places beyond the card not asked for."""
    if isinstance(rule, Prefer):
        return 0
    if isinstance(rule, Slots):
        inside = [(place, who) for place, who in rule.where if place <= len(items)]
        fixed = [(place, item) for place, item in rule.fixed if place <= len(items)]
        if any(item["item_id"] == name for p, name in fixed for n, item in enumerate(items) if n != p - 1):
            return 1
        rule = Slots(where=inside, fixed=fixed, apart=rule.apart, rising=rule.rising, missing=rule.missing)
    return times_broken(rule, items)


@pytest.mark.parametrize(
    "rule",
    [TitleDistance(0.5), Prefer(TitleDistance(0.5), worth=1), Slots(apart=TitleDistance(0.5))],
    ids=lambda rule: rule.type,
)
def test_titles_are_read_by_the_clock_wherever_a_rule_on_them_stands(rule: Any) -> None:
    items = {"item_id": np.arange(3)[None], "title": np.array([["red hat", "blue hat", "shoe"]], object)}
    with pytest.raises(OutOfTimeError, match="the distances of the titles"):
        Constraints.of(rule).requests(GivenRequests(items, 2), deadline=Deadline(0.0))


def test_once_time_is_up_what_blocks_is_named_without_another_search(monkeypatch: Any) -> None:
    rules = [Total("price", at_most=15), Count("hero", at_least=2), Prefer(Distinct("colour"), worth=1)]
    sheet = RuleSheet.of(Constraints.of(rules), GivenRequests(columns(SHELF), 2))
    monkeypatch.setattr("exactk.problem.rules.sheet.any_card", pytest.fail)
    pieces, minimal = blocking_pieces(sheet, Deadline(0.0))
    assert not minimal
    assert set(pieces) == set(sheet.pieces())


def test_no_function_is_asked_about_a_card_without_items() -> None:
    cheap = Rule(lambda card: max(item["price"] for item in card) < 5, "cheap", on="card")
    with pytest.raises(InfeasibleError) as refused:
        solve(cheap)
    assert refused.value.blocking == ("cheap",)


def test_an_item_that_must_stand_in_a_place_and_must_not_is_blamed_and_not_the_size() -> None:
    with pytest.raises(InfeasibleError) as refused:
        solve(Slots(fixed={1: "tv"}), exclude=["tv"])
    assert refused.value.blocking == ("places (1: 'tv')", "'tv' must not be in the card")


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, 10**6),
    st.lists(st.sampled_from(KINDS), min_size=1, max_size=4).map(tuple),
    st.integers(2, 6),
)
def test_blocking_sets_of_briefs_are_minimal_and_block(seed: int, kinds: tuple[str, ...], N: int) -> None:
    shelf = a_shelf(seed, kinds, N, 3, pairs=False)
    present = np.ones((1, N), bool)
    include = [[shelf.items[p]["item_id"] for p in shelf.include]]
    sheet = RuleSheet.of(
        Constraints(shelf.rules), GivenRequests(columns(shelf.items), shelf.K, present, include)
    )
    assume(not shelf.best())
    blocking = blocking_pieces(sheet).pieces
    assert not demands_of(shelf, sheet, blocking)
    for piece in blocking:
        assert demands_of(shelf, sheet, [other for other in blocking if other != piece])
    order = [rule for rule in shelf.rules if not isinstance(rule, Prefer)]
    let_go = relax(sheet, order)
    if let_go is not None:
        gone, eased = let_go
        assert demands_of(shelf, eased, eased.pieces())
        assert gone


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10**6),
    st.lists(st.sampled_from(KINDS), min_size=1, max_size=3).map(tuple),
    st.integers(3, 7),
)
def test_why_not_costs_what_brute_force_says(seed: int, kinds: tuple[str, ...], N: int) -> None:
    shelf = a_shelf(seed, kinds, N, 3, pairs=True)
    ranked = shelf.best()
    assume(ranked and not shelf.include)
    sheet = RuleSheet.of(Constraints(shelf.rules), GivenRequests(columns(shelf.items), shelf.K))
    best = exactk.problem.exact.cliques.best(shelf.requests(), shelf.node[None], shelf.pair[None])  # type: ignore[index]
    for reason in why_not(sheet, best.card[0].tolist(), shelf.node, shelf.pair):
        position = [item["item_id"] for item in shelf.items].index(reason.item)
        with_it = [worth for card, worth in ranked if position in card]
        assert (reason.cost is None) == (not with_it)
        if with_it:
            assert reason.cost == pytest.approx(ranked[0][1] - max(with_it), abs=1e-9)
        else:
            assert reason.blocking


def test_the_example_of_a_shelf_keeps_its_brief(capsys: pytest.CaptureFixture[str]) -> None:
    example = runpy.run_path(str(Path(__file__).resolve().parents[2] / "examples" / "brief.py"))
    example["main"]()
    assert "proven: True" in capsys.readouterr().out
    items = example["shelf"]()
    card = exactk.solve("score", k=4, items=items, constraints=example["BRIEF"])
    chosen = [{name: items[name][p] for name in items} for p in card.positions]
    assert chosen[0]["hero"]
    assert not chosen[0]["sponsored"]
    assert sum(item["sponsored"] for item in chosen) == 1
    assert any(item["on_sale"] for item in chosen)
    assert round(sum(item["price"] for item in chosen), 2) <= 200
    assert len({item["category"] for item in chosen}) >= 3
    alike = sum(a["colour"] == b["colour"] for a, b in combinations(chosen, 2))
    assert card.value == pytest.approx(sum(item["score"] for item in chosen) - 0.1 * alike)
    assert len(example["BRIEF"]) <= 8


def wide_shelf(N: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {
        "item_id": np.arange(N),
        "brand": rng.integers(0, 800, N),
        "price": rng.integers(10, 101, N) + 0.99,
        "vector": rng.normal(size=(N, 16)).tolist(),
    }


def test_a_limit_ends_a_search_in_which_every_leaf_takes_long() -> None:
    # Rules on neighbours weigh every order of a card: a thousand candidates once took 22 s of a limit of 0.2.
    items = wide_shelf(1024)
    scores = np.random.default_rng(1).normal(size=1024)
    rules = [
        Slots(weights=[1 / (k + 1) for k in range(10)]),
        MinimumDistance("vector", 4.0),
        Slots(apart="brand"),
    ]

    def limited(N: int, limit: float) -> Any:
        some = {name: values[:N] for name, values in items.items()}
        return exactk.solve(scores[:N], 10, items=some, constraints=rules, time_limit=limit)

    limited(60, 60.0)  # compiles
    began = time.thread_time()
    with contextlib.suppress(OutOfTimeError):
        card = limited(1024, 0.5)
        assert len(set(card.items)) == 10
        assert card.bound >= card.value
    assert time.thread_time() - began < 5.0


def test_rules_on_thousands_of_items_look_at_the_clock() -> None:
    items = wide_shelf(3000)
    scores = np.arange(3000.0)
    for rule in (MinimumDistance("vector", 4.0), MinimumGap("price", 1.0)):
        with pytest.raises(OutOfTimeError, match="was not read for all pairs"):
            exactk.solve(scores, 5, items=items, constraints=rule, time_limit=1e-4)
        few = {name: values[:700] for name, values in items.items()}
        whole = (
            Constraints.of(rule)
            .requests(GivenRequests({name: np.asarray(v)[None] for name, v in few.items()}, 5))
            .graph[0]
        )
        for a, b in ((0, 1), (5, 690), (699, 300), (650, 651)):  # in several blocks
            pair = {name: np.asarray(v)[None, [a, b]] for name, v in few.items()}
            assert whole[a, b] == whole[b, a] == rule.allowed(pair, np.ones((1, 2), bool))[0, 0, 1]
