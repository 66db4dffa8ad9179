"""Many parameters as parts of one tensor, their gradients as parts of another: an optimiser moves all in one call.

Knows no network. The parameters stay what they were to their module; only where their numbers lie changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn


class Flat:
    """`weights` holds the numbers of all parameters, in order; `gradient` and `moments` (Adam's two) likewise."""

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        self.parameters = list(parameters)
        self.move: Move = torch_move
        self.sizes = [p.numel() for p in self.parameters]
        weights, self.gradient, *moments = staggered(4, sum(self.sizes), self.parameters[0])
        self.moments = (moments[0], moments[1])
        self.weights = nn.Parameter(
            weights.copy_(torch.cat([p.detach().reshape(-1) for p in self.parameters]))
        )
        self.weights.grad = self.gradient
        for parameter, own, gradient in zip(
            self.parameters, self.parted(self.weights.data), self.parted(self.gradient), strict=True
        ):
            parameter.data, parameter.grad = own, gradient

    def parted(self, numbers: Tensor) -> list[Tensor]:
        """As many numbers as there are weights, as views in the shapes of the parameters."""
        parts = torch.split(numbers, self.sizes)
        return [part.view(p.shape) for part, p in zip(parts, self.parameters, strict=True)]

    def release(self) -> None:
        """Give every parameter memory of its own again, and no gradient."""
        for parameter in self.parameters:
            parameter.data, parameter.grad = parameter.data.clone(), None

    def is_whole(self) -> bool:
        """Whether the parameters still lie here: moving or flattening a module again takes them elsewhere."""
        return self.parameters[0].data_ptr() == self.weights.data_ptr()


def staggered(number: int, size: int, like: Tensor) -> list[Tensor]:
    """Zeros, as many tensors, none of which begins at another's place within a page.

    Side by side in pages of their own, a number stored in one delays what is loaded from the same place of the others.
    """
    stride = -(-size // 1024) * 1024 + 256
    room = torch.zeros(number * stride, dtype=like.dtype, device=like.device)
    return [room[place : place + size] for place in range(0, number * stride, stride)]


# AdamW's step: its number, the first being 1, learning rate and weight decay.
Move = Callable[[Flat, int, float, float], None]


def torch_move(flat: Flat, step: int, rate: float, decay: float) -> None:
    """By torch's kernel, without what its optimiser does around it."""
    first, second = flat.moments
    torch._fused_adamw_(
        [flat.weights.data], [flat.gradient], [first], [second], [], [torch.tensor(float(step))],
        lr=rate, beta1=0.9, beta2=0.999, weight_decay=decay, eps=1e-8, amsgrad=False, maximize=False,
    )  # fmt: skip


class FlatAdam:
    """AdamW for flat weights. Its memory is told and taken back by parameters, in an order given, as torch's is."""

    def __init__(self, flat: Flat, order: Sequence[Tensor], weight_decay: float) -> None:
        self.flat, self.weight_decay, self.num_steps = flat, weight_decay, 0
        for moment in flat.moments:
            moment.zero_()
        self.param_groups: list[dict[str, Any]] = [{"lr": 0.0}]
        places = {id(parameter): place for place, parameter in enumerate(flat.parameters)}
        self.order = [places[id(parameter)] for parameter in order]

    def zero_grad(self) -> None:
        """Forget the gradients of the last step."""
        self.flat.gradient.zero_()

    @torch.no_grad()
    def step(self) -> None:
        """Move all weights."""
        self.num_steps += 1
        self.flat.move(self.flat, self.num_steps, self.param_groups[0]["lr"], self.weight_decay)

    def tensors(self) -> dict[str, Tensor]:
        """Its memory; none before the first step."""
        if not self.num_steps:
            return {}
        first, second = map(self.flat.parted, self.flat.moments)
        kept: dict[str, Tensor] = {}
        for index, place in enumerate(self.order):
            kept[f"{index}/step"] = torch.tensor(float(self.num_steps))
            kept[f"{index}/exp_avg"], kept[f"{index}/exp_avg_sq"] = first[place], second[place]
        return kept

    def restore(self, kept: Mapping[str, Tensor]) -> None:
        """Take it back."""
        first, second = map(self.flat.parted, self.flat.moments)
        self.num_steps = int(kept.get("0/step", 0))
        for index, place in enumerate(self.order if kept else ()):
            first[place].copy_(kept[f"{index}/exp_avg"])
            second[place].copy_(kept[f"{index}/exp_avg_sq"])
