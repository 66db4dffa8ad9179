"""Starting weights, drawn from an explicit generator.

Knows parameters by their shape and name only.
"""

from __future__ import annotations

import math

import torch
from torch import nn


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
