"""From scores to rows of a table: means over seeds with their spread, paired tests, the paper's figure beside ours.

Knows no data set and no picture.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from exactk.evaluation.significance import bootstrap_interval, paired_permutation
from exactk_lab.reproduce.cells import Result

SEED = 7  # of the permutation tests

LABELS: dict[str, str] = {
    "deeprank": "DeepRank",
    "bpr": "BPR",
    "listwise-gru": "Listwise-GRU",
    "listwise-mhsa": "Listwise-MHSA",
    "paper": "GAttN + RLfD, paper",
    "popularity": "popularity",
    "mf-softmax": "MF softmax",
    "own_likings": "MF softmax, rank 128, smoothed",
    "mf_tuned": "MF softmax, rank 128",
    "least-seen": "least seen (leak probe)",
    "random": "random",
    "best_ids": "GAttN, best-ids",
    "own_memory": "memory alone (control)",
    "guided": "GAttN, guided",
    "pair_value": "pair value + exact",
    "mf_graded": "MF on graded ratings",
    "best_graded": "graded likings and Bayesian FM + exact",
}


def label(method: str) -> str:
    """What tables call a method."""
    return LABELS.get(method, method)


def figures(result: Result, way: str | None = None) -> dict[str, Any]:
    """Mean and spread over seeds of P@K and HR@K, with the seeds' own figures; milliseconds a card."""
    row: dict[str, Any] = {"seeds": list(result.seeds)}
    for name, short in (("precision", "P"), ("hit_ratio", "HR"), ("value", "value")):
        per_seed = result.per_seed(name, way)
        if not per_seed or np.isnan(per_seed).all():
            continue
        row[short] = float(np.mean(per_seed))
        row[f"{short}_sd"] = float(np.std(per_seed, ddof=1)) if len(per_seed) > 1 else 0.0
        row[f"{short}_per_seed"] = [round(value, 4) for value in per_seed]
    scores = result.ways.get(way or result.first, ())
    if scores:
        row["ms_per_card"] = float(np.mean([s.ms_per_card for s in scores]))
        row["train_seconds"] = result.train_seconds
    if result.reason:
        row["missing"] = result.reason
    return row


def difference(ours: Result, theirs: Result, name: str = "precision") -> dict[str, float]:
    """Ours minus theirs, request by request, averaged over seeds; p by random sign flips, one coin per user."""
    a, b = ours.per_request(name), theirs.per_request(name)
    rng = np.random.default_rng(SEED)
    interval = bootstrap_interval(a - b, rng, groups=ours.user)
    return {
        "difference": interval.estimate,
        "low": interval.low,
        "high": interval.high,
        "p": paired_permutation(a, b, rng, ours.user),
    }


def left_out(rows: Sequence[dict[str, Any]], name: str) -> list[str]:
    """A note on rows without figures, so that no reader has to look for holes."""
    holes = [
        f"{row.get('column', '')} {row[name]} ({row['missing']})".strip() for row in rows if "missing" in row
    ]
    return [f"Left out: {'; '.join(holes)}."] if holes else []


def best_of(results: Sequence[Result], name: str = "precision") -> Result:
    """The one with the highest mean."""
    return max(results, key=lambda result: float(np.mean(result.per_seed(name))))
