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
from exactk.engine.cuda import CudaDecoder
from exactk.errors import ConfigError
from exactk.models.policy import Policy
from exactk.problem.batch import Batch
from exactk.search import Feasible, beam

SHAPES = ((50, 4), (20, 4), (50, 10))
DOUBTS = (0.0, 1e-5, 1e-4)  # of log-probability: what less decided is decoded again by the model
DENSITY = 0.98  # few enough conflicts that most requests need no look-ahead
BYTES = 4  # of a number


def run(quick: bool = False) -> Report:
    """Milliseconds a batch by CUDA events: median of many, with spread; agreement over at least 10,000 requests."""
    if not torch.cuda.is_available():
        raise ConfigError("bench decode --device cuda needs a GPU, and torch sees none")
    batch_size = 2048 if quick else 16_384
    rows: list[dict[str, Any]] = []
    notes = [torch.cuda.get_device_name(0)]
    for num_candidates, card_size in SHAPES[:1] if quick else SHAPES:
        rows += measured(num_candidates, card_size, batch_size, notes)
    rows.append(floor(batch_size))
    fastest = max(r["cards_per_second"] for r in rows if is_exact(r)) / 1e6
    goals = [Goal("million cards/s at N=50, K=4, beam 3, 99.9% equal cards", fastest, 5.0, "least")]
    return Report("decode-cuda", rows, goals, notes=notes, seeds=[0], quick=quick)


def is_exact(row: dict[str, Any]) -> bool:
    """Whether the row counts for the goal: its shape, and cards equal to the model's."""
    return (row.get("N"), row.get("K")) == (50, 4) and row.get("equal_cards", 0.0) >= 0.999


def measured(
    num_candidates: int,
    card_size: int,
    batch_size: int,
    notes: list[str],
) -> list[dict[str, Any]]:
    """One shape: the eager model, then the kernels; a failure ends the list, as CUDA is lost with it."""
    policy = made_policy(0).cuda()
    batch = only_safe(made_batch(batch_size, num_candidates, card_size, DENSITY, 1)).to("cuda")
    shape = {"N": num_candidates, "K": card_size, "beam": policy.config.beam, "batch": len(batch)}
    want = eager(policy, batch)
    times = timed(partial(eager, policy, batch), len(batch), 10)
    rows: list[dict[str, Any]] = [{**shape, "engine": "eager", **times, "equal_cards": 1.0}]
    for doubt in DOUBTS:
        try:
            decoder = CudaDecoder(policy, doubt)
            rows += [{**shape, **row} for row in by_kernels(decoder, batch, card_size, want)]
        except Exception as error:  # a compiler's or driver's failure is a finding, too
            told = str(error).splitlines()[0][:200]
            notes.append(f"kernels, doubt {doubt:g}, failed at N={num_candidates}, K={card_size}: {told}")
            break
    return rows


def by_kernels(
    decoder: CudaDecoder, batch: Batch, card_size: int, want: torch.Tensor
) -> list[dict[str, Any]]:
    """The kernels alone, as a recorded graph, and with all that a caller who knows nothing needs; or with doubt."""
    doubt, size = decoder.doubt, len(batch)
    call = partial(decoder.decided if doubt else decoder.launch, batch, card_size)
    cards, margins = call()
    row = {
        "engine": "kernels" + (f", what {doubt:g} decided decoded again" if doubt else ""),
        **timed(call, size, 30),
        "encode_ms": timed(partial(decoder.encode, batch), size, 30)["ms"],
        "equal_cards": same_cards(cards, want),
        "share_in_doubt": float((margins < doubt).double().mean()),
    }
    if doubt:
        return [row]
    graph, (cards, _) = recorded(call)
    replayed = {**timed(graph.replay, size, 30), "equal_cards": same_cards(cards, want)}
    whole = partial(decoder.recommend, batch)
    asked = {**timed(whole, size, 30), "equal_cards": same_cards(whole(), want)}
    return [
        row,
        {"engine": "kernels, as a CUDA graph", **replayed},
        {"engine": "kernels, with the look for dead ends", **asked},
    ]


def recorded(call: Callable[[], Any]) -> tuple[torch.cuda.CUDAGraph, Any]:
    """The call's launches as one graph, and where its replays leave their result."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = call()
    return graph, result


def same_cards(cards: torch.Tensor, wanted: torch.Tensor) -> float:
    """The share of requests with the same card, as a set."""
    return (cards.sort(1).values == wanted.sort(1).values).all(1).double().mean().item()


def floor(batch_size: int) -> dict[str, Any]:
    """What N=50, K=4, beam 3 costs at least: operations and bytes counted, over rates measured here."""
    N, D, L, W, K = 50, 32, 2, 3, 4
    rows = 1 + W * (K - 1)
    encoder = 2 * N * D * D * (1 + 4 * L + 3) + L * 4 * N * N * D
    decoder = rows * (2 * 3 * D * D + 2 * 7 * N * D + 2 * N * D) + W * (K - 1) * 2 * 16 * D * D
    # Ids, masks and graph in, encoded nodes out once and in again at every step, cards out.
    moved = 9 * N + N * N + (1 + K) * 4 * N * D * BYTES + 8 * K
    bytes_rate, product_rate = ceilings()
    seconds = batch_size * max(moved / bytes_rate, (encoder + decoder) / product_rate)
    return {
        "engine": "floor",
        "operations_a_card": encoder + decoder,
        "bytes_a_card": moved,
        "bytes_per_second": bytes_rate,
        "tf32_operations_per_second": product_rate,
        "ms": 1e3 * seconds,
        "cards_per_second": batch_size / seconds,
    }


def ceilings() -> tuple[float, float]:
    """Bytes a second of a large copy (read and written), operations a second of a large tf32 product."""
    here, there = torch.empty(2, 2**28, device="cuda")
    copy = timed(lambda: there.copy_(here), 1, 10)["ms"] / 1e3
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    left, right = torch.randn(2, 8192, 8192, device="cuda")
    product = timed(lambda: left @ right, 1, 10)["ms"] / 1e3
    torch.backends.cuda.matmul.allow_tf32 = before
    return 2 * BYTES * 2**28 / copy, 2 * 8192**3 / product


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
