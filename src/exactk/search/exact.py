"""The best card under a value that is a sum over items and pairs, proven by the clique engine.

Knows no network: it is given the numbers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int
from torch import Tensor

from exactk.errors import InfeasibleError
from exactk.tensors import TensorBatch


class ExactCards(NamedTuple):
    """Best cards, ascending, -1 beyond a card's size; `bound` is proven: no valid card is worth more."""

    cards: Int[Tensor, "B K"]
    value: Float64[Tensor, "B"]
    bound: Float64[Tensor, "B"]
    optimal: Bool[Tensor, "B"]


def exact(
    batch: TensorBatch,
    node: Float[Tensor, "B N"],
    pair: Float[Tensor, "B N N"] | None = None,
    time_limit: float | None = None,
) -> ExactCards:
    """Maximise the sum of `node` over the card plus `pair` (symmetric) over its pairs, all rules kept.

    With `time_limit` (seconds per request) the best found so far is returned; `bound - value` is its gap.
    """
    from exactk.problem.exact import cliques  # numba is needed only here

    # A product of matrices is symmetric only up to rounding; the engine asks for the last bit.
    pair_weights = None if pair is None else as_weights(pair.double() + pair.double().transpose(1, 2)) / 2
    found = cliques.best(batch.requests(), as_weights(node), pair_weights, time_limit=time_limit)
    if not found.found.all():
        b = int(np.flatnonzero(~found.found)[0])
        if found.optimal[b]:
            raise InfeasibleError(
                f"request {b} of the batch has no valid card of {int(batch.card_size[b])} items"
            )
        raise InfeasibleError(
            f"request {b} of the batch: no valid card found within {time_limit} s; raise the limit"
        )
    device = batch.present.device
    return ExactCards(*(torch.from_numpy(np.ascontiguousarray(a)).to(device) for a in found[:4]))


def as_weights(values: Float[Tensor, "..."]) -> Float64[np.ndarray, "..."]:
    """Numbers as the clique engine takes them."""
    return np.ascontiguousarray(values.detach().to("cpu", torch.float64).numpy())
