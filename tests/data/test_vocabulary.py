"""A vocabulary knows train and nothing else, and comes back from disk as it was."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from card_logs import random_impressions, random_log, write_log
from exactk.data import Dataset, Vocabulary
from exactk.data.columns.vocabulary import Scaling
from exactk.errors import DataError, InputError

ROWS = [
    {"request_id": 0, "user_id": "ann", "candidates": ["a", "b"], "card": ["a"], "split": "train"},
    {"request_id": 1, "user_id": "bob", "candidates": ["b", "c"], "card": ["c"], "split": "valid"},
    {"request_id": 2, "user_id": "cyd", "candidates": ["c", "d"], "card": ["d"], "split": "test"},
]
ITEMS = [{"item_id": i, "features": [x, 7.0]} for i, x in (("a", 1.0), ("b", 3.0), ("c", 100.0), ("d", -5.0))]
USERS = [{"user_id": u, "features": [x]} for u, x in (("ann", 2.0), ("bob", 9.0), ("cyd", 9.0))]


@pytest.fixture
def train_and_test(tmp_path: Path) -> tuple[Dataset, Dataset]:
    train, _, test = Dataset.open(write_log(tmp_path / "log", ROWS, ITEMS, USERS)).split()
    return train, test


def test_only_ids_of_train_have_an_index(train_and_test: tuple[Dataset, Dataset]) -> None:
    train, test = train_and_test
    vocabulary = train.vocabulary()
    assert (vocabulary.num_users, vocabulary.num_items) == (2, 3)  # ann; a, b; and the unknown
    assert train.batch(vocabulary).item.tolist() == [[1, 2]]
    assert test.batch(vocabulary).item.tolist() == [[0, 0]]
    assert test.batch(vocabulary).user.tolist() == [0]
    assert test.batch(vocabulary).present.all()


def test_features_are_standardised_on_train_only(train_and_test: tuple[Dataset, Dataset]) -> None:
    train, test = train_and_test
    vocabulary = train.vocabulary()
    # Items of train: 1 and 3, mean 2, deviation 1; the second feature never varies and is only centred.
    assert train.batch(vocabulary).item_features.tolist() == [[[-1, 0], [1, 0]]]  # type: ignore[union-attr]
    assert test.batch(vocabulary).item_features.tolist() == [[[98, 0], [-7, 0]]]  # type: ignore[union-attr]
    assert test.batch(vocabulary).user_features.tolist() == [[7]]  # type: ignore[union-attr]


def test_a_folder_without_features_gives_none(tmp_path: Path) -> None:
    dataset = Dataset.open(write_log(tmp_path / "log", ROWS))
    vocabulary = dataset.vocabulary()
    assert (vocabulary.user_feature_size, vocabulary.item_feature_size) == (0, 0)
    batch = dataset.batch(vocabulary)
    assert batch.item_features is None
    assert batch.user_features is None


def test_a_vocabulary_does_not_fit_a_folder_with_other_features(
    tmp_path: Path, train_and_test: tuple[Dataset, Dataset]
) -> None:
    other = Dataset.open(write_log(tmp_path / "other", ROWS))
    with pytest.raises(DataError, match="1 user features, this folder has 0"):
        other.batch(train_and_test[0].vocabulary())


@given(
    seed=st.integers(0, 1000),
    rows=st.integers(1, 60),
    scale=st.sampled_from([1e-3, 1.0, 1e4]),
    centre=st.sampled_from([0.0, -3.0, 1e5]),
)
@settings(deadline=None)
def test_scaling_agrees_with_numpys_mean_and_deviation(
    seed: int, rows: int, scale: float, centre: float
) -> None:
    rng = np.random.default_rng(seed)
    features = rng.normal(centre, scale, (rows, 3)).astype(np.float32)
    features[rng.random((rows, 3)) < 0.1] = np.nan
    chosen = np.flatnonzero(rng.random(rows) < 0.7)
    fitted = Scaling.fitted(features, chosen)
    for f in range(3):
        known = features[chosen, f][np.isfinite(features[chosen, f])].astype(np.float64)
        if len(known) > 1 and known.std() > 1e-3 * abs(known.mean()):
            np.testing.assert_allclose(fitted.mean[f], known.mean(), rtol=1e-5, atol=1e-5 * scale)
            np.testing.assert_allclose(1 / fitted.inverse_deviation[f], known.std(), rtol=1e-3)


def test_unknown_features_become_the_mean() -> None:
    scaling = Scaling(np.array([2.0, 0.0], np.float32), np.array([0.5, 1.0], np.float32))
    assert scaling(np.array([[4.0, np.nan]], np.float32)).tolist() == [[1.0, 0.0]]


@pytest.mark.parametrize("features", [0, 4])
def test_save_and_load_give_the_same_batches(tmp_path: Path, features: int) -> None:
    dataset = random_log(tmp_path / "log", features=features)
    vocabulary = dataset.vocabulary()
    (tmp_path / "model").mkdir()
    vocabulary.save(tmp_path / "model")
    loaded = Vocabulary.load(tmp_path / "model")
    assert loaded.user_ids.equals(vocabulary.user_ids)
    assert loaded.item_ids.equals(vocabulary.item_ids)
    before, after = (dataset.batch(v) for v in (vocabulary, loaded))
    assert np.array_equal(before.item, after.item)
    if features:
        assert before.item_features is not None
        assert after.item_features is not None
        assert np.array_equal(before.item_features, after.item_features)


def test_a_damaged_vocabulary_does_not_load(tmp_path: Path) -> None:
    random_log(tmp_path / "log").vocabulary().save(tmp_path)
    described = json.loads((tmp_path / "vocabulary.json").read_text())
    (tmp_path / "vocabulary.json").write_text(json.dumps(described | {"num_items": 3}))
    with pytest.raises(DataError, match="another vocabulary"):
        Vocabulary.load(tmp_path)
    (tmp_path / "vocabulary-items.parquet").unlink()
    with pytest.raises(DataError, match="missing or damaged"):
        Vocabulary.load(tmp_path)


def test_single_lookups_agree_with_columns_and_refuse_the_wrong_type(tmp_path: Path) -> None:
    dataset = Dataset.open(write_log(tmp_path / "log", random_impressions(30)))
    vocabulary = dataset.vocabulary()
    wanted = ["i3", "i39", "stranger", "i0"]
    assert vocabulary.item_index(wanted) == vocabulary.index_items(pa.array(wanted)).tolist()
    assert vocabulary.user_index(np.int64(3)) == vocabulary.index_users(pa.array([3]))[0] > 0
    assert vocabulary.user_index(None) == 0
    with pytest.raises(InputError, match="user ids of this model are whole numbers, got '3'"):
        vocabulary.user_index("3")


def test_an_endless_number_is_missing_wherever_it_stands() -> None:
    features = np.array([[np.inf], [1.0], [3.0], [np.nan]], np.float32)
    for order in ([0, 1, 2, 3], [1, 0, 2, 3], [3, 2, 1, 0]):
        scaling = Scaling.fitted(features[order], np.arange(4))
        assert (scaling.mean.tolist(), scaling.inverse_deviation.tolist()) == ([2.0], [1.0])
        assert scaling(features).ravel().tolist() == [0.0, -1.0, 1.0, 0.0]
