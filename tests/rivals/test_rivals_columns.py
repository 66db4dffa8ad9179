"""Rivals read every column of a log, and what runs today is a rival, too."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from exactk.data.columns.vocabulary import FittedNumbers
from exactk.data.logs.frame import from_frame
from exactk.data.sample import sample_log
from exactk.errors import InputError
from exactk.evaluation.click_models import second_judge, shown_lists
from exactk.evaluation.judging import judged
from exactk.evaluation.metrics import clicks_on_card, mean, whole_card
from exactk.rivals import method
from exactk.rivals.columns import Widening, one_hot, standardised, within_list
from exactk.rivals.contract import Budget, Logs
from rival_logs import planted_logs

SMALL = Budget(trials=1, epochs=6, patience=3, batch_size=64, validation_rows=512, tree_requests=4_000)


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Logs, Logs, Logs]:
    sample = sample_log(requests=1_500, seed=3)
    data = from_frame(sample.rows, items=sample.items, path=tmp_path_factory.mktemp("log") / "data")
    return Logs.of(*data.split())  # type: ignore[return-value]


def test_differences_and_ranks_within_a_list_by_hand() -> None:
    spread = FittedNumbers.fitted(("price",), np.array([[0.0], [64.0]], np.float32))  # level = price / 64
    values = np.array([[[16.0], [48.0], [16.0], [np.nan]]], np.float32)
    relative, rank = within_list(values, spread)
    np.testing.assert_allclose(
        relative[0, :, 0], [0.25 - 5 / 12, 0.75 - 5 / 12, 0.25 - 5 / 12, 0.0], atol=1e-6
    )
    np.testing.assert_allclose(rank[0, :, 0], [-0.5, 1.0, -0.5, 0.0])


def test_missing_numbers_are_the_mean_and_say_so() -> None:
    spread = FittedNumbers.fitted(("x",), np.array([[1.0], [3.0]], np.float32))
    scaled, missing = standardised(np.array([[3.0], [np.nan]]), spread)
    assert scaled[:, 0].tolist() == [1.0, 0.0]
    assert missing[:, 0].tolist() == [0.0, 1.0]


def test_categories_become_columns_and_unknown_is_one_of_them() -> None:
    (found,) = one_hot(np.array([[0], [1], [2]]), [3])
    np.testing.assert_array_equal(found, np.eye(3))
    (folded,) = one_hot(np.arange(100)[:, None], [100])
    assert folded.shape == (100, 32)
    assert (folded.sum(1) == 1).all()
    assert (folded[1:, 0] == 0).all()


def test_the_order_of_candidates_changes_no_wide_feature(logs: tuple[Logs, Logs, Logs]) -> None:
    train, _, test = logs
    widen = Widening(train.vocabulary.columns)
    batch = next(iter(test.batches(8)))
    order = np.random.default_rng(0).permutation(batch.item.shape[1])
    moved = {
        name: getattr(batch, name)[:, order]
        for name in ("item", "present", "candidate_numbers", "candidate_categories", "item_categories", "position",
                     "score", "clicks", "reward", "item_vectors", "item_features")
        if getattr(batch, name) is not None
    }  # fmt: skip
    wide, turned = widen(batch), widen(replace(batch, **moved))
    assert wide.item_features is not None
    assert turned.item_features is not None
    np.testing.assert_allclose(wide.item_features[:, order], turned.item_features, atol=1e-6)


@pytest.mark.parametrize("name", ["logged-policy", "upstream-score", "popularity-so-far", "mnl"])
def test_rivals_of_today_beat_chance_on_lists(name: str, logs: tuple[Logs, Logs, Logs]) -> None:
    train, valid, test = logs
    chance = judged(method("random")(train, valid, SMALL).ways["random"], test, None)
    for way in method(name)(train, valid, SMALL).ways.values():
        scores = judged(way, test, None)
        if name != "popularity-so-far":  # 1,500 requests over 600 items say little of any of them
            assert mean(scores.precision) > mean(chance.precision) + 0.05
        assert (scores.valid == 1).all()


@pytest.mark.parametrize("name", ["upstream-score", "popularity-so-far"])
def test_cards_depend_on_no_order_and_on_no_neighbour(name: str, logs: tuple[Logs, Logs, Logs]) -> None:
    train, valid, test = logs
    batch = next(iter(test.batches(6)))
    order = np.random.default_rng(1).permutation(batch.item.shape[1])
    held = ("item", "present", "candidate_numbers", "candidate_categories", "item_categories", "position", "score",
            "clicks", "reward", "item_vectors", "item_features", "pinned", "tie_key")  # fmt: skip
    moved = {n: getattr(batch, n)[:, order] for n in held if getattr(batch, n, None) is not None}
    turned = replace(batch, **moved, graph=batch.graph[:, order][:, :, order], group=batch.group[:, :, order],
                     pair_features=None, card=None)  # fmt: skip
    for way in method(name)(train, valid, SMALL).ways.values():
        cards = [set(row[row >= 0].tolist()) for row in way.recommend(batch)]
        other = [{int(order[p]) for p in row if p >= 0} for row in way.recommend(turned)]
        assert cards == other
        alone = [
            set(way.recommend(batch.rows(slice(b, b + 1)))[0].tolist()) - {-1} for b in range(len(batch))
        ]
        assert cards == alone


def test_the_logged_policy_shows_the_logged_card(logs: tuple[Logs, Logs, Logs]) -> None:
    train, valid, test = logs
    way = method("logged-policy")(train, valid, SMALL).ways["logged policy"]
    batch = next(iter(test.batches(16)))
    assert batch.card is not None
    np.testing.assert_array_equal(way.recommend(batch), batch.card)


def test_a_log_without_what_a_rival_reads_says_so(tmp_path: Path) -> None:
    train, valid, _ = planted_logs(tmp_path / "log", num=100)
    for name, word in (("upstream-score", "score"), ("popularity-so-far", "timestamp"), ("mnl", "features")):
        with pytest.raises(InputError, match=word):
            method(name)(train, valid, SMALL)


def test_clicks_on_the_card_by_hand() -> None:
    clicks = np.array([[2.0, 1.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    cards = np.array([[0, -1], [0, 1], [0, 2]])
    np.testing.assert_allclose(clicks_on_card(cards, clicks), [2 / 3, np.nan, 1.0])


def test_a_card_is_recovered_whole_or_not() -> None:
    cards, true = np.array([[2, 0, -1], [0, 1, 2], [0, 1, 2]]), np.array([[0, 2, -1], [0, 1, 3], [0, 1, 2]])
    found = whole_card(cards, true, np.array([True, True, False]))
    np.testing.assert_array_equal(found, [1.0, 0.0, np.nan])


def test_a_click_model_judges_lists_with_positions(logs: tuple[Logs, Logs, Logs], tmp_path: Path) -> None:
    train, _, test = logs
    lists = shown_lists(test.view)
    assert lists is not None
    assert lists.position.min() == 0
    assert lists.clicked.sum() > 0
    found = second_judge(train.view, test.view)
    assert found is not None
    assert found.examined is not None
    clicked = np.isin(np.arange(len(test)), lists.request[lists.clicked])
    assert (np.isnan(found.examined) == ~clicked).all()
    assert (found.examined[clicked] > 0).all()
    few = second_judge(train.view.take(slice(20)), test.view)
    assert few is not None
    assert few.examined is None
    assert few.facts["fitted_on"] < few.facts["needed"]
    without, *_ = planted_logs(tmp_path / "log", num=100)
    assert second_judge(without.view, without.view) is None
