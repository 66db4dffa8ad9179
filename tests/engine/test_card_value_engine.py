"""A card value without torch is the card value."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from column_batches import BASE, CONFIG, all_terms, batch_with_columns
from exactk.engine.card_columns import ranks_within
from exactk.engine.card_network import CardNetwork
from exactk.errors import InputError
from exactk.models.card_value import CardValue
from exactk.models.columns import ranks_within as ranks_by_torch
from exactk.settings.config import CardValueConfig, Config, ShownAs

EVERY: list[ShownAs] = ["card", "list", "session"]


def engine_of(model: CardValue, config: CardValueConfig = CONFIG) -> CardNetwork:
    weights = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    return CardNetwork(weights, Config(card_value=config, pair_value=BASE), model.sizes)


def same(model: CardValue, batch: Any, config: CardValueConfig = CONFIG) -> None:
    with torch.no_grad():
        wanted = model.values(batch)
    found = engine_of(model, config).values(batch.arrays())
    for mine, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(mine, theirs.double().numpy(), rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("shown", EVERY)
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"items_recur": False},
        {"users_recur": False},
        {"candidate_numbers": 0, "scored": False, "placed": False},
        {"pair_features": 0},
        {"item_vector_size": 0, "item_categories": (), "candidate_categories": ()},
        {"user_feature_size": 2, "item_feature_size": 3},
        {"user_feature_size": 2, "item_feature_size": 30},
    ],
    ids=["all", "no ids", "no users", "no numbers", "no pairs", "no items", "features", "many features"],
)
def test_every_value_is_that_of_the_model(shown: ShownAs, changes: dict[str, Any]) -> None:
    same(all_terms(shown, **changes), batch_with_columns(5, **changes))


@pytest.mark.parametrize("shown", EVERY)
def test_one_request_is_read_as_in_a_batch(shown: ShownAs) -> None:
    model, batch = all_terms(shown), batch_with_columns()
    engine = engine_of(model)
    together = engine.values(batch.arrays())
    for b in range(len(batch)):
        alone = engine.values(batch.arrays().rows(slice(b, b + 1)))
        for mine, theirs in zip(alone, together, strict=True):
            np.testing.assert_allclose(mine[0], theirs[b], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("attention", ["always", "never"])
def test_attention_follows_its_setting(attention: Any) -> None:
    config = replace(CONFIG, attention=attention)
    same(all_terms("card", config), batch_with_columns(), config)


def test_ranks_are_those_of_the_model() -> None:
    values = np.random.default_rng(0).integers(0, 4, (9, 6, 3)).astype(np.float32)
    values[0, 1] = np.nan
    known = np.random.default_rng(1).random(values.shape) < 0.8
    known &= ~np.isnan(values)
    wanted = ranks_by_torch(torch.from_numpy(values), torch.from_numpy(known))
    np.testing.assert_allclose(ranks_within(values, known), wanted.numpy(), atol=1e-6)


def test_missing_columns_and_unknown_ids_are_refused_by_name() -> None:
    engine, batch = engine_of(all_terms("list")), batch_with_columns().arrays()
    with pytest.raises(InputError, match="reads 3 candidate numbers, the batch has none"):
        engine.values(replace(batch, candidate_numbers=None))
    with pytest.raises(InputError, match="no row for"):
        engine.values(replace(batch, item=batch.item + 1000))
