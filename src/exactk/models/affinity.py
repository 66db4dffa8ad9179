"""Affinity: how a user likes each single item, <p_u, q_i> + b_i + m_ui, as a term of its own in the scores.

Knows no cards: the same numbers at every step. Plain matrix factorisation, so that a policy contains what a strong
baseline is, and need not squeeze it through the input layer; m_ui is a memory of single pairs, which no rank shares.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from exactk.engine.shapes import MOST_PAIRS
from exactk.errors import ConfigError
from exactk.settings.config import Inputs, InputSizes, decided
from exactk.tensors import TensorBatch


class Affinity(nn.Module):
    """Tables of ids and, where there are features, a linear part of each (LightFM); the last column is the bias."""

    def __init__(
        self,
        inputs: Inputs,
        sizes: InputSizes,
        rank: int,
        pace: float = 1.0,
        memory: float = 0.0,
    ) -> None:
        super().__init__()
        inputs = decided(inputs, sizes)
        with_ids, with_features = inputs != "features", inputs != "ids"
        if memory and not with_ids:
            raise ConfigError("policy.memory remembers users and items by their ids: policy.inputs has none")
        self.users = nn.Embedding(sizes.num_users, rank) if with_ids and rank else None
        self.items = nn.Embedding(sizes.num_items, rank + 1) if with_ids else None
        user_size, item_size = (sizes.user_feature_size, sizes.item_feature_size) if with_features else (0, 0)
        self.from_user = nn.Linear(user_size, rank) if user_size and rank else None
        self.from_item = nn.Linear(item_size, rank + 1) if item_size else None
        num_pairs = min(sizes.num_users * sizes.num_items, MOST_PAIRS)
        self.pairs = nn.Parameter(torch.zeros(num_pairs)) if memory else None
        self.rank, self.num_items = rank, sizes.num_items
        self.pace, self.memory = pace, memory

    @torch.no_grad()
    def start_small(self) -> None:
        """Begin near nothing: what is random at the start is not soon forgotten.

        On the authors' files tables that start at half the usual size found the click in 0.655 of the validation
        requests instead of 0.64 (matrix factorisation alone, rank 32, dropout 0.3).
        """
        for table in (self.users, self.items):
            if table is not None:
                table.weight.mul_(0.5 / self.pace)
        if self.items is not None:
            self.items.weight[:, -1] = 0.0
        for linear in (self.from_user, self.from_item):
            if linear is not None:
                linear.weight.mul_(0.1 / self.pace)

    def forward(self, batch: TensorBatch) -> Float[Tensor, "B N"]:
        """One number per candidate."""
        return self.score(batch.user, batch.item, batch.user_features, batch.item_features)

    def score(
        self, user: Tensor, item: Tensor, user_features: Tensor | None, item_features: Tensor | None
    ) -> Float[Tensor, "B N"]:
        """The same of ids and features as they are."""
        # Adam's steps have one size whatever the gradient's: weights read through a factor learn that much faster.
        q = self.pace * summed(self.items, item, self.from_item, item_features)  # B N r+1
        scores: Tensor = q[..., -1]
        if self.rank:
            p = self.pace * summed(self.users, user, self.from_user, user_features)  # B r
            scores = (q[..., :-1] @ p.unsqueeze(-1)).squeeze(-1) + scores
        if self.pairs is not None:
            # At most 1: a click would be learned by heart, and is new each time; what was passed over counts.
            place = (user.unsqueeze(-1) * self.num_items + item) % len(self.pairs)
            remembered = self.pairs[place]
            scores = scores - nn.functional.elu(-self.memory * remembered)
        return scores


def summed(
    table: nn.Embedding | None, ids: Tensor, linear: nn.Linear | None, features: Tensor | None
) -> Float[Tensor, "*S r"]:
    """The row of the table and the linear part of the features, whichever there are."""
    parts = [] if table is None else [table(ids)]
    if linear is not None and features is not None:
        parts.append(linear(features))
    total: Tensor = sum(parts[1:], parts[0])
    return total
