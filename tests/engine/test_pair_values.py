"""The compiled pair value: the model's own numbers, hence the same best cards."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from exactk.errors import InfeasibleError, InputError
from exactk.learning.phases import compiled_search
from exactk.models.pairvalue import PairValue
from exactk.settings.config import InputSizes, PairValueConfig
from exactk_lab.bench.engine.made import made_batch, ruled_batch
from small_batches import batch_of, cards_by, graph_of

SIZES = InputSizes(num_users=50, num_items=5000, user_feature_size=3, item_feature_size=5)


def made(seed: int = 0, **settings: Any) -> PairValue:
    model = PairValue(PairValueConfig(**settings), SIZES, torch.Generator().manual_seed(seed)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2).add_(0.01)
    return model


@pytest.mark.parametrize(
    "settings",
    [
        {"inputs": "ids"},
        {"inputs": "ids", "embedding_size": 7, "hidden_size": 20, "kinds": 5, "place_size": 3, "members": 3},
        {"inputs": "both", "members": 2},
        {"inputs": "features"},
    ],
    ids=str,
)
def test_values_and_cards_are_the_models_own(settings: dict[str, Any]) -> None:
    model = made(**settings)
    batch = ruled_batch(40, 21, 4, 0, SIZES)
    generator = torch.Generator().manual_seed(0)
    batch = replace(
        batch,
        user_features=torch.randn(len(batch), 3, generator=generator),
        item_features=torch.randn(len(batch), 21, 5, generator=generator),
    )
    fast = compiled_search(model)
    with torch.no_grad():
        wanted = model.values(batch)
    bias, node, pair = fast.value.values(batch.arrays())
    np.testing.assert_allclose(bias, wanted.bias.numpy(), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(node, wanted.node.numpy(), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(pair, wanted.pair.numpy(), rtol=1e-4, atol=1e-4)
    assert np.array_equal(pair, pair.transpose(0, 2, 1))
    assert torch.equal(cards_by(fast, batch), model.best(batch).cards)


def test_one_request_after_another_of_another_size_leaves_no_trace() -> None:
    fast = compiled_search(made(inputs="ids"))
    small, large = made_batch(1, 9, 3, 1.0, 0, SIZES), made_batch(2, 30, 3, 1.0, 1, SIZES)
    before = cards_by(fast, small)
    cards_by(fast, large)
    assert torch.equal(cards_by(fast, small), before)


def test_what_cannot_be_answered_is_named() -> None:
    fast = compiled_search(made(inputs="ids"))
    line = graph_of(3, [(0, 1), (1, 2)])[None]
    with pytest.raises(InfeasibleError, match="no valid card of 3"):
        cards_by(fast, batch_of(line, 3))
    with pytest.raises(InputError, match="request 0"):
        cards_by(fast, batch_of(line, 2, item=torch.tensor([[1, 2, 5000]])))
    with pytest.raises(InputError, match="features"):
        cards_by(compiled_search(made(inputs="both")), batch_of(line, 2))
