"""Card values trained on each kind of log, without a setting: lists, chosen cards, cards clicked or not."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from exactk.data.dataset import Dataset
from exactk.data.logs.frame import from_frame
from exactk.data.sample import sample_log
from exactk.learning import card_task
from exactk.learning.card_task import HARD, Rivals, list_weights, rivals_of, subset_loss
from exactk.learning.losses import list_loss
from exactk.learning.phases import Models, input_sizes
from exactk.models.card_value import CardValue
from exactk.models.pairvalue import PairValue, Values
from exactk.recommender import Recommender
from exactk.search.maximise import best_few
from exactk.settings.config import CardValueConfig, Config
from exactk.settings.presets import preset
from small_batches import complete_batch

SMALL = CardValueConfig(
    width=16, heads=2, feed_forward_size=16, bins=8, pair_hidden=8, bias_hidden=8, members=2, epochs=4, batch_size=32,
    learning_rate=0.005, dropout=0.0,
)  # fmt: skip
CONFIG = replace(
    preset("pair-value"),
    model="card_value",
    card_value=SMALL,
    pair_value=replace(preset("pair-value").pair_value, members=2, epochs=3, batch_size=64),
)
COLUMNS = {
    "request_id": "request_id", "user_id": "user_id", "item_id": "item_id", "clicked": "clicked",
    "on_card": "on_card", "timestamp": "timestamp", "score": "score", "position": "position",
}  # fmt: skip


@cache
def lists() -> Dataset:
    log = sample_log(requests=700, users=60)
    rows = log.rows.drop_columns(["dwell"])
    order = np.random.default_rng(0).permutation(len(rows))
    request = np.unique(rows["request_id"].to_numpy(zero_copy_only=False), return_inverse=True)[1]
    return from_frame(rows.take(order[np.argsort(request[order], kind="stable")]), COLUMNS, log.items)


def bundles(num: int = 200, seed: int = 0) -> Dataset:
    """Sessions of six items of three makers, two each; a pair of the same maker was chosen."""
    rng = np.random.default_rng(seed)
    rows: list[dict[str, Any]] = []
    for r in range(num):
        order = rng.permutation(6)
        makers = np.array([0, 0, 1, 1, 2, 3])[order]
        shared = rng.integers(2)
        items = [int(rng.integers(50)) * 4 + int(m) for m in makers]
        while len(set(items)) < 6:
            items = [int(rng.integers(50)) * 4 + int(m) for m in makers]
        card = [i for i, m in zip(items, makers, strict=True) if m == shared]
        rows.append({"request_id": f"r{r}", "user_id": f"u{r % 20}", "candidates": items, "card": card})
    known = pa.table({"item_id": list(range(200)), "maker": [f"m{i % 4}" for i in range(200)]})
    described = {
        "positives_only": True,
        "roles": {name: name for name in ("request_id", "user_id", "candidates", "card")},
        "item": {"categories": ["maker"]},
    }
    return from_frame(pa.Table.from_pylist(rows), described, known)


@cache
def learned_lists() -> tuple[Recommender, Dataset]:
    train, valid, test = lists().split()
    return Recommender(CONFIG).fit(train, valid, show=False), test


def hits(recommender: Recommender, test: Dataset) -> float:
    found = []
    for batch in test.batches(recommender.fitted.vocabulary, 256):
        cards = recommender.recommend_batch(batch)
        assert batch.clicks is not None
        found.append((np.take_along_axis(batch.clicks, cards, 1) > 0).any(1))
    return float(np.concatenate(found).mean())


def test_from_whole_lists_it_learns_what_is_cheap_beside_the_others() -> None:
    recommender, test = learned_lists()
    model = Models.of(recommender.fitted).value
    assert isinstance(model, CardValue)
    assert (model.sizes.shown, model.sizes.placed, model.sizes.scored) == ("list", True, True)
    chance = np.mean(
        [4 / n for batch in test.batches(recommender.fitted.vocabulary, 256) for n in batch.present.sum(1)]
    )
    assert hits(recommender, test) > chance + 0.2


def test_the_value_of_a_list_is_how_often_a_click_falls_on_the_card() -> None:
    recommender, test = learned_lists()
    said = recommender.evaluate(test)["value"]
    assert abs(said - hits(recommender, test)) < 0.12


def test_a_saved_model_decides_alike(tmp_path: Path) -> None:
    recommender, test = learned_lists()
    recommender.save(tmp_path / "model")
    again = Recommender.load(tmp_path / "model")
    assert isinstance(Models.of(again.fitted).value, CardValue)
    batch = next(iter(test.batches(recommender.fitted.vocabulary, 64)))
    np.testing.assert_array_equal(again.recommend_batch(batch), recommender.recommend_batch(batch))


def test_chosen_cards_teach_which_items_go_together() -> None:
    data = bundles()
    train, valid, test = data.split("random")
    recommender = Recommender(CONFIG).fit(train, valid, show=False)
    assert recommender.fitted.sizes.shown == "session"
    whole = []
    for batch in test.batches(recommender.fitted.vocabulary, 256):
        assert batch.card is not None
        whole.append((np.sort(recommender.recommend_batch(batch)) == np.sort(batch.card)).all(1))
    # One card in fifteen by chance; two makers come in pairs, so half of the cards can be told.
    assert np.concatenate(whole).mean() > 0.4


def test_cards_with_columns_are_learned_from_clicks_on_them() -> None:
    log = sample_log(requests=900, users=60)
    clicked = log.rows["clicked"].to_numpy(zero_copy_only=False) & log.rows["on_card"].to_numpy(
        zero_copy_only=False
    )
    rows = log.rows.drop_columns(["dwell", "clicked"]).append_column("clicked", pa.array(clicked))
    train, valid, test = from_frame(rows, COLUMNS, log.items).split()
    recommender = Recommender(CONFIG).fit(train, valid, show=False)
    assert isinstance(Models.of(recommender.fitted).value, CardValue)
    assert recommender.fitted.sizes.shown == "card"
    assert any(told["event"] == "calibrated" and told["auc"] > 0.55 for told in recommender.history)
    assert recommender.evaluate(test)["valid"] == 1.0


def test_of_ids_and_features_of_cards_alone_it_is_the_pair_value(tmp_path: Path) -> None:
    from card_logs import random_log

    train, valid, _ = random_log(tmp_path / "log", 80, features=3).split("random")
    config = replace(CONFIG, pair_value=replace(CONFIG.pair_value, epochs=1))
    mine = Recommender(config).fit(train, valid, show=False)
    plain = Recommender(replace(config, model="pair_value")).fit(train, valid, show=False)
    found, wanted = Models.of(mine.fitted).value, Models.of(plain.fitted).value
    assert isinstance(found, PairValue)
    assert isinstance(wanted, PairValue)
    weights = wanted.state_dict()
    assert all(tensor.equal(weights[name]) for name, tensor in found.state_dict().items())


def test_items_that_come_and_go_have_no_terms_of_their_own() -> None:
    train, valid, _ = lists().split()
    vocabulary = train.vocabulary()
    assert card_task.recurring(valid, vocabulary) == (True, True)
    few = train.take(slice(0, 5)).vocabulary()
    assert card_task.recurring(valid, few)[0] is False
    assert card_task.recurring(None, few) == (True, True)
    assert input_sizes(few, train, valid).items_recur is False


def test_lists_without_a_click_are_left_out_and_small_logs_read_in_small_batches() -> None:
    train, _, _ = lists().split()
    view = card_task.with_signal(train, "list")
    assert 0 < len(view) <= len(train)
    for batch in view.batches(view.vocabulary(columns=False), 256):
        assert batch.clicks is not None
        assert (batch.clicks.sum(1) > 0).all()
    assert card_task.batch_size_for(replace(SMALL, batch_size=128, epochs=10), 470) == 8
    assert card_task.batch_size_for(replace(SMALL, batch_size=128, epochs=10), 100_000) == 128


@pytest.mark.parametrize("shown", ["list", "session"])
def test_stopped_and_resumed_it_ends_with_the_same_weights(shown: str, tmp_path: Path) -> None:
    train, valid, _ = lists().split() if shown == "list" else bundles(60).split("random")
    config = Config.from_dict({"card_value": {"epochs": 1}}, base=CONFIG)
    whole = Recommender(config).fit(train, valid, show=False)
    first = Recommender(config).fit(train, valid, folder=tmp_path / "run", show=False)
    again = Recommender(config).fit(train, valid, folder=tmp_path / "run", resume=True, show=False)
    for other in (first, again):
        mine, theirs = Models.of(whole.fitted).value, Models.of(other.fitted).value
        assert mine is not None
        assert theirs is not None
        for tensor, wanted in zip(theirs.state_dict().values(), mine.state_dict().values(), strict=True):
            assert torch.equal(tensor, wanted)


def values_of(num: int, num_candidates: int, seed: int = 0) -> Values:
    draw = torch.Generator().manual_seed(seed)
    pair = torch.randn(num, num_candidates, num_candidates, generator=draw).triu(1)
    node = torch.randn(num, num_candidates, generator=draw)
    return Values(torch.zeros(num), node, pair + pair.transpose(1, 2))


def worth(values: Values, b: int, card: tuple[int, ...]) -> float:
    pairs = sum(values.pair[b, i, j].item() for i, j in itertools.combinations(card, 2))
    return sum(values.node[b, i].item() for i in card) + pairs


def test_the_loss_of_a_list_is_the_clicked_items_share_of_the_softmax() -> None:
    node = torch.tensor([[1.0, 2.0, 5.0, 99.0]]).log()
    present = torch.tensor([[True, True, True, False]])
    one = torch.tensor([[0.0, 1.0, 0.0, 0.0]])
    assert math.isclose(list_loss(node, present, one).item(), -math.log(2 / 8), rel_tol=1e-6)
    two = torch.tensor([[0.0, 3.0, 1.0, 0.0]])
    wanted = -(0.75 * math.log(2 / 8) + 0.25 * math.log(5 / 8))
    assert math.isclose(list_loss(node, present, two).item(), wanted, rel_tol=1e-6)
    assert list_loss(node, present, torch.zeros(1, 4)).item() == 0


def test_a_known_reward_stands_in_for_clicks_and_never_counts_below_nothing() -> None:
    clicks = torch.tensor([[1.0, 0.0, 2.0, 1.0, 1.0]])
    reward = torch.tensor([[5.0, -3.0, math.nan, 0.0, 7.0]])
    batch = complete_batch(1, 5, 2, clicks=clicks, reward=reward)
    present = torch.tensor([[True, True, True, True, False]])
    assert list_weights(replace(batch, present=present)).tolist() == [[5.0, 0.0, 2.0, 0.0, 0.0]]
    assert list_weights(replace(batch, reward=None)).equal(clicks)


def test_the_loss_of_a_chosen_card_is_its_share_among_all_cards_of_its_size() -> None:
    present = torch.tensor([[True] * 6, [True] * 5 + [False]])
    card = torch.tensor([[1, 4, 5], [0, 3, -1]])
    batch, values = complete_batch(2, 6, [3, 2], present=present, card=card), values_of(2, 6)
    found = subset_loss(values, rivals_of(batch, values, torch.Generator()))
    for b, (n, chosen) in enumerate([(6, (1, 4, 5)), (5, (0, 3))]):
        every = [math.exp(worth(values, b, c)) for c in itertools.combinations(range(n), len(chosen))]
        wanted = -math.log(math.exp(worth(values, b, chosen)) / sum(every))
        assert math.isclose(found[b].item(), wanted, rel_tol=1e-5)


def test_among_many_cards_the_best_wrong_ones_and_all_swaps_are_compared() -> None:
    card = torch.tensor([[0, 1, 2, 3]])
    batch, values = complete_batch(1, 30, 4, card=card), values_of(1, 30)
    rivals: Rivals = rivals_of(batch, values, torch.Generator().manual_seed(0))
    rows = {tuple(row.nonzero().flatten().tolist()) for row in rivals.rows[0][rivals.real[0]]}
    assert rivals.rows[0, 0].nonzero().flatten().tolist() == card[0].tolist()
    assert {tuple(sorted(c.tolist())) for c in best_few(batch, values.node, values.pair, HARD)[0]} <= rows
    assert {(0, 1, 2, new) for new in range(4, 30)} <= rows
    assert all(len(row) == 4 for row in rows)
    assert len(rivals.rows[0]) > 4 * 26 + 32 + 200
    assert rivals.rows[0].eq(rivals.rows[0, 0]).all(1).sum() == 1


def test_hard_cards_are_the_best_under_the_value() -> None:
    values = values_of(1, 9)
    found = best_few(complete_batch(1, 9, 3), values.node, values.pair, HARD)[0]
    every = sorted((worth(values, 0, c) for c in itertools.combinations(range(9), 3)), reverse=True)
    np.testing.assert_allclose([worth(values, 0, tuple(c)) for c in found], every[: len(found)], rtol=1e-5)


def test_grades_alone_teach_lists_that_nobody_clicked() -> None:
    """A set of judged pages: training said that nothing was clicked, so there was nothing to learn."""
    rng = np.random.default_rng(0)
    request, number = np.repeat(np.arange(150), 8), rng.normal(size=1200).astype(np.float32)
    log = pa.table({"qid": request, "docid": rng.permutation(1200), "f0": number, "f1": rng.normal(size=1200),
                    "grade": np.digitize(number, [0.5, 1.0, 1.8])})  # fmt: skip
    train, valid, test = from_frame(log).split(seed=0)
    assert train.signal.names == ("rewards",)
    recommender = Recommender(CONFIG).fit(train, valid, show=False)
    found = recommender.evaluate(test)
    assert found["rewards"] > 0.7  # half of them by chance
    assert np.isnan(found["precision"])
