"""From a batch to vectors: x_s and x_u from ids, features or both, and the input layer x_i (eq. 4).

Knows nothing of graphs or cards.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from exactk.errors import ConfigError, InputError
from exactk.settings.config import Inputs, InputSizes, decided
from exactk.tensors import TensorBatch, rows_of


class Vectors(nn.Module):
    """x_s of every candidate and x_u of the user: id embeddings, features, or one followed by the other."""

    def __init__(
        self, inputs: Inputs, sizes: InputSizes, embedding_size: int, hidden_share: float = 0.0
    ) -> None:
        """`hidden_share` of the ids are unknown in training, where features stand beside them."""
        super().__init__()
        inputs = decided(inputs, sizes)
        self.hidden_share = hidden_share if inputs == "both" and sizes.featured else 0.0
        if inputs == "features" and not (sizes.user_feature_size and sizes.item_feature_size):
            raise ConfigError(
                "inputs=features needs features of users and of items, and this data lacks them"
            )
        with_ids = inputs != "features"
        self.users = nn.Embedding(sizes.num_users, embedding_size) if with_ids else None
        self.items = nn.Embedding(sizes.num_items, embedding_size) if with_ids else None
        self.user_feature_size = 0 if inputs == "ids" else sizes.user_feature_size
        self.item_feature_size = 0 if inputs == "ids" else sizes.item_feature_size
        self.user_size = embedding_size * with_ids + self.user_feature_size
        self.item_size = embedding_size * with_ids + self.item_feature_size

    def user(self, batch: TensorBatch) -> Float[Tensor, "B Du"]:
        """x_u."""
        ids = self._some(batch.user)
        return joined(self.users, ids, batch.user_features, self.user_feature_size, "user")

    def item(self, batch: TensorBatch, at: Int[Tensor, "B R"] | None = None) -> Float[Tensor, "B R Di"]:
        """x_s of every candidate, or of the positions `at` of each request."""
        ids, features = batch.item, batch.item_features
        if at is not None:
            ids = rows_of(ids, at)
            features = None if features is None else rows_of(features, at)
        return joined(self.items, self._some(ids), features, self.item_feature_size, "item")

    def _some(self, ids: Int[Tensor, "*N"]) -> Int[Tensor, "*N"]:
        return hidden(ids, self.hidden_share) if self.training else ids


def hidden(codes: Int[Tensor, "*N"], share: float) -> Int[Tensor, "*N"]:
    """The codes, some of them turned into 0, unknown."""
    return codes * (torch.rand(codes.shape, device=codes.device) >= share) if share else codes


def joined(
    table: nn.Embedding | None, ids: Tensor, features: Tensor | None, feature_size: int, name: str
) -> Tensor:
    """The id's embedding followed by the features, whichever of them are used."""
    parts = [] if table is None else [table(ids)]
    if feature_size:
        if features is None or features.shape[-1] != feature_size:
            given = "none" if features is None else str(features.shape[-1])
            raise InputError(f"this model reads {feature_size} {name} features, the batch has {given}")
        parts.append(features)
    return parts[0] if len(parts) == 1 else torch.cat(parts, -1)


class CommonVectors(nn.Module):
    """x_s and x_u of one size, so that they can be multiplied: id embeddings as they are, all else mapped."""

    def __init__(self, inputs: Inputs, sizes: InputSizes, embedding_size: int) -> None:
        super().__init__()
        self.vectors = Vectors(inputs, sizes, embedding_size)
        self.size = embedding_size
        self.map_user = self._map(self.vectors.user_size)
        self.map_item = self._map(self.vectors.item_size)

    def _map(self, size: int) -> nn.Module:
        return nn.Identity() if size == self.size else nn.Linear(size, self.size)

    def user(self, batch: TensorBatch) -> Float[Tensor, "B E"]:
        """x_u."""
        mapped: Tensor = self.map_user(self.vectors.user(batch))
        return mapped

    def item(self, batch: TensorBatch, at: Int[Tensor, "B R"] | None = None) -> Float[Tensor, "B R E"]:
        """x_s of every candidate, or of the positions `at` of each request."""
        mapped: Tensor = self.map_item(self.vectors.item(batch, at))
        return mapped

    def on_cards(self, batch: TensorBatch, cards: Int[Tensor, "B S K"]) -> Float[Tensor, "B S K E"]:
        """x_s of the items on cards; absent ones (-1) hold some candidate's, for the caller to mask."""
        at = cards.clamp(min=0).flatten(1)  # B S*K
        if at.shape[1] < batch.item.shape[1]:
            return self.item(batch, at).view(*cards.shape, self.size)
        return rows_of(self.item(batch), at).view(*cards.shape, self.size)


class InputLayer(nn.Module):
    """x_i = ReLU(W_I [x_s; x_u] + b_I) (eq. 4).

    W_I acts on the two halves apart, W_S x_s + W_U x_u: the user's half is computed once, not N times.
    """

    def __init__(self, vectors: Vectors, width: int) -> None:
        super().__init__()
        self.vectors = vectors
        self.item_weight = nn.Linear(vectors.item_size, width)
        self.user_weight = nn.Linear(vectors.user_size, width, bias=False)

    def forward(self, batch: TensorBatch) -> Float[Tensor, "B N D"]:
        """x_i of every candidate."""
        item: Tensor = self.item_weight(self.vectors.item(batch))  # B N D
        user: Tensor = self.user_weight(self.vectors.user(batch))  # B D
        return (item + user.unsqueeze(1)).relu()


@torch.no_grad()
def initialise(module: nn.Module, generator: torch.Generator | None) -> None:
    """Matrices uniform by fan-in and fan-out (Glorot), biases 0, gains of layer norms 1, id tables small.

    Row 0 of an id table stands for everything unknown: it starts at 0, the middle of the others.
    """
    tables = {id(part.weight) for part in module.modules() if isinstance(part, nn.Embedding)}
    norms = {id(part.weight) for part in module.modules() if isinstance(part, nn.LayerNorm)}
    for parameter in module.parameters():
        if id(parameter) in tables:
            parameter.normal_(0.0, 0.1, generator=generator)
            parameter[0] = 0.0
        elif id(parameter) in norms:
            parameter.fill_(1.0)
        elif parameter.ndim < 2:
            parameter.zero_()
        else:
            limit = math.sqrt(6.0 / (parameter.shape[-1] + parameter.shape[-2]))
            parameter.uniform_(-limit, limit, generator=generator)
