"""What a user's type checker knows: this file is checked by mypy --strict with all others, and is true when run."""

from __future__ import annotations

from typing import Any, assert_type

import numpy as np

from exactk import Card, Distinct, ExactKError, Recommender, Request, TitleDistance, solve


def test_one_request_gives_a_card() -> None:
    card = assert_type(solve([0.9, 0.8, 0.7], 2), Card)
    assert isinstance(card, Card)
    assert isinstance(assert_type(solve(np.ones(3), 2, constraints=None, time_limit=5), Card), Card)


def test_requests_side_by_side_give_a_tuple_of_cards() -> None:
    cards = assert_type(solve([[0.9, 0.8, 0.7], [0.1, 0.2, 0.3]], 2), tuple[Card, ...])
    assert isinstance(cards, tuple)
    arrays = assert_type(solve(np.ones((2, 3)), [1, 2], np.zeros((3, 3))), tuple[Card, ...])
    assert [len(card.items) for card in arrays] == [1, 2]


def test_returned_errors_are_in_the_type() -> None:
    answer = assert_type(solve([1.0, 1.0], 2, allowed=np.eye(2), infeasible="return"), Card | ExactKError)
    assert isinstance(answer, ExactKError)
    answers = assert_type(solve([[1.0, 1.0]], 2, infeasible="return"), tuple[Card | ExactKError, ...])
    assert isinstance(answers, tuple)


def test_where_items_decide_nothing_is_claimed() -> None:
    """A `request_id` among the items makes a batch, which no checker can see; so does n > 1."""
    rules = TitleDistance(0.5) & Distinct("brand")
    items = {"title": ["a hat", "the scarf"], "brand": ["x", "y"]}
    assert isinstance(assert_type(solve([1.0, 2.0], 1, items=items, constraints=rules), Any), Card)
    assert len(assert_type(solve([1.0, 2.0], 1, n=2), Any)) == 2


def cards_of(recommender: Recommender, requests: list[Request]) -> list[Card]:
    """What a service of one's own would write."""
    one = assert_type(recommender.recommend("u1", ["a", "b"], 1, constraints=[Distinct("brand")]), Card)
    many = assert_type(recommender.recommend_many(requests, relax=["distinct"]), list[Card])
    some = assert_type(recommender.recommend_many(requests, infeasible="return"), list[Card | ExactKError])
    return [one, *many, *(answer for answer in some if isinstance(answer, Card))]


def mistakes(recommender: Recommender) -> None:
    """Each is refused by the checker: an unused ignore is an error, too."""
    solve([0.9, 0.8], 1, constraints=["distinct"])  # type: ignore[list-item]
    solve([0.9, 0.8], 1, relaxed="distinct")  # type: ignore[call-overload]
    solve([0.9, 0.8], 1, infeasible="skip")  # type: ignore[call-overload]
    solve([0.9, 0.8], 1).cards  # type: ignore[attr-defined]  # noqa: B018
    recommender.recommend("u1", ["a"], 1, constraints="distinct")  # type: ignore[arg-type]
