"""What large vocabularies cost: a training step and its memory with dense and sparse gradients, and shared rows.

Knows one model, the pair value; its tables are those of every other.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

from exactk.data.dataset import Dataset
from exactk.learning.losses import reward_loss
from exactk.learning.optimiser import Optimiser, with_sparse_gradients
from exactk.models.pairvalue import PairValue
from exactk.recommender import Recommender
from exactk.settings.config import InputSizes, PairValueConfig
from exactk.settings.presets import preset
from exactk.tensors import TensorBatch
from exactk_lab.bench.engine.made import made_batch

BATCH, N, K = 256, 50, 4
SEEDS = {True: (0,), False: (0, 1)}
SHARES = (1.0, 0.5, 0.25, 0.1)  # rows for each item of train


def table_rows(quick: bool) -> list[dict[str, Any]]:
    """Milliseconds a step and megabytes a rank, by number of items."""
    rows = []
    for num_items in (100_000, 1_000_000) if quick else (100_000, 1_000_000, 10_000_000):
        sizes = InputSizes(num_users=10_000, num_items=num_items)
        batches = [made_batch(BATCH, N, K, 0.9, seed, sizes) for seed in range(4)]
        for sparse in (False, True):
            model = PairValue(PairValueConfig(), sizes, Generator().manual_seed(0))
            if sparse:
                with_sparse_gradients(model)
            seconds = _step_seconds(model, batches, 4 if num_items > 1_000_000 else 12)
            taken = bytes_of(model.state_dict(), sparse)
            rows.append(
                {
                    "what": "step with large tables",
                    "items": num_items,
                    "gradients": "sparse" if sparse else "dense",
                    "milliseconds": round(1e3 * seconds, 2),
                    "megabytes_a_rank": round(sum(taken.values()) / 2**20, 1),
                    **{f"megabytes_{name}": round(size / 2**20, 1) for name, size in taken.items()},
                }
            )
            del model
    return rows


def _step_seconds(model: PairValue, batches: list[TensorBatch], steps: int) -> float:
    """Median time of forward, backward and update; the first step, which makes the moments, is left out."""
    optimiser = Optimiser(model, 0.001, 0.0)
    cards = torch.arange(K).expand(BATCH, 1, K)
    clicked = torch.arange(BATCH) % 7 == 0
    taken = []
    for step in range(steps):
        began = time.perf_counter()
        loss = reward_loss(model(batches[step % len(batches)], cards).squeeze(1), clicked).mean()
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step(0.001)
        taken.append(time.perf_counter() - began)
    return float(np.median(taken[1:]))


def hashing_rows(data: Dataset, quick: bool) -> list[dict[str, Any]]:
    """What sharing rows costs in validation log loss and AUC, learned from ids alone; seeds averaged."""
    train, valid, _ = data.split()
    num_items = train.vocabulary().num_items - 1
    rows = []
    for share in (None, *SHARES):
        item_rows = 0 if share is None else int(share * num_items)
        runs = [_learned(train, valid, item_rows, seed) for seed in SEEDS[quick]]
        rows.append(
            {
                "what": "hashed ids",
                "items": num_items,
                "item_rows": item_rows or num_items,
                "hashed": share is not None,
                "share_a_row": round(shared(num_items, item_rows), 3) if item_rows else 0.0,
                "valid_log_loss": round(float(np.mean([t["log_loss"] for t in runs])), 5),
                "valid_auc": round(float(np.mean([t["auc"] for t in runs])), 4),
            }
        )
    return rows


def shared(num_items: int, rows: int) -> float:
    """The share of items that are not alone in their row: 1 - (1 - 1/rows)^(items - 1)."""
    return float(1 - (1 - 1 / rows) ** (num_items - 1))


def _learned(train: Dataset, valid: Dataset, item_rows: int, seed: int) -> dict[str, float]:
    settings = [f"vocabulary.item_rows={item_rows}", f"training.seed={seed}", "pair_value.inputs=ids"]
    settings += ["pair_value.members=1", "pair_value.epochs=3", "training.device=cpu"]
    fitted = Recommender(preset("best").with_overrides(settings)).fit(train, valid, show=False)
    reports = [figures for figures in fitted.history if figures["event"] == "valid" and figures.get("best")]
    return reports[-1]


def bytes_of(weights: Mapping[str, Tensor], sparse: bool) -> dict[str, int]:
    """What training one module takes on every rank: weights, gradients, Adam's two moments.

    With sparse gradients those of tables are as small as a batch; what is left are weights and moments.
    """
    size = {name: t.numel() * t.element_size() for name, t in weights.items()}
    total = sum(size.values())
    tables = sum(value for name, value in size.items() if name.endswith(("users.weight", "items.weight")))
    return {"weights": total, "gradients": total - tables if sparse else total, "moments": 2 * total}
