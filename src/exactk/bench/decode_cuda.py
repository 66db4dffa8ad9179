"""Cards a second on a GPU: the model's own beam beside the fused kernel, and how often they agree.

Imports nothing but torch, triton and numpy besides exactk: it runs where nothing else is installed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
# Precision of the encoder's products, warps of the encoder, warps of the decoder, registers of a decoder's thread.
Variant = tuple[Precision, int, int, int]
VARIANTS: tuple[Variant, ...] = (
    ("tf32x3", 4, 4, 128),
    ("tf32x3", 4, 4, 255),
    ("tf32x3", 4, 8, 128),
    ("tf32x3", 4, 1, 255),
    ("tf32", 4, 4, 128),
    ("bf16x3", 4, 4, 128),
)
DENSITY = 0.98  # few enough conflicts that most requests need no look-ahead


def run(quick: bool = False) -> Report:
    """Milliseconds a batch by CUDA events: median of many, with spread; agreement over at least 10,000 requests."""
    if not torch.cuda.is_available():
        raise ConfigError("bench decode --device cuda needs a GPU, and torch sees none")
    batch_size = 2048 if quick else 16_384
    rows: list[dict[str, Any]] = []
    notes = [torch.cuda.get_device_name(0)]
    for num_candidates, card_size in SHAPES[:1] if quick else SHAPES:
        variants = VARIANTS if not rows else (best_of(rows),)
        rows += measured(num_candidates, card_size, batch_size, variants, notes)
    wanted = [r for r in rows if (r["N"], r["K"]) == (50, 4)]
    exact = [r for r in wanted if r["equal_cards"] >= 0.999]
    fastest = max(r["cards_per_second"] for r in exact) / 1e6
    goals = [Goal("million cards/s at N=50, K=4, beam 3, 99.9% equal cards", fastest, 5.0, "least")]
    return Report("decode-cuda", rows, goals, notes=notes, seeds=[0], quick=quick)


def best_of(rows: list[dict[str, Any]]) -> Variant:
    """The fastest variant so far whose cards are the model's: the other shapes are measured with it alone."""
    exact = [r for r in rows if r["equal_cards"] >= 0.999 and "variant" in r]
    variant: Variant = max(exact, key=lambda r: float(r["cards_per_second"]))["variant"]
    return variant


def measured(
    num_candidates: int,
    card_size: int,
    batch_size: int,
    variants: Sequence[Variant],
    notes: list[str],
) -> list[dict[str, Any]]:
    """One shape: the eager model, then the kernels; a variant that fails ends the list, as CUDA is lost with it."""
    policy = made_policy(0).cuda()
    batch = only_safe(made_batch(batch_size, num_candidates, card_size, DENSITY, 1)).to("cuda")
    shape = {"N": num_candidates, "K": card_size, "beam": policy.config.beam, "batch": len(batch)}
    want = eager(policy, batch)
    times = timed(partial(eager, policy, batch), len(batch), 10)
    rows: list[dict[str, Any]] = [{**shape, "engine": "eager", **times, "equal_cards": 1.0}]
    for variant in variants:
        decoder = CudaDecoder(policy, *variant)
        call = partial(decoder.launch, batch, card_size)
        name = "kernels {}, {} and {} warps, {} registers".format(*variant)
        try:
            equal = (call().sort(1).values == want.sort(1).values).all(1).double().mean().item()
            times = timed(call, len(batch), 30)
            encode_ms = timed(partial(decoder.encode, batch), len(batch), 30)["ms"]
        except Exception as error:  # a compiler's or driver's failure is a finding, too
            notes.append(
                f"{name} failed at N={num_candidates}, K={card_size}: {str(error).splitlines()[0][:200]}"
            )
            break
        rows.append(
            {
                **shape,
                "engine": name,
                "variant": variant,
                **times,
                "encode_ms": encode_ms,
                "equal_cards": equal,
            }
        )
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
    event: Any = torch.cuda.Event
    for _ in range(repeats):
        begin, end = event(enable_timing=True), event(enable_timing=True)
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
