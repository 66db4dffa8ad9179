"""Milliseconds a card on the CPU: the model, torch.compile, ONNX Runtime and the compiled engine, in one run.

Fails where the engine's cards are not the model's. Times are taken in turns, so that a slow moment hits all alike.
"""

from __future__ import annotations

import copy
import gc
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from exactk.errors import ExactKError
from exactk.learning.phases import compiled_decoder, compiled_search
from exactk.models.pairvalue import PairValue
from exactk.models.policy import Policy
from exactk.problem.batch import Batch
from exactk.search import Feasible, beam, distributions
from exactk.search.decoding import at_position
from exactk.settings.config import PairValueConfig
from exactk.tensors import TensorBatch
from exactk_lab.bench.engine.decode_columns import column_rows
from exactk_lab.bench.engine.made import SIZES, made_batch, made_policy, ruled_batch
from exactk_lab.bench.engine.train import one_core
from exactk_lab.bench.report import Goal, Report
from exactk_lab.bench.timing import each_once, figures

SHAPES = (
    (50, 4, 1, 0.98),
    (200, 10, 1, 0.995),
    (20, 4, 32, 0.98),
    (50, 10, 32, 0.99),
)  # N, K, batch, density
CHECKED = ((9, 3), (20, 4), (50, 4), (50, 10), (70, 6))  # N, longest card
ROUNDING = 1e-4  # log-probabilities closer than this are a tie: float32 sums in another order
AUTHORS = {(20, 4): 0.110, (50, 10): 0.406}  # their TensorFlow graph, ms a card in batches of 32, one core


class UnequalCardsError(ExactKError):
    """The fast path and the model disagree on a card."""


def run(quick: bool = False) -> Report:
    """Equality first, then times: median, 99th percentile and spread per engine and shape; ratios are to eager."""
    policy = made_policy(0)
    with one_core():
        checked, ties = check(policy, 1_000 if quick else 10_000)
        rows: list[dict[str, Any]] = []
        notes = [
            f"{checked} random requests under rules decoded equally, {ties} of them ties within rounding"
        ]
        for N, K, batch_size, density in SHAPES:
            rows += measured(policy, made_batch(batch_size, N, K, density, 1), quick, notes)
        rows.append(two_threads(policy, quick))
        rows += pair_value_rows(quick)
        rows += column_rows(quick)
    return Report("decode", rows, goals_of(rows), notes, seeds=[0, 1], quick=quick)


def check(policy: Policy, num_requests: int) -> tuple[int, int]:
    """Decode random requests under all kinds of rules twice; (how many, how many were ties); unequal cards raise."""
    decoder, done, ties, seed = compiled_decoder(policy), 0, 0, 100
    while done < num_requests:
        N, longest = CHECKED[seed % len(CHECKED)]
        batch = ruled_batch(300, N, longest, seed)
        ties += compared(policy, batch, torch.from_numpy(decoder.recommend(batch.arrays())))
        done, seed = done + len(batch), seed + 1
    return done, ties


@torch.no_grad()
def compared(policy: Policy, batch: TensorBatch, cards: torch.Tensor) -> int:
    """How many cards (as sets) differ by a tie within rounding; any other difference is an error."""
    wanted = eager(policy, batch)
    differing = (cards.sort(1).values != wanted.sort(1).values).any(1).nonzero().squeeze(1)
    for b in differing.tolist():
        size = int(batch.card_size[b])
        if not tied(policy, batch.rows(slice(b, b + 1)), torch.stack([cards[b, :size], wanted[b, :size]])):
            raise UnequalCardsError(
                f"request {b}: the engine chose {cards[b].tolist()}, the model {wanted[b].tolist()}, "
                "and at no choice were the two as likely as each other"
            )
    return len(differing)


def tied(policy: Policy, one: TensorBatch, two_cards: torch.Tensor) -> bool:
    """Whether the cards, once parted, were as likely as each other after some choice: there, rounding decides."""
    along = distributions(policy.steps(one), Feasible.of(one), two_cards.unsqueeze(0))
    likely = at_position(along.log_probs, two_cards.unsqueeze(0))[0].cumsum(1)  # 2 K
    parted = (two_cards[0] != two_cards[1]).cumsum(0) > 0
    return bool((((likely[0] - likely[1]).abs() < ROUNDING) & parted).any())


@torch.no_grad()
def eager(policy: Policy, batch: TensorBatch) -> torch.Tensor:
    """The model's own beam."""
    return beam(policy.steps(batch), Feasible.of(batch), policy.config.beam).cards[:, 0]


def measured(policy: Policy, batch: TensorBatch, quick: bool, notes: list[str]) -> list[dict[str, Any]]:
    """One shape, every engine, in turns; what cannot run here is left out with a note."""
    shape = {
        "N": batch.item.shape[1],
        "K": int(batch.card_size[0]),
        "beam": policy.config.beam,
        "batch": len(batch),
    }
    engines: dict[str, Callable[[], Any]] = {
        "eager": partial(eager, policy, batch),
        "compiled, one core": partial(compiled_decoder(policy, threads=1).recommend, batch.arrays()),
    }
    with tempfile.TemporaryDirectory() as folder:
        try:
            engines["onnxruntime"] = onnx_call(policy, batch, Path(folder) / "cards.onnx")
        except ImportError as error:
            notes.append(f"onnxruntime left out: {error}")
        if not quick and len(batch) == 1 and shape["N"] == 50:
            engines["torch.compile"] = partial(eager, inductor(policy), batch)
        times = in_turns(engines, 30 if quick else 300)
    base = float(np.median(times["eager"]))
    return [
        {**shape, "engine": name, **figures(spent, len(batch)), "times_eager": base / float(np.median(spent))}
        for name, spent in times.items()
    ]


