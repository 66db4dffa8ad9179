"""Small batches with every kind of column, and card values whose every term shows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from exactk.models.card_value import CardValue
from exactk.settings.config import CardValueConfig, InputSizes, PairValueConfig, ShownAs
from exactk.tensors import TensorBatch
from small_batches import complete_batch

N = 7
SIZES = InputSizes(
    num_users=6, num_items=31, candidate_numbers=3, context_numbers=1, candidate_categories=(4,),
    context_categories=(3,), item_categories=(5,), user_categories=(2,), item_vector_size=4, pair_features=2,
    scored=True, placed=True,
)  # fmt: skip
CONFIG = CardValueConfig(width=8, heads=2, feed_forward_size=8, bins=4, low_rank=2, members=2)
BASE = PairValueConfig(kinds=3, place_size=2, hidden_size=8, embedding_size=4)


def batch_with_columns(num: int = 3, size: int = N, seed: int = 0, **sizes: Any) -> TensorBatch:
    """Requests with a missing number and two absent candidates; features only where `sizes` say how many."""
    draw = torch.Generator().manual_seed(seed)
    uniform = torch.rand(num, size, size, 2, generator=draw)
    numbers = torch.randn(num, size, 3, generator=draw)
    numbers[0, 1, 0] = torch.nan
    present = torch.ones(num, size, dtype=torch.bool)
    present[-1, -2:] = False
    features = {
        name: torch.randn(num, *length, sizes[f"{name[:-1]}_size"], generator=draw)
        for name, length in (("user_features", ()), ("item_features", (size,)))
        if f"{name[:-1]}_size" in sizes
    }
    return complete_batch(
        num, size, 3, present=present,
        candidate_numbers=numbers,
        candidate_categories=torch.randint(0, 4, (num, size, 1), generator=draw),
        context_numbers=torch.randn(num, 1, generator=draw),
        context_categories=torch.randint(0, 3, (num, 1), generator=draw),
        item_categories=torch.randint(0, 5, (num, size, 1), generator=draw),
        user_categories=torch.randint(0, 2, (num, 1), generator=draw),
        item_vectors=torch.randn(num, size, 4, generator=draw),
        pair_features=uniform + uniform.transpose(1, 2),
        score=torch.randn(num, size, generator=draw),
        position=torch.arange(1.0, size + 1).repeat(num, 1),
        **features,
    )  # fmt: skip


def all_terms(shown: ShownAs, config: CardValueConfig = CONFIG, **changes: Any) -> CardValue:
    """Trained by nobody: nothing is zero, so that every term is seen."""
    sizes = replace(SIZES, shown=shown, **changes)
    model = CardValue(config, BASE, sizes, torch.Generator().manual_seed(0))
    model.inputs.fit([batch_with_columns(20, seed=9, **changes)])
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=draw))
    return model.eval()
