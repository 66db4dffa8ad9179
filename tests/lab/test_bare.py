"""Phase 2 on a machine with torch and nothing else: packed here, trained there, unpacked here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from exactk.data.dataset import Dataset
from exactk.data.world import world
from exactk.errors import InputError
from exactk.learning.phases import Models
from exactk.learning.tasks import shown_the_best
from exactk.models.pairvalue import PairValue
from exactk.problem.graph import is_valid_card
from exactk.recommender import Recommender
from exactk.settings.presets import preset
from exactk.tensors import TensorBatch
from exactk_lab import bare

SMALL = [
    "policy.width=8",
    "policy.heads=2",
    "policy.encoder_layers=1",
    "training.batch_size=64",
    "training.epochs=2",
    "training.warm_start_epochs=1",
    "training.samples=3",
]
# What a bare machine lacks: importing any of it ends the process.
BARE = """
import runpy, sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"pyarrow", "numba", "cyclopts", "narwhals", "rapidfuzz", "ray", "pydantic"}:
            raise ImportError(name + " is not installed here")
sys.meta_path.insert(0, Missing())
sys.argv = ["bare", *sys.argv[1:]]
runpy.run_module("exactk_lab.bare", run_name="__main__")
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    place = tmp_path_factory.mktemp("bare") / "world"
    return world(users=50, items=200, impressions=400, n=12, k=3, path=place)


@pytest.fixture(scope="module")
def model(data: Dataset) -> Path:
    train, valid, _ = data.split()
    place = data.path.parent / "value"
    config = preset("tiny").with_overrides(["model=pair_value", "pair_value.epochs=1"])
    Recommender(config).fit(train, valid, show=False).save(place)
    return place


@pytest.fixture(scope="module")
def requests(data: Dataset, model: Path) -> Path:
    place = data.path.parent / "requests.npz"
    bare.pack(data.path, model, place, SMALL)
    return place


def test_packed_requests_come_out_as_they_went_in(data: Dataset, model: Path, requests: Path) -> None:
    fitted = Recommender.load(model).fitted
    value = Models.of(fitted).value
    assert isinstance(value, PairValue)
    batch = shown_the_best(value, TensorBatch.of(next(data.split()[0].batches(fitted.vocabulary, 64))))
    with np.load(requests) as file:
        found = bare.Packed(file, "train", 3, torch.device("cpu")).batch(torch.arange(64))
    for name in ("user", "item", "graph", "card_size", "card", "user_features", "item_features", "clicked"):
        assert torch.equal(getattr(found, name), getattr(batch, name)), name


def test_a_policy_trained_where_only_torch_is_becomes_a_model_like_any_other(
    data: Dataset, model: Path, requests: Path, tmp_path: Path
) -> None:
    trained, out = tmp_path / "policy.npz", tmp_path / "model"
    done = subprocess.run(
        [sys.executable, "-c", BARE, "train", str(requests), str(trained)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [figures["epoch"] for figures in told] == [1, 2]
    assert all(figures["reward"] <= figures["best_reward"] + 1e-6 for figures in told)
    bare.unpack(model, trained, out)
    recommender = Recommender.load(out)
    assert recommender.config.policy.width == 8
    batch = next(data.split()[2].batches(recommender.fitted.vocabulary, 40))
    cards = recommender.recommend_batch(batch)
    rules = batch.requests()
    assert all(is_valid_card(rules, b, cards[b]) for b in range(len(batch)))


def test_a_model_without_a_pair_value_cannot_teach(data: Dataset, tmp_path: Path) -> None:
    train, valid, _ = data.split()
    config = preset("tiny").with_overrides(["training.alpha=1", "training.epochs=1", "reward.epochs=1"])
    Recommender(config).fit(train, valid, show=False).save(tmp_path / "policy")
    with pytest.raises(InputError, match="no pair value"):
        bare.pack(data.path, tmp_path / "policy", tmp_path / "requests.npz", [])
