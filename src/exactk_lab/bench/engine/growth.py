"""How time and memory grow: with candidates, card size, beam, batch and catalogue; one core.

Times are the compiled decoder's, and a training step's for the catalogue.
`python -m exactk_lab.bench.engine.growth results/bench-growth.json docs/img/growth.png` draws a kept result.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Generator

from exactk.engine.decode import places_of
from exactk.errors import MissingExtraError
from exactk.learning.optimiser import Optimiser, with_sparse_gradients
from exactk.learning.phases import compiled_decoder
from exactk.learning.rlfd import policy_step
from exactk.models.policy import Policy
from exactk.settings.config import InputSizes, PolicyConfig
from exactk.settings.presets import preset
from exactk_lab.bench.engine.embeddings import bytes_of
from exactk_lab.bench.engine.made import logged_batch, made_batch, made_policy
from exactk_lab.bench.engine.train import one_core
from exactk_lab.bench.report import Report

N, K, W, B = 50, 4, 3, 32  # what is held while another number grows
CANDIDATES: tuple[int, ...] = (20, 50, 100, 200, 350, 500)
CARD_SIZES: tuple[int, ...] = (2, 4, 8, 12, 16, 20)
BEAMS: tuple[int, ...] = (1, 2, 3, 5, 8, 16, 32)
BATCHES: tuple[int, ...] = (1, 4, 16, 64, 256, 1024)
CATALOGUES: tuple[int, ...] = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)
MEGABYTE = 2**20


def run(quick: bool = False) -> Report:
    """One row per point of a curve: what grew, to how much, milliseconds with spread, megabytes."""
    repeats = 5 if quick else 40
    rows: list[dict[str, Any]] = []
    few = slice(3) if quick else slice(None)
    with one_core():
        rows += [decoded("candidates", n, repeats, candidates=n) for n in CANDIDATES[few]]
        rows += [decoded("card size", k, repeats, candidates=200, card_size=k) for k in CARD_SIZES[few]]
        rows += [decoded("beam", w, repeats, beam=w) for w in BEAMS[few]]
        rows += [decoded("batch", b, repeats, batch=b) for b in BATCHES[few]]
        rows += [decoded("catalogue", items, repeats, items=items) for items in CATALOGUES[few]]
        rows += [trained(items, 5 if quick else 20) for items in CATALOGUES[few]]
    return Report("growth", rows, notes=["one core"], seeds=[0, 1], quick=quick)


def decoded(
    what: str,
    to: int,
    repeats: int,
    candidates: int = N,
    card_size: int = K,
    beam: int = W,
    batch: int = B,
    items: int = 100_000,
) -> dict[str, Any]:
    """Milliseconds a card of the compiled decoder; megabytes of its scratch and of the model."""
    sizes = InputSizes(num_users=10_000, num_items=items)
    policy = made_policy(0, PolicyConfig(beam=beam), sizes)
    requests = made_batch(batch, candidates, card_size, 0.995, 1, sizes)
    decoder = compiled_decoder(policy, threads=1)
    asked = requests.arrays()
    times = clocked(lambda: decoder.recommend(asked), repeats)
    scratch = 4 * places_of(decoder._sizes, candidates).end
    return {
        "what": what,
        "to": to,
        "of": "a card decoded",
        "N": candidates,
        "K": card_size,
        "beam": beam,
        "batch": batch,
        "items": items,
        **spread_of(times / batch),
        "scratch_megabytes": scratch / MEGABYTE,
        "model_megabytes": bytes_of(policy.state_dict(), sparse=True)["weights"] / MEGABYTE,
    }


def trained(items: int, repeats: int) -> dict[str, Any]:
    """Milliseconds of a supervised step of 32 requests with sparse gradients; megabytes with Adam's moments."""
    sizes = InputSizes(num_users=10_000, num_items=items)
    config, generator = preset("paper"), Generator().manual_seed(0)
    policy = Policy(config.policy, sizes, generator)
    with_sparse_gradients(policy)
    optimiser = Optimiser(policy, 0.001, 0.0)
    batch = logged_batch(B, generator)
    batch = replace(batch, item=torch.randint(1, items, batch.item.shape, generator=generator))

    def step() -> None:
        step = policy_step(policy, None, config.training, batch, 0.0, generator)
        optimiser.zero_grad()
        step.loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step(0.001)

    times = clocked(step, repeats)
    taken = bytes_of(policy.state_dict(), sparse=True)
    return {
        "what": "catalogue",
        "to": items,
        "of": "a training step",
        "N": 20,
        "K": K,
        "batch": B,
        "items": items,
        **spread_of(times),
        "model_megabytes": sum(taken.values()) / MEGABYTE,
    }


def clocked(call: Callable[[], Any], repeats: int) -> np.ndarray:
    """Milliseconds of each call; the first three are not counted."""
    for _ in range(3):
        call()
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        call()
        times.append(1e3 * (time.perf_counter() - began))
    return np.array(times)


def spread_of(times: np.ndarray) -> dict[str, float]:
    """Median, and where the middle half lies."""
    p25, p50, p75 = np.percentile(times, [25, 50, 75])
    return {"ms": float(p50), "ms_p25": float(p25), "ms_p75": float(p75)}


PANELS = (
    ("candidates", "candidates N (K=4, beam 3)"),
    ("card size", "card size K (N=200)"),
    ("beam", "beam (N=50, K=4)"),
    ("batch", "batch (N=50, K=4)"),
    ("catalogue", "items in the catalogue"),
)
COLOURS = {"a card decoded": "#c2410c", "a training step": "#1d4ed8"}


def drawn(document: dict[str, Any], path: Path) -> Path:
    """Milliseconds against each number that grows, with the middle half of the calls; memory in the last panel."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("pictures need matplotlib: pip install 'exactk[plot]'") from error
    figure = Figure(figsize=(11, 6), layout="constrained")
    axes = figure.subplots(2, 3).flat
    for axis, (what, label) in zip(axes, PANELS, strict=False):
        for of, colour in COLOURS.items():
            rows = [r for r in document["rows"] if (r["what"], r["of"]) == (what, of)]
            if rows:
                to = [r["to"] for r in rows]
                axis.plot(to, [r["ms"] for r in rows], "o-", color=colour, markersize=4, label=of)
                axis.fill_between(
                    to, [r["ms_p25"] for r in rows], [r["ms_p75"] for r in rows], color=colour, alpha=0.2
                )
        finish(axis, label, "milliseconds")
        if what != "catalogue":
            axis.set_xticks(to, [f"{t:,}" for t in to])
    memory = axes[len(PANELS)]
    for of, colour in COLOURS.items():
        rows = [r for r in document["rows"] if (r["what"], r["of"]) == ("catalogue", of)]
        memory.plot(
            [r["to"] for r in rows],
            [r["model_megabytes"] for r in rows],
            "o-",
            color=colour,
            markersize=4,
            label=of,
        )
    finish(memory, "items in the catalogue", "megabytes")
    figure.savefig(path, dpi=110)
    return path


def finish(axis: Any, label: str, unit: str) -> None:
    """Names, scales, no frame."""
    from matplotlib.ticker import FormatStrFormatter, LogLocator

    axis.set_xlabel(label)
    axis.set_ylabel(unit)
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.minorticks_off()
    axis.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.yaxis.set_major_formatter(FormatStrFormatter("%g"))
    axis.grid(visible=True, alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(fontsize=7)


if __name__ == "__main__":
    drawn(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]))
