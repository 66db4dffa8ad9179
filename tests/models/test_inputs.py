"""Vectors of items and users, and the input layer."""

from __future__ import annotations

import pytest
import torch

from exactk.errors import ConfigError, InputError
from exactk.models.inputs import CommonVectors, InputLayer, Vectors, initialise
from exactk.settings.config import InputSizes
from small_batches import complete_batch

SIZES = InputSizes(num_users=6, num_items=31, user_feature_size=2, item_feature_size=3)


def with_features(num: int = 2, num_nodes: int = 4) -> object:
    generator = torch.Generator().manual_seed(0)
    return complete_batch(
        num,
        num_nodes,
        2,
        user_features=torch.randn(num, 2, generator=generator),
        item_features=torch.randn(num, num_nodes, 3, generator=generator),
    )


def test_the_input_layer_by_hand() -> None:
    # W_I = [1 -1 | 2], b = 0.5, x_s = (3, 1), x_u = 2: 3 - 1 + 4 + 0.5 = 6.5; and with x_u = -2 it is below zero.
    layer = InputLayer(Vectors("features", InputSizes(1, 1, 1, 2), 4), width=1)
    with torch.no_grad():
        layer.item_weight.weight.copy_(torch.tensor([[1.0, -1.0]]))
        layer.item_weight.bias.fill_(0.5)
        layer.user_weight.weight.fill_(2.0)
    batch = complete_batch(
        2,
        1,
        1,
        user_features=torch.tensor([[2.0], [-2.0]]),
        item_features=torch.tensor([[[3.0, 1.0]], [[3.0, 1.0]]]),
    )
    assert layer(batch).flatten().tolist() == [6.5, 0.0]


def test_the_input_layer_is_one_matrix_on_the_joined_vectors() -> None:
    batch = with_features()
    layer = InputLayer(Vectors("both", SIZES, 5), width=7)
    user, item = layer.vectors.user(batch), layer.vectors.item(batch)  # type: ignore[arg-type]
    joined = torch.cat([item, user.unsqueeze(1).expand(-1, 4, -1)], -1)
    whole = torch.cat([layer.item_weight.weight, layer.user_weight.weight], 1)  # W_I
    expected = (joined @ whole.T + layer.item_weight.bias).relu()
    assert torch.allclose(layer(batch), expected, atol=1e-6)


def test_vectors_are_ids_then_features() -> None:
    batch = with_features()
    both, ids, features = (Vectors(kind, SIZES, 5) for kind in ("both", "ids", "features"))
    assert (both.item_size, both.user_size) == (8, 7)
    assert (ids.item_size, ids.user_size) == (5, 5)
    assert (features.item_size, features.user_size) == (3, 2)
    assert both.items is not None
    made = both.item(batch)  # type: ignore[arg-type]
    assert made[..., :5].equal(both.items(batch.item))  # type: ignore[attr-defined]
    assert made[..., 5:].equal(batch.item_features)  # type: ignore[attr-defined]
    assert features.user(batch).equal(batch.user_features)  # type: ignore[arg-type, attr-defined]


def test_some_positions_have_the_vectors_they_have_among_all() -> None:
    batch = with_features()
    vectors = Vectors("both", SIZES, 5)
    at = torch.tensor([[3, 0], [1, 1]])
    some, every = vectors.item(batch, at), vectors.item(batch)  # type: ignore[arg-type]
    assert some.equal(every[torch.arange(2).unsqueeze(1), at])


def test_items_on_cards_do_not_depend_on_the_way_they_are_looked_up() -> None:
    batch = with_features(2, 4)
    vectors = CommonVectors("both", SIZES, 5)
    few = torch.tensor([[[3, 1]], [[0, 2]]])
    many = few.expand(-1, 3, -1)
    assert torch.allclose(vectors.on_cards(batch, few), vectors.on_cards(batch, many)[:, :1])  # type: ignore[arg-type]


def test_common_vectors_of_ids_are_the_embeddings_themselves() -> None:
    batch = with_features()
    vectors = CommonVectors("ids", SIZES, 5)
    assert vectors.item(batch).equal(vectors.vectors.item(batch))  # type: ignore[arg-type]
    assert not list(vectors.map_item.parameters())


def test_the_unknown_start_in_the_middle_and_are_no_error() -> None:
    vectors = Vectors("ids", SIZES, 5)
    initialise(vectors, torch.Generator().manual_seed(0))
    batch = complete_batch(1, 2, 1, user=torch.tensor([0]), item=torch.tensor([[0, 30]]))
    assert vectors.user(batch).eq(0).all()
    assert vectors.item(batch)[0, 0].eq(0).all()
    assert vectors.item(batch)[0, 1].ne(0).all()


def test_missing_features_are_named() -> None:
    with pytest.raises(ConfigError, match="needs features"):
        Vectors("features", InputSizes(3, 3, 2, 0), 4)
    with pytest.raises(InputError, match="reads 3 item features, the batch has none"):
        Vectors("both", SIZES, 4).item(complete_batch(1, 3, 1))
    wrong = complete_batch(1, 3, 1, user_features=torch.zeros(1, 5))
    with pytest.raises(InputError, match="reads 2 user features, the batch has 5"):
        Vectors("both", SIZES, 4).user(wrong)


def test_starting_weights_come_from_the_generator_alone() -> None:
    first, second = (InputLayer(Vectors("both", SIZES, 5), 7) for _ in range(2))
    for layer in (first, second):
        torch.rand(3)  # moves the global generator
        initialise(layer, torch.Generator().manual_seed(4))
    for a, b in zip(first.parameters(), second.parameters(), strict=True):
        assert a.equal(b)


def test_left_to_itself_the_input_is_features_where_both_sides_have_them_else_all_there_is() -> None:
    both_sides = InputSizes(num_users=3, num_items=4, user_feature_size=2, item_feature_size=5)
    assert Vectors("auto", both_sides, 7).users is None
    assert (Vectors("auto", both_sides, 7).user_size, Vectors("auto", both_sides, 7).item_size) == (2, 5)
    items_only = InputSizes(num_users=3, num_items=4, item_feature_size=5)
    assert (Vectors("auto", items_only, 7).user_size, Vectors("auto", items_only, 7).item_size) == (7, 12)
