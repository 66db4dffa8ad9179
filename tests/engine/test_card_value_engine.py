"""A card value without torch is the card value."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from column_batches import BASE, CONFIG, all_terms, batch_with_columns
from exactk.engine.card_value.values import CompiledCardValue
from exactk.errors import InputError
from exactk.models.card_value import CardValue
from exactk.settings.config import CardValueConfig, Config, ShownAs

EVERY: list[ShownAs] = ["card", "list", "session"]


def engine_of(model: CardValue, config: CardValueConfig = CONFIG) -> CompiledCardValue:
    weights = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    return CompiledCardValue(weights, Config(card_value=config, pair_value=BASE), model.sizes)


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


def test_missing_columns_and_unknown_ids_are_refused_by_name() -> None:
    engine, batch = engine_of(all_terms("list")), batch_with_columns().arrays()
    with pytest.raises(InputError, match="reads 3 candidate numbers, the batch has none"):
        engine.values(replace(batch, candidate_numbers=None))
    with pytest.raises(InputError, match="no row for"):
        engine.values(replace(batch, item=batch.item + 1000))


def test_codes_that_no_table_has_are_refused() -> None:
    engine, batch = engine_of(all_terms("list")), batch_with_columns().arrays()
    assert batch.item_categories is not None
    with pytest.raises(InputError, match="code of a category"):
        engine.values(replace(batch, item_categories=batch.item_categories + 5))


@pytest.mark.parametrize("shown", EVERY)
@pytest.mark.parametrize("size", [3, 16, 17, 33])
def test_any_number_of_candidates_is_read(shown: ShownAs, size: int) -> None:
    same(all_terms(shown), batch_with_columns(3, size))


@pytest.mark.parametrize(("width", "heads"), [(48, 6), (64, 8)])
def test_widths_of_several_registers_are_read_whole(width: int, heads: int) -> None:
    config = replace(CONFIG, width=width, heads=heads, feed_forward_size=2 * width)
    same(all_terms("list", config), batch_with_columns(2, 50), config)


def test_threads_find_what_one_finds() -> None:
    model, batch = all_terms("session"), batch_with_columns(64).arrays()
    weights = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    config = Config(card_value=CONFIG, pair_value=BASE)
    one, many = (CompiledCardValue(weights, config, model.sizes, n).values(batch) for n in (1, 3))
    for mine, theirs in zip(one, many, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_one_engine_reads_lists_of_changing_length() -> None:
    engine = engine_of(all_terms("list"))
    alone = {
        size: engine_of(all_terms("list")).values(batch_with_columns(2, size).arrays()) for size in (20, 7)
    }
    for size in (20, 7, 20):
        np.testing.assert_array_equal(
            engine.values(batch_with_columns(2, size).arrays()).node, alone[size].node
        )


def test_candidates_who_are_not_there_change_nothing() -> None:
    engine, batch = engine_of(all_terms("session")), batch_with_columns().arrays()
    assert batch.item_vectors is not None
    strange = batch.item_vectors.copy()
    strange[~batch.present] = np.nan
    for mine, theirs in zip(
        engine.values(replace(batch, item_vectors=strange)), engine.values(batch), strict=True
    ):
        np.testing.assert_array_equal(mine, theirs)


def test_a_log_of_numbers_alone_has_no_tables() -> None:
    changes: dict[str, Any] = {
        "item_categories": (), "candidate_categories": (), "context_categories": (), "user_categories": (),
    }  # fmt: skip
    same(all_terms("list", **changes), batch_with_columns(2, **changes))
