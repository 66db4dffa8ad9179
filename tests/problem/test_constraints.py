"""Rules: what each allows, what it makes of missing values, how it is written down, what it refuses."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import exactk
from exactk.errors import ConfigError, InputError
from exactk.problem.given import GivenRequests
from exactk.problem.rules.constraints import (
    Allowed,
    AtMost,
    Constraint,
    Constraints,
    Count,
    Distinct,
    Forbid,
    MinimumDistance,
    MinimumGap,
    Rule,
    TitleDistance,
    Total,
    Where,
    load_rules,
    save_rules,
)
from exactk.problem.rules.rule_set import RULE_TYPES

Columns = dict[str, np.ndarray]


def column(*values: Any) -> np.ndarray:
    """One request's column, as objects, so that any value can stand in it."""
    found = np.empty((1, len(values)), object)
    for place, value in enumerate(values):
        found[0, place] = value
    return found


def columns(**given: np.ndarray) -> Columns:
    N = next(iter(given.values())).shape[1]
    return {"item_id": column(*(f"i{p}" for p in range(N))), **given}


def verdict(rule: Constraint, given: Columns) -> list[tuple[int, int]]:
    """The pairs i < j that a rule allows."""
    present = np.ones(given["item_id"].shape, bool)
    allowed = rule.allowed(given, present)[0]
    assert np.array_equal(allowed, allowed.T)
    return [(i, j) for i in range(len(allowed)) for j in range(i + 1, len(allowed)) if allowed[i, j]]


EVERY_RULE: list[Constraint] = [
    TitleDistance(0.5),
    TitleDistance(1 / 3, metric="levenshtein", field="name", missing="forbid"),
    Distinct("brand", missing="allow"),
    MinimumDistance("embedding", 0.3, metric="cosine"),
    MinimumGap("price", 10),
    Forbid([("a", "b"), (3, 4)]),
    Allowed([[True, False], [False, True]]),
    AtMost("brand", 2),
]


# What each rule allows


def test_title_distance_keeps_titles_apart_by_ned_and_not_by_levenshtein_over_length() -> None:
    titles = columns(title=column("aab", "bcc", "aab!"))  # NED(aab, bcc) = 4/5, over length it is 3/3
    assert verdict(TitleDistance(0.8), titles) == [(0, 1), (1, 2)]
    assert verdict(TitleDistance(0.9), titles) == []
    assert verdict(TitleDistance(0.9, metric="levenshtein"), titles) == [(0, 1), (1, 2)]


def test_distinct_forbids_equal_values_of_any_kind() -> None:
    assert verdict(Distinct("brand"), columns(brand=column("x", "y", "x"))) == [(0, 1), (1, 2)]
    assert verdict(Distinct("year"), columns(year=np.array([[1999, 2000, 1999]]))) == [(0, 1), (1, 2)]
    assert verdict(Distinct("brand"), columns(brand=np.array([["x", "y", "x"]]))) == [(0, 1), (1, 2)]


def test_minimum_gap_takes_decimal_prices_at_their_word() -> None:
    assert 19.99 - 9.99 < 10  # what float64 says
    assert verdict(MinimumGap("price", 10), columns(price=column(9.99, 19.99, 15.0))) == [(0, 1)]
    assert verdict(MinimumGap("price", 10.01), columns(price=column(9.99, 19.99, 15.0))) == []


def test_minimum_gap_of_whole_numbers_is_exact_beyond_float_precision() -> None:
    huge = np.array([[2**60, 2**60 + 1, -(2**62)]])
    assert verdict(MinimumGap("id", 1), columns(id=huge)) == [(0, 1), (0, 2), (1, 2)]
    assert verdict(MinimumGap("id", 2), columns(id=huge)) == [(0, 2), (1, 2)]
    extremes = np.array([[np.iinfo(np.int64).min, np.iinfo(np.int64).max]])
    assert verdict(MinimumGap("id", 10), columns(id=extremes)) == [(0, 1)]


