"""Sharing: what a card gains where at least three of its items are high in the same number of their vectors.

Knows no users and no pairs: the part of a value that no sum over pairs can say.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

SHARED_BY = 3  # items, at least


class Sharing(nn.Module):
    """Sum over c of w_c P(at least three items have c); item i has it with chance h_ic = sigmoid(a_c (x_ic - b_c))."""

    def __init__(self, size: int, pace: float) -> None:
        super().__init__()
        self.pace = pace
        self.weight = nn.Parameter(torch.empty(size))  # w / pace: Adam's steps are small, these must go far
        self.level = nn.Parameter(torch.empty(size))  # b
        self.sharpness = nn.Parameter(torch.empty(size))  # a

    @torch.no_grad()
    def start(self) -> None:
        """Begin with no gain, and with items that stand out by a deviation as the ones that have a feature."""
        self.weight.zero_()
        self.level.fill_(1.0)
        self.sharpness.fill_(2.0)

    def has(self, item: Float[Tensor, "*S D"]) -> Float[Tensor, "*S D"]:
        """h: the chance that an item counts as having each feature."""
        return (self.sharpness * (item - self.level)).sigmoid()

    def worth(self) -> Float[Tensor, "D"]:
        """w."""
        return self.pace * self.weight

    def forward(self, has: Float[Tensor, "B S K D"]) -> Float[Tensor, "B S"]:
        """The gain of cards; an absent item has nothing (0)."""
        counts = nobody(has[:, :, 0])
        gain = torch.zeros_like(has[:, :, 0])
        for item in has.unbind(2):
            gain = gain + counts[..., -1, :] * item
            counts = joined(counts, item)
        return gain @ self.worth()


def nobody(like: Float[Tensor, "*S D"]) -> Float[Tensor, "*S 3 D"]:
    """Counts of a card without items: the chances that exactly 0, 1, 2 of its items have each feature."""
    counts = like.new_zeros(*like.shape[:-1], SHARED_BY, like.shape[-1])
    counts[..., 0, :] = 1.0
    return counts


def joined(counts: Float[Tensor, "*S 3 D"], item: Float[Tensor, "*S D"]) -> Float[Tensor, "*S 3 D"]:
    """The counts after one more item: each stays or moves up by one; from 2 it moves to what a card gains by."""
    item = item.unsqueeze(-2)
    moved = nn.functional.pad(counts[..., :-1, :] * item, (0, 0, 1, 0))
    return counts * (1 - item) + moved
