"""Milliseconds a card of the card value on the CPU: PyTorch beside the compiled engine, alone and in batches.

Lists as the hotel log has them: nine numbers and a place of every candidate, three categories of the request. The
weights are nobody's; the engine's cards must be worth what the model's own are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Generator

from exactk.engine.decide import Decider, ModelWeights, decider_of
from exactk.errors import ExactKError
from exactk.models.card_value import CardValue
from exactk.problem.batch import Batch
from exactk.settings.config import CardValueConfig, Config, InputSizes, PairValueConfig
from exactk.tensors import TensorBatch, arrays_of
from exactk_lab.bench.engine.made import made_batch
from exactk_lab.bench.timing import each_once, figures

SIZES = InputSizes(
    num_users=10, num_items=10, candidate_numbers=9, context_categories=(4, 56, 2000), placed=True, shown="list",
    items_recur=False, users_recur=False,
)  # fmt: skip
CASES = ((25, 1, 2), (50, 1, 2), (50, 1, 1), (50, 32, 2))  # N, batch, members
K = 4
WITHIN = 1e-3  # of a card's value: sums of float32 in another order


def column_rows(quick: bool) -> list[dict[str, Any]]:
    """A row for every case and engine, one core; other requests at every call."""
    rows = []
    for N, size, members in CASES:
        model, decider = made_value(members)
        batches = [listed(size, N, seed) for seed in range(10 if quick else 100)]
        engines: dict[str, Callable[[Batch], Any]] = {
            "card value, torch": lambda batch, model=model: model.best(TensorBatch.of(batch)).cards,  # type: ignore[misc]
            "card value": lambda batch, decider=decider: decider.decide(batch).cards,  # type: ignore[misc]
        }
        refuse_worse(model, decider, batches[:10])
        for name, decide in engines.items():
            with torch.no_grad():
                times = each_once(decide, batches)
            rows.append({
                "N": N, "K": K, "batch": size, "engine": f"{name}, {members} member{'s' * (members > 1)}",
                **figures(times, size),
            })  # fmt: skip
    return rows


def made_value(members: int) -> tuple[CardValue, Decider]:
    """A model of the default's size and its compiled decider for one core."""
    config = Config(model="card_value", card_value=CardValueConfig(members=members))
    model = CardValue(config.card_value, PairValueConfig(), SIZES, Generator().manual_seed(0))
    model.inputs.fit([TensorBatch.of(listed(64, 50, seed)) for seed in (1000, 1001)])
    draw = Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=draw))
    model.eval()
    return model, decider_of(config, ModelWeights(None, arrays_of(model)), SIZES, K, threads=1)


def listed(size: int, N: int, seed: int) -> Batch:
    """Requests of lists with columns, every pair allowed."""
    rng = np.random.default_rng(seed)
    places = np.broadcast_to(np.arange(1.0, N + 1, dtype=np.float32), (size, N)).copy()
    return replace(
        made_batch(size, N, K, 1.0, seed, SIZES).arrays(),
        candidate_numbers=rng.normal(size=(size, N, 9)).astype(np.float32),
        context_categories=rng.integers(0, (4, 56, 2000), (size, 3)).astype(np.int32),
        position=places,
    )


@torch.no_grad()
def refuse_worse(model: CardValue, decider: Decider, batches: list[Batch]) -> None:
    """Raise where a card of the engine is worth less to the model than the model's own."""
    for batch in batches:
        tensors = TensorBatch.of(batch)
        found = torch.from_numpy(np.asarray(decider.decide(batch).cards))
        best = model.best(tensors)
        worth = model.values(tensors).node.gather(1, found.long()).sum(1)
        own = model.values(tensors).node.gather(1, best.cards.long()).sum(1)
        if not torch.allclose(worth, own, rtol=WITHIN, atol=WITHIN):
            raise ExactKError("the compiled card value chose a card that is worth less to the model")
