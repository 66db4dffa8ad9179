"""Many parameters as parts of one tensor, their gradients as parts of another: an optimiser moves all in one call.

Knows no network. The parameters stay what they were to their module; only where their numbers lie changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

# AdamW's step on weights, given their gradient, its two moments, the number of the step, learning rate and decay.
Move = Callable[[Tensor, Tensor, tuple[Tensor, Tensor], int, float, float], None]


class Flat:
    """`weights` holds the numbers of all parameters, in order; `weights.grad` those of their gradients."""

    def __init__(self, parameters: Sequence[Tensor], move: Move | None = None) -> None:
        self.parameters, self.move = list(parameters), move or torch_move
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


def torch_move(
    weights: Tensor, gradient: Tensor, memory: tuple[Tensor, Tensor], step: int, rate: float, decay: float
) -> None:
    """torch's kernel, without what its optimiser does around it."""
    first, second = memory
    torch._fused_adamw_(
        [weights], [gradient], [first], [second], [], [torch.tensor(float(step))],
        lr=rate, beta1=0.9, beta2=0.999, weight_decay=decay, eps=1e-8, amsgrad=False, maximize=False,
    )  # fmt: skip


class FlatAdam:
    """AdamW for flat weights. Its memory is told and taken back by parameters, in an order given, as torch's is."""

    def __init__(self, flat: Flat, order: Sequence[Tensor], weight_decay: float) -> None:
        self.flat, self.weight_decay, self.num_steps = flat, weight_decay, 0
        self.memory = torch.zeros_like(flat.weights.data), torch.zeros_like(flat.weights.data)
        self.param_groups: list[dict[str, Any]] = [{"lr": 0.0}]
        places = {id(parameter): place for place, parameter in enumerate(flat.parameters)}
        self.order = [places[id(parameter)] for parameter in order]

    def zero_grad(self) -> None:
        """Forget the gradients of the last step."""
        self.flat.gradient.zero_()

    @torch.no_grad()
    def step(self) -> None:
        """Move all weights."""
        flat, rate = self.flat, self.param_groups[0]["lr"]
        self.num_steps += 1
        flat.move(flat.weights.data, flat.gradient, self.memory, self.num_steps, rate, self.weight_decay)

    def tensors(self) -> dict[str, Tensor]:
        """Its memory; none before the first step."""
        if not self.num_steps:
            return {}
        first, second = map(self.flat.parted, self.memory)
        kept: dict[str, Tensor] = {}
        for index, place in enumerate(self.order):
            kept[f"{index}/step"] = torch.tensor(float(self.num_steps))
            kept[f"{index}/exp_avg"], kept[f"{index}/exp_avg_sq"] = first[place], second[place]
        return kept

    def restore(self, kept: Mapping[str, Tensor]) -> None:
        """Take it back."""
        first, second = map(self.flat.parted, self.memory)
        self.num_steps = int(kept.get("0/step", 0))
        for index, place in enumerate(self.order if kept else ()):
            first[place].copy_(kept[f"{index}/exp_avg"])
            second[place].copy_(kept[f"{index}/exp_avg_sq"])
