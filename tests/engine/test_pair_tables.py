"""Pair values by tables of a catalogue: the model's own numbers, at a fraction of the work."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from exactk.engine import pair_tables
from exactk.engine.pair_tables import PairTables
from exactk.engine.pair_values import CompiledPairValues
from exactk.models.pairvalue import PairValue
from exactk.settings.config import InputSizes, PairValueConfig
from exactk.tensors import TensorBatch, arrays_of

SIZES = InputSizes(num_users=9, num_items=31, user_feature_size=3, item_feature_size=5)


def made(**settings: Any) -> PairValue:
    model = PairValue(PairValueConfig(**settings), SIZES, torch.Generator().manual_seed(0)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2).add_(0.01)
    return model


def catalogue() -> tuple[torch.Tensor, torch.Tensor]:
    """Vocabulary indices and features of thirty items, by row."""
    return torch.arange(30, 0, -1), torch.randn(30, 5, generator=torch.Generator().manual_seed(1))


def tables_of(model: PairValue, item: torch.Tensor, features: torch.Tensor) -> PairTables | None:
    weights = arrays_of(model)
    values = CompiledPairValues(weights, model.config, SIZES)
    return PairTables.of(weights, model.config, values, item.numpy(), features.numpy())


@pytest.mark.parametrize("N", [1, 5, 16, 23])
@pytest.mark.parametrize(
    "settings",
    [
        {"inputs": "ids", "members": 2},
        {"inputs": "both", "embedding_size": 7, "hidden_size": 20, "kinds": 5, "place_size": 3, "members": 2},
        {"inputs": "features", "members": 2},
    ],
    ids=str,
)
def test_values_are_the_models_own(settings: dict[str, Any], N: int) -> None:
    model = made(**settings)
    item, features = catalogue()
    tables = tables_of(model, item, features)
    assert tables is not None
    random = np.random.default_rng(2)
    rows = np.stack([random.permutation(30)[:N] for _ in range(4)])
    user = np.array([0, 3, 8, 3])
    user_features = random.normal(size=(4, 3)).astype(np.float32)
    batch = TensorBatch(
        user=torch.from_numpy(user),
        item=item[rows],
        present=torch.ones(4, N, dtype=torch.bool),
        graph=torch.ones(4, N, N, dtype=torch.bool),
        card_size=torch.ones(4, dtype=torch.int64),
        pinned=torch.zeros(4, N, dtype=torch.bool),
        group=torch.zeros(4, 0, N, dtype=torch.int32),
        cap=torch.zeros(4, 0, dtype=torch.int32),
        user_features=torch.from_numpy(user_features),
        item_features=features[rows],
    )
    with torch.no_grad():
        wanted = model.values(batch)
    bias, node, pair = tables.values(user, user_features, rows)
    np.testing.assert_allclose(bias, wanted.bias.numpy(), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(node, wanted.node.numpy(), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(pair, wanted.pair.numpy(), rtol=1e-4, atol=1e-4)
    assert np.array_equal(pair, pair.transpose(0, 2, 1))


def test_a_catalogue_too_large_goes_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    item, features = catalogue()
    monkeypatch.setattr(pair_tables, "MOST_BYTES", 1000)
    assert tables_of(made(inputs="ids"), item, features) is None


def test_a_user_beyond_the_table_is_refused() -> None:
    tables = tables_of(made(inputs="ids", members=2), *catalogue())
    assert tables is not None
    with pytest.raises(IndexError, match="9"):
        tables.values(np.array([9]), None, np.array([[0, 1]]))