def inductor(policy: Policy) -> Policy:
    """The policy with its three functions compiled by torch."""
    faster = copy.deepcopy(policy)
    faster.encoder = torch.compile(faster.encoder)  # type: ignore[assignment]
    for name in ("step", "advance"):
        setattr(faster.pointer, name, torch.compile(getattr(faster.pointer, name)))
    return faster


def onnx_call(policy: Policy, batch: TensorBatch, path: Path) -> Callable[[], Any]:
    """One run of the exported graph on one thread, its inputs ready."""
    import onnxruntime  # type: ignore[import-untyped,unused-ignore]

    from exactk.learning.onnx import export_onnx, onnx_inputs

    export_onnx(policy, path, card_size=int(batch.card_size.max()))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return partial(session.run, ["card"], onnx_inputs(policy, batch))


def in_turns(engines: dict[str, Callable[[], Any]], repeats: int) -> dict[str, list[float]]:
    """Milliseconds of each call, the engines one after the other, again and again; the first calls are not counted.

    Python's collector rests meanwhile: what it cleans up belongs to no engine.
    """
    for call in engines.values():
        for _ in range(5):
            call()
    times: dict[str, list[float]] = {name: [] for name in engines}
    gc.collect()
    gc.disable()
    try:
        for _ in range(repeats):
            for name, call in engines.items():
                call()  # what the engine before left in the caches is not this one's fault
                began = time.perf_counter()
                call()
                times[name].append(1e3 * (time.perf_counter() - began))
    finally:
        gc.enable()
    return times


def two_threads(policy: Policy, quick: bool) -> dict[str, Any]:
    """A batch large enough to share, on one thread and on two."""
    batch = made_batch(512, 50, 4, 0.98, 1)
    times = in_turns(
        {str(n): partial(compiled_decoder(policy, threads=n).recommend, batch.arrays()) for n in (1, 2)},
        5 if quick else 30,
    )
    one, two = (float(np.median(times[n])) for n in ("1", "2"))
    return {
        "N": 50, "K": 4, "beam": policy.config.beam, "batch": 512, "engine": "compiled, two cores",
        **figures(times["2"], 512), "times_one_core": one / two,
    }  # fmt: skip


def pair_value_rows(quick: bool) -> list[dict[str, Any]]:
    """The learned pair value and exact search over it, encoder included; other requests at every call."""
    config = PairValueConfig()
    value = PairValue(config, SIZES, torch.Generator().manual_seed(0)).eval()
    with torch.no_grad():
        for parameter in value.parameters():
            parameter.mul_(3.0)  # as decided as a trained one
    searches: dict[str, Callable[[Batch], Any]] = {
        "pair value, exact search, torch": lambda batch: value.best(TensorBatch.of(batch)),
        "pair value, exact search": compiled_search(value).recommend,
    }
    rows = []
    for K in (4, 10):
        batches = [made_batch(1, 50, K, 0.95, seed).arrays() for seed in range(20 if quick else 200)]
        for name, recommend in searches.items():
            rows.append(
                {"N": 50, "K": K, "batch": 1, "engine": name, **figures(each_once(recommend, batches), 1)}
            )
    return rows


def goals_of(rows: list[dict[str, Any]]) -> list[Goal]:
    """The figures promised in the issue."""

    def row(engine: str, N: int, K: int) -> dict[str, Any]:
        return next(r for r in rows if (r["engine"], r["N"], r["K"]) == (engine, N, K))

    one = "compiled, one core"
    goals = [
        Goal("ms a card, N=50, K=4, alone", row(one, 50, 4)["ms_p50"], 0.25, "most"),
        Goal("p99 over p50, same", row(one, 50, 4)["ms_p99"] / row(one, 50, 4)["ms_p50"], 3.0, "most"),
    ]
    for N, K, least in ((50, 4, 5.0), (200, 10, 4.0), (20, 4, 3.0), (50, 10, 3.0)):
        goals.append(Goal(f"times eager, N={N}, K={K}", row(one, N, K)["times_eager"], least, "least"))
    for (N, K), most in {(20, 4): 0.045, (50, 10): 0.16}.items():
        name = f"ms a card, N={N}, K={K}, batch 32 (the authors' graph {AUTHORS[N, K]:g})"
        goals.append(Goal(name, row(one, N, K)["ms_p50"], most, "most"))
    goals.append(
        Goal("two cores over one", row("compiled, two cores", 50, 4)["times_one_core"], 1.8, "least")
    )
    for K, most in ((4, 0.4), (10, 20.0)):
        name = f"ms a card by pair value and exact search, N=50, K={K}"
        goals.append(Goal(name, row("pair value, exact search", 50, K)["ms_p50"], most, "most"))
    by_columns = {
        r["batch"]: r["ms_p50"] for r in rows if (r["N"], r["engine"]) == (50, "card value, 2 members")
    }
    goals.append(Goal("ms a card by the card value, N=50, K=4, alone", by_columns[1], 0.3, "most"))
    goals.append(Goal("the same in batches of 32", by_columns[32], 0.1, "most"))
    return goals
