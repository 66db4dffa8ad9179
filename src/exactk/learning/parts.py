"""A batch of long lists in parts that fit into memory: what grows with the square of a list is bounded.

Knows no model and no loss.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from exactk.problem.batch import CANDIDATE_AXES
from exactk.tensors import TensorBatch

# Pairs of places (requests x candidates x candidates) that a network reads at once; training takes about 2 KB for each.
MOST_PAIRS = {"cpu": 2**19, "cuda": 2**23}


def fits(batch: TensorBatch, most: int | None = None) -> bool:
    """Whether a network may read the whole batch at once."""
    most = MOST_PAIRS[batch.present.device.type] if most is None else most
    return batch.item.shape[0] * batch.item.shape[1] ** 2 <= most


def in_parts(batch: TensorBatch, most: int | None = None) -> list[TensorBatch]:
    """The batch where it is small enough; else its requests by the length of their lists, as many together as fit.

    Lists of 10, 300 and 20 candidates where 1,000 pairs fit: (10, 20), (300). None is longer than its part's longest.
    """
    most = MOST_PAIRS[batch.present.device.type] if most is None else most
    if fits(batch, most):
        return [batch]
    num, longest = batch.item.shape
    places = torch.arange(1, longest + 1, device=batch.present.device)
    lengths = (batch.present * places).amax(1).cpu()
    order = lengths.argsort(stable=True)
    parts, first = [], 0
    for last in range(1, num + 1):
        if last == num or (last + 1 - first) * int(lengths[order[last]]) ** 2 > most:
            rows = order[first:last].to(batch.present.device)
            parts.append(shortened(batch.rows(rows), max(int(lengths[order[last - 1]]), 1)))
            first = last
    return parts


def shortened(batch: TensorBatch, size: int) -> TensorBatch:
    """The first candidates of every request, the others being padding; under a brief, all."""
    if batch.brief is not None:
        return batch
    named = batch.named()
    cut: dict[str, Any] = {}
    for name, axes in CANDIDATE_AXES.items():
        if name in named:
            cut[name] = named[name]
            for axis in axes:
                cut[name] = cut[name].narrow(axis, 0, size)
    return replace(batch, **cut)
