"""A world as a whole: what it promises about its log, its truth and its bytes."""

import gc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from exactk.data.dataset import Dataset
from exactk.data.table import Meta
from exactk.data.world import World, WorldRequests, world
from exactk.data.world.recipe import CHUNK, WorldConfig
from exactk.data.world.writing import ITEM_FEATURES, USER_FEATURES
from exactk.data.writer import DatasetWriter
from exactk.errors import ConfigError, DataError, InputError
from exactk.problem.exact import cliques
from exactk.problem.graph import Requests, is_valid_card
from exactk.problem.rules.constraints import Constraints, TitleDistance


@pytest.fixture(scope="module")
def log() -> Dataset:
    """The default world with a shorter log."""
    return world(impressions=9_000)


@pytest.fixture(scope="module")
def truth(log: Dataset) -> World:
    return World.of(log)


@pytest.fixture(scope="module")
def asked(log: Dataset, truth: World) -> WorldRequests:
    return truth.asked(log.split()[2], slice(0, 1_500))


def other(truth: World, **knobs: float) -> World:
    """The same people and goods under another click model."""
    return World(replace(truth.config, **knobs), bias=truth.bias)  # type: ignore[arg-type]


def test_5_to_15_percent_of_the_logged_cards_are_clicked(log: Dataset) -> None:
    assert 0.05 < log.clicked.mean() < 0.15
    assert log.clicked.mean() == pytest.approx(0.13, abs=0.015)


def test_the_best_single_items_are_worth_80_to_90_percent_of_the_optimum(
    truth: World, asked: WorldRequests
) -> None:
    best, singles = truth.optimum(*asked).value.mean(), truth.best_singles(*asked).value.mean()
    assert 0.55 < best < 0.75
    assert 0.80 < singles / best < 0.90


def test_without_interaction_the_best_single_items_are_optimal(truth: World, asked: WorldRequests) -> None:
    plain = other(truth, strength=0.0)
    best, singles = plain.optimum(*asked), plain.best_singles(*asked)
    assert singles.value == pytest.approx(best.value, abs=1e-12)


def test_a_theme_makes_the_best_pairs_fall_short(truth: World, asked: WorldRequests) -> None:
    themed = other(truth, theme=1.5)
    some = WorldRequests(asked.users[:300], asked.items[:300], Requests.of(asked.requests.graph[:300], 4))
    best = themed.optimum(*some)
    by_pairs = cliques.best(some.requests, *themed.node_pair(some.users, some.items)).card
    reached = themed.value(some.users, np.take_along_axis(some.items, by_pairs, 1))
    assert (best.value >= reached - 1e-12).all()
    assert reached.mean() / best.value.mean() < 0.97
    assert all(is_valid_card(some.requests, b, best.card[b]) for b in range(300))


def test_no_valid_card_beats_the_optimum(truth: World, asked: WorldRequests) -> None:
    rng = np.random.default_rng(0)
    best = truth.optimum(*asked)
    for b in range(0, 1_500, 100):
        cards = np.array([rng.choice(50, size=4, replace=False) for _ in range(400)])
        valid = [card for card in cards if is_valid_card(asked.requests, b, card)]
        values = truth.value(np.full(len(valid), asked.users[b]), asked.items[b][np.array(valid)])
        assert values.max() <= best.value[b]
        assert is_valid_card(asked.requests, b, best.card[b])


def test_a_value_is_the_sigmoid_of_bias_nodes_and_pairs(truth: World, asked: WorldRequests) -> None:
    node, pair = truth.node_pair(asked.users, asked.items)
    card = np.array([3, 11, 20, 41])
    logits = truth.bias + node[:, card].sum(1) + pair[:, card][:, :, card].sum((1, 2)) / 2
    assert truth.value(asked.users, asked.items[:, card]) == pytest.approx(1 / (1 + np.exp(-logits)))


def test_logged_cards_obey_the_recorded_graph_and_the_graph_is_the_rule_s(log: Dataset, truth: World) -> None:
    some = log.take(slice(0, 60))
    asked = truth.asked(some)
    index = log.folder.index
    cards = index.card[: 60 * 4].reshape(60, 4)
    assert all(is_valid_card(asked.requests, b, cards[b]) for b in range(60))
    by_rule = truth.asked(some.constrained(Constraints.of([TitleDistance(0.5)])))
    assert np.array_equal(asked.requests.graph, by_rule.requests.graph)
    assert np.array_equal(asked.items, by_rule.items)


