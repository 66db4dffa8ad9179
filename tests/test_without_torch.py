"""What answers needs no torch: the cards of every preset, at every door, are those the networks themselves give."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from exactk import model_folder
from exactk.data.requests import Request
from exactk.engine.decide import ModelWeights
from exactk.learning.phases import Models
from exactk.settings.presets import PRESETS, preset
from exactk.tensors import TensorBatch, arrays_of
from test_recommender import FIXTURES

K, WITHOUT = 3, Path(__file__).with_name("answer_without_torch.py")


def asked() -> list[dict[str, Any]]:
    """Nine requests among the fixture's items, one user and one item in ten unknown to it."""
    random = np.random.default_rng(0)
    return [
        {
            "user_id": f"u{n}" if n % 3 else "stranger",
            "candidates": [f"i{i}" for i in random.choice(32, 12, replace=False)],
            "k": K,
        }
        for n in range(9)
    ]


def saved(name: str, folder: Path) -> Models:
    """A model folder of a preset: the fixture's log, weights as a training would leave them, drawn at random."""
    fitted = model_folder.load(FIXTURES / "model-1-policy")
    config = preset(name)
    models = Models.untrained(config, fitted.sizes, K)
    chance = torch.Generator().manual_seed(len(name))
    with torch.no_grad():
        for module in (models.policy, models.value):
            for parameter in () if module is None else module.eval().parameters():
                parameter.add_(0.3 * torch.randn(parameter.shape, generator=chance))
    weights = ModelWeights(*(None if m is None else arrays_of(m) for m in (models.policy, models.value)))
    model_folder.save(replace(fitted, config=config, weights=weights, card_size=K), folder)
    return models


def by_networks(models: Models, fitted: model_folder.TrainedModel) -> list[list[str]]:
    """The cards in torch."""
    requests = [Request(row["user_id"], tuple(row["candidates"]), K) for row in asked()]
    made = fitted.builder.batch(requests, fitted.constraints)
    batch = TensorBatch.of(made)
    if models.policy is not None:
        cards = models.policy.cards(batch)
    else:
        assert models.value is not None
        cards = models.value.best(batch).cards  # type: ignore[operator]
    return [
        [request.candidates[p] for p in sorted(card)]
        for request, card in zip(requests, cards.tolist(), strict=True)
    ]


@pytest.mark.slow
def test_every_preset_answers_without_torch_as_its_networks_do(tmp_path: Path) -> None:
    folders = {name: tmp_path / name for name in PRESETS}
    models = {name: saved(name, folder) for name, folder in folders.items()}
    done = subprocess.run(
        [sys.executable, str(WITHOUT), json.dumps(asked()), str(tmp_path), *map(str, folders.values())],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["solved"] == [0, 1]
    assert "pip install 'exactk[learn]'" in told["fit"]
    assert told["torch"] is False
    for name, folder in folders.items():
        wanted, found = by_networks(models[name], model_folder.load(folder)), told[name]
        assert found["recommended"] == wanted, name
        assert found["served"] == wanted, name
        assert found["scored"] == wanted, name
        assert found["studio"] == [200, 200], name
        assert all(np.isfinite(found["values"])), name
        assert found["reasons"] == [12 - K] * 9, name
