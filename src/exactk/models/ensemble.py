"""A value of cards as the mean of members, each a network of its own: their spread says how sure it is.

Knows nothing of what the members are.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from exactk.tensors import TensorBatch


class Ensemble(nn.Module):
    """Members (one will do) that give the logit of P(r=1|A,u); forward: their mean [B, S] for cards [B, S, K]."""

    def __init__(self, members: Iterable[nn.Module]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    def member_logits(self, batch: TensorBatch, cards: Int[Tensor, "B S K"]) -> Float[Tensor, "M B S"]:
        """What each member says; in training each has its own loss."""
        return torch.stack([member(batch, cards) for member in self.members])

    def forward(self, batch: TensorBatch, cards: Int[Tensor, "B S K"]) -> Float[Tensor, "B S"]:
        """The logit of every card's click probability (-1: no item, in a card shorter than the longest)."""
        return self.member_logits(batch, cards).mean(0)