def test_near_duplicates_bite_in_5_to_15_percent_of_the_pairs(asked: WorldRequests) -> None:
    forbidden = 1 - asked.requests.graph.mean() * 50 / 49
    assert 0.05 < forbidden < 0.15


def test_clicks_follow_the_true_value(log: Dataset, truth: World) -> None:
    asked = truth.asked(log)
    cards = log.folder.index.card.reshape(-1, 4).astype(np.int64)
    value = truth.value(asked.users, np.take_along_axis(asked.items, cards, 1))
    for low, high in (0, 0.05), (0.05, 0.2), (0.2, 0.5), (0.5, 1):
        inside = (value >= low) & (value < high)
        expected = value[inside].mean()
        spread = np.sqrt(expected * (1 - expected) / inside.sum())
        assert log.clicked[inside].mean() == pytest.approx(expected, abs=4 * spread)


def test_the_clicked_item_is_one_of_the_card_and_only_where_clicked(log: Dataset) -> None:
    rows = log.impressions(slice(0, 400)).to_pylist()
    for row in rows:
        assert (row["clicked_item"] is not None) == row["clicked"]
        assert row["clicked_item"] is None or row["clicked_item"] in row["card"]
        assert set(row["card"]) <= set(row["candidates"])
        assert len(set(row["candidates"])) == 50
        assert 0 < row["propensity"] < 1


def test_two_days_train_and_one_tests(log: Dataset) -> None:
    train, valid, test = log.split()
    assert (len(train), len(valid), len(test)) == (5_400, 600, 3_000)
    assert pa.types.is_timestamp(log.impressions(slice(0, 1))["timestamp"].type)
    moments = log.folder.index.timestamp
    day = (moments - moments[0] // 86_400_000_000 * 86_400_000_000) // 86_400_000_000
    assert (np.diff(moments) > 0).all()
    assert set(day[train.rows]) == {0, 1}
    assert set(day[test.rows]) == {2}
    assert set(day[valid.rows]) == {1}


def test_features_are_views_of_the_truth_and_not_the_truth(log: Dataset, truth: World) -> None:
    users, items = log.folder.index.user_features, log.folder.index.item_features
    assert users.shape == (2_000, 40)
    assert items.shape == (5_000, 52)

    def agreement(seen: np.ndarray, true: np.ndarray) -> float:
        return float(np.corrcoef(seen, true)[0, 1])

    def item(name: str) -> np.ndarray:
        return items[:, ITEM_FEATURES.index(name)]

    def user(name: str) -> np.ndarray:
        return users[:, USER_FEATURES.index(name)]

    goods, people = truth.goods, truth.people
    assert 0.98 < agreement(item("style_3"), goods.style[:, 3]) < 0.9999
    assert 0.98 < agreement(user("taste_14d_3"), people.taste[:, 3]) < 0.9999
    assert agreement(user("taste_1d_3"), people.taste[:, 3]) < agreement(
        user("taste_14d_3"), people.taste[:, 3]
    )
    assert 0.95 < agreement(item("rating"), goods.quality) < 0.9999
    assert (
        0.3
        < agreement(item("click_rate_1d"), goods.quality)
        < agreement(item("click_rate_14d"), goods.quality)
    )
    assert 0.95 < agreement(user("price_level_14d"), people.budget) < 0.9999
    assert 0.9 < agreement(user("outfit_rate"), people.coordination) < 0.9999
    shares = items[:, [f.startswith("share_") for f in ITEM_FEATURES]][:, :16]
    assert np.array_equal(shares.argmax(1), goods.category)
    assert (np.diff(users[:, [USER_FEATURES.index(f"page_views_{d}d") for d in (1, 7, 14)]]) >= 0).all()


def test_the_dataset_holds_no_truth(log: Dataset) -> None:
    assert set(log.items.column_names) == {
        "item_id",
        "title",
        "category",
        "brand",
        "theme",
        "price",
        "features",
    }
    assert set(log.users.column_names) == {"user_id", "features"}
    assert set(log.impressions(slice(0, 1)).column_names) == {
        "request_id", "user_id", "candidates", "card", "clicked", "clicked_item", "propensity", "timestamp",
        "split", "graph",
    }  # fmt: skip


def test_same_seed_same_bytes_whatever_the_number_of_workers(tmp_path: Path) -> None:
    config = WorldConfig(users=300, items=600, impressions=9_000, n=12)
    one = World(config).write(tmp_path / "one", workers=1)
    three = World(config).write(tmp_path / "three", workers=3)
    another = World(replace(config, seed=8)).write(tmp_path / "another")
    assert one.meta.checksums == three.meta.checksums
    assert one.meta.provenance == three.meta.provenance
    assert one.meta.checksums != another.meta.checksums


def test_chunks_of_items_have_families_of_their_own() -> None:
    goods = World(WorldConfig(items=CHUNK + 100)).goods
    assert (np.diff(goods.family) >= 0).all()
    assert (np.diff(goods.family) <= 1).all()
    assert goods.family[CHUNK] == goods.family[CHUNK - 1] + 1


def test_a_longer_log_begins_like_a_shorter_one(tmp_path: Path) -> None:
    short = World(WorldConfig(users=200, items=300, impressions=4_096, n=8)).write(tmp_path / "short")
    long = World(WorldConfig(users=200, items=300, impressions=6_000, n=8)).write(tmp_path / "long")
    columns = ["user_id", "candidates", "card", "clicked", "propensity"]
    assert long.impressions(slice(0, 4_096)).select(columns) == short.impressions().select(columns)


def test_a_world_of_hard_titles_still_shows_valid_cards(tmp_path: Path) -> None:
    dataset = world(
        users=100, items=300, impressions=200, n=10, k=4, min_distance=0.68, path=tmp_path / "hard"
    )
    asked = World.of(dataset).asked(dataset)
    cards = dataset.folder.index.card.reshape(-1, 4)
    assert asked.requests.graph.mean() < 0.75
    assert all(is_valid_card(asked.requests, b, cards[b]) for b in range(200))


def test_an_impossible_rule_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="min_distance=1.0 leaves no valid card"):
        world(users=50, items=100, impressions=10, n=8, min_distance=1.0, path=tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_without_a_path_the_folder_goes_with_the_dataset() -> None:
    dataset = world(users=50, items=100, impressions=50, n=6, k=2)
    path = dataset.path
    assert path.exists()
    del dataset
    gc.collect()
    assert not path.exists()


def test_only_a_world_s_dataset_has_a_truth(log: Dataset, tmp_path: Path) -> None:
    with DatasetWriter(tmp_path / "plain"):
        pass
    with pytest.raises(DataError, match="is not a simulated world"):
        World.of(Dataset.open(tmp_path / "plain"))
    old = dict(log.meta.provenance) | {"version": 0}
    with DatasetWriter(tmp_path / "old", Meta(provenance=old)):
        pass
    with pytest.raises(DataError, match="recipe 0"):
        World.of(Dataset.open(tmp_path / "old"))
    for damage in ({"config": 5}, {"config": {"users": "x"}}, {"bias": "x"}, {"bias": None}):
        with DatasetWriter(tmp_path / "damaged", Meta(provenance=dict(log.meta.provenance) | damage)):
            pass
        with pytest.raises(DataError, match=r"meta\.json is damaged: provenance"):
            World.of(Dataset.open(tmp_path / "damaged"))


def test_fewer_than_no_workers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="workers must be at least 1, got -1"):
        world(tmp_path / "log", workers=-1, users=3, items=24, impressions=2, k=2, n=12)


