"""Many parameters as parts of one tensor, their gradients as parts of another: an optimiser moves all in one call.

Knows no network. The parameters stay what they were to their module; only where their numbers lie changes.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Flat:
    """`weights` holds the numbers of all parameters, in order; `weights.grad` those of their gradients."""

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        self.parameters = list(parameters)
        self.sizes = [p.numel() for p in self.parameters]
        self.weights = nn.Parameter(torch.cat([p.detach().reshape(-1) for p in self.parameters]))
        self.gradient = self.weights.grad = torch.zeros_like(self.weights)
        for parameter, own, gradient in zip(
            self.parameters, self.parted(self.weights.data), self.parted(self.gradient), strict=True
        ):
            parameter.data, parameter.grad = own, gradient

    def parted(self, numbers: Tensor) -> list[Tensor]:
        """As many numbers as there are weights, as views in the shapes of the parameters."""
        parts = torch.split(numbers, self.sizes)
        return [part.view(p.shape) for part, p in zip(parts, self.parameters, strict=True)]

    def is_whole(self) -> bool:
        """Whether the parameters still lie here: moving or flattening a module again takes them elsewhere."""
        return self.parameters[0].data_ptr() == self.weights.data_ptr()
