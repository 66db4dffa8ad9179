"""The language of briefs: what a rule says of a given card, its forms in files, and what it refuses."""

from __future__ import annotations

import json
import tomllib
from itertools import combinations, permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import exactk
from exactk.errors import ConfigError, InputError
from exactk.problem.brief import breaks, card_worth, joined
from exactk.problem.given import GivenRequests
from exactk.problem.graph import is_valid_card
from exactk.problem.rules.columns import as_written, scaled
from exactk.problem.rules.constraints import (
    AtMost,
    Constraint,
    Constraints,
    Count,
    Distinct,
    MinimumGap,
    Prefer,
    Rule,
    Share,
    Slots,
    Total,
    Variety,
    Where,
)
from exactk.problem.rules.rule_set import as_toml
from random_briefs import KINDS, Item, a_rule, a_shelf, columns, shelf

mixes = st.lists(st.sampled_from(KINDS), min_size=1, max_size=4).map(tuple)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10**6), mixes, st.integers(2, 5), st.integers(1, 3))
def test_a_given_card_is_judged_as_the_rules_say_of_its_items(
    seed: int, kinds: tuple[str, ...], N: int, K: int
) -> None:
    shelf_ = a_shelf(seed, kinds, N, K, pairs=True)
    requests = shelf_.requests()
    for chosen in combinations(range(N), shelf_.K):
        for card in permutations(chosen) if shelf_.slots else [chosen]:
            assert is_valid_card(requests, 0, np.array(card)) == shelf_.is_valid(card)
            worth = card_worth(requests.brief, 0, card, shelf_.node, shelf_.pair)
            assert worth == pytest.approx(shelf_.worth(card))


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10**6), mixes)
def test_rules_survive_json_and_toml(seed: int, kinds: tuple[str, ...]) -> None:
    rng = np.random.default_rng(seed)
    rules = Constraints.of([a_rule(rng, kind, 4) for kind in kinds])
    written = rules.to_dict()
    assert Constraints.from_dict(json.loads(json.dumps(written))) == rules
    assert Constraints.from_dict(tomllib.loads(as_toml(written))) == rules


def one_row(rule: Constraint, items: list[Item], K: int) -> Any:
    return Constraints.of(rule).requests(GivenRequests(columns(items), K))


def priced(*prices: float) -> list[Item]:
    return [{"item_id": n, "price": price} for n, price in enumerate(prices)]


def test_a_tenth_and_two_tenths_meet_three_tenths() -> None:
    asked = one_row(Total("price", at_most=0.3), priced(0.1, 0.2, 0.21), 2)
    assert is_valid_card(asked, 0, np.array([0, 1]))
    assert not is_valid_card(asked, 0, np.array([0, 2]))
    reached = one_row(Total("price", at_least=0.3), priced(0.1, 0.2), 2)
    assert is_valid_card(reached, 0, np.array([0, 1]))


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_prices_of_few_bits_count_as_they_are_written(kind: type) -> None:
    prices = {"item_id": np.array([[0, 1]]), "price": np.array([[0.1, 0.2]], kind)}

    def kept(rule: Constraint) -> bool:
        return is_valid_card(Constraints.of(rule).requests(GivenRequests(prices, 2)), 0, np.array([0, 1]))

    assert kept(Total("price", at_least=0.3, at_most=0.3))
    assert kept(MinimumGap("price", 0.1))
    assert not kept(MinimumGap("price", 0.11))
    assert kept(Count(Where("price", at_most=0.2), exactly=2))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.floats(width=32, allow_infinity=False), min_size=1, max_size=8))
def test_a_number_of_few_bits_is_the_shortest_text_that_reads_back_as_it(values: list[float]) -> None:
    few = np.array(values, np.float32)
    expected = [float(str(value)) for value in few]
    np.testing.assert_array_equal(as_written(few), np.array(expected))


def test_long_numbers_keep_seventeen_digits() -> None:
    whole, (places,) = scaled(np.array([[1234567.1234567891, 0.1]]), 10)
    assert 10 * int(np.abs(whole).max()) < 2**62
    assert whole[0, 1] == 10 ** (places - 1)
    whole, (places,) = scaled(np.array([[0.30000000000000004, 0.1]]), 2)
    assert whole[0].tolist() == [30000000000000004, 10000000000000000]


