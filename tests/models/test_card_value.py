"""GAttN with an exact decoder: what it reads, what it must not depend on, and what its numbers mean."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from column_batches import BASE, CONFIG, SIZES, N, all_terms, batch_with_columns
from exactk.engine.card_values import SummedValue
from exactk.engine.decide import card_value_of
from exactk.engine.shapes import shapes_of
from exactk.errors import InputError
from exactk.models.card_value import CardValue, Dropout
from exactk.settings.config import Config, ShownAs
from exactk.tensors import TensorBatch, arrays_of

EVERY: list[ShownAs] = ["card", "list", "session"]


def permuted(batch: TensorBatch, order: torch.Tensor) -> TensorBatch:
    def turned(name: str, tensor: torch.Tensor) -> torch.Tensor:
        if name in (
            "user",
            "card_size",
            "context_numbers",
            "context_categories",
            "user_categories",
            "cap",
            "group",
        ):
            return tensor
        return tensor[:, order][:, :, order] if name in ("graph", "pair_features") else tensor[:, order]

    changed: dict[str, Any] = {name: turned(name, tensor) for name, tensor in batch.named().items()}
    return replace(batch, **changed)


@pytest.mark.parametrize("shown", EVERY)
@torch.no_grad()
def test_the_order_of_candidates_changes_nothing_but_their_places(shown: ShownAs) -> None:
    model, batch = all_terms(shown), batch_with_columns()
    order = torch.randperm(N, generator=torch.Generator().manual_seed(2))
    plain, turned = model.values(batch), model.values(permuted(batch, order))
    torch.testing.assert_close(turned.node, plain.node[:, order])
    torch.testing.assert_close(turned.pair, plain.pair[:, order][:, :, order])


@pytest.mark.parametrize("shown", EVERY)
@torch.no_grad()
def test_a_batch_of_one_equals_the_batch_and_padding_changes_nothing(shown: ShownAs) -> None:
    model, batch = all_terms(shown), batch_with_columns()
    together = model.values(batch)
    for b in range(3):
        alone = model.values(batch.rows(slice(b, b + 1)))
        torch.testing.assert_close(alone.node[0], together.node[b])
        torch.testing.assert_close(alone.pair[0], together.pair[b])
    assert batch.candidate_numbers is not None
    other = batch.candidate_numbers.clone()
    other[-1, -2:] = 1e6
    torch.testing.assert_close(model.values(replace(batch, candidate_numbers=other)).node, together.node)


@pytest.mark.parametrize("shown", EVERY)
@torch.no_grad()
def test_the_value_of_a_card_is_bias_plus_nodes_plus_pairs(shown: ShownAs) -> None:
    model, batch = all_terms(shown), batch_with_columns()
    cards = torch.tensor([[[0, 3, 1], [4, 2, -1]]]).repeat(3, 1, 1)
    values, logits = model.values(batch), model(batch, cards)
    for b, s in itertools.product(range(3), range(2)):
        card = [p for p in cards[b, s].tolist() if p >= 0]
        wanted = values.bias[b].item() + sum(values.node[b, i].item() for i in card)
        wanted += sum(values.pair[b, i, j].item() for i, j in itertools.combinations(card, 2))
        assert logits[b, s].item() == pytest.approx(wanted, abs=1e-4)
    one = model(batch, cards[:, :1])  # where cards alone were seen, only their items are read
    torch.testing.assert_close(one, logits[:, :1])


@pytest.mark.parametrize("shown", ["card", "session"])
@torch.no_grad()
def test_scaling_the_weights_of_pairs_scales_every_pair_and_nothing_else(shown: ShownAs) -> None:
    model, batch = all_terms(shown), batch_with_columns()
    before = model.values(batch)
    for weights in model.pair_weights():
        weights.mul_(0.25)
    after = model.values(batch)
    torch.testing.assert_close(after.pair, 0.25 * before.pair)
    assert before.pair.abs().max() > 0
    assert torch.equal(after.node, before.node)


@torch.no_grad()
def test_of_a_list_the_values_are_chances_and_pairs_say_nothing() -> None:
    values = all_terms("list").values(batch_with_columns())
    torch.testing.assert_close(values.node.sum(1), torch.ones(3))
    assert values.pair.eq(0).all()
    assert values.node[-1, -2:].eq(0).all()


@pytest.mark.parametrize("shown", EVERY)
@torch.no_grad()
def test_only_what_a_user_saw_sways_how_another_item_is_read(shown: ShownAs) -> None:
    """One candidate's category is another: a number read beside the list's mean would show anyway."""
    model, batch = all_terms(shown), batch_with_columns()
    assert batch.candidate_categories is not None
    other = batch.candidate_categories.clone()
    other[:, 0] = (other[:, 0] + 1) % 4
    before, after = (
        model.raw_values(batch)[0],
        model.raw_values(replace(batch, candidate_categories=other))[0],
    )
    apart = (before.node - after.node).abs()[:, 1:5]
    assert (apart.max() > 1e-4) == (shown != "card")


@torch.no_grad()
def test_the_place_of_an_item_is_read_where_the_list_was_seen_alone() -> None:
    batch = batch_with_columns()
    elsewhere = replace(batch, position=batch.position.flip(1))  # type: ignore[union-attr]
    for shown in EVERY:
        model = all_terms(shown)
        same = model.values(batch).node.equal(model.values(elsewhere).node)
        assert same == (shown != "list")


@pytest.mark.parametrize(
    "nothing",
    [
        {"candidate_numbers": 0, "scored": False, "placed": False},
        {"pair_features": 0},
        {"item_vector_size": 0, "item_categories": (), "candidate_categories": ()},
        {"context_numbers": 0, "context_categories": (), "user_categories": ()},
        {"items_recur": False},
    ],
    ids=["numbers", "pairs", "items", "context", "ids"],
)
@pytest.mark.parametrize("shown", EVERY)
@torch.no_grad()
def test_what_is_not_there_is_not_asked_for(shown: ShownAs, nothing: dict[str, Any]) -> None:
    model, batch = all_terms(shown, **nothing), batch_with_columns()
    gone: dict[str, Any] = {
        name: None for name, value in nothing.items() if not value and hasattr(batch, name)
    }
    values = model.values(replace(batch, **gone))
    assert values.node.isfinite().all()
    assert values.pair.isfinite().all()


@torch.no_grad()
def test_missing_columns_are_refused_by_name() -> None:
    with pytest.raises(InputError, match="reads 3 candidate numbers, the batch has none"):
        all_terms("list").values(replace(batch_with_columns(), candidate_numbers=None))
    fewer = batch_with_columns().pair_features[..., :1]  # type: ignore[index]
    with pytest.raises(InputError, match="reads 2 pair features, the batch has 1"):
        all_terms("list").values(replace(batch_with_columns(), pair_features=fewer))


@torch.no_grad()
def test_an_untrained_model_says_nothing_of_pairs() -> None:
    model = CardValue(CONFIG, BASE, replace(SIZES, shown="session", items_recur=False)).eval()
    assert model.values(batch_with_columns()).pair.eq(0).all()


@torch.no_grad()
def test_saved_weights_bring_the_scales_of_train_back() -> None:
    model, batch = all_terms("session"), batch_with_columns()
    again = CardValue(CONFIG, BASE, model.sizes).eval()
    again.load_state_dict(model.state_dict())
    assert again.values(batch).node.equal(model.values(batch).node)
    assert again.values(batch).pair.equal(model.values(batch).pair)


WITHOUT = {"scored": False, "placed": False, "pair_features": 0, "item_vector_size": 0}


@pytest.mark.parametrize("shown", EVERY)
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"items_recur": False},
        {"users_recur": False, "user_feature_size": 2, "item_feature_size": 30},
        {"item_feature_size": 2, "candidate_categories": (), "item_categories": (), "user_categories": ()},
        WITHOUT,
    ],
    ids=str,
)
@torch.no_grad()
def test_the_engines_values_are_the_networks_own(shown: ShownAs, changes: dict[str, Any]) -> None:
    sizes = replace(SIZES, shown=shown, **changes)
    extra: dict[str, Any] = {
        "user_features": torch.randn(3, sizes.user_feature_size, generator=torch.Generator().manual_seed(3)),
        "item_features": torch.randn(
            3, N, sizes.item_feature_size, generator=torch.Generator().manual_seed(4)
        ),
    }
    model = CardValue(CONFIG, BASE, sizes, torch.Generator().manual_seed(0))
    batch = replace(batch_with_columns(), **extra)
    many = replace(batch_with_columns(20, seed=9), item_features=extra["item_features"][:1].repeat(20, 1, 1))
    model.inputs.fit([replace(many, user_features=extra["user_features"][:1].repeat(20, 1))])
    draw = torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        parameter.add_(0.2 * torch.randn(parameter.shape, generator=draw))
    model.eval()
    wanted, config = model.values(batch), Config(model="card_value", card_value=CONFIG, pair_value=BASE)
    weights = arrays_of(model)
    held = {name: array.shape for name, array in weights.items()}
    assert held == shapes_of(config, sizes, 3)["value"]
    engine = card_value_of(weights, config, sizes, 3)
    assert isinstance(engine, SummedValue)
    for found, theirs in zip(engine.values(batch.arrays()), wanted, strict=True):
        np.testing.assert_allclose(found, theirs.numpy(), rtol=2e-4, atol=2e-4)
    cards = torch.tensor([[[0, 3, 1], [4, 2, -1]]]).repeat(3, 1, 1)
    np.testing.assert_allclose(
        engine.logits(batch.arrays(), cards.numpy()), model(batch, cards).numpy(), rtol=2e-4, atol=2e-4
    )


def test_dropout_leaves_out_its_share_and_keeps_the_mean() -> None:
    torch.manual_seed(0)
    layer, values = Dropout(0.15), torch.ones(400, 251, requires_grad=True)
    kept = layer(values)
    assert (kept == 0).float().mean().item() == pytest.approx(0.15, abs=0.005)
    torch.testing.assert_close(kept[kept > 0], torch.full_like(kept[kept > 0], 1 / 0.85), rtol=1e-4, atol=0)
    kept.sum().backward()
    assert values.grad is not None
    assert values.grad.equal(kept.detach())
    rows = kept.detach().mean(1)
    assert rows.std().item() == pytest.approx(
        (0.15 / 0.85 / 251) ** 0.5, rel=0.15
    )  # draws know nothing of each other


def test_dropout_is_repeated_by_its_seed_and_rests_in_use() -> None:
    layer, values = Dropout(0.5), torch.randn(7, 9)
    drawn = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        drawn.append(layer(values))
    assert drawn[0].equal(drawn[1])
    assert not drawn[0].equal(drawn[2])
    assert layer.eval()(values) is values
    assert Dropout(0.0)(values) is values
