"""Cards a second on a GPU: the model's own beam beside the fused kernel, and how often they agree.

Imports nothing but torch, triton and numpy besides exactk: it runs where nothing else is installed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from exactk.bench.made import made_batch, made_policy
from exactk.bench.report import Goal, Report
from exactk.engine.cuda import CudaDecoder, Precision
from exactk.errors import ConfigError
from exactk.models.policy import Policy
from exactk.problem.batch import Batch
from exactk.search import Feasible, beam

SHAPES = ((50, 4), (20, 4), (50, 10))
VARIANTS: tuple[tuple[Precision, int], ...] = (
    ("float32", 4),
    ("tf32", 4),
    ("tf32", 2),
    ("bfloat16", 4),
    ("bfloat16", 2),
)
DENSITY = 0.98  # few enough conflicts that most requests need no look-ahead


def run(quick: bool = False) -> Report:
    """Milliseconds a batch by CUDA events: median of many, with spread; agreement over at least 10,000 requests."""
    if not torch.cuda.is_available():
        raise ConfigError("bench decode --device cuda needs a GPU, and torch sees none")
    batch_size = 2048 if quick else 16_384
    rows: list[dict[str, Any]] = []
    for num_candidates, card_size in SHAPES[:1] if quick else SHAPES:
        rows += measured(num_candidates, card_size, batch_size)
    wanted = [r for r in rows if (r["N"], r["K"]) == (50, 4)]
    exact = [r for r in wanted if r["equal_cards"] >= 0.999]
    fastest = max(r["cards_per_second"] for r in exact) / 1e6
    goals = [Goal("million cards/s at N=50, K=4, beam 3, 99.9% equal cards", fastest, 5.0, "least")]
    return Report("decode-cuda", rows, goals, notes=[torch.cuda.get_device_name(0)], seeds=[0], quick=quick)


def measured(num_candidates: int, card_size: int, batch_size: int) -> list[dict[str, Any]]:
    """One shape: the eager model, then the kernel at each precision and number of warps."""
    policy = made_policy(0).cuda()
    batch = only_safe(made_batch(batch_size, num_candidates, card_size, DENSITY, 1)).to("cuda")
    shape = {"N": num_candidates, "K": card_size, "beam": policy.config.beam, "batch": len(batch)}
    want = eager(policy, batch)
    rows = [
        {
            **shape,
            "engine": "eager",
            **timed(partial(eager, policy, batch), len(batch), 10),
            "equal_cards": 1.0,
        }
    ]
    for precision, num_warps in VARIANTS:
        decoder = CudaDecoder(policy, precision, num_warps)
        call = partial(decoder.launch, batch, card_size)
        equal = (call().sort(1).values == want.sort(1).values).all(1).double().mean().item()
        name = f"kernel {precision}, {num_warps} warps"
        rows.append({**shape, "engine": name, **timed(call, len(batch), 30), "equal_cards": equal})
    return rows


@torch.no_grad()
def eager(policy: Policy, batch: Batch) -> torch.Tensor:
    """The model's own beam."""
    return beam(policy.steps(batch), Feasible.of(batch), policy.config.beam).cards[:, 0]


def only_safe(batch: Batch) -> Batch:
    """The requests in which no order of choosing ends early: what the kernel is for."""
    return batch.rows(Feasible.of(batch).safe)


def timed(call: Callable[[], Any], num_requests: int, repeats: int) -> dict[str, float]:
    """Milliseconds a call, and cards a second at the median."""
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    times = []
    for _ in range(repeats):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        call()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    times.sort()
    median = times[len(times) // 2]
    return {
        "ms": median,
        "ms_p10": times[len(times) // 10],
        "ms_p90": times[len(times) * 9 // 10],
        "cards_per_second": num_requests / median * 1e3,
    }