def test_rows_of_a_batch_are_scaled_each_by_itself() -> None:
    both = scaled(np.array([[0.1, 0.2], [1234567.1234567891, 3.0]]), 4)
    assert both.places[0] == 1
    assert both.whole[0].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ({"type": "at_least", "field": "x"}, '"count" with at_least'),
        ({"type": "at_lest", "field": "x"}, 'no rule "at_lest"; say it as "count" with at_least'),
        ({"type": "At-Least", "field": "x"}, 'no rule "At-Least"; say it as "count" with at_least'),
        ({"type": "At_Mots", "field": "x"}, 'did you mean "at_most"'),
        ({"type": "no_neighbours", "field": "x"}, '"slots" with apart'),
        ({"type": "count", "where": "x", "min": 1}, 'no setting "min" (did you mean "at_least"'),
        ({"type": "at_most", "field": "x", "max": 1}, 'no setting "max" (did you mean "m"'),
        (
            {"type": "count", "where": {"and": ["x", "y"]}, "at_least": 1},
            'no setting "and" (did you mean "all"',
        ),
        ({"type": "count", "where": {"field": "x", "in": [1]}, "at_least": 1}, 'did you mean "one_of"'),
        ({"type": "count", "where": {"field": "x", "equals": None}, "at_least": 1}, "equals is null"),
        (
            {"type": "count", "where": {"field": "x", "at_least": 2, "at_most": 1}, "at_least": 1},
            'at_least 2 of "x" is more than at_most 1',
        ),
        ({"type": "count", "where": "x"}, "needs at_least or at_most"),
        ({"type": "count", "where": "x", "at_least": 3, "at_most": 2}, "at_least 3 is more than at_most 2"),
        ({"type": "count", "where": "x", "exactly": 1, "at_most": 2}, "give either exactly"),
        ({"type": "count", "where": "x", "at_least": 1.5}, "whole number"),
        (
            {"type": "count", "where": {"filed": "x"}, "at_least": 1},
            'no setting "filed" (did you mean "field"',
        ),
        (
            {"type": "count", "where": {"field": "x", "equals": 1, "at_most": 2}, "at_least": 1},
            "one of equals",
        ),
        ({"type": "count", "where": {"any": []}, "at_least": 1}, "list of conditions"),
        ({"type": "share", "where": "x", "at_least": 1.5}, "from 0 to 1"),
        ({"type": "total", "field": "p", "at_most": "9"}, "must be a number"),
        ({"type": "variety", "field": "p", "at_least": 0}, "at least"),
        ({"type": "slots", "where": {"0": "x"}}, "from 1 up"),
        ({"type": "slots", "fixed": {"1": "a", "2": "a"}}, "twice"),
        ({"type": "slots", "weights": ["a"]}, "finite numbers"),
        ({"type": "slots", "apart": [{"type": "at_most", "field": "b", "m": 1}]}, "rules on pairs"),
        ({"type": "prefer", "rule": {"type": "distinct", "field": "b"}, "worth": 0}, "above 0"),
        ({"type": "prefer", "rule": {"type": "slots"}, "worth": 1}, "takes rules on pairs"),
    ],
)
def test_what_makes_no_sense_is_refused_in_words(written: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words.replace("(", r"\(")):
        Constraint.from_dict(written)


def test_conditions_are_not_joined_by_words_that_python_keeps_for_itself() -> None:
    with pytest.raises(ConfigError, match="join conditions by &"):
        Where("hero") and Where("new")


def test_places_have_no_worth_where_no_candidate_has_a_list() -> None:
    items = [{"item_id": n, "by_place": None} for n in range(3)]
    card = exactk.solve([1, 3, 2], 2, items=items, constraints=Slots(scores="by_place", missing="allow"))
    assert (set(card.items), card.value) == ({1, 2}, 5.0)