def test_unknown_ids_are_named(truth: World) -> None:
    with pytest.raises(InputError, match="no item 5000"):
        truth.value(np.array([0]), np.array([[1, 2, 3, 5_000]]))
    with pytest.raises(InputError, match="no user -1"):
        truth.value(np.array([-1]), np.array([[1, 2, 3, 4]]))


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"users": 0}, "users must be at least 1"),
        ({"n": 10, "k": 12}, "world.k must be at most world.n, got 12 and 10"),
        ({"items": 60}, "world.items must be at least twice world.n, got 60"),
        ({"strength": -1.0}, "world.strength must be at least 0 and at most 100, got -1.0"),
        ({"theme": float("inf")}, "world.theme must be a number, got inf"),
        ({"users": 10**14}, "users must be at least 1 and at most 1e"),
        ({"click_rate": 1.5}, "world.click_rate must be above 0 and below 1, got 1.5"),
        ({"min_distance": 2.0}, "world.min_distance must be at least 0 and at most 1, got 2.0"),
        ({"n": 100, "k": 20}, "at most 12"),
    ],
)
def test_impossible_settings_are_refused_by_name(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        WorldConfig(**wrong)


def test_a_config_survives_json_and_refuses_unknown_names() -> None:
    config = WorldConfig(users=3, theme=0.5)
    assert WorldConfig.from_dict(config.to_dict()) == config
    with pytest.raises(ConfigError, match="world.theme must be a number, got inf"):
        WorldConfig.from_dict({"theme": 10**400})
    with pytest.raises(ConfigError, match="unknown setting world.colour"):
        WorldConfig.from_dict({"colour": 1})
