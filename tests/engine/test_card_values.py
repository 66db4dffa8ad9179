"""What the engine says of cards, and the weights it asks for, held against the networks that learn them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Generator

from exactk.engine.decide import card_value_of
from exactk.engine.shapes import shapes_of
from exactk.errors import InputError
from exactk.learning.phases import Models
from exactk.models.reward import reward_of
from exactk.settings.config import Config, InputSizes
from exactk.settings.presets import PRESETS, preset
from exactk.tensors import TensorBatch, arrays_of
from small_batches import batch_of, random_graphs

SIZES = InputSizes(num_users=9, num_items=40, user_feature_size=3, item_feature_size=5)
IDS = InputSizes(num_users=9, num_items=40)
K = 3


def requests() -> TensorBatch:
    random = Generator().manual_seed(0)
    batch = batch_of(random_graphs(6, 9, 0.9, 1), K)
    return replace(
        batch,
        user_features=torch.randn(6, 3, generator=random),
        item_features=torch.randn(6, 9, 5, generator=random),
    )


def cards(shorter: bool) -> torch.Tensor:
    """Four for each request; with `shorter` the last of each has a place left empty."""
    found = torch.rand(6, 4, 9, generator=Generator().manual_seed(1)).argsort(-1)[..., :K]
    if shorter:
        found[:, -1, -1] = -1
    return found


@pytest.mark.parametrize("inputs", ["ids", "features", "both"])
@pytest.mark.parametrize("kind", ["pnn", "set", "pair", "triples"])
def test_logits_of_cards_are_the_networks_own(kind: str, inputs: str) -> None:
    section = "pair_value" if kind in ("pair", "triples") else "reward"
    reward = "pair" if kind == "triples" else kind
    config = Config().with_overrides([f"reward.kind={reward}", f"{section}.inputs={inputs}"])
    config = config.with_overrides(
        [f"{section}.members=2", f"pair_value.triples={kind == 'triples'}".lower()]
    )
    network = reward_of(config, SIZES, K, Generator().manual_seed(2)).eval()
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            parameter.mul_(3).add_(0.01)
            if name.endswith("sharing.weight"):
                parameter.normal_(generator=Generator().manual_seed(3))
    batch, tried = requests(), cards(shorter=kind != "pnn")
    with torch.no_grad():
        wanted = network(batch, tried)
    found = card_value_of(arrays_of(network), config, SIZES, K).logits(batch.arrays(), tried.numpy())
    np.testing.assert_allclose(found, wanted.numpy(), rtol=2e-4, atol=2e-4)
    assert np.ptp(found) > 0.01


def test_the_papers_form_judges_cards_of_its_one_size() -> None:
    config = Config()
    network = reward_of(config, SIZES, K, Generator().manual_seed(2)).eval()
    value = card_value_of(arrays_of(network), config, SIZES, K)
    with pytest.raises(InputError, match="exactly 3 items"):
        value.logits(requests().arrays(), cards(shorter=True).numpy())


@pytest.mark.parametrize("sizes", [IDS, SIZES], ids=["ids", "features"])
@pytest.mark.parametrize("name", [*PRESETS, "set", "triples"])
def test_every_preset_has_the_weights_its_networks_have(name: str, sizes: InputSizes) -> None:
    changed = {"set": ["reward.kind=set"], "triples": ["reward.kind=pair", "pair_value.triples=true"]}
    config = preset("paper" if name in changed else name).with_overrides(changed.get(name, []))
    models = Models.untrained(config, sizes, K)
    shapes = shapes_of(config, sizes, K)
    held = {kind: weights for kind, weights in models.weights._asdict().items() if weights is not None}
    assert {
        kind: {key: array.shape for key, array in weights.items()} for kind, weights in held.items()
    } == shapes
