"""Kinds begin at the middles of groups of alike items."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Generator

from card_logs import random_log
from exactk.learning.phases import input_sizes
from exactk.learning.tasks import SHARPNESS, Data, k_means, start_kinds
from exactk.models.pairvalue import PairMember, PairValue
from exactk.settings.config import PairValueConfig

CORNERS = np.array([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]])
AROUND = np.array([[-0.1, 0.0], [0.1, 0.0], [0.0, 0.3]])
GROUPED = (CORNERS[:, None] + AROUND).reshape(-1, 2)


def begun(data: Data, kinds: int = 3, inputs: Any = "features") -> tuple[PairValue, PairValue]:
    """A pair value whose kinds were started, and one as it was before."""
    config = PairValueConfig(inputs=inputs, embedding_size=4, kinds=kinds, members=2)
    sizes = input_sizes(data.vocabulary)
    now, then = (PairValue(config, sizes, Generator().manual_seed(1)) for _ in range(2))
    start_kinds(now, data)
    return now, then


def data_of(path: Path, features: int = 2, seed: int = 3) -> Data:
    train = random_log(path, features=features)
    return Data(train, None, train.vocabulary(), torch.device("cpu"), seed)


def weights(model: PairValue) -> list[np.ndarray]:
    return [member.kinds.weight.detach().numpy() for member in model.members]  # type: ignore[union-attr, operator]


def test_middles_are_the_means_of_groups_that_lie_apart() -> None:
    for seed in range(10):
        middles = k_means(GROUPED, 3, np.random.default_rng(seed))
        order = np.lexsort(middles.T[::-1])
        np.testing.assert_allclose(middles[order], [[0, 0.1], [0, 10.1], [10, 0.1]])


def test_alike_points_leave_no_middle_without_a_number() -> None:
    middles = k_means(np.zeros((5, 2)), 3, np.random.default_rng(0))
    assert middles.tolist() == [[0.0, 0.0]] * 3


@pytest.mark.parametrize("inputs", ["features", "both"])
def test_an_item_leans_to_the_middles_by_their_distance(tmp_path: Path, inputs: Any) -> None:
    model, _ = begun(data_of(tmp_path / "log"), inputs=inputs)
    for member, weight in zip(model.members, weights(model), strict=True):
        assert isinstance(member, PairMember)
        sharpness = SHARPNESS / 2
        middles = weight[:, -2:] / sharpness
        item = torch.randn(member.vectors.item_size)  # an id's embedding has no say
        logits = -sharpness / 2 * np.square(item[-2:].numpy() - middles).sum(1)
        wanted = np.exp(logits) / np.exp(logits).sum()
        np.testing.assert_allclose(member.kinds(item).softmax(-1).detach().numpy(), wanted, atol=1e-5)


def test_middles_are_those_of_the_items_that_train_offers(tmp_path: Path) -> None:
    data = data_of(tmp_path / "log")
    model, _ = begun(data)
    (batch,) = data.train.batches(data.vocabulary, len(data.train))
    assert batch.item_features is not None
    points = np.unique(batch.item_features[batch.present].astype(np.float64), axis=0)
    middles = weights(model)[0] / (SHARPNESS / 2)
    nearest = np.square(points[:, None] - middles).sum(-1).argmin(1)
    for kind in range(3):
        np.testing.assert_allclose(middles[kind], points[nearest == kind].mean(0), atol=1e-5)


def test_the_draw_is_by_the_seed_and_the_member(tmp_path: Path) -> None:
    data, other = data_of(tmp_path / "log"), data_of(tmp_path / "other", seed=4)
    first, again, changed = (weights(begun(each)[0]) for each in (data, data, other))
    assert (first[0] == again[0]).all()
    assert (first[0] != first[1]).any()
    assert (first[0] != changed[0]).any()


@pytest.mark.parametrize(("features", "kinds"), [(0, 3), (2, 500)])
def test_without_features_or_with_few_items_nothing_changes(
    tmp_path: Path, features: int, kinds: int
) -> None:
    now, then = begun(data_of(tmp_path / "log", features), kinds, "ids" if not features else "features")
    for mine, before in zip(now.parameters(), then.parameters(), strict=True):
        assert torch.equal(mine, before)
