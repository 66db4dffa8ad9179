"""Where the kinds of a pair value begin: at the middles of groups of items whose features are alike.

Knows features and a pair value's layer of kinds, no loss. Found by k-means, each member from a draw of its own.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import nn

from exactk.learning.tasks import Data
from exactk.models.pairvalue import PairMember

REQUESTS, ITEMS = 4096, 20_000  # of train, evenly spaced; of what they offer, by chance
ROUNDS = 30
SHARPNESS = 5.0  # over the number of features: how far an item leans to the nearest middle


@torch.no_grad()
def start_kinds(value: nn.Module, data: Data) -> None:
    """Let k_c = softmax_c(-s/2 |x - middle_c|^2) of every member; where there are no features, nothing changes."""
    members = [part for part in value.modules() if isinstance(part, PairMember)]
    points = _item_features(data) if members else np.empty((0, 0))
    for number, member in enumerate(members):
        size, kinds = member.vectors.item_feature_size, member.kinds.out_features
        if not size or len(points) <= kinds:
            continue
        middles = k_means(points, kinds, np.random.default_rng([data.seed, number]))
        sharpness = SHARPNESS / size
        member.kinds.weight.zero_()  # of ids: they say nothing yet
        member.kinds.weight[:, -size:] = torch.from_numpy(sharpness * middles)
        member.kinds.bias.copy_(torch.from_numpy(-sharpness / 2 * np.square(middles).sum(1)))


def k_means(
    points: Float64[np.ndarray, "P D"], count: int, rng: np.random.Generator
) -> Float64[np.ndarray, "C D"]:
    """Middles of groups, each point in that of its nearest; begun far from each other (k-means++)."""
    middles = points[rng.integers(len(points), size=1)]
    nearest = np.square(points - middles[0]).sum(1)
    while len(middles) < count:
        reach = nearest.sum()
        chance = nearest / reach if reach > 0 else None
        chosen = points[rng.choice(len(points), p=chance)]
        middles = np.concatenate([middles, chosen[None]])
        nearest = np.minimum(nearest, np.square(points - chosen).sum(1))
    for _ in range(ROUNDS):
        own = (np.square(middles).sum(1) - 2 * points @ middles.T).argmin(1)
        sizes = np.bincount(own, minlength=count)
        sums = np.zeros_like(middles)
        np.add.at(sums, own, points)
        moved = np.where(sizes[:, None] > 0, sums / np.maximum(sizes, 1)[:, None], middles)
        if np.array_equal(moved, middles):
            break
        middles = moved
    return middles


def _item_features(data: Data) -> Float[np.ndarray, "P D"]:
    """Different feature vectors of what train offered."""
    places = np.linspace(0, len(data.train) - 1, min(len(data.train), REQUESTS)).astype(np.int64)
    held = [
        batch.item_features[batch.present]
        for batch in data.train.take(np.unique(places)).batches(data.vocabulary, 512)
        if batch.item_features is not None
    ]
    if not held:
        return np.empty((0, 0))
    points = np.unique(np.concatenate(held).astype(np.float64), axis=0)
    if len(points) > ITEMS:
        points = points[np.random.default_rng(data.seed).choice(len(points), ITEMS, replace=False)]
    return points