def test_minimum_distance_measures_a_right_triangle() -> None:
    corners = np.array([[[0.0, 0.0], [3.0, 0.0], [0.0, 4.0]]])  # sides 3, 4, 5
    assert verdict(MinimumDistance("at", 4), columns(at=corners)) == [(0, 2), (1, 2)]
    assert verdict(MinimumDistance("at", 5), columns(at=corners)) == [(1, 2)]
    far_from_home = corners + 1e8  # squares of these lose their last digits, and with them the triangle
    assert verdict(MinimumDistance("at", 5), columns(at=far_from_home)) == [(1, 2)]
    assert verdict(MinimumDistance("at", 5.0001), columns(at=far_from_home)) == []


def test_vectors_whose_squares_no_number_holds_are_refused() -> None:
    """Their distance was inf - inf, and so under every minimum; a minimum of 1e308 ended with a raw OverflowError."""
    ends = np.array([[[1e200, 0.0], [-1e200, 0.0]]])
    with pytest.raises(InputError, match=r"at most 1e150 in \"at\", but .* has 1e\+200"):
        verdict(MinimumDistance("at", 1), columns(at=ends))
    assert verdict(MinimumDistance("at", 1e149), columns(at=ends / 1e60)) == []
    assert verdict(MinimumDistance("at", 1e139), columns(at=ends / 1e60)) == [(0, 1)]
    with pytest.raises(ConfigError, match=r"between 0 and 1e\+150, got 1e\+308"):
        MinimumDistance("at", 1e308)


def test_cosine_distance_ignores_length() -> None:
    rays = np.array([[[1.0, 0.0], [5.0, 0.0], [0.0, 2.0], [-3.0, 0.0]]])  # 0, 90, 180 degrees
    assert verdict(MinimumDistance("ray", 1, metric="cosine"), columns(ray=rays)) == [
        (0, 2),
        (0, 3),
        (1, 2),
        (1, 3),
        (2, 3),
    ]
    assert verdict(MinimumDistance("ray", 2, metric="cosine"), columns(ray=rays)) == [(0, 3), (1, 3)]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(["euclidean", "cosine"]), st.floats(0, 2))
def test_vector_distances_agree_with_measuring_every_pair(seed: int, metric: Any, minimum: float) -> None:
    vectors = np.random.default_rng(seed).normal(size=(2, 6, 3))
    rule = MinimumDistance("v", minimum, metric=metric)
    allowed = rule.allowed({"item_id": np.zeros((2, 6), int), "v": vectors}, np.ones((2, 6), bool))
    for b in range(2):
        for i in range(6):
            for j in range(6):
                a, c = vectors[b, i], vectors[b, j]
                distance = np.sqrt(((a - c) ** 2).sum())
                if metric == "cosine":
                    distance = 1 - a @ c / np.sqrt((a @ a) * (c @ c))
                if i != j and abs(distance - minimum) > 1e-9:
                    assert allowed[b, i, j] == (distance >= minimum)


def test_forbid_works_both_ways_and_ignores_strangers() -> None:
    rule = Forbid([("i2", "i0"), ("i1", "nobody")])
    assert verdict(rule, columns(title=column("", "", ""))) == [(0, 1), (1, 2)]


