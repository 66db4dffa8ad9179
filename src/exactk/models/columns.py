"""What a network reads of a log's columns: numbers on the scale of train's quantiles, ranks within a list, categories.

Knows no log: tensors come in, NaN is a missing number and 0 a missing or unknown category.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn


class EncodedNumbers(NamedTuple):
    """Numbers as inputs, and where each stands: its level among train's values (0 to 1) and its rank in the list."""

    inputs: Float[Tensor, "... E"]
    level: Float[Tensor, "... F"]
    rank: Float[Tensor, "... F"]


class Numbers(nn.Module):
    """F columns of numbers, each by pieces of its own scale and by a flag where it is missing.

    With knots 0, 1, 3 the value 2 reads (1, 1/2), -1 reads (0, 0) and 9 reads (1, 1): a straight line over such pieces
    is any line with bends at the knots. `within` a list come the level less the list's mean, and the rank.
    """

    knots: Tensor
    used: Tensor

    def __init__(self, num_columns: int, bins: int, within: bool) -> None:
        super().__init__()
        self.within = within
        self.register_buffer("knots", torch.arange(bins + 1.0).repeat(num_columns, 1))
        self.register_buffer("used", torch.full((num_columns,), float(bins)))  # pieces that train reaches
        self.size = num_columns * (bins + 1 + 2 * within)

    @torch.no_grad()
    def fit(self, values: Float[Tensor, "R F"]) -> None:
        """Place the knots by values of train."""
        for f, column in enumerate(values.T):
            knots, used = placed_knots(column[~column.isnan()], self.knots.shape[1] - 1)
            self.knots[f], self.used[f] = knots, float(used)

    def forward(
        self, values: Float[Tensor, "B *N F"], present: Bool[Tensor, "B N"] | None = None
    ) -> EncodedNumbers:
        """Inputs of every row; `present` says which rows of a list are real."""
        known = ~values.isnan()
        low, high = self.knots[:, :-1], self.knots[:, 1:]
        pieces = ((values.nan_to_num().unsqueeze(-1) - low) / (high - low)).clamp(0, 1) * known.unsqueeze(-1)
        level = pieces.sum(-1) / self.used
        parts = [pieces.flatten(-2), (~known).to(level.dtype)]
        if not self.within:
            return EncodedNumbers(torch.cat(parts, -1), level, torch.zeros_like(level))
        assert present is not None
        known = known & present.unsqueeze(-1)
        count = known.sum(1, keepdim=True).clamp(min=1)
        centred = (level - (level * known).sum(1, keepdim=True) / count) * known
        rank = ranks_within(values, known)
        return EncodedNumbers(torch.cat([*parts, 2 * centred, rank], -1), level, rank)


def placed_knots(known: Float[Tensor, "R"], bins: int) -> tuple[Float[Tensor, "E"], int]:
    """bins + 1 ascending knots: half by quantiles of the values, half by those of the distinct values, so that a
    column that is 0 nearly always still has a scale; and how many pieces lie within the values.
    """
    if not len(known):
        return torch.arange(bins + 1.0), bins
    known = known.double().sort().values
    both = [_quantiles(known, bins + 1), _quantiles(torch.unique_consecutive(known), bins + 1)]
    found = torch.unique_consecutive(torch.cat(both).float().sort().values)
    if len(found) > bins + 1:
        found = found[torch.linspace(0, len(found) - 1, bins + 1).round().long()]
    used = max(len(found) - 1, 1)
    beyond = found[-1] + (1 + found[-1].abs()) * torch.arange(1, bins + 2 - len(found))
    return torch.cat([found, beyond]), used


def _quantiles(ascending: Tensor, number: int) -> Tensor:
    return ascending[torch.linspace(0, len(ascending) - 1, number).round().long()]


def ranks_within(values: Float[Tensor, "B N F"], known: Bool[Tensor, "B N F"]) -> Float[Tensor, "B N F"]:
    """From -1, the least of its list, to 1; equals share the middle of their ranks, and a missing value has 0.

    Of 5, 7, 7, 9 the ranks are -1, 0, 0, 1.
    """
    held = values.masked_fill(~known, torch.inf).transpose(1, 2).contiguous()  # B F N
    ordered = held.sort(-1).values
    below = torch.searchsorted(ordered, held)
    not_above = torch.searchsorted(ordered, held, right=True)
    count = known.sum(1).unsqueeze(-1)  # B F 1
    rank = (below + not_above - count) / (count - 1).clamp(min=1)
    return rank.to(values.dtype).transpose(1, 2) * known


class Categories(nn.Module):
    """Embeddings of columns of categories; in training a share of them is hidden, so that unknown is learned, too."""

    def __init__(self, sizes: Sequence[int], embedding_size: int, hidden_share: float) -> None:
        super().__init__()
        widths = [min(embedding_size, 2 + n // 4) for n in sizes]
        self.tables = nn.ModuleList(nn.Embedding(n, width) for n, width in zip(sizes, widths, strict=True))
        self.hidden_share = hidden_share
        self.size = sum(widths)

    def forward(self, codes: Int[Tensor, "*N C"]) -> Float[Tensor, "*N E"]:
        """The embeddings of a row's categories side by side."""
        codes = hidden(codes, self.hidden_share) if self.training else codes
        parts = [table(codes[..., c].long()) for c, table in enumerate(self.tables)]
        return torch.cat([torch.zeros(*codes.shape[:-1], 0, device=codes.device), *parts], -1)


def hidden(codes: Int[Tensor, "*N"], share: float) -> Int[Tensor, "*N"]:
    """The codes, some of them turned into 0, unknown."""
    return codes * (torch.rand(codes.shape, device=codes.device) >= share) if share else codes
