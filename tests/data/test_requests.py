"""A request at serving time reads like the same request in the log."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from card_logs import random_log, write_log
from exactk.data import Dataset
from exactk.data.requests import Request
from exactk.data.requests.builder import RequestBuilder
from exactk.data.requests.catalogue import Catalogue
from exactk.errors import InputError
from exactk.problem.rules.constraints import AtMost, Constraints, Distinct


def test_requests_from_a_log_give_the_logs_own_batch(tmp_path: Path) -> None:
    rules = Constraints.of([Distinct("title"), AtMost("category", 2)])
    dataset = random_log(tmp_path / "log", num=20, features=3, constraint=rules.to_dict())
    vocabulary = dataset.vocabulary()
    logged = dataset.batch(vocabulary)
    asked = [
        Request(row["user_id"], tuple(row["candidates"]), len(row["card"]))
        for row in dataset.impressions().to_pylist()
    ]
    batch = RequestBuilder(vocabulary, Catalogue.of(dataset)).batch(asked, rules)
    for name in ("user", "item", "present", "graph", "card_size", "pinned", "cap"):
        assert np.array_equal(getattr(batch, name), getattr(logged, name)), name
    assert batch.item_features is not None
    assert logged.item_features is not None
    np.testing.assert_allclose(batch.item_features, logged.item_features)
    assert batch.user_features is not None
    assert logged.user_features is not None
    np.testing.assert_allclose(batch.user_features, logged.user_features)


def test_what_was_read_is_saved_byte_by_byte_as_it_was(tmp_path: Path) -> None:
    log = write_log(
        tmp_path / "log",
        [{"request_id": 0, "user_id": "u", "candidates": ["a", "b"], "card": ["a"], "clicked": False}],
        [
            {"item_id": name, "title": f"thing {name}", "features": [1.0, 2.0], "tags": ["x", "y"]}
            for name in "ab"
        ],
    )
    saved = []
    catalogue = Catalogue.of(Dataset.open(log))
    for name in ("first", "second", "third"):
        folder = tmp_path / name
        folder.mkdir()
        catalogue.save(folder)
        catalogue = Catalogue.load(folder)
        saved.append([(folder / file).read_bytes() for file in ("items.parquet", "users.parquet")])
    assert saved[0] == saved[1] == saved[2]


def test_a_saved_catalogue_serves_as_the_dataset_did(tmp_path: Path) -> None:
    dataset = random_log(tmp_path / "log", num=9, features=2)
    (tmp_path / "model").mkdir()
    Catalogue.of(dataset).save(tmp_path / "model")
    loaded = Catalogue.load(tmp_path / "model")
    assert loaded.items.equals(dataset.items)
    assert loaded.values("category")[loaded.item_rows(["i7", "nobody"])].tolist() == ["c2", None]
    assert loaded.values("colour")[[0]].tolist() == [None]


@pytest.fixture
def small(tmp_path: Path) -> Dataset:
    items = [{"item_id": i, "brand": i, "features": [x]} for i, x in (("a", 0.0), ("b", 2.0), ("c", 4.0))]
    row = {"request_id": 0, "user_id": "u", "candidates": ["a", "b", "c"], "card": ["a", "b"]}
    return Dataset.open(write_log(tmp_path / "log", [row], items, [{"user_id": "u", "features": [5.0]}]))


def test_what_a_request_sends_along_goes_before_the_catalogue(small: Dataset) -> None:
    sent = {"item_id": "b", "brand": "a", "features": [0.0]}
    request = Request.from_dict(
        {"user_id": "u", "candidates": ["a", sent, "c"], "k": 2, "user_features": [6]}
    )
    rules = Constraints.of([Distinct("brand")])
    batch = RequestBuilder(small.vocabulary(), Catalogue.of(small)).batch([request], rules)
    assert batch.graph[0].tolist() == [[False, False, True], [False, False, True], [True, True, False]]
    assert batch.item_features is not None
    assert batch.item_features[0, 0] == batch.item_features[0, 1] == pytest.approx(-1.2247449)
    assert batch.user_features.tolist() == [[1.0]]  # type: ignore[union-attr]


def test_strangers_get_index_zero_and_the_mean(small: Dataset) -> None:
    request = Request("nobody", ("a", "new"), 1)
    batch = RequestBuilder(small.vocabulary(), Catalogue.of(small)).batch([request])
    assert batch.user.tolist() == [0]
    assert batch.item.tolist() == [[1, 0]]
    assert batch.item_features[0, 1].tolist() == [0.0]  # type: ignore[index]
    assert batch.present.all()
    without = RequestBuilder(small.vocabulary()).batch([request])
    assert without.item.tolist() == [[1, 0]]


def test_pinned_and_excluded_items_are_heeded(small: Dataset) -> None:
    request = Request("u", ("a", "b", "c"), 2, include=("c",), exclude=("b",))
    batch = RequestBuilder(small.vocabulary()).batch([request])
    assert batch.pinned.tolist() == [[False, False, True]]
    assert batch.present.tolist() == [[True, False, True]]
    assert batch.item.tolist() == [[1, 2, 3]]


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ({"user_id": "u", "candidates": "abc", "k": 1}, "list of items"),
        ({"user_id": "u", "candidates": [{"id": 1}], "k": 1}, "candidate 0 has no item_id"),
        ({"user_id": "u", "candidates": ["a"], "k": True}, "k must be a whole number"),
        ({"user_id": "u", "candidates": ["a"]}, "k must be a whole number"),
        ({"user": "u", "candidates": ["a"], "k": 1}, "no field 'user'"),
        ({"user_id": "u", "candidates": ["a"], "k": 1, "include": True}, "include must be a list, got True"),
        ({"user_id": "u", "candidates": ["a"], "k": 1, "exclude": "a"}, "exclude must be a list, got 'a'"),
        ({"user_id": "u", "candidates": ["a"], "k": 1, "user_features": 1.5}, "user_features must be a list"),
        ({"user_id": 2**70, "candidates": ["a"], "k": 1}, "an id of 71 bits is beyond 64; send it as text"),
        ({"user_id": "u", "candidates": [2**63], "k": 1}, "an id of 64 bits is beyond 64; send it as text"),
    ],
)
def test_malformed_requests_are_refused_in_words(written: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Request.from_dict(written)


def test_wrong_requests_are_refused_in_words(small: Dataset) -> None:
    request, vocabulary = Request("u", ("a", "b", "c"), 2), small.vocabulary()
    for change, message in (
        ({"candidates": ("a", "a")}, "twice"),
        ({"candidates": (1, 2)}, "item ids of this model are text, got 1"),
        ({"k": 4}, "cannot be made of 3"),
        ({"include": ("z",)}, "not among the candidates"),
        ({"user_features": (1.0, 2.0)}, "user_features must be 1 numbers"),
        ({"attributes": {"b": {"features": ["x"]}}}, "features of item 'b' must be numbers"),
    ):
        with pytest.raises(InputError, match=message):
            RequestBuilder(vocabulary).batch([replace(request, **change)])
    with pytest.raises(InputError, match="no request"):
        RequestBuilder(vocabulary).batch([])