def test_a_flag_is_a_flag_in_every_type_and_nothing_else_is() -> None:
    flags: list[list[Any]] = [[True, False], [1, 0], [1.0, 0.0]]
    for values in flags:
        items = [{"item_id": n, "f": value} for n, value in enumerate(values)]
        asked = one_row(Count("f", at_least=1), items, 1)
        assert [is_valid_card(asked, 0, np.array([p])) for p in (0, 1)] == [True, False]
    with pytest.raises(InputError, match="true or false"):
        one_row(Count("f", at_least=1), [{"item_id": 0, "f": "yes"}], 1)
    with pytest.raises(ConfigError, match="holds texts"):
        one_row(Count(Where("f", equals=3), at_least=1), [{"item_id": 0, "f": "yes"}], 1)


def test_dates_compare_as_iso_writes_them() -> None:
    items: list[Item] = [{"item_id": n, "seen": f"2026-11-{n + 10}"} for n in range(3)]
    asked = one_row(Count(Where("seen", at_most="2026-11-11"), at_most=1), items, 2)
    assert not is_valid_card(asked, 0, np.array([0, 1]))
    assert is_valid_card(asked, 0, np.array([1, 2]))


def test_a_missing_value_is_an_error_only_where_it_leaves_a_question() -> None:
    items: list[Item] = [
        {"item_id": 0, "sale": True, "brand": None},
        {"item_id": 1, "sale": False, "brand": "x"},
    ]
    settled = one_row(Count(Where("sale") | Where("brand", equals="x"), at_least=2), items, 2)
    assert is_valid_card(settled, 0, np.array([0, 1]))
    with pytest.raises(InputError, match='has no "brand"'):
        one_row(Count(Where("brand", equals="x"), at_least=1), items, 1)


def test_places_beyond_the_card_are_refused() -> None:
    with pytest.raises(InputError, match="names place 3, but the card has 2"):
        one_row(Slots(where={3: Where("price", at_most=1)}), priced(1, 2, 3), 2)
    with pytest.raises(InputError, match="2 weights for the 3 places"):
        one_row(Slots(weights=[1, 2]), priced(1, 2, 3), 3)
    with pytest.raises(InputError, match="at most 12 places"):
        one_row(Slots(rising="price"), priced(*map(float, range(14))), 13)


def test_a_share_follows_the_size_of_the_card() -> None:
    items = [{"item_id": n, "f": n < 4} for n in range(6)]
    batch = {name: np.repeat(values, 2, axis=0) for name, values in columns(items).items()}
    brief = Constraints.of(Share("f", at_least=0.3)).requests(GivenRequests(batch, np.array([3, 5]))).brief
    assert brief is not None
    assert brief.lower[:, 0].tolist() == [1, 2]


def test_preferences_keep_their_own_price_when_briefs_are_joined() -> None:
    items = shelf(np.random.default_rng(3), 6)
    first, second = Prefer(Distinct("brand"), 2.0), Prefer(AtMost("brand", 1), 0.5, once=True)
    brief = Constraints.of([first, second]).requests(GivenRequests(columns(items), 6)).brief
    assert brief is not None
    worn = [item["brand"] for item in items]
    pairs = sum(a == b for a, b in combinations(worn, 2))
    assert breaks(brief, 0, range(6)) == [pairs, 1]
    assert brief.worth[0].tolist() == [2.0, 0.5]
    assert joined([]) is None


def test_the_worth_of_a_card_counts_each_pair_once() -> None:
    pair = np.array([[9.0, 1.0, 2.0], [1.0, 9.0, 4.0], [2.0, 4.0, 9.0]])
    assert card_worth(None, 0, [0, 2], np.array([10.0, 20.0, 30.0]), pair) == 42.0


def test_variety_names_itself_and_a_card_rule_sees_whole_items() -> None:
    assert Variety("category", at_least=3).name == "at least 3 different category"
    rule = Rule(lambda card: card[0]["price"] < card[1]["price"], "ladder", on="card")
    assert rule.allows_card(columns(priced(1, 2)), 0, [0, 1])
    assert not rule.allows_card(columns(priced(1, 2)), 0, [1, 0])