def test_the_users_own_rule_sees_two_items() -> None:
    def fits_budget(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
        return bool(a["price"] + b["price"] <= 10)

    prices = columns(price=column(4, 5, 7))
    assert verdict(Rule(fits_budget, fields=("price",)), prices) == [(0, 1)]
    assert Rule(fits_budget).name == "fits_budget"
    assert Rule(fits_budget, "budget").name == "budget"


def test_a_vectorised_rule_gives_the_same_verdict() -> None:
    prices = {"item_id": np.zeros((2, 3), int), "price": np.array([[4, 5, 7], [1, 2, 9]])}
    present = np.ones((2, 3), bool)

    def apart(a: Mapping[str, Any], b: Mapping[str, Any]) -> Any:
        return abs(a["price"] - b["price"]) >= 2

    one_by_one = Rule(apart, fields=("price",)).allowed(prices, present)
    at_once = Rule(apart, fields=("price",), vectorised=True).allowed(prices, present)
    off_diagonal = ~np.eye(3, dtype=bool)
    assert np.array_equal(one_by_one & off_diagonal, at_once & off_diagonal)


def test_a_rule_that_depends_on_the_order_is_refused_by_the_names_of_the_items() -> None:
    lopsided = Rule(lambda a, b: a["price"] < b["price"], "cheaper first")
    with pytest.raises(InputError, match=r"request 0: rule \"cheaper first\" is not symmetric.*'i0'.*'i1'"):
        verdict(lopsided, columns(price=column(1, 2)))


def test_an_error_in_the_users_rule_says_which_items_it_met() -> None:
    with pytest.raises(KeyError) as caught:
        verdict(Rule(lambda a, b: a["colour"] == 1, "colours"), columns(price=column(1, 2)))
    assert "item 'i0'" in caught.value.__notes__[0]


def test_at_most_is_a_cap_and_at_most_one_also_a_pair_rule() -> None:
    brands = columns(brand=column("x", "y", "x"))
    present = np.ones((1, 3), bool)
    assert verdict(AtMost("brand", 2), brands) == [(0, 1), (0, 2), (1, 2)]
    assert verdict(AtMost("brand", 1), brands) == [(0, 1), (1, 2)]
    group, cap = (Distinct("brand") & AtMost("brand", 2)).caps(brands, present)
    assert cap.tolist() == [[2]]
    assert group[0, 0, 0] == group[0, 0, 2] != group[0, 0, 1]


def test_a_ready_matrix_is_taken_as_it_is() -> None:
    assert verdict(Allowed([[1, 0, 1], [0, 1, 1], [1, 1, 1]]), columns(t=column(1, 2, 3))) == [(0, 2), (1, 2)]
    with pytest.raises(InputError, match=r"not symmetric: \[0, 1\] and \[1, 0\] differ"):
        Allowed([[True, True], [False, True]])
    with pytest.raises(InputError, match=r"shape \(2, 2\), but there are 1 requests of 3 candidates"):
        verdict(Allowed(np.ones((2, 2), bool)), columns(t=column(1, 2, 3)))


# Missing values


@pytest.mark.parametrize(
    ("rule", "values"),
    [
        (TitleDistance(0.5), column("red shoe", "", "green hat")),
        (TitleDistance(0.5), column("red shoe", None, "green hat")),
        (Distinct("title"), column("red", float("nan"), "green")),
        (AtMost("title", 1), column("red", None, "green")),
        (MinimumGap("title", 1), column(1.0, None, 3.0)),
        (MinimumGap("title", 1), np.array([[1.0, np.nan, 3.0]])),
        (MinimumDistance("title", 1), column([0.0, 0.0], None, [3.0, 4.0])),
        (MinimumDistance("title", 1), np.array([[[0.0, 0.0], [np.nan, 1.0], [3.0, 4.0]]])),
        (MinimumDistance("title", 0.5, metric="cosine"), np.array([[[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]]])),
    ],
)
def test_a_missing_value_is_an_error_or_allows_or_forbids_as_declared(rule: Any, values: np.ndarray) -> None:
    if isinstance(rule, TitleDistance | Distinct | AtMost | MinimumGap | MinimumDistance):
        rule = replace(rule, field="title")
    given = columns(title=values)
    with pytest.raises(InputError, match=r"request 0: item 'i1' has no \"title\"") as caught:
        verdict(rule, given)
    assert rule.name in str(caught.value)
    assert verdict(replace(rule, missing="allow"), given) == [(0, 1), (0, 2), (1, 2)]
    assert verdict(replace(rule, missing="forbid"), given) == [(0, 2)]


def test_an_item_without_a_group_is_counted_by_no_cap() -> None:
    brands = columns(brand=column("x", None, "x"))
    groups = AtMost("brand", 2, missing="allow").groups(brands, np.ones((1, 3), bool))
    assert groups[0, 1] == -1


def test_padding_may_hold_anything() -> None:
    present = np.array([[True, True, False]])
    given = columns(title=column("one", "two", 7), price=column(1.0, 5.0, "?"), v=column([1.0], [2.0], "?"))
    for rule in (TitleDistance(0.5), Distinct("title"), MinimumGap("price", 1), MinimumDistance("v", 1)):
        assert rule.allowed(given, present)[0, 0, 1]


# Together, and written down


def test_rules_join_with_and_and_equal_ones_count_once() -> None:
    both = TitleDistance(0.5) & Distinct("brand")
    assert both == Constraints.of([TitleDistance(0.5), Distinct("brand")])
    assert both & Distinct("brand") == both
    assert len(both & (AtMost("brand", 2) & MinimumGap("price", 1))) == 4
    assert (both & MinimumGap("price", 1)).fields == ("title", "brand", "price")
    assert not Constraints()


def test_names_are_readable_and_never_shared() -> None:
    names = Constraints.of(EVERY_RULE).names
    assert names == (
        "title distance >= 0.5 (ned)",
        "name distance >= 0.333333333333 (levenshtein)",
        "distinct brand",
        "embedding distance >= 0.3 (cosine)",
        "price gap >= 10",
        "forbidden pairs (2)",
        "allowed matrix",
        "at most 2 per brand",
    )
    twins = Forbid([("a", "b")]) & Forbid([("a", "c")])
    assert twins.names == ("forbidden pairs (1)", "forbidden pairs (1) #2")


@pytest.mark.parametrize("suffix", [".toml", ".json"])
@pytest.mark.parametrize("rule", EVERY_RULE, ids=lambda rule: rule.type)
def test_every_rule_reads_back_as_it_was_written(rule: Constraint, suffix: str, tmp_path: Path) -> None:
    written = json.loads(json.dumps(rule.to_dict()))
    assert Constraint.from_dict(written) == rule
    save_rules(Constraints.of(rule), tmp_path / f"rules{suffix}")
    assert load_rules(tmp_path / f"rules{suffix}") == Constraints.of(rule)
    assert hash(load_rules(tmp_path / f"rules{suffix}")) == hash(Constraints.of(rule))


names = st.text(min_size=1)
written_rules = st.one_of(
    st.fixed_dictionaries(
        {"type": st.just("title_distance"), "minimum": st.floats(0, 1), "field": names},
        optional={"metric": st.sampled_from(["ned", "levenshtein"])},
    ),
    st.fixed_dictionaries(
        {
            "type": st.just("distinct"),
            "field": names,
            "missing": st.sampled_from(["error", "allow", "forbid"]),
        }
    ),
    st.fixed_dictionaries({"type": st.just("minimum_gap"), "field": names, "minimum": st.floats(0, 1e300)}),
    st.fixed_dictionaries({"type": st.just("at_most"), "field": names, "m": st.integers(1, 2**31 - 1)}),
    st.fixed_dictionaries(
        {
            "type": st.just("forbid"),
            "pairs": st.lists(st.tuples(st.text(max_size=5), st.integers(-(2**63), 2**63 - 1)), max_size=4),
        }
    ),
)


@settings(max_examples=80, deadline=None)
@given(st.lists(written_rules, max_size=5))
def test_rules_of_any_content_survive_toml_and_json(
    tmp_path_factory: Any, written: list[dict[str, Any]]
) -> None:
    folder = tmp_path_factory.mktemp("rules")
    constraints = Constraints.from_dict({"rule": written})
    for name in ("rules.toml", "rules.json"):
        save_rules(constraints, folder / name)
        assert load_rules(folder / name) == constraints


def test_a_rules_file_as_a_person_writes_it(tmp_path: Path) -> None:
    file = tmp_path / "rules.toml"
    file.write_text(
        '[[rule]]\ntype = "title_distance"\nminimum = 0.5\n\n'
        '[[rule]]\ntype = "at_most"\nfield = "brand"\nm = 2\n'
    )
    assert load_rules(file) == TitleDistance(0.5) & AtMost("brand", 2)
    file.write_text(file.read_text(), encoding="utf-8-sig")  # as editors on Windows do
    assert load_rules(file) == TitleDistance(0.5) & AtMost("brand", 2)


def test_every_example_of_the_rules_page_is_read_and_no_rule_is_left_out(tmp_path: Path) -> None:
    folder = Path(__file__).resolve().parents[2] / "docs" / "rules"
    page = "\n".join(path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.md")))
    shown: set[str] = set()
    for number, example in enumerate(re.findall(r"```toml\n(.*?)```", page, re.DOTALL)):
        file = tmp_path / f"{number}.toml"
        file.write_text(example)
        shown |= {rule.type for rule in load_rules(file).rules}
    assert shown == set(RULE_TYPES) - {"rule"}
    headings = re.findall(r"^# `(\w+)\(", page, re.MULTILINE)
    assert sorted(headings) == sorted(rule.__name__ for rule in RULE_TYPES.values())


def test_a_function_cannot_be_written_down() -> None:
    with pytest.raises(ConfigError, match=r"\"mine\" is a Python function and cannot be written to a file"):
        (Rule(lambda a, b: True, "mine") & Distinct("brand")).to_dict()


def deep(levels: int) -> Any:
    """A condition within a condition within ..."""
    where: Any = "sale"
    for _ in range(levels):
        where = {"not": where}
    return where


def test_limits_beyond_any_card_and_sums_beyond_any_number_are_no_errors_of_pythons() -> None:
    items = {"item_id": [1, 2, 3], "sale": [True, False, True], "price": [1e308, 1e308, 1.0]}
    assert exactk.solve([3, 2, 1], 2, items=items, constraints=Count("sale", at_most=10**19)).items == (1, 2)
    with pytest.raises(exactk.InfeasibleError):
        exactk.solve([3, 2, 1], 2, items=items, constraints=Count("sale", exactly=10**19))
    with pytest.raises(InputError, match='sums of "price" are beyond the largest number'):
        exactk.solve([3, 2, 1], 2, items=items, constraints=Total("price", at_most=5))
    large = {**items, "price": np.array([2**64 - 1, 0, 0], np.uint64)}
    with pytest.raises(InputError, match=r'sums of "price" are beyond 2\^62'):
        exactk.solve([3, 2, 1], 2, items=large, constraints=Total("price", at_most=5))
    nobody = Count(Where("price", one_of=[]), at_most=0)
    assert exactk.solve([3, 2, 1], 2, items=items, constraints=nobody).items == (1, 2)


@pytest.mark.parametrize(
    ("written", "message"),
    [
        (
            {"type": "titel_distance", "minimum": 0.5},
            'no rule "titel_distance" (did you mean "title_distance"?)',
        ),
        ({"type": "banana"}, 'no rule "banana" (known: allowed, at_most, '),
        ({"type": "title_distance", "minimun": 0.5}, 'has no setting "minimun" (did you mean "minimum"?)'),
        ({"type": "title_distance"}, 'needs the setting "minimum"'),
        ({"type": "title_distance", "minimum": 1.5}, "minimum must be a number between 0 and 1, got 1.5"),
        ({"type": "title_distance", "minimum": True}, "got True"),
        ({"type": "title_distance", "minimum": float("nan")}, "got nan"),
        ({"type": "title_distance", "minimum": "0.5"}, "got '0.5'"),
        ({"type": "title_distance", "minimum": 0.5, "metric": "nedd"}, '(did you mean "ned"?)'),
        ({"type": "distinct", "field": ""}, "field must be the name of a column"),
        ({"type": "distinct", "field": "x", "missing": "ignore"}, "missing 'ignore' is unknown"),
        ({"type": "distinct", "field": "x", "missing": np.zeros(2)}, "missing array([0., 0.]) is unknown"),
        ({"type": "minimum_gap", "field": "x", "minimum": -1}, "minimum must be a number of at least 0"),
        ({"type": "minimum_distance", "field": "x", "minimum": 3, "metric": "cosine"}, "between 0 and 2"),
        ({"type": "at_most", "field": "x", "m": 0}, "m must be a whole number of at least 1, got 0"),
        ({"type": "at_most", "field": "x", "m": 1.5}, "got 1.5"),
        ({"type": "forbid", "pairs": [["a", "b", "c"]]}, "pair 0 must be two item ids"),
        ({"type": "forbid", "pairs": [["a", "a"]]}, "pair 0 names one item twice"),
        ({"type": "forbid", "pairs": "ab"}, "pairs must be a list"),
        ({"type": "allowed", "matrix": [[True], [True, False]]}, "ragged"),
        ({"type": "allowed", "matrix": [[True, True]]}, "must be [N, N]"),
        ({"type": "allowed", "matrix": [[2]]}, "only true and false"),
        ({"type": "rule", "function": "len"}, "function must be a function"),
        ({"type": "minimum_gap", "field": "x", "minimum": 10**400}, "minimum must be a number of at least 0"),
        ({"type": "count", "where": "sale", "at_least": 10**400}, "at_least must be a whole number"),
        ({"type": "count", "where": deep(40), "at_least": 1}, "nested deeper than 32"),
        ({"type": "count", "where": deep(400), "at_least": 1}, "nested deeper than 32"),
        ({"type": "count", "where": {"field": "x", "at_least": 10**400}, "at_least": 1}, "must be finite"),
        ({"type": "slots", "where": 5}, "where must be a table of places"),
        ({"type": "slots", "fixed": {"1": ["a"]}}, "fixed must name items by their ids"),
        ({"type": "slots", "weights": [10**400]}, "weights must be finite numbers"),
        ({"type": "slots", "apart": 5}, "apart takes fields and rules on pairs"),
        ({}, 'must be a table with a "type"'),
        ("distinct", 'must be a table with a "type"'),
    ],
)
def test_a_wrong_rule_is_refused_by_name(written: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Constraints.from_dict({"rule": [Distinct("fine").to_dict(), written]})
    assert message in str(caught.value)
    assert str(caught.value).startswith("rule 1: ")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("rules.toml", "[[rule]\n", "is not valid TOML"),
        ("rules.json", "{", "is not valid JSON"),
        ("rules.json", "[1]", "must be a table"),
        ("rules.toml", "rules = 1", 'rules have no "rules" (did you mean "rule"?)'),
        ("rules.toml", "rule = 1", "must be a list of tables"),
        ("rules.yaml", "", ".toml or .json"),
        ("rules.json", "[" * 100_000, "is not valid JSON"),
    ],
)
def test_a_malformed_rules_file_is_refused_by_its_name(
    name: str, text: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_rules(tmp_path / name)
    assert message in str(caught.value)
    assert name in str(caught.value)


def test_a_missing_rules_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.toml: No such file"):
        load_rules(tmp_path / "nowhere.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not valid TOML"):
        load_rules(tmp_path / "bytes.toml")


def test_rules_that_cannot_be_kept_leave_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot write the rules"):
        save_rules(Constraints.of(Distinct("\ud800")), tmp_path / "rules.toml")
    with pytest.raises(ConfigError, match="cannot write the rules"):
        save_rules(Constraints.of(Distinct("x")), tmp_path / "no" / "rules.toml")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("wrong", ["distinct", {"type": "distinct"}, 3, [Distinct("x"), "y"]])
def test_constraints_are_made_of_rules_only(wrong: Any) -> None:
    with pytest.raises(ConfigError):
        Constraints.of(wrong)


# Requests


def two_requests() -> Columns:
    return {
        "item_id": np.array([["a", "b", "c"], ["d", "e", "f"]], object),
        "brand": np.array([["x", "x", "y"], ["x", "y", "y"]], object),
    }


def test_requests_carry_graph_caps_pins_and_presence() -> None:
    rules = Distinct("brand") & AtMost("brand", 2)
    found = rules.requests(GivenRequests(two_requests(), [2, 1], include=[["c"], []], exclude=[None, ["d"]]))
    assert found.graph[0].tolist() == [[False, False, True], [False, False, True], [True, True, False]]
    assert found.present.tolist() == [[True] * 3, [False, True, True]]
    assert not found.graph[1, 0].any()
    assert found.pinned.tolist() == [[False, False, True], [False] * 3]
    assert found.card_size.tolist() == [2, 1]
    assert found.cap.tolist() == [[2], [2]]
    assert found.group.shape == (2, 1, 3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: {"card_size": 4}, "request 0: a card of 4 cannot be made of 3 candidates"),
        (lambda c: {"card_size": [2, 0]}, "request 1: the card size k must be at least 1, got 0"),
        (lambda c: {"card_size": 2.0}, "must be a whole number"),
        (lambda c: {"card_size": [2, 2, 2]}, "3 card sizes for 2 requests"),
        (lambda c: {"present": np.array([[True] * 3, [False] * 3])}, "request 1: there are no candidates"),
        (lambda c: {"include": [[], ["a"]]}, "request 1: included item 'a' is not among the candidates"),
        (lambda c: {"exclude": [["zz"], []]}, "request 0: excluded item 'zz' is not among the candidates"),
        (
            lambda c: {"include": [["a"], []], "exclude": [["a"], []]},
            "item 'a' is both included and excluded",
        ),
        (lambda c: {"include": [["a"]]}, "for each of 2 requests"),
        (lambda c: {"include": ["a", "b"]}, "request 0: include must be a list of item ids, got 'a'"),
        (lambda c: c.update(brand=None) or c.pop("brand") or {}, 'no field "brand"'),
        (lambda c: c.update(brnd=c.pop("brand")) or {}, 'no field "brand" (did you mean "brnd"?)'),
        (lambda c: c.pop("item_id") is None or {}, 'no field "item_id"'),
        (lambda c: c.update(brand=c["brand"][:, :2]) or {}, '"brand" has shape (2, 2), "item_id" has (2, 3)'),
        (
            lambda c: c.update(item_id=np.array([["a", "b", "c"], ["d", "e", "d"]], object)) or {},
            "request 1: candidate 'd' appears twice, at 0 and 2",
        ),
        (
            lambda c: c.update(item_id=np.array([[1, 2, 3], [4, 4, 5]])) or {},
            "request 1: candidate 4 appears twice, at 0 and 1",
        ),
        (lambda c: c["item_id"].__setitem__((1, 2), None) or {}, "request 1: position 2 has no item_id"),
        (
            lambda c: c.update(brand=np.zeros((2, 3, 1))) or {},
            'needs one value per item, but "brand" holds vectors',
        ),
    ],
)
def test_a_faulty_request_is_refused_by_name(
    change: Callable[[Columns], dict[str, Any]], message: str
) -> None:
    given = two_requests()
    settings_: dict[str, Any] = {"card_size": 2} | change(given)
    with pytest.raises(InputError) as caught:
        Constraints.of(Distinct("brand")).requests(GivenRequests(given, **settings_))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("rule", "values", "message"),
    [
        (TitleDistance(0.5, field="x"), column("a", 3), 'needs text in "x", but position 1 has 3'),
        (MinimumGap("x", 1), column(1, "12"), "item 'i1' has '12'"),
        (MinimumGap("x", 1), column(1, True), "item 'i1' has True"),
        (MinimumGap("x", 1), column(1.0, float("inf")), "item 'i1' has inf"),
        (MinimumGap("x", 1), np.array([["1", "2"]]), "needs a number per item"),
        (
            MinimumDistance("x", 1),
            column([1.0], [1.0, 2.0]),
            "item 'i1' has a \"x\" of shape (2,), others have (1,)",
        ),
        (MinimumDistance("x", 1), column([1.0], "abc"), "item 'i1' has 'abc'"),
        (MinimumDistance("x", 1), np.array([[1.0, 2.0]]), "needs a vector per item"),
        (MinimumDistance("x", 1), np.array([[[1.0], [np.inf]]]), "finite numbers"),
        (Distinct("x"), column("a", ["b"]), "['b'] (position 1) is a list"),
    ],
)
def test_a_value_of_the_wrong_kind_is_refused_by_name(
    rule: Constraint, values: np.ndarray, message: str
) -> None:
    with pytest.raises(InputError) as caught:
        verdict(rule, columns(x=values))
    assert message in str(caught.value)
    assert "x" in str(caught.value)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000))
def test_a_batch_of_one_equals_the_batch_and_order_only_moves_positions(seed: int) -> None:
    generator = np.random.default_rng(seed)
    words = np.array(["red shoe", "red shoes", "blue hat", "blue cat", "dress"], object)
    given: Columns = {
        "item_id": np.array([generator.permutation(6) for _ in range(3)]),
        "title": generator.choice(words, (3, 6)),
        "price": generator.integers(0, 5, (3, 6)),
        "v": generator.normal(size=(3, 6, 2)),
    }
    rules = TitleDistance(0.4) & MinimumGap("price", 2) & MinimumDistance("v", 0.5) & Forbid([(0, 1)])
    whole = rules.requests(GivenRequests(given, 2)).graph
    order = generator.permutation(6)
    other = {name: values[:, order] for name, values in given.items()}
    moved = rules.requests(GivenRequests(other, 2)).graph
    assert np.array_equal(moved, whole[:, order][:, :, order])
    for b in range(3):
        alone = rules.requests(GivenRequests(given, 2).one(b)).graph
        assert np.array_equal(alone[0], whole[b])
