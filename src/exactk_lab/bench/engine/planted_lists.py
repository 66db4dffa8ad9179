"""The default model on a million lists made on the GPU: how long it takes, and how near it comes to the truth.

The truth has what the encoder is there for: a number counts by its rank within the list, and likeness to the others
costs. Imports nothing but torch and numpy besides exactk.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from exactk.learning.card_task import losses_of
from exactk.learning.fit import Step, Task, fit
from exactk.learning.optimiser import fit_settings
from exactk.learning.recorded import RULES_ASIDE
from exactk.models.card_inputs import ranks_within
from exactk.models.card_value import CardValue
from exactk.settings.config import InputSizes
from exactk.settings.presets import preset
from exactk.tensors import TensorBatch

N, K, NUMBERS = 25, 4, 8
WAYS = ((128, 0.0015), (1024, 0.004))  # batch and learning rate: the default's, and one for much data
SIZES = InputSizes(
    num_users=1, num_items=1, candidate_numbers=NUMBERS, shown="list", items_recur=False, users_recur=False
)


def lists(numbers: Float[Tensor, "B N F"], clicked: Tensor) -> TensorBatch:
    """Lists shown whole, each with one click: nothing but numbers is known of a candidate."""
    B, device = len(numbers), numbers.device
    everyone = torch.ones(1, N, dtype=torch.bool, device=device)
    nothing = torch.zeros(B, 0, N, dtype=torch.long, device=device)
    return TensorBatch(
        user=nothing.new_zeros(B),
        item=nothing.new_zeros(B, N),
        present=everyone.expand(B, N),
        graph=everyone.unsqueeze(0).expand(B, N, N),
        card_size=torch.full((B,), K, device=device),
        pinned=~everyone.expand(B, N),
        group=nothing,
        cap=nothing[:, :, 0],
        candidate_numbers=numbers,
        clicks=torch.nn.functional.one_hot(clicked, N).float(),
    )


def truth(numbers: Float[Tensor, "B N F"]) -> Float[Tensor, "B N"]:
    """How much each candidate is liked beside the others."""
    likeness = -torch.cdist(numbers[..., 4:6], numbers[..., 4:6])
    rank = ranks_within(numbers[..., :1], torch.ones_like(numbers[..., :1], dtype=torch.bool)).squeeze(-1)
    own = numbers[..., 1] + numbers[..., 2].abs() + numbers[..., 2] * numbers[..., 3]
    return 1.5 * rank + 0.7 * own - 1.5 * likeness.exp().mean(-1) + 0.3 * numbers[..., 6].sin()


def planted(num: int, seed: int, device: str) -> tuple[Float[Tensor, "B N F"], Tensor]:
    """Numbers of candidates, and who was clicked."""
    generator = Generator(device).manual_seed(seed)
    numbers = torch.randn(num, N, NUMBERS, generator=generator, device=device)
    noise = -torch.empty(num, N, device=device).exponential_(generator=generator).log()
    parts = [truth(part) for part in numbers.split(50_000)]  # type: ignore[no-untyped-call]
    return numbers, (torch.cat(parts) + noise).argmax(1)


def run(num: int, epochs: int | None = None, device: str = "cuda") -> list[dict[str, Any]]:
    """One row for each way to train."""
    numbers, clicked = planted(num, 1, device)
    fresh = planted(20_000, 2, device)
    config = preset("best")
    rows = []
    for size, rate in WAYS:
        section = replace(config.card_value, learning_rate=rate)
        section = replace(section, epochs=epochs or section.epochs)
        model = CardValue(section, config.pair_value, SIZES, Generator().manual_seed(0)).to(device)
        model.inputs.fit([lists(numbers[:4096], clicked[:4096])])
        began = time.perf_counter()
        fit(
            task_of(model, numbers, clicked, size),
            replace(fit_settings(section, config.training, device), device=device),
        )
        if device == "cuda":
            torch.cuda.synchronize()
        seconds = time.perf_counter() - began
        rows.append(
            {
                "way": "card value of whole lists",
                "requests": num,
                "batch": size,
                "epochs": section.epochs,
                "learning_rate": rate,
                "members": section.members,
                "seconds": seconds,
                "requests_per_second": num * section.epochs / seconds,
                **judged(model.eval(), *fresh),
            }
        )
    return rows


def task_of(model: CardValue, numbers: Tensor, clicked: Tensor, size: int) -> Task:
    """The card value's own loss, over batches that never leave the GPU."""

    def batches(epoch: int, start: int) -> Iterator[TensorBatch]:
        generator = Generator(numbers.device).manual_seed(epoch)
        order = torch.randperm(len(numbers), generator=generator, device=numbers.device)
        for number in range(start, len(numbers) // size):
            rows = order[number * size : (number + 1) * size]
            yield lists(numbers[rows], clicked[rows])

    def loss(batch: TensorBatch, _: float, generator: Generator) -> Step:
        summed = losses_of(model, batch, 0.0, generator).sum() / len(batch)
        return Step(summed, {"member_loss": summed.detach() / len(model.members)})

    return Task("value", model, batches, len(numbers) // size, loss, recordable=lambda _: RULES_ASIDE)


@torch.no_grad()
def judged(model: CardValue, numbers: Tensor, clicked: Tensor) -> dict[str, float]:
    """Loss, and the share of clicks on the card, of the model and of the truth itself."""
    parts = torch.arange(len(numbers), device=numbers.device).split(2000)  # type: ignore[no-untyped-call]
    shares = [model.values(lists(numbers[part], clicked[part])).node for part in parts]
    judges = {"": torch.cat(shares), "truth_": truth(numbers).softmax(-1)}
    at = clicked.unsqueeze(1)
    return {
        **{f"{name}loss": float(-s.gather(1, at).log().mean()) for name, s in judges.items()},
        **{
            f"{name}clicked_on_card": float((s.topk(K).indices == at).any(1).float().mean())
            for name, s in judges.items()
        },
    }
